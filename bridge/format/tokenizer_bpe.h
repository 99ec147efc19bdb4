/* The BPE model: a vocabulary of byte strings and ranked merges.
 * Read-only once built, except for what it remembers about words. */
#ifndef DYTI_FORMAT_TOKENIZER_BPE_H
#define DYTI_FORMAT_TOKENIZER_BPE_H

#include "format/json_file.h"
#include "format/tokenizer_text.h"

#include <stdatomic.h>

#define DYTI_MOST_TOKENS (1 << 21)

struct dyti_token {
    char *text; /* as in the file, NUL-terminated, owned; NULL = no token */
    uint32_t text_bytes;
    uint32_t bytes_length;
    char *bytes;   /* what it decodes to, owned */
    bool in_model; /* has a place in the byte map: BPE may make it */
    bool special;
    /* Does BPE make this token of its own bytes?  0 not known yet, 1 yes, 2
     * no.  Found out on first use: a cache of words that needs no lock. */
    _Atomic unsigned char whole;
};

struct dyti_slot_map {
    uint32_t *slot; /* id + 1; 0 = free */
    size_t mask;    /* slots - 1 */
};

struct dyti_merge {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX = free */
    uint32_t rank;
    int32_t made;
};

struct dyti_bpe {
    struct dyti_token *token; /* [token_count] by id */
    size_t token_count, token_cap;
    struct dyti_slot_map by_text, by_bytes;
    struct dyti_merge *merge; /* open addressing */
    size_t merge_mask;
    int32_t byte_id[256]; /* -1: no token for this byte alone */
    int32_t unk;          /* -1: none */
    bool fuse_unk, ignore_merges;
};

/* Read the "model" member.  @return DYT_ERR_FORMAT, DYT_ERR_UNSUPPORTED … */
enum dyt_status dyti_bpe_init(struct dyti_bpe *bpe,
                              const struct dyti_json_at *model);
void dyti_bpe_fini(struct dyti_bpe *bpe);

/* Add a token of the model, or one that is only found whole (added_tokens; one
 * that the model has too is fine). */
enum dyt_status dyti_bpe_add(struct dyti_bpe *bpe, const char *file, int32_t id,
                             const char *text, size_t text_bytes,
                             bool of_model);
/* Have a token decode to what `text` stands for; in_model says whether all of
 * it is in the byte alphabet. */
enum dyt_status dyti_token_decodes(struct dyti_token *token, const char *text,
                                   size_t text_bytes);
/* Build the lookups once all tokens are in, then read merges. */
enum dyt_status dyti_bpe_finish(struct dyti_bpe *bpe,
                                const struct dyti_json_at *model);

/* By text as in the file / by the bytes that a token of the model stands for;
 * -1 if there is none. */
int32_t dyti_bpe_find_bytes(const struct dyti_bpe *bpe, const char *word,
                            size_t word_bytes);
int32_t dyti_bpe_find(const struct dyti_bpe *bpe, const char *text,
                      size_t text_bytes);

/* Append the ids of one word (raw bytes).
 * DYT_ERR_INVALID: a byte has no token and there is no unk_token. */
enum dyt_status dyti_bpe_encode(struct dyti_bpe *bpe, const char *word,
                                size_t word_bytes, struct dyti_ids *ids);

#endif /* DYTI_FORMAT_TOKENIZER_BPE_H */
