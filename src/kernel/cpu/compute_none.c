/* The inner loops "none": built with no option: what every CPU of this architecture has. */
#include "kernel/cpu/inner_impl.h"

const weft_inner_t weft__inner_none = INNER_TABLE("none", OWN_PRODUCTS);
