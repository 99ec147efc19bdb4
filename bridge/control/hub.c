/* The manager's end: one ROUTER, and the frames of its peers. */
#include "control/hub_internal.h"

#include "base/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define IDENTITY_BYTES 255u
/* Besides the context's: listener, lock, door, and the first who knock. */
#define FEW 8u

struct peer {
    unsigned char identity[IDENTITY_BYTES];
    size_t identity_bytes; /* 0: free */
    uint64_t sequence;
};

struct dyti_hub {
    struct dyti_socket socket;
    struct dyti_address address;
    struct dyti_hub_codec codec;
    struct dyti_hub_lock lock; /* unix */
    struct dyti_hub_door door; /* tcp */
    bool bound;
    struct peer *peer;
    size_t peer_count, peer_cap;
    zmq_pollitem_t *item;
    size_t *where;
    size_t item_cap, where_cap;
    uint64_t sequence;
    struct dyti_hub_counts counts;
};

enum dyt_status dyti_hub_too_big(struct dyti_buffer *buffer)
{
    size_t bytes = buffer->size_bytes;

    dyti_buffer_fini(buffer);
    return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                     "a message of %zu bytes: one has at most %u, which is "
                     "more than 500,000 rows; give fewer rows to a member",
                     bytes, DYTI_FRAME_MOST_BYTES);
}

void dyti_hub_frame_fini(struct dyti_hub_frame *frame)
{
    dyti_buffer_fini(&frame->buffer);
    *frame = (struct dyti_hub_frame){.peer = DYTI_HUB_NO_PEER};
}

/* ---- open, close --------------------------------------------------------- */

static enum dyt_status bind_unix(struct dyti_hub *hub)
{
    uid_t uid = geteuid();
    enum dyt_status st = dyti_address_prepare(&hub->address, true);

    if (st == DYT_OK) {
        st = dyti_hub_lock_take(&hub->lock, hub->address.path);
    }
    if (st != DYT_OK) {
        return st;
    }
    /* Ours alone by the lock: what lies there is of one that crashed. */
    if (unlink(hub->address.path) != 0 && errno != ENOENT) {
        return DYTI_FAIL(DYT_ERR_IO, "%s, left behind: %s", hub->address.path,
                         strerror(errno));
    }
    /* The kernel's word on who connects (SO_PEERCRED). */
    if (zmq_setsockopt(hub->socket.socket, ZMQ_IPC_FILTER_UID, &uid,
                       sizeof(uid)) != 0) {
        return dyti_zmq_fail("ZMQ_IPC_FILTER_UID", hub->address.endpoint);
    }
    if (zmq_bind(hub->socket.socket, hub->address.endpoint) != 0) {
        return dyti_zmq_fail("zmq_bind", hub->address.endpoint);
    }
    hub->bound = true;
    return chmod(hub->address.path, 0600) == 0
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_IO, "%s: %s", hub->address.path,
                           strerror(errno));
}

static enum dyt_status bind_tcp(struct dyti_hub *hub,
                                const struct dyti_hub_params *params)
{
    enum dyt_status st = dyti_hub_door_open(&hub->door, &hub->socket, params);

    if (st == DYT_OK &&
        zmq_bind(hub->socket.socket, hub->address.endpoint) != 0) {
        int why = zmq_errno();

        st = why == EADDRINUSE
                 ? DYTI_FAIL(DYT_ERR_BUSY, "somebody serves %s already",
                             hub->address.endpoint)
             : why == ENODEV || why == EADDRNOTAVAIL
                 ? DYTI_FAIL(DYT_ERR_CONFIG,
                             "%s is no address of this machine: serve one "
                             "that `ip addr` lists, or 0.0.0.0 for all",
                             hub->address.endpoint)
                 : dyti_zmq_fail("zmq_bind", hub->address.endpoint);
    }
    return st;
}

enum dyt_status dyti_hub_open(const struct dyti_hub_params *params,
                              struct dyti_hub **out_hub)
{
    struct dyti_hub *hub = calloc(1, sizeof(*hub));
    int must_route = 1;
    int64_t most = DYTI_FRAME_MOST_BYTES;
    enum dyt_status st;

    if (hub == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a job's hub");
    }
    hub->lock.fd = -1;
    hub->address = params->address;
    hub->codec = params->codec;
    st = dyti_zmq_open(ZMQ_ROUTER, FEW, &hub->socket);
    if (st == DYT_OK &&
        (zmq_setsockopt(hub->socket.socket, ZMQ_ROUTER_MANDATORY, &must_route,
                        sizeof(must_route)) != 0 ||
         zmq_setsockopt(hub->socket.socket, ZMQ_MAXMSGSIZE, &most,
                        sizeof(most)) != 0 ||
         (hub->address.is_tcp && !dyti_zmq_keep_alive(&hub->socket)))) {
        st = dyti_zmq_fail("zmq_setsockopt", hub->address.endpoint);
    }
    if (st == DYT_OK) {
        st = hub->address.is_tcp ? bind_tcp(hub, params) : bind_unix(hub);
    }
    if (st != DYT_OK) {
        dyti_hub_close(hub);
        return st;
    }
    *out_hub = hub;
    return DYT_OK;
}

void dyti_hub_close(struct dyti_hub *hub)
{
    int linger_ms = 500; /* the last answers */

    if (hub == NULL) {
        return;
    }
    dyti_hub_door_close(&hub->door);
    if (hub->socket.socket != NULL) {
        zmq_setsockopt(hub->socket.socket, ZMQ_LINGER, &linger_ms,
                       sizeof(linger_ms));
    }
    dyti_zmq_close(&hub->socket);
    if (hub->bound && dyti_hub_lock_is_own(&hub->lock)) {
        unlink(hub->address.path);
    }
    dyti_hub_lock_release(&hub->lock);
    free(hub->peer);
    free(hub->item);
    free(hub->where);
    free(hub);
}

/* ---- frames -------------------------------------------------------------- */

static uint32_t find_peer(struct dyti_hub *hub, const void *identity, size_t n)
{
    size_t spare = hub->peer_count;

    for (size_t i = 0; i < hub->peer_count; i++) {
        if (hub->peer[i].identity_bytes == n &&
            memcmp(hub->peer[i].identity, identity, n) == 0) {
            return (uint32_t)i;
        }
        spare = hub->peer[i].identity_bytes == 0 ? i : spare;
    }
    if (DYTI_GROW(hub->peer, hub->peer_cap, spare + 1) != DYT_OK) {
        return DYTI_HUB_NO_PEER;
    }
    hub->peer_count = spare == hub->peer_count ? spare + 1 : hub->peer_count;
    hub->peer[spare] = (struct peer){.identity_bytes = n};
    memcpy(hub->peer[spare].identity, identity, n);
    return (uint32_t)spare;
}

/* One frame of a known sender; false: it is dropped. */
static bool accept(struct dyti_hub *hub, uint32_t peer, zmq_msg_t *payload,
                   struct dyti_hub_frame *out)
{
    struct dyti_hub_frame f = {.peer = peer, .protocol = DYTI_PROTOCOL};

    if (!dyti_zmq_take(payload, &f.buffer) ||
        hub->codec.protocol(f.buffer.bytes, f.buffer.size_bytes, &f.protocol) !=
            DYT_OK) {
        hub->counts.malformed++;
        dyti_hub_frame_fini(&f);
        return false;
    }
    if (f.protocol == DYTI_PROTOCOL) {
        if (hub->codec.envelope(f.buffer.bytes, f.buffer.size_bytes,
                                &f.envelope) != DYT_OK) {
            hub->counts.malformed++;
            dyti_hub_frame_fini(&f);
            return false;
        }
        if (f.envelope.sequence <= hub->peer[peer].sequence) {
            hub->counts.stale++;
            dyti_hub_frame_fini(&f);
            return false;
        }
        hub->peer[peer].sequence = f.envelope.sequence;
    }
    hub->counts.received++;
    *out = f;
    return true;
}

static bool receive(struct dyti_hub *hub, struct dyti_hub_frame *out)
{
    zmq_msg_t identity, payload, rest;
    bool taken = false;

    zmq_msg_init(&identity);
    zmq_msg_init(&payload);
    if (zmq_msg_recv(&identity, hub->socket.socket, ZMQ_DONTWAIT) >= 0 &&
        zmq_msg_more(&identity) &&
        zmq_msg_recv(&payload, hub->socket.socket, ZMQ_DONTWAIT) >= 0) {
        bool whole = !zmq_msg_more(&payload) &&
                     zmq_msg_size(&identity) <= IDENTITY_BYTES;
        uint32_t peer = whole ? find_peer(hub, zmq_msg_data(&identity),
                                          zmq_msg_size(&identity))
                              : DYTI_HUB_NO_PEER;

        hub->counts.malformed += !whole;
        taken = peer != DYTI_HUB_NO_PEER && accept(hub, peer, &payload, out);
        for (int more = zmq_msg_more(&payload); more != 0;) {
            zmq_msg_init(&rest);
            more = zmq_msg_recv(&rest, hub->socket.socket, ZMQ_DONTWAIT) >= 0 &&
                   zmq_msg_more(&rest);
            zmq_msg_close(&rest);
        }
    }
    zmq_msg_close(&identity);
    zmq_msg_close(&payload);
    return taken;
}

enum dyt_status dyti_hub_wait(struct dyti_hub *hub, const int *fd,
                              size_t fd_count, int64_t timeout_ms,
                              enum dyti_hub_event *out_event,
                              struct dyti_hub_frame *out_frame,
                              size_t *out_fd_index)
{
    size_t n = 1, first;
    enum dyt_status st;
    int ready;

    st = DYTI_GROW(hub->item, hub->item_cap, fd_count + 2);
    st =
        st == DYT_OK ? DYTI_GROW(hub->where, hub->where_cap, fd_count + 2) : st;
    if (st != DYT_OK) {
        return st;
    }
    hub->item[0] =
        (zmq_pollitem_t){.socket = hub->socket.socket, .events = ZMQ_POLLIN};
    if (hub->door.zap != NULL) {
        hub->item[n++] =
            (zmq_pollitem_t){.socket = hub->door.zap, .events = ZMQ_POLLIN};
    }
    first = n;
    for (size_t i = 0; i < fd_count; i++) {
        if (fd[i] >= 0) {
            hub->where[n] = i;
            hub->item[n++] =
                (zmq_pollitem_t){.fd = fd[i], .events = ZMQ_POLLIN};
        }
    }
    *out_event = DYTI_HUB_TIMEOUT;
    ready = zmq_poll(hub->item, (int)n, timeout_ms < 0 ? -1 : (long)timeout_ms);
    if (ready < 0) {
        return zmq_errno() == EINTR ? DYT_OK
                                    : dyti_zmq_fail("zmq_poll", "a job's hub");
    }
    if (hub->door.zap != NULL && hub->item[1].revents != 0) {
        hub->counts.refused += dyti_hub_door_answer(&hub->door);
    }
    for (size_t i = first; i < n; i++) {
        if (hub->item[i].revents != 0) {
            *out_event = DYTI_HUB_FD;
            *out_fd_index = hub->where[i];
            return DYT_OK;
        }
    }
    if (ready > 0 && hub->item[0].revents != 0 && receive(hub, out_frame)) {
        *out_event = DYTI_HUB_FRAME;
    }
    return DYT_OK;
}

struct dyti_envelope dyti_hub_stamp(struct dyti_hub *hub,
                                    enum dyti_message type, uint64_t job)
{
    return (struct dyti_envelope){.protocol = DYTI_PROTOCOL,
                                  .type = (uint32_t)type,
                                  .job = job,
                                  .sender = DYTI_MANAGER_RANK,
                                  .sequence = ++hub->sequence};
}

enum dyt_status dyti_hub_send(struct dyti_hub *hub, uint32_t peer,
                              struct dyti_buffer *buffer)
{
    const struct peer *p = peer < hub->peer_count ? &hub->peer[peer] : NULL;

    if (buffer->size_bytes > DYTI_FRAME_MOST_BYTES) {
        return dyti_hub_too_big(buffer);
    }
    if (p == NULL || p->identity_bytes == 0 ||
        zmq_send(hub->socket.socket, p->identity, p->identity_bytes,
                 ZMQ_SNDMORE) < 0) {
        dyti_buffer_fini(buffer);
        return DYTI_FAIL(DYT_ERR_PEER, "peer %u is not connected", peer);
    }
    hub->counts.sent++;
    return dyti_zmq_send(&hub->socket, buffer);
}

void dyti_hub_forget(struct dyti_hub *hub, uint32_t peer)
{
    if (peer < hub->peer_count) {
        hub->peer[peer] = (struct peer){0};
    }
}

void dyti_hub_counts(const struct dyti_hub *hub, struct dyti_hub_counts *out)
{
    *out = hub->counts;
}
