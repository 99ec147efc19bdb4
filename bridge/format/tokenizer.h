/* tokenizer.json: byte-level BPE as GPT-2, Llama 3, Qwen2/3 and SmolLM2 have
 * it.  in: a model directory   out: ops/tokenizer.h
 *
 * What a file asks for and we do not have (another model, normalizer,
 * pre-tokenizer, post-processor, decoder) is refused by name at open, so that
 * ids equal those of the reference or there are none.  A character without a
 * token is an error, not a silent gap.
 * Threads: an open tokenizer is used by several threads at once. */
#ifndef DYTI_FORMAT_TOKENIZER_H
#define DYTI_FORMAT_TOKENIZER_H

#include "ops/tokenizer.h"

/* vocab_size() is the largest id plus one; ids without a token decode to
 * nothing (models pad their vocabulary). */
extern const struct dyti_tokenizer_ops dyti_tokenizer_hf;

/**
 * Open <dir>/tokenizer.json.  Give back with dyti_tokenizer_close().
 * @return DYT_ERR_IO, DYT_ERR_FORMAT, DYT_ERR_UNSUPPORTED, DYT_ERR_NOMEM
 */
enum dyt_status dyti_tokenizer_open(const char *dir,
                                    struct dyti_tokenizer *out);

/* The same from a text; `file` is shown in messages. */
enum dyt_status dyti_tokenizer_parse(const char *file, const char *text,
                                     size_t size_bytes,
                                     struct dyti_tokenizer *out);

/* A zeroed one is fine; leaves it zeroed. */
void dyti_tokenizer_close(struct dyti_tokenizer *tokenizer);

#endif /* DYTI_FORMAT_TOKENIZER_H */
