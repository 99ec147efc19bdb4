/* PCRE2, with a bound on the work that one text may cost: completions are
 * outside bytes, and a pattern can be exponential in them. */
#include "reward/pattern.h"

#include "base/banned.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define MATCH_STEPS_MAX 1000000u
#define DEPTH_MAX       10000u

struct pattern {
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *context;
};

void dyti_pattern_close(void *opaque)
{
    struct pattern *pattern = opaque;

    if (pattern == NULL) {
        return;
    }
    pcre2_match_context_free(pattern->context);
    pcre2_match_data_free(pattern->data);
    pcre2_code_free(pattern->code);
    free(pattern);
}

enum dyt_status dyti_pattern_open(const char *text, bool ignore_case,
                                  void **out_pattern)
{
    uint32_t options = PCRE2_UTF | PCRE2_MATCH_INVALID_UTF |
                       (ignore_case ? PCRE2_CASELESS : 0);
    struct pattern *pattern = calloc(1, sizeof(*pattern));
    PCRE2_UCHAR why[128] = "";
    PCRE2_SIZE at = 0;
    int error = 0;

    if (pattern == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "pattern %s", text);
    }
    pattern->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                                  options, &error, &at, NULL);
    if (pattern->code == NULL) {
        pcre2_get_error_message(error, why, sizeof(why));
        dyti_pattern_close(pattern);
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "pattern \"%.100s\" is wrong at character %zu: %s",
                         text, (size_t)at + 1, (const char *)why);
    }
    pattern->data = pcre2_match_data_create_from_pattern(pattern->code, NULL);
    pattern->context = pcre2_match_context_create(NULL);
    if (pattern->data == NULL || pattern->context == NULL) {
        dyti_pattern_close(pattern);
        return DYTI_FAIL(DYT_ERR_NOMEM, "pattern %s", text);
    }
    pcre2_set_match_limit(pattern->context, MATCH_STEPS_MAX);
    pcre2_set_depth_limit(pattern->context, DEPTH_MAX);
    *out_pattern = pattern;
    return DYT_OK;
}

enum dyt_status dyti_pattern_search(void *opaque, const char *text,
                                    size_t text_bytes, bool *out_found,
                                    size_t *out_lo, size_t *out_hi)
{
    struct pattern *pattern = opaque;
    const PCRE2_SIZE *at;
    int got = pcre2_match(pattern->code, (PCRE2_SPTR)text, text_bytes, 0, 0,
                          pattern->data, pattern->context);

    *out_found = got > 0;
    if (got == PCRE2_ERROR_NOMEMORY) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "matching a pattern");
    }
    if (got <= 0) {
        return DYT_OK; /* no match, or over the limits */
    }
    at = pcre2_get_ovector_pointer(pattern->data);
    if (pcre2_get_ovector_count(pattern->data) == 1) {
        *out_lo = at[0];
        *out_hi = at[1];
    } else if (got == 1 || at[2] == PCRE2_UNSET) {
        *out_lo = *out_hi = at[0]; /* the group took no part */
    } else {
        *out_lo = at[2];
        *out_hi = at[3];
    }
    return DYT_OK;
}
