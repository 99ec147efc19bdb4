/* What an update costs in control messages: a few for each member, whatever the
 * number of members and rows, and none of them long.  And one that is longer
 * than a frame may be ends the call that it was for. */
#include "session_world.h"

#include "control/hub.h"
#include "wire/session.h"

#include <stdatomic.h>

static atomic_uint sent, longest; /* but for signs of life */

static void count(const struct dyti_buffer *b)
{
    struct dyti_envelope e;
    uint32_t bytes = (uint32_t)b->size_bytes, most = atomic_load(&longest);

    if (dyti_wire_envelope(b->bytes, b->size_bytes, &e) != DYT_OK ||
        e.type == DYTI_MSG_HEARTBEAT) {
        return;
    }
    atomic_fetch_add(&sent, 1);
    while (bytes > most &&
           !atomic_compare_exchange_weak(&longest, &most, bytes)) {
    }
}

enum dyt_status __real_dyti_hub_send(struct dyti_hub *hub, uint32_t peer,
                                     struct dyti_buffer *buffer);
enum dyt_status __wrap_dyti_hub_send(struct dyti_hub *hub, uint32_t peer,
                                     struct dyti_buffer *buffer);
enum dyt_status __real_dyti_hub_client_send(struct dyti_hub_client *client,
                                            struct dyti_buffer *buffer);
enum dyt_status __wrap_dyti_hub_client_send(struct dyti_hub_client *client,
                                            struct dyti_buffer *buffer);

static atomic_uint too_long; /* messages of this type are; 0: none */

enum dyt_status __wrap_dyti_hub_send(struct dyti_hub *hub, uint32_t peer,
                                     struct dyti_buffer *buffer)
{
    struct dyti_envelope e;

    if (dyti_wire_envelope(buffer->bytes, buffer->size_bytes, &e) == DYT_OK &&
        e.type == atomic_load(&too_long)) {
        buffer->size_bytes = DYTI_FRAME_MOST_BYTES + 1u;
    }
    count(buffer);
    return __real_dyti_hub_send(hub, peer, buffer);
}

enum dyt_status __wrap_dyti_hub_client_send(struct dyti_hub_client *client,
                                            struct dyti_buffer *buffer)
{
    count(buffer);
    return __real_dyti_hub_client_send(client, buffer);
}

/* ---- a trainer and a replica of as many ranks ------------------------------
 */

#define UPDATES     4u
#define OF_TRAINER  5u /* offer, offered, run, report, done */
#define OF_RECEIVER 4u /* receive, run, report, received */

struct world {
    const char *folder;
    uint32_t ranks; /* of each side */
    pthread_barrier_t barrier;
    uint32_t sent[UPDATES], longest[UPDATES]; /* of each update */
};

static enum dyt_status update(struct member *m, bool trainer, uint64_t version)
{
    dyt_ticket *ticket = NULL;
    enum dyt_status st;

    if (!trainer) {
        return receive_version(m, version);
    }
    write_version(m, version);
    st = offer_version(m, version, false, &ticket);
    st = st != DYT_OK ? st : dyt_ticket_wait(ticket, -1);
    dyt_ticket_destroy(ticket);
    return st;
}

static void body(struct dyt_rank *me)
{
    struct world *w = me->arg;
    bool trainer = me->rank < w->ranks;
    struct member m;
    enum dyt_status st;

    describe(&m, w->folder, trainer ? DYT_ROLE_TRAINER : DYT_ROLE_RECEIVER, 0,
             me->rank % w->ranks, w->ranks);
    m.join.timeout_ns = 60 * SECOND;
    st = enter(&m);
    for (uint32_t i = 0; i < UPDATES; i++) {
        pthread_barrier_wait(&w->barrier);
        if (me->rank == 0) {
            atomic_store(&sent, 0);
            atomic_store(&longest, 0);
        }
        pthread_barrier_wait(&w->barrier);
        st = st != DYT_OK ? st : update(&m, trainer, i + 1);
        if (st != DYT_OK) {
            rank_wrong(me, "update %u: %s", i, dyti_error_text());
        }
        pthread_barrier_wait(&w->barrier);
        if (me->rank == 0) {
            w->sent[i] = atomic_load(&sent);
            w->longest[i] = atomic_load(&longest);
        }
    }
    pthread_barrier_wait(&w->barrier); /* counted before anybody says bye */
    if (me->rank != 0) {               /* the manager's host goes last */
        leave(&m);
    }
    pthread_barrier_wait(&w->barrier);
    if (me->rank == 0) {
        leave(&m);
    }
}

static void an_update_costs_each_member_a_few_messages(void **state)
{
    static const uint32_t ranks[] = {1, 2, 4, 8};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(ranks); i++) {
        struct world w = {.folder = dyt_test_dir(), .ranks = ranks[i]};
        uint32_t want = ranks[i] * (OF_TRAINER + OF_RECEIVER);

        assert_int_equal(0, chmod(w.folder, 0700));
        pthread_barrier_init(&w.barrier, NULL, 2 * ranks[i]);
        dyt_ranks_run(DYT_RANKS_THREADS, 2 * ranks[i], body, &w);
        pthread_barrier_destroy(&w.barrier);
        /* the first opens the link: one message and its answer more */
        assert_int_equal(want + 2 * 2 * ranks[i], w.sent[0]);
        for (uint32_t u = 1; u < UPDATES; u++) {
            assert_int_equal(want, w.sent[u]);
            assert_in_range(w.longest[u], 1, 128);
        }
    }
}

/* ---- too long ------------------------------------------------------------ */

static const char limit[] = "268435457 bytes: one has at most 268435456";

/* The order to open a link, or to make a snapshot for it, cannot be sent:
 * the receive ends with the limit, what was held is held, and once it can be
 * sent the same version goes through. */
static void refuse_links(uint32_t type, uint32_t commit)
{
    struct member t, r;
    dyt_ticket *ticket;

    pair(&t, &r, dyt_test_dir(), commit, DYT_MEMORY_OWN);
    write_version(&t, 1);
    assert_ok(offer_version(&t, 1, false, &ticket));
    atomic_store(&too_long, type);
    assert_status(DYT_ERR_UNSUPPORTED, receive_version(&r, 1));
    assert_error_has(limit);
    assert_error_has("the job's manager");
    atomic_store(&too_long, 0);
    assert_ok(receive_version(&r, 1));
    assert_ok(dyt_ticket_wait(ticket, -1));
    dyt_ticket_destroy(ticket);
    assert_int_equal(1, version_of(&r));
    send_version(&t, &r, 2);
    leave(&r);
    leave(&t);
}

static void a_link_too_long_for_a_message_ends_the_receive(void **state)
{
    (void)state;
    refuse_links(DYTI_MSG_LINK, DYT_COMMIT_STAGED);
    refuse_links(DYTI_MSG_LINK, DYT_COMMIT_IN_PLACE);
    refuse_links(DYTI_MSG_READERS, DYT_COMMIT_IN_PLACE);
}

static void a_catalogue_too_long_for_a_message_ends_the_publish(void **state)
{
    struct member t, r;
    const char *folder = dyt_test_dir();

    (void)state;
    assert_int_equal(0, chmod(folder, 0700));
    describe(&t, folder, DYT_ROLE_TRAINER, 0, 0, 1);
    describe(&r, folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    assert_ok(enter(&t));
    atomic_store(&too_long, DYTI_MSG_CATALOGUE);
    assert_status(DYT_ERR_UNSUPPORTED, enter(&r));
    assert_error_has(limit);
    assert_error_has("the trainer's tensors cannot be told");
    atomic_store(&too_long, 0);
    assert_ok(member_publish(&r));
    send_version(&t, &r, 1);
    leave(&r);
    leave(&t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_link_too_long_for_a_message_ends_the_receive),
    cmocka_unit_test(a_catalogue_too_long_for_a_message_ends_the_publish),
    cmocka_unit_test(an_update_costs_each_member_a_few_messages),
};
DYT_TEST_MAIN(tests)
