/* What goes from whom to whom: the sources, a matrix of bytes, sums. */
#include "explain/explain.h"
#include "explain/words.h"
#include "plan/traffic.h"

#include <inttypes.h>

#define MATRIX_RANKS 12u /* wider worlds get a list of pairs */

struct sums {
    uint64_t keep_read, keep_write, move_read, move_write;
};

static struct sums add_up(const struct dyti_plan *plan)
{
    struct sums s = {0};

    for (uint32_t i = 0; i < plan->pair_count; i++) {
        const struct dyti_plan_pair *p = &plan->pair[i];

        if (p->src_rank == p->dst_rank) {
            s.keep_read += p->read_bytes;
            s.keep_write += p->write_bytes;
        } else {
            s.move_read += p->read_bytes;
            s.move_write += p->write_bytes;
        }
    }
    return s;
}

static void print_wants(const struct dyti_plan_inputs *in, FILE *out)
{
    for (uint32_t w = 0; w < in->want_count; w++) {
        const struct dyti_plan_want *want = &in->want[w];

        fprintf(out, "  %s.%s (%s) from", dyti_words_slot(in->dst_slot),
                dyti_kind_name(want->kind),
                dyti_dtype_name(in->dst->desc.dtype[want->kind]));
        for (uint32_t s = 0; s < want->source_count; s++) {
            const struct dyti_plan_source *source = &want->source[s];

            fprintf(out, "%s %s.%s (%s)", s == 0 ? "" : " or",
                    dyti_words_slot(source->slot), dyti_kind_name(source->kind),
                    dyti_dtype_name(source->layout->desc.dtype[source->kind]));
        }
        fprintf(out, "\n");
    }
}

static void print_matrix(const struct dyti_plan *plan, FILE *out)
{
    fprintf(out, "  bytes written by rank (columns) from rank (rows):\n  %8s",
            "");
    for (uint32_t d = 0; d < plan->world_size; d++) {
        fprintf(out, "  %7s %-3u", "to", d);
    }
    fprintf(out, "  %11s\n", "sent");
    for (uint32_t s = 0; s < plan->world_size; s++) {
        uint64_t sent = 0;

        fprintf(out, "  from %-3u", s);
        for (uint32_t d = 0; d < plan->world_size; d++) {
            const struct dyti_plan_pair *p = dyti_plan_find_pair(plan, s, d);

            sent += p == NULL || s == d ? 0 : p->write_bytes;
            fprintf(out, "  %11s",
                    p == NULL ? "-" : dyti_words_bytes(p->write_bytes).text);
        }
        fprintf(out, "  %11s\n", dyti_words_bytes(sent).text);
    }
    fprintf(out, "  %-8s", "received");
    for (uint32_t d = 0; d < plan->world_size; d++) {
        fprintf(out, "  %11s",
                dyti_words_bytes(plan->total[d].receive_bytes).text);
    }
    fprintf(out, "\n");
}

static void print_pairs(const struct dyti_plan *plan, FILE *out)
{
    fprintf(out, "  %8s %8s %10s %12s %12s\n", "from", "to", "transfers",
            "read", "written");
    for (uint32_t i = 0; i < plan->pair_count; i++) {
        const struct dyti_plan_pair *p = &plan->pair[i];

        fprintf(out, "  %8u %8u %10u %12s %12s\n", p->src_rank, p->dst_rank,
                p->transfer_count, dyti_words_bytes(p->read_bytes).text,
                dyti_words_bytes(p->write_bytes).text);
    }
}

static void print_transfers(const struct dyti_plan *plan, FILE *out)
{
    for (uint32_t i = 0; i < plan->transfer_count; i++) {
        const struct dyti_transfer *t = &plan->transfer[i];

        fprintf(out, "  %u -> %u  %s %s -> %s %s  %s %s\n", t->src_rank,
                t->dst_rank, dyti_kind_name((enum dyti_kind)t->src_kind),
                dyti_dtype_name((enum dyti_dtype)t->src_dtype),
                dyti_kind_name((enum dyti_kind)t->dst_kind),
                dyti_dtype_name((enum dyti_dtype)t->dst_dtype),
                plan->inputs.dst->model->tensor[t->tensor].name,
                dyti_words_box(&t->box).text);
    }
}

/* The traffic of a whole plan; NULL for a rank's part. */
static enum dyt_status traffic_of(const struct dyti_plan *plan,
                                  const struct dyti_cluster *cluster,
                                  struct dyti_traffic **out_traffic)
{
    const struct dyti_traffic_options options = {
        .cluster = cluster, .fan_out = plan->inputs.fan_out};

    *out_traffic = NULL;
    return plan->rank >= 0
               ? DYT_OK
               : dyti_traffic_build(&plan->inputs, &options, out_traffic);
}

enum dyt_status dyti_explain_plan(const struct dyti_plan *plan,
                                  const struct dyti_cluster *cluster,
                                  bool transfers, FILE *out)
{
    struct sums s = add_up(plan);
    struct dyti_traffic *traffic = NULL;
    enum dyt_status st = traffic_of(plan, cluster, &traffic);

    if (st != DYT_OK) {
        return st;
    }
    fprintf(out, "plan to %s", plan->inputs.dst->desc.phase);
    if (plan->rank >= 0) {
        fprintf(out, ", as rank %" PRId64 " sees it", plan->rank);
    }
    fprintf(out, ": %u transfers, %s kept, %s moved, fingerprint %s\n",
            plan->transfer_count, dyti_words_bytes(s.keep_write).text,
            dyti_words_bytes(s.move_write).text,
            dyti_words_hex(plan->fingerprint).text);
    print_wants(&plan->inputs, out);
    if (plan->world_size <= MATRIX_RANKS) {
        print_matrix(plan, out);
    } else {
        print_pairs(plan, out);
    }
    if (transfers) {
        print_transfers(plan, out);
    }
    st = traffic == NULL ? DYT_OK : dyti_explain_traffic(traffic, out);
    dyti_traffic_destroy(traffic);
    return st != DYT_OK ? st : dyti_words_done(out, "the plan");
}

/* ---- JSON --------------------------------------------------------------- */

static void wants_json(const struct dyti_plan_inputs *in,
                       struct dyti_json *json)
{
    dyti_json_begin_array(json, "wants");
    for (uint32_t w = 0; w < in->want_count; w++) {
        const struct dyti_plan_want *want = &in->want[w];

        dyti_json_begin_object(json, NULL);
        dyti_json_text(json, "layout", dyti_words_slot(in->dst_slot));
        dyti_json_text(json, "kind", dyti_kind_name(want->kind));
        dyti_json_text(json, "dtype",
                       dyti_dtype_name(in->dst->desc.dtype[want->kind]));
        dyti_json_begin_array(json, "sources");
        for (uint32_t s = 0; s < want->source_count; s++) {
            const struct dyti_plan_source *source = &want->source[s];

            dyti_json_begin_object(json, NULL);
            dyti_json_text(json, "layout", dyti_words_slot(source->slot));
            dyti_json_text(json, "kind", dyti_kind_name(source->kind));
            dyti_json_text(
                json, "dtype",
                dyti_dtype_name(source->layout->desc.dtype[source->kind]));
            dyti_json_end(json);
        }
        dyti_json_end(json);
        dyti_json_end(json);
    }
    dyti_json_end(json);
}

static void pairs_json(const struct dyti_plan *plan, struct dyti_json *json)
{
    dyti_json_begin_array(json, "pairs");
    for (uint32_t i = 0; i < plan->pair_count; i++) {
        const struct dyti_plan_pair *p = &plan->pair[i];

        dyti_json_begin_object(json, NULL);
        dyti_json_u64(json, "src", p->src_rank);
        dyti_json_u64(json, "dst", p->dst_rank);
        dyti_json_u64(json, "transfers", p->transfer_count);
        dyti_json_u64(json, "elements", p->elements);
        dyti_json_u64(json, "read_bytes", p->read_bytes);
        dyti_json_u64(json, "write_bytes", p->write_bytes);
        dyti_words_hex_json(json, "hash", p->hash);
        dyti_json_end(json);
    }
    dyti_json_end(json);
    dyti_json_begin_array(json, "ranks");
    for (uint32_t r = 0; r < plan->world_size; r++) {
        dyti_json_begin_object(json, NULL);
        dyti_json_u64(json, "rank", r);
        dyti_json_u64(json, "send_bytes", plan->total[r].send_bytes);
        dyti_json_u64(json, "receive_bytes", plan->total[r].receive_bytes);
        dyti_json_u64(json, "keep_bytes", plan->total[r].keep_bytes);
        dyti_json_end(json);
    }
    dyti_json_end(json);
}

static void transfers_json(const struct dyti_plan *plan, struct dyti_json *json)
{
    dyti_json_begin_array(json, "transfers");
    for (uint32_t i = 0; i < plan->transfer_count; i++) {
        const struct dyti_transfer *t = &plan->transfer[i];

        dyti_json_begin_object(json, NULL);
        dyti_json_text(json, "tensor",
                       plan->inputs.dst->model->tensor[t->tensor].name);
        dyti_json_u64(json, "src", t->src_rank);
        dyti_json_u64(json, "dst", t->dst_rank);
        dyti_json_text(json, "src_kind",
                       dyti_kind_name((enum dyti_kind)t->src_kind));
        dyti_json_text(json, "dst_kind",
                       dyti_kind_name((enum dyti_kind)t->dst_kind));
        dyti_json_u64(json, "wave", t->wave);
        dyti_words_box_json(json, "box", &t->box);
        dyti_json_end(json);
    }
    dyti_json_end(json);
}

void dyti_explain_plan_json(const struct dyti_plan *plan,
                            const struct dyti_cluster *cluster, bool transfers,
                            struct dyti_json *json, const char *key)
{
    struct sums s = add_up(plan);
    struct dyti_traffic *traffic = NULL;

    dyti_json_begin_object(json, key);
    dyti_json_text(json, "to", plan->inputs.dst->desc.phase);
    dyti_json_u64(json, "transfer_count", plan->transfer_count);
    dyti_json_u64(json, "kept_read_bytes", s.keep_read);
    dyti_json_u64(json, "kept_write_bytes", s.keep_write);
    dyti_json_u64(json, "moved_read_bytes", s.move_read);
    dyti_json_u64(json, "moved_write_bytes", s.move_write);
    dyti_words_hex_json(json, "fingerprint", plan->fingerprint);
    wants_json(&plan->inputs, json);
    pairs_json(plan, json);
    if (transfers) {
        transfers_json(plan, json);
    }
    if (traffic_of(plan, cluster, &traffic) == DYT_OK && traffic != NULL) {
        dyti_explain_traffic_json(traffic, json, "traffic");
    }
    dyti_traffic_destroy(traffic);
    dyti_json_end(json);
}
