/* A worker's end of the control channel: one socket to the manager, whose
 * messages are taken in the order of their numbers. */
#include "base/log.h"
#include "control/socket.h"

#include <errno.h>
#include <stdlib.h>

struct dyti_control_client {
    struct dyti_socket socket;
    uint64_t job, sequence, manager_sequence;
    uint32_t rank;
    dyti_envelope_fn decode;
    struct dyti_control_counts counts;
};

enum dyt_status dyti_control_client_open(const char *endpoint, uint64_t job,
                                         uint32_t rank, dyti_envelope_fn decode,
                                         struct dyti_control_client **out)
{
    struct dyti_control_client *c = calloc(1, sizeof(*c));
    enum dyt_status st;

    if (c == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "control client");
    }
    c->job = job;
    c->rank = rank;
    c->decode = decode;
    st = dyti_zmq_open(ZMQ_DEALER, 1, &c->socket);
    if (st == DYT_OK && zmq_connect(c->socket.socket, endpoint) != 0) {
        st = dyti_zmq_fail("zmq_connect", endpoint);
    }
    if (st != DYT_OK) {
        dyti_control_client_close(c);
        return st;
    }
    *out = c;
    return DYT_OK;
}

void dyti_control_client_close(struct dyti_control_client *client)
{
    int linger_ms = 500; /* the last words of a worker that fails */

    if (client == NULL) {
        return;
    }
    if (client->socket.socket != NULL) {
        zmq_setsockopt(client->socket.socket, ZMQ_LINGER, &linger_ms,
                       sizeof(linger_ms));
    }
    dyti_zmq_close(&client->socket);
    free(client);
}

struct dyti_envelope dyti_control_client_stamp(
    struct dyti_control_client *client, enum dyti_message type, uint64_t epoch,
    uint64_t version)
{
    return (struct dyti_envelope){.protocol = DYTI_PROTOCOL,
                                  .type = (uint32_t)type,
                                  .job = client->job,
                                  .sender = (int32_t)client->rank,
                                  .epoch = epoch,
                                  .sequence = ++client->sequence,
                                  .version = version};
}

enum dyt_status dyti_control_client_send(struct dyti_control_client *client,
                                         struct dyti_buffer *buffer)
{
    client->counts.sent++;
    return dyti_zmq_send(&client->socket, buffer);
}

/* One frame; false: it is not for us, or not whole. */
static bool accept(struct dyti_control_client *c, zmq_msg_t *message,
                   struct dyti_frame *out)
{
    struct dyti_frame f = {0};

    if (!dyti_zmq_take(message, &f.buffer) ||
        c->decode(f.buffer.bytes, f.buffer.size_bytes, &f.envelope) != DYT_OK) {
        c->counts.malformed++;
        dyti_frame_fini(&f);
        return false;
    }
    if (f.envelope.job != c->job || f.envelope.sender != DYTI_MANAGER_RANK) {
        c->counts.foreign++;
        dyti_frame_fini(&f);
        return false;
    }
    if (f.envelope.sequence <= c->manager_sequence) {
        c->counts.stale++;
        dyti_frame_fini(&f);
        return false;
    }
    c->manager_sequence = f.envelope.sequence;
    c->counts.received++;
    *out = f;
    return true;
}

enum dyt_status dyti_control_client_receive(struct dyti_control_client *client,
                                            int64_t timeout_ms,
                                            struct dyti_frame *out_frame)
{
    zmq_pollitem_t item = {.socket = client->socket.socket,
                           .events = ZMQ_POLLIN};

    for (;;) {
        zmq_msg_t message;
        int ready = zmq_poll(&item, 1, timeout_ms < 0 ? -1 : (long)timeout_ms);
        bool taken;

        if (ready < 0 && zmq_errno() != EINTR) {
            return dyti_zmq_fail("zmq_poll", "the control socket");
        }
        if (ready == 0) {
            return DYT_PENDING;
        }
        zmq_msg_init(&message);
        if (zmq_msg_recv(&message, client->socket.socket, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(&message);
            continue;
        }
        taken = accept(client, &message, out_frame);
        zmq_msg_close(&message);
        if (taken) {
            return DYT_OK;
        }
    }
}

void dyti_control_client_counts(const struct dyti_control_client *client,
                                struct dyti_control_counts *out)
{
    *out = client->counts;
}
