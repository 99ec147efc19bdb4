/* Ranks that wait for each other while bytes move: the fence between two waves,
 * and the word of a rank that has given up, so that nobody waits for it. */
#include "exec/switch_internal.h"

#include <time.h>

#define SLICE_NS 40000000

static void ring(const struct dyti_switch *self)
{
    _Atomic uint32_t *bell = &self->params.control->vote_bell;

    (void)atomic_fetch_add(bell, 1);
    self->params.wait->wake(bell);
}

static int64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void dyti_fence_give_up(const struct dyti_switch *self, uint64_t epoch)
{
    atomic_store(&self->params.control->rank[self->params.rank].gave_up, epoch);
    ring(self);
}

enum dyt_status dyti_fence_check(const struct dyti_switch *self, uint64_t epoch)
{
    const struct dyti_control_page *page = self->params.control;

    for (uint32_t r = 0; r < self->params.world_size; r++) {
        if (atomic_load_explicit(&page->rank[r].gave_up,
                                 memory_order_relaxed) == epoch &&
            r != self->params.rank) {
            return DYTI_FAIL(DYT_ERR_PEER,
                             "rank %u has given switch %llu up: what it should "
                             "send or take will not move",
                             r, (unsigned long long)epoch);
        }
    }
    return dyti_control_check(page);
}

/* The first rank that is not there yet, or world_size. */
static uint32_t missing(const struct dyti_switch *self, uint64_t word)
{
    uint32_t r = 0;

    while (r < self->params.world_size &&
           atomic_load(&self->params.control->rank[r].fenced) >= word) {
        r++;
    }
    return r;
}

enum dyt_status dyti_fence_meet(const struct dyti_switch *self, uint64_t epoch,
                                uint32_t fence)
{
    struct dyti_control_page *page = self->params.control;
    uint64_t word = epoch << 24 | (fence + 1u);
    int64_t timeout = self->params.timeout_ns;
    int64_t deadline = timeout > 0 ? now_ns() + timeout : INT64_MAX;

    if (self->params.island != NULL) { /* what a rank passes on it has: all goes
                                          by messages, whose order is enough */
        return DYT_OK;
    }
    atomic_store(&page->rank[self->params.rank].fenced, word);
    ring(self);
    for (;;) {
        uint32_t bell = atomic_load(&page->vote_bell);
        uint32_t late = missing(self, word);
        enum dyt_status st;

        if (late == self->params.world_size) {
            return DYT_OK;
        }
        st = dyti_fence_check(self, epoch);
        if (st != DYT_OK) {
            return st;
        }
        if (now_ns() >= deadline) {
            return DYTI_FAIL(DYT_ERR_TIMEOUT,
                             "rank %u has waited %lld ms at fence %u, rank %u "
                             "is missing",
                             self->params.rank, (long long)(timeout / 1000000),
                             fence, late);
        }
        self->params.wait->wait(&page->vote_bell, bell, SLICE_NS);
    }
}
