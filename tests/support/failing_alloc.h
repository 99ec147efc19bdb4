/* One allocation of this program made to fail, by number.  Link with
 * WRAP malloc calloc realloc strdup. */
#ifndef DYT_FAILING_ALLOC_H
#define DYT_FAILING_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* The one that fails, counted down; negative: none does (any more). */
static long dyt_alloc_countdown = -1;

static inline bool dyt_alloc_fails(void)
{
    return dyt_alloc_countdown >= 0 && dyt_alloc_countdown-- == 0;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t bytes)
{
    return dyt_alloc_fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return dyt_alloc_fails() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    return dyt_alloc_fails() ? NULL : __real_realloc(old, bytes);
}

char *__wrap_strdup(const char *text)
{
    return dyt_alloc_fails() ? NULL : __real_strdup(text);
}

#endif /* DYT_FAILING_ALLOC_H */
