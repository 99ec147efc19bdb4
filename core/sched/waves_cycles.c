/* What is staged where nothing can go otherwise, and where it lies. */
#include "sched/waves_internal.h"

#include "base/array.h"
#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

/* ---- room ------------------------------------------------------------------
 */

/* First fit; false: there is none. */
static enum dyt_status take_room(struct dyti_wave_room *room, uint64_t bytes,
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

void dyti_wave_give_room(struct dyti_wave_room *room, uint32_t item)
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

/* ---- what is staged ---------------------------------------------------------
 */

static enum dyt_status stage(struct dyti_wave_run *r, uint32_t i,
                             bool *out_taken)
{
    const struct dyti_wave_item *it = &r->g->item[i];
    enum dyt_status st = take_room(&r->room[it->dst_rank], it->staged_bytes,
                                   r->cap_bytes, i, out_taken, &r->place[i]);

    if (st != DYT_OK || !*out_taken) {
        return st;
    }
    r->state[i] = DYTI_WAVE_STAGED;
    return dyti_wave_act(r, i, DYTI_WAVE_STAGE);
}

/* Bytes to stage so that item i can be written. */
static uint64_t need_of(const struct dyti_wave_run *r, uint32_t i)
{
    const struct dyti_wave_graph *g = r->g;
    bool itself = r->state[i] == DYTI_WAVE_WAITS && g->self[i];
    uint64_t need = itself ? g->item[i].staged_bytes : 0;

    for (size_t e = g->first[i]; e < g->first[i + 1]; e++) {
        uint32_t w = g->waits[e];

        need += r->state[w] == DYTI_WAVE_WAITS ? g->item[w].staged_bytes : 0;
    }
    return need;
}

/* What is staged for item i, or nothing if the room does not suffice. */
static enum dyt_status stage_for(struct dyti_wave_run *r, uint32_t i,
                                 bool *out_staged)
{
    const struct dyti_wave_graph *g = r->g;
    size_t actions = r->out->action_count;
    bool fits = true;
    enum dyt_status st = DYT_OK;

    for (size_t e = g->first[i]; e < g->first[i + 1] && fits && st == DYT_OK;
         e++) {
        if (r->state[g->waits[e]] == DYTI_WAVE_WAITS) {
            st = stage(r, g->waits[e], &fits);
        }
    }
    if (st == DYT_OK && fits && r->state[i] == DYTI_WAVE_WAITS && g->self[i]) {
        st = stage(r, i, &fits);
    }
    while (st == DYT_OK && !fits && r->out->action_count > actions) {
        uint32_t back = r->out->action[--r->out->action_count].item;

        r->state[back] = DYTI_WAVE_WAITS;
        dyti_wave_give_room(&r->room[g->item[back].dst_rank], back);
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

enum dyt_status dyti_wave_break_cycles(struct dyti_wave_run *r)
{
    const struct dyti_wave_graph *g = r->g;
    struct target *target = calloc(g->count + 1, sizeof(*target));
    size_t count = 0, done = 0;
    enum dyt_status st = DYT_OK;

    if (target == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu items", g->count);
    }
    for (uint32_t i = 0; i < g->count; i++) {
        if (r->state[i] != DYTI_WAVE_DONE) {
            target[count++] =
                (struct target){.need = need_of(r, i),
                                .item = i,
                                .staged = r->state[i] == DYTI_WAVE_STAGED};
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
