#include "comm/cuda/families.cuh"
#include "comm/cuda/ll.cuh"

const unsigned line_threads = LINE_THREADS;

template <int TYPE, int OP> static const kernel_fn any_line = line_kernel<TYPE, OP, false>;
template <int TYPE, int OP> static const kernel_fn even_line = line_kernel<TYPE, OP, true>;

const family_t line_family = BY_TYPE(any_line);
const family_t even_line_family = BY_TYPE(even_line);
