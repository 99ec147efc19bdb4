/* How often this program has allocated.  Link with
 * WRAP malloc calloc realloc aligned_alloc. */
#ifndef DYT_COUNT_ALLOC_H
#define DYT_COUNT_ALLOC_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

static _Atomic uint64_t allocations; /* of this process */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *was, size_t bytes);
void *__real_aligned_alloc(size_t align, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *was, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *was, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __real_realloc(was, bytes);
}

void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __real_aligned_alloc(align, bytes);
}

#endif /* DYT_COUNT_ALLOC_H */
