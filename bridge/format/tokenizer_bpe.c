/* Encoding of one word: start with one symbol a byte, then merge the pair of
 * the lowest rank, leftmost first, until none is left.  A heap of candidate
 * pairs makes that O(n log n); a candidate whose symbols have changed since is
 * dropped when it comes up. */
#include "format/tokenizer_bpe.h"

#include "base/hash.h"

#include "base/banned.h"

#define SMALL_WORD 48u

struct symbol {
    int32_t id; /* -1: merged into the one before */
    int32_t prev, next;
};

struct candidate {
    uint32_t rank, at; /* at: index of the left symbol */
    int32_t left, right, made;
};

struct scratch {
    struct symbol *symbol;       /* [n] */
    struct candidate *candidate; /* [3 n]: n - 1 at first, two a merge */
    size_t candidate_count;
};

static const struct dyti_merge *find_merge(const struct dyti_bpe *bpe,
                                           int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t at = (size_t)dyti_mix64(pair) & bpe->merge_mask;

    if (bpe->merge == NULL) {
        return NULL;
    }
    while (bpe->merge[at].pair != UINT64_MAX) {
        if (bpe->merge[at].pair == pair) {
            return &bpe->merge[at];
        }
        at = (at + 1) & bpe->merge_mask;
    }
    return NULL;
}

static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(struct scratch *s, struct candidate c)
{
    size_t at = s->candidate_count++;

    while (at > 0 && before(&c, &s->candidate[(at - 1) / 2])) {
        s->candidate[at] = s->candidate[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    s->candidate[at] = c;
}

static struct candidate heap_pop(struct scratch *s)
{
    struct candidate top = s->candidate[0];
    struct candidate last = s->candidate[--s->candidate_count];
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;

        if (child >= s->candidate_count) {
            break;
        }
        if (child + 1 < s->candidate_count &&
            before(&s->candidate[child + 1], &s->candidate[child])) {
            child++;
        }
        if (!before(&s->candidate[child], &last)) {
            break;
        }
        s->candidate[at] = s->candidate[child];
        at = child;
    }
    s->candidate[at] = last;
    return top;
}

static void consider(const struct dyti_bpe *bpe, struct scratch *s, int32_t at)
{
    const struct symbol *left, *right;
    const struct dyti_merge *merge;

    if (at < 0 || s->symbol[at].next < 0) {
        return;
    }
    left = &s->symbol[at];
    right = &s->symbol[left->next];
    merge = find_merge(bpe, left->id, right->id);
    if (merge != NULL) {
        heap_push(s, (struct candidate){merge->rank, (uint32_t)at, left->id,
                                        right->id, merge->made});
    }
}

static void merge_all(const struct dyti_bpe *bpe, struct scratch *s)
{
    while (s->candidate_count > 0) {
        struct candidate c = heap_pop(s);
        struct symbol *left = &s->symbol[c.at], *right;

        if (left->id != c.left || left->next < 0 ||
            s->symbol[left->next].id != c.right) {
            continue;
        }
        right = &s->symbol[left->next];
        left->id = c.made;
        left->next = right->next;
        right->id = -1;
        if (left->next >= 0) {
            s->symbol[left->next].prev = (int32_t)c.at;
        }
        consider(bpe, s, left->prev);
        consider(bpe, s, (int32_t)c.at);
    }
}

/* One symbol a byte; bytes without a token become unk_token, neighbours fused
 * if the file says so.  The count of symbols in *out_count. */
static enum dyt_status first_symbols(const struct dyti_bpe *bpe,
                                     const char *word, size_t word_bytes,
                                     struct symbol *symbol, size_t *out_count)
{
    size_t count = 0;
    bool after_unk = false;

    for (size_t i = 0; i < word_bytes; i++) {
        int32_t id = bpe->byte_id[(unsigned char)word[i]];
        bool is_unk = id < 0;

        if (is_unk && bpe->unk < 0) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "byte 0x%02x of \"%.*s\" has no token in this "
                             "vocabulary",
                             (unsigned)(unsigned char)word[i],
                             (int)(word_bytes < 40 ? word_bytes : 40), word);
        }
        if (is_unk && after_unk && bpe->fuse_unk) {
            continue;
        }
        symbol[count] = (struct symbol){is_unk ? bpe->unk : id,
                                        (int32_t)count - 1, (int32_t)count + 1};
        count++;
        after_unk = is_unk;
    }
    symbol[count - 1].next = -1;
    *out_count = count;
    return DYT_OK;
}

static enum dyt_status encode_with(const struct dyti_bpe *bpe, const char *word,
                                   size_t word_bytes, struct scratch *s,
                                   struct dyti_ids *ids)
{
    size_t count = 0;
    enum dyt_status st;

    st = first_symbols(bpe, word, word_bytes, s->symbol, &count);
    if (st != DYT_OK) {
        return st;
    }
    for (size_t i = 0; i + 1 < count; i++) {
        consider(bpe, s, (int32_t)i);
    }
    merge_all(bpe, s);
    for (int32_t i = 0; i >= 0 && st == DYT_OK; i = s->symbol[i].next) {
        st = dyti_ids_push(ids, s->symbol[i].id);
    }
    return st;
}

static enum dyt_status merge_word(const struct dyti_bpe *bpe, const char *word,
                                  size_t word_bytes, struct dyti_ids *ids)
{
    struct symbol few[SMALL_WORD];
    struct candidate some[3 * SMALL_WORD];
    struct scratch s = {few, some, 0};
    enum dyt_status st;

    if (word_bytes <= SMALL_WORD) {
        return encode_with(bpe, word, word_bytes, &s, ids);
    }
    if (word_bytes > INT32_MAX / 4) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW, "a word of %zu bytes", word_bytes);
    }
    s.symbol = malloc(word_bytes * sizeof(*s.symbol));
    s.candidate = malloc(3 * word_bytes * sizeof(*s.candidate));
    if (s.symbol == NULL || s.candidate == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "a word of %zu bytes", word_bytes);
    } else {
        st = encode_with(bpe, word, word_bytes, &s, ids);
    }
    free(s.symbol);
    free(s.candidate);
    return st;
}

int32_t dyti_bpe_find_bytes(const struct dyti_bpe *bpe, const char *word,
                            size_t word_bytes)
{
    uint64_t hash =
        dyti_fingerprint_bytes(DYTI_FINGERPRINT_SEED, word, word_bytes);
    size_t at = (size_t)hash & bpe->by_bytes.mask;
    uint32_t slot;

    while ((slot = bpe->by_bytes.slot[at]) != 0) {
        const struct dyti_token *token = &bpe->token[slot - 1];

        if (token->bytes_length == word_bytes &&
            memcmp(token->bytes, word, word_bytes) == 0) {
            return (int32_t)(slot - 1);
        }
        at = (at + 1) & bpe->by_bytes.mask;
    }
    return -1;
}

enum dyt_status dyti_bpe_encode(struct dyti_bpe *bpe, const char *word,
                                size_t word_bytes, struct dyti_ids *ids)
{
    size_t first = ids->count;
    int32_t id;
    unsigned char whole;
    enum dyt_status st;

    if (word_bytes == 0) {
        return DYT_OK;
    }
    id = dyti_bpe_find_bytes(bpe, word, word_bytes);
    if (id < 0) {
        return merge_word(bpe, word, word_bytes, ids);
    }
    if (bpe->ignore_merges) {
        return dyti_ids_push(ids, id);
    }
    whole = atomic_load_explicit(&bpe->token[id].whole, memory_order_relaxed);
    if (whole == 1) {
        return dyti_ids_push(ids, id);
    }
    st = merge_word(bpe, word, word_bytes, ids);
    if (st == DYT_OK && whole == 0) {
        bool same = ids->count == first + 1 && ids->id[first] == id;

        atomic_store_explicit(&bpe->token[id].whole, same ? 1 : 2,
                              memory_order_relaxed);
    }
    return st;
}
