/* Reductions.  Every member reduces its own slice of what the others have
 * published, always in member order ((x0 + x1) + x2) + …, so that all members
 * and all repetitions have the same bits, and no member does the others' work.
 */
#include "comm/shm/shm_group.h"

#include <string.h>

/* Up to here everybody reduces everything: one rendezvous instead of two. */
#define SMALL_BYTES (16u << 10)
#define BLOCK_BYTES 8192u

static uint64_t element_bytes(enum dyti_reduce op)
{
    return op == DYTI_SUM_F32 || op == DYTI_MAX_F32 ? 4u : 8u;
}

static void sum_f32(float *restrict acc, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        acc[i] += x[i];
    }
}

static void sum_f64(double *restrict acc, const double *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        acc[i] += x[i];
    }
}

/* A NaN wins, so that a maximum never hides one. */
static void max_f32(float *restrict acc, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        acc[i] = x[i] > acc[i] || x[i] != x[i] ? x[i] : acc[i];
    }
}

static void max_u64(uint64_t *restrict acc, const uint64_t *restrict x,
                    size_t n)
{
    for (size_t i = 0; i < n; i++) {
        acc[i] = x[i] > acc[i] ? x[i] : acc[i];
    }
}

static void fold(enum dyti_reduce op, void *acc, const void *x, uint64_t bytes)
{
    switch (op) {
    case DYTI_SUM_F32:
        sum_f32(acc, x, bytes / 4u);
        break;
    case DYTI_SUM_F64:
        sum_f64(acc, x, bytes / 8u);
        break;
    case DYTI_MAX_F32:
        max_f32(acc, x, bytes / 4u);
        break;
    case DYTI_MAX_U64:
        max_u64(acc, x, bytes / 8u);
        break;
    }
}

/* out = reduction of `bytes` at `offset` of every other member's published slot
 * and of `own`.  out may be own. */
static void reduce(struct dyti_shm_group *group, enum dyti_reduce op,
                   uint64_t offset, const unsigned char *own,
                   unsigned char *out, uint64_t bytes)
{
    _Alignas(LINE_BYTES) unsigned char acc[BLOCK_BYTES];

    for (uint64_t at = 0; at < bytes; at += BLOCK_BYTES) {
        uint64_t now = bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES;

        for (uint32_t i = 0; i < group->size; i++) {
            const unsigned char *x =
                i == group->rank ? own + at
                                 : dyti_shm_published(group, i) + offset + at;

            if (i == 0) {
                memcpy(acc, x, now);
            } else {
                fold(op, acc, x, now);
            }
        }
        memcpy(out + at, acc, now);
    }
    group->traffic.received_bytes += bytes * (group->size - 1u);
}

static enum dyt_status check(const struct dyti_shm_group *group,
                             enum dyti_reduce op, uint64_t count)
{
    uint64_t bytes;

    if (op > DYTI_MAX_U64) {
        return DYTI_FAIL(DYT_ERR_INVALID, "group %s: reduction %d", group->name,
                         (int)op);
    }
    if (__builtin_mul_overflow(count, element_bytes(op), &bytes)) {
        return DYTI_FAIL(DYT_ERR_OVERFLOW, "group %s: %llu elements",
                         group->name, (unsigned long long)count);
    }
    return DYT_OK;
}

/* ---- reduce-scatter ----------------------------------------------------- */

/* Piece `at` of a part of `bytes`. */
static uint64_t piece(uint64_t bytes, uint64_t at, uint64_t piece_bytes)
{
    uint64_t left = at >= bytes ? 0 : bytes - at;

    return left < piece_bytes ? left : piece_bytes;
}

/* Everybody else's piece, each at its member's place of the slot. */
static void publish_pieces(struct dyti_shm_group *group,
                           const unsigned char *in, const uint64_t *counts,
                           uint64_t item, uint64_t at, uint64_t place_bytes)
{
    unsigned char *slot = dyti_shm_publish(group);

    for (uint32_t i = 0; i < group->size; i++) {
        uint64_t now = piece(counts[i] * item, at, place_bytes);

        if (i != group->rank && now > 0) {
            memcpy(slot + i * place_bytes, in + at, now);
            group->traffic.sent_bytes += now;
        }
        in += counts[i] * item;
    }
}

enum dyt_status dyti_shm_reduce_scatter(void *self, const void *in, void *out,
                                        const uint64_t *counts,
                                        enum dyti_reduce op)
{
    struct dyti_shm_group *group = self;
    uint64_t item = element_bytes(op), before = 0, most = 0, sum = 0, place;
    enum dyt_status st = dyti_shm_enter(group);

    for (uint32_t i = 0; i < group->size; i++) {
        before += i < group->rank ? counts[i] : 0;
        most = counts[i] > most ? counts[i] : most;
        sum += counts[i];
    }
    if (st == DYT_OK) {
        st = check(group, op, sum);
    }
    if (st != DYT_OK) {
        return st;
    }
    place = group->slot_bytes / group->size / LINE_BYTES * LINE_BYTES;
    for (uint64_t at = 0; at < most * item; at += place) {
        uint64_t now = piece(counts[group->rank] * item, at, place);

        publish_pieces(group, in, counts, item, at, place);
        st = dyti_shm_rendezvous(
            group, dyti_shm_tag(DYTI_SHM_REDUCE_SCATTER, op, sum));
        if (st != DYT_OK) {
            return st;
        }
        reduce(group, op, group->rank * place,
               (const unsigned char *)in + before * item + at,
               (unsigned char *)out + at, now);
    }
    return DYT_OK;
}

/* ---- all-reduce --------------------------------------------------------- */

static enum dyt_status all_reduce_small(struct dyti_shm_group *group,
                                        unsigned char *buf, uint64_t bytes,
                                        enum dyti_reduce op, uint64_t tag)
{
    enum dyt_status st;

    memcpy(dyti_shm_publish(group), buf, bytes);
    group->traffic.sent_bytes += bytes;
    st = dyti_shm_rendezvous(group, tag);
    if (st == DYT_OK) {
        reduce(group, op, 0, buf, buf, bytes);
    }
    return st;
}

/* A chunk of the buffer, in one slice per member. */
struct chunk {
    unsigned char *buf;
    uint64_t bytes, slice_bytes;
};

static uint64_t slice(const struct chunk *chunk, uint32_t member)
{
    return piece(chunk->bytes, member * chunk->slice_bytes, chunk->slice_bytes);
}

/* All but this member's own slice: nobody else reads that. */
static void publish_chunk(struct dyti_shm_group *group,
                          const struct chunk *chunk)
{
    unsigned char *slot = dyti_shm_publish(group);

    for (uint32_t i = 0; i < group->size; i++) {
        uint64_t now = slice(chunk, i), at = i * chunk->slice_bytes;

        if (i != group->rank && now > 0) {
            memcpy(slot + at, chunk->buf + at, now);
            group->traffic.sent_bytes += now;
        }
    }
}

/* Reduce the own slice, in place and for the others to read next round. */
static void reduce_slice(struct dyti_shm_group *group,
                         const struct chunk *chunk, enum dyti_reduce op,
                         uint64_t result_at)
{
    uint64_t now = slice(chunk, group->rank);
    uint64_t at = group->rank * chunk->slice_bytes;

    if (now > 0) {
        reduce(group, op, at, chunk->buf + at, chunk->buf + at, now);
        memcpy(dyti_shm_publish(group) + result_at, chunk->buf + at, now);
        group->traffic.sent_bytes += now;
    }
}

static void read_slices(struct dyti_shm_group *group, const struct chunk *chunk,
                        uint64_t result_at)
{
    for (uint32_t i = 0; i < group->size; i++) {
        uint64_t now = slice(chunk, i), at = i * chunk->slice_bytes;

        if (i != group->rank && now > 0) {
            memcpy(chunk->buf + at, dyti_shm_published(group, i) + result_at,
                   now);
            group->traffic.received_bytes += now;
        }
    }
}

/* Round r carries chunk r and the reduced slices of chunk r - 1. */
static enum dyt_status all_reduce_chunks(struct dyti_shm_group *group,
                                         unsigned char *buf, uint64_t bytes,
                                         enum dyti_reduce op, uint64_t tag)
{
    uint64_t slice_bytes =
        group->slot_bytes / (group->size + 1u) / LINE_BYTES * LINE_BYTES;
    uint64_t chunk_bytes = slice_bytes * group->size, at = 0;
    struct chunk last = {0}, now;
    enum dyt_status st;

    while (at < bytes || last.bytes > 0) {
        now = (struct chunk){.buf = buf + at,
                             .bytes = piece(bytes, at, chunk_bytes)};
        /* The last chunk is shared out evenly too. */
        now.slice_bytes =
            (now.bytes / group->size / LINE_BYTES + 1u) * LINE_BYTES;
        if (now.slice_bytes > slice_bytes) {
            now.slice_bytes = slice_bytes;
        }
        publish_chunk(group, &now);
        st = dyti_shm_rendezvous(group, tag);
        if (st != DYT_OK) {
            return st;
        }
        read_slices(group, &last, chunk_bytes);
        reduce_slice(group, &now, op, chunk_bytes);
        last = now;
        at += now.bytes;
    }
    return DYT_OK;
}

enum dyt_status dyti_shm_all_reduce(void *self, void *buf, uint64_t count,
                                    enum dyti_reduce op)
{
    struct dyti_shm_group *group = self;
    uint64_t tag = dyti_shm_tag(DYTI_SHM_ALL_REDUCE, op, count), bytes;
    enum dyt_status st = dyti_shm_enter(group);

    if (st == DYT_OK) {
        st = check(group, op, count);
    }
    if (st != DYT_OK || group->size == 1 || count == 0) {
        return st;
    }
    bytes = count * element_bytes(op);
    return bytes <= SMALL_BYTES ? all_reduce_small(group, buf, bytes, op, tag)
                                : all_reduce_chunks(group, buf, bytes, op, tag);
}
