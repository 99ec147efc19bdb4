#include "device/cuda/segment.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static const char magic[8] = "dyt.mem1";

enum dyt_status dyti_cuda_segment_create(const char *name, int *out_handle)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t bytes = sizeof(address);
    /* Not close-on-exec: workers inherit the segments of their host. */
    int handle = socket(AF_UNIX, SOCK_DGRAM, 0);

    /* An address of the family alone lets the kernel choose one. */
    if (handle < 0 ||
        bind(handle, (struct sockaddr *)&address, sizeof(sa_family_t)) != 0 ||
        getsockname(handle, (struct sockaddr *)&address, &bytes) != 0 ||
        connect(handle, (struct sockaddr *)&address, bytes) != 0) {
        enum dyt_status st = DYTI_FAIL(
            DYT_ERR_IO, "the handle of segment %s: %s", name, strerror(errno));

        if (handle >= 0) {
            (void)close(handle);
        }
        return st;
    }
    *out_handle = handle;
    return DYT_OK;
}

/* ---- whose ------------------------------------------------------------------
 */

static int64_t own_space(void)
{
    struct stat info;

    return stat("/proc/self/ns/pid", &info) == 0 ? (int64_t)info.st_ino : 0;
}

void dyti_cuda_note_own(struct dyti_cuda_note *note)
{
    note->owner = (int64_t)getpid();
    note->owner_space = own_space();
}

bool dyti_cuda_note_is_own(const struct dyti_cuda_note *note)
{
    return note->owner == (int64_t)getpid() && note->owner_space == own_space();
}

/* ---- reading ----------------------------------------------------------------
 */

/* Room for the descriptors of one message. */
union control {
    char room[CMSG_SPACE(DYTI_CUDA_PARTS * sizeof(int))];
    struct cmsghdr align;
};

static enum dyt_status check_note(const struct dyti_cuda_note *note,
                                  size_t bytes)
{
    uint64_t end = 0;
    bool good = bytes == sizeof(*note) &&
                memcmp(note->magic, magic, sizeof(magic)) == 0 &&
                note->part_count > 0 && note->part_count <= DYTI_CUDA_PARTS;

    for (uint32_t i = 0; good && i < note->part_count; i++) {
        good = note->part[i].end > end;
        end = note->part[i].end;
    }
    return good && end == note->bytes
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_INVALID,
                           "this is no segment of a device, or one of another "
                           "version of dynatrain");
}

/* One message; control NULL: without descriptors, which then cost nothing. */
static enum dyt_status receive(int handle, int flags,
                               struct dyti_cuda_note *out_note,
                               union control *control, struct msghdr *out_head)
{
    struct iovec text = {.iov_base = out_note, .iov_len = sizeof(*out_note)};
    struct msghdr head = {.msg_iov = &text, .msg_iovlen = 1};
    ssize_t got;

    if (control != NULL) {
        memset(control, 0, sizeof(*control));
        head.msg_control = control;
        head.msg_controllen = sizeof(*control);
    }
    do {
        got = recvmsg(handle, &head, flags | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return DYT_PENDING;
    }
    if (got < 0) {
        return DYTI_FAIL(DYT_ERR_INVALID, "segment handle %d: %s", handle,
                         strerror(errno));
    }
    *out_head = head;
    return check_note(out_note, (size_t)got);
}

enum dyt_status dyti_cuda_segment_peek(int handle,
                                       struct dyti_cuda_note *out_note)
{
    struct msghdr head;

    return receive(handle, MSG_PEEK, out_note, NULL, &head);
}

/* All that a message brought, one behind the other; how many. */
static uint32_t collect(struct msghdr *head, int *out_fd)
{
    uint32_t count = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(head); c != NULL;
         c = CMSG_NXTHDR(head, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            uint32_t n = (uint32_t)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));

            n = n <= DYTI_CUDA_PARTS - count ? n : DYTI_CUDA_PARTS - count;
            memcpy(out_fd + count, CMSG_DATA(c), n * sizeof(int));
            count += n;
        }
    }
    return count;
}

void dyti_cuda_segment_close_fds(int *fd)
{
    for (uint32_t i = 0; i < DYTI_CUDA_PARTS; i++) {
        if (fd[i] >= 0) {
            (void)close(fd[i]);
            fd[i] = -1;
        }
    }
}

/* Descriptors come in the order of the parts that are awake. */
static void spread(const struct dyti_cuda_note *note, const int *packed,
                   uint32_t count, int *fd)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < note->part_count && at < count; i++) {
        if (note->part[i].woken != 0) {
            fd[i] = packed[at++];
        }
    }
}

static uint32_t awake(const struct dyti_cuda_note *note)
{
    uint32_t count = 0;

    for (uint32_t i = 0; note->pages == DYTI_PAGES_VMM && i < note->part_count;
         i++) {
        count += note->part[i].woken != 0;
    }
    return count;
}

enum dyt_status dyti_cuda_segment_read(int handle,
                                       struct dyti_cuda_note *out_note, int *fd)
{
    union control control;
    struct msghdr head = {0};
    int packed[DYTI_CUDA_PARTS];
    uint32_t count;
    enum dyt_status st = receive(handle, MSG_PEEK, out_note, &control, &head);

    memset(fd, -1, DYTI_CUDA_PARTS * sizeof(fd[0]));
    count = st == DYT_PENDING ? 0 : collect(&head, packed);
    if (st == DYT_OK && count == awake(out_note)) {
        spread(out_note, packed, count, fd);
        return DYT_OK;
    }
    for (uint32_t i = 0; i < count; i++) {
        (void)close(packed[i]);
    }
    return st != DYT_OK ? st
                        : DYTI_FAIL(DYT_ERR_IO,
                                    "%u of a segment's %u parts came with its "
                                    "handle: this process may open no more "
                                    "files (ulimit -n)",
                                    count, awake(out_note));
}

/* ---- writing ----------------------------------------------------------------
 */

static enum dyt_status send_note(int handle, const struct dyti_cuda_note *note,
                                 const int *fd)
{
    union control control;
    int packed[DYTI_CUDA_PARTS];
    struct iovec text = {.iov_base = (void *)(uintptr_t)note,
                         .iov_len = sizeof(*note)};
    struct msghdr head = {.msg_iov = &text, .msg_iovlen = 1};
    uint32_t count = 0;
    ssize_t sent;

    for (uint32_t i = 0; fd != NULL && i < note->part_count; i++) {
        if (note->part[i].woken != 0) {
            packed[count++] = fd[i];
        }
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
        memcpy(CMSG_DATA(c), packed, count * sizeof(int));
    }
    do {
        sent = sendmsg(handle, &head, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent != (ssize_t)sizeof(*note)) {
        return DYTI_FAIL(DYT_ERR_IO, "a segment's note with %u descriptors: %s",
                         count, strerror(errno));
    }
    return DYT_OK;
}

/* The oldest message, with all that came with it. */
static void take_out(int handle)
{
    struct dyti_cuda_note old;
    union control control;
    struct msghdr head = {0};
    int packed[DYTI_CUDA_PARTS];
    uint32_t count;

    if (receive(handle, 0, &old, &control, &head) == DYT_PENDING) {
        return;
    }
    count = collect(&head, packed);
    for (uint32_t i = 0; i < count; i++) {
        (void)close(packed[i]);
    }
}

enum dyt_status dyti_cuda_segment_write(int handle,
                                        const struct dyti_cuda_note *note,
                                        const int *fd)
{
    struct dyti_cuda_note old, copy = *note;
    enum dyt_status had = dyti_cuda_segment_peek(handle, &old), st;

    if (had != DYT_OK && had != DYT_PENDING) {
        return had;
    }
    memcpy(copy.magic, magic, sizeof(magic));
    st = send_note(handle, &copy, fd);
    if (st == DYT_OK && had == DYT_OK) {
        take_out(handle);
    }
    return st;
}

void dyti_cuda_segment_clear(int handle)
{
    take_out(handle);
}
