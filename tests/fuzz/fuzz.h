/* What a harness defines: take any bytes, never crash, give all back.  Returns
 * 0.  libFuzzer calls it, or replay.c. */
#ifndef DYT_FUZZ_H
#define DYT_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif /* DYT_FUZZ_H */
