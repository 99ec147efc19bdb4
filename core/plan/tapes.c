/* Builds the tapes: which streams lie on which, who serves how much. */
#include "plan/tapes.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

static uint64_t class_bytes(const struct dyti_atoms *atoms,
                            const struct dyti_class *c)
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

static void mark_sources(struct dyti_tapes *t, uint32_t set)
{
    const struct dyti_sets *sets = &t->atoms->sets;
    const struct dyti_rank_set *s = &sets->set[set];

    if (t->mark != 0 && t->marked_set == set) {
        return;
    }
    t->mark++;
    t->marked_set = set;
    for (uint32_t i = 0; i < s->count; i++) {
        t->rank_mark[sets->rank[s->first + i]] = t->mark;
    }
    for (uint32_t r = 0; r < s->run_count; r++) {
        uint32_t host = sets->run[s->run_first + r].host;

        t->host_mark[host] = t->mark;
        t->host_run[host] = (uint32_t)s->run_first + r;
    }
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
    const struct dyti_class *c = &t->atoms->class[at];
    const struct dyti_sets *sets = &t->atoms->sets;
    const struct dyti_rank_set *d = &sets->set[c->dst_set];
    uint64_t bytes = class_bytes(t->atoms, c), remote = 0, ignored;

    mark_sources(t, c->src_set);
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
    const struct dyti_atoms *atoms = t->atoms;
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
static enum dyt_status make_room(struct dyti_tapes *t)
{
    const struct dyti_atoms *atoms = t->atoms;
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
    t->cells = cells <= DYTI_TAPE_CELLS;
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

enum dyt_status dyti_tapes_build(const struct dyti_atoms *atoms, bool fan_out,
                                 bool naive, const uint64_t *host_unit,
                                 struct dyti_tapes *out_tapes)
{
    struct dyti_tapes t = {
        .atoms = atoms, .fan_out = fan_out && !naive, .naive = naive};
    enum dyt_status st = make_room(&t);

    for (uint32_t c = 0; c < atoms->class_count && !naive && st == DYT_OK;
         c++) {
        st = place_class(&t, c);
    }
    for (int use = 0; use < DYTI_TAPE_USES && !naive && st == DYT_OK; use++) {
        st = choose(&t, &t.deck[use], use == DYTI_TAPE_OUT ? host_unit : NULL);
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

/* ---- places in a stream ------------------------------------------------- */

uint32_t dyti_atom_cut_axis(const struct dyti_atoms *atoms, uint32_t atom,
                            uint64_t *out_step)
{
    const struct dyti_atom *a = &atoms->atom[atom];
    const int64_t *lo = atoms->edge + a->at, *hi = lo + a->ndim;
    uint32_t axis = 0;

    while (axis + 1 < a->ndim && hi[axis] - lo[axis] == 1) {
        axis++;
    }
    *out_step = a->elements / (uint64_t)(hi[axis] - lo[axis]);
    return axis;
}

static uint64_t box_at(const struct dyti_atoms *atoms,
                       const struct dyti_class *c, uint64_t at)
{
    const struct dyti_class_atom *o =
        &atoms->order[dyti_class_find(atoms, c, at)];

    return o->box + (at - o->element) / atoms->atom[o->atom].elements;
}

uint64_t dyti_class_boxes(const struct dyti_atoms *atoms,
                          const struct dyti_class *c, uint64_t lo, uint64_t hi)
{
    return box_at(atoms, c, hi - 1) - box_at(atoms, c, lo) + 1;
}

uint64_t dyti_class_snap(const struct dyti_atoms *atoms,
                         const struct dyti_class *c, uint64_t at)
{
    const struct dyti_class_atom *o;
    uint64_t box, left, step;

    if (at == 0 || at >= c->elements) {
        return at == 0 ? 0 : c->elements;
    }
    o = &atoms->order[dyti_class_find(atoms, c, at)];
    box = atoms->atom[o->atom].elements;
    left = (at - o->element) % box;
    if (left == 0) {
        return at;
    }
    step = box;
    if (box * atoms->group[c->group].write_all > DYTI_TAPE_WHOLE_BYTES) {
        (void)dyti_atom_cut_axis(atoms, o->atom, &step);
    }
    return at - left + (left + step / 2) / step * step;
}

/* ---- visiting ----------------------------------------------------------- */

struct visit {
    struct dyti_tapes *t;
    const struct dyti_class *c;
    uint32_t class;
    int64_t rank;
    uint64_t unit; /* bytes of an element of the stream */
    dyti_stretch_fn take;
    void *arg;
};

static enum dyt_status give(const struct visit *v, uint32_t src, uint32_t dst,
                            uint32_t wave, uint64_t lo, uint64_t hi)
{
    const uint32_t *host = v->t->atoms->host;
    struct dyti_stretch s = {.class = v->class,
                             .src = src,
                             .dst = dst,
                             .wave = wave,
                             .lo = lo,
                             .hi = hi};

    if (lo >= hi || (v->rank >= 0 && src != v->rank && dst != v->rank)) {
        return DYT_OK;
    }
    s.link = src == dst               ? DYTI_LINK_SELF
             : host[src] == host[dst] ? DYTI_LINK_HOST
                                      : DYTI_LINK_NIC;
    return v->take(v->arg, &s);
}

/* How the streams of a class are cut between the ranks of a set. */
struct cuts {
    const uint32_t *rank;
    uint32_t count;
    const uint64_t *edge; /* of a tape; NULL: evenly, beginning with `turn` */
    uint64_t at;          /* of this stream on the tape, bytes */
    uint32_t turn;
};

static void find_cuts(const struct visit *v, enum dyti_tape_use use,
                      uint32_t set, uint64_t at, bool on_tape, struct cuts *out)
{
    const struct dyti_tape_deck *deck = &v->t->deck[use];

    out->rank = dyti_sets_ranks(&v->t->atoms->sets, set);
    out->count = dyti_sets_count(&v->t->atoms->sets, set);
    out->edge = on_tape ? deck->tape[deck->of_set[set] - 1].edge : NULL;
    out->at = at;
    out->turn = v->class % out->count;
}

/* Who serves element `lo`, and up to which element. */
static uint32_t piece_at(const struct visit *v, const struct cuts *cuts,
                         uint64_t lo, uint64_t *out_hi)
{
    const struct dyti_class *c = v->c;
    uint32_t a = 0, b = cuts->count;

    if (cuts->count == 1) {
        *out_hi = c->elements;
        return cuts->rank[0];
    }
    if (cuts->edge == NULL) {
        uint64_t each = c->elements / cuts->count;
        uint64_t k = each == 0 ? 0 : lo / each;

        for (;; k++) {
            *out_hi = k + 1 >= cuts->count
                          ? c->elements
                          : dyti_class_snap(v->t->atoms, c, (k + 1) * each);
            if (*out_hi > lo) {
                return cuts->rank[(k + cuts->turn) % cuts->count];
            }
        }
    }
    while (a + 1 < b) { /* the last piece that begins at or before lo */
        uint32_t mid = a + (b - a) / 2;

        if (cuts->edge[mid] <= cuts->at + lo * v->unit) {
            a = mid;
        } else {
            b = mid;
        }
    }
    for (;; a++) { /* a border that was moved back may lie before lo */
        uint64_t edge = cuts->edge[a + 1];

        *out_hi =
            a + 1 >= cuts->count || edge >= cuts->at + c->elements * v->unit
                ? c->elements
            : edge <= cuts->at
                ? 0
                : dyti_class_snap(v->t->atoms, c,
                                  (edge - cuts->at + v->unit / 2) / v->unit);
        if (*out_hi > lo) {
            return cuts->rank[a];
        }
    }
}

/* A whole stream to one rank. */
static enum dyt_status from_pieces(const struct visit *v,
                                   const struct cuts *cuts, uint32_t dst)
{
    uint64_t lo = 0, hi;
    enum dyt_status st = DYT_OK;

    while (lo < v->c->elements && st == DYT_OK) {
        uint32_t src = piece_at(v, cuts, lo, &hi);

        st = give(v, src, dst, 0, lo, hi);
        lo = hi;
    }
    return st;
}

/* One copy into a host, then from each who received a part to the others. */
static enum dyt_status fan_out(const struct visit *v, const struct cuts *out,
                               const struct cuts *in)
{
    uint64_t lo = 0, out_hi = 0, in_hi = 0;
    uint32_t src = 0, gate = 0;
    enum dyt_status st = DYT_OK;

    while (lo < v->c->elements && st == DYT_OK) {
        uint64_t hi;

        if (lo >= out_hi) {
            src = piece_at(v, out, lo, &out_hi);
        }
        if (lo >= in_hi) {
            gate = piece_at(v, in, lo, &in_hi);
            for (uint32_t i = 0; i < in->count && st == DYT_OK; i++) {
                st = in->rank[i] == gate
                         ? st
                         : give(v, gate, in->rank[i], 1, lo, in_hi);
            }
        }
        hi = out_hi < in_hi ? out_hi : in_hi;
        st = st != DYT_OK ? st : give(v, src, gate, 0, lo, hi);
        lo = hi;
    }
    return st;
}

/* Ranks of a host that has sources: keep, or from one of those. */
static enum dyt_status visit_near(const struct visit *v,
                                  const struct dyti_host_run *run,
                                  const uint32_t *rank, uint64_t at)
{
    const struct dyti_tapes *t = v->t;
    uint64_t bytes = v->c->elements * v->unit;
    struct cuts cuts;
    uint32_t set = t->atoms->sets.run[t->host_run[run->host]].set;
    uint32_t wanting = 0;
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < run->count && st == DYT_OK; i++) {
        if (t->rank_mark[rank[i]] == t->mark) {
            st = give(v, rank[i], rank[i], 0, 0, v->c->elements);
            continue;
        }
        find_cuts(v, DYTI_TAPE_NEAR, set, at + wanting * bytes, t->cells,
                  &cuts);
        cuts.turn = (cuts.turn + wanting) % cuts.count;
        wanting++;
        st = from_pieces(v, &cuts, rank[i]);
    }
    return st;
}

static enum dyt_status visit_far(const struct visit *v,
                                 const struct dyti_host_run *run,
                                 const uint32_t *rank, uint64_t in_at,
                                 uint64_t *out_at)
{
    uint64_t bytes = v->c->elements * v->unit;
    struct cuts out, in;
    enum dyt_status st = DYT_OK;

    if (v->t->fan_out) {
        find_cuts(v, DYTI_TAPE_OUT, v->c->src_set, *out_at, true, &out);
        find_cuts(v, DYTI_TAPE_IN, run->set, in_at, v->t->cells, &in);
        *out_at += bytes;
        return fan_out(v, &out, &in);
    }
    for (uint32_t i = 0; i < run->count && st == DYT_OK; i++) {
        find_cuts(v, DYTI_TAPE_OUT, v->c->src_set, *out_at, true, &out);
        *out_at += bytes;
        st = from_pieces(v, &out, rank[i]);
    }
    return st;
}

/* The first replica gives all that is not kept. */
static enum dyt_status visit_naive(const struct visit *v)
{
    const struct dyti_sets *sets = &v->t->atoms->sets;
    const uint32_t *src = dyti_sets_ranks(sets, v->c->src_set);
    const uint32_t *dst = dyti_sets_ranks(sets, v->c->dst_set);
    uint32_t first = src[0];
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 1; i < dyti_sets_count(sets, v->c->src_set); i++) {
        first = src[i] < first ? src[i] : first;
    }
    for (uint32_t i = 0;
         i < dyti_sets_count(sets, v->c->dst_set) && st == DYT_OK; i++) {
        bool kept = v->t->rank_mark[dst[i]] == v->t->mark;

        st = give(v, kept ? dst[i] : first, dst[i], 0, 0, v->c->elements);
    }
    return st;
}

enum dyt_status dyti_tapes_visit(struct dyti_tapes *t, uint32_t class,
                                 int64_t rank, dyti_stretch_fn take, void *arg)
{
    const struct dyti_class *c = &t->atoms->class[class];
    const struct dyti_sets *sets = &t->atoms->sets;
    const struct dyti_rank_set *d = &sets->set[c->dst_set];
    struct visit v = {.t = t,
                      .c = c,
                      .class = class,
                      .rank = rank,
                      .unit = t->atoms->group[c->group].write_all,
                      .take = take,
                      .arg = arg};
    uint64_t out_at = t->out_at[class];
    bool sends;
    enum dyt_status st = DYT_OK;

    mark_sources(t, c->src_set);
    if (t->naive) {
        return visit_naive(&v);
    }
    sends = rank < 0 || t->rank_mark[rank] == t->mark;
    for (uint32_t r = 0; r < d->run_count && st == DYT_OK; r++) {
        const struct dyti_host_run *run = &sets->run[d->run_first + r];
        const uint32_t *ranks = sets->rank + d->first + run->first;
        uint64_t at = t->cells ? t->cell_at[t->cell_first[class] + r] : 0;

        if (!sends && run->host != t->atoms->host[rank]) {
            out_at += t->host_mark[run->host] == t->mark ? 0
                      : t->fan_out                       ? c->elements * v.unit
                                   : c->elements * v.unit * run->count;
        } else if (t->host_mark[run->host] == t->mark) {
            st = visit_near(&v, run, ranks, at);
        } else {
            st = visit_far(&v, run, ranks, at, &out_at);
        }
    }
    return st;
}
