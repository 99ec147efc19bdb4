/* What each mode does besides the five parts of a switch: which address set is
 * read and written, what a commit does, what is INVALID afterwards. */
#include "exec/switch_internal.h"

#include "base/hash.h"

#include <stdlib.h>

/* ---- address sets ----------------------------------------------------------
 */

static enum dyti_switch_mode mode_of(const struct dyti_switch_params *params)
{
    return params->map[params->rank].mode;
}

/* Does a commit make the other set of the rollout layout the live one? */
static bool flips(const struct dyti_switch_params *params)
{
    return params->to == DYTI_ARENA_ROLLOUT && params->from != params->to;
}

void dyti_mode_sets(struct dyti_switch_params *params, uint32_t live)
{
    switch (mode_of(params)) {
    case DYTI_MODE_DOUBLE: /* only the rollout layout has two */
        params->set[DYTI_ARENA_ROLLOUT] =
            (uint8_t)(flips(params) ? 1u - live : live);
        break;
    case DYTI_MODE_STAGED: /* a layout that fills itself has no room twice */
        params->set[params->to] = params->from != params->to;
        break;
    default:
        break;
    }
}

/* Double: a second one, with all addresses as they are when set 1 is live. */
static enum dyt_status make_other(struct dyti_switch *self)
{
    struct dyti_switch_params params = self->params;

    if (mode_of(&params) != DYTI_MODE_DOUBLE || params.is_other) {
        return DYT_OK;
    }
    params.is_other = true;
    return dyti_switch_create(&params, &self->other);
}

struct dyti_switch *dyti_mode_live(struct dyti_switch *self)
{
    uint32_t sets = atomic_load(&self->params.control->sets);

    return self->other != NULL && (sets >> DYTI_ARENA_ROLLOUT & 1u) != 0
               ? self->other
               : self;
}

/* ---- regions ---------------------------------------------------------------
 */

static void find_regions(struct dyti_switch *self)
{
    const struct dyti_plan_inputs *inputs = &self->params.plan->plan->inputs;

    for (uint32_t w = 0; w < inputs->want_count; w++) {
        const struct dyti_plan_want *want = &inputs->want[w];

        self->filled |= dyti_region_bit(inputs->dst_slot, want->kind);
        for (uint32_t s = 0; s < want->source_count; s++) {
            self->read |=
                dyti_region_bit(want->source[s].slot, want->source[s].kind);
        }
    }
}

/* Regions of other layouts that lie, on this rank, where it will write. */
static void find_overlaid(struct dyti_switch *self)
{
    const struct dyti_arena_map *map = &self->params.map[self->params.rank];

    for (uint32_t i = 0; i < DYTI_ARENA_SLOT_COUNT * DYTI_KIND_COUNT; i++) {
        uint32_t slot = i / DYTI_KIND_COUNT, kind = i % DYTI_KIND_COUNT;
        uint64_t lo = map->offset[slot][kind];
        uint64_t hi = lo + map->bytes[slot][kind];

        for (uint32_t k = 0; k < DYTI_KIND_COUNT; k++) {
            uint64_t to = map->offset[self->params.to][k];

            if ((self->filled & dyti_region_bit(self->params.to, k)) != 0 &&
                slot != (uint32_t)self->params.to && lo < hi &&
                map->bytes[self->params.to][k] > 0 &&
                lo < to + map->bytes[self->params.to][k] && to < hi) {
                self->overlaid |= dyti_region_bit(slot, kind);
            }
        }
    }
}

/* One copy per region that a staged switch fills. */
static void add_commit_copies(struct dyti_switch *self)
{
    if (self->params.address != NULL) { /* only the caller knows them */
        self->commit = self->params.commit;
        self->commit_count = self->params.commit_count;
        return;
    }
    self->commit = self->region_copy;
    self->commit_count =
        dyti_staged_copies(&self->params.map[self->params.rank],
                           self->params.segment[self->params.rank],
                           self->filled, self->region_copy);
}

enum dyt_status dyti_mode_init(struct dyti_switch *self)
{
    find_regions(self);
    if (mode_of(&self->params) == DYTI_MODE_STAGED &&
        self->params.from != self->params.to) {
        add_commit_copies(self);
    }
    if (mode_of(&self->params) == DYTI_MODE_IN_PLACE) {
        find_overlaid(self);
    }
    self->fingerprint = dyti_fingerprint_u64(
        dyti_fingerprint_u64(self->params.plan->fingerprint,
                             mode_of(&self->params)),
        dyti_in_place_fingerprint(self));
    return make_other(self);
}

/* ---- a run ------------------------------------------------------------------
 */

/* Each rank looks at its own regions before the ranks meet, where it hears of
 * the others': those may lose theirs as soon as they have met. */
enum dyt_status dyti_mode_check(const struct dyti_switch *self)
{
    const struct dyti_control_page *page = self->params.control;
    uint32_t rank = self->params.rank;
    uint64_t asleep = atomic_load(&page->rank[rank].asleep);

    if ((asleep & (self->filled | self->read)) != 0) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "wrong phase: rank %u sleeps, memory that the switch "
                         "from %s to %s needs is released: restore it first",
                         rank, dyti_arena_slot_name(self->params.from),
                         dyti_arena_slot_name(self->params.to));
    }
    /* to heal, only what is whole is planned to be read */
    return self->params.plan->plan->inputs.heals
               ? DYT_OK
               : dyti_control_check_rank(page, rank, self->read);
}

void dyti_mode_begin(struct dyti_switch *self, uint64_t epoch)
{
    struct dyti_control_page *page = self->params.control;
    struct dyti_control_rank *rank = &page->rank[self->params.rank];
    uint32_t sets = atomic_load(&page->sets);

    (void)epoch;
    if (mode_of(&self->params) == DYTI_MODE_DOUBLE && flips(&self->params)) {
        sets ^= 1u << DYTI_ARENA_ROLLOUT;
    }
    atomic_store(&page->next_sets, sets); /* every rank the same */
    atomic_store(&rank->staged_epoch, 0); /* scratch is written anew */
}

void dyti_mode_verified(struct dyti_switch *self, uint64_t epoch)
{
    struct dyti_control_rank *rank =
        &self->params.control->rank[self->params.rank];

    if (self->commit_count > 0) {
        atomic_store(&rank->staged, self->filled);
        atomic_store(&rank->staged_epoch, epoch);
    }
}

void dyti_mode_overwrites(struct dyti_switch *self, uint64_t epoch)
{
    uint64_t held = 0;

    for (uint32_t kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        if (self->params.map[self->params.rank].bytes[self->params.to][kind] >
            0) {
            held |= dyti_region_bit(self->params.to, kind);
        }
    }
    dyti_control_lose(self->params.control, self->params.rank, epoch,
                      (self->filled & held) | self->overlaid);
}

/* What a commit copies, wholly. */
static enum dyt_status copy_over(struct dyti_switch *self)
{
    const struct dyti_kernels *k = &self->params.kernels;
    enum dyt_status st =
        self->queue != NULL
            ? k->ops->list_run(k->self, self->queue->commit)
            : k->ops->copy(k->self, self->commit, self->commit_count);

    return st == DYT_OK ? dyti_kernels_wait(k) : st;
}

enum dyt_status dyti_mode_commit(struct dyti_switch *self, uint64_t epoch,
                                 dyti_mode_half_fn half, void *arg)
{
    struct dyti_control_page *page = self->params.control;
    uint32_t rank = self->params.rank;
    enum dyt_status st;

    if (self->commit_count > 0) {
        dyti_control_lose(page, rank, epoch, self->filled);
        st = half == NULL ? DYT_OK : half(arg);
        st = st != DYT_OK ? st : copy_over(self);
        if (st != DYT_OK) {
            DYTI_NOTE("copying what switch %llu has committed into place: rank "
                      "%u is INVALID until it is healed from its staged bytes",
                      (unsigned long long)epoch, rank);
            return st;
        }
        atomic_store(&page->rank[rank].staged_epoch, 0);
    }
    dyti_control_heal(page, rank, self->filled);
    return DYT_OK;
}

/* ---- staged bytes -----------------------------------------------------------
 */

uint32_t dyti_staged_copies(const struct dyti_arena_map *map, void *base,
                            uint64_t regions,
                            struct dyti_copy out[DYTI_KIND_COUNT])
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < DYTI_ARENA_SLOT_COUNT * DYTI_KIND_COUNT; i++) {
        uint32_t slot = i / DYTI_KIND_COUNT, kind = i % DYTI_KIND_COUNT;
        uint64_t bytes = map->bytes[slot][kind];

        if ((regions & dyti_region_bit(slot, kind)) == 0 || bytes == 0 ||
            map->offset1[slot][kind] == map->offset[slot][kind]) {
            continue;
        }
        out[count++] = (struct dyti_copy){
            .src = (unsigned char *)base + map->offset1[slot][kind],
            .dst = (unsigned char *)base + map->offset[slot][kind],
            .size = {1, 1, 1, (int64_t)((bytes + 1) / 2)},
            .src_stride = {0, 0, 0, 2},
            .dst_stride = {0, 0, 0, 2},
            .src_dtype = DYTI_BF16, /* any type of two bytes */
            .dst_dtype = DYTI_BF16};
    }
    return count;
}

enum dyt_status dyti_switch_heal_staged(struct dyti_control_page *page,
                                        uint32_t rank,
                                        const struct dyti_arena_map *map,
                                        void *base,
                                        const struct dyti_kernels *kernels)
{
    struct dyti_control_rank *of = &page->rank[rank];
    uint64_t epoch = atomic_load(&of->staged_epoch);
    uint64_t regions = atomic_load(&of->staged);
    struct dyti_copy copy[DYTI_KIND_COUNT];
    uint32_t count;
    enum dyt_status st;

    if (epoch == 0 ||
        atomic_load(&page->decision) != (epoch << 8 | DYTI_DECISION_COMMIT)) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "rank %u has no staged bytes of a committed switch",
                         rank);
    }
    count = dyti_staged_copies(map, base, regions, copy);
    st = kernels->ops->copy(kernels->self, copy, count);
    st = st == DYT_OK ? dyti_kernels_wait(kernels) : st;
    if (st != DYT_OK) {
        DYTI_NOTE("healing rank %u from the staged bytes of switch %llu", rank,
                  (unsigned long long)epoch);
        return st;
    }
    atomic_store(&of->staged_epoch, 0);
    dyti_control_heal(page, rank, regions);
    atomic_store(&of->serves, atomic_load(&page->version));
    return DYT_OK;
}
