/* The kernels of weft_scale and their launches, as they are; apart from those of collectives, whose
 * names they share. */
#include "kernel/cuda/scale.cu"
