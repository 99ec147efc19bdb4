/* Memory of the host, lent within its process: the pointer.  Other processes
 * have files for it. */
#include "device/host/loan.h"

#include "device/host/memory.h"

#include <string.h>

enum dyt_status dyti_host_lend(const void *ptr, uint64_t bytes,
                               struct dyti_memory_loan *out_loan)
{
    struct dyti_memory_loan loan = {.way = DYTI_MEMORY_WAY_NONE,
                                    .kind = DYTI_MEMORY_HOST,
                                    .address = (uintptr_t)ptr,
                                    .bytes = bytes,
                                    .span = bytes};
    struct dyti_memory_look look;
    enum dyt_status st = dyti_memory_host.look(ptr, bytes, &look);

    if (st == DYT_OK) {
        memcpy(loan.why, look.why, sizeof(loan.why));
        st = dyti_memory_loan_sign(&loan);
    }
    if (st == DYT_OK) {
        *out_loan = loan;
    }
    return st;
}

enum dyt_status dyti_host_lend_piece(const struct dyti_memory_loan *loan,
                                     uint64_t at, uint64_t *out_bytes,
                                     int *out_fd)
{
    (void)loan;
    (void)out_bytes;
    (void)out_fd;
    return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                     "a piece of a loan, %llu bytes behind its start: memory "
                     "of the host has none",
                     (unsigned long long)at);
}

enum dyt_status dyti_host_borrow(const struct dyti_memory_loan *loan,
                                 struct dyti_memory_borrowed *out_borrowed)
{
    enum dyt_status st = dyti_memory_loan_check(loan);

    if (st != DYT_OK) {
        return st;
    }
    if (loan->kind != DYTI_MEMORY_HOST || !dyti_memory_loan_is_own(loan)) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "memory (%s) of process %u is not for the host to "
                         "borrow%s%s",
                         dyti_memory_kind_name(loan->kind), loan->owner_pid,
                         loan->why[0] != '\0' ? ": " : "", loan->why);
    }
    *out_borrowed =
        (struct dyti_memory_borrowed){.ptr = (void *)(uintptr_t)loan->address,
                                      .bytes = loan->bytes,
                                      .self = (void *)(uintptr_t)loan->address};
    return DYT_OK;
}

enum dyt_status dyti_host_borrow_piece(struct dyti_memory_borrowed *borrowed,
                                       uint64_t bytes, int fd)
{
    (void)borrowed;
    return DYTI_FAIL(DYT_ERR_STATE,
                     "a piece of %llu bytes by descriptor %d, where none is "
                     "wanted",
                     (unsigned long long)bytes, fd);
}

void dyti_host_give_back(struct dyti_memory_borrowed *borrowed)
{
    *borrowed = (struct dyti_memory_borrowed){0};
}

enum dyt_status dyti_host_reaches(const char *device, const char *other)
{
    (void)device;
    (void)other;
    return DYT_OK;
}
