#include "device/host/isa.h"

#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const isa_name[HOST_ISA_COUNT] = {[HOST_SCALAR] = "scalar",
                                                     [HOST_AVX2] = "avx2",
                                                     [HOST_AVX512] = "avx512",
                                                     [HOST_AVX512_BF16] =
                                                         "avx512_bf16"};

const char *dyti_host_isa_name(enum host_isa isa)
{
    return isa < HOST_ISA_COUNT ? isa_name[isa] : "?";
}

#if defined(__x86_64__)
/* Not every compiler's __builtin_cpu_supports knows this name. */
static bool has_f16c(void)
{
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;

    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 29 & 1u) != 0;
}
#endif

enum host_isa dyti_host_isa_best(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !has_f16c()) {
        return HOST_SCALAR;
    }
    if (!__builtin_cpu_supports("avx512f") ||
        !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512vl")) {
        return HOST_AVX2;
    }
    return __builtin_cpu_supports("avx512bf16") ? HOST_AVX512_BF16
                                                : HOST_AVX512;
#else
    return HOST_SCALAR;
#endif
}

enum dyt_status dyti_host_isa_find(const char *name, enum host_isa *out_isa)
{
    enum host_isa best = dyti_host_isa_best();

    if (name == NULL) {
        *out_isa = best;
        return DYT_OK;
    }
    for (int i = 0; i < HOST_ISA_COUNT; i++) {
        if (strcmp(name, isa_name[i]) != 0) {
            continue;
        }
        if (i > (int)best) {
            return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                             "this machine has no %s; its best instruction set "
                             "is %s: take that or leave the setting out",
                             name, isa_name[best]);
        }
        *out_isa = (enum host_isa)i;
        return DYT_OK;
    }
    return DYTI_FAIL(DYT_ERR_INVALID,
                     "no instruction set is called '%s'; there are scalar, "
                     "avx2, avx512 and avx512_bf16",
                     name);
}
