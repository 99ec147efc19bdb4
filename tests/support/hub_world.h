/* A hub and its members in one thread, for tests of bridge/control's hub. */
#ifndef HUB_WORLD_H
#define HUB_WORLD_H

#include "dyt_test.h"
#include "session_keys.h"

#include "control/hub.h"
#include "wire/wire.h"

#include <sys/stat.h>
#include <time.h>

#define HUB_PATIENCE_MS 60000

static const struct dyti_hub_codec hub_codec = {dyti_wire_envelope,
                                                dyti_wire_protocol};

static inline int64_t hub_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* "unix:FOLDER/s.sock" in a fresh folder of mode 0700. */
static inline struct dyti_address hub_unix_address(void)
{
    const char *folder = dyt_test_dir();
    struct dyti_address a;
    char text[300];

    snprintf(text, sizeof(text), "unix:%s/s.sock", folder);
    assert_ok(dyti_address_parse(text, NULL, &a));
    return a;
}

static inline void hub_folder(const struct dyti_address *a, char out[200])
{
    snprintf(out, 200, "%s", a->path);
    *strrchr(out, '/') = '\0';
}

/* 127.0.0.1 and a port that is free now. */
static inline struct dyti_address hub_tcp_address(void)
{
    struct dyti_address a;
    char text[64];

    session_free_address(text);
    assert_ok(dyti_address_parse(text, NULL, &a));
    return a;
}

static inline struct dyti_hub *hub_open(const struct dyti_address *address)
{
    struct dyti_hub_params p = {.address = *address, .codec = hub_codec};
    struct dyti_hub *hub = NULL;

    assert_ok(dyti_hub_open(&p, &hub));
    return hub;
}

static inline struct dyti_hub_client *hub_member(
    const struct dyti_address *address)
{
    struct dyti_hub_client_params p = {
        .address = *address, .codec = hub_codec, .job = 7};
    struct dyti_hub_client *client = NULL;

    assert_ok(dyti_hub_client_open(&p, &client));
    return client;
}

static inline void hub_say(struct dyti_hub_client *c, enum dyti_message type)
{
    struct dyti_envelope e = dyti_hub_client_stamp(c, type, 0);
    struct dyti_buffer b = {0};

    assert_ok(dyti_wire_empty(&e, &b));
    assert_ok(dyti_hub_client_send(c, &b));
    assert_null(b.bytes);
}

static inline struct dyti_hub_counts hub_counts(const struct dyti_hub *hub)
{
    struct dyti_hub_counts c;

    dyti_hub_counts(hub, &c);
    return c;
}

static inline uint64_t hub_seen(const struct dyti_hub *hub)
{
    struct dyti_hub_counts c = hub_counts(hub);

    return c.received + c.malformed + c.stale;
}

/* The hub looks at the next frame; true: it was taken. */
static inline bool hub_look(struct dyti_hub *hub, struct dyti_hub_frame *frame)
{
    int64_t until = hub_now_ms() + HUB_PATIENCE_MS;
    uint64_t before = hub_seen(hub);
    enum dyti_hub_event event;
    size_t fd;

    *frame = (struct dyti_hub_frame){0};
    while (hub_now_ms() < until) {
        assert_ok(dyti_hub_wait(hub, NULL, 0, 100, &event, frame, &fd));
        if (event == DYTI_HUB_FRAME) {
            return true;
        }
        if (hub_seen(hub) > before) {
            return false;
        }
    }
    fail_msg("no frame came");
    return false;
}

/* The next frame is of this type; the peer that sent it. */
static inline uint32_t hub_expect(struct dyti_hub *hub, enum dyti_message type)
{
    struct dyti_hub_frame frame;
    uint32_t peer;

    assert_true(hub_look(hub, &frame));
    assert_int_equal(DYTI_PROTOCOL, frame.protocol);
    assert_int_equal(type, frame.envelope.type);
    peer = frame.peer;
    dyti_hub_frame_fini(&frame);
    return peer;
}

static inline void hub_expect_nothing(struct dyti_hub *hub)
{
    struct dyti_hub_frame frame;

    assert_false(hub_look(hub, &frame));
    assert_null(frame.buffer.bytes);
}

static inline void hub_tell(struct dyti_hub *hub, uint32_t peer,
                            enum dyti_message type)
{
    struct dyti_envelope e = dyti_hub_stamp(hub, type, 7);
    struct dyti_buffer b = {0};

    assert_ok(dyti_wire_empty(&e, &b));
    assert_ok(dyti_hub_send(hub, peer, &b));
}

/* Until the member hears something; the hub (NULL: none) does its part of the
 * handshakes meanwhile. */
static inline enum dyt_status hub_hear(struct dyti_hub *hub,
                                       struct dyti_hub_client *c,
                                       int64_t patience_ms,
                                       struct dyti_hub_frame *frame)
{
    int64_t until = hub_now_ms() + patience_ms;
    enum dyt_status st = DYT_PENDING;
    bool other;

    *frame = (struct dyti_hub_frame){0};
    while (st == DYT_PENDING && hub_now_ms() < until) {
        if (hub != NULL) {
            struct dyti_hub_frame dropped = {0};
            enum dyti_hub_event event;
            size_t fd;

            assert_ok(dyti_hub_wait(hub, NULL, 0, 5, &event, &dropped, &fd));
            dyti_hub_frame_fini(&dropped);
        }
        st = dyti_hub_client_wait(c, -1, 5, frame, &other);
    }
    return st;
}

#endif /* HUB_WORLD_H */
