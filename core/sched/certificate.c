/* Loads of ranks and links, and the rules that pieces obey. */
#include "sched/certificate.h"

#include "base/sort.h"
#include "sched/replay.h"

#include <stdlib.h>
#include <string.h>

const char *dyti_link_class_name(enum dyti_link_class link)
{
    static const char *const name[DYTI_LINK_CLASS_COUNT] = {"self", "host",
                                                            "NIC"};

    return (unsigned)link < DYTI_LINK_CLASS_COUNT ? name[link] : "?";
}

double dyti_pieces_ratio(const struct dyti_pieces *pieces)
{
    return pieces->load_s > 0.0 ? pieces->makespan_s / pieces->load_s : 1.0;
}

/* ---- loads -------------------------------------------------------------- */

/* Bytes of each rank, class and direction; of each host and direction; of the
 * core. */
struct loads {
    const struct dyti_cluster *cluster;
    uint64_t *rank; /* [rank_count][class][2] */
    uint64_t *host; /* [host_count][3]: out, in, inside */
    uint64_t core[2];
};

static enum dyt_status loads_init(const struct dyti_cluster *c,
                                  struct loads *out)
{
    struct loads l = {.cluster = c};

    l.rank = calloc((size_t)c->rank_count * DYTI_LINK_CLASS_COUNT * 2 + 1,
                    sizeof(*l.rank));
    l.host = calloc((size_t)c->host_count * 3 + 1, sizeof(*l.host));
    if (l.rank == NULL || l.host == NULL) {
        free(l.rank);
        free(l.host);
        return DYTI_FAIL(DYT_ERR_NOMEM, "the loads of %u ranks", c->rank_count);
    }
    *out = l;
    return DYT_OK;
}

static void loads_add(struct loads *l, uint32_t from, uint32_t to,
                      uint64_t bytes)
{
    const struct dyti_cluster *c = l->cluster;
    size_t class = dyti_cluster_link(c, from, to);
    size_t a = c->host[from], b = c->host[to], n = c->host_count;

    l->rank[(from * (size_t)DYTI_LINK_CLASS_COUNT + class) * 2] += bytes;
    l->rank[(to * (size_t)DYTI_LINK_CLASS_COUNT + class) * 2 + 1] += bytes;
    if (class == DYTI_LINK_NIC) {
        l->host[a * 3] += bytes;
        l->host[b * 3 + 1] += bytes;
        if ((2 * a < n) != (2 * b < n)) {
            l->core[2 * a < n ? 0 : 1] += bytes;
        }
    } else if (class == DYTI_LINK_HOST) {
        l->host[a * 3 + 2] += bytes;
    }
}

static void take_busier(struct dyti_busiest *most, enum dyti_place place,
                        enum dyti_link_class link, uint32_t at, bool receiving,
                        uint64_t bytes, double bytes_per_s)
{
    double s =
        bytes > 0 && bytes_per_s > 0.0 ? (double)bytes / bytes_per_s : 0.0;

    if (s > most->seconds) {
        *most = (struct dyti_busiest){.place = place,
                                      .link = link,
                                      .at = at,
                                      .receiving = receiving,
                                      .bytes = bytes,
                                      .seconds = s};
    }
}

static void loads_busiest(const struct loads *l, struct dyti_busiest *out)
{
    const struct dyti_cluster *c = l->cluster;
    struct dyti_busiest most = {.link = DYTI_LINK_HOST};

    for (uint32_t i = 0; i < c->rank_count * DYTI_LINK_CLASS_COUNT; i++) {
        enum dyti_link_class link =
            (enum dyti_link_class)(i % DYTI_LINK_CLASS_COUNT);
        uint32_t r = i / DYTI_LINK_CLASS_COUNT;
        const uint64_t *b = &l->rank[(size_t)i * 2];
        double speed = c->link[link].bytes_per_s;

        if (c->link[link].half_duplex && link != DYTI_LINK_SELF) {
            take_busier(&most, DYTI_PLACE_RANK, link, r, b[1] > b[0],
                        b[0] + b[1], speed);
        } else {
            take_busier(&most, DYTI_PLACE_RANK, link, r, false, b[0], speed);
            take_busier(&most, DYTI_PLACE_RANK, link, r, true, b[1], speed);
        }
    }
    for (uint32_t i = 0; i < c->host_count * 3; i++) {
        bool inside = i % 3 == 2;

        take_busier(&most, DYTI_PLACE_HOST,
                    inside ? DYTI_LINK_HOST : DYTI_LINK_NIC, i / 3, i % 3 == 1,
                    l->host[i],
                    inside ? c->host_bytes_per_s : c->host_nic_bytes_per_s);
    }
    for (uint32_t i = 0; i < 2; i++) {
        take_busier(&most, DYTI_PLACE_CORE, DYTI_LINK_NIC, i, false, l->core[i],
                    c->core_bytes_per_s);
    }
    *out = most;
}

enum dyt_status dyti_busiest_of_flows(const struct dyti_cluster *cluster,
                                      const struct dyti_flow *flow,
                                      size_t flow_count,
                                      struct dyti_busiest *out_busiest)
{
    struct loads l = {0};
    enum dyt_status st = loads_init(cluster, &l);

    if (st == DYT_OK) {
        for (size_t i = 0; i < flow_count; i++) {
            loads_add(&l, flow[i].src, flow[i].dst, flow[i].bytes);
        }
        loads_busiest(&l, out_busiest);
        free(l.rank);
        free(l.host);
    }
    return st;
}

enum dyt_status dyti_busiest_of_pieces(const struct dyti_cluster *cluster,
                                       const struct dyti_piece *piece,
                                       size_t count,
                                       struct dyti_busiest *out_busiest)
{
    struct loads l = {0};
    enum dyt_status st = loads_init(cluster, &l);

    if (st == DYT_OK) {
        for (size_t i = 0; i < count; i++) {
            loads_add(&l, piece[i].from, piece[i].to,
                      piece[i].hi - piece[i].lo);
        }
        loads_busiest(&l, out_busiest);
        free(l.rank);
        free(l.host);
    }
    return st;
}

/* ---- rules -------------------------------------------------------------- */

static int compare_range(const void *a, const void *b)
{
    const struct dyti_piece *x = a, *y = b;
    uint64_t p[] = {x->src, x->dst, x->wave, x->lo, x->hop};
    uint64_t q[] = {y->src, y->dst, y->wave, y->lo, y->hop};

    for (size_t i = 0; i < sizeof(p) / sizeof(p[0]); i++) {
        if (p[i] != q[i]) {
            return p[i] < q[i] ? -1 : 1;
        }
    }
    return 0;
}

static int compare_flow(const void *a, const void *b)
{
    const struct dyti_flow *x = a, *y = b;
    uint64_t p[] = {x->src, x->dst, x->wave};
    uint64_t q[] = {y->src, y->dst, y->wave};

    for (size_t i = 0; i < sizeof(p) / sizeof(p[0]); i++) {
        if (p[i] != q[i]) {
            return p[i] < q[i] ? -1 : 1;
        }
    }
    return 0;
}

/* The ends of a stream: most of its place among the others. */
static uint64_t place_of_range(const void *item)
{
    const struct dyti_piece *p = item;

    return (uint64_t)p->src << 32 | p->dst;
}

static uint64_t place_of_flow(const void *item)
{
    const struct dyti_flow *f = item;

    return (uint64_t)f->src << 32 | f->dst;
}

static enum dyt_status bad_piece(const struct dyti_piece *p, const char *what)
{
    return DYTI_FAIL(DYT_ERR_INVALID,
                     "the piece %u -> %u of the stream %u -> %u, wave %u, "
                     "round %u, hop %u, bytes %llu..%llu: %s",
                     p->from, p->to, p->src, p->dst, p->wave, p->round, p->hop,
                     (unsigned long long)p->lo, (unsigned long long)p->hi,
                     what);
}

/* Pieces [i, count) of one flow, sorted: each byte once, from src to dst.
 * *io_at moves behind them. */
static enum dyt_status check_stream(const struct dyti_flow *flow,
                                    const struct dyti_piece *p, size_t count,
                                    size_t *io_at)
{
    uint64_t covered = 0;
    size_t i = *io_at;

    while (i < count && p[i].src == flow->src && p[i].dst == flow->dst &&
           p[i].wave == flow->wave) {
        const struct dyti_piece *q = &p[i];

        if (q->hop == 0) {
            if (q->lo != covered || q->hi <= q->lo || q->hi > flow->bytes) {
                return bad_piece(q, "not the bytes that follow");
            }
            if (q->from != q->src) {
                return bad_piece(q, "its first hop is not from its source");
            }
            covered = q->hi;
        } else if (i == *io_at || p[i - 1].hop + 1 != q->hop ||
                   p[i - 1].lo != q->lo || p[i - 1].hi != q->hi ||
                   p[i - 1].to != q->from) {
            return bad_piece(q, "it does not follow its hop before");
        }
        if ((i + 1 == count || p[i + 1].hop == 0) && q->to != q->dst) {
            return bad_piece(q, "its last hop is not to its destination");
        }
        i++;
    }
    if (covered != flow->bytes) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "%llu of %llu bytes of the stream %u -> %u, wave %u, "
                         "are in pieces",
                         (unsigned long long)covered,
                         (unsigned long long)flow->bytes, flow->src, flow->dst,
                         flow->wave);
    }
    *io_at = i;
    return DYT_OK;
}

static enum dyt_status check_bytes(const struct dyti_order *in,
                                   const struct dyti_pieces *pieces)
{
    struct dyti_piece *p = malloc((pieces->count + 1) * sizeof(*p));
    struct dyti_flow *f = malloc((in->flow_count + 1) * sizeof(*f));
    size_t at = 0;
    enum dyt_status st = DYT_OK;

    if (p == NULL || f == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu pieces", pieces->count);
        goto out;
    }
    if (pieces->count > 0) {
        memcpy(p, pieces->piece, pieces->count * sizeof(*p));
        dyti_sort(p, pieces->count, sizeof(*p), place_of_range, compare_range);
    }
    if (in->flow_count > 0) {
        memcpy(f, in->flow, in->flow_count * sizeof(*f));
        dyti_sort(f, in->flow_count, sizeof(*f), place_of_flow, compare_flow);
    }
    for (size_t i = 0; i < in->flow_count && st == DYT_OK; i++) {
        st = check_stream(&f[i], p, pieces->count, &at);
    }
    if (st == DYT_OK && at != pieces->count) {
        st = bad_piece(&p[at], "there is no such flow");
    }
out:
    free(p);
    free(f);
    return st;
}

/* Sorted by round; a rank sends, and receives, one piece of a class a round. */
static enum dyt_status check_rounds(const struct dyti_cluster *c,
                                    const struct dyti_pieces *pieces)
{
    size_t ports = (size_t)c->rank_count * DYTI_LINK_CLASS_COUNT;
    uint32_t *seen = calloc(2 * ports + 1, sizeof(*seen)); /* round + 1 */
    enum dyt_status st = DYT_OK;

    if (seen == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu ends of links", 2 * ports);
    }
    for (size_t i = 0; i < pieces->count && st == DYT_OK; i++) {
        const struct dyti_piece *p = &pieces->piece[i];
        size_t class = dyti_cluster_link(c, p->from, p->to);
        uint32_t *a = &seen[p->from * (size_t)DYTI_LINK_CLASS_COUNT + class];
        uint32_t *b =
            &seen[ports + p->to * (size_t)DYTI_LINK_CLASS_COUNT + class];

        if (p->round >= pieces->round_count ||
            (i > 0 && p->round < pieces->piece[i - 1].round)) {
            st = bad_piece(p, "not in the order of rounds");
        } else if (*a == p->round + 1 || *b == p->round + 1) {
            st = bad_piece(p, "an end has another piece in this round");
        }
        *a = *b = p->round + 1;
    }
    free(seen);
    return st;
}

/* Waits of rounds go backwards by the order itself; hops by dyti_waits_build;
 * what is left are the waves. */
static enum dyt_status check_waves(const struct dyti_cluster *c,
                                   const struct dyti_pieces *pieces)
{
    uint32_t *most = calloc((size_t)c->rank_count + 1, sizeof(*most));
    enum dyt_status st = DYT_OK;

    if (most == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u ranks", c->rank_count);
    }
    for (size_t i = 0; i < pieces->count && st == DYT_OK; i++) {
        const struct dyti_piece *p = &pieces->piece[i];

        if (p->wave + 1 < most[p->to]) {
            st = bad_piece(p, "a later wave of what it brings has left before");
        }
        /* what has left `from` needs all of lower waves before it */
        most[p->from] =
            p->wave + 1 > most[p->from] ? p->wave + 1 : most[p->from];
    }
    free(most);
    return st;
}

enum dyt_status dyti_pieces_check(const struct dyti_order *in,
                                  const struct dyti_pieces *pieces)
{
    struct dyti_waits waits;
    enum dyt_status st = check_bytes(in, pieces);

    st = st != DYT_OK ? st : check_rounds(in->cluster, pieces);
    st = st != DYT_OK ? st : check_waves(in->cluster, pieces);
    if (st == DYT_OK) { /* hops behind one another */
        st =
            dyti_waits_build(in->cluster, pieces->piece, pieces->count, &waits);
        if (st == DYT_OK) {
            dyti_waits_fini(&waits);
        }
    }
    return st;
}
