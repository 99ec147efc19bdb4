/* Finds out who waits for whom, then goes wave by wave. */
#include "sched/waves.h"

#include "base/array.h"
#include "base/checked.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void dyti_waves_fini(struct dyti_waves *waves)
{
    free(waves->action);
    free(waves->wave_first);
    *waves = (struct dyti_waves){0};
}

/* ---- who waits for whom -----------------------------------------------------
 */

/* An item as a reader of its source's memory. */
struct reader {
    uint64_t lo, hi;
    uint64_t reach; /* largest hi of this and all before it on its rank */
    uint32_t item;
};

/* Item i waits until those in waits[first[i] … first[i + 1]) have read. */
struct graph {
    const struct dyti_wave_item *item;
    size_t count;
    uint32_t world_size;
    struct reader *reader; /* [count], by rank, lo */
    size_t *reader_first;  /* [world_size + 1] */
    size_t *first;         /* [count + 1] */
    uint32_t *waits;       /* [edge_count] */
    size_t *follow_first;  /* [count + 1]: the other way round */
    uint32_t *follow;      /* [edge_count]: who waits for it */
    bool *self;            /* [count] reads where it writes */
    size_t edge_count, edge_cap;
};

static void graph_fini(struct graph *g)
{
    free(g->reader);
    free(g->reader_first);
    free(g->first);
    free(g->waits);
    free(g->follow_first);
    free(g->follow);
    free(g->self);
    *g = (struct graph){0};
}

static int by_lo(const void *a, const void *b)
{
    const struct reader *x = a, *y = b;

    if (x->lo != y->lo) {
        return x->lo < y->lo ? -1 : 1;
    }
    return (x->item > y->item) - (x->item < y->item);
}

static enum dyt_status check_items(const struct graph *g)
{
    for (size_t i = 0; i < g->count; i++) {
        const struct dyti_wave_item *it = &g->item[i];

        if (it->src_rank >= g->world_size || it->dst_rank >= g->world_size ||
            it->src_lo >= it->src_hi || it->dst_lo >= it->dst_hi ||
            it->staged_bytes == 0) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "item %zu of rank %u to rank %u in a world of %u",
                             i, it->src_rank, it->dst_rank, g->world_size);
        }
    }
    return DYT_OK;
}

static void sort_readers(struct graph *g)
{
    size_t at[2];

    for (size_t i = 0; i < g->count; i++) {
        g->reader_first[g->item[i].src_rank + 1]++;
    }
    for (uint32_t r = 0; r < g->world_size; r++) {
        g->reader_first[r + 1] += g->reader_first[r];
    }
    for (size_t i = g->count; i-- > 0;) { /* fills each rank from its end */
        const struct dyti_wave_item *it = &g->item[i];

        g->reader[--g->reader_first[it->src_rank + 1]] = (struct reader){
            .lo = it->src_lo, .hi = it->src_hi, .item = (uint32_t)i};
    }
    /* now reader_first[r + 1] is where rank r begins */
    for (uint32_t r = 0; r < g->world_size; r++) {
        g->reader_first[r] = g->reader_first[r + 1];
    }
    g->reader_first[g->world_size] = g->count;
    for (uint32_t r = 0; r < g->world_size; r++) {
        uint64_t reach = 0;

        at[0] = g->reader_first[r];
        at[1] = g->reader_first[r + 1];
        qsort(g->reader + at[0], at[1] - at[0], sizeof(*g->reader), by_lo);
        for (size_t i = at[0]; i < at[1]; i++) {
            reach = g->reader[i].hi > reach ? g->reader[i].hi : reach;
            g->reader[i].reach = reach;
        }
    }
}

/* First reader of [from, to) whose lo is not below `lo`. */
static size_t lower(const struct graph *g, size_t from, size_t to, uint64_t lo)
{
    while (from < to) {
        size_t mid = from + (to - from) / 2;

        if (g->reader[mid].lo < lo) {
            from = mid + 1;
        } else {
            to = mid;
        }
    }
    return from;
}

static enum dyt_status add_waits(struct graph *g, uint32_t i)
{
    const struct dyti_wave_item *it = &g->item[i];
    size_t lo = g->reader_first[it->dst_rank];
    size_t at = lower(g, lo, g->reader_first[it->dst_rank + 1], it->dst_hi);

    g->first[i] = g->edge_count;
    while (at-- > lo && g->reader[at].reach > it->dst_lo) {
        enum dyt_status st;

        if (g->reader[at].hi <= it->dst_lo) {
            continue;
        }
        if (g->reader[at].item == i) {
            g->self[i] = true;
            continue;
        }
        st = DYTI_GROW(g->waits, g->edge_cap, g->edge_count + 1);
        if (st != DYT_OK) {
            return st;
        }
        g->waits[g->edge_count++] = g->reader[at].item;
    }
    return DYT_OK;
}

static enum dyt_status add_followers(struct graph *g)
{
    g->follow = calloc(g->edge_count + 1, sizeof(*g->follow));
    if (g->follow == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu waits", g->edge_count);
    }
    for (size_t e = 0; e < g->edge_count; e++) {
        g->follow_first[g->waits[e] + 1]++;
    }
    for (size_t i = 0; i < g->count; i++) {
        g->follow_first[i + 1] += g->follow_first[i];
    }
    for (size_t i = g->count; i-- > 0;) {
        for (size_t e = g->first[i]; e < g->first[i + 1]; e++) {
            g->follow[--g->follow_first[g->waits[e] + 1]] = (uint32_t)i;
        }
    }
    for (size_t i = 0; i < g->count; i++) {
        g->follow_first[i] = g->follow_first[i + 1];
    }
    g->follow_first[g->count] = g->edge_count;
    return DYT_OK;
}

static enum dyt_status graph_init(struct graph *g,
                                  const struct dyti_wave_item *item,
                                  size_t count, uint32_t world_size)
{
    enum dyt_status st;

    *g = (struct graph){.item = item, .count = count, .world_size = world_size};
    g->reader = calloc(count + 1, sizeof(*g->reader));
    g->reader_first = calloc((size_t)world_size + 1, sizeof(size_t));
    g->first = calloc(count + 1, sizeof(*g->first));
    g->follow_first = calloc(count + 1, sizeof(*g->follow_first));
    g->self = calloc(count + 1, sizeof(*g->self));
    if (g->reader == NULL || g->reader_first == NULL || g->first == NULL ||
        g->follow_first == NULL || g->self == NULL || count > UINT32_MAX) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "waves of %zu items", count);
        goto out;
    }
    st = check_items(g);
    if (st != DYT_OK) {
        goto out;
    }
    sort_readers(g);
    for (uint32_t i = 0; i < count && st == DYT_OK; i++) {
        st = add_waits(g, i);
    }
    g->first[count] = g->edge_count;
    st = st != DYT_OK ? st : add_followers(g);
out:
    if (st != DYT_OK) {
        graph_fini(g);
    }
    return st;
}

/* ---- room -------------------------------------------------------------------
 */

/* Places taken in one rank's staging memory, by offset. */
struct room {
    struct place {
        uint64_t lo, hi;
        uint32_t item;
    } * place;
    size_t count, cap;
    uint64_t peak;
};

/* First fit; false: there is none. */
static enum dyt_status take_room(struct room *room, uint64_t bytes,
                                 uint64_t cap_bytes, uint32_t item,
                                 bool *out_taken, uint64_t *out_offset)
{
    uint64_t lo = 0, size = dyti_align_up(bytes, DYTI_WAVE_ALIGN);
    size_t at = 0;
    enum dyt_status st;

    *out_taken = false;
    while (at < room->count && room->place[at].lo - lo < size) {
        lo = room->place[at++].hi;
    }
    if (lo > cap_bytes || size > cap_bytes - lo) {
        return DYT_OK;
    }
    st = DYTI_GROW(room->place, room->cap, room->count + 1);
    if (st != DYT_OK) {
        return st;
    }
    memmove(room->place + at + 1, room->place + at,
            (room->count - at) * sizeof(*room->place));
    room->place[at] = (struct place){lo, lo + size, item};
    room->count++;
    room->peak = lo + size > room->peak ? lo + size : room->peak;
    *out_taken = true;
    *out_offset = lo;
    return DYT_OK;
}

static void give_room(struct room *room, uint32_t item)
{
    for (size_t i = 0; i < room->count; i++) {
        if (room->place[i].item == item) {
            memmove(room->place + i, room->place + i + 1,
                    (room->count - i - 1) * sizeof(*room->place));
            room->count--;
            return;
        }
    }
}

/* ---- waves ------------------------------------------------------------------
 */

enum state { WAITS, STAGED, DONE };

struct run {
    const struct graph *g;
    uint64_t cap_bytes;
    uint8_t *state;    /* [count] */
    uint32_t *pending; /* [count] readers that have not read yet */
    uint64_t *place;   /* [count] staging offset */
    struct room *room; /* [world_size] */
    uint32_t *ready;   /* [count] pending == 0, not done: a list */
    size_t ready_count;
    size_t done;
    struct dyti_waves *out;
    size_t action_cap, wave_cap;
    bool stuck;
};

static enum dyt_status act(struct run *r, uint32_t item,
                           enum dyti_wave_what what)
{
    struct dyti_waves *out = r->out;
    enum dyt_status st =
        DYTI_GROW(out->action, r->action_cap, out->action_count + 1);

    if (st == DYT_OK) {
        out->action[out->action_count++] = (struct dyti_wave_action){
            item, what, what == DYTI_WAVE_DIRECT ? 0 : r->place[item]};
    }
    return st;
}

/* All that can go without room.  The list keeps what cannot yet: an item that
 * overwrites what itself reads is staged first. */
static enum dyt_status go_ready(struct run *r)
{
    size_t kept = 0;
    enum dyt_status st = DYT_OK;

    for (size_t k = 0; k < r->ready_count && st == DYT_OK; k++) {
        uint32_t i = r->ready[k];

        if (r->state[i] == STAGED) {
            st = act(r, i, DYTI_WAVE_UNSTAGE);
        } else if (r->g->self[i]) {
            r->ready[kept++] = i;
        } else {
            st = act(r, i, DYTI_WAVE_DIRECT);
        }
    }
    r->ready_count = kept;
    return st;
}

static enum dyt_status stage(struct run *r, uint32_t i, bool *out_taken)
{
    const struct dyti_wave_item *it = &r->g->item[i];
    enum dyt_status st = take_room(&r->room[it->dst_rank], it->staged_bytes,
                                   r->cap_bytes, i, out_taken, &r->place[i]);

    if (st != DYT_OK || !*out_taken) {
        return st;
    }
    r->state[i] = STAGED;
    return act(r, i, DYTI_WAVE_STAGE);
}

/* Bytes to stage so that item i can be written. */
static uint64_t need_of(const struct run *r, uint32_t i)
{
    const struct graph *g = r->g;
    bool itself = r->state[i] == WAITS && g->self[i];
    uint64_t need = itself ? g->item[i].staged_bytes : 0;

    for (size_t e = g->first[i]; e < g->first[i + 1]; e++) {
        uint32_t w = g->waits[e];

        need += r->state[w] == WAITS ? g->item[w].staged_bytes : 0;
    }
    return need;
}

/* What is staged for item i, or nothing if the room does not suffice. */
static enum dyt_status stage_for(struct run *r, uint32_t i, bool *out_staged)
{
    const struct graph *g = r->g;
    size_t actions = r->out->action_count;
    bool fits = true;
    enum dyt_status st = DYT_OK;

    for (size_t e = g->first[i]; e < g->first[i + 1] && fits && st == DYT_OK;
         e++) {
        if (r->state[g->waits[e]] == WAITS) {
            st = stage(r, g->waits[e], &fits);
        }
    }
    if (st == DYT_OK && fits && r->state[i] == WAITS && g->self[i]) {
        st = stage(r, i, &fits);
    }
    while (st == DYT_OK && !fits && r->out->action_count > actions) {
        uint32_t back = r->out->action[--r->out->action_count].item;

        r->state[back] = WAITS;
        give_room(&r->room[g->item[back].dst_rank], back);
    }
    *out_staged = fits && r->out->action_count > actions;
    return st;
}

struct target {
    uint64_t need;
    uint32_t item;
    bool staged; /* writing it gives room back */
};

static int by_need(const void *a, const void *b)
{
    const struct target *x = a, *y = b;

    if (x->need != y->need) {
        return x->need < y->need ? -1 : 1;
    }
    if (x->staged != y->staged) {
        return x->staged ? -1 : 1;
    }
    return (x->item > y->item) - (x->item < y->item);
}

/* Nothing can go: stage for the cheapest, then for more while there is room. */
static enum dyt_status break_cycles(struct run *r)
{
    const struct graph *g = r->g;
    struct target *target = calloc(g->count + 1, sizeof(*target));
    size_t count = 0, done = 0;
    enum dyt_status st = DYT_OK;

    if (target == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu items", g->count);
    }
    for (uint32_t i = 0; i < g->count; i++) {
        if (r->state[i] != DONE) {
            target[count++] = (struct target){.need = need_of(r, i),
                                              .item = i,
                                              .staged = r->state[i] == STAGED};
        }
    }
    qsort(target, count, sizeof(*target), by_need);
    for (size_t k = 0; k < count && st == DYT_OK; k++) {
        bool staged = false;

        if (done > 0 && need_of(r, target[k].item) == 0) {
            continue; /* what was staged already lets it go */
        }
        st = stage_for(r, target[k].item, &staged);
        done += staged;
    }
    r->stuck = done == 0;
    free(target);
    return st;
}

static enum dyt_status add_ready(struct run *r, uint32_t i)
{
    if (r->pending[i] == 0 && r->state[i] != DONE) {
        r->ready[r->ready_count++] = i;
    }
    return DYT_OK;
}

/* The actions of the wave that ends: what they have read nobody waits for. */
static void end_wave(struct run *r, size_t first)
{
    const struct graph *g = r->g;

    for (size_t a = first; a < r->out->action_count; a++) {
        const struct dyti_wave_action *action = &r->out->action[a];
        uint32_t i = action->item;

        if (action->what != DYTI_WAVE_STAGE) {
            r->state[i] = DONE;
            r->done++;
        }
        if (action->what == DYTI_WAVE_UNSTAGE) {
            give_room(&r->room[g->item[i].dst_rank], i);
            continue;
        }
        if (action->what == DYTI_WAVE_STAGE) {
            r->out->staged_bytes += g->item[i].staged_bytes;
        }
        for (size_t e = g->follow_first[i]; e < g->follow_first[i + 1]; e++) {
            if (--r->pending[g->follow[e]] == 0) {
                (void)add_ready(r, g->follow[e]);
            }
        }
    }
}

static enum dyt_status add_wave(struct run *r)
{
    enum dyt_status st =
        DYTI_GROW(r->out->wave_first, r->wave_cap, r->out->wave_count + 2);

    if (st == DYT_OK) {
        r->out->wave_first[r->out->wave_count++] = r->out->action_count;
        r->out->wave_first[r->out->wave_count] = r->out->action_count;
    }
    return st;
}

static enum dyt_status go(struct run *r)
{
    enum dyt_status st = DYTI_GROW(r->out->wave_first, r->wave_cap, 1);

    if (st == DYT_OK) {
        r->out->wave_first[0] = 0;
    }
    for (uint32_t i = 0; i < r->g->count && st == DYT_OK; i++) {
        r->pending[i] = (uint32_t)(r->g->first[i + 1] - r->g->first[i]);
        st = add_ready(r, i);
    }
    while (st == DYT_OK && r->done < r->g->count && !r->stuck) {
        size_t first = r->out->action_count;

        st = add_wave(r);
        st = st != DYT_OK ? st : go_ready(r);
        if (st == DYT_OK && r->out->action_count == first) {
            st = break_cycles(r);
        }
        if (st == DYT_OK) {
            r->out->wave_first[r->out->wave_count] = r->out->action_count;
            end_wave(r, first);
        }
    }
    return st;
}

/* *out_stuck: the cap cannot be met, and *out_waves is empty. */
static enum dyt_status try_cap(const struct graph *g, uint64_t cap_bytes,
                               struct dyti_waves *out_waves, bool *out_stuck)
{
    struct dyti_waves waves = {0};
    struct run r = {.g = g, .cap_bytes = cap_bytes, .out = &waves};
    enum dyt_status st = DYT_OK;

    r.state = calloc(g->count + 1, sizeof(*r.state));
    r.pending = calloc(g->count + 1, sizeof(*r.pending));
    r.place = calloc(g->count + 1, sizeof(*r.place));
    /* an item that has to be staged first is in the list twice */
    r.ready = calloc(2 * g->count + 1, sizeof(*r.ready));
    r.room = calloc((size_t)g->world_size + 1, sizeof(*r.room));
    if (r.state == NULL || r.pending == NULL || r.place == NULL ||
        r.ready == NULL || r.room == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "waves of %zu items", g->count);
    } else {
        st = go(&r);
    }
    for (uint32_t i = 0; r.room != NULL && i < g->world_size; i++) {
        waves.peak_bytes = r.room[i].peak > waves.peak_bytes ? r.room[i].peak
                                                             : waves.peak_bytes;
        free(r.room[i].place);
    }
    free(r.state);
    free(r.pending);
    free(r.place);
    free(r.ready);
    free(r.room);
    if (st != DYT_OK || r.stuck) {
        dyti_waves_fini(&waves);
    }
    *out_stuck = r.stuck;
    *out_waves = waves;
    return st;
}

static enum dyt_status meets(const struct graph *g, uint64_t cap_bytes,
                             bool *out_meets)
{
    struct dyti_waves waves;
    bool stuck = false;
    enum dyt_status st = try_cap(g, cap_bytes, &waves, &stuck);

    dyti_waves_fini(&waves);
    *out_meets = !stuck;
    return st;
}

/* Doubling, then halving. */
static enum dyt_status smallest(const struct graph *g, uint64_t *out_cap)
{
    uint64_t lo = 0, hi = 0; /* in units of DYTI_WAVE_ALIGN; lo: too small */
    bool enough = false;
    enum dyt_status st = meets(g, 0, &enough);

    if (st != DYT_OK || enough) {
        *out_cap = 0;
        return st;
    }
    for (hi = 1; st == DYT_OK; hi *= 2) {
        st = meets(g, hi * DYTI_WAVE_ALIGN, &enough);
        if (st == DYT_OK && enough) {
            break;
        }
        lo = hi;
    }
    while (st == DYT_OK && hi - lo > 1) {
        uint64_t mid = lo + (hi - lo) / 2;

        st = meets(g, mid * DYTI_WAVE_ALIGN, &enough);
        lo = enough ? lo : mid;
        hi = enough ? mid : hi;
    }
    *out_cap = hi * DYTI_WAVE_ALIGN;
    return st;
}

enum dyt_status dyti_waves_smallest(const struct dyti_wave_item *item,
                                    size_t item_count, uint32_t world_size,
                                    uint64_t *out_cap_bytes)
{
    struct graph g;
    enum dyt_status st = graph_init(&g, item, item_count, world_size);

    if (st == DYT_OK) {
        st = smallest(&g, out_cap_bytes);
        graph_fini(&g);
    }
    return st;
}

enum dyt_status dyti_waves_try(const struct dyti_wave_item *item,
                               size_t item_count, uint32_t world_size,
                               uint64_t cap_bytes, bool *out_fits,
                               struct dyti_waves *out_waves)
{
    struct graph g;
    bool stuck = false;
    enum dyt_status st = graph_init(&g, item, item_count, world_size);

    if (st != DYT_OK) {
        return st;
    }
    st = try_cap(&g, cap_bytes, out_waves, &stuck);
    graph_fini(&g);
    *out_fits = st == DYT_OK && !stuck;
    return st;
}

enum dyt_status dyti_waves_build(const struct dyti_wave_item *item,
                                 size_t item_count, uint32_t world_size,
                                 uint64_t cap_bytes,
                                 struct dyti_waves *out_waves)
{
    struct dyti_waves waves = {0};
    struct graph g;
    bool stuck = false;
    enum dyt_status st = graph_init(&g, item, item_count, world_size);

    if (st != DYT_OK) {
        return st;
    }
    st = try_cap(&g, cap_bytes, &waves, &stuck);
    if (st == DYT_OK && stuck) {
        uint64_t cap = 0;

        st = smallest(&g, &cap);
        if (st == DYT_OK && cap < cap_bytes) { /* more room misled it */
            st = try_cap(&g, cap, &waves, &stuck);
        } else if (st == DYT_OK) {
            st = DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                           "%zu copies over each other cannot go with %llu "
                           "bytes of staging memory: the smallest cap that "
                           "works is %llu",
                           item_count, (unsigned long long)cap_bytes,
                           (unsigned long long)cap);
        }
    }
    graph_fini(&g);
    if (st != DYT_OK) {
        dyti_waves_fini(&waves);
        return st;
    }
    *out_waves = waves;
    return DYT_OK;
}
