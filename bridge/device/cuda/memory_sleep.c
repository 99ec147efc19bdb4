/* Parts that come and go: the owner changes its mapping and the note, peers
 * follow the note. */
#include "device/cuda/memory.h"

#include <string.h>
#include <unistd.h>

static struct dyti_cuda_mapping *mapping_of(const struct dyti_segment_mem *mem)
{
    return mem->self;
}

static bool is_awake(const struct dyti_cuda_mapping *m, uint32_t part)
{
    return m->arena == NULL || dyti_cuda_arena_is_awake(m->arena, part);
}

enum dyt_status dyti_cuda_touched(const struct dyti_segment_mem *mem,
                                  uint64_t offset, uint64_t bytes,
                                  uint64_t *out_bytes)
{
    const struct dyti_cuda_mapping *m = mapping_of(mem);
    enum dyt_status st = dyti_segment_has(mem, offset, bytes);
    uint64_t start = 0, sum = 0;

    if (st != DYT_OK) {
        return st;
    }
    for (uint32_t i = 0; i < m->note.part_count; i++) {
        uint64_t end = m->note.part[i].end;
        uint64_t lo = start > offset ? start : offset;
        uint64_t hi = end < offset + bytes ? end : offset + bytes;

        sum += lo < hi && is_awake(m, i) ? hi - lo : 0;
        start = end;
    }
    *out_bytes = sum;
    return DYT_OK;
}

/* ---- peers ------------------------------------------------------------------
 */

static enum dyt_status follow_part(struct dyti_cuda_mapping *m,
                                   const struct dyti_cuda_note *note,
                                   uint32_t part, int fd)
{
    uint64_t want = note->part[part].woken, have = m->note.part[part].woken;
    enum dyt_status st = DYT_OK;

    if (want == have) {
        return DYT_OK;
    }
    if (have != 0) {
        st = dyti_cuda_arena_sleep(m->arena, part);
        m->note.part[part].woken =
            dyti_cuda_arena_is_awake(m->arena, part) ? have : 0;
    }
    if (st == DYT_OK && want != 0) {
        st = dyti_cuda_arena_adopt(m->arena, part, fd);
        m->note.part[part].woken = st == DYT_OK ? want : 0;
    }
    return st;
}

enum dyt_status dyti_cuda_refresh(struct dyti_segment_mem *mem)
{
    struct dyti_cuda_mapping *m = mapping_of(mem);
    struct dyti_cuda_note note;
    int fd[DYTI_CUDA_PARTS];
    enum dyt_status st = dyti_segment_has(mem, 0, 0);

    if (st != DYT_OK || m->arena == NULL) {
        return st;
    }
    st = dyti_cuda_segment_peek(mem->handle, &note);
    if (st == DYT_OK && note.generation == m->note.generation) {
        return DYT_OK;
    }
    st = st != DYT_OK ? st : dyti_cuda_segment_read(mem->handle, &note, fd);
    if (st != DYT_OK) {
        return st != DYT_PENDING
                   ? st
                   : DYTI_FAIL(DYT_ERR_STATE, "the segment has been closed");
    }
    for (uint32_t i = 0; i < m->note.part_count && st == DYT_OK; i++) {
        st = follow_part(m, &note, i, fd[i]);
    }
    dyti_cuda_segment_close_fds(fd);
    if (st != DYT_OK) {
        DYTI_NOTE("following a peer's memory");
        return st;
    }
    m->note.generation = note.generation;
    return DYT_OK;
}

/* ---- the owner --------------------------------------------------------------
 */

/* Parts [*out_first, *out_end) are the range, whole. */
static enum dyt_status parts_of(const struct dyti_cuda_note *note,
                                uint64_t offset, uint64_t bytes,
                                uint32_t *out_first, uint32_t *out_end)
{
    uint64_t start = 0;
    uint32_t first = 0, end;

    while (first < note->part_count && start < offset) {
        start = note->part[first++].end;
    }
    end = first;
    while (end < note->part_count && note->part[end].end <= offset + bytes) {
        end++;
    }
    if (start != offset || end == first ||
        note->part[end - 1].end != offset + bytes) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "bytes %llu + %llu of a device's segment are no whole "
                         "parts of it",
                         (unsigned long long)offset, (unsigned long long)bytes);
    }
    *out_first = first;
    *out_end = end;
    return DYT_OK;
}

/* What both changes begin with.  *out_end 0: there is nothing to do. */
static enum dyt_status begin_change(const struct dyti_segment_mem *mem,
                                    uint64_t offset, uint64_t bytes,
                                    uint32_t *out_first, uint32_t *out_end)
{
    const struct dyti_cuda_mapping *m = mapping_of(mem);
    enum dyt_status st = dyti_segment_has(mem, offset, bytes);

    *out_first = *out_end = 0;
    if (st != DYT_OK || bytes == 0) {
        return st;
    }
    if (!dyti_cuda_note_is_own(&m->note)) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "only process %lld, which sized the segment, lets it "
                         "sleep and wake",
                         (long long)m->note.owner);
    }
    st = parts_of(&m->note, offset, bytes, out_first, out_end);
    if (st == DYT_OK && m->arena == NULL) {
        *out_end = *out_first; /* one allocation: all or nothing */
    }
    return st;
}

/* The note has no memory for a part. */
static void forget(struct dyti_cuda_note *note, uint32_t part, int *fd)
{
    if (fd[part] >= 0) {
        (void)close(fd[part]);
        fd[part] = -1;
    }
    note->part[part].woken = 0;
}

/* One part, asleep or awake; nothing where it is so already. */
static enum dyt_status change_part(struct dyti_cuda_mapping *m, bool wakes,
                                   struct dyti_cuda_note *note, uint32_t part,
                                   int *fd)
{
    enum dyt_status st = DYT_OK;

    if (wakes == is_awake(m, part)) {
        return DYT_OK;
    }
    if (wakes) {
        forget(note, part, fd);
        st = dyti_cuda_make_part(m->calls, m->arena, part, &fd[part]);
        note->part[part].woken = st == DYT_OK ? note->generation : 0;
        return st;
    }
    st = dyti_cuda_arena_sleep(m->arena, part);
    if (!is_awake(m, part)) {
        forget(note, part, fd);
    }
    return st;
}

/* What has changed before something failed is told as well. */
static enum dyt_status change(struct dyti_segment_mem *mem, uint64_t offset,
                              uint64_t bytes, bool wakes)
{
    struct dyti_cuda_mapping *m = mapping_of(mem);
    struct dyti_cuda_note note;
    int fd[DYTI_CUDA_PARTS];
    uint32_t first, end;
    enum dyt_status st = begin_change(mem, offset, bytes, &first, &end), told;

    if (st != DYT_OK || first == end) {
        return st;
    }
    st = dyti_cuda_refresh(mem); /* it may be mapped here twice */
    st = st != DYT_OK ? st : dyti_cuda_segment_read(mem->handle, &note, fd);
    if (st != DYT_OK) {
        return st != DYT_PENDING
                   ? st
                   : DYTI_FAIL(DYT_ERR_STATE, "the segment has been closed");
    }
    note.generation++;
    for (uint32_t i = first; i < end && st == DYT_OK; i++) {
        st = change_part(m, wakes, &note, i, fd);
    }
    told = dyti_cuda_segment_write(mem->handle, &note, fd);
    dyti_cuda_segment_close_fds(fd);
    if (told == DYT_OK) {
        m->note = note;
    }
    return st != DYT_OK ? st : told;
}

enum dyt_status dyti_cuda_drop(struct dyti_segment_mem *mem, uint64_t offset,
                               uint64_t bytes)
{
    return change(mem, offset, bytes, false);
}

enum dyt_status dyti_cuda_wake(struct dyti_segment_mem *mem, uint64_t offset,
                               uint64_t bytes)
{
    return change(mem, offset, bytes, true);
}
