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

static void load_run(float run[RUN], enum dyti_dtype from, const char *src,
                     int64_t stride, int64_t count)
{
    for (int64_t i = 0; i < count; i++, src += stride) {
        uint16_t half;

        if (from == DYTI_F32) {
            memcpy(&run[i], src, sizeof(run[i]));
            continue;
        }
        memcpy(&half, src, sizeof(half));
        run[i] =
            from == DYTI_BF16 ? dyti_bf16_to_f32(half) : dyti_f16_to_f32(half);
    }
}

static void store_run(const float run[RUN], enum dyti_dtype to, char *dst,
                      int64_t stride, int64_t count)
{
    for (int64_t i = 0; i < count; i++, dst += stride) {
        uint16_t half;

        if (to == DYTI_F32) {
            memcpy(dst, &run[i], sizeof(run[i]));
            continue;
        }
        half = to == DYTI_BF16 ? dyti_f32_to_bf16(run[i])
                               : dyti_f32_to_f16(run[i]);
        memcpy(dst, &half, sizeof(half));
    }
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
