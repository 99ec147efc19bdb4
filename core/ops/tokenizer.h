/* Text to ids and back.  Implemented by bridge/format.
 * Threads: encode and decode of one handle by several threads at once. */
#ifndef DYTI_OPS_TOKENIZER_H
#define DYTI_OPS_TOKENIZER_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dyti_tokenizer_ops {
    uint32_t struct_size;
    const char *name;
    /* UTF-8 text (bytes that are not valid UTF-8 are refused).  *out_ids is
     * malloc'ed, the caller's.  add_special: what the file's post-processor
     * adds (BOS, …). */
    enum dyt_status (*encode)(void *self, const char *text, size_t text_bytes,
                              bool add_special, int32_t **out_ids,
                              size_t *out_count);
    /* *out_text is malloc'ed, NUL-terminated; may contain NULs inside.
     * Incomplete UTF-8 becomes U+FFFD. */
    enum dyt_status (*decode)(void *self, const int32_t *ids, size_t count,
                              bool skip_special, char **out_text,
                              size_t *out_bytes);
    /* Raw bytes of one token (no replacement), static until close: what stop
     * strings across token borders need. */
    enum dyt_status (*token_bytes)(void *self, int32_t id, const char **out,
                                   size_t *out_bytes);
    int32_t (*vocab_size)(void *self);
    /* Id of a token by its text, -1 if there is none. */
    int32_t (*token_id)(void *self, const char *text);
};

struct dyti_tokenizer {
    const struct dyti_tokenizer_ops *ops;
    void *self;
};

#endif /* DYTI_OPS_TOKENIZER_H */
