/* The checks of the group contract, for ranks as threads (tests/contract) and
 * as processes (tests/dist).  A row per backend. */
#ifndef DYT_GROUP_CHECKS_H
#define DYT_GROUP_CHECKS_H

#include "group_world.h"

/* The same bits on all members. */
static inline void check_bits(struct dyt_rank *me,
                              const struct dyti_group_ops *ops, void *group,
                              const float *of, uint64_t n)
{
    uint64_t both[2] = {n == 0 ? 0
                               : dyti_fingerprint_bytes(DYTI_FINGERPRINT_SEED,
                                                        of, n * sizeof(*of)),
                        0};
    uint64_t own = both[0];

    both[1] = ~own;
    rank_ok(me, ops->all_reduce(group, both, 2, DYTI_MAX_U64));
    rank_true(me, both[0] == own && both[1] == ~own);
}

/* Counts per member that sum to `total`, some of them 0. */
static inline void group_counts(uint32_t size, uint64_t c, uint64_t total,
                                uint64_t *counts)
{
    uint64_t left = total;

    for (uint32_t m = 0; m + 1 < size; m++) {
        counts[m] = m % 3 == 1 ? 0 : dyti_rng_u64(3, c, m, 0) % (left + 1);
        left -= counts[m];
    }
    counts[size - 1] = left;
}

#define GROUP_MOST 300000u

static inline void check_one(struct dyt_rank *me,
                             const struct dyti_group_ops *ops, void *group,
                             uint64_t c, uint64_t n, float *in, float *out)
{
    uint64_t counts[DYT_RANKS_MAX], bytes[DYT_RANKS_MAX], lo = 0, at = 0;
    uint32_t root = (uint32_t)(c % me->size);

    /* all-reduce */
    for (uint64_t i = 0; i < n; i++) {
        in[i] = group_value(me->rank, c, i);
    }
    rank_ok(me, ops->all_reduce(group, in, n, DYTI_SUM_F32));
    for (uint64_t i = 0; i < n; i++) {
        rank_true(me, group_is_sum(ops, me->size, in[i], c, i));
    }
    check_bits(me, ops, group, in, n);
    /* reduce-scatter */
    group_counts(me->size, c, n, counts);
    for (uint32_t m = 0; m < me->rank; m++) {
        lo += counts[m];
    }
    for (uint64_t i = 0; i < n; i++) {
        in[i] = group_value(me->rank, c, i);
    }
    rank_ok(me, ops->reduce_scatter(group, in, out, counts, DYTI_SUM_F32));
    for (uint64_t i = 0; i < counts[me->rank]; i++) {
        rank_true(me, group_is_sum(ops, me->size, out[i], c, lo + i));
    }
    /* all-gather */
    for (uint32_t m = 0; m < me->size; m++) {
        bytes[m] = counts[m] * sizeof(float);
    }
    rank_ok(me, ops->all_gather(group, in, out, bytes));
    for (uint32_t m = 0; m < me->size; m++) {
        for (uint64_t i = 0; i < counts[m]; i++) {
            rank_true(me, out[at++] == group_value(m, c, i));
        }
    }
    /* broadcast */
    rank_ok(me, ops->broadcast(group, in, n * sizeof(float), root));
    for (uint64_t i = 0; i < n; i++) {
        rank_true(me, in[i] == group_value(root, c, i));
    }
    rank_ok(me, ops->barrier(group));
}

static inline void check_collectives(struct dyt_rank *me,
                                     const struct group_fixture *fixture)
{
    static const uint64_t sizes[] = {0,    1,    3,     16,
                                     4096, 4097, 50000, GROUP_MOST};
    float *in = calloc(GROUP_MOST, sizeof(*in));
    float *out = calloc(GROUP_MOST, sizeof(*out));
    void *group = NULL;

    if (in == NULL || out == NULL) {
        rank_wrong(me, "no memory");
    } else if (group_open(me, fixture, GROUP_PATIENCE_NS, &group) != DYT_OK) {
        rank_wrong(me, "%s", dyti_error_text());
    } else {
        for (size_t i = 0; i < DYT_TEST_COUNT(sizes); i++) {
            check_one(me, fixture->ops, group, i, sizes[i], in, out);
        }
        for (uint64_t c = 100; c < 140; c++) { /* small ones, often */
            check_one(me, fixture->ops, group, c,
                      dyti_rng_u64(5, c, 0, 0) % 200, in, out);
        }
    }
    fixture->ops->close(group);
    free(in);
    free(out);
}

/* in == out where the table allows it, and the other reductions. */
static inline void check_in_place(struct dyt_rank *me,
                                  const struct group_fixture *fixture)
{
    const struct dyti_group_ops *ops = fixture->ops;
    uint64_t counts[DYT_RANKS_MAX], most[2] = {me->rank + 5, 1000 - me->rank};
    double sums[2] = {1.0 / (me->rank + 1.0), 2};
    double want = 0;
    float both[2] = {me->rank == 0 ? -3.0f : -4.0f, (float)me->rank};
    float small[DYT_RANKS_MAX * 3];
    void *group = NULL;

    rank_ok(me, group_open(me, fixture, GROUP_PATIENCE_NS, &group));
    for (uint32_t m = 0; m < me->size; m++) {
        counts[m] = 3;
        for (uint32_t i = 0; i < 3; i++) {
            small[m * 3 + i] = group_value(me->rank, 1, m * 3 + i);
        }
    }
    rank_ok(me, ops->reduce_scatter(group, small, small + 3 * me->rank, counts,
                                    DYTI_SUM_F32));
    for (uint32_t m = 0; m < me->size; m++) {
        counts[m] = 3 * sizeof(float);
    }
    rank_ok(me, ops->all_gather(group, small + 3 * me->rank, small, counts));
    for (uint32_t i = 0; i < 3 * me->size; i++) {
        rank_true(me, group_is_sum(ops, me->size, small[i], 1, i));
    }

    rank_ok(me, ops->all_reduce(group, sums, 2, DYTI_SUM_F64));
    for (uint32_t r = 0; r < me->size; r++) {
        want += 1.0 / (r + 1.0);
    }
    if ((ops->caps & DYTI_GROUP_CAP_RANK_ORDER) != 0) {
        rank_true(me, sums[0] == want);
    }
    rank_true(me, sums[0] - want < 1e-14 && want - sums[0] < 1e-14 &&
                      sums[1] == 2.0 * me->size);
    rank_ok(me, ops->all_reduce(group, both, 2, DYTI_MAX_F32));
    rank_true(me, both[0] == -3.0f && both[1] == (float)(me->size - 1));
    rank_ok(me, ops->all_reduce(group, most, 2, DYTI_MAX_U64));
    rank_true(me, most[0] == me->size + 4 && most[1] == 1000);
    ops->close(group);
}

#define EXCHANGE_BIG 700001u /* more than any ring */

/* A cycle of big messages, small ones around them, and one to oneself. */
static inline void check_exchange(struct dyt_rank *me,
                                  const struct group_fixture *fixture)
{
    uint32_t next = (me->rank + 1) % me->size;
    uint32_t last = (me->rank + me->size - 1) % me->size;
    unsigned char *big = malloc(EXCHANGE_BIG), *got = calloc(1, EXCHANGE_BIG);
    unsigned char tiny[3] = {1, 2, (unsigned char)me->rank};
    unsigned char tiny_got[3] = {0}, own = 0;
    unsigned char three = 3, after[2] = {0}, send_after[2] = {8, 9};
    void *group = NULL;

    if (big == NULL || got == NULL ||
        group_open(me, fixture, GROUP_PATIENCE_NS, &group) != DYT_OK) {
        rank_wrong(me, "%s", dyti_error_text());
    }
    for (uint32_t round = 0; round < 3 && me->wrong[0] == '\0'; round++) {
        struct dyti_p2p message[] = {
            {next, true, tiny, 3, NULL, NULL},
            {next, true, big, EXCHANGE_BIG, NULL, NULL},
            {next, true, NULL, 0, NULL, NULL},
            {next, true, send_after, 2, NULL, NULL},
            {last, false, tiny_got, 3, NULL, NULL},
            {last, false, got, EXCHANGE_BIG, NULL, NULL},
            {last, false, NULL, 0, NULL, NULL},
            {last, false, after, 2, NULL, NULL},
            {me->rank, true, &three, 1, NULL, NULL},
            {me->rank, false, &own, 1, NULL, NULL}};
        size_t count = DYT_TEST_COUNT(message);

        if (me->size == 1) {
            count -= 2; /* the neighbours are oneself already */
        }
        for (uint32_t i = 0; i < EXCHANGE_BIG; i++) {
            big[i] = (unsigned char)(i * 31 + me->rank * 7 + round);
        }
        if (fixture->ops->exchange(group, message, count) != DYT_OK) {
            rank_wrong(me, "%s", dyti_error_text());
        }
        for (uint32_t i = 0; i < EXCHANGE_BIG; i++) {
            if (got[i] != (unsigned char)(i * 31 + last * 7 + round)) {
                rank_wrong(me, "round %u: byte %u from %u", round, i, last);
                break;
            }
        }
        if (tiny_got[2] != last || after[0] != 8 || after[1] != 9 ||
            (me->size > 1 && own != 3)) {
            rank_wrong(me, "round %u: the small ones", round);
        }
        memset(got, 0, EXCHANGE_BIG);
    }
    fixture->ops->close(group);
    free(big);
    free(got);
}

/* Bytes that a member moves in big collectives: its share and no more. */
static inline void check_traffic(struct dyt_rank *me,
                                 const struct group_fixture *fixture)
{
    const struct dyti_group_ops *ops = fixture->ops;
    const uint64_t n = 240000, bytes = n * sizeof(float);
    struct dyti_group_traffic was, is;
    uint64_t others = me->size - 1, counts[DYT_RANKS_MAX], most;
    float *buf = calloc(n, sizeof(*buf)), *out = calloc(n, sizeof(*out));
    void *group = NULL;

    if (buf == NULL || out == NULL ||
        group_open(me, fixture, GROUP_PATIENCE_NS, &group) != DYT_OK) {
        rank_wrong(me, "%s", dyti_error_text());
        goto out;
    }
    ops->traffic(group, &was);
    if (ops->all_reduce(group, buf, n, DYTI_SUM_F32) != DYT_OK) {
        rank_wrong(me, "%s", dyti_error_text());
    }
    ops->traffic(group, &is);
    /* What is written once for all to read, or sent to each. */
    most = ops == &dyti_group_shm
               ? bytes
               : 2 * bytes * others / me->size + (uint64_t)4096 * me->size;
    if (is.sent_bytes - was.sent_bytes > most ||
        is.received_bytes - was.received_bytes >
            2 * bytes * others / me->size + 4096 * me->size) {
        rank_wrong(me,
                   "all-reduce of %" PRIu64 " bytes: %" PRIu64 " sent, %" PRIu64
                   " received",
                   bytes, is.sent_bytes - was.sent_bytes,
                   is.received_bytes - was.received_bytes);
    }
    for (uint32_t m = 0; m < me->size; m++) {
        counts[m] = n / me->size;
    }
    was = is;
    if (ops->reduce_scatter(group, buf, out, counts, DYTI_SUM_F32) != DYT_OK) {
        rank_wrong(me, "%s", dyti_error_text());
    }
    ops->traffic(group, &is);
    if (is.sent_bytes - was.sent_bytes != n / me->size * others * 4 ||
        is.received_bytes - was.received_bytes != n / me->size * others * 4) {
        rank_wrong(me, "reduce-scatter: %" PRIu64 " sent",
                   is.sent_bytes - was.sent_bytes);
    }
    if (is.calls != 2) {
        rank_wrong(me, "%" PRIu64 " calls counted", is.calls);
    }
out:
    ops->close(group);
    free(buf);
    free(out);
}

/* The last rank never comes, but says why. */
static inline void check_abort(struct dyt_rank *me,
                               const struct group_fixture *fixture)
{
    const struct dyti_group_ops *ops = fixture->ops;
    void *group = NULL;
    float x = 1;
    struct dyti_p2p message = {
        (me->rank + 1) % me->size, false, &x, sizeof(x), NULL, NULL};

    rank_ok(me, group_open(me, fixture, 0, &group));
    if (me->size > 1) {
        if (me->rank + 1 == me->size) {
            group_await(me, fixture, me->size - 1);
            atomic_store(&fixture->abort->value,
                         dyti_abort_pack(me->rank, DYT_ERR_DEVICE));
        } else {
            atomic_fetch_add(fixture->arrived, 1);
            rank_status(me, DYT_ERR_PEER,
                        me->rank % 2 == 0
                            ? ops->all_reduce(group, &x, 1, DYTI_SUM_F32)
                            : ops->exchange(group, &message, 1));
            rank_true(me, strstr(dyti_error_text(), "device error") != NULL);
        }
        rank_status(me, DYT_ERR_PEER, ops->barrier(group));
    }
    ops->close(group);
}

static inline void check_deadline(struct dyt_rank *me,
                                  const struct group_fixture *fixture)
{
    void *group = NULL;

    rank_ok(me, group_open(me, fixture, 20000000, &group));
    if (me->size > 1 && me->rank + 1 < me->size) {
        char name[32];

        snprintf(name, sizeof(name), "rank %u is missing", 10 + me->size - 1);
        rank_status(me, DYT_ERR_TIMEOUT, fixture->ops->barrier(group));
        if (me->size == 2) { /* with more, another may be late as well */
            rank_true(me, strstr(dyti_error_text(), name) != NULL);
        }
        rank_status(me, DYT_ERR_TIMEOUT, fixture->ops->barrier(group));
        atomic_fetch_add(fixture->arrived, 1);
    }
    /* One who is late has not gone. */
    group_await(me, fixture, me->size - 1);
    fixture->ops->close(group);
}

static inline void check_mismatch(struct dyt_rank *me,
                                  const struct group_fixture *fixture)
{
    const struct dyti_group_ops *ops = fixture->ops;
    enum dyt_status st = DYT_OK;
    float x[2] = {0};
    void *group = NULL;

    rank_ok(me, group_open(me, fixture, GROUP_PATIENCE_NS, &group));
    if (me->size > 1) {
        st = me->rank == 0
                 ? DYT_OK
                 : ops->all_reduce(group, x, me->rank == 1, DYTI_SUM_F32);
        rank_status(me, DYT_ERR_INVALID,
                    st == DYT_OK ? ops->barrier(group) : st);
    }
    ops->close(group);
}

static inline void check_reopen(struct dyt_rank *me,
                                const struct group_fixture *fixture)
{
    for (int i = 0; i < 5; i++) {
        void *group = NULL;
        float x = (float)i;

        rank_ok(me, group_open(me, fixture, GROUP_PATIENCE_NS, &group));
        rank_ok(me, fixture->ops->all_reduce(group, &x, 1, DYTI_SUM_F32));
        rank_true(me, x == (float)i * (float)me->size);
        fixture->ops->close(group);
    }
}

#endif /* DYT_GROUP_CHECKS_H */
