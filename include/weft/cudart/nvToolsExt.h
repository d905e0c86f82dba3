/* Weft: NVTX by its old name. */
#ifndef WEFT_CUDART_NVTOOLSEXT_OLD_H
#define WEFT_CUDART_NVTOOLSEXT_OLD_H

#include <weft/cudart/nvtx3/nvToolsExt.h>

#endif
