/* Choices that were measured once: which algorithm a matrix product of some shape takes on some
 * GPU.
 *
 * One small file for each, so that every process of this user on this machine makes the same
 * choice, now and when a run is resumed: who has measured offers its choice, the first offer
 * stands, and everybody, whoever offered it, takes what stands. Nobody waits for anybody. */
#ifndef WEFT_KERNEL_CUDA_CHOICES_H
#define WEFT_KERNEL_CUDA_CHOICES_H

#include <stdbool.h>
#include <stddef.h>

/* What stands for this key, `bytes` of it. false: nothing does. */
bool weft__choice_find(const void *key, size_t key_bytes, void *choice, size_t bytes);

/* Offer *choice; it becomes what stands. Where nothing can be kept (no home, a full disk) it is
 * left as it is, with one warning. */
void weft__choice_offer(const void *key, size_t key_bytes, void *choice, size_t bytes);

#endif
