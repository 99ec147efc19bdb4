/* What a mover of messages must do (ops/mover.h), over every group that can
 * post: the bytes and no other, and a name for what went wrong. */
#include "group_checks.h"

#include "mover/message/message.h"

#define BYTES 3000u

enum wrong { FINE, LOST, DOUBLED, NEVER };

/* A group whose member 0 does something wrong with its second message. */
static struct {
    const struct dyti_group_ops *real;
    enum wrong wrong;
    _Atomic uint32_t sends;
} faulty;

struct box {
    unsigned char head[DYTI_MOVER_HEAD_BYTES];
    unsigned char byte[BYTES];
};

struct pair {
    const struct dyti_group_ops *ops;
    struct dyti_group group;
    void *mover;
};

static enum dyt_status open_pair(struct dyt_rank *me,
                                 const struct group_fixture *fixture,
                                 const struct dyti_group_ops *ops,
                                 struct pair *pair)
{
    struct dyti_mover_params params = {.struct_size = sizeof(params),
                                       .rank = me->rank,
                                       .world_size = me->size,
                                       .group = &pair->group};
    enum dyt_status st;

    *pair = (struct pair){.ops = fixture->ops};
    st = group_open(me, fixture,
                    faulty.wrong == NEVER ? 1500000000 : GROUP_PATIENCE_NS,
                    &pair->group.self);
    pair->group.ops = ops;
    pair->group.rank = me->rank;
    pair->group.size = me->size;
    return st == DYT_OK ? dyti_mover_message.open(&params, &pair->mover) : st;
}

static void close_pair(struct pair *pair)
{
    dyti_mover_message.close(pair->mover);
    pair->ops->close(pair->group.self);
}

/* Both ranks have begun before either posts. */
static enum dyt_status begin(struct pair *pair, uint64_t epoch)
{
    dyti_mover_message.begin(pair->mover, epoch);
    return pair->ops->barrier(pair->group.self);
}

static enum dyt_status finish(struct pair *pair, dyti_ticket ticket)
{
    enum dyt_status st;

    while ((st = dyti_mover_message.poll(pair->mover, ticket)) == DYT_PENDING) {
        st = dyti_mover_message.wait(pair->mover);
        if (st != DYT_OK) {
            break;
        }
    }
    return st;
}

static struct dyti_move move_of(struct box *box, uint32_t peer, bool is_send,
                                uint64_t bytes)
{
    return (struct dyti_move){.struct_size = sizeof(struct dyti_move),
                              .peer = peer,
                              .kind = is_send ? DYTI_MOVE_SEND : DYTI_MOVE_RECV,
                              .buf = box->byte,
                              .size_bytes = bytes};
}

static void check_bytes(struct dyt_rank *me,
                        const struct group_fixture *fixture)
{
    struct box out[4], in[4];
    uint32_t peer = 1 - me->rank;
    struct pair pair;
    dyti_ticket sent[4], got[4];

    rank_ok(me, open_pair(me, fixture, fixture->ops, &pair));
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        rank_ok(me, begin(&pair, epoch));
        for (uint32_t i = 0; i < 4; i++) {
            struct dyti_move move = move_of(&out[i], peer, true, BYTES - i);

            memset(out[i].byte, (int)(epoch * 16 + i + me->rank * 7), BYTES);
            memset(in[i].byte, 0, BYTES);
            rank_ok(me, dyti_mover_message.post(pair.mover, &move, &sent[i]));
            move = move_of(&in[i], peer, false, BYTES - i);
            rank_ok(me, dyti_mover_message.post(pair.mover, &move, &got[i]));
        }
        for (uint32_t i = 4; i-- > 0;) { /* in any order */
            unsigned char want = (unsigned char)(epoch * 16 + i + peer * 7);

            rank_ok(me, finish(&pair, got[i]));
            rank_ok(me, finish(&pair, sent[i]));
            rank_true(me, in[i].byte[0] == want &&
                              in[i].byte[BYTES - i - 1] == want &&
                              (i == 0 || in[i].byte[BYTES - i] == 0));
            rank_status(me, DYT_ERR_INVALID,
                        dyti_mover_message.poll(pair.mover, got[i]));
        }
        rank_ok(me, pair.ops->barrier(pair.group.self));
    }
    close_pair(&pair);
}

static void check_refusals(struct dyt_rank *me,
                           const struct group_fixture *fixture)
{
    const struct dyti_mover_ops *ops = &dyti_mover_message;
    struct dyti_mover_params none = {.struct_size = sizeof(none),
                                     .world_size = me->size};
    struct dyti_move move = {.struct_size = sizeof(move), .peer = 1};
    struct box box;
    struct pair pair;
    dyti_ticket ticket = 77;
    void *self = NULL;

    rank_status(me, DYT_ERR_INVALID, ops->open(&none, &self));
    rank_true(me, self == NULL);
    rank_ok(me, open_pair(me, fixture, fixture->ops, &pair));
    rank_status(me, DYT_ERR_INVALID, ops->post(pair.mover, &move, &ticket));
    move = move_of(&box, me->size, true, 1);
    rank_status(me, DYT_ERR_INVALID, ops->post(pair.mover, &move, &ticket));
    move = move_of(&box, me->rank, true, 1);
    rank_status(me, DYT_ERR_INVALID, ops->post(pair.mover, &move, &ticket));
    rank_true(me, ticket == 77);
    rank_status(me, DYT_ERR_INVALID, ops->poll(pair.mover, 1));
    close_pair(&pair);
}

/* ---- through ------------------------------------------------------------ */

#define LONG_BYTES 700001u /* more than a ring holds, and no whole line */

struct tape {
    uint64_t at;  /* where the next part must begin */
    bool is_send; /* byte i of it is i * 7 + i / 251 */
    bool wrong;
};

static enum dyt_status part_of_tape(void *arg, uint64_t at, void *dense,
                                    uint64_t bytes)
{
    struct tape *tape = arg;
    unsigned char *byte = dense;

    tape->wrong |= at != tape->at || bytes == 0;
    tape->at = at + bytes;
    for (uint64_t i = 0; i < bytes; i++) {
        unsigned char want = (unsigned char)((at + i) * 7 + (at + i) / 251);

        if (tape->is_send) {
            byte[i] = want;
        }
        tape->wrong |= byte[i] != want;
    }
    return DYT_OK;
}

/* One way each, both at once; of another switch, if asked: then not a byte of
 * it is handed out. */
static void through_once(struct dyt_rank *me, struct pair *pair, bool late)
{
    struct tape tape[2] = {{.is_send = true}, {.is_send = false}};
    struct dyti_p2p_through through[2];
    struct box box[2];
    dyti_ticket ticket[2] = {0};
    enum dyt_status st;

    rank_ok(me, begin(pair, 5 + (late ? me->rank : 0)));
    for (uint32_t i = 0; i < 2; i++) {
        struct dyti_move move =
            move_of(&box[i], 1 - me->rank, i == 0, LONG_BYTES);

        memset(&box[i], 0xee, sizeof(box[i]));
        through[i] = (struct dyti_p2p_through){part_of_tape, &tape[i]};
        move.through = &through[i];
        rank_ok(me, dyti_mover_message.post(pair->mover, &move, &ticket[i]));
    }
    st = finish(pair, ticket[1]);
    rank_status(me, late ? DYT_ERR_PEER : DYT_OK, st);
    rank_ok(me, finish(pair, ticket[0]));
    rank_true(me, tape[0].at == LONG_BYTES && !tape[0].wrong);
    rank_true(me, tape[1].at == (late ? 0 : LONG_BYTES) && !tape[1].wrong);
    rank_true(me, box[0].byte[0] == 0xee && box[1].byte[0] == 0xee);
    rank_ok(me, pair->ops->barrier(pair->group.self));
}

static void check_through(struct dyt_rank *me,
                          const struct group_fixture *fixture)
{
    struct tape tape = {.is_send = true};
    struct dyti_p2p_through through = {part_of_tape, &tape};
    struct box box;
    struct dyti_move move = move_of(&box, 1 - me->rank, true, 1);
    dyti_ticket ticket;
    struct pair pair;

    move.through = &through;
    rank_ok(me, open_pair(me, fixture, fixture->ops, &pair));
    if (dyti_mover_message.through(pair.mover)) {
        through_once(me, &pair, false);
        through_once(me, &pair, true);
        through_once(me, &pair, false);
    } else {
        rank_status(me, DYT_ERR_INVALID,
                    dyti_mover_message.post(pair.mover, &move, &ticket));
    }
    close_pair(&pair);
}

/* ---- what goes wrong on the way ----------------------------------------- */

#define LOST_TICKET UINT64_MAX

static enum dyt_status faulty_post(void *self, const struct dyti_p2p *message,
                                   uint64_t *out_ticket)
{
    uint32_t n = message->is_send ? atomic_fetch_add(&faulty.sends, 1) : 0;

    if (n == 1 && faulty.wrong == LOST) { /* said to be sent */
        *out_ticket = LOST_TICKET;
        return DYT_OK;
    }
    if (n == 1 && faulty.wrong == DOUBLED) {
        enum dyt_status st = faulty.real->post(self, message, out_ticket);

        if (st != DYT_OK) {
            return st;
        }
    }
    return faulty.real->post(self, message, out_ticket);
}

static enum dyt_status faulty_poll(void *self, uint64_t ticket)
{
    return ticket == LOST_TICKET ? DYT_OK : faulty.real->poll(self, ticket);
}

static void check_wrong(struct dyt_rank *me,
                        const struct group_fixture *fixture)
{
    static struct dyti_group_ops ops;
    struct box box[3];
    struct pair pair;
    dyti_ticket ticket[3] = {0};
    enum dyt_status st = DYT_OK;
    uint32_t count = faulty.wrong == NEVER ? 2 : 3;

    if (me->rank == 0) {
        ops = *fixture->ops;
        ops.post = faulty_post;
        ops.poll = faulty_poll;
        faulty.real = fixture->ops;
    }
    rank_ok(me,
            open_pair(me, fixture, me->rank == 0 ? &ops : fixture->ops, &pair));
    rank_ok(me, begin(&pair, 1));
    for (uint32_t i = 0; i < 3 && (me->rank == 1 || i < count); i++) {
        struct dyti_move move =
            move_of(&box[i], 1 - me->rank, me->rank == 0, BYTES);

        rank_ok(me, dyti_mover_message.post(pair.mover, &move, &ticket[i]));
    }
    for (uint32_t i = 0; i < 3 && st == DYT_OK; i++) {
        if (me->rank == 1) {
            st = finish(&pair, ticket[i]);
        } else if (i < count) { /* sent, but perhaps never taken */
            (void)dyti_mover_message.poll(pair.mover, ticket[i]);
        }
    }
    if (me->rank == 1) {
        atomic_store(fixture->arrived, 1);
    }
    if (me->rank == 1) {
        rank_status(me, faulty.wrong == NEVER ? DYT_ERR_TIMEOUT : DYT_ERR_PEER,
                    st);
        rank_true(me, strstr(dyti_error_text(), faulty.wrong == LOST ? "is lost"
                                                : faulty.wrong == DOUBLED
                                                    ? "came twice"
                                                    : "rank 10") != NULL);
    }
    while (atomic_load(fixture->arrived) == 0) { /* late is not gone */
        (void)dyti_mover_message.wait(pair.mover);
    }
    /* All meet, begin again, and nothing of it is left. */
    dyti_mover_message.cancel(pair.mover);
    if (faulty.wrong != NEVER) {
        rank_ok(me, pair.ops->barrier(pair.group.self));
        rank_ok(me, begin(&pair, 2));
        atomic_store(&faulty.sends, 10);
        rank_ok(me, pair.ops->barrier(pair.group.self));
        for (uint32_t i = 0; i < 2; i++) {
            struct dyti_move move =
                move_of(&box[i], 1 - me->rank, me->rank == 0, BYTES);

            memset(box[i].byte, me->rank == 0 ? 9 : 0, BYTES);
            rank_ok(me, dyti_mover_message.post(pair.mover, &move, &ticket[i]));
            rank_ok(me, finish(&pair, ticket[i]));
            rank_true(me, box[i].byte[BYTES - 1] == 9);
        }
        rank_ok(me, pair.ops->barrier(pair.group.self));
    }
    close_pair(&pair);
}

/* ---- rows --------------------------------------------------------------- */

static void each_group(group_check_fn check)
{
    for (size_t b = 0; b < DYT_TEST_COUNT(group_backends); b++) {
        const struct dyti_group_ops *ops = group_backends[b];
        uint64_t bytes = ops->region_bytes(2);
        char *page = dyt_ranks_shared(4096);
        struct group_call call = {.fixture = {.ops = ops,
                                              .region_bytes = bytes,
                                              .region = dyt_ranks_shared(bytes),
                                              .abort = (void *)page,
                                              .arrived = (void *)(page + 64)},
                                  .check = check};

        atomic_store(&faulty.sends, 0);
        dyt_ranks_run(DYT_RANKS_THREADS, 2, group_body, &call);
        munmap(call.fixture.region, bytes);
        munmap(page, 4096);
    }
}

static void carries_the_bytes_and_no_other(void **state)
{
    (void)state;
    each_group(check_bytes);
}

static void refuses_what_it_cannot(void **state)
{
    (void)state;
    each_group(check_refusals);
}

static void payloads_go_through_without_a_buffer(void **state)
{
    (void)state;
    each_group(check_through);
}

static void run_wrong(enum wrong wrong)
{
    faulty.wrong = wrong;
    each_group(check_wrong);
}

static void a_lost_message_is_named(void **state)
{
    (void)state;
    run_wrong(LOST);
}

static void a_doubled_message_is_named(void **state)
{
    (void)state;
    run_wrong(DOUBLED);
}

static void a_message_that_never_comes_names_the_rank(void **state)
{
    (void)state;
    run_wrong(NEVER);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(carries_the_bytes_and_no_other),
    cmocka_unit_test(refuses_what_it_cannot),
    cmocka_unit_test(payloads_go_through_without_a_buffer),
    cmocka_unit_test(a_lost_message_is_named),
    cmocka_unit_test(a_doubled_message_is_named),
    cmocka_unit_test(a_message_that_never_comes_names_the_rank),
};
DYT_TEST_MAIN(tests)
