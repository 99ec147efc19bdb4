/* Collectives that only carry bytes: barrier, broadcast, all-gather. */
#include "comm/shm/shm_group.h"

#include <string.h>

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

enum dyt_status dyti_shm_barrier(void *self)
{
    struct dyti_shm_group *group = self;
    enum dyt_status st = dyti_shm_enter(group);

    if (st != DYT_OK) {
        return st;
    }
    return dyti_shm_rendezvous(group, dyti_shm_tag(DYTI_SHM_BARRIER, 0, 0));
}

enum dyt_status dyti_shm_broadcast(void *self, void *buf, uint64_t size_bytes,
                                   uint32_t root)
{
    struct dyti_shm_group *group = self;
    uint64_t tag = dyti_shm_tag(DYTI_SHM_BROADCAST, root, size_bytes);
    unsigned char *bytes = buf;
    enum dyt_status st = dyti_shm_enter(group);

    if (st != DYT_OK) {
        return st;
    }
    if (root >= group->size) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "group %s: broadcast of member %u, "
                         "there are %u",
                         group->name, root, group->size);
    }
    for (uint64_t at = 0; at < size_bytes; at += group->slot_bytes) {
        uint64_t now = min_u64(size_bytes - at, group->slot_bytes);

        if (group->rank == root) {
            memcpy(dyti_shm_publish(group), bytes + at, now);
            group->traffic.sent_bytes += now;
        }
        st = dyti_shm_rendezvous(group, tag);
        if (st != DYT_OK) {
            return st;
        }
        if (group->rank != root) {
            memcpy(bytes + at, dyti_shm_published(group, root), now);
            group->traffic.received_bytes += now;
        }
    }
    return DYT_OK;
}

/* Bytes of a part of `count` that belong to the piece at `at`. */
static uint64_t piece(uint64_t count, uint64_t at, uint64_t piece_bytes)
{
    return at >= count ? 0 : min_u64(count - at, piece_bytes);
}

static void read_pieces(struct dyti_shm_group *group, unsigned char *out,
                        const uint64_t *counts_bytes, uint64_t at)
{
    for (uint32_t i = 0; i < group->size; i++) {
        uint64_t now = piece(counts_bytes[i], at, group->slot_bytes);

        if (now > 0 && i != group->rank) {
            memcpy(out + at, dyti_shm_published(group, i), now);
            group->traffic.received_bytes += now;
        }
        out += counts_bytes[i];
    }
}

enum dyt_status dyti_shm_all_gather(void *self, const void *in, void *out,
                                    const uint64_t *counts_bytes)
{
    struct dyti_shm_group *group = self;
    uint64_t mine = counts_bytes[group->rank], before = 0, most = 0, sum = 0;
    const unsigned char *from = in;
    enum dyt_status st = dyti_shm_enter(group);

    if (st != DYT_OK) {
        return st;
    }
    for (uint32_t i = 0; i < group->size; i++) {
        before += i < group->rank ? counts_bytes[i] : 0;
        most = counts_bytes[i] > most ? counts_bytes[i] : most;
        sum += counts_bytes[i];
    }
    for (uint64_t at = 0; at < most; at += group->slot_bytes) {
        uint64_t now = piece(mine, at, group->slot_bytes);

        if (now > 0 && group->size > 1) {
            memcpy(dyti_shm_publish(group), from + at, now);
            group->traffic.sent_bytes += now;
        }
        st = dyti_shm_rendezvous(group,
                                 dyti_shm_tag(DYTI_SHM_ALL_GATHER, 0, sum));
        if (st != DYT_OK) {
            return st;
        }
        read_pieces(group, out, counts_bytes, at);
    }
    if (mine > 0 && (unsigned char *)out + before != from) {
        memcpy((unsigned char *)out + before, from, mine);
    }
    return DYT_OK;
}
