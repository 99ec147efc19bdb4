#include "lib/link_lend_wire.h"

#include "base/descriptors.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const char magic[8] = "dyt.lnd1";

/* ---- names ------------------------------------------------------------------
 */

/* Of a number; its length as the system wants it. */
static socklen_t address_of(uint64_t name, struct sockaddr_un *out)
{
    int text;

    memset(out, 0, sizeof(*out));
    out->sun_family = AF_UNIX; /* and a first byte of 0: no file */
    text = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1,
                    "dynatrain-lend-%016llx", (unsigned long long)name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1u +
                       (size_t)text);
}

static enum dyt_status open_socket(int *out_fd)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return DYTI_FAIL(DYT_ERR_IO,
                         "a socket to hand descriptors over: %s (ulimit -n?)",
                         strerror(errno));
    }
    *out_fd = fd;
    return DYT_OK;
}

enum dyt_status dyti_lend_listen(int *out_fd, uint64_t *out_name)
{
    struct sockaddr_un address;
    uint64_t name = 0;
    int fd = -1, tries = 8, why = 0;
    enum dyt_status st = open_socket(&fd);

    if (st != DYT_OK) {
        return st;
    }
    do {
        why = getrandom(&name, sizeof(name), 0) != sizeof(name) ? errno : 0;
        name |= 1; /* 0 is none */
        if (why == 0 && bind(fd, (struct sockaddr *)&address,
                             address_of(name, &address)) != 0) {
            why = errno;
        }
    } while (why == EADDRINUSE && --tries > 0);
    if (why == 0 && listen(fd, SOMAXCONN) != 0) {
        why = errno;
    }
    if (why != 0) {
        (void)close(fd);
        return DYTI_FAIL(DYT_ERR_IO, "a socket to lend memory by: %s",
                         strerror(why));
    }
    *out_fd = fd;
    *out_name = name;
    return DYT_OK;
}

/* The process that is, or was when it began to listen, at the other end. */
static bool is_same_user(int fd, struct ucred *out)
{
    socklen_t bytes = sizeof(*out);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, out, &bytes) == 0 &&
           out->uid == geteuid();
}

enum dyt_status dyti_lend_accept(int listener, int *out_fd)
{
    struct ucred who;
    int fd;

    do {
        fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0 && !is_same_user(fd, &who)) {
            (void)close(fd);
            fd = -1;
            errno = EINTR; /* the next one */
        }
    } while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return DYT_PENDING;
    }
    if (fd < 0) {
        return DYTI_FAIL(DYT_ERR_IO, "a member that comes to borrow: %s",
                         strerror(errno));
    }
    *out_fd = fd;
    return DYT_OK;
}

enum dyt_status dyti_lend_connect(uint64_t name, int *out_fd)
{
    struct sockaddr_un address;
    socklen_t bytes = address_of(name, &address);
    struct ucred who = {0};
    int fd = -1, why;
    enum dyt_status st = open_socket(&fd);

    if (st != DYT_OK) {
        return st;
    }
    why = connect(fd, (struct sockaddr *)&address, bytes) == 0 ? 0 : errno;
    if (why == 0 && is_same_user(fd, &who)) {
        *out_fd = fd;
        return DYT_OK;
    }
    (void)close(fd);
    if (why == EAGAIN || why == EINTR) {
        return DYT_PENDING;
    }
    return why == 0
               ? DYTI_FAIL(DYT_ERR_PEER,
                           "process %d of user %u listens there, and this "
                           "is user %u",
                           (int)who.pid, (unsigned)who.uid, (unsigned)geteuid())
               : DYTI_FAIL(DYT_ERR_PEER,
                           "nobody listens there: %s (is it gone, or in a "
                           "container with a network of its own?)",
                           strerror(why));
}

/* ---- messages ---------------------------------------------------------------
 */

static enum dyt_status send_bytes(int fd, const void *text, size_t bytes,
                                  const int *piece, uint32_t count)
{
    int why = dyti_descriptors_send(fd, text, bytes, piece, count);

    if (why == 0) {
        return DYT_OK;
    }
    return why == ETOOMANYREFS || why == EAGAIN || why == ENOBUFS
               ? DYT_PENDING
               : DYTI_FAIL(DYT_ERR_PEER,
                           "a message of %zu bytes with %u descriptors: %s",
                           bytes, count, strerror(why));
}

enum dyt_status dyti_lend_send_request(int fd,
                                       const struct dyti_lend_request *request)
{
    struct dyti_lend_request copy = *request;

    memcpy(copy.magic, magic, sizeof(magic));
    return send_bytes(fd, &copy, sizeof(copy), NULL, 0);
}

enum dyt_status dyti_lend_send_reply(int fd,
                                     const struct dyti_lend_reply *reply,
                                     const int *piece)
{
    struct dyti_lend_reply copy = *reply;

    memcpy(copy.magic, magic, sizeof(magic));
    return send_bytes(fd, &copy, sizeof(copy), piece, copy.count);
}

/* Begins with the magic; others are of another version, or strangers. */
static enum dyt_status receive_bytes(int fd, void *text, size_t bytes,
                                     int *piece, uint32_t room,
                                     uint32_t *out_count)
{
    ssize_t got =
        dyti_descriptors_receive(fd, 0, text, bytes, piece, room, out_count);

    if (got == -EAGAIN || got == -EWOULDBLOCK) {
        return DYT_PENDING;
    }
    if (got <= 0) {
        return DYTI_FAIL(DYT_ERR_PEER, "the other side hung up%s%s",
                         got < 0 ? ": " : "",
                         got < 0 ? strerror((int)-got) : "");
    }
    return (size_t)got == bytes && memcmp(text, magic, sizeof(magic)) == 0
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_FORMAT,
                           "a message of %zd bytes that is none of a loan, or "
                           "of another version of dynatrain",
                           got);
}

enum dyt_status dyti_lend_receive_request(int fd,
                                          struct dyti_lend_request *out_request)
{
    uint32_t none;

    return receive_bytes(fd, out_request, sizeof(*out_request), NULL, 0, &none);
}

enum dyt_status dyti_lend_receive_reply(int fd,
                                        struct dyti_lend_reply *out_reply,
                                        int *piece)
{
    uint32_t count = 0, said;
    enum dyt_status st;

    memset(piece, -1, DYTI_LEND_BATCH * sizeof(*piece));
    out_reply->count = 0;
    st = receive_bytes(fd, out_reply, sizeof(*out_reply), piece,
                       DYTI_LEND_BATCH, &count);
    said = out_reply->count;
    out_reply->count = count;
    if (st != DYT_OK) {
        return st;
    }
    out_reply->text[sizeof(out_reply->text) - 1] = '\0';
    return count == said
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_IO,
                           "%u of %u descriptors came: this process may open "
                           "no more files (ulimit -n)",
                           count, said);
}
