/* Sizes as people write them: "64MiB", "80 GB", "4096". */
#ifndef DYTI_FORMAT_SIZE_TEXT_H
#define DYTI_FORMAT_SIZE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* False: no size, or above 2^62 bytes; *out_bytes untouched.  Threads: any. */
bool dyti_size_from_text(const char *text, uint64_t *out_bytes);

#endif /* DYTI_FORMAT_SIZE_TEXT_H */
