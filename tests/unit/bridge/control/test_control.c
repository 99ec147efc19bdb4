/* The manager's socket among strangers: what is not ours is counted and does
 * nothing. */
#include "dyt_test.h"
#include "dyt_zmq_tsan.h"

#include "control/control.h"
#include "wire/wire.h"

#include <zmq.h>

#define RANKS 3u

struct fixture {
    char endpoint[DYTI_ENDPOINT_BYTES];
    uint64_t job;
    struct dyti_control_server *server;
    struct dyti_control_client *client[RANKS];
};

static void fixture_init(struct fixture *f)
{
    *f = (struct fixture){0};
    assert_ok(dyti_control_random(&f->job));
    dyti_control_endpoint(f->job, f->endpoint);
    assert_ok(dyti_control_server_open(f->endpoint, f->job, RANKS,
                                       dyti_wire_envelope, &f->server));
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_ok(dyti_control_client_open(f->endpoint, f->job, i,
                                           dyti_wire_envelope, &f->client[i]));
    }
}

static void fixture_fini(struct fixture *f)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        dyti_control_client_close(f->client[i]);
    }
    dyti_control_server_close(f->server);
}

static void say(struct dyti_control_client *c, enum dyti_message type)
{
    struct dyti_envelope e = dyti_control_client_stamp(c, type, 0, 0);
    struct dyti_buffer b = {0};

    assert_ok(dyti_wire_empty(&e, &b));
    assert_ok(dyti_control_client_send(c, &b));
    assert_null(b.bytes);
}

static struct dyti_control_counts counts_of(struct dyti_control_server *s)
{
    struct dyti_control_counts c;

    dyti_control_server_counts(s, &c);
    return c;
}

static uint64_t seen(struct dyti_control_server *s)
{
    struct dyti_control_counts c = counts_of(s);

    return c.received + c.malformed + c.foreign + c.stale;
}

/* Let the server look at the next message, whatever becomes of it; true: it
 * was accepted. */
static bool look(struct dyti_control_server *s, struct dyti_frame *frame)
{
    uint64_t before = seen(s);

    for (int i = 0; i < 100; i++) {
        enum dyti_control_event event;
        size_t fd;

        assert_ok(dyti_control_wait(s, NULL, 0, 10000, &event, frame, &fd));
        if (event == DYTI_EVENT_MESSAGE) {
            return true;
        }
        if (seen(s) > before) {
            return false;
        }
    }
    fail_msg("no message came");
    return false;
}

static void expect(struct dyti_control_server *s, int32_t sender,
                   enum dyti_message type)
{
    struct dyti_frame frame = {0};

    assert_true(look(s, &frame));
    assert_int_equal(frame.envelope.sender, sender);
    assert_int_equal(frame.envelope.type, type);
    dyti_frame_fini(&frame);
    assert_null(frame.buffer.bytes);
}

static void expect_nothing(struct dyti_control_server *s)
{
    struct dyti_frame frame = {0};

    assert_false(look(s, &frame));
    assert_null(frame.buffer.bytes);
}

/* All ranks say hello, in order, and are heard. */
static void all_hello(struct fixture *f)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        say(f->client[i], DYTI_MSG_HELLO);
        expect(f->server, (int32_t)i, DYTI_MSG_HELLO);
    }
}

static void tell(struct dyti_control_server *s, uint32_t rank,
                 const struct dyti_envelope *e)
{
    struct dyti_buffer b = {0};

    assert_ok(dyti_wire_empty(e, &b));
    assert_ok(dyti_control_send(s, rank, &b));
}

static void hear(struct dyti_control_client *c, enum dyti_message type)
{
    struct dyti_frame frame = {0};

    assert_ok(dyti_control_client_receive(c, 10000, &frame));
    assert_int_equal(frame.envelope.type, type);
    assert_int_equal(frame.envelope.sender, DYTI_MANAGER_RANK);
    dyti_frame_fini(&frame);
}

/* ---- the ordinary way ---------------------------------------------------- */

static void messages_go_both_ways(void **state)
{
    struct dyti_control_counts c;
    struct dyti_envelope e;
    struct dyti_buffer b = {0};
    struct dyti_frame frame = {0};
    struct fixture f;

    (void)state;
    fixture_init(&f);
    all_hello(&f);
    e = dyti_control_stamp(f.server, DYTI_MSG_PAUSE, 4, 9);
    assert_int_equal(e.epoch, 4);
    assert_int_equal(e.version, 9);
    tell(f.server, 1, &e);
    hear(f.client[1], DYTI_MSG_PAUSE);
    assert_int_equal(dyti_control_client_receive(f.client[0], 0, &frame),
                     DYT_PENDING);
    e = dyti_control_stamp(f.server, DYTI_MSG_BYE, 4, 9);
    assert_ok(dyti_wire_empty(&e, &b));
    assert_ok(dyti_control_send_all(f.server, &b));
    for (uint32_t i = 0; i < RANKS; i++) {
        hear(f.client[i], DYTI_MSG_BYE);
        dyti_control_client_counts(f.client[i], &c);
        assert_int_equal(c.received, 1 + (i == 1));
        assert_int_equal(c.sent, 1);
    }
    c = counts_of(f.server);
    assert_int_equal(c.received, RANKS);
    assert_int_equal(c.sent, 1 + RANKS);
    assert_int_equal(c.malformed + c.foreign + c.stale, 0);
    fixture_fini(&f);
}

static void nobody_is_written_to_before_hello(void **state)
{
    struct dyti_envelope e;
    struct dyti_buffer b = {0};
    struct fixture f;

    (void)state;
    fixture_init(&f);
    e = dyti_control_stamp(f.server, DYTI_MSG_ASSIGN, 0, 0);
    for (uint32_t rank = 2; rank < 5; rank++) {
        assert_ok(dyti_wire_empty(&e, &b));
        assert_status(DYT_ERR_PEER, dyti_control_send(f.server, rank, &b));
        assert_error_has("has not said hello");
        assert_null(b.bytes);
    }
    /* A rank must say hello before anything else counts. */
    say(f.client[0], DYTI_MSG_READY);
    expect_nothing(f.server);
    assert_int_equal(counts_of(f.server).foreign, 1);
    say(f.client[0], DYTI_MSG_HELLO);
    expect(f.server, 0, DYTI_MSG_HELLO);
    fixture_fini(&f);
}

static void a_rank_that_left_is_a_peer_error(void **state)
{
    struct dyti_envelope e;
    enum dyt_status st = DYT_OK;
    struct fixture f;

    (void)state;
    fixture_init(&f);
    all_hello(&f);
    dyti_control_client_close(f.client[1]);
    f.client[1] = NULL;
    /* The disconnection travels by itself: soon sending fails. */
    for (int i = 0; i < 100000 && st == DYT_OK; i++) {
        struct dyti_frame frame = {0};
        enum dyti_control_event event;
        struct dyti_buffer b = {0};
        size_t fd;

        e = dyti_control_stamp(f.server, DYTI_MSG_PAUSE, 0, 0);
        assert_ok(dyti_wire_empty(&e, &b));
        st = dyti_control_send(f.server, 1, &b);
        assert_ok(dyti_control_wait(f.server, NULL, 0, 1, &event, &frame, &fd));
    }
    assert_int_equal(st, DYT_ERR_PEER);
    assert_error_has("rank 1 cannot be reached");
    e = dyti_control_stamp(f.server, DYTI_MSG_PAUSE, 0, 0);
    tell(f.server, 0, &e);
    hear(f.client[0], DYTI_MSG_PAUSE);
    fixture_fini(&f);
}

static void big_messages_pass(void **state)
{
    enum { COUNT = 4 << 20 };
    struct dyti_prompt prompt = {
        .id = 1, .ids = calloc(COUNT, sizeof(int32_t)), .id_count = COUNT};
    struct dyti_msg_generate m = {.prompt = &prompt, .prompt_count = 1};
    struct dyti_msg_generate out;
    struct dyti_envelope e;
    struct dyti_buffer b = {0};
    struct dyti_frame frame = {0};
    struct fixture f;

    (void)state;
    for (int32_t i = 0; i < COUNT; i++) {
        prompt.ids[i] = i ^ 0x5555;
    }
    fixture_init(&f);
    all_hello(&f);
    e = dyti_control_stamp(f.server, DYTI_MSG_GENERATE, 0, 0);
    assert_ok(dyti_wire_generate_encode(&e, &m, &b));
    assert_true(b.size_bytes > (16u << 20));
    assert_ok(dyti_control_send_all(f.server, &b));
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_ok(dyti_control_client_receive(f.client[i], 30000, &frame));
        assert_ok(dyti_wire_generate_decode(frame.buffer.bytes,
                                            frame.buffer.size_bytes, &out));
        assert_memory_equal(out.prompt[0].ids, prompt.ids,
                            COUNT * sizeof(int32_t));
        dyti_msg_generate_fini(&out);
        dyti_frame_fini(&frame);
    }
    free(prompt.ids);
    fixture_fini(&f);
}

/* ---- strangers ----------------------------------------------------------- */

static void strangers_are_counted_and_harmless(void **state)
{
    static const uint32_t ranks[] = {0, RANKS, 2147483647u};
    struct dyti_control_client *stranger;
    struct dyti_control_counts c;
    struct dyti_envelope e;
    struct dyti_frame frame = {0};
    struct fixture f;

    (void)state;
    fixture_init(&f);
    all_hello(&f);
    /* Another job's worker that found our address. */
    assert_ok(dyti_control_client_open(f.endpoint, f.job + 1, 1,
                                       dyti_wire_envelope, &stranger));
    say(stranger, DYTI_MSG_HELLO);
    expect_nothing(f.server);
    dyti_control_client_close(stranger);
    assert_int_equal(counts_of(f.server).foreign, 1);
    /* A second worker of ours for a rank that is taken, and for none. */
    for (size_t i = 0; i < DYT_TEST_COUNT(ranks); i++) {
        assert_ok(dyti_control_client_open(f.endpoint, f.job, ranks[i],
                                           dyti_wire_envelope, &stranger));
        say(stranger, DYTI_MSG_HELLO);
        expect_nothing(f.server);
        assert_int_equal(counts_of(f.server).foreign, 2 + i);
        assert_int_equal(dyti_control_client_receive(stranger, 0, &frame),
                         DYT_PENDING);
        dyti_control_client_close(stranger);
    }
    /* The first one is still the one that is heard and told. */
    say(f.client[0], DYTI_MSG_READY);
    expect(f.server, 0, DYTI_MSG_READY);
    e = dyti_control_stamp(f.server, DYTI_MSG_PAUSE, 0, 0);
    tell(f.server, 0, &e);
    hear(f.client[0], DYTI_MSG_PAUSE);
    c = counts_of(f.server);
    assert_int_equal(c.received, RANKS + 1);
    assert_int_equal(c.malformed + c.stale, 0);
    fixture_fini(&f);
}

static void late_and_doubled_messages_are_stale(void **state)
{
    struct dyti_control_counts c;
    struct dyti_envelope first, second;
    struct dyti_buffer b = {0};
    struct dyti_frame frame = {0};
    struct fixture f;

    (void)state;
    fixture_init(&f);
    all_hello(&f);
    first = dyti_control_client_stamp(f.client[2], DYTI_MSG_READY, 0, 0);
    second = dyti_control_client_stamp(f.client[2], DYTI_MSG_PAUSED, 0, 0);
    assert_ok(dyti_wire_empty(&second, &b));
    assert_ok(dyti_control_client_send(f.client[2], &b));
    expect(f.server, 2, DYTI_MSG_PAUSED);
    for (int i = 0; i < 2; i++) { /* doubled, then late */
        assert_ok(dyti_wire_empty(i == 0 ? &second : &first, &b));
        assert_ok(dyti_control_client_send(f.client[2], &b));
        expect_nothing(f.server);
        assert_int_equal(counts_of(f.server).stale, 1 + i);
    }
    /* A hello said twice is no second hello. */
    first.type = DYTI_MSG_HELLO;
    assert_ok(dyti_wire_empty(&first, &b));
    assert_ok(dyti_control_client_send(f.client[2], &b));
    expect_nothing(f.server);
    assert_int_equal(counts_of(f.server).stale, 3);
    /* The same on the other side. */
    first = dyti_control_stamp(f.server, DYTI_MSG_PAUSE, 0, 0);
    second = dyti_control_stamp(f.server, DYTI_MSG_BYE, 0, 0);
    tell(f.server, 1, &second);
    tell(f.server, 1, &first);
    tell(f.server, 1, &second);
    second.sequence++;
    second.sender = 0; /* not the manager's */
    tell(f.server, 1, &second);
    second.sender = DYTI_MANAGER_RANK;
    second.job++;
    tell(f.server, 1, &second);
    second.job--;
    second.type = DYTI_MSG_TRAIN;
    tell(f.server, 1, &second);
    hear(f.client[1], DYTI_MSG_BYE);
    hear(f.client[1], DYTI_MSG_TRAIN);
    assert_int_equal(dyti_control_client_receive(f.client[1], 0, &frame),
                     DYT_PENDING);
    dyti_control_client_counts(f.client[1], &c);
    assert_int_equal(c.received, 2);
    assert_int_equal(c.stale, 2);
    assert_int_equal(c.foreign, 2);
    assert_int_equal(c.malformed, 0);
    fixture_fini(&f);
}

static void raw_frames(void *socket, const char *bytes, size_t size, int parts)
{
    for (int i = 0; i < parts; i++) {
        assert_int_equal(
            zmq_send(socket, bytes, size, i + 1 < parts ? ZMQ_SNDMORE : 0),
            (int)size);
    }
}

static void rubbish_is_malformed(void **state)
{
    static const char junk[] = "GET / HTTP/1.1\r\n\r\n";
    struct dyti_control_client *old;
    struct dyti_envelope e;
    struct dyti_buffer b = {0};
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_DEALER);
    struct fixture f;
    int linger = 0;

    (void)state;
    fixture_init(&f);
    all_hello(&f);
    zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof(linger));
    assert_int_equal(zmq_connect(socket, f.endpoint), 0);
    raw_frames(socket, junk, sizeof(junk), 1);
    expect_nothing(f.server);
    raw_frames(socket, "", 0, 1);
    expect_nothing(f.server);
    raw_frames(socket, junk, sizeof(junk), 7);
    expect_nothing(f.server);
    assert_int_equal(counts_of(f.server).malformed, 3);
    /* A whole message in two parts is no message either. */
    e = dyti_control_client_stamp(f.client[0], DYTI_MSG_READY, 0, 0);
    assert_ok(dyti_wire_empty(&e, &b));
    raw_frames(socket, (char *)b.bytes, b.size_bytes, 2);
    expect_nothing(f.server);
    assert_int_equal(counts_of(f.server).malformed, 4);
    /* Another protocol. */
    assert_ok(dyti_control_client_open(f.endpoint, f.job, 1, dyti_wire_envelope,
                                       &old));
    e.protocol++;
    dyti_buffer_fini(&b);
    assert_ok(dyti_wire_empty(&e, &b));
    assert_ok(dyti_control_client_send(old, &b));
    expect_nothing(f.server);
    assert_int_equal(counts_of(f.server).malformed, 5);
    say(f.client[0], DYTI_MSG_READY);
    expect(f.server, 0, DYTI_MSG_READY);
    dyti_control_client_close(old);
    zmq_close(socket);
    zmq_ctx_term(context);
    fixture_fini(&f);
}

/* ---- several ------------------------------------------------------------- */

static void two_jobs_never_meet(void **state)
{
    struct dyti_control_server *third = NULL;
    struct fixture a, b;

    (void)state;
    fixture_init(&a);
    fixture_init(&b);
    assert_string_not_equal(a.endpoint, b.endpoint);
    for (uint32_t i = 0; i < RANKS; i++) {
        say(a.client[i], DYTI_MSG_HELLO);
        say(b.client[i], DYTI_MSG_HELLO);
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        struct dyti_frame frame = {0};

        assert_true(look(a.server, &frame));
        dyti_frame_fini(&frame);
        assert_true(look(b.server, &frame));
        dyti_frame_fini(&frame);
    }
    assert_int_equal(counts_of(a.server).foreign, 0);
    assert_int_equal(counts_of(b.server).foreign, 0);
    /* An address in use is refused, and who has it keeps it. */
    assert_status(DYT_ERR_IO,
                  dyti_control_server_open(a.endpoint, a.job, RANKS,
                                           dyti_wire_envelope, &third));
    assert_error_has(a.endpoint);
    assert_null(third);
    say(a.client[0], DYTI_MSG_READY);
    expect(a.server, 0, DYTI_MSG_READY);
    fixture_fini(&b);
    fixture_fini(&a);
    dyti_control_server_close(NULL);
    dyti_control_client_close(NULL);
}

static void descriptors_come_before_messages(void **state)
{
    enum dyti_control_event event;
    struct dyti_frame frame = {0};
    struct fixture f;
    int pipes[2], fd[3];
    size_t which = 9;

    (void)state;
    fixture_init(&f);
    all_hello(&f);
    assert_int_equal(pipe(pipes), 0);
    fd[0] = -1;
    fd[1] = -1;
    fd[2] = pipes[0];
    assert_ok(dyti_control_wait(f.server, fd, 3, 0, &event, &frame, &which));
    assert_int_equal(event, DYTI_EVENT_TIMEOUT);
    say(f.client[0], DYTI_MSG_READY);
    assert_int_equal(write(pipes[1], "x", 1), 1);
    for (int i = 0; i < 3; i++) { /* until it is read, always first */
        assert_ok(
            dyti_control_wait(f.server, fd, 3, 10000, &event, &frame, &which));
        assert_int_equal(event, DYTI_EVENT_FD);
        assert_int_equal(which, 2);
    }
    fd[2] = -1;
    expect(f.server, 0, DYTI_MSG_READY);
    close(pipes[0]);
    close(pipes[1]);
    fixture_fini(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(messages_go_both_ways),
    cmocka_unit_test(nobody_is_written_to_before_hello),
    cmocka_unit_test(a_rank_that_left_is_a_peer_error),
    cmocka_unit_test(big_messages_pass),
    cmocka_unit_test(strangers_are_counted_and_harmless),
    cmocka_unit_test(late_and_doubled_messages_are_stale),
    cmocka_unit_test(rubbish_is_malformed),
    cmocka_unit_test(two_jobs_never_meet),
    cmocka_unit_test(descriptors_come_before_messages),
};
DYT_TEST_MAIN(tests)
