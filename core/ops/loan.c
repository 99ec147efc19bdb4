/* Who lent memory: the same process, another one that is there, or one that is
 * gone.  A number may be used again, so the start time is looked at. */
#include "ops/memory.h"

#include "base/process.h"

#include <string.h>

static const char magic[8] = "dyt.len1";

enum dyt_status dyti_memory_loan_sign(struct dyti_memory_loan *loan)
{
    enum dyt_status st =
        dyti_process_self(&loan->owner_pid, &loan->owner_start);

    memcpy(loan->magic, magic, sizeof(magic));
    loan->owner_space = dyti_process_space();
    return st;
}

static bool ends(const char *text, size_t room)
{
    return memchr(text, '\0', room) != NULL;
}

enum dyt_status dyti_memory_loan_check(const struct dyti_memory_loan *loan)
{
    bool is_fd = loan->way == DYTI_MEMORY_WAY_FD;

    if (memcmp(loan->magic, magic, sizeof(magic)) != 0) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "this is no loan of memory, or one of another version "
                         "of dynatrain");
    }
    if (loan->way > DYTI_MEMORY_WAY_IPC ||
        loan->kind >= DYTI_MEMORY_KIND_COUNT || loan->address == 0 ||
        loan->bytes == 0 || loan->offset > loan->address ||
        loan->bytes > UINT64_MAX - loan->address || loan->offset > loan->span ||
        loan->bytes > loan->span - loan->offset ||
        is_fd != (loan->piece_count > 0) ||
        !ends(loan->device, sizeof(loan->device)) ||
        !ends(loan->why, sizeof(loan->why))) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "a loan of %llu bytes at %#llx, %llu behind the start "
                         "of %llu, in %u pieces: it cannot be",
                         (unsigned long long)loan->bytes,
                         (unsigned long long)loan->address,
                         (unsigned long long)loan->offset,
                         (unsigned long long)loan->span, loan->piece_count);
    }
    return DYT_OK;
}

bool dyti_memory_loan_is_own(const struct dyti_memory_loan *loan)
{
    return loan->owner_space == dyti_process_space() &&
           dyti_process_is_self(loan->owner_pid, loan->owner_start);
}

enum dyt_status dyti_memory_loan_alive(const struct dyti_memory_loan *loan)
{
    uint64_t start = 0;

    if (loan->owner_space != dyti_process_space() ||
        (dyti_process_start(loan->owner_pid, &start) == DYT_OK &&
         start == loan->owner_start)) {
        return DYT_OK;
    }
    return DYTI_FAIL(DYT_ERR_PEER, "process %u, whose memory this is, is gone",
                     loan->owner_pid);
}
