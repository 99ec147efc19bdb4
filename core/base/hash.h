/* The fingerprint (of inputs, plans, schedules) and the content hash (of
 * tensor elements).  Neither is cryptographic.  Bytes are taken little endian,
 * so that equal input gives equal numbers on every machine. */
#ifndef DYTI_BASE_HASH_H
#define DYTI_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* A 64-bit mixing step (the finaliser of splitmix64): bijective. */
static inline uint64_t dyti_mix64(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Fingerprint: fold values in order.  Start with DYTI_FINGERPRINT_SEED. */
#define DYTI_FINGERPRINT_SEED 0x64796e61747261edu

static inline uint64_t dyti_fingerprint_u64(uint64_t state, uint64_t value)
{
    return dyti_mix64(state * 0x9e3779b97f4a7c15u + dyti_mix64(value + 1u));
}

uint64_t dyti_fingerprint_bytes(uint64_t state, const void *bytes,
                                size_t size_bytes);
uint64_t dyti_fingerprint_text(uint64_t state, const char *text);

/* Content hash of one element; a shard's hash is the sum mod 2^64 over its
 * elements, so it does not depend on how a tensor is cut.
 *   salt   dyti_content_salt(tensor index, kind)
 *   index  row-major element index in the whole tensor
 *   bits   the element as stored, zero-extended */
static inline uint64_t dyti_content_salt(uint32_t tensor, uint32_t kind)
{
    return dyti_mix64(((uint64_t)tensor << 8 | kind) + 0x51ed270b8f1e6bu);
}

static inline uint64_t dyti_content_mix(uint64_t salt, uint64_t index,
                                        uint64_t bits)
{
    uint64_t x =
        (salt + index * 0x9e3779b97f4a7c15u) ^ (bits * 0xd6e8feb86659fd93u);

    x ^= x >> 32;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 29);
}

/* Content hash of bytes: that of elements of 64 bits, little endian, the last
 * one filled up with zeros.  Pieces of whole elements add up to the whole; a
 * change within one element is always seen.
 *   index  of the first element */
uint64_t dyti_content_bytes(uint64_t salt, uint64_t index, const void *bytes,
                            size_t size_bytes);

#endif /* DYTI_BASE_HASH_H */
