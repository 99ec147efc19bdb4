/* Prompts and samples inside a message: generate, samples and train use them.
 */
#ifndef DYTI_WIRE_GENERATE_H
#define DYTI_WIRE_GENERATE_H

#include "wire/codec.h"

void dyti_write_prompts(struct dyti_writer *w, const struct dyti_prompt *prompt,
                        uint32_t count);
/* calloc'ed array, also on failure (with what was read so far); the reader's
 * status says which.  NULL only when there was none to read. */
struct dyti_prompt *dyti_read_prompts(struct dyti_reader *r,
                                      uint32_t *out_count);

void dyti_write_samples(struct dyti_writer *w, const struct dyti_sample *sample,
                        uint32_t count);
struct dyti_sample *dyti_read_samples(struct dyti_reader *r,
                                      uint32_t *out_count);

#endif /* DYTI_WIRE_GENERATE_H */
