/* "pre_tokenizer" of tokenizer.json → steps, and patterns → PCRE2. */
#include "format/tokenizer_pre.h"

#include "base/banned.h"

/* What ByteLevel(use_regex) cuts with: GPT-2's words. */
#define WORDS                                                                  \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"        \
    "|\\s+(?!\\S)|\\s+"

#define SPACES                                                                 \
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}"      \
    "\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

/* ---- patterns ----------------------------------------------------------- */

struct text {
    char *at; /* [cap] */
    size_t used, cap;
};

static void put(struct text *to, const char *from, size_t length)
{
    /* The caller has made room for the longest replacement of each byte. */
    memcpy(to->at + to->used, from, length);
    to->used += length;
}

enum dyt_status dyti_pattern_translate(const char *file, const char *pattern,
                                       char **out)
{
    static const char in[] = SPACES, space[] = "[" SPACES "]",
                      other[] = "[^" SPACES "]";
    struct text to = {NULL, 0, strlen(pattern) * (sizeof(other) + 1) + 1};
    size_t depth = 0; /* of brackets */

    to.at = malloc(to.cap);
    if (to.at == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s: pattern", file);
    }
    for (const char *p = pattern; *p != '\0'; p++) {
        if (*p == '\\' && p[1] == 's') {
            put(&to, depth > 0 ? in : space,
                (depth > 0 ? sizeof(in) : sizeof(space)) - 1);
            p++;
        } else if (depth > 0 &&
                   ((*p == '\\' && p[1] == 'S') || (*p == '[' && p[1] != ':') ||
                    (*p == '&' && p[1] == '&'))) {
            free(to.at);
            return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                             "%s: \\S, && or a set inside brackets in the "
                             "pattern %.200s is not available",
                             file, pattern);
        } else if (*p == '\\' && p[1] == 'S') {
            put(&to, other, sizeof(other) - 1);
            p++;
        } else if (*p == '\\' && p[1] != '\0') {
            put(&to, p, 2);
            p++;
        } else {
            depth += *p == '[' && depth == 0;
            depth -= *p == ']' && depth > 0;
            put(&to, p, 1);
        }
    }
    to.at[to.used] = '\0';
    *out = to.at;
    return DYT_OK;
}

static enum dyt_status compile(const char *file, const char *pattern,
                               size_t length, uint32_t options,
                               pcre2_code **out)
{
    PCRE2_UCHAR why[160] = {0};
    PCRE2_SIZE where = 0;
    int code = 0;
    pcre2_code *made = pcre2_compile((PCRE2_SPTR)pattern, length,
                                     PCRE2_UTF | options, &code, &where, NULL);

    if (made == NULL) {
        pcre2_get_error_message(code, why, sizeof(why));
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "%s: the pattern %.200s is not available: %s at %zu",
                         file, pattern, (const char *)why, (size_t)where);
    }
    *out = made;
    return DYT_OK;
}

static enum dyt_status compile_regex(const char *file, const char *pattern,
                                     pcre2_code **out)
{
    char *ours = NULL;
    enum dyt_status st = dyti_pattern_translate(file, pattern, &ours);

    if (st == DYT_OK) {
        st = compile(file, ours, strlen(ours), PCRE2_UCP, out);
    }
    free(ours);
    return st;
}

/* ---- steps -------------------------------------------------------------- */

static enum dyt_status read_mode(const struct dyti_json_at *at,
                                 enum dyti_split_mode *out)
{
    static const struct {
        const char *name;
        enum dyti_split_mode mode;
    } row[] = {
        {"Removed", DYTI_SPLIT_REMOVED},
        {"Isolated", DYTI_SPLIT_ISOLATED},
        {"MergedWithPrevious", DYTI_SPLIT_PREVIOUS},
        {"MergedWithNext", DYTI_SPLIT_NEXT},
        {"Contiguous", DYTI_SPLIT_CONTIGUOUS},
    };
    const char *name = NULL;
    enum dyt_status st = dyti_json_text_or(at, "behavior", "", &name);

    if (st != DYT_OK) {
        return st;
    }
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        if (strcmp(row[i].name, name) == 0) {
            *out = row[i].mode;
            return DYT_OK;
        }
    }
    return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                     "%s: %sbehavior \"%.40s\" is not available", at->file,
                     at->prefix, name);
}

static enum dyt_status read_split(const struct dyti_json_at *at,
                                  struct dyti_pre_step *step)
{
    struct dyti_json_at in = {at->file, "pre_tokenizer pattern.", NULL};
    const char *regex = NULL, *text = NULL;
    enum dyt_status st = read_mode(at, &step->mode);

    if (st == DYT_OK) {
        st = dyti_json_bool_or(at, "invert", false, &step->invert);
    }
    if (st == DYT_OK) {
        st = dyti_json_object_or_null(at, "pattern", &in.object);
    }
    if (st == DYT_OK) {
        st = dyti_json_text_or(&in, "Regex", NULL, &regex);
    }
    if (st == DYT_OK) {
        st = dyti_json_text_or(&in, "String", NULL, &text);
    }
    if (st != DYT_OK) {
        return st;
    }
    if ((regex == NULL) == (text == NULL)) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "%s: %spattern must have Regex or String", at->file,
                         at->prefix);
    }
    return regex != NULL ? compile_regex(at->file, regex, &step->code)
                         : compile(at->file, text, strlen(text), PCRE2_LITERAL,
                                   &step->code);
}

static enum dyt_status read_bytes(const struct dyti_json_at *at,
                                  struct dyti_pre_step *step)
{
    bool use_regex = true;
    enum dyt_status st;

    step->mode = DYTI_SPLIT_ISOLATED;
    st = dyti_json_bool_or(at, "add_prefix_space", true, &step->prefix_space);
    if (st == DYT_OK) {
        st = dyti_json_bool_or(at, "use_regex", true, &use_regex);
    }
    if (st == DYT_OK && use_regex) {
        st = compile_regex(at->file, WORDS, &step->code);
    }
    return st;
}

static enum dyt_status read_digits(const struct dyti_json_at *at,
                                   struct dyti_pre_step *step)
{
    bool individual = false;
    enum dyt_status st;

    st = dyti_json_bool_or(at, "individual_digits", false, &individual);
    step->mode = individual ? DYTI_SPLIT_ISOLATED : DYTI_SPLIT_CONTIGUOUS;
    return st;
}

static enum dyt_status read_step(struct dyti_pre *pre, const char *file,
                                 const json_t *json, unsigned depth);

static enum dyt_status read_sequence(struct dyti_pre *pre,
                                     const struct dyti_json_at *at,
                                     unsigned depth)
{
    const json_t *list = NULL;
    enum dyt_status st = dyti_json_array_or_null(at, "pretokenizers", &list);

    for (size_t i = 0; i < json_array_size(list) && st == DYT_OK; i++) {
        st = read_step(pre, at->file, json_array_get(list, i), depth + 1);
    }
    return st;
}

static enum dyt_status read_step(struct dyti_pre *pre, const char *file,
                                 const json_t *json, unsigned depth)
{
    struct dyti_json_at at = {file, "pre_tokenizer.", json};
    struct dyti_pre_step *step;
    const char *type = NULL;
    enum dyt_status st;

    if (!json_is_object(json) || depth > 4) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "%s: pre_tokenizer must be an object (nested at most "
                         "4 deep)",
                         file);
    }
    st = dyti_json_text_or(&at, "type", "", &type);
    if (st != DYT_OK) {
        return st;
    }
    if (strcmp(type, "Sequence") == 0) {
        return read_sequence(pre, &at, depth);
    }
    if (pre->step_count == DYTI_MOST_PRE_STEPS) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED, "%s: over %u pre-tokenizers",
                         file, DYTI_MOST_PRE_STEPS);
    }
    if (pre->step_count > 0 &&
        pre->step[pre->step_count - 1].kind == DYTI_PRE_BYTES) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "%s: pre-tokenizer %.40s after ByteLevel is not "
                         "available",
                         file, type);
    }
    step = &pre->step[pre->step_count++]; /* fini() frees it from here on */
    if (strcmp(type, "Split") == 0) {
        step->kind = DYTI_PRE_SPLIT;
        return read_split(&at, step);
    }
    if (strcmp(type, "Digits") == 0) {
        step->kind = DYTI_PRE_DIGITS;
        return read_digits(&at, step);
    }
    if (strcmp(type, "ByteLevel") == 0) {
        step->kind = DYTI_PRE_BYTES;
        return read_bytes(&at, step);
    }
    return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                     "%s: pre-tokenizer \"%.40s\" is not available; Split, "
                     "Digits, ByteLevel and Sequence are",
                     file, type);
}

enum dyt_status dyti_pre_init(struct dyti_pre *pre, const char *file,
                              const json_t *json)
{
    enum dyt_status st = DYT_OK;

    memset(pre, 0, sizeof(*pre));
    if (json != NULL) {
        st = read_step(pre, file, json, 0);
    }
    if (st == DYT_OK &&
        (pre->step_count == 0 ||
         pre->step[pre->step_count - 1].kind != DYTI_PRE_BYTES)) {
        st = DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                       "%s: a pre-tokenizer that does not end with ByteLevel "
                       "is not available",
                       file);
    }
    return st;
}

void dyti_pre_fini(struct dyti_pre *pre)
{
    for (size_t i = 0; i < pre->step_count; i++) {
        pcre2_code_free(pre->step[i].code);
    }
    memset(pre, 0, sizeof(*pre));
}
