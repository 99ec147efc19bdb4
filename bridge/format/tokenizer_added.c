/* Finding added tokens: at each place the longest one that begins there. */
#include "format/tokenizer_added.h"

#include "base/array.h"

#include "base/banned.h"

enum dyt_status dyti_added_add(struct dyti_added *added,
                               struct dyti_added_token token)
{
    enum dyt_status st = DYTI_GROW(added->token, added->cap, added->count + 1);

    if (st == DYT_OK) {
        added->token[added->count++] = token;
    }
    return st;
}

static int by_first_then_longest(const void *a, const void *b)
{
    const struct dyti_added_token *x = a, *y = b;
    unsigned char first_x = (unsigned char)x->text[0];
    unsigned char first_y = (unsigned char)y->text[0];

    if (first_x != first_y) {
        return first_x < first_y ? -1 : 1;
    }
    if (x->text_bytes != y->text_bytes) {
        return x->text_bytes > y->text_bytes ? -1 : 1;
    }
    return strcmp(x->text, y->text);
}

void dyti_added_finish(struct dyti_added *added)
{
    size_t at = 0;

    if (added->count > 1) {
        qsort(added->token, added->count, sizeof(*added->token),
              by_first_then_longest);
    }
    for (int byte = 0; byte < 256; byte++) {
        added->first[byte] = (uint32_t)at;
        while (at < added->count &&
               (unsigned char)added->token[at].text[0] == byte) {
            at++;
        }
    }
    added->first[256] = (uint32_t)at;
}

void dyti_added_fini(struct dyti_added *added)
{
    for (size_t i = 0; i < added->count; i++) {
        free(added->token[i].text);
    }
    free(added->token);
    memset(added, 0, sizeof(*added));
}

static const struct dyti_added_token *match_at(const struct dyti_added *added,
                                               const char *text, size_t left)
{
    unsigned char byte = (unsigned char)text[0];

    for (uint32_t i = added->first[byte]; i < added->first[byte + 1]; i++) {
        const struct dyti_added_token *token = &added->token[i];

        if (token->text_bytes <= left &&
            memcmp(token->text, text, token->text_bytes) == 0) {
            return token;
        }
    }
    return NULL;
}

/* Does a word character end right before `at` / begin right at it? */
static bool word_before(const char *text, size_t at)
{
    size_t used = 0, lo;

    if (at == 0) {
        return false;
    }
    lo = dyti_utf8_before(text, at);
    return dyti_is_word(dyti_utf8_next(text + lo, at - lo, &used));
}

static bool word_after(const char *text, size_t text_bytes, size_t at)
{
    size_t used = 0;

    return at < text_bytes &&
           dyti_is_word(dyti_utf8_next(text + at, text_bytes - at, &used));
}

static size_t strip_left(const char *text, size_t least, size_t at)
{
    while (at > least) {
        size_t used = 0, lo = dyti_utf8_before(text, at);

        if (lo < least ||
            !dyti_is_space(dyti_utf8_next(text + lo, at - lo, &used))) {
            break;
        }
        at = lo;
    }
    return at;
}

static size_t strip_right(const char *text, size_t text_bytes, size_t at)
{
    size_t used = 0;

    while (at < text_bytes &&
           dyti_is_space(dyti_utf8_next(text + at, text_bytes - at, &used))) {
        at += used;
    }
    return at;
}

enum dyt_status dyti_added_split(const struct dyti_added *added,
                                 const char *text, size_t text_bytes,
                                 dyti_piece_fn piece, void *arg)
{
    size_t done = 0, at = 0;
    enum dyt_status st = DYT_OK;

    while (at < text_bytes && added->count > 0 && st == DYT_OK) {
        const struct dyti_added_token *token =
            match_at(added, text + at, text_bytes - at);
        size_t lo = at, hi;

        if (token == NULL) {
            at++;
            continue;
        }
        hi = at + token->text_bytes;
        at = hi;
        if (token->single_word &&
            (word_before(text, lo) || word_after(text, text_bytes, hi))) {
            continue;
        }
        lo = token->lstrip ? strip_left(text, done, lo) : lo;
        hi = token->rstrip ? strip_right(text, text_bytes, hi) : hi;
        if (lo > done) {
            st = piece(arg, text + done, lo - done, -1);
        }
        if (st == DYT_OK) {
            st = piece(arg, text + lo, hi - lo, token->id);
        }
        done = at = hi;
    }
    if (st == DYT_OK && done < text_bytes) {
        st = piece(arg, text + done, text_bytes - done, -1);
    }
    return st;
}
