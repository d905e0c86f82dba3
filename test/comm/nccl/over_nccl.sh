# shellcheck shell=bash
# To be sourced: what runs from here on has the fake GPU, and an NCCL made of Weft.
folder=$WEFT_BUILD/test/comm/nccl
export WEFT_DEVICE=cuda WEFT_CUDA_MODULE=$folder/fake_cuda.so
export WEFT_ENGINE=nccl WEFT_NCCL=$folder/fake_nccl_by_weft.so
# The second copy of Weft in a process needs more room for thread-local variables than is left.
export GLIBC_TUNABLES=glibc.rtld.optional_static_tls=65536
