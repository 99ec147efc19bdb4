/* Frames that a hub and its members do not take: broken, doubled, late, of
 * another protocol, too big. */
#include "dyt_zmq_tsan.h"
#include "hub_world.h"

#include <zmq.h>

/* ---- frames that are wrong ------------------------------------------------
 */

struct stranger {
    void *context, *socket;
};

static struct stranger stranger_open(const struct dyti_address *address)
{
    struct stranger s = {.context = zmq_ctx_new()};
    int none = 0;

    s.socket = zmq_socket(s.context, ZMQ_DEALER);
    assert_int_equal(0,
                     zmq_setsockopt(s.socket, ZMQ_LINGER, &none, sizeof(none)));
    assert_int_equal(0, zmq_connect(s.socket, address->endpoint));
    return s;
}

static void stranger_close(struct stranger *s)
{
    zmq_close(s->socket);
    zmq_ctx_term(s->context);
}

static void send_envelope(const struct stranger *s,
                          const struct dyti_envelope *e)
{
    struct dyti_buffer b = {0};

    assert_ok(dyti_wire_empty(e, &b));
    assert_int_equal(b.size_bytes,
                     zmq_send(s->socket, b.bytes, b.size_bytes, 0));
    dyti_buffer_fini(&b);
}

static void wrong_frames_are_counted_and_do_nothing(void **state)
{
    struct dyti_address address = hub_unix_address();
    struct dyti_hub *hub = hub_open(&address);
    struct stranger s = stranger_open(&address);
    struct dyti_envelope e = {
        .protocol = DYTI_PROTOCOL, .type = DYTI_MSG_JOIN, .sequence = 1};

    (void)state;
    zmq_send(s.socket, "", 0, 0);
    hub_expect_nothing(hub);
    zmq_send(s.socket, "nonsense", 8, 0);
    hub_expect_nothing(hub);
    e.type = DYTI_MSG_COUNT; /* nobody knows it */
    send_envelope(&s, &e);
    hub_expect_nothing(hub);
    e.type = DYTI_MSG_JOIN;
    zmq_send(s.socket, "one", 3, ZMQ_SNDMORE);
    zmq_send(s.socket, "two", 3, ZMQ_SNDMORE);
    zmq_send(s.socket, "three", 5, 0);
    hub_expect_nothing(hub);
    assert_int_equal(4, hub_counts(hub).malformed);
    send_envelope(&s, &e);
    hub_expect(hub, DYTI_MSG_JOIN);
    send_envelope(&s, &e); /* doubled */
    hub_expect_nothing(hub);
    assert_int_equal(1, hub_counts(hub).stale);
    e.sequence = 5;
    send_envelope(&s, &e); /* some were lost */
    hub_expect(hub, DYTI_MSG_JOIN);
    e.sequence = 4;
    send_envelope(&s, &e); /* late */
    hub_expect_nothing(hub);
    assert_int_equal(2, hub_counts(hub).received);
    stranger_close(&s);
    dyti_hub_close(hub);
}

static void another_protocol_is_told_apart(void **state)
{
    struct dyti_address address = hub_unix_address();
    struct dyti_hub *hub = hub_open(&address);
    struct stranger s = stranger_open(&address);
    struct dyti_hub_client *a = hub_member(&address);
    struct dyti_envelope e = {
        .protocol = 4711, .type = DYTI_MSG_COUNT + 5, .sequence = 1};
    struct dyti_hub_frame frame;
    struct dyti_buffer b = {0};
    uint32_t peer;

    (void)state;
    send_envelope(&s, &e);
    assert_true(hub_look(hub, &frame));
    assert_int_equal(4711, frame.protocol);
    dyti_hub_frame_fini(&frame);
    hub_say(a, DYTI_MSG_JOIN);
    peer = hub_expect(hub, DYTI_MSG_JOIN);
    e = dyti_hub_stamp(hub, DYTI_MSG_JOINED, 7);
    e.protocol = 4711;
    assert_ok(dyti_wire_empty(&e, &b));
    assert_ok(dyti_hub_send(hub, peer, &b));
    assert_status(DYT_ERR_ABI, hub_hear(NULL, a, HUB_PATIENCE_MS, &frame));
    assert_error_has("speaks protocol 4711, this side 1");
    dyti_hub_client_close(a);
    stranger_close(&s);
    dyti_hub_close(hub);
}

/* What a member drops: not of the manager, late, broken. */
static void members_drop_what_is_not_the_managers(void **state)
{
    struct dyti_address address = hub_unix_address();
    struct dyti_hub *hub = hub_open(&address);
    struct dyti_hub_client *a = hub_member(&address);
    struct dyti_envelope e;
    struct dyti_hub_frame frame;
    struct dyti_buffer b = {0};
    uint32_t peer;

    (void)state;
    hub_say(a, DYTI_MSG_JOIN);
    peer = hub_expect(hub, DYTI_MSG_JOIN);
    b = (struct dyti_buffer){.bytes = calloc(1, 3), .size_bytes = 3};
    assert_ok(dyti_hub_send(hub, peer, &b));
    e = dyti_hub_stamp(hub, DYTI_MSG_BYE, 7);
    e.sender = 3;
    assert_ok(dyti_wire_empty(&e, &b));
    assert_ok(dyti_hub_send(hub, peer, &b));
    hub_tell(hub, peer, DYTI_MSG_JOINED);
    e.sender = DYTI_MANAGER_RANK; /* with a number that came before */
    assert_ok(dyti_wire_empty(&e, &b));
    assert_ok(dyti_hub_send(hub, peer, &b));
    hub_tell(hub, peer, DYTI_MSG_ORDER);
    assert_ok(hub_hear(NULL, a, HUB_PATIENCE_MS, &frame));
    assert_int_equal(DYTI_MSG_JOINED, frame.envelope.type);
    dyti_hub_frame_fini(&frame);
    assert_ok(hub_hear(NULL, a, HUB_PATIENCE_MS, &frame));
    assert_int_equal(DYTI_MSG_ORDER, frame.envelope.type);
    dyti_hub_frame_fini(&frame);
    dyti_hub_client_close(a);
    dyti_hub_close(hub);
}

/* The next event of a socket's connection. */
static uint16_t next_event(void *monitor)
{
    unsigned char first[6];
    char address[256];
    uint16_t event;

    assert_int_equal(sizeof(first), zmq_recv(monitor, first, sizeof(first), 0));
    assert_true(zmq_recv(monitor, address, sizeof(address), 0) >= 0);
    memcpy(&event, first, sizeof(event));
    return event;
}

/* The limit is named by who would pass it; who passes it all the same is cut
 * off, and nobody else hears of it. */
static void frames_have_a_size(void **state)
{
    struct dyti_address address = hub_unix_address();
    struct dyti_hub *hub = hub_open(&address);
    struct dyti_hub_client *a = hub_member(&address);
    struct stranger s = stranger_open(&address);
    size_t most = DYTI_FRAME_MOST_BYTES;
    struct dyti_buffer b;
    uint32_t peer;

    (void)state;
    hub_say(a, DYTI_MSG_JOIN);
    peer = hub_expect(hub, DYTI_MSG_JOIN);
    b = (struct dyti_buffer){.bytes = malloc(most + 1), .size_bytes = most + 1};
    assert_status(DYT_ERR_UNSUPPORTED, dyti_hub_client_send(a, &b));
    assert_error_has("268435457 bytes: one has at most 268435456");
    assert_null(b.bytes);
    b = (struct dyti_buffer){.bytes = malloc(most + 1), .size_bytes = most + 1};
    assert_status(DYT_ERR_UNSUPPORTED, dyti_hub_send(hub, peer, &b));
    assert_null(b.bytes);
    {
        void *much = calloc(1, most + 1);
        void *monitor = zmq_socket(s.context, ZMQ_PAIR);
        int patience_ms = HUB_PATIENCE_MS;
        zmq_msg_t message;

        assert_int_equal(0, zmq_socket_monitor(s.socket, "inproc://watch",
                                               ZMQ_EVENT_DISCONNECTED));
        assert_int_equal(0, zmq_setsockopt(monitor, ZMQ_RCVTIMEO, &patience_ms,
                                           sizeof(patience_ms)));
        assert_int_equal(0, zmq_connect(monitor, "inproc://watch"));
        assert_int_equal(
            0, zmq_msg_init_data(&message, much, most + 1, NULL, NULL));
        assert_true(zmq_msg_send(&message, s.socket, 0) >= 0);
        assert_int_equal(ZMQ_EVENT_DISCONNECTED, next_event(monitor));
        for (int i = 0; i < 3; i++) {
            hub_say(a, DYTI_MSG_HEARTBEAT);
            hub_expect(hub, DYTI_MSG_HEARTBEAT);
        }
        assert_int_equal(4, hub_seen(hub));
        zmq_close(monitor);
        stranger_close(&s);
        free(much);
    }
    dyti_hub_client_close(a);
    dyti_hub_close(hub);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(wrong_frames_are_counted_and_do_nothing),
    cmocka_unit_test(another_protocol_is_told_apart),
    cmocka_unit_test(members_drop_what_is_not_the_managers),
    cmocka_unit_test(frames_have_a_size),
};
DYT_TEST_MAIN(tests)
