/* Rows of copies and of the content hash. */

#include "base/hash.h"

#include <string.h>

/* ---- conversion ---- */

INLINE vf convert_load(const void *p, const enum dyti_dtype dtype, int64_t i)
{
    switch (dtype) {
    case DYTI_F32:
        return v_load((const float *)p + i);
    case DYTI_BF16:
        return v_load_bf16((const uint16_t *)p + i);
    default:
        return v_load_f16((const uint16_t *)p + i);
    }
}

INLINE void convert_store(void *p, const enum dyti_dtype dtype, int64_t i, vf x)
{
    switch (dtype) {
    case DYTI_F32:
        v_store((float *)p + i, x);
        break;
    case DYTI_BF16:
        v_store_bf16((uint16_t *)p + i, x);
        break;
    default:
        v_store_f16((uint16_t *)p + i, x);
    }
}

INLINE void convert_typed(const void *src, const enum dyti_dtype from,
                          void *dst, const enum dyti_dtype to, int64_t count)
{
    int64_t whole = count - TAIL(count), left = count - whole;
    const size_t in = from == DYTI_F32 ? 4 : 2, out = to == DYTI_F32 ? 4 : 2;

    for (int64_t i = 0; i < whole; i += VL) {
        convert_store(dst, to, i, convert_load(src, from, i));
    }
    if (left > 0) { /* through a whole vector aside */
        float edge_in[VL] = {0}, edge_out[VL];

        memcpy(edge_in, (const char *)src + (size_t)whole * in,
               (size_t)left * in);
        convert_store(edge_out, to, 0, convert_load(edge_in, from, 0));
        memcpy((char *)dst + (size_t)whole * out, edge_out, (size_t)left * out);
    }
}

/* Between different float types. */
static void simd_convert(const void *src, enum dyti_dtype from, void *dst,
                         enum dyti_dtype to, int64_t count)
{
    if (from == DYTI_F32 && to == DYTI_BF16) {
        convert_typed(src, DYTI_F32, dst, DYTI_BF16, count);
    } else if (from == DYTI_F32) {
        convert_typed(src, DYTI_F32, dst, DYTI_F16, count);
    } else if (from == DYTI_BF16 && to == DYTI_F32) {
        convert_typed(src, DYTI_BF16, dst, DYTI_F32, count);
    } else if (from == DYTI_BF16) {
        convert_typed(src, DYTI_BF16, dst, DYTI_F16, count);
    } else if (to == DYTI_F32) {
        convert_typed(src, DYTI_F16, dst, DYTI_F32, count);
    } else {
        convert_typed(src, DYTI_F16, dst, DYTI_BF16, count);
    }
}

/* ---- past the caches ---- */

#define LINE  64
#define AHEAD 1024 /* bytes that are fetched before their turn */

/* At any address. */
INLINE vf load_bytes(const char *p)
{
    vf x;

    memcpy(&x, p, sizeof(x));
    return x;
}

/* Copy with stores that do not read the line first; the caller fences. */
static void simd_stream(const char *src, char *dst, int64_t bytes)
{
    int64_t head = (int64_t)(-(uintptr_t)dst % LINE);

    head = head < bytes ? head : bytes;
    memcpy(dst, src, (size_t)head);
    src += head;
    dst += head;
    bytes -= head;
    for (; bytes >= 4 * LINE; bytes -= 4 * LINE) {
        UNROLL
        for (int i = 0; i < 4 * LINE; i += LINE) {
            __builtin_prefetch(src + AHEAD + i);
        }
        UNROLL
        for (int i = 0; i < 4 * LINE; i += VL * 4) {
            v_stream((float *)(void *)(dst + i), load_bytes(src + i));
        }
        src += 4 * LINE;
        dst += 4 * LINE;
    }
    memcpy(dst, src, (size_t)bytes);
}

/* ---- short rows ---- */

INLINE void rows_of(const char *src, int64_t src_stride, char *dst,
                    int64_t dst_stride, const int64_t bytes, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++) {
        memcpy(dst, src, (size_t)bytes);
        src += src_stride;
        dst += dst_stride;
    }
}

/* Lengths that a head, or a share of a small matrix, has are known here: no
 * call for each. */
static void simd_rows(const char *src, int64_t src_stride, char *dst,
                      int64_t dst_stride, int64_t bytes, int64_t rows)
{
    switch (bytes) {
    case 4:
        rows_of(src, src_stride, dst, dst_stride, 4, rows);
        break;
    case 8:
        rows_of(src, src_stride, dst, dst_stride, 8, rows);
        break;
    case 16:
        rows_of(src, src_stride, dst, dst_stride, 16, rows);
        break;
    case 32:
        rows_of(src, src_stride, dst, dst_stride, 32, rows);
        break;
    case 64:
        rows_of(src, src_stride, dst, dst_stride, 64, rows);
        break;
    case 128:
        rows_of(src, src_stride, dst, dst_stride, 128, rows);
        break;
    case 256:
        rows_of(src, src_stride, dst, dst_stride, 256, rows);
        break;
    default:
        rows_of(src, src_stride, dst, dst_stride, bytes, rows);
        break;
    }
}

/* Whole lines of each, past the caches; the caller fences. */
static void simd_stream_rows(const char *src, int64_t src_stride, char *dst,
                             int64_t dst_stride, int64_t bytes, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < bytes; i += VL * 4) {
            v_stream((float *)(void *)(dst + i), load_bytes(src + i));
        }
        src += src_stride;
        dst += dst_stride;
    }
}

/* ---- content hash ---- */

INLINE hv hash_load(const char *p, const int64_t bytes)
{
    return bytes == 4 ? hv_load32(p) : bytes == 2 ? hv_load16(p) : hv_load64(p);
}

/* dyti_content_mix in lanes; base = salt + index * its factor. */
INLINE hv hash_mix(hv base, hv bits)
{
    hv x = base ^ (bits * 0xd6e8feb86659fd93u);

    x ^= x >> 32;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 29);
}

INLINE uint64_t hash_typed(const char *p, const int64_t bytes, int64_t count,
                           uint64_t salt, uint64_t index, uint64_t step)
{
    const uint64_t factor = 0x9e3779b97f4a7c15u;
    hv base[2], sum[2] = {{0}, {0}};
    uint64_t total = 0;
    int64_t i = 0;

    for (int l = 0; l < HASH_LANES; l++) {
        base[0][l] = salt + (index + (uint64_t)l * step) * factor;
        base[1][l] = base[0][l] + HASH_LANES * step * factor;
    }
    for (; i + 2 * HASH_LANES <= count; i += 2 * HASH_LANES) {
        UNROLL
        for (int x = 0; x < 2; x++) {
            sum[x] += hash_mix(
                base[x], hash_load(p + (i + x * HASH_LANES) * bytes, bytes));
            base[x] += 2 * HASH_LANES * step * factor;
        }
    }
    for (; i < count; i++) {
        uint64_t bits = 0;

        memcpy(&bits, p + i * bytes, (size_t)bytes);
        total += dyti_content_mix(salt, index + (uint64_t)i * step, bits);
    }
    sum[0] += sum[1];
    for (int l = 0; l < HASH_LANES; l++) {
        total += sum[0][l];
    }
    return total;
}

/* A dense row of elements of 2, 4 or 8 bytes; the index goes up by `step`. */
static uint64_t simd_hash(const char *p, int64_t bytes, int64_t count,
                          uint64_t salt, uint64_t index, uint64_t step)
{
    if (bytes == 4) {
        return hash_typed(p, 4, count, salt, index, step);
    }
    if (bytes == 2) {
        return hash_typed(p, 2, count, salt, index, step);
    }
    return hash_typed(p, 8, count, salt, index, step);
}
