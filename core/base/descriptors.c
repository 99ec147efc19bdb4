#include "base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* How many of `count` can be opened; they are closed again. */
static uint32_t try_all(int *fd, uint32_t count, int *out_why)
{
    uint32_t opened = 0;

    while (opened < count) {
        fd[opened] = opened == 0 ? open("/", O_RDONLY | O_CLOEXEC)
                                 : fcntl(fd[0], F_DUPFD_CLOEXEC, 0);
        if (fd[opened] < 0) {
            *out_why = errno;
            break;
        }
        opened++;
    }
    for (uint32_t i = 0; i < opened; i++) {
        (void)close(fd[i]);
    }
    return opened;
}

enum dyt_status dyti_descriptors_room(uint32_t count, const char *what)
{
    int *fd = malloc((count + 1) * sizeof(*fd)), why = 0;
    uint32_t opened;
    long limit;

    if (fd == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u descriptors", count);
    }
    opened = try_all(fd, count, &why);
    free(fd);
    if (opened == count) {
        return DYT_OK;
    }
    limit = sysconf(_SC_OPEN_MAX);
    if (why == EMFILE && limit >= 0) {
        return DYTI_FAIL(
            DYT_ERR_IO,
            "%s needs %u more open files, and this process can have %u: raise "
            "the limit of %ld to %ld at least (ulimit -n)",
            what, count, opened, limit, limit + (long)(count - opened));
    }
    return DYTI_FAIL(DYT_ERR_IO, "%s needs %u more open files, and got %u: %s",
                     what, count, opened, strerror(why));
}

union control {
    char room[CMSG_SPACE(DYTI_DESCRIPTORS_MOST * sizeof(int))];
    struct cmsghdr align;
};

int dyti_descriptors_send(int socket, const void *text, size_t bytes,
                          const int *fd, uint32_t count)
{
    struct iovec part = {.iov_base = (void *)(uintptr_t)text, .iov_len = bytes};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1};
    union control control;
    ssize_t sent;

    if (count > DYTI_DESCRIPTORS_MOST) {
        return EINVAL;
    }
    if (count > 0) {
        struct cmsghdr *c;

        memset(&control, 0, sizeof(control));
        head.msg_control = &control;
        head.msg_controllen = CMSG_SPACE(count * sizeof(int));
        c = CMSG_FIRSTHDR(&head);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(c), fd, count * sizeof(int));
    }
    do {
        sent = sendmsg(socket, &head, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)bytes ? 0 : sent < 0 ? errno : EMSGSIZE;
}

/* All that a message brought, one behind the other; those without room go. */
static uint32_t collect(struct msghdr *head, int *fd, uint32_t room)
{
    uint32_t count = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(head); c != NULL;
         c = CMSG_NXTHDR(head, c)) {
        const unsigned char *at = CMSG_DATA(c);
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            int one;

            memcpy(&one, at + i * sizeof(one), sizeof(one));
            if (count < room) {
                fd[count++] = one;
            } else {
                (void)close(one);
            }
        }
    }
    return count;
}

ssize_t dyti_descriptors_receive(int socket, int flags, void *text,
                                 size_t bytes, int *fd, uint32_t room,
                                 uint32_t *out_count)
{
    struct iovec part = {.iov_base = text, .iov_len = bytes};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1};
    union control control;
    ssize_t got;

    room = room <= DYTI_DESCRIPTORS_MOST ? room : DYTI_DESCRIPTORS_MOST;
    *out_count = 0;
    if (room > 0) {
        memset(&control, 0, sizeof(control));
        head.msg_control = &control;
        head.msg_controllen = CMSG_SPACE(room * sizeof(int));
    }
    do {
        got = recvmsg(socket, &head, flags | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        return -(ssize_t)errno;
    }
    *out_count = room > 0 ? collect(&head, fd, room) : 0;
    return got;
}

void dyti_descriptors_close(int *fd, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (fd[i] >= 0) {
            (void)close(fd[i]);
            fd[i] = -1;
        }
    }
}
