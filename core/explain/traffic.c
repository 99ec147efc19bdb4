/* How much goes over which kind of link, what the choice of sources gained, and
 * how far that is from what no plan can avoid. */
#include "plan/traffic.h"
#include "explain/explain.h"
#include "explain/words.h"

static const char *const link_name[DYTI_LINK_CLASS_COUNT] = {"kept", "host",
                                                             "nic"};

static void print_sums(const struct dyti_traffic *t, FILE *out)
{
    fprintf(out, "  %-12s %12s %12s %12s %12s\n", "written", "kept",
            "inside hosts", "over NICs", "transfers");
    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        const struct dyti_traffic_sum *s = t->sum[kind];
        uint64_t count = s[DYTI_LINK_SELF].transfers +
                         s[DYTI_LINK_HOST].transfers +
                         s[DYTI_LINK_NIC].transfers;

        if (count > 0) {
            fprintf(out, "  %-12s %12s %12s %12s %12llu\n",
                    dyti_kind_name((enum dyti_kind)kind),
                    dyti_words_bytes(s[DYTI_LINK_SELF].write_bytes).text,
                    dyti_words_bytes(s[DYTI_LINK_HOST].write_bytes).text,
                    dyti_words_bytes(s[DYTI_LINK_NIC].write_bytes).text,
                    (unsigned long long)count);
        }
    }
}

static void print_gain(const struct dyti_traffic *t, FILE *out)
{
    if (t->load_s <= 0) {
        fprintf(out, "  %s\n",
                t->spread_in_turn && t->bounds.bound_s > 0
                    ? "sources: spread in turn; the world is too large to "
                      "compare"
                    : "sources: nothing moves");
        return;
    }
    fprintf(out,
            "  sources: the busiest link takes %s, %s if the first "
            "replica sent everything: gain %.2f\n",
            dyti_words_seconds(t->load_s).text,
            dyti_words_seconds(t->naive_s).text, dyti_traffic_gain(t));
}

static void print_bounds(const struct dyti_traffic *t, FILE *out)
{
    const struct dyti_bounds *b = &t->bounds;

    fprintf(out, "  %-12s %12s %12s %12s\n", "busiest", "moved", "at least",
            "ratio");
    for (int k = 0; k < DYTI_TERM_COUNT; k++) {
        const struct dyti_bound *term = &b->term[k];

        if (term->bound_bytes == 0 && term->moved_bytes == 0) {
            continue;
        }
        fprintf(out, "  %-12s %12s %12s ", dyti_term_name((enum dyti_term)k),
                dyti_words_bytes(term->moved_bytes).text,
                dyti_words_bytes(term->bound_bytes).text);
        if (term->bound_bytes == 0) {
            fprintf(out, "%12s\n", "-");
        } else {
            fprintf(out, "%12.2f\n", dyti_bound_ratio(term));
        }
    }
    fprintf(out, "  binds: %s (at least %s); in this plan %s (%s)\n",
            dyti_term_name(b->bound_by), dyti_words_seconds(b->bound_s).text,
            dyti_term_name(b->moved_by), dyti_words_seconds(b->moved_s).text);
}

enum dyt_status dyti_explain_traffic(const struct dyti_traffic *traffic,
                                     FILE *out)
{
    print_sums(traffic, out);
    print_gain(traffic, out);
    print_bounds(traffic, out);
    return dyti_words_done(out, "the traffic");
}

/* ---- JSON --------------------------------------------------------------- */

static void sums_json(const struct dyti_traffic *t, struct dyti_json *json)
{
    dyti_json_begin_array(json, "kinds");
    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        const struct dyti_traffic_sum *s = t->sum[kind];

        if (s[DYTI_LINK_SELF].transfers + s[DYTI_LINK_HOST].transfers +
                s[DYTI_LINK_NIC].transfers ==
            0) {
            continue;
        }
        dyti_json_begin_object(json, NULL);
        dyti_json_text(json, "kind", dyti_kind_name((enum dyti_kind)kind));
        for (int link = 0; link < DYTI_LINK_CLASS_COUNT; link++) {
            dyti_json_begin_object(json, link_name[link]);
            dyti_json_u64(json, "read_bytes", s[link].read_bytes);
            dyti_json_u64(json, "write_bytes", s[link].write_bytes);
            dyti_json_u64(json, "transfers", s[link].transfers);
            dyti_json_end(json);
        }
        dyti_json_end(json);
    }
    dyti_json_end(json);
}

static void bounds_json(const struct dyti_traffic *t, struct dyti_json *json)
{
    dyti_json_begin_array(json, "bounds");
    for (int k = 0; k < DYTI_TERM_COUNT; k++) {
        const struct dyti_bound *term = &t->bounds.term[k];

        dyti_json_begin_object(json, NULL);
        dyti_json_text(json, "term", dyti_term_name((enum dyti_term)k));
        dyti_json_u64(json, "moved_bytes", term->moved_bytes);
        dyti_json_u64(json, "moved_at", term->moved_at);
        dyti_json_u64(json, "bound_bytes", term->bound_bytes);
        dyti_json_u64(json, "bound_at", term->bound_at);
        dyti_json_f64(json, "bytes_per_s", term->bytes_per_s);
        dyti_json_end(json);
    }
    dyti_json_end(json);
}

void dyti_explain_traffic_json(const struct dyti_traffic *traffic,
                               struct dyti_json *json, const char *key)
{
    const struct dyti_bounds *b = &traffic->bounds;

    dyti_json_begin_object(json, key);
    dyti_words_hex_json(json, "fingerprint", traffic->fingerprint);
    sums_json(traffic, json);
    dyti_json_f64(json, "first_replica_s", traffic->naive_s);
    dyti_json_f64(json, "busiest_link_s", traffic->load_s);
    dyti_json_f64(json, "gain", dyti_traffic_gain(traffic));
    dyti_json_bool(json, "spread_in_turn", traffic->spread_in_turn);
    bounds_json(traffic, json);
    dyti_json_text(json, "bound_by", dyti_term_name(b->bound_by));
    dyti_json_f64(json, "bound_s", b->bound_s);
    dyti_json_text(json, "moved_by", dyti_term_name(b->moved_by));
    dyti_json_f64(json, "moved_s", b->moved_s);
    dyti_json_end(json);
}
