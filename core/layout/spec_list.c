/* Values of a layout spec: numbers, words, lists, lists of lists. */
#include "layout/spec_internal.h"

#include "base/array.h"
#include "base/banned.h"
#include "base/edit.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

void dyti_spec_nearest(const char *word, const char *words, char buf[64])
{
    uint32_t best = UINT32_MAX;

    for (const char *w = words; *w != '\0';) {
        size_t length = strcspn(w, "|");
        char one[64];
        uint32_t distance;

        snprintf(one, sizeof(one), "%.*s", (int)length, w);
        distance = dyti_edit_distance(word, one);
        if (distance < best) {
            best = distance;
            snprintf(buf, 64, "%s", one);
        }
        w += length + (w[length] == '|');
    }
}

enum dyt_status dyti_spec_number(const struct dyti_spec_reader *r,
                                 const char *key, const char *value,
                                 uint64_t most, uint32_t *out)
{
    unsigned long long n;
    char *end;

    errno = 0;
    n = strtoull(value, &end, 10);
    if (errno != 0 || !isdigit((unsigned char)value[0]) || *end != '\0' ||
        n > most) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s%s = \"%.60s\": a whole number from 0 to %llu",
                         r->where, key, value, (unsigned long long)most);
    }
    *out = (uint32_t)n;
    return DYT_OK;
}

enum dyt_status dyti_spec_word(const struct dyti_spec_reader *r,
                               const char *key, const char *value,
                               const char *words, uint32_t *out)
{
    size_t bytes = strlen(value);
    uint32_t at = 0;
    char near[64] = "";

    for (const char *w = words; *w != '\0'; at++) {
        size_t length = strcspn(w, "|");

        if (length == bytes && memcmp(w, value, bytes) == 0) {
            *out = at;
            return DYT_OK;
        }
        w += length + (w[length] == '|');
    }
    dyti_spec_nearest(value, words, near);
    return DYTI_FAIL(DYT_ERR_CONFIG,
                     "%s%s = \"%.60s\": one of %s (did you mean \"%s\"?)",
                     r->where, key, value, words, near);
}

/* Add lo..hi. */
static enum dyt_status add_range(const struct dyti_spec_reader *r,
                                 const char *key, uint32_t lo, uint32_t hi,
                                 uint32_t **list, size_t *cap, size_t *count)
{
    if (hi < lo) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "%s%s: %u-%u goes backwards", r->where,
                         key, lo, hi);
    }
    if (*count + (hi - lo) + 1u > DYTI_SPEC_MOST_RANKS) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "%s%s has more than %u entries",
                         r->where, key, DYTI_SPEC_MOST_RANKS);
    }
    for (uint32_t v = lo;; v++) {
        enum dyt_status st = DYTI_GROW(*list, *cap, *count + 1);

        if (st != DYT_OK) {
            return st;
        }
        (*list)[(*count)++] = v;
        if (v == hi) {
            return DYT_OK;
        }
    }
}

/* One entry, "7" or "4-7", of `length` bytes. */
static enum dyt_status add_entry(const struct dyti_spec_reader *r,
                                 const char *key, const char *text,
                                 size_t length, bool ranges, uint32_t **list,
                                 size_t *cap, size_t *count)
{
    char one[32], *dash;
    uint32_t lo, hi;
    enum dyt_status st;

    snprintf(one, sizeof(one), "%.*s", (int)length, text);
    dash = ranges ? strchr(one, '-') : NULL;
    if (dash != NULL) {
        *dash = '\0';
    }
    st = dyti_spec_number(r, key, one, UINT32_MAX, &lo);
    hi = lo;
    if (st == DYT_OK && dash != NULL) {
        st = dyti_spec_number(r, key, dash + 1, UINT32_MAX, &hi);
    }
    return st != DYT_OK ? st : add_range(r, key, lo, hi, list, cap, count);
}

enum dyt_status dyti_spec_u32s(const struct dyti_spec_reader *r,
                               const char *key, const char *value, bool ranges,
                               uint32_t **out, uint32_t *out_count)
{
    uint32_t *list = NULL;
    size_t cap = 0, count = 0;
    enum dyt_status st = DYT_OK;
    const char *at = value;

    for (bool more = true; more && st == DYT_OK;) {
        size_t length = strcspn(at, "+");

        st = add_entry(r, key, at, length, ranges, &list, &cap, &count);
        more = at[length] == '+';
        at += length + more;
    }
    if (st != DYT_OK) {
        free(list);
        return st;
    }
    free(*out);
    *out = list;
    *out_count = (uint32_t)count;
    return DYT_OK;
}

/* Entries of one row, and where it ends. */
static uint32_t row_length(const char *row, const char **out_end)
{
    uint32_t count = 1;
    const char *p = row;

    for (; *p != '\0' && *p != '/'; p++) {
        count += *p == '+';
    }
    *out_end = p;
    return count;
}

static enum dyt_status read_row(const struct dyti_spec_reader *r,
                                const char *row, uint32_t count, int32_t *out)
{
    for (uint32_t i = 0; i < count; i++) {
        size_t length = strcspn(row, "+/");
        char one[16];
        uint32_t n = 0;

        snprintf(one, sizeof(one), "%.*s", (int)length, row);
        if (strcmp(one, "-1") == 0) {
            out[i] = -1;
        } else {
            enum dyt_status st =
                dyti_spec_number(r, "experts", one, INT32_MAX, &n);

            if (st != DYT_OK) {
                return st;
            }
            out[i] = (int32_t)n;
        }
        row += length + (row[length] == '+');
    }
    return DYT_OK;
}

enum dyt_status dyti_spec_slots(struct dyti_spec_reader *r, const char *value)
{
    struct dyti_layout_spec *spec = r->spec;
    uint32_t rows = 0, most = 0, at = 0;
    const char *end;
    int32_t *slot;

    for (const char *row = value;; row = end + 1) {
        uint32_t count = row_length(row, &end);

        rows++;
        most = count > most ? count : most;
        if (*end == '\0') {
            break;
        }
    }
    slot = malloc((size_t)rows * most * sizeof(*slot));
    if (slot == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u rows of %u experts", rows, most);
    }
    for (size_t i = 0; i < (size_t)rows * most; i++) {
        slot[i] = -1;
    }
    for (const char *row = value;; row = end + 1) {
        uint32_t count = row_length(row, &end);
        enum dyt_status st =
            read_row(r, row, count, slot + (size_t)at++ * most);

        if (st != DYT_OK) {
            free(slot);
            return st;
        }
        if (*end == '\0') {
            break;
        }
    }
    free(spec->expert_slot);
    spec->expert_slot = slot;
    spec->desc.expert_slots = most;
    r->slot_rows = rows;
    return DYT_OK;
}

enum dyt_status dyti_spec_order(struct dyti_spec_reader *r, const char *value)
{
    uint8_t order[DYTI_AXIS_COUNT] = {0};
    bool seen[DYTI_AXIS_COUNT] = {false};
    const char *at = value;

    for (int i = 0; i < DYTI_AXIS_COUNT; i++) {
        size_t length = strcspn(at, "-+");
        char one[16];
        uint32_t axis = 0;
        enum dyt_status st;

        snprintf(one, sizeof(one), "%.*s", (int)length, at);
        st = dyti_spec_word(r, "order", one, "tp|cp|dp|pp", &axis);
        if (st != DYT_OK) {
            return st;
        }
        if (seen[axis] || (at[length] != '\0') != (i + 1 < DYTI_AXIS_COUNT)) {
            return DYTI_FAIL(DYT_ERR_CONFIG,
                             "%sorder = \"%.60s\": tp, cp, dp and pp, each "
                             "once, fastest first: tp-cp-dp-pp",
                             r->where, value);
        }
        seen[axis] = true;
        order[i] = (uint8_t)axis;
        at += length + (at[length] != '\0');
    }
    memcpy(r->spec->desc.order, order, sizeof(order));
    return DYT_OK;
}
