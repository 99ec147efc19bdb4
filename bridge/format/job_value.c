/* One value of a job: checked and put into its field, printed as TOML,
 * compared, given back.  Everything a row's type means is here. */
#include "format/file.h"
#include "format/job_options.h"

#include "base/banned.h"

#include <inttypes.h>
#include <math.h>

/* What a message says before its own words. */
struct spot {
    const struct dyti_option *option;
    const struct dyti_toml *value;
    const struct dyti_place *place;
    const char *shown;
    char text[512]; /* "job.toml:3:1: key" */
};

const char *dyti_place_text(const struct dyti_place *place, char *buf,
                            size_t buf_bytes)
{
    if (place->line == 0) {
        snprintf(buf, buf_bytes, "%s", place->file);
    } else {
        snprintf(buf, buf_bytes, "%s:%u:%u", place->file, place->line,
                 place->column);
    }
    return buf;
}

enum dyt_status dyti_job_path(const char *folder, const char *path,
                              char buf[DYTI_PATH_BYTES])
{
    if (folder != NULL && folder[0] != '\0' && path[0] != '/') {
        return dyti_path_join(buf, folder, path);
    }
    if (strlen(path) >= DYTI_PATH_BYTES) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "a path of %zu bytes: too long",
                         strlen(path));
    }
    memcpy(buf, path, strlen(path) + 1);
    return DYT_OK;
}

static void spot_init(struct spot *spot, const struct dyti_option *option,
                      const struct dyti_toml *value,
                      const struct dyti_place *place, const char *shown)
{
    char where[300];
    struct dyti_place at = *place;

    if (at.line != 0 && value->line != 0) {
        at.line = value->line;
        at.column = value->column;
    }
    *spot = (struct spot){option, value, place, shown, ""};
    snprintf(spot->text, sizeof(spot->text), "%s: %s",
             dyti_place_text(&at, where, sizeof(where)), shown);
}

static const char *wanted(const struct dyti_option *option)
{
    static const char *const want[] = {
        [DYTI_OPT_BOOL] = "true or false",
        [DYTI_OPT_U32] = "an integer",
        [DYTI_OPT_U64] = "an integer",
        [DYTI_OPT_REAL] = "a number",
        [DYTI_OPT_TEXT] = "a string",
        [DYTI_OPT_PATH] = "a path in quotes",
        [DYTI_OPT_WORD] = "a string",
        [DYTI_OPT_CHOICE] = "a string",
        [DYTI_OPT_SIZE] = "a size, as 4096 or \"64MiB\"",
        [DYTI_OPT_SECONDS] = "a time, as 80 (seconds) or \"5m\"",
        [DYTI_OPT_U32S] = "a list of integers, as [0, 1]",
        [DYTI_OPT_TEXTS] = "a list of strings, as [\"a\", \"b\"]",
        [DYTI_OPT_PAIR] = "two numbers, as [0.9, 0.95]"};

    return want[option->type];
}

static enum dyt_status wrong_type(const struct spot *spot)
{
    return DYTI_FAIL(DYT_ERR_CONFIG, "%s: wants %s, not %s", spot->text,
                     wanted(spot->option),
                     dyti_toml_type_name(spot->value->type));
}

/* ---- numbers ------------------------------------------------------------ */

static bool bounded(const struct dyti_option *option)
{
    return option->min != 0.0 || option->max != 0.0;
}

/* A number against the row's range; `most` is what the type holds. */
static enum dyt_status check_range(const struct spot *spot, double number,
                                   double least, double most)
{
    const struct dyti_option *option = spot->option;
    bool low, high;

    if (bounded(option)) {
        least = option->min;
        most = option->max;
    }
    low = number < least || (option->above_min && number == least);
    high = number > most || (option->below_max && number == most);
    if (isnan(number)) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "%s: wants %s, not nan", spot->text,
                         wanted(option));
    }
    if (low) {
        return DYTI_FAIL(
            DYT_ERR_CONFIG, "%s: %.15g is too small: %s %.15g", spot->text,
            number, option->above_min ? "must be above" : "at least", least);
    }
    if (high) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "%s: %.15g is too large: %s %.15g",
                         spot->text, number,
                         option->below_max ? "must be below" : "at most", most);
    }
    if (option->unserved_from > 0 && number >= option->unserved_from) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "%s: %.15g is not available yet: at most %.15g",
                         spot->text, number, option->unserved_from - 1);
    }
    return DYT_OK;
}

static enum dyt_status read_integer(const struct spot *spot, double most,
                                    int64_t *out)
{
    enum dyt_status st;

    if (spot->value->type != DYTI_TOML_INTEGER) {
        return wrong_type(spot);
    }
    st = check_range(spot, (double)spot->value->integer, 0, most);
    if (st == DYT_OK) {
        *out = spot->value->integer;
    }
    return st;
}

static enum dyt_status read_real(const struct spot *spot, double *out)
{
    double number;
    enum dyt_status st;

    if (spot->value->type == DYTI_TOML_INTEGER) {
        number = (double)spot->value->integer;
    } else if (spot->value->type == DYTI_TOML_FLOAT) {
        number = spot->value->real;
    } else {
        return wrong_type(spot);
    }
    st = check_range(spot, number, -1.7e308, 1.7e308);
    if (st == DYT_OK) {
        *out = number;
    }
    return st;
}

/* "64MiB": digits (a point is fine), perhaps a space, a unit. */
static bool read_suffixed(const char *text, const char *const *unit,
                          const double *factor, size_t units, double *out)
{
    char *end = NULL;
    double number = strtod(text, &end);

    if (end == text || text[0] < '0' || text[0] > '9' || !isfinite(number)) {
        return false;
    }
    end += *end == ' ';
    for (size_t i = 0; i < units; i++) {
        if (strcmp(end, unit[i]) == 0) {
            *out = number * factor[i];
            return true;
        }
    }
    return false;
}

static enum dyt_status read_size(const struct spot *spot, uint64_t *out)
{
    static const char *const unit[] = {"",    "B",  "KiB", "MiB", "GiB",
                                       "TiB", "kB", "MB",  "GB",  "TB"};
    static const double factor[] = {1,      1,   0x1p10, 0x1p20, 0x1p30,
                                    0x1p40, 1e3, 1e6,    1e9,    1e12};
    double bytes;
    enum dyt_status st;

    if (spot->value->type == DYTI_TOML_INTEGER) {
        st = check_range(spot, (double)spot->value->integer, 0, 0x1p62);
        if (st == DYT_OK) {
            *out = (uint64_t)spot->value->integer;
        }
        return st;
    }
    if (spot->value->type != DYTI_TOML_STRING) {
        return wrong_type(spot);
    }
    if (!read_suffixed(spot->value->text, unit, factor,
                       sizeof(factor) / sizeof(factor[0]), &bytes)) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s: \"%s\" is no size: write a number and B, KiB, "
                         "MiB, GiB or TiB, as \"64MiB\"",
                         spot->text, spot->value->text);
    }
    st = check_range(spot, bytes, 0, 0x1p62);
    if (st == DYT_OK) {
        *out = (uint64_t)bytes;
    }
    return st;
}

static enum dyt_status read_seconds(const struct spot *spot, double *out)
{
    static const char *const unit[] = {"", "s", "ms", "m", "min", "h"};
    static const double factor[] = {1, 1, 1e-3, 60, 60, 3600};
    double seconds;
    enum dyt_status st;

    if (spot->value->type != DYTI_TOML_STRING) {
        return read_real(spot, out);
    }
    if (!read_suffixed(spot->value->text, unit, factor,
                       sizeof(factor) / sizeof(factor[0]), &seconds)) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s: \"%s\" is no time: write a number and ms, s, m "
                         "or h, as \"80s\"",
                         spot->text, spot->value->text);
    }
    st = check_range(spot, seconds, 0, INFINITY);
    if (st == DYT_OK) {
        *out = seconds;
    }
    return st;
}

static enum dyt_status read_pair(const struct spot *spot, double out[2])
{
    double pair[2];

    if (spot->value->type != DYTI_TOML_ARRAY || spot->value->child_count != 2) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "%s: wants %s", spot->text,
                         wanted(spot->option));
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct spot item;
        enum dyt_status st;

        spot_init(&item, spot->option, &spot->value->child[i], spot->place,
                  spot->shown);
        st = read_real(&item, &pair[i]);
        if (st != DYT_OK) {
            return st;
        }
    }
    memcpy(out, pair, sizeof(pair));
    return DYT_OK;
}

/* ---- words -------------------------------------------------------------- */

/* The nearest of the choices to a word, as " (did you mean \"x\"?)". */
static void choice_hint(const char *choices, const char *word, char *buf,
                        size_t buf_bytes)
{
    uint32_t best = (uint32_t)(strlen(word) / 3 + 2);

    buf[0] = '\0';
    for (uint32_t i = 0;; i++) {
        char have[64];
        uint32_t d;

        if (dyti_choice_word(choices, i, have, sizeof(have))[0] == '?') {
            return;
        }
        d = dyti_edit_distance(word, have);
        if (d < best) {
            best = d;
            snprintf(buf, buf_bytes, " (did you mean \"%s\"?)", have);
        }
    }
}

/* {kind = "vllm", …}: a choice that takes settings of its own. */
static const struct dyti_toml *choice_text(const struct dyti_toml *value)
{
    const struct dyti_toml *kind = dyti_toml_find(value, "kind");

    return kind != NULL && kind->type == DYTI_TOML_STRING ? kind : value;
}

static enum dyt_status read_choice(const struct spot *spot, uint32_t *out)
{
    const char *choices = spot->option->choices;
    const struct dyti_toml *value = choice_text(spot->value);
    char list[256], hint[96];
    bool served;
    int32_t position;

    if (value->type != DYTI_TOML_STRING) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "%s: wants %s, not %s", spot->text,
                         dyti_choice_list(choices, list, sizeof(list)),
                         dyti_toml_type_name(value->type));
    }
    position =
        dyti_choice_find(choices, value->text, value->text_bytes, &served);
    dyti_choice_list(choices, list, sizeof(list));
    if (position < 0) {
        choice_hint(choices, value->text, hint, sizeof(hint));
        return DYTI_FAIL(DYT_ERR_CONFIG, "%s: \"%.80s\" is none of %s%s",
                         spot->text, value->text, list, hint);
    }
    if (!served) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "%s: \"%s\" is not available yet: use %s", spot->text,
                         value->text, list);
    }
    if (value != spot->value) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s: \"%s\" takes no settings: write it as a string",
                         spot->text, value->text);
    }
    *out = (uint32_t)position;
    return DYT_OK;
}

static char *copy(const char *text)
{
    char *twin = strdup(text);

    if (twin == NULL) {
        DYTI_FAIL(DYT_ERR_NOMEM, "a setting");
    }
    return twin;
}

static enum dyt_status read_text(const struct spot *spot, char **out)
{
    const struct dyti_toml *value = spot->value;
    char buf[DYTI_PATH_BYTES];
    const char *text = value->text;
    uint32_t position;
    enum dyt_status st;

    if (value->type != DYTI_TOML_STRING) {
        return wrong_type(spot);
    }
    if (spot->option->type == DYTI_OPT_WORD) {
        st = read_choice(spot, &position);
        if (st != DYT_OK) {
            return st;
        }
    }
    if (spot->option->type == DYTI_OPT_PATH && text[0] != '\0') {
        st = dyti_job_path(spot->place->folder, text, buf);
        if (st != DYT_OK) {
            return DYTI_FAIL(DYT_ERR_CONFIG, "%s: the path is too long",
                             spot->text);
        }
        text = buf;
    }
    *out = copy(text);
    return *out == NULL ? DYT_ERR_NOMEM : DYT_OK;
}

/* ---- lists -------------------------------------------------------------- */

static enum dyt_status read_u32s(const struct spot *spot, uint32_t **out,
                                 uint32_t *out_count)
{
    const struct dyti_toml *value = spot->value;
    uint32_t *item = NULL;

    if (value->type != DYTI_TOML_ARRAY) {
        return wrong_type(spot);
    }
    if (value->child_count != 0) {
        item = calloc(value->child_count, sizeof(*item));
        if (item == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "%s", spot->text);
        }
    }
    for (uint32_t i = 0; i < value->child_count; i++) {
        struct spot one;
        int64_t number = 0;
        enum dyt_status st;

        spot_init(&one, spot->option, &value->child[i], spot->place,
                  spot->shown);
        st = read_integer(&one, UINT32_MAX, &number);
        if (st != DYT_OK) {
            free(item);
            return st;
        }
        item[i] = (uint32_t)number;
    }
    *out = item;
    *out_count = value->child_count;
    return DYT_OK;
}

static void free_texts(char **item, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        free(item[i]);
    }
    free(item);
}

static enum dyt_status read_texts(const struct spot *spot, char ***out,
                                  uint32_t *out_count)
{
    const struct dyti_toml *value = spot->value;
    char **item = NULL;

    if (value->type != DYTI_TOML_ARRAY) {
        return wrong_type(spot);
    }
    if (value->child_count != 0) {
        item = calloc(value->child_count, sizeof(*item));
        if (item == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "%s", spot->text);
        }
    }
    for (uint32_t i = 0; i < value->child_count; i++) {
        struct spot one;
        enum dyt_status st;

        spot_init(&one, spot->option, &value->child[i], spot->place,
                  spot->shown);
        st = value->child[i].type != DYTI_TOML_STRING ? wrong_type(&one)
             : value->child[i].text_bytes == 0
                 ? DYTI_FAIL(DYT_ERR_CONFIG,
                             "%s: an empty string: leave it out", one.text)
                 : DYT_OK;
        if (st == DYT_OK) {
            item[i] = copy(value->child[i].text);
            st = item[i] == NULL ? DYT_ERR_NOMEM : DYT_OK;
        }
        if (st != DYT_OK) {
            free_texts(item, value->child_count);
            return st;
        }
    }
    *out = item;
    *out_count = value->child_count;
    return DYT_OK;
}

/* ---- the field ---------------------------------------------------------- */

static void *field(const struct dyti_option *option, const void *base)
{
    return (unsigned char *)(uintptr_t)base + option->offset;
}

static uint32_t *field_count(const struct dyti_option *option, const void *base)
{
    return (uint32_t *)(void *)((unsigned char *)(uintptr_t)base +
                                option->count_offset);
}

void dyti_option_fini(const struct dyti_option *option, void *base)
{
    void *at = field(option, base);

    switch (option->type) {
    case DYTI_OPT_TEXT:
    case DYTI_OPT_PATH:
    case DYTI_OPT_WORD:
        free(*(char **)at);
        *(char **)at = NULL;
        break;
    case DYTI_OPT_TEXTS:
        free_texts(*(char ***)at, *field_count(option, base));
        *(char ***)at = NULL;
        *field_count(option, base) = 0;
        break;
    case DYTI_OPT_U32S:
        free(*(uint32_t **)at);
        *(uint32_t **)at = NULL;
        *field_count(option, base) = 0;
        break;
    default:
        break;
    }
}

static enum dyt_status put_number(const struct spot *spot, void *at)
{
    int64_t number = 0;
    enum dyt_status st;

    switch (spot->option->type) {
    case DYTI_OPT_BOOL:
        if (spot->value->type != DYTI_TOML_BOOL) {
            return wrong_type(spot);
        }
        *(bool *)at = spot->value->flag;
        return DYT_OK;
    case DYTI_OPT_U32:
        st = read_integer(spot, UINT32_MAX, &number);
        if (st == DYT_OK) {
            *(uint32_t *)at = (uint32_t)number;
        }
        return st;
    case DYTI_OPT_U64:
        st = read_integer(spot, 0x1p63, &number);
        if (st == DYT_OK) {
            *(uint64_t *)at = (uint64_t)number;
        }
        return st;
    case DYTI_OPT_REAL:
        return read_real(spot, at);
    case DYTI_OPT_CHOICE:
        return read_choice(spot, at);
    case DYTI_OPT_SIZE:
        return read_size(spot, at);
    case DYTI_OPT_SECONDS:
        return read_seconds(spot, at);
    default:
        return read_pair(spot, at);
    }
}

enum dyt_status dyti_option_put(const struct dyti_option *option, void *base,
                                const struct dyti_toml *value,
                                const struct dyti_place *place,
                                const char *shown)
{
    struct spot spot;
    enum dyt_status st;

    spot_init(&spot, option, value, place, shown);
    if (option->type == DYTI_OPT_TEXT || option->type == DYTI_OPT_PATH ||
        option->type == DYTI_OPT_WORD) {
        char *text = NULL;

        st = read_text(&spot, &text);
        if (st == DYT_OK) {
            dyti_option_fini(option, base);
            *(char **)field(option, base) = text;
        }
        return st;
    }
    if (option->type == DYTI_OPT_U32S || option->type == DYTI_OPT_TEXTS) {
        void *list = NULL;
        uint32_t count = 0;

        st = option->type == DYTI_OPT_U32S
                 ? read_u32s(&spot, (uint32_t **)&list, &count)
                 : read_texts(&spot, (char ***)&list, &count);
        if (st == DYT_OK) {
            dyti_option_fini(option, base);
            memcpy(field(option, base), &list, sizeof(list));
            *field_count(option, base) = count;
        }
        return st;
    }
    return put_number(&spot, field(option, base));
}

enum dyt_status dyti_option_default(const struct dyti_option *option,
                                    void *base)
{
    char text[128];
    struct dyti_toml root = {0};
    const struct dyti_place place = {.file = "the table of settings"};
    enum dyt_status st;
    int bytes;

    if (option->fallback == NULL) {
        return DYT_OK;
    }
    bytes = snprintf(text, sizeof(text), "v = %s", option->fallback);
    st = dyti_toml_parse(text, (size_t)bytes, place.file, &root);
    if (st == DYT_OK) {
        st =
            dyti_option_put(option, base, &root.child[0], &place, option->path);
        dyti_toml_fini(&root);
    }
    return st;
}

enum dyt_status dyti_scope_init(enum dyti_option_scope scope, void *base)
{
    size_t count;
    const struct dyti_option *row = dyti_options(scope, &count);

    for (size_t i = 0; i < count; i++) {
        enum dyt_status st = dyti_option_default(&row[i], base);

        if (st != DYT_OK) {
            dyti_scope_fini(scope, base);
            return st;
        }
    }
    return DYT_OK;
}

void dyti_scope_fini(enum dyti_option_scope scope, void *base)
{
    size_t count;
    const struct dyti_option *row = dyti_options(scope, &count);

    for (size_t i = 0; i < count; i++) {
        dyti_option_fini(&row[i], base);
    }
}
