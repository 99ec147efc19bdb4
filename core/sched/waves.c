/* Finds out who waits for whom, then goes wave by wave. */
#include "sched/waves_internal.h"

#include "base/array.h"

#include <stdlib.h>

void dyti_waves_fini(struct dyti_waves *waves)
{
    free(waves->action);
    free(waves->wave_first);
    *waves = (struct dyti_waves){0};
}

enum dyt_status dyti_wave_act(struct dyti_wave_run *r, uint32_t item,
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
static enum dyt_status go_ready(struct dyti_wave_run *r)
{
    size_t kept = 0;
    enum dyt_status st = DYT_OK;

    for (size_t k = 0; k < r->ready_count && st == DYT_OK; k++) {
        uint32_t i = r->ready[k];

        if (r->state[i] == DYTI_WAVE_STAGED) {
            st = dyti_wave_act(r, i, DYTI_WAVE_UNSTAGE);
        } else if (r->g->self[i]) {
            r->ready[kept++] = i;
        } else {
            st = dyti_wave_act(r, i, DYTI_WAVE_DIRECT);
        }
    }
    r->ready_count = kept;
    return st;
}

static enum dyt_status add_ready(struct dyti_wave_run *r, uint32_t i)
{
    if (r->pending[i] == 0 && r->state[i] != DYTI_WAVE_DONE) {
        r->ready[r->ready_count++] = i;
    }
    return DYT_OK;
}

/* The actions of the wave that ends: what they have read nobody waits for. */
static void end_wave(struct dyti_wave_run *r, size_t first)
{
    const struct dyti_wave_graph *g = r->g;

    for (size_t a = first; a < r->out->action_count; a++) {
        const struct dyti_wave_action *action = &r->out->action[a];
        uint32_t i = action->item;

        if (action->what != DYTI_WAVE_STAGE) {
            r->state[i] = DYTI_WAVE_DONE;
            r->done++;
        }
        if (action->what == DYTI_WAVE_UNSTAGE) {
            dyti_wave_give_room(&r->room[g->item[i].dst_rank], i);
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

static enum dyt_status add_wave(struct dyti_wave_run *r)
{
    enum dyt_status st =
        DYTI_GROW(r->out->wave_first, r->wave_cap, r->out->wave_count + 2);

    if (st == DYT_OK) {
        r->out->wave_first[r->out->wave_count++] = r->out->action_count;
        r->out->wave_first[r->out->wave_count] = r->out->action_count;
    }
    return st;
}

static enum dyt_status go(struct dyti_wave_run *r)
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
            st = dyti_wave_break_cycles(r);
        }
        if (st == DYT_OK) {
            r->out->wave_first[r->out->wave_count] = r->out->action_count;
            end_wave(r, first);
        }
    }
    return st;
}

/* *out_stuck: the cap cannot be met, and *out_waves is empty. */
static enum dyt_status try_cap(const struct dyti_wave_graph *g,
                               uint64_t cap_bytes, struct dyti_waves *out_waves,
                               bool *out_stuck)
{
    struct dyti_waves waves = {0};
    struct dyti_wave_run r = {.g = g, .cap_bytes = cap_bytes, .out = &waves};
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

static enum dyt_status meets(const struct dyti_wave_graph *g,
                             uint64_t cap_bytes, bool *out_meets)
{
    struct dyti_waves waves;
    bool stuck = false;
    enum dyt_status st = try_cap(g, cap_bytes, &waves, &stuck);

    dyti_waves_fini(&waves);
    *out_meets = !stuck;
    return st;
}

/* Doubling, then halving. */
static enum dyt_status smallest(const struct dyti_wave_graph *g,
                                uint64_t *out_cap)
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
    struct dyti_wave_graph g;
    enum dyt_status st = dyti_wave_graph_init(&g, item, item_count, world_size);

    if (st == DYT_OK) {
        st = smallest(&g, out_cap_bytes);
        dyti_wave_graph_fini(&g);
    }
    return st;
}

enum dyt_status dyti_waves_try(const struct dyti_wave_item *item,
                               size_t item_count, uint32_t world_size,
                               uint64_t cap_bytes, bool *out_fits,
                               struct dyti_waves *out_waves)
{
    struct dyti_wave_graph g;
    bool stuck = false;
    enum dyt_status st = dyti_wave_graph_init(&g, item, item_count, world_size);

    if (st != DYT_OK) {
        return st;
    }
    st = try_cap(&g, cap_bytes, out_waves, &stuck);
    dyti_wave_graph_fini(&g);
    *out_fits = st == DYT_OK && !stuck;
    return st;
}

enum dyt_status dyti_waves_build(const struct dyti_wave_item *item,
                                 size_t item_count, uint32_t world_size,
                                 uint64_t cap_bytes,
                                 struct dyti_waves *out_waves)
{
    struct dyti_waves waves = {0};
    struct dyti_wave_graph g;
    bool stuck = false;
    enum dyt_status st = dyti_wave_graph_init(&g, item, item_count, world_size);

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
    dyti_wave_graph_fini(&g);
    if (st != DYT_OK) {
        dyti_waves_fini(&waves);
        return st;
    }
    *out_waves = waves;
    return DYT_OK;
}
