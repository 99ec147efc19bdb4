#include "base/dtype.h"

static const struct {
    const char *name;
    uint32_t bytes;
} dtypes[DYTI_DTYPE_COUNT] = {
    [DYTI_F32] = {"f32", 4}, [DYTI_BF16] = {"bf16", 2}, [DYTI_F16] = {"f16", 2},
    [DYTI_I32] = {"i32", 4}, [DYTI_I64] = {"i64", 8},
};

uint32_t dyti_dtype_bytes(enum dyti_dtype dtype)
{
    return dtype < DYTI_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

const char *dyti_dtype_name(enum dyti_dtype dtype)
{
    return dtype < DYTI_DTYPE_COUNT ? dtypes[dtype].name : "?";
}

const char *dyti_kind_name(enum dyti_kind kind)
{
    static const char *const name[DYTI_KIND_COUNT] = {
        "param", "grad", "master", "exp_avg", "exp_avg_sq", "extra"};

    return kind < DYTI_KIND_COUNT ? name[kind] : "?";
}
