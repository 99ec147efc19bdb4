/* Strided copies with conversion, and the content hash, element by element. */
#include "device/host/reference/reference.h"

#include "base/hash.h"

static void copy_one(const char *src, enum dyti_dtype from, char *dst,
                     enum dyti_dtype to)
{
    if (from == to) {
        memcpy(dst, src, dyti_dtype_bytes(from));
    } else {
        ref_store(dst, to, 0, ref_load(src, from, 0));
    }
}

static void copy_box(const struct dyti_copy *c)
{
    const int64_t *s = c->src_stride, *d = c->dst_stride;

    for (int64_t i = 0; i < c->size[0]; i++) {
        for (int64_t j = 0; j < c->size[1]; j++) {
            for (int64_t k = 0; k < c->size[2]; k++) {
                for (int64_t l = 0; l < c->size[3]; l++) {
                    copy_one((const char *)c->src + i * s[0] + j * s[1] +
                                 k * s[2] + l * s[3],
                             (enum dyti_dtype)c->src_dtype,
                             (char *)c->dst + i * d[0] + j * d[1] + k * d[2] +
                                 l * d[3],
                             (enum dyti_dtype)c->dst_dtype);
                }
            }
        }
    }
}

enum dyt_status dyti_reference_copy(void *self, const struct dyti_copy *copy,
                                    size_t count)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        copy_box(&copy[i]);
    }
    return DYT_OK;
}

static uint64_t element_bits(const char *p, uint8_t dtype)
{
    uint64_t bits = 0;

    memcpy(&bits, p, dyti_dtype_bytes((enum dyti_dtype)dtype));
    return bits; /* little endian: zero-extended */
}

static uint64_t hash_box(const struct dyti_hash_box *b)
{
    const int64_t *s = b->stride, *n = b->index_stride;
    uint64_t sum = 0;

    for (int64_t i = 0; i < b->size[0]; i++) {
        for (int64_t j = 0; j < b->size[1]; j++) {
            for (int64_t k = 0; k < b->size[2]; k++) {
                for (int64_t l = 0; l < b->size[3]; l++) {
                    const char *p = (const char *)b->data + i * s[0] +
                                    j * s[1] + k * s[2] + l * s[3];
                    int64_t at = i * n[0] + j * n[1] + k * n[2] + l * n[3];

                    sum += dyti_content_mix(b->salt, b->index + (uint64_t)at,
                                            element_bits(p, b->dtype));
                }
            }
        }
    }
    return sum;
}

enum dyt_status dyti_reference_hash(void *self, const struct dyti_hash_box *box,
                                    size_t count, uint64_t *out_hash)
{
    (void)self;
    for (size_t i = 0; i < count; i++) {
        out_hash[i] += hash_box(&box[i]);
    }
    return DYT_OK;
}
