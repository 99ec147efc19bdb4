/* Conversion goes through small f32 runs, so that each dtype needs one way in
 * and one way out.  Loads and stores are memcpy: files align nothing. */
#include "format/convert.h"

#include "base/num.h"

#include "base/banned.h"

#define RUN 256

static bool is_float(enum dyti_dtype dtype)
{
    return dtype == DYTI_F32 || dtype == DYTI_BF16 || dtype == DYTI_F16;
}

bool dyti_convertible(enum dyti_dtype from, enum dyti_dtype to)
{
    return from == to || (is_float(from) && is_float(to));
}

static void copy_row(size_t size_bytes, char *dst, int64_t dst_stride,
                     const char *src, int64_t src_stride, int64_t count)
{
    if (dst_stride == (int64_t)size_bytes && src_stride == dst_stride) {
        memcpy(dst, src, size_bytes * (size_t)count);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        memcpy(dst + i * dst_stride, src + i * src_stride, size_bytes);
    }
}

/* Dense halves as one block first: the loops over it become vector code. */
static void gather_halves(uint16_t half[RUN], const char *src, int64_t stride,
                          int64_t count)
{
    if (stride == (int64_t)sizeof(half[0])) {
        memcpy(half, src, sizeof(half[0]) * (size_t)count);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        memcpy(&half[i], src + i * stride, sizeof(half[0]));
    }
}

static void load_run(float run[RUN], enum dyti_dtype from, const char *src,
                     int64_t stride, int64_t count)
{
    uint16_t half[RUN];

    if (from == DYTI_F32) {
        copy_row(sizeof(run[0]), (char *)run, sizeof(run[0]), src, stride,
                 count);
        return;
    }
    gather_halves(half, src, stride, count);
    if (from == DYTI_BF16) {
        for (int64_t i = 0; i < count; i++) {
            run[i] = dyti_bf16_to_f32(half[i]);
        }
    } else {
        for (int64_t i = 0; i < count; i++) {
            run[i] = dyti_f16_to_f32(half[i]);
        }
    }
}

static void store_run(const float run[RUN], enum dyti_dtype to, char *dst,
                      int64_t stride, int64_t count)
{
    uint16_t half[RUN];

    if (to == DYTI_F32) {
        copy_row(sizeof(run[0]), dst, stride, (const char *)run, sizeof(run[0]),
                 count);
        return;
    }
    if (to == DYTI_BF16) {
        for (int64_t i = 0; i < count; i++) {
            half[i] = dyti_f32_to_bf16(run[i]);
        }
    } else {
        for (int64_t i = 0; i < count; i++) {
            half[i] = dyti_f32_to_f16(run[i]);
        }
    }
    copy_row(sizeof(half[0]), dst, stride, (const char *)half, sizeof(half[0]),
             count);
}

void dyti_convert_row(enum dyti_dtype to, void *dst, int64_t dst_stride,
                      enum dyti_dtype from, const void *src, int64_t src_stride,
                      int64_t count)
{
    float run[RUN];
    char *out = dst;
    const char *in = src;

    if (from == to) {
        copy_row(dyti_dtype_bytes(to), out, dst_stride, in, src_stride, count);
        return;
    }
    for (int64_t done = 0; done < count; done += RUN) {
        int64_t most = count - done < RUN ? count - done : RUN;

        load_run(run, from, in + done * src_stride, src_stride, most);
        store_run(run, to, out + done * dst_stride, dst_stride, most);
    }
}
