/* weft_scale on any kind of device: test/kernel/ runs these on virtual GPUs, test/gpu/ on GPUs. */
#ifndef WEFT_TEST_KERNEL_SCALE_CASES_H
#define WEFT_TEST_KERNEL_SCALE_CASES_H

/* Each returns NULL, or what was wrong. */
const char *scale_values(void);    /* types x counts x places x streams, against the reference */
const char *scale_order(void);     /* when the scalar is read */
const char *scale_arguments(void); /* what is refused */

#endif
