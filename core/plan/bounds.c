/* What no plan can avoid, term by term: docs/bounds.md derives each. */
#include "plan/bounds.h"

#include "plan/common.h"

#include <math.h>
#include <stdlib.h>

struct finder {
    const struct dyti_common *atoms;
    struct dyti_bounds *out;
    uint64_t *rank_in, *memory; /* [world_size] */
    /* Bytes that must leave a set of ranks, or of hosts: all their holders are
     * in it and somebody outside wants them.  By the number of the set. */
    uint64_t *only_ranks, *only_hosts; /* [set_count] */
    uint64_t *host_in;                 /* [host_count] */
    uint64_t *single;                  /* of one rank, or one host, alone */
    uint32_t *host_size;               /* [host_count] ranks */
    uint32_t *rank_mark, *host_mark, mark, marked_set;
    uint64_t cut[2];
};

static void mark_sources(struct finder *f, uint32_t set)
{
    const struct dyti_sets *sets = &f->atoms->sets;
    const struct dyti_rank_set *s = &sets->set[set];

    if (f->mark != 0 && f->marked_set == set) {
        return;
    }
    f->mark++;
    f->marked_set = set;
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t rank = sets->rank[s->first + i];

        f->rank_mark[rank] = f->mark;
        f->host_mark[f->atoms->host[rank]] = f->mark;
    }
}

static bool all_on_side(const struct dyti_sets *sets,
                        const struct dyti_rank_set *s, uint32_t half, bool low)
{
    for (uint32_t r = 0; r < s->run_count; r++) {
        if ((sets->run[s->run_first + r].host < half) != low) {
            return false;
        }
    }
    return true;
}

static void add_cut(struct finder *f, const struct dyti_rank_set *s,
                    const struct dyti_rank_set *d, uint64_t bytes)
{
    const struct dyti_sets *sets = &f->atoms->sets;
    uint32_t half = f->atoms->host_count / 2;

    for (int side = 0; half > 0 && side < 2; side++) {
        bool low = side == 0;

        if (all_on_side(sets, s, half, low) &&
            !all_on_side(sets, d, half, low)) {
            f->cut[side] += bytes;
        }
    }
}

static bool reads(const struct dyti_plan_want *want,
                  const struct dyti_plan_source *source)
{
    for (uint32_t s = 0; s < want->source_count; s++) {
        if (want->source[s].slot == source->slot &&
            want->source[s].kind == source->kind) {
            return true;
        }
    }
    return false;
}

/* Of the wants that are filled from one source, the one of its own kind, or the
 * first: a plan may read an element once for all of them. */
static uint32_t counts_for(const struct dyti_plan_inputs *in, uint32_t want,
                           const struct dyti_plan_source *source)
{
    uint32_t first = want;

    for (uint32_t w = in->want_count; w-- > 0;) {
        if (reads(&in->want[w], source)) {
            first = w;
            if (in->want[w].kind == source->kind) {
                break;
            }
        }
    }
    return first;
}

/* What reading an element takes at least, for all wants of the group. */
static uint32_t least_read(const struct dyti_common *atoms,
                           const struct dyti_want_group *g)
{
    const struct dyti_plan_inputs *in = &atoms->inputs;
    uint32_t bytes = 0;

    for (uint32_t k = 0; k < g->want_count; k++) {
        uint32_t w = g->want[k];

        bytes += counts_for(in, w, &in->want[w].source[g->source]) == w
                     ? g->read[k]
                     : 0;
    }
    return bytes;
}

static void add_class(struct finder *f, const struct dyti_common_class *c)
{
    const struct dyti_sets *sets = &f->atoms->sets;
    const struct dyti_rank_set *s = &sets->set[c->src_set];
    const struct dyti_rank_set *d = &sets->set[c->dst_set];
    uint64_t write = c->elements * f->atoms->group[c->group].write_all;
    uint64_t read =
        c->elements * least_read(f->atoms, &f->atoms->group[c->group]);
    bool leaves_ranks = false, leaves_hosts = false, read_here = false;

    mark_sources(f, c->src_set);
    for (uint32_t i = 0; i < d->count; i++) {
        uint32_t rank = sets->rank[d->first + i];

        f->memory[rank] += write;
        if (f->rank_mark[rank] == f->mark) {
            f->memory[rank] += read;
            read_here = true;
        } else {
            f->rank_in[rank] += write;
            leaves_ranks = true;
        }
    }
    for (uint32_t r = 0; r < d->run_count; r++) {
        uint32_t host = sets->run[d->run_first + r].host;

        if (f->host_mark[host] != f->mark) {
            f->host_in[host] += write;
            leaves_hosts = true;
        }
    }
    f->only_ranks[c->src_set] += leaves_ranks ? write : 0;
    f->only_hosts[c->src_set] += leaves_hosts ? write : 0;
    if (s->count == 1 && !read_here) {
        f->memory[sets->rank[s->first]] += read;
    }
    if (leaves_hosts) {
        add_cut(f, s, d, write);
    }
}

static void take(struct finder *f, enum dyti_term term, uint64_t bytes,
                 uint32_t at)
{
    if (bytes > f->out->term[term].bound_bytes) {
        f->out->term[term].bound_bytes = bytes;
        f->out->term[term].bound_at = at;
    }
}

static uint64_t share(uint64_t bytes, uint64_t among)
{
    return among == 0 ? 0 : bytes / among + (bytes % among != 0);
}

/* Out of ranks: what lies on the ranks of a set alone, with what lies on each
 * of them alone, leaves by one of their links. */
static void find_rank_out(struct finder *f)
{
    const struct dyti_sets *sets = &f->atoms->sets;

    for (size_t k = 0; k < sets->set_count; k++) {
        if (sets->set[k].count == 1) {
            f->single[sets->rank[sets->set[k].first]] += f->only_ranks[k];
        }
    }
    for (uint32_t k = 0; k < sets->set_count; k++) {
        const struct dyti_rank_set *s = &sets->set[k];
        uint64_t sum = s->count == 1 ? 0 : f->only_ranks[k];

        for (uint32_t i = 0; f->only_ranks[k] > 0 && i < s->count; i++) {
            sum += f->single[sets->rank[s->first + i]];
        }
        if (f->only_ranks[k] > 0) {
            take(f, DYTI_TERM_RANK_OUT, share(sum, s->count),
                 sets->rank[s->first]);
        }
    }
}

/* Likewise of hosts, through their NICs. */
static void find_host_out(struct finder *f)
{
    const struct dyti_sets *sets = &f->atoms->sets;

    for (uint32_t h = 0; h < f->atoms->host_count; h++) {
        f->single[h] = 0;
    }
    for (size_t k = 0; k < sets->set_count; k++) {
        if (sets->set[k].run_count == 1) {
            f->single[sets->run[sets->set[k].run_first].host] +=
                f->only_hosts[k];
        }
    }
    for (uint32_t k = 0; k < sets->set_count; k++) {
        const struct dyti_rank_set *s = &sets->set[k];
        uint64_t sum = s->run_count == 1 ? 0 : f->only_hosts[k], ranks = 0;

        if (f->only_hosts[k] == 0) {
            continue;
        }
        for (uint32_t r = 0; r < s->run_count; r++) {
            uint32_t host = sets->run[s->run_first + r].host;

            sum += f->single[host];
            ranks += f->host_size[host];
        }
        take(f, DYTI_TERM_HOST_OUT, share(sum, s->run_count),
             sets->run[s->run_first].host);
        take(f, DYTI_TERM_NIC_OUT, share(sum, ranks), sets->rank[s->first]);
    }
}

static void find_in(struct finder *f)
{
    uint64_t all = 0;

    for (uint32_t r = 0; r < f->atoms->world_size; r++) {
        take(f, DYTI_TERM_RANK_IN, f->rank_in[r], r);
        take(f, DYTI_TERM_MEMORY, f->memory[r], r);
    }
    for (uint32_t r = 0; r < f->atoms->world_size; r++) {
        uint32_t h = f->atoms->host[r];

        take(f, DYTI_TERM_NIC_IN, share(f->host_in[h], f->host_size[h]), r);
    }
    for (uint32_t h = 0; h < f->atoms->host_count; h++) {
        take(f, DYTI_TERM_HOST_IN, f->host_in[h], h);
        all += f->host_in[h];
    }
    /* What comes in somewhere goes out somewhere. */
    take(f, DYTI_TERM_HOST_OUT, share(all, f->atoms->host_count), 0);
    take(f, DYTI_TERM_NIC_OUT, share(all, f->atoms->world_size), 0);
    take(f, DYTI_TERM_CUT, f->cut[0], 0);
    take(f, DYTI_TERM_CUT, f->cut[1], 1);
}

static void set_speeds(const struct dyti_common *atoms,
                       const struct dyti_cluster *c, const uint32_t *host_size,
                       struct dyti_bounds *out)
{
    double nic = c->link[DYTI_LINK_NIC].bytes_per_s;
    double rank = c->link[DYTI_LINK_HOST].bytes_per_s;
    double host = c->host_nic_bytes_per_s;
    uint32_t least = UINT32_MAX;

    for (uint32_t h = 0; h < atoms->host_count; h++) {
        least = host_size[h] > 0 && host_size[h] < least ? host_size[h] : least;
    }
    rank += atoms->host_count > 1 ? nic : 0;
    host = host > 0 ? host : nic * (least == UINT32_MAX ? 1 : least);
    out->term[DYTI_TERM_RANK_IN].bytes_per_s = rank;
    out->term[DYTI_TERM_RANK_OUT].bytes_per_s = rank;
    out->term[DYTI_TERM_NIC_IN].bytes_per_s = nic;
    out->term[DYTI_TERM_NIC_OUT].bytes_per_s = nic;
    out->term[DYTI_TERM_HOST_IN].bytes_per_s = host;
    out->term[DYTI_TERM_HOST_OUT].bytes_per_s = host;
    out->term[DYTI_TERM_CUT].bytes_per_s = c->core_bytes_per_s;
    /* what is read and what is written, each at the speed of the link */
    out->term[DYTI_TERM_MEMORY].bytes_per_s =
        2 * c->link[DYTI_LINK_SELF].bytes_per_s;
}

static enum dyt_status open(struct finder *f)
{
    size_t ranks = (size_t)f->atoms->world_size + 1;
    size_t hosts = (size_t)f->atoms->host_count + 1;
    size_t sets = f->atoms->sets.set_count + 1;

    f->rank_in = calloc(ranks, sizeof(uint64_t));
    f->memory = calloc(ranks, sizeof(uint64_t));
    f->single = calloc(ranks > hosts ? ranks : hosts, sizeof(uint64_t));
    f->only_ranks = calloc(sets, sizeof(uint64_t));
    f->only_hosts = calloc(sets, sizeof(uint64_t));
    f->host_in = calloc(hosts, sizeof(uint64_t));
    f->host_size = calloc(hosts, sizeof(uint32_t));
    f->rank_mark = calloc(ranks, sizeof(uint32_t));
    f->host_mark = calloc(hosts, sizeof(uint32_t));
    if (f->rank_in == NULL || f->memory == NULL || f->single == NULL ||
        f->only_ranks == NULL || f->only_hosts == NULL || f->host_in == NULL ||
        f->host_size == NULL || f->rank_mark == NULL || f->host_mark == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "bounds of %u ranks",
                         f->atoms->world_size);
    }
    for (uint32_t r = 0; r < f->atoms->world_size; r++) {
        f->host_size[f->atoms->host[r]]++;
    }
    return DYT_OK;
}

enum dyt_status dyti_bounds_find(const struct dyti_common *atoms,
                                 const struct dyti_cluster *cluster,
                                 struct dyti_bounds *out_bounds)
{
    struct dyti_bounds bounds = {0};
    struct finder f = {.atoms = atoms, .out = &bounds};
    enum dyt_status st = open(&f);

    if (st == DYT_OK) {
        for (size_t c = 0; c < atoms->class_count; c++) {
            add_class(&f, &atoms->class[c]);
        }
        find_in(&f);
        find_rank_out(&f);
        find_host_out(&f);
        set_speeds(atoms, cluster, f.host_size, &bounds);
        dyti_bounds_finish(&bounds);
        *out_bounds = bounds;
    }
    free(f.rank_in);
    free(f.memory);
    free(f.single);
    free(f.only_ranks);
    free(f.only_hosts);
    free(f.host_in);
    free(f.host_size);
    free(f.rank_mark);
    free(f.host_mark);
    return st;
}

void dyti_bounds_finish(struct dyti_bounds *bounds)
{
    bounds->bound_s = bounds->moved_s = 0;
    bounds->bound_by = bounds->moved_by = DYTI_TERM_RANK_IN;
    for (int t = 0; t < DYTI_TERM_COUNT; t++) {
        const struct dyti_bound *b = &bounds->term[t];
        double bound, moved;

        if (b->bytes_per_s <= 0) {
            continue;
        }
        bound = (double)b->bound_bytes / b->bytes_per_s;
        moved = (double)b->moved_bytes / b->bytes_per_s;
        if (bound > bounds->bound_s) {
            bounds->bound_s = bound;
            bounds->bound_by = (enum dyti_term)t;
        }
        if (moved > bounds->moved_s) {
            bounds->moved_s = moved;
            bounds->moved_by = (enum dyti_term)t;
        }
    }
}

const char *dyti_term_name(enum dyti_term term)
{
    static const char *const name[DYTI_TERM_COUNT] = {
        "rank in", "rank out", "NIC in", "NIC out",
        "host in", "host out", "cut",    "memory"};

    return (unsigned)term < DYTI_TERM_COUNT ? name[term] : "?";
}

double dyti_bound_ratio(const struct dyti_bound *bound)
{
    if (bound->bound_bytes == 0) {
        return bound->moved_bytes == 0 ? 1.0 : (double)INFINITY;
    }
    return (double)bound->moved_bytes / (double)bound->bound_bytes;
}
