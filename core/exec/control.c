/* The control page: locks, votes and the one decision of a switch. */
#include "exec/control.h"

#include "layout/arena.h"

#include <time.h>

#define PAGE_BYTES 4096u
#define SLICE_NS   40000000

uint64_t dyti_control_bytes(void)
{
    return (sizeof(struct dyti_control_page) + PAGE_BYTES - 1u) / PAGE_BYTES *
           PAGE_BYTES;
}

enum dyt_status dyti_control_open(void *memory, uint32_t world_size,
                                  struct dyti_control_page **out_page)
{
    struct dyti_control_page *page = memory;
    uint64_t no_magic = 0;
    uint32_t no_size = 0;

    if (world_size == 0 || world_size > DYTI_CONTROL_MAX_RANKS) {
        return DYTI_FAIL(DYT_ERR_INVALID, "%u ranks, at most %u fit the page",
                         world_size, DYTI_CONTROL_MAX_RANKS);
    }
    if (!atomic_compare_exchange_strong(&page->world_size, &no_size,
                                        world_size) &&
        no_size != world_size) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "the control page is of a world of %u ranks, not %u",
                         no_size, world_size);
    }
    if (!atomic_compare_exchange_strong(&page->magic, &no_magic,
                                        DYTI_CONTROL_MAGIC) &&
        no_magic != DYTI_CONTROL_MAGIC) {
        return DYTI_FAIL(DYT_ERR_ABI,
                         "the control page is of another version: %016llx",
                         (unsigned long long)no_magic);
    }
    *out_page = page;
    return DYT_OK;
}

static void ring(_Atomic uint32_t *bell, const struct dyti_wait_ops *wait)
{
    (void)atomic_fetch_add(bell, 1);
    wait->wake(bell);
}

static int64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- begin, leave, end -------------------------------------------------- */

static enum dyt_status check_begin(const struct dyti_control_page *page,
                                   uint64_t epoch, uint64_t version,
                                   uint64_t last)
{
    uint64_t visible = atomic_load(&page->version);

    if (epoch == 0 || epoch >> 56 != 0) {
        return DYTI_FAIL(DYT_ERR_INVALID, "switch epoch %llu",
                         (unsigned long long)epoch);
    }
    if (epoch <= last) {
        return DYTI_FAIL(DYT_ERR_STATE, "switch %llu after switch %llu",
                         (unsigned long long)epoch, (unsigned long long)last);
    }
    if (version < visible) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "switch %llu would show version %llu after %llu",
                         (unsigned long long)epoch, (unsigned long long)version,
                         (unsigned long long)visible);
    }
    return DYT_OK;
}

static enum dyt_status busy(uint64_t epoch, uint64_t holder)
{
    return DYTI_FAIL(DYT_ERR_BUSY, "switch %llu: switch %llu still runs",
                     (unsigned long long)epoch, (unsigned long long)holder);
}

enum dyt_status dyti_switch_begin(struct dyti_control_page *page,
                                  uint64_t epoch, uint64_t version)
{
    uint64_t holder = 0;
    enum dyt_status st;

    /* The lock first: nobody else changes the page while it is held. */
    if (!atomic_compare_exchange_strong(&page->epoch, &holder, epoch)) {
        return busy(epoch, holder);
    }
    st = check_begin(page, epoch, version, atomic_load(&page->last_epoch));
    if (st != DYT_OK) {
        atomic_store(&page->epoch, 0);
        return st;
    }
    atomic_store(&page->next_sets, atomic_load(&page->sets));
    atomic_store(&page->next_version, version);
    atomic_store(&page->last_epoch, epoch);
    return DYT_OK;
}

enum dyt_status dyti_switch_join(struct dyti_control_page *page, uint64_t epoch,
                                 uint64_t version)
{
    /* In this order: the first to join sets epoch before last_epoch. */
    uint64_t last = atomic_load(&page->last_epoch);
    uint64_t holder = atomic_load(&page->epoch);
    enum dyt_status st;

    if (epoch != 0 && holder == epoch) {
        return DYT_OK;
    }
    st = check_begin(page, epoch, version, last);
    if (st != DYT_OK) {
        return st;
    }
    holder = 0;
    if (!atomic_compare_exchange_strong(&page->epoch, &holder, epoch)) {
        return holder == epoch ? DYT_OK : busy(epoch, holder);
    }
    /* The commit comes after this rank's vote, and so after these. */
    atomic_store(&page->next_sets, atomic_load(&page->sets));
    atomic_store(&page->next_version, version);
    atomic_store(&page->last_epoch, epoch);
    return DYT_OK;
}

void dyti_switch_end(struct dyti_control_page *page, uint64_t epoch)
{
    uint64_t held = epoch;

    (void)atomic_compare_exchange_strong(&page->epoch, &held, 0);
}

void dyti_switch_leave(struct dyti_control_page *page, uint32_t rank,
                       uint64_t epoch)
{
    uint32_t size = atomic_load(&page->world_size);

    atomic_store(&page->rank[rank].left, epoch);
    for (uint32_t i = 0; i < size; i++) {
        if (atomic_load(&page->rank[i].left) < epoch) {
            return;
        }
    }
    dyti_switch_end(page, epoch);
}

/* ---- the decision ------------------------------------------------------- */

static enum dyti_decision decision_of(const struct dyti_control_page *page,
                                      uint64_t epoch)
{
    uint64_t word = atomic_load(&page->decision);

    return word >> 8 == epoch ? (enum dyti_decision)(word & 0xffu)
                              : DYTI_DECISION_NONE;
}

enum dyti_decision dyti_switch_outcome(const struct dyti_control_page *page,
                                       uint64_t epoch, uint64_t *out_version)
{
    enum dyti_decision done = decision_of(page, epoch);

    if (out_version != NULL) {
        *out_version = done == DYTI_DECISION_COMMIT
                           ? atomic_load(&page->next_version)
                           : atomic_load(&page->version);
    }
    return done;
}

/* Whoever sees a commit makes its version visible, in case the one who decided
 * died in between. */
static void show_version(struct dyti_control_page *page)
{
    atomic_store(&page->sets, atomic_load(&page->next_sets));
    atomic_store(&page->version, atomic_load(&page->next_version));
}

/* Once per epoch; returns what was decided, here or before. */
static enum dyti_decision decide(struct dyti_control_page *page,
                                 const struct dyti_wait_ops *wait,
                                 uint64_t epoch, enum dyti_decision wish)
{
    uint64_t word = atomic_load(&page->decision);

    while (word >> 8 < epoch) {
        if (atomic_compare_exchange_weak(&page->decision, &word,
                                         epoch << 8 | wish)) {
            if (wish == DYTI_DECISION_COMMIT) {
                show_version(page);
            }
            ring(&page->decision_bell, wait);
            ring(&page->vote_bell, wait);
            return wish;
        }
    }
    /* A later switch can only have begun when everybody had left this one. */
    return word >> 8 == epoch ? (enum dyti_decision)(word & 0xffu)
                              : DYTI_DECISION_ABORT;
}

void dyti_switch_vote(struct dyti_control_page *page,
                      const struct dyti_wait_ops *wait, uint32_t rank,
                      uint64_t epoch, enum dyti_vote vote,
                      enum dyt_status cause)
{
    atomic_store(&page->rank[rank].cause, (int32_t)cause);
    atomic_store(&page->rank[rank].vote, epoch << 8 | vote);
    ring(&page->vote_bell, wait);
}

static enum dyt_status say_aborted(const struct dyti_control_page *page,
                                   uint64_t epoch)
{
    uint32_t size = atomic_load(&page->world_size);
    enum dyt_status st = dyti_control_check(page);

    if (st != DYT_OK) {
        return st;
    }
    for (uint32_t i = 0; i < size; i++) {
        if (atomic_load(&page->rank[i].vote) ==
            (epoch << 8 | DYTI_VOTE_FAILED)) {
            return DYTI_FAIL(DYT_ERR_PEER, "switch %llu aborted: rank %u: %s",
                             (unsigned long long)epoch, i,
                             dyt_status_text((enum dyt_status)atomic_load(
                                 &page->rank[i].cause)));
        }
    }
    return DYTI_FAIL(DYT_ERR_PEER, "switch %llu aborted",
                     (unsigned long long)epoch);
}

enum dyt_status dyti_switch_commit(struct dyti_control_page *page,
                                   const struct dyti_wait_ops *wait,
                                   uint64_t epoch)
{
    enum dyti_decision done = decision_of(page, epoch);
    uint32_t size = atomic_load(&page->world_size);
    bool failed = false, missing = false;

    for (uint32_t i = 0; i < size && done == DYTI_DECISION_NONE; i++) {
        uint64_t vote = atomic_load(&page->rank[i].vote);

        failed |= vote == (epoch << 8 | DYTI_VOTE_FAILED);
        missing |= vote >> 8 != epoch;
    }
    if (done == DYTI_DECISION_NONE) {
        if (missing) { /* somebody may still be reading or writing */
            return DYT_PENDING;
        }
        done = decide(page, wait, epoch,
                      failed ? DYTI_DECISION_ABORT : DYTI_DECISION_COMMIT);
    }
    return done == DYTI_DECISION_COMMIT ? DYT_OK : say_aborted(page, epoch);
}

enum dyt_status dyti_switch_abort(struct dyti_control_page *page,
                                  const struct dyti_wait_ops *wait,
                                  uint64_t epoch)
{
    if (decide(page, wait, epoch, DYTI_DECISION_ABORT) ==
        DYTI_DECISION_COMMIT) {
        return DYTI_FAIL(DYT_ERR_STATE, "switch %llu has been committed",
                         (unsigned long long)epoch);
    }
    return DYT_OK;
}

enum dyt_status dyti_switch_decide(struct dyti_control_page *page,
                                   const struct dyti_wait_ops *wait,
                                   uint64_t epoch, int64_t timeout_ns)
{
    int64_t deadline = timeout_ns > 0 ? now_ns() + timeout_ns : INT64_MAX;

    for (;;) {
        uint32_t bell = atomic_load(&page->vote_bell);
        enum dyt_status st = dyti_switch_commit(page, wait, epoch);

        if (st != DYT_PENDING) {
            return st;
        }
        if (dyti_control_check(page) != DYT_OK) {
            (void)decide(page, wait, epoch, DYTI_DECISION_ABORT);
        } else if (now_ns() >= deadline) {
            if (decide(page, wait, epoch, DYTI_DECISION_ABORT) ==
                DYTI_DECISION_COMMIT) {
                return DYT_OK;
            }
            for (uint32_t i = 0; i < atomic_load(&page->world_size); i++) {
                if (atomic_load(&page->rank[i].vote) >> 8 != epoch) {
                    return DYTI_FAIL(DYT_ERR_TIMEOUT,
                                     "switch %llu aborted: rank %u has not "
                                     "voted in %lld ms",
                                     (unsigned long long)epoch, i,
                                     (long long)(timeout_ns / 1000000));
                }
            }
        } else {
            wait->wait(&page->vote_bell, bell, SLICE_NS);
        }
    }
}

enum dyti_decision dyti_switch_await(struct dyti_control_page *page,
                                     const struct dyti_wait_ops *wait,
                                     uint64_t epoch, int64_t timeout_ns)
{
    int64_t deadline = timeout_ns > 0 ? now_ns() + timeout_ns : INT64_MAX;
    enum dyti_decision done;

    for (;;) {
        uint32_t bell = atomic_load(&page->decision_bell);

        done = decision_of(page, epoch);
        if (done != DYTI_DECISION_NONE) {
            break;
        }
        if (atomic_load(&page->abort.value) != 0 || now_ns() >= deadline) {
            done = decide(page, wait, epoch, DYTI_DECISION_ABORT);
            break;
        }
        wait->wait(&page->decision_bell, bell, SLICE_NS);
    }
    if (done == DYTI_DECISION_COMMIT) {
        show_version(page);
    }
    return done;
}

/* ---- what is whole ------------------------------------------------------ */

void dyti_control_lose(struct dyti_control_page *page, uint32_t rank,
                       uint64_t epoch, uint64_t regions)
{
    atomic_store(&page->rank[rank].lost_epoch, epoch);
    (void)atomic_fetch_or(&page->rank[rank].lost, regions);
}

void dyti_control_heal(struct dyti_control_page *page, uint32_t rank,
                       uint64_t regions)
{
    (void)atomic_fetch_and(&page->rank[rank].lost, ~regions);
}

static enum dyt_status say_region(uint32_t rank, uint64_t regions,
                                  const char *what, uint64_t epoch)
{
    uint32_t bit = 0;

    while ((regions >> bit & 1u) == 0) {
        bit++;
    }
    return DYTI_FAIL(DYT_ERR_STATE, "%s %s on rank %u is %s (switch %llu)",
                     dyti_arena_slot_name((enum dyti_arena_slot)(bit / 8u)),
                     dyti_kind_name((enum dyti_kind)(bit % 8u)), rank, what,
                     (unsigned long long)epoch);
}

/* What a committed switch has still to copy out of its scratch. */
static uint64_t not_yet_copied(const struct dyti_control_page *page,
                               const struct dyti_control_rank *rank)
{
    uint64_t epoch = atomic_load(&rank->staged_epoch);

    return epoch != 0 && atomic_load(&page->decision) ==
                             (epoch << 8 | DYTI_DECISION_COMMIT)
               ? atomic_load(&rank->staged)
               : 0;
}

uint64_t dyti_control_lost(const struct dyti_control_page *page, uint32_t rank)
{
    const struct dyti_control_rank *of = &page->rank[rank];

    return atomic_load(&of->lost) | not_yet_copied(page, of);
}

enum dyt_status dyti_control_check_rank(const struct dyti_control_page *page,
                                        uint32_t rank, uint64_t regions)
{
    const struct dyti_control_rank *of = &page->rank[rank];
    uint64_t lost = dyti_control_lost(page, rank) & regions;
    uint64_t asleep = atomic_load(&of->asleep) & regions;

    if (lost != 0) {
        return say_region(rank, lost,
                          "INVALID: heal it from a replica, by a switch from a "
                          "layout that is whole, or from the newest checkpoint",
                          atomic_load(&of->lost_epoch));
    }
    if (asleep != 0) {
        return say_region(rank, asleep,
                          "asleep, its memory is released: restore it first",
                          atomic_load(&page->last_epoch));
    }
    return DYT_OK;
}

enum dyt_status dyti_control_check_whole(const struct dyti_control_page *page,
                                         uint64_t regions)
{
    uint32_t size = atomic_load(&page->world_size);
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < size && st == DYT_OK; i++) {
        st = dyti_control_check_rank(page, i, regions);
    }
    return st;
}

/* ---- failure ------------------------------------------------------------ */

void dyti_control_abort(struct dyti_control_page *page,
                        const struct dyti_wait_ops *wait, uint32_t rank,
                        enum dyt_status status)
{
    uint64_t none = 0, epoch;

    (void)atomic_compare_exchange_strong(&page->abort.value, &none,
                                         dyti_abort_pack(rank, status));
    epoch = atomic_load(&page->epoch);
    if (epoch != 0) {
        (void)decide(page, wait, epoch, DYTI_DECISION_ABORT);
    }
    ring(&page->decision_bell, wait);
    ring(&page->vote_bell, wait);
}

enum dyt_status dyti_control_check(const struct dyti_control_page *page)
{
    uint64_t value = atomic_load(&page->abort.value);

    if (value == 0) {
        return DYT_OK;
    }
    return DYTI_FAIL(DYT_ERR_PEER, "rank %u failed: %s",
                     (uint32_t)(value >> 32) - 1u,
                     dyt_status_text((enum dyt_status)(-(int)(uint32_t)value)));
}
