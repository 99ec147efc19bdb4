/* Builds the tapes: which streams lie on which, who serves how much. */
#include "plan/tapes.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

static uint64_t class_bytes(const struct dyti_common *atoms,
                            const struct dyti_common_class *c)
{
    return c->elements * atoms->group[c->group].write_all;
}

/* Put `bytes` behind what lies on the tape of `set`; says where. */
static enum dyt_status put(struct dyti_tape_deck *deck, uint32_t set,
                           uint64_t bytes, uint64_t *out_at)
{
    if (deck->of_set[set] == 0) {
        enum dyt_status st =
            DYTI_GROW(deck->tape, deck->tape_cap, deck->tape_count + 1);

        if (st != DYT_OK) {
            return st;
        }
        deck->tape[deck->tape_count++] = (struct dyti_tape){.set = set};
        deck->of_set[set] = (uint32_t)deck->tape_count;
    }
    *out_at = deck->tape[deck->of_set[set] - 1].bytes;
    deck->tape[deck->of_set[set] - 1].bytes += bytes;
    return DYT_OK;
}

/* Ranks of a run that do not hold the class already. */
static uint32_t count_wanting(const struct dyti_tapes *t,
                              const struct dyti_rank_set *d,
                              const struct dyti_host_run *run)
{
    const uint32_t *rank = t->atoms->sets.rank + d->first + run->first;
    uint32_t count = 0;

    for (uint32_t i = 0; i < run->count; i++) {
        count += t->rank_mark[rank[i]] != t->mark;
    }
    return count;
}

/* Lay the streams of a class on the tapes. */
static enum dyt_status place_class(struct dyti_tapes *t, uint32_t at)
{
    const struct dyti_common_class *c = &t->atoms->class[at];
    const struct dyti_sets *sets = &t->atoms->sets;
    const struct dyti_rank_set *d = &sets->set[c->dst_set];
    uint64_t bytes = class_bytes(t->atoms, c), remote = 0, ignored;

    dyti_tapes_mark(t, c->src_set);
    for (uint32_t r = 0; r < d->run_count; r++) {
        const struct dyti_host_run *run = &sets->run[d->run_first + r];
        uint64_t *cell =
            t->cells ? &t->cell_at[t->cell_first[at] + r] : &ignored;
        enum dyt_status st = DYT_OK;

        if (t->host_mark[run->host] == t->mark) {
            uint32_t wanting = count_wanting(t, d, run);

            if (wanting > 0 && t->cells) {
                st = put(&t->deck[DYTI_TAPE_NEAR],
                         sets->run[t->host_run[run->host]].set, bytes * wanting,
                         cell);
            }
        } else if (t->fan_out) {
            remote++;
            if (t->cells) {
                st = put(&t->deck[DYTI_TAPE_IN], run->set, bytes, cell);
            }
        } else {
            remote += run->count;
        }
        if (st != DYT_OK) {
            return st;
        }
    }
    return remote == 0 ? DYT_OK
                       : put(&t->deck[DYTI_TAPE_OUT], c->src_set,
                             bytes * remote, &t->out_at[at]);
}

static enum dyt_status choose(struct dyti_tapes *t, struct dyti_tape_deck *deck,
                              const uint64_t *host_unit)
{
    const struct dyti_common *atoms = t->atoms;
    struct dyti_choose c = {.world_size = atoms->world_size,
                            .host_count = atoms->host_count,
                            .host = atoms->host,
                            .host_unit = host_unit,
                            .key_count = deck->tape_count};
    size_t at = 0, edges = deck->tape_count;
    enum dyt_status st = DYT_OK;

    c.key = calloc(deck->tape_count + 1, sizeof(*c.key));
    for (size_t k = 0; c.key != NULL && k < deck->tape_count; k++) {
        const struct dyti_tape *tape = &deck->tape[k];

        c.key[k] = (struct dyti_choose_key){
            .demand = tape->bytes,
            .rank = dyti_sets_ranks(&atoms->sets, tape->set),
            .count = dyti_sets_count(&atoms->sets, tape->set)};
        edges += c.key[k].count;
    }
    deck->edge = calloc(edges + 1, sizeof(*deck->edge));
    if (c.key == NULL || deck->edge == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "tapes of %zu sets", deck->tape_count);
    }
    st = st != DYT_OK ? st : dyti_choose(&c);
    for (size_t k = 0; st == DYT_OK && k < deck->tape_count; k++) {
        uint64_t sum = 0;

        deck->tape[k].edge = &deck->edge[at];
        for (uint32_t i = 0; i <= c.key[k].count; i++) {
            deck->edge[at++] = sum;
            sum += i < c.key[k].count ? c.share[c.key[k].share + i] : 0;
        }
    }
    deck->in_turn = c.in_turn;
    free(c.key);
    free(c.share);
    return st;
}

/* Room for the positions, or the decision to do without. */
static enum dyt_status make_room(struct dyti_tapes *t, size_t exact_cells)
{
    const struct dyti_common *atoms = t->atoms;
    size_t classes = atoms->class_count, cells = 0;

    t->out_at = calloc(classes + 1, sizeof(*t->out_at));
    t->cell_first = calloc(classes + 1, sizeof(*t->cell_first));
    t->rank_mark = calloc((size_t)atoms->world_size + 1, sizeof(uint32_t));
    t->host_mark = calloc((size_t)atoms->host_count + 1, sizeof(uint32_t));
    t->host_run = calloc((size_t)atoms->host_count + 1, sizeof(uint32_t));
    if (t->out_at == NULL || t->cell_first == NULL || t->rank_mark == NULL ||
        t->host_mark == NULL || t->host_run == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "tapes of %zu classes", classes);
    }
    for (size_t c = 0; c < classes; c++) {
        t->cell_first[c] = cells;
        cells += atoms->sets.set[atoms->class[c].dst_set].run_count;
    }
    t->cell_first[classes] = cells;
    t->cells = cells <= exact_cells;
    t->cell_at = calloc(t->cells ? cells + 1 : 1, sizeof(*t->cell_at));
    if (t->cell_at == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "tapes of %zu cells", cells);
    }
    for (int use = 0; use < DYTI_TAPE_USES; use++) {
        t->deck[use].of_set =
            calloc(atoms->sets.set_count + 1, sizeof(uint32_t));
        if (t->deck[use].of_set == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "tapes of %zu sets",
                             atoms->sets.set_count);
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_tapes_build(const struct dyti_common *atoms,
                                 const struct dyti_tapes_how *how,
                                 struct dyti_tapes *out_tapes)
{
    struct dyti_tapes t = {.atoms = atoms,
                           .fan_out = how->fan_out && !how->naive,
                           .naive = how->naive,
                           .nearest = how->nearest};
    bool spread = !how->naive && !how->nearest;
    enum dyt_status st = make_room(
        &t, how->exact_cells == 0 ? DYTI_TAPE_CELLS : how->exact_cells);

    for (uint32_t c = 0; c < atoms->class_count && spread && st == DYT_OK;
         c++) {
        st = place_class(&t, c);
    }
    for (int use = 0; use < DYTI_TAPE_USES && spread && st == DYT_OK; use++) {
        st = choose(&t, &t.deck[use],
                    use == DYTI_TAPE_OUT ? how->host_unit : NULL);
    }
    if (st != DYT_OK) {
        dyti_tapes_fini(&t);
        return st;
    }
    *out_tapes = t;
    return DYT_OK;
}

void dyti_tapes_fini(struct dyti_tapes *t)
{
    for (int use = 0; use < DYTI_TAPE_USES; use++) {
        free(t->deck[use].tape);
        free(t->deck[use].of_set);
        free(t->deck[use].edge);
    }
    free(t->out_at);
    free(t->cell_first);
    free(t->cell_at);
    free(t->rank_mark);
    free(t->host_mark);
    free(t->host_run);
    *t = (struct dyti_tapes){0};
}
