/* A member's end: one DEALER, and a monitor that says why nobody answers. */
#include "control/hub.h"

#include "control/socket.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Connections that broke before the handshake ended: one may be a server that
 * ends just then, as many are not. */
#define BAD_HANDSHAKES 3

/* A connection on which nothing is said for that long is made anew: whoever
 * took it was forked by a manager that is dead, or is not at its work. */
#define SILENT_MS 3000

/* Descriptors besides the context's: the connection, both ends of the monitor,
 * and what looks up a name. */
#define MONITORED 4u

struct dyti_hub_client {
    struct dyti_socket socket;
    void *monitor;
    struct dyti_hub_codec codec;
    struct dyti_address address;
    uint64_t job, sequence, hub_sequence;
    bool connected;   /* handshake done */
    int bad;          /* handshakes that failed */
    int64_t since_ms; /* of the connection */
};

static enum dyt_status set_keys(struct dyti_hub_client *c,
                                const struct dyti_hub_client_params *params)
{
    char own[DYTI_KEY_CHARS + 1], pub[DYTI_KEY_CHARS + 1];
    char manager[DYTI_KEY_CHARS + 1];
    enum dyt_status st;

    if (params->key == NULL || params->manager_key == NULL) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s needs a key of this side and the manager's public "
                         "key: `dynatrain keys FOLDER --name member` makes the "
                         "one, and the manager has manager.public of its own",
                         c->address.endpoint);
    }
    st = dyti_key_read(params->key, true, own);
    st = st == DYT_OK ? dyti_key_read(params->manager_key, false, manager) : st;
    if (st == DYT_OK && zmq_curve_public(pub, own) != 0) {
        st = DYTI_FAIL(DYT_ERR_CONFIG, "%s is no secret key", params->key);
    }
    if (st == DYT_OK && (zmq_setsockopt(c->socket.socket, ZMQ_CURVE_SERVERKEY,
                                        manager, sizeof(manager)) != 0 ||
                         zmq_setsockopt(c->socket.socket, ZMQ_CURVE_PUBLICKEY,
                                        pub, sizeof(pub)) != 0 ||
                         zmq_setsockopt(c->socket.socket, ZMQ_CURVE_SECRETKEY,
                                        own, sizeof(own)) != 0)) {
        st = dyti_zmq_fail("CURVE", c->address.endpoint);
    }
    explicit_bzero(own, sizeof(own));
    return st;
}

static enum dyt_status watch(struct dyti_hub_client *c)
{
    char endpoint[64];
    int events = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                 ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                 ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                 ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

    snprintf(endpoint, sizeof(endpoint), "inproc://monitor-%p", (void *)c);
    c->monitor = zmq_socket(c->socket.context, ZMQ_PAIR);
    if (c->monitor == NULL ||
        zmq_socket_monitor(c->socket.socket, endpoint, events) != 0 ||
        zmq_connect(c->monitor, endpoint) != 0) {
        return dyti_zmq_fail("zmq_socket_monitor", c->address.endpoint);
    }
    return DYT_OK;
}

enum dyt_status dyti_hub_client_open(
    const struct dyti_hub_client_params *params,
    struct dyti_hub_client **out_client)
{
    struct dyti_hub_client *c = calloc(1, sizeof(*c));
    int again_ms = 20, most_ms = 500, silent_ms = SILENT_MS;
    int64_t most = DYTI_FRAME_MOST_BYTES;
    enum dyt_status st;

    if (c == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a member's end of the hub");
    }
    c->codec = params->codec;
    c->address = params->address;
    c->job = params->job;
    st = dyti_address_prepare(&c->address, false);
    st = st == DYT_OK ? dyti_zmq_open(ZMQ_DEALER, MONITORED, &c->socket) : st;
    if (st == DYT_OK && c->address.is_tcp) {
        st = set_keys(c, params);
    }
    if (st == DYT_OK) {
        st = watch(c);
    }
    if (st == DYT_OK &&
        (zmq_setsockopt(c->socket.socket, ZMQ_MAXMSGSIZE, &most,
                        sizeof(most)) != 0 ||
         zmq_setsockopt(c->socket.socket, ZMQ_HANDSHAKE_IVL, &silent_ms,
                        sizeof(silent_ms)) != 0 ||
         zmq_setsockopt(c->socket.socket, ZMQ_RECONNECT_IVL, &again_ms,
                        sizeof(again_ms)) != 0 ||
         zmq_setsockopt(c->socket.socket, ZMQ_RECONNECT_IVL_MAX, &most_ms,
                        sizeof(most_ms)) != 0 ||
         (c->address.is_tcp && !dyti_zmq_keep_alive(&c->socket)) ||
         zmq_connect(c->socket.socket, c->address.endpoint) != 0)) {
        st = dyti_zmq_fail("zmq_connect", c->address.endpoint);
    }
    if (st != DYT_OK) {
        dyti_hub_client_close(c);
        return st;
    }
    *out_client = c;
    return DYT_OK;
}

void dyti_hub_client_close(struct dyti_hub_client *client)
{
    int linger_ms = client != NULL && client->connected ? 500 : 0;

    if (client == NULL) {
        return;
    }
    if (client->socket.socket != NULL) {
        zmq_socket_monitor(client->socket.socket, NULL, 0);
        zmq_setsockopt(client->socket.socket, ZMQ_LINGER, &linger_ms,
                       sizeof(linger_ms));
    }
    if (client->monitor != NULL) {
        int none = 0;

        zmq_setsockopt(client->monitor, ZMQ_LINGER, &none, sizeof(none));
        zmq_close(client->monitor);
    }
    dyti_zmq_close(&client->socket);
    free(client);
}

struct dyti_envelope dyti_hub_client_stamp(struct dyti_hub_client *client,
                                           enum dyti_message type,
                                           int32_t sender)
{
    return (struct dyti_envelope){.protocol = DYTI_PROTOCOL,
                                  .type = (uint32_t)type,
                                  .job = client->job,
                                  .sender = sender,
                                  .sequence = ++client->sequence};
}

enum dyt_status dyti_hub_client_send(struct dyti_hub_client *client,
                                     struct dyti_buffer *buffer)
{
    return buffer->size_bytes > DYTI_FRAME_MOST_BYTES
               ? dyti_hub_too_big(buffer)
               : dyti_zmq_send(&client->socket, buffer);
}

/* ---- what the connection does -------------------------------------------- */

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void count_bad(struct dyti_hub_client *c)
{
    c->bad += now_ms() - c->since_ms < SILENT_MS;
}

static enum dyt_status hear(struct dyti_hub_client *c, uint16_t event,
                            uint32_t value)
{
    switch (event) {
    case ZMQ_EVENT_CONNECTED:
        c->since_ms = now_ms();
        return DYT_OK;
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
        c->connected = true;
        c->bad = 0;
        return DYT_OK;
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "the manager at %s refuses this key (%u): put its "
                         "public half among the keys that it authorizes",
                         c->address.endpoint, value);
    case ZMQ_EVENT_DISCONNECTED:
        if (c->connected) {
            c->connected = false;
            return DYTI_FAIL(DYT_ERR_PEER, "the job's manager at %s ended",
                             c->address.endpoint);
        }
        count_bad(c);
        break;
    default:
        count_bad(c);
        break;
    }
    if (c->bad >= BAD_HANDSHAKES && !c->address.is_tcp) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "who listens at %s hangs up: it is another user's "
                         "manager, which takes members of its own user only, "
                         "or no manager of dynatrain",
                         c->address.path);
    }
    if (c->bad >= BAD_HANDSHAKES) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "who listens at %s does not prove to be the manager: "
                         "manager_key is another's, or it speaks without keys",
                         c->address.endpoint);
    }
    return DYT_OK;
}

static enum dyt_status read_monitor(struct dyti_hub_client *c)
{
    for (;;) {
        unsigned char first[6];
        char address[256];
        uint16_t event;
        uint32_t value;

        if (zmq_recv(c->monitor, first, sizeof(first), ZMQ_DONTWAIT) !=
            (int)sizeof(first)) {
            return DYT_OK;
        }
        (void)zmq_recv(c->monitor, address, sizeof(address), ZMQ_DONTWAIT);
        memcpy(&event, first, sizeof(event));
        memcpy(&value, first + 2, sizeof(value));
        {
            enum dyt_status st = hear(c, event, value);

            if (st != DYT_OK) {
                return st;
            }
        }
    }
}

/* One frame; DYT_PENDING: none that counts. */
static enum dyt_status take(struct dyti_hub_client *c,
                            struct dyti_hub_frame *out)
{
    struct dyti_hub_frame f = {.peer = DYTI_HUB_NO_PEER};
    enum dyt_status st = DYT_PENDING;
    zmq_msg_t message;

    zmq_msg_init(&message);
    if (zmq_msg_recv(&message, c->socket.socket, ZMQ_DONTWAIT) >= 0 &&
        dyti_zmq_take(&message, &f.buffer) &&
        c->codec.protocol(f.buffer.bytes, f.buffer.size_bytes, &f.protocol) ==
            DYT_OK) {
        if (f.protocol != DYTI_PROTOCOL) {
            st = DYTI_FAIL(DYT_ERR_ABI,
                           "the manager at %s speaks protocol %u, this side "
                           "%u: use one version of dynatrain everywhere",
                           c->address.endpoint, f.protocol, DYTI_PROTOCOL);
        } else if (c->codec.envelope(f.buffer.bytes, f.buffer.size_bytes,
                                     &f.envelope) == DYT_OK &&
                   f.envelope.sender == DYTI_MANAGER_RANK &&
                   f.envelope.sequence > c->hub_sequence) {
            c->hub_sequence = f.envelope.sequence;
            st = DYT_OK;
        }
    }
    zmq_msg_close(&message);
    if (st == DYT_OK) {
        *out = f;
    } else {
        dyti_hub_frame_fini(&f);
    }
    return st;
}

enum dyt_status dyti_hub_client_wait(struct dyti_hub_client *client, int fd,
                                     int64_t timeout_ms,
                                     struct dyti_hub_frame *out_frame,
                                     bool *out_fd)
{
    zmq_pollitem_t item[3] = {
        {.socket = client->socket.socket, .events = ZMQ_POLLIN},
        {.socket = client->monitor, .events = ZMQ_POLLIN},
        {.fd = fd, .events = ZMQ_POLLIN}};
    int ready =
        zmq_poll(item, fd >= 0 ? 3 : 2, timeout_ms < 0 ? -1 : (long)timeout_ms);
    enum dyt_status st = DYT_PENDING;

    *out_fd = false;
    if (ready < 0) {
        return zmq_errno() == EINTR ? DYT_PENDING
                                    : dyti_zmq_fail("zmq_poll", "a session");
    }
    if (item[0].revents != 0) { /* what came before the connection was lost */
        st = take(client, out_frame);
    }
    if (st == DYT_PENDING && item[1].revents != 0) { /* or since that look */
        st = take(client, out_frame);
    }
    if (st == DYT_PENDING && item[1].revents != 0) {
        enum dyt_status heard = read_monitor(client);

        st = heard != DYT_OK ? heard : st;
    }
    if (st == DYT_PENDING && fd >= 0 && item[2].revents != 0) {
        *out_fd = true;
        out_frame->buffer = (struct dyti_buffer){0};
        st = DYT_OK;
    } else if (st == DYT_OK && fd >= 0) {
        *out_fd = item[2].revents != 0;
    }
    return st;
}
