/* Running the pre-tokenizer: each step cuts a piece and hands the parts to the
 * next one, so that no list of all pieces is ever made. */
#include "format/tokenizer_pre.h"

#include "base/array.h"

#include "base/banned.h"

struct span {
    size_t lo, hi;
    bool match;
};

/* One run over one text: a span list and match data for each step. */
struct run {
    const struct dyti_pre *pre;
    dyti_word_fn word;
    void *arg;
    struct {
        struct span *span;
        size_t span_count, span_cap;
        pcre2_match_data *match;
    } at[DYTI_MOST_PRE_STEPS];
};

static enum dyt_status run_step(struct run *r, size_t step, const char *text,
                                size_t text_bytes);

static enum dyt_status push_span(struct run *r, size_t step, size_t lo,
                                 size_t hi, bool match)
{
    enum dyt_status st = DYTI_GROW(r->at[step].span, r->at[step].span_cap,
                                   r->at[step].span_count + 1);

    if (st == DYT_OK) {
        r->at[step].span[r->at[step].span_count++] =
            (struct span){lo, hi, match};
    }
    return st;
}

/* ---- finding matches ---------------------------------------------------- */

static enum dyt_status match_error(int code)
{
    PCRE2_UCHAR text[128] = {0};

    pcre2_get_error_message(code, text, sizeof(text));
    return DYTI_FAIL(code == PCRE2_ERROR_NOMEMORY ? DYT_ERR_NOMEM
                                                  : DYT_ERR_INVALID,
                     "pre-tokenizer pattern: %s", (const char *)text);
}

/* Spans that cover the text: matches and what lies between. */
static enum dyt_status find_matches(struct run *r, size_t step,
                                    const char *text, size_t text_bytes)
{
    const struct dyti_pre_step *s = &r->pre->step[step];
    size_t done = 0, from = 0;
    enum dyt_status st = DYT_OK;

    if (r->at[step].match == NULL) {
        r->at[step].match = pcre2_match_data_create_from_pattern(s->code, NULL);
        if (r->at[step].match == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "match data");
        }
    }
    while (from < text_bytes && st == DYT_OK) {
        const PCRE2_SIZE *place;
        int code = pcre2_match(s->code, (PCRE2_SPTR)text, text_bytes, from,
                               PCRE2_NO_UTF_CHECK, r->at[step].match, NULL);

        if (code == PCRE2_ERROR_NOMATCH) {
            break;
        }
        if (code < 0) {
            return match_error(code);
        }
        place = pcre2_get_ovector_pointer(r->at[step].match);
        if (place[1] == place[0]) { /* an empty match cuts nothing */
            size_t used = 1;

            dyti_utf8_next(text + place[1], text_bytes - place[1], &used);
            from = place[1] + used;
            continue;
        }
        if (place[0] > done) {
            st = push_span(r, step, done, place[0], s->invert);
        }
        if (st == DYT_OK) {
            st = push_span(r, step, place[0], place[1], !s->invert);
        }
        done = from = place[1];
    }
    if (st == DYT_OK && done < text_bytes) {
        st = push_span(r, step, done, text_bytes, s->invert);
    }
    return st;
}

static enum dyt_status find_digits(struct run *r, size_t step, const char *text,
                                   size_t text_bytes)
{
    size_t done = 0, at = 0, used = 0;
    enum dyt_status st = DYT_OK;

    for (; at < text_bytes && st == DYT_OK; at += used) {
        int32_t code = dyti_utf8_next(text + at, text_bytes - at, &used);

        if (code < 0x80 ? code < '0' || code > '9' : !dyti_is_numeric(code)) {
            continue;
        }
        if (at > done) {
            st = push_span(r, step, done, at, false);
        }
        if (st == DYT_OK) {
            st = push_span(r, step, at, at + used, true);
        }
        done = at + used;
    }
    if (st == DYT_OK && done < text_bytes) {
        st = push_span(r, step, done, text_bytes, false);
    }
    return st;
}

/* ---- what becomes of them ----------------------------------------------- */

/* Does span b continue the piece that span a belongs to? */
static bool joins(enum dyti_split_mode mode, const struct span *a,
                  const struct span *b)
{
    switch (mode) {
    case DYTI_SPLIT_CONTIGUOUS:
        return a->match == b->match;
    case DYTI_SPLIT_PREVIOUS: /* unless that is a match itself */
        return b->match && !a->match;
    case DYTI_SPLIT_NEXT:
        return a->match && !b->match;
    case DYTI_SPLIT_REMOVED:
    case DYTI_SPLIT_ISOLATED:
        break;
    }
    return false;
}

static enum dyt_status hand_on(struct run *r, size_t step, const char *text)
{
    enum dyti_split_mode mode = r->pre->step[step].mode;
    size_t i = 0;
    enum dyt_status st = DYT_OK;

    while (i < r->at[step].span_count && st == DYT_OK) {
        const struct span *span = r->at[step].span;
        size_t lo = span[i].lo, last = i;
        bool drop = mode == DYTI_SPLIT_REMOVED && span[i].match;

        while (last + 1 < r->at[step].span_count &&
               joins(mode, &span[last], &span[last + 1])) {
            last++;
        }
        i = last + 1;
        if (!drop) {
            st = run_step(r, step + 1, text + lo, span[last].hi - lo);
        }
    }
    return st;
}

static enum dyt_status cut(struct run *r, size_t step, const char *text,
                           size_t text_bytes)
{
    const struct dyti_pre_step *s = &r->pre->step[step];
    enum dyt_status st;

    r->at[step].span_count = 0;
    if (s->kind == DYTI_PRE_DIGITS) {
        st = find_digits(r, step, text, text_bytes);
    } else if (s->code == NULL) {
        st = push_span(r, step, 0, text_bytes, false);
    } else {
        st = find_matches(r, step, text, text_bytes);
    }
    return st == DYT_OK ? hand_on(r, step, text) : st;
}

static enum dyt_status with_space(struct run *r, size_t step, const char *text,
                                  size_t text_bytes)
{
    char *longer = malloc(text_bytes + 1);
    enum dyt_status st;

    if (longer == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu bytes of text", text_bytes);
    }
    longer[0] = ' ';
    memcpy(longer + 1, text, text_bytes);
    st = cut(r, step, longer, text_bytes + 1);
    free(longer);
    return st;
}

static enum dyt_status run_step(struct run *r, size_t step, const char *text,
                                size_t text_bytes)
{
    if (text_bytes == 0) {
        return DYT_OK;
    }
    if (step == r->pre->step_count) {
        return r->word(r->arg, text, text_bytes);
    }
    if (r->pre->step[step].prefix_space && text[0] != ' ') {
        return with_space(r, step, text, text_bytes);
    }
    return cut(r, step, text, text_bytes);
}

enum dyt_status dyti_pre_run(const struct dyti_pre *pre, const char *text,
                             size_t text_bytes, dyti_word_fn word, void *arg)
{
    struct run r = {.pre = pre, .word = word, .arg = arg};
    enum dyt_status st = run_step(&r, 0, text, text_bytes);

    for (size_t i = 0; i < pre->step_count; i++) {
        free(r.at[i].span);
        pcre2_match_data_free(r.at[i].match);
    }
    return st;
}
