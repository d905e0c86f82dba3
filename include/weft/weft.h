/* Weft: everything. */
#ifndef WEFT_WEFT_H
#define WEFT_WEFT_H

#include <weft/comm.h>
#include <weft/device.h>
#include <weft/status.h>
#include <weft/symm.h>
#include <weft/types.h>

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0

#endif
