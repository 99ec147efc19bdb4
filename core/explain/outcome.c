/* Text and JSON of what was simulated and of what became collectives. */
#include "explain/outcome.h"

#include "explain/price_words.h"

#include <inttypes.h>

static bool moves(const struct dyti_simulation *s, int link)
{
    return s->messages[link] > 0 || s->bytes[link] > 0;
}

/* The ranks that are done first and last. */
static void ends(const struct dyti_simulation *s, uint32_t *out_first,
                 uint32_t *out_last)
{
    *out_first = *out_last = 0;
    for (uint32_t r = 1; r < s->rank_count; r++) {
        *out_first = s->done_s[r] < s->done_s[*out_first] ? r : *out_first;
        *out_last = s->done_s[r] > s->done_s[*out_last] ? r : *out_last;
    }
}

enum dyt_status dyti_explain_simulation(const struct dyti_simulation *s,
                                        FILE *out)
{
    uint32_t first, last;

    fprintf(out, "simulated  %s%s%s\n", dyti_words_seconds(s->seconds).text,
            s->text[0] == '\0' ? "" : "; ", s->text);
    for (int link = 0; link < DYTI_LINK_CLASS_COUNT; link++) {
        if (moves(s, link)) {
            fprintf(out, "  %-13s %10s in %" PRIu64 " messages\n",
                    dyti_words_link((enum dyti_link_class)link),
                    dyti_words_bytes(s->bytes[link]).text, s->messages[link]);
        }
    }
    fprintf(out, "  %-13s %10s of a rank at most\n", "staging",
            dyti_words_bytes(s->staging_most).text);
    if (s->rank_count > 0 && s->done_s != NULL) {
        ends(s, &first, &last);
        fprintf(out, "  %-13s from %s (rank %u) to %s (rank %u)\n",
                "ranks done", dyti_words_seconds(s->done_s[first]).text, first,
                dyti_words_seconds(s->done_s[last]).text, last);
    }
    return dyti_words_done(out, "the simulation");
}

void dyti_explain_simulation_json(const struct dyti_simulation *s,
                                  struct dyti_json *json, const char *key)
{
    static const char *const link[] = {"inside_ranks", "inside_hosts",
                                       "between_hosts"};

    dyti_json_begin_object(json, key);
    dyti_json_f64(json, "seconds", s->seconds);
    dyti_json_text(json, "bottleneck", s->text);
    for (int l = 0; l < DYTI_LINK_CLASS_COUNT; l++) {
        dyti_json_begin_object(json, link[l]);
        dyti_json_u64(json, "bytes", s->bytes[l]);
        dyti_json_u64(json, "messages", s->messages[l]);
        dyti_json_end(json);
    }
    dyti_json_u64(json, "staging_most_bytes", s->staging_most);
    dyti_json_begin_array(json, "done_seconds");
    for (uint32_t r = 0; s->done_s != NULL && r < s->rank_count; r++) {
        dyti_json_f64(json, NULL, s->done_s[r]);
    }
    dyti_json_end(json);
    dyti_json_end(json);
}

/* ---- collectives --------------------------------------------------------- */

enum dyt_status dyti_explain_promotion(const struct dyti_promotion *p,
                                       uint32_t most, FILE *out)
{
    fprintf(out, "promoted   %zu collectives of %u transfers, %u are left\n",
            p->count, p->item_total, p->rest_count);
    for (size_t i = 0; i < p->count && i < most; i++) {
        const struct dyti_collective *c = &p->collective[i];

        fprintf(out, "  %-11s %10s of rank %u, %u transfers:",
                dyti_collective_kind_name((enum dyti_collective_kind)c->kind),
                dyti_words_bytes(c->bytes).text, c->root, c->item_count);
        for (uint32_t m = 0; m < c->member_count; m++) {
            fprintf(out, " %u", p->member[c->member_first + m]);
        }
        fprintf(out, "\n");
    }
    if (p->count > most) {
        fprintf(out, "  and %zu more\n", p->count - most);
    }
    return dyti_words_done(out, "the collectives");
}

void dyti_explain_promotion_json(const struct dyti_promotion *p,
                                 struct dyti_json *json, const char *key)
{
    dyti_json_begin_array(json, key);
    for (size_t i = 0; i < p->count; i++) {
        const struct dyti_collective *c = &p->collective[i];

        dyti_json_begin_object(json, NULL);
        dyti_json_text(
            json, "kind",
            dyti_collective_kind_name((enum dyti_collective_kind)c->kind));
        dyti_json_u64(json, "wave", c->wave);
        dyti_json_u64(json, "root", c->root);
        dyti_json_u64(json, "bytes", c->bytes);
        dyti_json_u64(json, "transfers", c->item_count);
        dyti_json_begin_array(json, "members");
        for (uint32_t m = 0; m < c->member_count; m++) {
            dyti_json_u64(json, NULL, p->member[c->member_first + m]);
        }
        dyti_json_end(json);
        dyti_json_end(json);
    }
    dyti_json_end(json);
}
