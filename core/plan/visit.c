/* Reads the tapes: who gives whom which part of a stream. */
#include "plan/tapes.h"

/* ---- places in a stream ------------------------------------------------- */

uint32_t dyti_common_cut_axis(const struct dyti_common *atoms, uint32_t atom,
                              uint64_t *out_step)
{
    const struct dyti_common_atom *a = &atoms->atom[atom];
    const int64_t *lo = atoms->edge + a->at, *hi = lo + a->ndim;
    uint32_t axis = 0;

    while (axis + 1 < a->ndim && hi[axis] - lo[axis] == 1) {
        axis++;
    }
    *out_step = a->elements / (uint64_t)(hi[axis] - lo[axis]);
    return axis;
}

static uint64_t box_at(const struct dyti_common *atoms,
                       const struct dyti_common_class *c, uint64_t at)
{
    const struct dyti_common_place *o =
        &atoms->order[dyti_class_find(atoms, c, at)];

    return o->box + (at - o->element) / atoms->atom[o->atom].elements;
}

uint64_t dyti_class_boxes(const struct dyti_common *atoms,
                          const struct dyti_common_class *c, uint64_t lo,
                          uint64_t hi)
{
    return box_at(atoms, c, hi - 1) - box_at(atoms, c, lo) + 1;
}

uint64_t dyti_class_snap(const struct dyti_common *atoms,
                         const struct dyti_common_class *c, uint64_t at)
{
    const struct dyti_common_place *o;
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
        (void)dyti_common_cut_axis(atoms, o->atom, &step);
    }
    return at - left + (left + step / 2) / step * step;
}

void dyti_tapes_mark(struct dyti_tapes *t, uint32_t set)
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

/* ---- visiting ----------------------------------------------------------- */

struct visit {
    struct dyti_tapes *t;
    const struct dyti_common_class *c;
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
    const struct dyti_common_class *c = v->c;
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

/* The first of the nearest replicas gives all that is not kept; with fan-out
 * once to each host that has none. */
static enum dyt_status visit_nearest(const struct visit *v)
{
    const struct dyti_tapes *t = v->t;
    const struct dyti_sets *sets = &t->atoms->sets;
    const struct dyti_rank_set *d = &sets->set[v->c->dst_set];
    const uint32_t *src = dyti_sets_ranks(sets, v->c->src_set);
    uint32_t first = src[0];
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 1; i < dyti_sets_count(sets, v->c->src_set); i++) {
        first = src[i] < first ? src[i] : first;
    }
    for (uint32_t r = 0; r < d->run_count; r++) {
        const struct dyti_host_run *run = &sets->run[d->run_first + r];
        const uint32_t *rank = sets->rank + d->first + run->first;
        bool near = t->host_mark[run->host] == t->mark;
        uint32_t from =
            near ? src[sets->run[t->host_run[run->host]].first] : first;

        for (uint32_t i = 0; i < run->count && st == DYT_OK; i++) {
            bool kept = t->rank_mark[rank[i]] == t->mark;
            bool sibling = !near && t->fan_out && i > 0;

            st = give(v,
                      kept      ? rank[i]
                      : sibling ? rank[0]
                                : from,
                      rank[i], sibling, 0, v->c->elements);
        }
    }
    return st;
}

enum dyt_status dyti_tapes_visit(struct dyti_tapes *t, uint32_t class,
                                 int64_t rank, dyti_stretch_fn take, void *arg)
{
    const struct dyti_common_class *c = &t->atoms->class[class];
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

    dyti_tapes_mark(t, c->src_set);
    if (t->naive) {
        return visit_naive(&v);
    }
    if (t->nearest) {
        return visit_nearest(&v);
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
