#include "device/cuda/segment.h"

#include "base/descriptors.h"
#include "base/process.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
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

void dyti_cuda_note_own(struct dyti_cuda_note *note)
{
    note->owner = (int64_t)getpid();
    note->owner_space = dyti_process_space();
}

bool dyti_cuda_note_is_own(const struct dyti_cuda_note *note)
{
    return note->owner == (int64_t)getpid() &&
           note->owner_space == dyti_process_space();
}

/* ---- reading ----------------------------------------------------------------
 */

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

/* One message; room 0: without descriptors, which then cost nothing. */
static enum dyt_status receive(int handle, int flags,
                               struct dyti_cuda_note *out_note, int *fd,
                               uint32_t room, uint32_t *out_count)
{
    ssize_t got = dyti_descriptors_receive(
        handle, flags, out_note, sizeof(*out_note), fd, room, out_count);

    if (got == -EAGAIN || got == -EWOULDBLOCK) {
        return DYT_PENDING;
    }
    if (got < 0) {
        return DYTI_FAIL(DYT_ERR_INVALID, "segment handle %d: %s", handle,
                         strerror((int)-got));
    }
    return check_note(out_note, (size_t)got);
}

enum dyt_status dyti_cuda_segment_peek(int handle,
                                       struct dyti_cuda_note *out_note)
{
    uint32_t none;

    return receive(handle, MSG_PEEK, out_note, NULL, 0, &none);
}

void dyti_cuda_segment_close_fds(int *fd)
{
    dyti_descriptors_close(fd, DYTI_CUDA_PARTS);
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
    int packed[DYTI_CUDA_PARTS];
    uint32_t count = 0;
    enum dyt_status st =
        receive(handle, MSG_PEEK, out_note, packed, DYTI_CUDA_PARTS, &count);

    memset(fd, -1, DYTI_CUDA_PARTS * sizeof(fd[0]));
    if (st == DYT_OK && count == awake(out_note)) {
        spread(out_note, packed, count, fd);
        return DYT_OK;
    }
    dyti_descriptors_close(packed, count);
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
    int packed[DYTI_CUDA_PARTS], why;
    uint32_t count = 0;

    for (uint32_t i = 0; fd != NULL && i < note->part_count; i++) {
        if (note->part[i].woken != 0) {
            packed[count++] = fd[i];
        }
    }
    why = dyti_descriptors_send(handle, note, sizeof(*note), packed, count);
    return why == 0 ? DYT_OK
                    : DYTI_FAIL(DYT_ERR_IO,
                                "a segment's note with %u descriptors: %s",
                                count, strerror(why));
}

/* The oldest message, with all that came with it. */
static void take_out(int handle)
{
    struct dyti_cuda_note old;
    int packed[DYTI_CUDA_PARTS];
    uint32_t count = 0;

    (void)receive(handle, 0, &old, packed, DYTI_CUDA_PARTS, &count);
    dyti_descriptors_close(packed, count);
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
