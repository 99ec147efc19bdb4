/* The table of dialects: each has one file and one line here. */
#include "layout/dialect.h"

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
