/* Lending memory of the host: entries of its table. */
#ifndef DYTI_DEVICE_HOST_LOAN_H
#define DYTI_DEVICE_HOST_LOAN_H

#include "ops/memory.h"

enum dyt_status dyti_host_lend(const void *ptr, uint64_t bytes,
                               struct dyti_memory_loan *out_loan);
enum dyt_status dyti_host_lend_piece(const struct dyti_memory_loan *loan,
                                     uint64_t at, uint64_t *out_bytes,
                                     int *out_fd);
enum dyt_status dyti_host_borrow(const struct dyti_memory_loan *loan,
                                 struct dyti_memory_borrowed *out_borrowed);
enum dyt_status dyti_host_borrow_piece(struct dyti_memory_borrowed *borrowed,
                                       uint64_t bytes, int fd);
void dyti_host_give_back(struct dyti_memory_borrowed *borrowed);
enum dyt_status dyti_host_reaches(const char *device, const char *other);

#endif /* DYTI_DEVICE_HOST_LOAN_H */
