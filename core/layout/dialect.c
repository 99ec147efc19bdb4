/* The table of dialects: each has one file and one line here. */
#include "layout/dialect.h"

#include <string.h>

static const struct dyti_dialect_ops *const table[DYTI_DIALECT_COUNT] = {
    [DYTI_DIALECT_NATIVE] = &dyti_dialect_native,
    [DYTI_DIALECT_HF] = &dyti_dialect_hf,
    [DYTI_DIALECT_MEGATRON] = &dyti_dialect_megatron,
    [DYTI_DIALECT_ZERO12] = &dyti_dialect_zero12,
    [DYTI_DIALECT_ZERO3] = &dyti_dialect_zero3,
    [DYTI_DIALECT_FSDP2] = &dyti_dialect_fsdp2,
    [DYTI_DIALECT_VLLM] = &dyti_dialect_vllm,
};

const struct dyti_dialect_ops *dyti_dialect_ops(enum dyti_dialect dialect)
{
    return (unsigned)dialect < DYTI_DIALECT_COUNT ? table[dialect] : NULL;
}

const char *dyti_dialect_name(enum dyti_dialect dialect)
{
    const struct dyti_dialect_ops *ops = dyti_dialect_ops(dialect);

    return ops != NULL                    ? ops->name
           : dialect == DYTI_DIALECT_LIST ? "list"
                                          : "?";
}

/* Letters to change, add or take away; names are short. */
static size_t distance_of(const char *a, const char *b)
{
    size_t row[24], n = strlen(b);

    for (size_t j = 0; j <= n; j++) {
        row[j] = j;
    }
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t corner = row[0];

        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t least = corner + (a[i - 1] != b[j - 1]);

            corner = row[j];
            least = row[j] + 1 < least ? row[j] + 1 : least;
            row[j] = row[j - 1] + 1 < least ? row[j - 1] + 1 : least;
        }
    }
    return row[n];
}

enum dyt_status dyti_dialect_by_name(const char *name,
                                     enum dyti_dialect *out_dialect)
{
    const char *nearest = NULL;
    size_t best = SIZE_MAX;

    for (int i = 0; i < DYTI_DIALECT_COUNT; i++) {
        size_t distance;

        if (table[i] == NULL) {
            continue;
        }
        if (strcmp(table[i]->name, name) == 0) {
            *out_dialect = (enum dyti_dialect)i;
            return DYT_OK;
        }
        distance = distance_of(name, table[i]->name);
        if (distance < best) {
            best = distance;
            nearest = table[i]->name;
        }
    }
    return DYTI_FAIL(DYT_ERR_CONFIG,
                     "there is no dialect \"%.40s\" (did you mean \"%s\"?)",
                     name, nearest);
}
