/* Added tokens: found in the text before anything else looks at it. */
#ifndef DYTI_FORMAT_TOKENIZER_ADDED_H
#define DYTI_FORMAT_TOKENIZER_ADDED_H

#include "format/tokenizer_text.h"

struct dyti_added_token {
    char *text; /* owned; what is looked for (normalized where it says so) */
    size_t text_bytes;
    int32_t id;
    bool single_word;    /* only where no word character touches it */
    bool lstrip, rstrip; /* takes the white space on that side along */
};

/* Tokens in buckets by first byte, longest first: leftmost, then longest. */
struct dyti_added {
    struct dyti_added_token *token; /* [count] */
    size_t count, cap;
    uint32_t first[257]; /* bucket of byte b: [first[b], first[b + 1]) */
};

/* Takes over text on DYT_OK. */
enum dyt_status dyti_added_add(struct dyti_added *added,
                               struct dyti_added_token token);
/* After the last add. */
void dyti_added_finish(struct dyti_added *added);
void dyti_added_fini(struct dyti_added *added);

/* Calls piece(arg, text, count, -1) for what lies between and piece(arg, text,
 * count, id) for each token found, in order. */
typedef enum dyt_status (*dyti_piece_fn)(void *arg, const char *text,
                                         size_t text_bytes, int32_t id);
enum dyt_status dyti_added_split(const struct dyti_added *added,
                                 const char *text, size_t text_bytes,
                                 dyti_piece_fn piece, void *arg);

#endif /* DYTI_FORMAT_TOKENIZER_ADDED_H */
