/* Messages between two members, through one ring per ordered pair.  All
 * messages of a call make progress together: what cannot go on waits for the
 * bell, which a peer rings when it fills or drains a ring of ours. */
#include "comm/shm/shm_group.h"

#include <string.h>

#define HEADER_BYTES DYTI_SHM_HEADER_BYTES

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void dyti_shm_ring_bell(struct dyti_shm_group *group, uint32_t peer)
{
    struct dyti_shm_member *member = &group->member[peer];

    (void)atomic_fetch_add(&member->bell, 1);
    dyti_shm_wake(&member->bell, &member->asleep);
}

/* A part of a message that lies in one piece in the ring. */
static enum dyt_status copy_part(const struct dyti_p2p *message, uint64_t at,
                                 unsigned char *in_ring, uint64_t bytes)
{
    unsigned char *buf = message->buf;

    if (bytes == 0) {
        return DYT_OK;
    }
    if (message->through != NULL) {
        return message->through->part(message->through->arg, at, in_ring,
                                      bytes);
    }
    if (message->is_send) {
        memcpy(in_ring, buf + at, bytes);
    } else {
        memcpy(buf + at, in_ring, bytes);
    }
    return DYT_OK;
}

/* Bytes [at, at + bytes) of a message, at `place` of a ring that wraps. */
static enum dyt_status copy_bytes(const struct dyti_shm_group *group,
                                  struct dyti_shm_ring *ring, uint64_t place,
                                  const struct dyti_p2p *message, uint64_t at,
                                  uint64_t bytes)
{
    uint64_t start = place % group->ring_bytes;
    uint64_t first = min_u64(bytes, group->ring_bytes - start);
    enum dyt_status st = copy_part(message, at, ring->data + start, first);

    return st != DYT_OK
               ? st
               : copy_part(message, at + first, ring->data, bytes - first);
}

/* The next message at or after `from` with this peer and direction. */
static size_t next_message(const struct dyti_p2p *message, size_t count,
                           size_t from, uint32_t peer, bool is_send)
{
    while (from < count &&
           (message[from].peer != peer || message[from].is_send != is_send)) {
        from++;
    }
    return from;
}

enum dyt_status dyti_shm_send_some(struct dyti_shm_group *group,
                                   const struct dyti_p2p *message,
                                   uint64_t *done, bool *out_moved)
{
    struct dyti_shm_ring *ring =
        dyti_shm_ring(group, group->rank, message->peer);
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
    uint64_t used = head - tail, start = head, full, bytes;
    /* what ends a line may be more than a reader has freed of it */
    uint64_t room = used < group->ring_bytes ? group->ring_bytes - used : 0;
    enum dyt_status st = DYT_OK;

    *out_moved = false;
    if (*done == 0) {
        if (room < HEADER_BYTES) {
            return DYT_OK;
        }
        memcpy(ring->data + head % group->ring_bytes, &message->size_bytes,
               sizeof(message->size_bytes));
        head += HEADER_BYTES;
        room -= HEADER_BYTES;
        *done = HEADER_BYTES;
    }
    full = message->size_bytes + HEADER_BYTES;
    bytes = min_u64(min_u64(full - *done, room), group->part_bytes);
    if (bytes > 0) {
        st =
            copy_bytes(group, ring, head, message, *done - HEADER_BYTES, bytes);
        if (st != DYT_OK) {
            return st;
        }
        head += bytes;
        *done += bytes;
        group->traffic.sent_bytes += bytes;
    }
    if (head != start) {
        *out_moved = true;
        atomic_store_explicit(&ring->head,
                              *done == full ? dyti_shm_next_line(head) : head,
                              memory_order_release);
    }
    return DYT_OK;
}

/* As much of the messages to one peer as its ring takes. */
static enum dyt_status send_messages(struct dyti_shm_group *group,
                                     const struct dyti_p2p *message,
                                     size_t count, uint32_t peer,
                                     bool *out_moved)
{
    struct dyti_shm_cursor *cursor = &group->send[peer];
    bool moved = false;

    while (cursor->message < count) {
        const struct dyti_p2p *now = &message[cursor->message];
        bool some = false;
        enum dyt_status st =
            dyti_shm_send_some(group, now, &cursor->offset, &some);

        if (st != DYT_OK) {
            return st;
        }
        moved |= some;
        if (cursor->offset < now->size_bytes + HEADER_BYTES) {
            break;
        }
        cursor->message =
            next_message(message, count, cursor->message + 1, peer, true);
        cursor->offset = 0;
    }
    if (moved) {
        dyti_shm_ring_bell(group, peer);
    }
    *out_moved = moved;
    return DYT_OK;
}

static enum dyt_status wrong_size(struct dyti_shm_group *group, uint32_t peer,
                                  uint64_t sent, uint64_t wanted)
{
    group->broken = DYT_ERR_INVALID;
    return DYTI_FAIL(DYT_ERR_INVALID,
                     "group %s: rank %u sends a message of %llu bytes, rank %u "
                     "waits for one of %llu",
                     group->name, group->world_rank[peer],
                     (unsigned long long)sent, group->world_rank[group->rank],
                     (unsigned long long)wanted);
}

enum dyt_status dyti_shm_receive_some(struct dyti_shm_group *group,
                                      const struct dyti_p2p *message,
                                      uint64_t *done, bool *out_moved)
{
    struct dyti_shm_ring *ring =
        dyti_shm_ring(group, message->peer, group->rank);
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    uint64_t have = head - tail, start = tail, bytes;

    *out_moved = false;
    if (*done == 0) {
        uint64_t size;

        if (have < HEADER_BYTES) {
            return DYT_OK;
        }
        memcpy(&size, ring->data + tail % group->ring_bytes, sizeof(size));
        if (size != message->size_bytes) {
            return wrong_size(group, message->peer, size, message->size_bytes);
        }
        tail += HEADER_BYTES;
        have -= HEADER_BYTES;
        *done = HEADER_BYTES;
    }
    bytes = min_u64(min_u64(message->size_bytes + HEADER_BYTES - *done, have),
                    group->part_bytes);
    if (bytes > 0) {
        enum dyt_status st =
            copy_bytes(group, ring, tail, message, *done - HEADER_BYTES, bytes);

        if (st != DYT_OK) {
            return st;
        }
        tail += bytes;
        *done += bytes;
        group->traffic.received_bytes += bytes;
    }
    if (tail != start) {
        *out_moved = true;
        atomic_store_explicit(&ring->tail,
                              *done == message->size_bytes + HEADER_BYTES
                                  ? dyti_shm_next_line(tail)
                                  : tail,
                              memory_order_release);
    }
    return DYT_OK;
}

/* As much of the messages from one peer as has come. */
static enum dyt_status receive_messages(struct dyti_shm_group *group,
                                        const struct dyti_p2p *message,
                                        size_t count, uint32_t peer,
                                        bool *out_moved)
{
    struct dyti_shm_cursor *cursor = &group->recv[peer];
    bool moved = false;

    while (cursor->message < count) {
        const struct dyti_p2p *now = &message[cursor->message];
        bool some = false;
        enum dyt_status st =
            dyti_shm_receive_some(group, now, &cursor->offset, &some);

        if (st != DYT_OK) {
            return st;
        }
        moved |= some;
        if (cursor->offset < now->size_bytes + HEADER_BYTES) {
            break;
        }
        cursor->message =
            next_message(message, count, cursor->message + 1, peer, false);
        cursor->offset = 0;
    }
    if (moved) {
        dyti_shm_ring_bell(group, peer);
    }
    *out_moved = moved;
    return DYT_OK;
}

/* One pass over all peers. */
static enum dyt_status progress(struct dyti_shm_group *group,
                                const struct dyti_p2p *message, size_t count,
                                bool *out_moved, bool *out_done)
{
    bool moved = false, done = true;

    for (uint32_t peer = 0; peer < group->size; peer++) {
        bool sent = false, received = false;

        if (group->send[peer].message < count) {
            enum dyt_status st =
                send_messages(group, message, count, peer, &sent);

            if (st != DYT_OK) {
                return st;
            }
            moved |= sent;
            done &= group->send[peer].message >= count;
        }
        if (group->recv[peer].message < count) {
            enum dyt_status st =
                receive_messages(group, message, count, peer, &received);

            if (st != DYT_OK) {
                return st;
            }
            moved |= received;
            done &= group->recv[peer].message >= count;
        }
    }
    *out_moved = moved;
    *out_done = done;
    return DYT_OK;
}

static enum dyt_status start(struct dyti_shm_group *group,
                             const struct dyti_p2p *message, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (message[i].peer >= group->size) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "group %s: message %zu is for member %u of %u",
                             group->name, i, message[i].peer, group->size);
        }
    }
    for (uint32_t peer = 0; peer < group->size; peer++) {
        group->send[peer] = (struct dyti_shm_cursor){
            .message = next_message(message, count, 0, peer, true)};
        group->recv[peer] = (struct dyti_shm_cursor){
            .message = next_message(message, count, 0, peer, false)};
    }
    return DYT_OK;
}

/* The first peer that has not sent or taken what it should. */
static void note_peer(const struct dyti_shm_group *group, size_t count)
{
    for (uint32_t i = 0; i < group->size; i++) {
        if (group->recv[i].message < count || group->send[i].message < count) {
            DYTI_NOTE("%s rank %u",
                      group->recv[i].message < count ? "receiving from"
                                                     : "sending to",
                      group->world_rank[i]);
            return;
        }
    }
}

enum dyt_status dyti_shm_exchange(void *self, const struct dyti_p2p *message,
                                  size_t count)
{
    struct dyti_shm_group *group = self;
    struct dyti_shm_member *me = &group->member[group->rank];
    struct dyti_shm_patience patience = {0};
    enum dyt_status st = dyti_shm_enter(group);
    bool done = false;

    if (st == DYT_OK) {
        st = start(group, message, count);
    }
    while (st == DYT_OK && !done) {
        /* Read before looking: a ring that changes afterwards rings it. */
        uint32_t bell = atomic_load(&me->bell);
        bool moved = false;

        st = progress(group, message, count, &moved, &done);
        if (st != DYT_OK || done) {
            break;
        }
        if (moved) {
            patience = (struct dyti_shm_patience){0};
        } else {
            st = dyti_shm_wait_word(group, &patience, &me->bell, bell,
                                    &me->asleep);
            if (st != DYT_OK) {
                note_peer(group, count);
            }
        }
    }
    return st;
}
