/* One value of a job: checked and put into its field, printed as TOML,
 * compared, given back.  Everything a row's type means is here. */
#include "format/job_value.h"

#include "base/banned.h"
#include "format/size_text.h"

#include <inttypes.h>
#include <math.h>

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

void dyti_spot_init(struct dyti_spot *spot, const struct dyti_option *option,
                    const struct dyti_toml *value,
                    const struct dyti_place *place, const char *shown)
{
    char where[300];
    struct dyti_place at = *place;

    if (at.line != 0 && value->line != 0) {
        at.line = value->line;
        at.column = value->column;
    }
    *spot = (struct dyti_spot){option, value, place, shown, ""};
    snprintf(spot->text, sizeof(spot->text), "%s: %s",
             dyti_place_text(&at, where, sizeof(where)), shown);
}

const char *dyti_value_wanted(const struct dyti_option *option)
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

enum dyt_status dyti_value_wrong_type(const struct dyti_spot *spot)
{
    return DYTI_FAIL(DYT_ERR_CONFIG, "%s: wants %s, not %s", spot->text,
                     dyti_value_wanted(spot->option),
                     dyti_toml_type_name(spot->value->type));
}

/* ---- numbers ------------------------------------------------------------ */

static bool bounded(const struct dyti_option *option)
{
    return option->min != 0.0 || option->max != 0.0;
}

/* A number against the row's range; `most` is what the type holds. */
static enum dyt_status check_range(const struct dyti_spot *spot, double number,
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
                         dyti_value_wanted(option));
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

enum dyt_status dyti_value_read_integer(const struct dyti_spot *spot,
                                        double most, int64_t *out)
{
    enum dyt_status st;

    if (spot->value->type != DYTI_TOML_INTEGER) {
        return dyti_value_wrong_type(spot);
    }
    st = check_range(spot, (double)spot->value->integer, 0, most);
    if (st == DYT_OK) {
        *out = spot->value->integer;
    }
    return st;
}

static enum dyt_status read_real(const struct dyti_spot *spot, double *out)
{
    double number;
    enum dyt_status st;

    if (spot->value->type == DYTI_TOML_INTEGER) {
        number = (double)spot->value->integer;
    } else if (spot->value->type == DYTI_TOML_FLOAT) {
        number = spot->value->real;
    } else {
        return dyti_value_wrong_type(spot);
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

bool dyti_size_from_text(const char *text, uint64_t *out_bytes)
{
    static const char *const unit[] = {"",    "B",  "KiB", "MiB", "GiB",
                                       "TiB", "kB", "MB",  "GB",  "TB"};
    static const double factor[] = {1,      1,   0x1p10, 0x1p20, 0x1p30,
                                    0x1p40, 1e3, 1e6,    1e9,    1e12};
    double bytes;

    if (!read_suffixed(text, unit, factor, sizeof(factor) / sizeof(factor[0]),
                       &bytes) ||
        bytes > 0x1p62) {
        return false;
    }
    *out_bytes = (uint64_t)bytes;
    return true;
}

static enum dyt_status read_size(const struct dyti_spot *spot, uint64_t *out)
{
    enum dyt_status st;

    if (spot->value->type == DYTI_TOML_INTEGER) {
        st = check_range(spot, (double)spot->value->integer, 0, 0x1p62);
        if (st == DYT_OK) {
            *out = (uint64_t)spot->value->integer;
        }
        return st;
    }
    if (spot->value->type != DYTI_TOML_STRING) {
        return dyti_value_wrong_type(spot);
    }
    if (!dyti_size_from_text(spot->value->text, out)) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s: \"%s\" is no size: write a number and B, KiB, "
                         "MiB, GiB or TiB, as \"64MiB\"",
                         spot->text, spot->value->text);
    }
    return DYT_OK;
}

static enum dyt_status read_seconds(const struct dyti_spot *spot, double *out)
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

static enum dyt_status read_pair(const struct dyti_spot *spot, double out[2])
{
    double pair[2];

    if (spot->value->type != DYTI_TOML_ARRAY || spot->value->child_count != 2) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "%s: wants %s", spot->text,
                         dyti_value_wanted(spot->option));
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct dyti_spot item;
        enum dyt_status st;

        dyti_spot_init(&item, spot->option, &spot->value->child[i], spot->place,
                       spot->shown);
        st = read_real(&item, &pair[i]);
        if (st != DYT_OK) {
            return st;
        }
    }
    memcpy(out, pair, sizeof(pair));
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
        dyti_value_free_texts(*(char ***)at, *field_count(option, base));
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

static enum dyt_status put_number(const struct dyti_spot *spot, void *at)
{
    int64_t number = 0;
    enum dyt_status st;

    switch (spot->option->type) {
    case DYTI_OPT_BOOL:
        if (spot->value->type != DYTI_TOML_BOOL) {
            return dyti_value_wrong_type(spot);
        }
        *(bool *)at = spot->value->flag;
        return DYT_OK;
    case DYTI_OPT_U32:
        st = dyti_value_read_integer(spot, UINT32_MAX, &number);
        if (st == DYT_OK) {
            *(uint32_t *)at = (uint32_t)number;
        }
        return st;
    case DYTI_OPT_U64:
        st = dyti_value_read_integer(spot, 0x1p63, &number);
        if (st == DYT_OK) {
            *(uint64_t *)at = (uint64_t)number;
        }
        return st;
    case DYTI_OPT_REAL:
        return read_real(spot, at);
    case DYTI_OPT_CHOICE:
        return dyti_value_read_choice(spot, at);
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
    struct dyti_spot spot;
    enum dyt_status st;

    dyti_spot_init(&spot, option, value, place, shown);
    if (option->type == DYTI_OPT_TEXT || option->type == DYTI_OPT_PATH ||
        option->type == DYTI_OPT_WORD) {
        char *text = NULL;

        st = dyti_value_read_text(&spot, &text);
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
                 ? dyti_value_read_u32s(&spot, (uint32_t **)&list, &count)
                 : dyti_value_read_texts(&spot, (char ***)&list, &count);
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
