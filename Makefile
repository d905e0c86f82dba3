# Short cuts in front of CMake. `make help` lists them.
BUILD ?= build
PREFIX ?= /usr/local
PEERS ?= --ranks 2,4,8
PEERS_SHMEM ?= --pes 2,4

.PHONY: all help deps demo test test-quick test-plans test-faults test-gpu test-fresh soak fuzz install peers \
        peers-shmem format clean

all: ## build the library, the command, examples and tests in build/
	@tools/build $(BUILD)

help: ## show this text
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

deps: ## install what is missing from Debian's packages
	@tools/install-deps

demo: ## train a small GPT on 4 virtual GPUs, and let it write
	@tools/install-deps
	@TARGET=user-parts tools/build $(BUILD)
	@tools/demo $(BUILD)

test: ## everything: all tests, sanitizers, both compilers, checks of the sources
	@tools/test $(BUILD)

test-quick: ## the tests of the plain build only, without the slow ones
	@tools/test --quick $(BUILD)

test-plans: all ## train under every plan and compare with one rank; 10 minutes on 2 cores
	@$(BUILD)/test/parallel/test_plans --all
	@$(BUILD)/test/parallel/test_bubble --strict

test-faults: all ## let the system fail Weft at every point where it can; an hour on 2 cores
	@WEFT_BUILD=$(abspath $(BUILD)) $(BUILD)/test/faults/drive -j 8

test-gpu: ## what needs a GPU, with compute-sanitizer; tools/test-gpu has options
	@tools/test-gpu $(BUILD)

test-fresh: ## make demo and make test in minimal Debians 12 and 13, as root; tools/test-fresh has options
	@tools/test-fresh || [ $$? = 77 ]

soak: ## random collectives, ten minutes of random lives of jobs, and tests that take long
	@tools/test --soak $(BUILD)

fuzz: ## every reader against anything, 10 minutes each, under libFuzzer; tools/fuzz has options
	@tools/install-deps
	@tools/fuzz

install: ## install under PREFIX (/usr/local); DESTDIR is honoured
	@TARGET=user-parts tools/build $(BUILD)
	@cmake --install $(BUILD) --prefix $(PREFIX)
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

peers: ## compare with Open MPI and MPICH on this machine
	@tools/install-deps peers
	@tools/build $(BUILD)
	@tools/peers $(PEERS)

peers-shmem: ## compare with Open MPI's OSHMEM and other OpenSHMEMs on this machine
	@tools/install-deps peers
	@tools/build $(BUILD)
	@tools/peers-shmem $(PEERS_SHMEM)

format: ## apply clang-format to all sources
	@tools/check-format --fix

clean: ## remove build/
	@rm -rf $(BUILD)
