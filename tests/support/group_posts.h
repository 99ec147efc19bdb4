/* Messages of the group contract that travel by themselves (post and poll). */
#ifndef DYT_GROUP_POSTS_H
#define DYT_GROUP_POSTS_H

#include "group_checks.h"

/* A ring of posts: everybody sends POSTED messages of rising sizes to the next
 * and receives those of the last, some in flight at once, with a barrier in
 * the middle of them; then one that nobody waits for is dropped by cancel. */
#define POSTED      300u
#define POSTED_BIG  90000u
#define POSTED_OPEN 8u

static inline uint64_t posted_bytes(uint32_t i)
{
    return (uint64_t)(i * 7919u) % POSTED_BIG;
}

static inline enum dyt_status poll_until(const struct dyti_group_ops *ops,
                                         void *group, uint64_t ticket)
{
    enum dyt_status st;

    while ((st = ops->poll(group, ticket)) == DYT_PENDING) {
        st = ops->wait(group);
        if (st != DYT_OK) {
            break;
        }
    }
    return st;
}

static inline void posted_ring(struct dyt_rank *me,
                               const struct dyti_group_ops *ops, void *group,
                               unsigned char *out, unsigned char *in)
{
    uint32_t next = (me->rank + 1) % me->size;
    uint32_t last = (me->rank + me->size - 1) % me->size;
    uint64_t send[POSTED_OPEN] = {0}, recv[POSTED_OPEN] = {0};

    for (uint32_t i = 0; i < POSTED + POSTED_OPEN; i++) {
        uint32_t at = i % POSTED_OPEN;
        unsigned char *to = in + (size_t)at * POSTED_BIG;
        unsigned char *from = out + (size_t)at * POSTED_BIG;

        if (i >= POSTED_OPEN) { /* end the one that was here */
            uint32_t was = i - POSTED_OPEN;

            rank_ok(me, poll_until(ops, group, recv[at]));
            rank_ok(me, poll_until(ops, group, send[at]));
            for (uint64_t b = 0; b < posted_bytes(was); b++) {
                if (to[b] != (unsigned char)(was + b + last * 3)) {
                    rank_wrong(me, "message %u, byte %" PRIu64, was, b);
                    return;
                }
            }
        }
        if (i == POSTED / 2) {
            rank_ok(me, ops->barrier(group));
        }
        if (i < POSTED) {
            struct dyti_p2p in_one = {last, false, to, posted_bytes(i),
                                      NULL, NULL};
            struct dyti_p2p out_one = {next, true, from, posted_bytes(i),
                                       NULL, NULL};

            for (uint64_t b = 0; b < posted_bytes(i); b++) {
                from[b] = (unsigned char)(i + b + me->rank * 3);
            }
            rank_ok(me, ops->post(group, &out_one, &send[at]));
            rank_ok(me, ops->post(group, &in_one, &recv[at]));
        }
    }
    rank_status(me, DYT_ERR_INVALID, ops->poll(group, recv[0]));
}

static inline void posted_cancel(struct dyt_rank *me,
                                 const struct dyti_group_ops *ops, void *group,
                                 unsigned char *out, unsigned char *in)
{
    uint32_t next = (me->rank + 1) % me->size;
    uint32_t last = (me->rank + me->size - 1) % me->size;
    struct dyti_p2p message = {next, true, out, 100, NULL, NULL};
    uint64_t ticket = 0;

    rank_ok(me, ops->post(group, &message, &ticket)); /* for nobody */
    rank_ok(me, ops->barrier(group));
    ops->cancel(group);
    rank_ok(me, ops->barrier(group));
    memset(out, (int)(40 + me->rank), 10);
    message.size_bytes = 10;
    rank_ok(me, ops->post(group, &message, &ticket));
    message = (struct dyti_p2p){last, false, in, 10, NULL, NULL};
    rank_ok(me, ops->post(group, &message, &ticket));
    rank_ok(me, poll_until(ops, group, ticket));
    rank_true(me, in[9] == 40 + last);
    rank_ok(me, ops->barrier(group));
}

static inline void check_posts(struct dyt_rank *me,
                               const struct group_fixture *fixture)
{
    const struct dyti_group_ops *ops = fixture->ops;
    unsigned char *out = malloc((size_t)POSTED_OPEN * POSTED_BIG);
    unsigned char *in = malloc((size_t)POSTED_OPEN * POSTED_BIG);
    void *group = NULL;

    if (out == NULL || in == NULL ||
        group_open(me, fixture, GROUP_PATIENCE_NS, &group) != DYT_OK) {
        rank_wrong(me, "%s", dyti_error_text());
    } else if (me->size > 1) {
        posted_ring(me, ops, group, out, in);
        if (me->wrong[0] == '\0') {
            posted_cancel(me, ops, group, out, in);
        }
    }
    ops->close(group);
    free(out);
    free(in);
}

/* A message that nobody sends: an abort ends the wait for it, and so does the
 * deadline, which names the rank. */
static inline void check_posts_end(struct dyt_rank *me,
                                   const struct group_fixture *fixture)
{
    const struct dyti_group_ops *ops = fixture->ops;
    unsigned char buf[8];
    struct dyti_p2p message = {
        (me->rank + 1) % me->size, false, buf, 8, NULL, NULL};
    void *group = NULL;
    uint64_t ticket = 0;
    char name[32];

    rank_ok(me, group_open(me, fixture, 1500000000, &group));
    if (me->size > 1) {
        snprintf(name, sizeof(name), "rank %u", 10 + message.peer);
        group_meet(me, fixture, me->size);
        rank_ok(me, ops->post(group, &message, &ticket));
        if (me->rank > 0) {
            rank_status(me, DYT_ERR_TIMEOUT, poll_until(ops, group, ticket));
            rank_true(me, strstr(dyti_error_text(), name) != NULL);
        } else {
            group_await(me, fixture, 2 * me->size - 1);
            atomic_store(&fixture->abort->value,
                         dyti_abort_pack(1, DYT_ERR_DEVICE));
            rank_status(me, DYT_ERR_PEER, poll_until(ops, group, ticket));
        }
        /* One whose time is over has not gone: who waits for it still may. */
        group_meet(me, fixture, 2 * me->size);
    }
    ops->close(group);
}

#endif /* DYT_GROUP_POSTS_H */
