/* A price for people who read text. */
#include "explain/outcome.h"
#include "explain/price.h"
#include "explain/price_words.h"
#include "explain/words.h"

#include <inttypes.h>
#include <math.h>

#define COLLECTIVES_SHOWN 4u

struct dyti_words dyti_words_parameters(const struct dyti_model *model)
{
    static const char *const unit[] = {"thousand", "million", "billion"};
    double n = (double)dyti_model_elements(model) / 1e3;
    struct dyti_words w;
    int k = 0;

    for (; k < 2 && n >= 1e3; k++) {
        n /= 1e3;
    }
    (void)snprintf(w.text, sizeof(w.text), "%.2f %s parameters", n, unit[k]);
    return w;
}

struct dyti_words dyti_words_degrees(const struct dyti_layout_desc *d)
{
    const struct {
        const char *name;
        uint32_t value;
    } more[] = {{"cp", d->cp}, {"ep", d->ep}, {"etp", d->etp}, {"vpp", d->vpp}};
    struct dyti_words w;
    int at = snprintf(w.text, sizeof(w.text), "%s TP %u PP %u DP %u",
                      dyti_dialect_name(d->dialect), d->tp, d->pp, d->dp);

    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
        if (more[i].value > 1 && at > 0 && (size_t)at < sizeof(w.text)) {
            at += snprintf(w.text + at, sizeof(w.text) - (size_t)at, " %s %u",
                           more[i].name, more[i].value);
        }
    }
    if (d->zero > 0 && at > 0 && (size_t)at < sizeof(w.text)) {
        (void)snprintf(w.text + at, sizeof(w.text) - (size_t)at, " ZeRO %u",
                       d->zero);
    }
    return w;
}

const char *dyti_words_link(enum dyti_link_class link)
{
    static const char *const name[DYTI_LINK_CLASS_COUNT] = {
        "stay", "inside hosts", "between hosts"};

    return link < DYTI_LINK_CLASS_COUNT ? name[link] : "?";
}

struct dyti_price_peaks dyti_price_peaks(const struct dyti_price *p)
{
    struct dyti_price_peaks out = {0};

    for (uint32_t r = 0; r < p->traffic->world_size; r++) {
        const struct dyti_price_memory *m = &p->memory[r];
        uint64_t both = m->src_bytes + m->dst_bytes;
        uint64_t most =
            m->src_bytes > m->dst_bytes ? m->src_bytes : m->dst_bytes;

        if (both > out.both) {
            out.both = both;
            out.both_rank = r;
        }
        out.most = most > out.most ? most : out.most;
        out.src = m->src_bytes > out.src ? m->src_bytes : out.src;
        out.dst = m->dst_bytes > out.dst ? m->dst_bytes : out.dst;
    }
    return out;
}

struct dyti_collective_sum dyti_collective_sum(
    const struct dyti_promotion *promotion, enum dyti_collective_kind kind)
{
    struct dyti_collective_sum s = {0};

    for (size_t i = 0; i < promotion->count; i++) {
        const struct dyti_collective *c = &promotion->collective[i];

        if (c->kind == kind) {
            s.count++;
            s.bytes += c->bytes;
            s.members =
                c->member_count > s.members ? c->member_count : s.members;
        }
    }
    return s;
}

static enum dyti_collective_kind first_kind(const struct dyti_promotion *p)
{
    enum dyti_collective_kind first = DYTI_COLLECTIVE_KIND_COUNT;

    for (size_t i = 0; i < p->count; i++) {
        first = p->collective[i].kind < first
                    ? (enum dyti_collective_kind)p->collective[i].kind
                    : first;
    }
    return first;
}

/* ---- parts of the text --------------------------------------------------- */

static void print_cluster(const struct dyti_price *p, FILE *out)
{
    const struct dyti_cluster *c = p->params.cluster;

    fprintf(out, "cluster  %s: %u rank%s on %u host%s\n", c->name,
            c->rank_count, c->rank_count == 1 ? "" : "s", c->host_count,
            c->host_count == 1 ? "" : "s");
}

static void print_head(const struct dyti_price *p, FILE *out)
{
    const struct dyti_layout *src = p->params.src, *dst = p->dst;

    fprintf(out, "switch   %s  ->  %s\n", dyti_words_degrees(&src->desc).text,
            dyti_words_degrees(&dst->desc).text);
    fprintf(out, "model    %s, %s, %u tensors\n",
            dyti_family_name(src->model->arch.family),
            dyti_words_parameters(src->model).text, src->model->tensor_count);
    print_cluster(p, out);
}

static void print_bytes(const struct dyti_price *p, FILE *out)
{
    const struct dyti_traffic *t = p->traffic;
    uint64_t total[DYTI_LINK_CLASS_COUNT] = {0};

    fprintf(out, "\n%-12s", "bytes");
    for (int l = 0; l < DYTI_LINK_CLASS_COUNT; l++) {
        fprintf(out, " %14s", dyti_words_link((enum dyti_link_class)l));
    }
    fprintf(out, "\n");
    for (uint32_t w = 0; w < t->inputs.want_count; w++) {
        enum dyti_kind kind = t->inputs.want[w].kind;

        fprintf(out, "  %-10s", dyti_kind_name(kind));
        for (int l = 0; l < DYTI_LINK_CLASS_COUNT; l++) {
            total[l] += t->sum[kind][l].write_bytes;
            fprintf(out, " %14s",
                    dyti_words_bytes(t->sum[kind][l].write_bytes).text);
        }
        fprintf(out, "\n");
    }
    fprintf(out, "  %-10s", "all");
    for (int l = 0; l < DYTI_LINK_CLASS_COUNT; l++) {
        fprintf(out, " %14s", dyti_words_bytes(total[l]).text);
    }
    fprintf(out, "\n");
}

static double share(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0 : 100.0 * (double)part / (double)whole;
}

static void print_choices(const struct dyti_price *p, FILE *out)
{
    const struct dyti_placement *l = &p->placement;

    fprintf(out, "\nplacement  ");
    if (l->ranks == NULL) {
        fprintf(out, "pinned: ranks are as described\n");
    } else if (!l->changed) {
        fprintf(out, "as described is as good as any\n");
    } else {
        fprintf(out,
                "relabelled: %.1f %% -> %.1f %% stay on their rank, %.1f %% -> "
                "%.1f %% cross hosts\n",
                share(l->keep_before, l->total_bytes),
                share(l->keep_after, l->total_bytes),
                share(l->nic_before, l->total_bytes),
                share(l->nic_after, l->total_bytes));
    }
    fprintf(out,
            "sources    the busiest link carries %.2f times less than if the "
            "first replica sent\n",
            dyti_traffic_gain(p->traffic));
}

static void print_memory(const struct dyti_price *p, FILE *out)
{
    struct dyti_price_peaks m = dyti_price_peaks(p);
    uint64_t has = p->params.cluster->rank_memory_bytes;

    fprintf(out,
            "memory     a rank at most: source %s, destination %s; both "
            "(transactional) %s, overlaid (in_place) %s",
            dyti_words_bytes(m.src).text, dyti_words_bytes(m.dst).text,
            dyti_words_bytes(m.both).text, dyti_words_bytes(m.most).text);
    if (has > 0) {
        fprintf(out, "; a device has %s%s", dyti_words_bytes(has).text,
                m.most > has   ? ": NEITHER FITS"
                : m.both > has ? ": transactional does not fit"
                               : "");
    }
    fprintf(out, "\n");
}

static void print_bounds(const struct dyti_price *p, FILE *out)
{
    const struct dyti_bounds *b = &p->traffic->bounds;

    fprintf(out, "\n%-10s %14s %14s %8s\n", "bound", "must cross", "this plan",
            "ratio");
    for (int t = 0; t < DYTI_TERM_COUNT; t++) {
        const struct dyti_bound *term = &b->term[t];

        if (term->moved_bytes == 0 && term->bound_bytes == 0) {
            continue;
        }
        fprintf(out, "  %-8s %14s %14s %8.2f%s\n",
                dyti_term_name((enum dyti_term)t),
                dyti_words_bytes(term->bound_bytes).text,
                dyti_words_bytes(term->moved_bytes).text,
                dyti_bound_ratio(term), t == (int)b->moved_by ? "  binds" : "");
    }
    fprintf(out,
            "  no plan takes less than %s (%s); this one's busiest link "
            "takes %s (%s)\n",
            dyti_words_seconds(b->bound_s).text, dyti_term_name(b->bound_by),
            dyti_words_seconds(b->moved_s).text, dyti_term_name(b->moved_by));
}

static void print_strategies(const struct dyti_price *p, FILE *out)
{
    fprintf(out, "\n%-12s %8s %9s %10s %12s  %s\n", "strategy", "rounds",
            "messages", "over load", "simulated", "busiest");
    for (uint32_t i = 0; i < DYTI_PRICE_STRATEGIES; i++) {
        const struct dyti_price_row *r = &p->row[i];

        fprintf(out, "  %-10s %8u %9" PRIu64 " %10.2f %12s  %s\n", r->name,
                r->rounds, r->messages,
                r->load_s > 0 ? r->makespan_s / r->load_s : 1.0,
                dyti_words_seconds(r->simulation.seconds).text,
                r->simulation.text);
    }
    for (uint32_t i = 0; i < DYTI_PRICE_STRATEGIES; i++) {
        const struct dyti_price_row *r = &p->row[i];

        if (r->pieces < r->messages) {
            fprintf(out,
                    "  %s: %zu pieces stand for its messages; --exact orders "
                    "each by itself\n",
                    r->name, r->pieces);
        }
    }
}

static enum dyt_status print_promotion(const struct dyti_price *p, FILE *out)
{
    const struct dyti_promotion *c = &p->promotion;

    for (int kind = 0; kind < DYTI_COLLECTIVE_KIND_COUNT; kind++) {
        struct dyti_collective_sum s =
            dyti_collective_sum(c, (enum dyti_collective_kind)kind);

        if (s.count > 0) {
            fprintf(out, "%s %u x %s of up to %u ranks (%s)",
                    kind == (int)first_kind(c) ? "  collectives" : ",", s.count,
                    dyti_collective_kind_name((enum dyti_collective_kind)kind),
                    s.members, dyti_words_bytes(s.bytes).text);
        }
    }
    if (c->count > 0) {
        fprintf(out, ": with them run so %s%s\n",
                dyti_words_seconds(p->promoted.seconds).text,
                p->promoted.seconds < p->row[0].simulation.seconds
                    ? ""
                    : ", not faster than optimal");
    }
    return c->count > 0 ? dyti_explain_promotion(c, COLLECTIVES_SHOWN, out)
                        : DYT_OK;
}

/* Of `optimal`. */
static enum dyt_status print_simulation(const struct dyti_price *p, FILE *out)
{
    fprintf(out, "\n%s ", p->row[0].name);
    return dyti_explain_simulation(&p->row[0].simulation, out);
}

static void print_run_as_one(const struct dyti_price *p, FILE *out)
{
    const char *sep = "  run as one  ";

    for (int k = 0; k < DYTI_COLLECTIVE_KIND_COUNT; k++) {
        if (p->run_as_one[k] > 0) {
            fprintf(out, "%s%u x %s", sep, p->run_as_one[k],
                    dyti_collective_kind_name((enum dyti_collective_kind)k));
            sep = ", ";
        }
    }
    if (*sep == ',') {
        fprintf(out, ": whole streams, by messages, no slower than pieces\n");
    }
}

/* What is simulated, and the last lines. */
static enum dyt_status print_seconds(const struct dyti_price *price, FILE *out)
{
    enum dyt_status st;

    print_strategies(price, out);
    st = print_simulation(price, out);
    st = st != DYT_OK ? st : print_promotion(price, out);
    if (st != DYT_OK) {
        return st;
    }
    print_run_as_one(price, out);
    fprintf(out, "  seconds are simulated from the cluster's numbers; nothing "
                 "was measured\n");
    return dyti_words_done(out, "the price");
}

enum dyt_status dyti_price_text(const struct dyti_price *price, FILE *out)
{
    print_head(price, out);
    print_bytes(price, out);
    print_choices(price, out);
    print_memory(price, out);
    print_bounds(price, out);
    return print_seconds(price, out);
}

enum dyt_status dyti_price_seconds_text(const struct dyti_price *price,
                                        FILE *out)
{
    print_cluster(price, out);
    print_memory(price, out);
    return print_seconds(price, out);
}
