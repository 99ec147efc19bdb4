/* The manager's end of the control channel: which rank a message is of, and
 * whether it is one that may come now. */
#include "base/log.h"
#include "control/socket.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define IDENTITY_BYTES 255u

struct peer {
    unsigned char identity[IDENTITY_BYTES];
    size_t identity_bytes; /* 0: has not said hello */
    uint64_t sequence;
};

struct dyti_control_server {
    struct dyti_socket socket;
    uint64_t job, sequence;
    uint32_t rank_count;
    dyti_envelope_fn decode;
    struct peer *peer; /* [rank_count] */
    struct dyti_control_counts counts;
};

enum dyt_status dyti_control_server_open(const char *endpoint, uint64_t job,
                                         uint32_t rank_count,
                                         dyti_envelope_fn decode,
                                         struct dyti_control_server **out)
{
    struct dyti_control_server *s = calloc(1, sizeof(*s));
    int must_route = 1;
    enum dyt_status st;

    if (s == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "control server");
    }
    s->job = job;
    s->rank_count = rank_count;
    s->decode = decode;
    s->peer = calloc(rank_count, sizeof(*s->peer));
    if (s->peer == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%u peers", rank_count);
        goto out;
    }
    st = dyti_zmq_open(ZMQ_ROUTER, 1 + rank_count, &s->socket);
    if (st != DYT_OK) {
        goto out;
    }
    if (zmq_setsockopt(s->socket.socket, ZMQ_ROUTER_MANDATORY, &must_route,
                       sizeof(must_route)) != 0 ||
        zmq_bind(s->socket.socket, endpoint) != 0) {
        st = dyti_zmq_fail("zmq_bind", endpoint);
        goto out;
    }
    *out = s;
    s = NULL;
out:
    dyti_control_server_close(s);
    return st;
}

void dyti_control_server_close(struct dyti_control_server *server)
{
    if (server == NULL) {
        return;
    }
    dyti_zmq_close(&server->socket);
    free(server->peer);
    free(server);
}

/* Is this message from who it says, and new? */
static bool accept(struct dyti_control_server *s, const unsigned char *identity,
                   size_t identity_bytes, const struct dyti_envelope *e)
{
    struct peer *p;

    if (e->job != s->job || e->sender < 0 ||
        (uint32_t)e->sender >= s->rank_count) {
        s->counts.foreign++;
        return false;
    }
    p = &s->peer[e->sender];
    if (p->identity_bytes == 0 && e->type == DYTI_MSG_HELLO) {
        memcpy(p->identity, identity, identity_bytes);
        p->identity_bytes = identity_bytes;
    } else if (p->identity_bytes != identity_bytes ||
               memcmp(p->identity, identity, identity_bytes) != 0) {
        s->counts.foreign++;
        return false;
    }
    if (e->sequence <= p->sequence) {
        s->counts.stale++;
        return false;
    }
    p->sequence = e->sequence;
    return true;
}

/* The last part of a message of `parts` parts, and the first as identity. */
static bool receive_parts(struct dyti_control_server *s,
                          unsigned char *identity, size_t *identity_bytes,
                          struct dyti_buffer *body, bool *out_got)
{
    int more = 1, parts = 0;
    size_t more_bytes = sizeof(more);

    *out_got = false;
    while (more) {
        zmq_msg_t part;

        zmq_msg_init(&part);
        if (zmq_msg_recv(&part, s->socket.socket, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(&part);
            return false;
        }
        *out_got = true;
        if (parts == 0) {
            *identity_bytes = zmq_msg_size(&part);
            if (*identity_bytes > IDENTITY_BYTES) {
                *identity_bytes = 0;
            }
            memcpy(identity, zmq_msg_data(&part), *identity_bytes);
        } else if (parts == 1 && !dyti_zmq_take(&part, body)) {
            *identity_bytes = 0;
        }
        parts++;
        zmq_msg_close(&part);
        zmq_getsockopt(s->socket.socket, ZMQ_RCVMORE, &more, &more_bytes);
    }
    return parts == 2 && *identity_bytes > 0;
}

/* One message off the socket; false: none was there.  `taken` says whether it
 * is for us. */
static bool receive(struct dyti_control_server *s, struct dyti_frame *frame,
                    bool *taken)
{
    unsigned char identity[IDENTITY_BYTES];
    size_t identity_bytes = 0;
    struct dyti_frame f = {0};
    bool got, whole;

    *taken = false;
    whole = receive_parts(s, identity, &identity_bytes, &f.buffer, &got);
    if (!got) {
        return false;
    }
    if (!whole ||
        s->decode(f.buffer.bytes, f.buffer.size_bytes, &f.envelope) != DYT_OK) {
        s->counts.malformed++;
        DYTI_LOG(DYTI_LOG_DEBUG, "control", "malformed message of %zu bytes",
                 f.buffer.size_bytes);
        dyti_frame_fini(&f);
        return true;
    }
    if (!accept(s, identity, identity_bytes, &f.envelope)) {
        dyti_frame_fini(&f);
        return true;
    }
    s->counts.received++;
    *frame = f;
    *taken = true;
    return true;
}

enum dyt_status dyti_control_wait(struct dyti_control_server *server,
                                  const int *fd, size_t fd_count,
                                  int64_t timeout_ms,
                                  enum dyti_control_event *out_event,
                                  struct dyti_frame *out_frame,
                                  size_t *out_fd_index)
{
    zmq_pollitem_t item[DYTI_CONTROL_MAX_FDS + 1];
    size_t where[DYTI_CONTROL_MAX_FDS + 1];
    int n = 1;

    dyti_require(fd_count <= DYTI_CONTROL_MAX_FDS);
    for (;;) {
        bool taken;
        int ready;

        n = 1;
        item[0] = (zmq_pollitem_t){.socket = server->socket.socket,
                                   .events = ZMQ_POLLIN};
        for (size_t i = 0; i < fd_count; i++) {
            if (fd[i] >= 0) {
                where[n] = i;
                item[n++] = (zmq_pollitem_t){.fd = fd[i], .events = ZMQ_POLLIN};
            }
        }
        ready = zmq_poll(item, n, timeout_ms < 0 ? -1 : (long)timeout_ms);
        if (ready < 0 && zmq_errno() == EINTR) {
            continue;
        }
        if (ready < 0) {
            return dyti_zmq_fail("zmq_poll", "the control socket");
        }
        for (int i = 1; i < n; i++) {
            if (item[i].revents != 0) {
                *out_event = DYTI_EVENT_FD;
                *out_fd_index = where[i];
                return DYT_OK;
            }
        }
        if (ready == 0) {
            *out_event = DYTI_EVENT_TIMEOUT;
            return DYT_OK;
        }
        if (receive(server, out_frame, &taken) && taken) {
            *out_event = DYTI_EVENT_MESSAGE;
            return DYT_OK;
        }
        /* A foreign message must not stretch the timeout for ever: the caller's
         * deadline is checked by its own clock after this. */
        *out_event = DYTI_EVENT_TIMEOUT;
        return DYT_OK;
    }
}

struct dyti_envelope dyti_control_stamp(struct dyti_control_server *server,
                                        enum dyti_message type, uint64_t epoch,
                                        uint64_t version)
{
    return (struct dyti_envelope){.protocol = DYTI_PROTOCOL,
                                  .type = (uint32_t)type,
                                  .job = server->job,
                                  .sender = DYTI_MANAGER_RANK,
                                  .epoch = epoch,
                                  .sequence = ++server->sequence,
                                  .version = version};
}

enum dyt_status dyti_control_send(struct dyti_control_server *server,
                                  uint32_t rank, struct dyti_buffer *buffer)
{
    const struct peer *p =
        rank < server->rank_count ? &server->peer[rank] : NULL;

    if (p == NULL || p->identity_bytes == 0) {
        dyti_buffer_fini(buffer);
        return DYTI_FAIL(DYT_ERR_PEER, "rank %u has not said hello", rank);
    }
    if (zmq_send(server->socket.socket, p->identity, p->identity_bytes,
                 ZMQ_SNDMORE) < 0) {
        dyti_buffer_fini(buffer);
        return DYTI_FAIL(DYT_ERR_PEER, "rank %u cannot be reached: %s", rank,
                         zmq_strerror(zmq_errno()));
    }
    server->counts.sent++;
    return dyti_zmq_send(&server->socket, buffer);
}

enum dyt_status dyti_control_send_all(struct dyti_control_server *server,
                                      struct dyti_buffer *buffer)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t rank = 0; st == DYT_OK && rank < server->rank_count; rank++) {
        struct dyti_buffer copy = {malloc(buffer->size_bytes),
                                   buffer->size_bytes};

        if (copy.bytes == NULL) {
            st = DYTI_FAIL(DYT_ERR_NOMEM, "a message of %zu bytes",
                           buffer->size_bytes);
            break;
        }
        memcpy(copy.bytes, buffer->bytes, buffer->size_bytes);
        st = dyti_control_send(server, rank, &copy);
    }
    dyti_buffer_fini(buffer);
    return st;
}

void dyti_control_server_counts(const struct dyti_control_server *server,
                                struct dyti_control_counts *out)
{
    *out = server->counts;
}
