/* Pre-tokenizers: cut a text into the words that BPE then works on.  A list of
 * steps as the file has them; the last one is always ByteLevel. */
#ifndef DYTI_FORMAT_TOKENIZER_PRE_H
#define DYTI_FORMAT_TOKENIZER_PRE_H

#define PCRE2_CODE_UNIT_WIDTH 8

#include "format/json_file.h"
#include "format/tokenizer_text.h"

#include <pcre2.h>

#define DYTI_MOST_PRE_STEPS 16u

enum dyti_pre_kind { DYTI_PRE_SPLIT, DYTI_PRE_DIGITS, DYTI_PRE_BYTES };

/* What becomes of the pieces that a pattern matched. */
enum dyti_split_mode {
    DYTI_SPLIT_REMOVED,
    DYTI_SPLIT_ISOLATED,
    DYTI_SPLIT_PREVIOUS, /* a match joins the piece before it */
    DYTI_SPLIT_NEXT,     /* … after it */
    DYTI_SPLIT_CONTIGUOUS
};

struct dyti_pre_step {
    enum dyti_pre_kind kind;
    enum dyti_split_mode mode;
    bool invert;       /* SPLIT: what does not match is the match */
    bool prefix_space; /* BYTES */
    pcre2_code *code;  /* SPLIT, BYTES with use_regex; NULL = no cut */
};

struct dyti_pre {
    struct dyti_pre_step step[DYTI_MOST_PRE_STEPS]; /* [step_count] */
    size_t step_count;
};

/* Read the "pre_tokenizer" member. */
enum dyt_status dyti_pre_init(struct dyti_pre *pre, const char *file,
                              const json_t *json);
void dyti_pre_fini(struct dyti_pre *pre);

/* Calls word(arg, bytes, count) for each piece, in order.  Text is valid
 * UTF-8. */
typedef enum dyt_status (*dyti_word_fn)(void *arg, const char *word,
                                        size_t word_bytes);
enum dyt_status dyti_pre_run(const struct dyti_pre *pre, const char *text,
                             size_t text_bytes, dyti_word_fn word, void *arg);

/* Rewrite a pattern of the reference's dialect for PCRE2: \s and \S become the
 * Unicode property White_Space, which PCRE2's \s is not quite.  *out is
 * malloc'ed.  DYT_ERR_UNSUPPORTED: \S, && or a set inside brackets, which
 * PCRE2 would read otherwise. */
enum dyt_status dyti_pattern_translate(const char *file, const char *pattern,
                                       char **out);

#endif /* DYTI_FORMAT_TOKENIZER_PRE_H */
