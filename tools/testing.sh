# shellcheck shell=bash
# Sourced by tools/test and tools/test-gpu: builds and tests, counted.
passed=0 failed=0 skipped=0
failures=()
runner=()

fail() {
    failed=$((failed + 1))
    failures+=("$1")
}

# werror COMPILER FROM TO: ON if its version is one of these, which give no warnings. Others may know more of them: that
# is for us to mend, and no reason why the tests of a user should fail.
werror() {
    local version
    version=$("$1" -dumpversion) && version=${version%%.*}
    if [ "$version" -ge "$2" ] && [ "$version" -le "$3" ]; then
        echo ON
    else
        echo "$1 $version is not one of those that the sources are checked with ($2 to $3): its warnings are no errors" >&2
        echo OFF
    fi
}

# ahead DIR COMMAND...: begin to build DIR with what the tests that run meanwhile leave of the cores: many of them wait.
# `build` of the same DIR waits for it; what went wrong it says again, and aloud.
declare -A builder
ahead() {
    mkdir -p "$1" || return
    set -m # a process group of its own, by which all of it can be ended
    nice -n 19 "${@:2}" >"$1/ahead.log" 2>&1 &
    builder[$1]=$!
    set +m
}
await() {
    if [ -n "${builder[$1]:-}" ]; then
        wait "${builder[$1]}"
        unset "builder[$1]"
    fi
}
end_builders() {
    local pid
    for pid in "${builder[@]}"; do
        kill -TERM -- "-$pid" 2>/dev/null
    done
}

# build NAME DIR OPTION...: a build counts as a test.
build() {
    local name=$1 where=$2
    shift 2
    echo "== $name"
    await "$where"
    if tools/build "$where" "$@"; then
        passed=$((passed + 1))
    else
        fail "$name: does not build"
        return 1
    fi
}

# run NAME DIR CTEST-OPTION...: run the tests of DIR and add them up from ctest's lines. On two cores, however
# many there are: test/CMakeLists.txt says how many quarters of them a test keeps busy. Three more are for tests that
# wait, which take one each.
run() {
    local name=$1 where=$2 log=$2/test.log status total ok skip
    shift 2
    "${runner[@]}" ctest --test-dir "$where" --output-on-failure -j $((4 * ${JOBS:-2} + 3)) "$@" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    total=$(grep -cE '^ *[0-9]+/[0-9]+ Test +#[0-9]+: ' "$log")
    ok=$(grep -cE '^ *[0-9]+/[0-9]+ Test +#[0-9]+: .* Passed +[0-9.]+ sec' "$log")
    skip=$(grep -cE '^ *[0-9]+/[0-9]+ Test +#[0-9]+: .*\*\*\*Skipped' "$log")
    passed=$((passed + ok))
    skipped=$((skipped + skip))
    while read -r test; do
        fail "$name: $test"
    done < <(grep -E '^ *[0-9]+/[0-9]+ Test +#[0-9]+: ' "$log" |
        grep -vE ' Passed +[0-9.]+ sec|\*\*\*Skipped' | sed -E 's/^.*#[0-9]+: ([^ ]+).*$/\1/')
    if [ "$total" -eq 0 ]; then
        fail "$name: no tests were found"
    elif [ "$status" -ne 0 ] && [ "$total" -eq $((ok + skip)) ]; then
        fail "$name: ctest ended with status $status"
    fi
}

# Names what failed, ends with one line of counts, and is false if anything did.
finish() {
    echo
    for failure in "${failures[@]}"; do
        echo "failed: $failure"
    done
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
}
