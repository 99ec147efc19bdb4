/* The one thread pool of a rank.  A job is `count` independent tiles; which
 * thread runs which tile never changes a result.  The calling thread works too,
 * so a pool of 1 starts no thread at all.
 * Threads: one dyti_pool_run at a time per pool; tiles never call it. */
#ifndef DYTI_BASE_POOL_H
#define DYTI_BASE_POOL_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct dyti_pool;

/* Run tile `index`; `thread` < dyti_pool_threads() names scratch memory. */
typedef void (*dyti_tile_fn)(void *arg, size_t index, uint32_t thread);

/* threads >= 1, the caller included. */
enum dyt_status dyti_pool_create(uint32_t threads, struct dyti_pool **out_pool);
void dyti_pool_destroy(struct dyti_pool *pool);

/* NULL is a pool of one. */
uint32_t dyti_pool_threads(const struct dyti_pool *pool);

/* Returns when all tiles have run; their writes are visible to the caller. */
void dyti_pool_run(struct dyti_pool *pool, size_t count, dyti_tile_fn fn,
                   void *arg);

#endif /* DYTI_BASE_POOL_H */
