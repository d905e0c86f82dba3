/* CRC-32C (Castagnoli): finds what disks, copies and cut files do to data. Not against intent. */
#ifndef WEFT_BASE_CHECKSUM_H
#define WEFT_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of some bytes followed by these, given that of the former (0: none before). Uses the
 * processor's instruction where there is one: several gigabytes a second. */
uint32_t weft__crc32c(uint32_t before, const void *bytes, size_t count);

/* The same by table, for processors without the instruction and to test against. */
uint32_t weft__crc32c_plain(uint32_t before, const void *bytes, size_t count);

#endif
