/* The manager's end: one ROUTER, the lock of its path, and who may come in. */
#include "control/hub.h"

#include "base/array.h"
#include "control/socket.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define IDENTITY_BYTES 255u
#define ZAP_ENDPOINT   "inproc://zeromq.zap.01"

struct peer {
    unsigned char identity[IDENTITY_BYTES];
    size_t identity_bytes; /* 0: free */
    uint64_t sequence;
};

struct dyti_hub {
    struct dyti_socket socket;
    void *zap; /* tcp: asks who may come in */
    struct dyti_address address;
    struct dyti_hub_codec codec;
    int lock_fd;
    char lock_path[DYTI_ADDRESS_BYTES + 8];
    bool bound;
    unsigned char (*authorized)[32]; /* public keys */
    size_t authorized_count, authorized_cap;
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

/* ---- the lock ------------------------------------------------------------ */

/* Ours, and still the file of that name: whoever had it before may have taken
 * it away between our open and our lock. */
static bool is_lock_of(int fd, const char *path)
{
    struct stat mine, there;

    return fstat(fd, &mine) == 0 && stat(path, &there) == 0 &&
           mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
}

/* A child that was forked, and ran no other program, has its parent's lock. */
static enum dyt_status refuse_second(const struct dyti_hub *hub,
                                     const char *owner)
{
    long pid = strtol(owner, NULL, 10);

    if (pid > 0 && kill((pid_t)pid, 0) != 0 && errno == ESRCH) {
        return DYTI_FAIL(DYT_ERR_BUSY,
                         "pid %s served %s and is not there any more, but its "
                         "lock is held: end the children that it forked, or "
                         "take another address",
                         owner, hub->address.path);
    }
    return DYTI_FAIL(DYT_ERR_BUSY, "pid %s serves %s already",
                     owner[0] != '\0' ? owner : "?", hub->address.path);
}

static enum dyt_status take_lock(struct dyti_hub *hub)
{
    char owner[64] = "";
    int length;

    snprintf(hub->lock_path, sizeof(hub->lock_path), "%s.lock",
             hub->address.path);
    for (;;) {
        int fd = open(hub->lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

        if (fd < 0) {
            return DYTI_FAIL(DYT_ERR_IO, "%s: %s", hub->lock_path,
                             strerror(errno));
        }
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            ssize_t got = read(fd, owner, sizeof(owner) - 1);

            owner[got > 0 ? (size_t)got : 0] = '\0';
            close(fd);
            return refuse_second(hub, owner);
        }
        if (is_lock_of(fd, hub->lock_path)) {
            hub->lock_fd = fd;
            break;
        }
        close(fd);
    }
    length = snprintf(owner, sizeof(owner), "%d", (int)getpid());
    if (ftruncate(hub->lock_fd, 0) != 0 ||
        pwrite(hub->lock_fd, owner, (size_t)length, 0) != length) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: %s", hub->lock_path, strerror(errno));
    }
    return DYT_OK;
}

/* ---- who may come in ----------------------------------------------------- */

static enum dyt_status allow_file(struct dyti_hub *hub, const char *path)
{
    char key[DYTI_KEY_CHARS + 1];
    enum dyt_status st = dyti_key_read(path, false, key);

    if (st == DYT_OK) {
        st = DYTI_GROW(hub->authorized, hub->authorized_cap,
                       hub->authorized_count + 1);
    }
    if (st == DYT_OK) {
        zmq_z85_decode(hub->authorized[hub->authorized_count++], key);
    }
    return st;
}

static enum dyt_status allow_folder(struct dyti_hub *hub, const char *folder)
{
    DIR *dir = opendir(folder);
    enum dyt_status st = DYT_OK;
    struct dirent *entry;

    if (dir == NULL) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "the folder %s of authorized keys: %s",
                         folder, strerror(errno));
    }
    while (st == DYT_OK && (entry = readdir(dir)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');
        char path[4096];

        if (dot != NULL && strcmp(dot, ".public") == 0) {
            int n =
                snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);

            st = n > 0 && (size_t)n < sizeof(path)
                     ? allow_file(hub, path)
                     : DYTI_FAIL(DYT_ERR_CONFIG,
                                 "the folder %s of authorized keys: its path "
                                 "is too long",
                                 folder);
        }
    }
    closedir(dir);
    if (st == DYT_OK && hub->authorized_count == 0) {
        st = DYTI_FAIL(DYT_ERR_CONFIG,
                       "no *.public key in %s: nobody could come in", folder);
    }
    return st;
}

/* The server's side of CURVE, and the inner socket at which ZeroMQ asks. */
static enum dyt_status guard(struct dyti_hub *hub,
                             const struct dyti_hub_params *params)
{
    char secret[DYTI_KEY_CHARS + 1], folder[4096];
    int on = 1;
    enum dyt_status st;

    if (params->key == NULL) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s needs the manager's secret key: make one with "
                         "`dynatrain keys FOLDER`, give FOLDER/manager.secret",
                         hub->address.endpoint);
    }
    st = dyti_key_read(params->key, true, secret);
    if (st != DYT_OK) {
        return st;
    }
    if (strlen(params->key) >= sizeof(folder)) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "%s: the path is too long",
                         params->key);
    }
    memcpy(folder, params->key, strlen(params->key) + 1);
    if (strrchr(folder, '/') != NULL) {
        *strrchr(folder, '/') = '\0';
    } else {
        memcpy(folder, ".", 2);
    }
    st = allow_folder(hub,
                      params->authorized != NULL ? params->authorized : folder);
    if (st != DYT_OK) {
        return st;
    }
    hub->zap = zmq_socket(hub->socket.context, ZMQ_REP);
    if (hub->zap == NULL || zmq_bind(hub->zap, ZAP_ENDPOINT) != 0 ||
        zmq_setsockopt(hub->socket.socket, ZMQ_CURVE_SERVER, &on, sizeof(on)) !=
            0 ||
        zmq_setsockopt(hub->socket.socket, ZMQ_CURVE_SECRETKEY, secret,
                       sizeof(secret)) != 0 ||
        zmq_setsockopt(hub->socket.socket, ZMQ_ZAP_DOMAIN, "dynatrain", 9) !=
            0) {
        st = dyti_zmq_fail("CURVE", hub->address.endpoint);
    }
    explicit_bzero(secret, sizeof(secret));
    return st;
}

static bool is_authorized(const struct dyti_hub *hub, const void *key, size_t n)
{
    for (size_t i = 0; n == 32 && i < hub->authorized_count; i++) {
        if (memcmp(hub->authorized[i], key, 32) == 0) {
            return true;
        }
    }
    return false;
}

/* One question of ZAP (RFC 27): version, id, domain, address, identity,
 * mechanism, key. */
static void answer_zap(struct dyti_hub *hub)
{
    char id[256];
    size_t id_bytes = 0;
    bool is_curve = false, ok = false;
    int more = 1;

    for (int part = 0; more != 0; part++) {
        zmq_msg_t frame;

        zmq_msg_init(&frame);
        if (zmq_msg_recv(&frame, hub->zap, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(&frame);
            return;
        }
        if (part == 1 && zmq_msg_size(&frame) <= sizeof(id)) {
            id_bytes = zmq_msg_size(&frame);
            memcpy(id, zmq_msg_data(&frame), id_bytes);
        } else if (part == 5) {
            is_curve = zmq_msg_size(&frame) == 5 &&
                       memcmp(zmq_msg_data(&frame), "CURVE", 5) == 0;
        } else if (part == 6) {
            ok = is_curve &&
                 is_authorized(hub, zmq_msg_data(&frame), zmq_msg_size(&frame));
        }
        more = zmq_msg_more(&frame);
        zmq_msg_close(&frame);
    }
    hub->counts.refused += !ok;
    zmq_send(hub->zap, "1.0", 3, ZMQ_SNDMORE);
    zmq_send(hub->zap, id, id_bytes, ZMQ_SNDMORE);
    zmq_send(hub->zap, ok ? "200" : "400", 3, ZMQ_SNDMORE);
    zmq_send(hub->zap, ok ? "OK" : "not authorized", ok ? 2 : 14, ZMQ_SNDMORE);
    zmq_send(hub->zap, "", 0, ZMQ_SNDMORE);
    zmq_send(hub->zap, "", 0, 0);
}

/* ---- open, close --------------------------------------------------------- */

static enum dyt_status bind_unix(struct dyti_hub *hub)
{
    uid_t uid = geteuid();
    enum dyt_status st = dyti_address_prepare(&hub->address, true);

    if (st == DYT_OK) {
        st = take_lock(hub);
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
    enum dyt_status st = guard(hub, params);

    if (st == DYT_OK &&
        zmq_bind(hub->socket.socket, hub->address.endpoint) != 0) {
        st = zmq_errno() == EADDRINUSE
                 ? DYTI_FAIL(DYT_ERR_BUSY, "somebody serves %s already",
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
    hub->lock_fd = -1;
    hub->address = params->address;
    hub->codec = params->codec;
    st = dyti_zmq_open(ZMQ_ROUTER, &hub->socket);
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
    if (hub->zap != NULL) {
        int none = 0;

        zmq_setsockopt(hub->zap, ZMQ_LINGER, &none, sizeof(none));
        zmq_close(hub->zap);
    }
    if (hub->socket.socket != NULL) {
        zmq_setsockopt(hub->socket.socket, ZMQ_LINGER, &linger_ms,
                       sizeof(linger_ms));
    }
    dyti_zmq_close(&hub->socket);
    if (hub->lock_fd >= 0) {
        if (hub->bound) {
            unlink(hub->address.path);
        }
        unlink(hub->lock_path); /* while it is locked: nobody else's */
        close(hub->lock_fd);
    }
    free(hub->authorized);
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
    if (hub->zap != NULL) {
        hub->item[n++] =
            (zmq_pollitem_t){.socket = hub->zap, .events = ZMQ_POLLIN};
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
    if (hub->zap != NULL && hub->item[1].revents != 0) {
        answer_zap(hub);
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
