/* A price as one self-contained page: tables, the traffic matrix, memory and
 * links over time, as SVG.  No script, nothing is fetched. */
#include "explain/price.h"
#include "explain/price_words.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define MATRIX_CELLS 128u /* wider worlds are shown by blocks of ranks */
#define MATRIX_PX    640.0
#define CHART_PX     760.0
#define LANES        24u /* of the link chart: the busiest ranks */

static const char style[] =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;"
    "padding:0 1em;color:#222}h1{font-size:1.4em}h2{font-size:1.1em;"
    "margin-top:2em}table{border-collapse:collapse}td,th{padding:.15em .9em;"
    "text-align:right;border-bottom:1px solid #ddd}td:first-child,"
    "th:first-child{text-align:left}svg{background:#fafafa;border:1px solid "
    "#ddd}text{font:11px system-ui,sans-serif;fill:#444}.note{color:#666}";

/* Text as HTML shows it. */
static void put_text(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(*text, out);
            break;
        }
    }
}

/* ---- tables -------------------------------------------------------------- */

static void put_bytes_table(const struct dyti_price *p, FILE *out)
{
    const struct dyti_traffic *t = p->traffic;

    fputs("<h2>Bytes</h2><table><tr><th>kind</th>", out);
    for (int l = 0; l < DYTI_LINK_CLASS_COUNT; l++) {
        fprintf(out, "<th>%s</th>", dyti_words_link((enum dyti_link_class)l));
    }
    fputs("</tr>", out);
    for (uint32_t w = 0; w < t->inputs.want_count; w++) {
        enum dyti_kind kind = t->inputs.want[w].kind;

        fprintf(out, "<tr><td>%s</td>", dyti_kind_name(kind));
        for (int l = 0; l < DYTI_LINK_CLASS_COUNT; l++) {
            fprintf(out, "<td>%s</td>",
                    dyti_words_bytes(t->sum[kind][l].write_bytes).text);
        }
        fputs("</tr>", out);
    }
    fputs("</table>\n", out);
}

static void put_memory_table(const struct dyti_price *p, FILE *out)
{
    struct dyti_price_peaks m = dyti_price_peaks(p);
    uint64_t has = p->params.cluster->rank_memory_bytes;

    fprintf(out,
            "<h2>Memory of a rank</h2><table><tr><th>source</th>"
            "<th>destination</th><th>both (transactional)</th>"
            "<th>overlaid (in_place)</th><th>device</th></tr>"
            "<tr><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>"
            "</table>\n",
            dyti_words_bytes(m.src).text, dyti_words_bytes(m.dst).text,
            dyti_words_bytes(m.both).text, dyti_words_bytes(m.most).text,
            has == 0 ? "not stated" : dyti_words_bytes(has).text);
}

static void put_bounds_table(const struct dyti_price *p, FILE *out)
{
    const struct dyti_bounds *b = &p->traffic->bounds;

    fputs("<h2>How far from the least possible</h2><table><tr><th>link</th>"
          "<th>must cross</th><th>this plan</th><th>ratio</th></tr>",
          out);
    for (int t = 0; t < DYTI_TERM_COUNT; t++) {
        const struct dyti_bound *term = &b->term[t];

        if (term->moved_bytes > 0 || term->bound_bytes > 0) {
            fprintf(out,
                    "<tr><td>%s%s</td><td>%s</td><td>%s</td><td>%.2f</td></tr>",
                    dyti_term_name((enum dyti_term)t),
                    t == (int)b->moved_by ? " (binds)" : "",
                    dyti_words_bytes(term->bound_bytes).text,
                    dyti_words_bytes(term->moved_bytes).text,
                    dyti_bound_ratio(term));
        }
    }
    fprintf(out,
            "</table><p>No plan takes less than <b>%s</b>; the busiest link of "
            "this one takes <b>%s</b>.</p>\n",
            dyti_words_seconds(b->bound_s).text,
            dyti_words_seconds(b->moved_s).text);
}

static void put_strategy_table(const struct dyti_price *p, FILE *out)
{
    fputs("<h2>Strategies, simulated</h2><table><tr><th>strategy</th>"
          "<th>seconds</th><th>over load</th><th>messages</th>"
          "<th>rounds</th><th>busiest</th></tr>",
          out);
    for (uint32_t i = 0; i < DYTI_PRICE_STRATEGIES; i++) {
        const struct dyti_price_row *r = &p->row[i];

        fprintf(out,
                "<tr><td>%s</td><td>%s</td><td>%.2f</td><td>%" PRIu64 "</td>"
                "<td>%u</td><td>",
                r->name, dyti_words_seconds(r->simulation.seconds).text,
                r->load_s > 0 ? r->makespan_s / r->load_s : 1.0, r->messages,
                r->rounds);
        put_text(out, r->simulation.text);
        fputs("</td></tr>", out);
    }
    fputs("</table><p class=note>Simulated from the cluster's numbers; nothing "
          "was measured.</p>\n",
          out);
}

/* What transfers are together, and which streams run so. */
static void put_collectives(const struct dyti_price *p, FILE *out)
{
    const char *sep = "<p>Collectives: ";

    for (int k = 0; k < DYTI_COLLECTIVE_KIND_COUNT; k++) {
        enum dyti_collective_kind kind = (enum dyti_collective_kind)k;
        struct dyti_collective_sum s = dyti_collective_sum(&p->promotion, kind);

        if (s.count > 0 || p->run_as_one[k] > 0) {
            fprintf(out, "%s%u x %s of up to %u ranks (%s; %u run as one)", sep,
                    s.count, dyti_collective_kind_name(kind), s.members,
                    dyti_words_bytes(s.bytes).text, p->run_as_one[k]);
            sep = ", ";
        }
    }
    if (p->promotion.count > 0) {
        fprintf(out, "; all of them run so: %s simulated",
                dyti_words_seconds(p->promoted.seconds).text);
    }
    fputs(*sep == ',' ? ".</p>\n" : "<p>No collectives.</p>\n", out);
}

/* ---- the traffic matrix -------------------------------------------------- */

/* Bytes between blocks of ranks. */
static uint64_t *add_up(const struct dyti_traffic *t, uint32_t cells,
                        uint32_t per_cell)
{
    uint64_t *sum = calloc((size_t)cells * cells, sizeof(*sum));

    for (size_t i = 0; sum != NULL && i < t->pair_count; i++) {
        const struct dyti_traffic_pair *pair = &t->pair[i];

        if (pair->src_rank != pair->dst_rank) {
            sum[(size_t)(pair->src_rank / per_cell) * cells +
                pair->dst_rank / per_cell] += pair->write_bytes;
        }
    }
    return sum;
}

static void put_cell(FILE *out, double px, uint32_t s, uint32_t d,
                     uint64_t bytes, uint64_t most, uint32_t per_cell)
{
    double shade = sqrt((double)bytes / (double)most);

    fprintf(out,
            "<rect x='%.1f' y='%.1f' width='%.2f' height='%.2f' "
            "fill='rgb(%d,%d,%d)'><title>%u to %u: %s</title></rect>",
            d * px, s * px, px, px, (int)(235 - 215 * shade),
            (int)(240 - 150 * shade), 250, s * per_cell, d * per_cell,
            dyti_words_bytes(bytes).text);
}

static enum dyt_status put_matrix(const struct dyti_price *p, FILE *out)
{
    const struct dyti_traffic *t = p->traffic;
    uint32_t per_cell = (t->world_size + MATRIX_CELLS - 1) / MATRIX_CELLS;
    uint32_t cells = (t->world_size + per_cell - 1) / per_cell;
    uint64_t *sum = add_up(t, cells, per_cell), most = 1;
    double px = MATRIX_PX / cells;

    if (sum == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a picture of %u ranks", t->world_size);
    }
    for (size_t i = 0; i < (size_t)cells * cells; i++) {
        most = sum[i] > most ? sum[i] : most;
    }
    fprintf(out,
            "<h2>Who sends whom</h2><p>Rows send, columns receive; %u rank%s a "
            "cell; the darkest is %s.</p><svg width='%.0f' height='%.0f'>",
            per_cell, per_cell == 1 ? "" : "s", dyti_words_bytes(most).text,
            MATRIX_PX, MATRIX_PX);
    for (uint32_t s = 0; s < cells; s++) {
        for (uint32_t d = 0; d < cells; d++) {
            if (sum[(size_t)s * cells + d] > 0) {
                put_cell(out, px, s, d, sum[(size_t)s * cells + d], most,
                         per_cell);
            }
        }
    }
    fputs("</svg>\n", out);
    free(sum);
    return DYT_OK;
}

/* ---- over time ----------------------------------------------------------- */

/* Seconds to pixels. */
static double at(const struct dyti_price *p, double s)
{
    return p->row[0].simulation.seconds > 0
               ? s / p->row[0].simulation.seconds * CHART_PX
               : 0;
}

static void put_axis(const struct dyti_price *p, double y, FILE *out)
{
    for (int i = 0; i <= 4; i++) {
        double s = p->row[0].simulation.seconds * i / 4;

        fprintf(out, "<text x='%.0f' y='%.0f'%s>%s</text>", at(p, s), y,
                i == 4 ? " text-anchor='end'" : "", dyti_words_seconds(s).text);
    }
}

/* The rank whose memory is fullest at any time. */
static uint32_t fullest(const struct dyti_simulation *s)
{
    uint64_t most = 0;
    uint32_t best = 0;

    for (uint32_t r = 0; r < s->rank_count; r++) {
        for (uint32_t b = 0; b < s->memory_buckets; b++) {
            uint64_t m = s->memory[(size_t)r * s->memory_buckets + b];

            if (m > most) {
                most = m;
                best = r;
            }
        }
    }
    return best;
}

/* Mode transactional: both layouts lie there all along, staging comes and
 * goes. */
static void put_memory_line(const struct dyti_price *p, FILE *out)
{
    const struct dyti_simulation *s = &p->row[0].simulation;
    uint32_t rank = fullest(s), buckets = s->memory_buckets;
    const uint64_t *line = &s->memory[(size_t)rank * buckets];
    uint64_t both = p->memory[rank].src_bytes + p->memory[rank].dst_bytes;
    uint64_t most = both;
    double height = 160;

    for (uint32_t b = 0; b < buckets; b++) {
        most = line[b] > most ? line[b] : most;
    }
    fprintf(out,
            "<h2>Memory over time</h2><p>Rank %u, the fullest, in mode "
            "transactional: both layouts take %s, with staging %s at most; the "
            "source goes at commit.</p><svg width='%.0f' height='%.0f'>"
            "<polyline fill='none' stroke='#2a6' stroke-width='2' points='",
            rank, dyti_words_bytes(both).text, dyti_words_bytes(most).text,
            CHART_PX, height + 18);
    for (uint32_t b = 0; b < buckets; b++) {
        fprintf(out, "%.1f,%.1f ", CHART_PX * b / buckets,
                height * (1 - 0.95 * (double)line[b] / (double)(most + 1)));
    }
    fputs("'/>", out);
    put_axis(p, height + 14, out);
    fputs("</svg>\n", out);
}

static uint32_t most_of(const uint64_t *value, uint32_t count)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < count; i++) {
        best = value[i] > value[best] ? i : best;
    }
    return best;
}

/* The ranks that send most, most first. */
static uint32_t pick_lanes(const struct dyti_price *p, uint32_t lane[LANES])
{
    const struct dyti_simulation *s = &p->row[0].simulation;
    uint32_t world = p->traffic->world_size, count = 0;
    uint64_t *sent = calloc(world, sizeof(*sent));

    for (size_t i = 0; sent != NULL && i < s->bar_count; i++) {
        sent[s->bar[i].rank] += s->bar[i].receiving ? 0 : s->bar[i].bytes;
    }
    while (sent != NULL && count < LANES && count < world) {
        uint32_t best = most_of(sent, world);

        if (sent[best] == 0) {
            break;
        }
        sent[best] = 0;
        lane[count++] = best;
    }
    free(sent);
    return count;
}

/* What one rank sends when: inside hosts above, between them below. */
static void put_lane(const struct dyti_price *p, uint32_t rank, double y,
                     FILE *out)
{
    static const char *const colour[] = {"#999", "#58c", "#c63"};
    const struct dyti_simulation *s = &p->row[0].simulation;

    fprintf(out, "<text x='%.0f' y='%.0f'>rank %u</text>", CHART_PX + 6, y + 11,
            rank);
    for (size_t i = 0; i < s->bar_count; i++) {
        const struct dyti_bar *b = &s->bar[i];
        double width = at(p, b->end_s) - at(p, b->start_s);

        if (b->rank == rank && !b->receiving && width > 0.02) {
            fprintf(out,
                    "<rect x='%.1f' y='%.1f' width='%.2f' height='5' "
                    "fill='%s'><title>to rank %u, %s</title></rect>",
                    at(p, b->start_s), y + (b->link == DYTI_LINK_NIC ? 6.5 : 1),
                    width, colour[b->link], b->peer,
                    dyti_words_bytes(b->bytes).text);
        }
    }
}

static void put_links(const struct dyti_price *p, FILE *out)
{
    uint32_t lane[LANES], lanes = pick_lanes(p, lane);
    double height = lanes * 14.0;

    fprintf(out,
            "<h2>Links over time</h2><p>What the ranks that send most send: "
            "<span style='color:#58c'>inside hosts</span>, <span "
            "style='color:#c63'>between hosts</span>.</p><svg width='%.0f' "
            "height='%.0f'>",
            CHART_PX + 70, height + 18);
    for (uint32_t l = 0; l < lanes; l++) {
        put_lane(p, lane[l], l * 14.0, out);
    }
    put_axis(p, height + 14, out);
    fputs("</svg>\n", out);
}

static enum dyt_status put_switch(const struct dyti_price *price,
                                  const char *name, FILE *out)
{
    const struct dyti_cluster *c = price->params.cluster;
    enum dyt_status st;

    fputs("<h1>", out);
    put_text(out, name);
    fprintf(out, "</h1><p>%s to %s; %s; ",
            dyti_words_degrees(&price->params.src->desc).text,
            dyti_words_degrees(&price->dst->desc).text,
            dyti_words_parameters(price->dst->model).text);
    put_text(out, c->name);
    fprintf(out, "; %u rank%s on %u host%s; <b>%s</b> simulated.</p>\n",
            c->rank_count, c->rank_count == 1 ? "" : "s", c->host_count,
            c->host_count == 1 ? "" : "s",
            dyti_words_seconds(price->row[0].simulation.seconds).text);
    put_bytes_table(price, out);
    put_memory_table(price, out);
    put_bounds_table(price, out);
    put_strategy_table(price, out);
    put_collectives(price, out);
    st = put_matrix(price, out);
    if (st == DYT_OK && price->row[0].simulation.bar_count > 0) {
        put_memory_line(price, out);
        put_links(price, out);
    }
    return st;
}

enum dyt_status dyti_price_html(const char *title,
                                const struct dyti_price *const *price,
                                const char *const *name, size_t count,
                                FILE *out)
{
    enum dyt_status st = DYT_OK;

    fputs("<!doctype html><html lang=en><meta charset=utf-8><title>", out);
    put_text(out, title);
    fprintf(out, "</title><style>%s</style>\n", style);
    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        st = put_switch(price[i], name[i], out);
    }
    fputs("</html>\n", out);
    return st != DYT_OK ? st : dyti_words_done(out, "the page");
}
