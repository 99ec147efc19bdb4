/* Who holds what: the degrees, a line per rank, every box if asked. */
#include "explain/explain.h"
#include "explain/words.h"
#include "layout/dialect.h"

#include <inttypes.h>

/* A kind that the model does not have is not worth a word. */
static bool is_worth(const struct dyti_layout *layout, int kind)
{
    return kind != DYTI_EXTRA || (layout->model->kinds >> kind & 1u) != 0;
}

/* Degrees that are mostly 1, and the dialect where it is not our own. */
static void print_wider(const struct dyti_layout_desc *d, FILE *out)
{
    static const char *const map[] = {"linear", "round_robin", "explicit"};
    const struct {
        const char *name;
        uint32_t value;
    } row[] = {{"cp", d->cp}, {"ep", d->ep}, {"etp", d->etp}, {"vpp", d->vpp}};

    if (d->zero_range_count > 0) {
        fprintf(out, " in %u explicit ranges", d->zero_range_count);
    }
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        if (row[i].value > 1) {
            fprintf(out, ", %s %u", row[i].name, row[i].value);
        }
    }
    if (d->ep > 1 && d->experts <= DYTI_EXPERTS_EXPLICIT) {
        fprintf(out, " (%s)", map[d->experts]);
    }
    if (d->dialect != DYTI_DIALECT_NATIVE) {
        fprintf(out, ", dialect %s", dyti_dialect_name(d->dialect));
    }
}

static void print_head(const struct dyti_layout *layout, FILE *out)
{
    const struct dyti_layout_desc *d = &layout->desc;

    fprintf(out, "layout %s: tp %u, pp %u, dp %u, zero %u", d->phase, d->tp,
            d->pp, d->dp, d->zero);
    print_wider(d, out);
    fprintf(out, ": %u of %u ranks, fingerprint %s\n", layout->member_count,
            d->world_size, dyti_words_hex(layout->fingerprint).text);
    fprintf(out, "  kinds:");
    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        if (!is_worth(layout, kind)) {
            continue;
        }
        fprintf(out, "%s %s", kind == 0 ? "" : ",",
                dyti_kind_name((enum dyti_kind)kind));
        if (d->residency[kind] == DYTI_HELD) {
            fprintf(out, " %s", dyti_dtype_name(d->dtype[kind]));
        } else {
            fprintf(out, " %s", dyti_words_residency(d->residency[kind]));
        }
    }
    fprintf(out, "\n");
}

static const char *range(char *buf, size_t bytes, int64_t lo, int64_t hi)
{
    (void)snprintf(buf, bytes, "%" PRId64 "-%" PRId64, lo, hi - 1);
    return buf;
}

static void print_rank(const struct dyti_view *view, uint32_t rank, FILE *out)
{
    const struct dyti_part *p = &view->part;
    char layers[48], q[48], kv[48], ffn[48], vocab[48];
    uint64_t state = 0;

    if (!p->member) {
        fprintf(out, "  %4u  takes no part\n", rank);
        return;
    }
    for (int kind = DYTI_MASTER; kind <= DYTI_EXP_AVG_SQ; kind++) {
        state += view->region_bytes[kind];
    }
    fprintf(out,
            "  %4u  %3u %3u %3u  %-8s %-8s %-8s %-12s %-14s %10s %10s %10s\n",
            rank, p->pp_rank, p->dp_rank, p->tp_rank,
            range(layers, sizeof(layers), p->layer_lo, p->layer_hi),
            range(q, sizeof(q), p->q_lo, p->q_hi),
            range(kv, sizeof(kv), p->kv_lo, p->kv_hi),
            range(ffn, sizeof(ffn), p->ffn_lo, p->ffn_hi),
            range(vocab, sizeof(vocab), p->vocab_lo, p->vocab_hi),
            dyti_words_bytes(view->region_bytes[DYTI_PARAM]).text,
            dyti_words_bytes(view->region_bytes[DYTI_GRAD]).text,
            dyti_words_bytes(state).text);
}

static void print_shards(const struct dyti_layout *layout,
                         const struct dyti_view *view, uint32_t rank, FILE *out)
{
    for (uint32_t i = 0; i < view->shard_count; i++) {
        const struct dyti_shard *s = &view->shard[i];

        fprintf(out, "  rank %u  %-10s %-46s %-22s at %" PRIu64 "\n", rank,
                dyti_kind_name((enum dyti_kind)s->kind),
                layout->model->tensor[s->tensor].name,
                dyti_words_box(&s->box).text, s->offset);
    }
}

/* The view of a rank: the layout's, or, of a lazy one, made in *own. */
static enum dyt_status with_view(const struct dyti_layout *layout,
                                 uint32_t rank, struct dyti_view *own,
                                 const struct dyti_view **out_view)
{
    enum dyt_status st = DYT_OK;

    if (layout->view == NULL) {
        st = dyti_layout_view_build(layout, rank, own);
    }
    *out_view = layout->view == NULL ? own : &layout->view[rank];
    return st;
}

enum dyt_status dyti_explain_layout(const struct dyti_layout *layout,
                                    bool shards, FILE *out)
{
    const struct dyti_view *view;
    struct dyti_view own = {0};
    enum dyt_status st = DYT_OK;

    print_head(layout, out);
    fprintf(out,
            "  rank   pp  dp  tp  %-8s %-8s %-8s %-12s %-14s %10s %10s %10s\n",
            "layers", "q heads", "kv heads", "ffn", "vocab", "param", "grad",
            "optimizer");
    for (uint32_t r = 0; r < layout->desc.world_size && st == DYT_OK; r++) {
        st = with_view(layout, r, &own, &view);
        if (st == DYT_OK) {
            print_rank(view, r, out);
        }
        dyti_view_fini(&own);
    }
    for (uint32_t r = 0; shards && r < layout->desc.world_size && st == DYT_OK;
         r++) {
        st = with_view(layout, r, &own, &view);
        if (st == DYT_OK) {
            print_shards(layout, view, r, out);
        }
        dyti_view_fini(&own);
    }
    return st != DYT_OK ? st : dyti_words_done(out, "the layout");
}

/* ---- JSON --------------------------------------------------------------- */

static void shards_json(const struct dyti_layout *layout,
                        const struct dyti_view *view, struct dyti_json *json)
{
    dyti_json_begin_array(json, "shards");
    for (uint32_t i = 0; i < view->shard_count; i++) {
        const struct dyti_shard *s = &view->shard[i];

        dyti_json_begin_object(json, NULL);
        dyti_json_text(json, "kind", dyti_kind_name((enum dyti_kind)s->kind));
        dyti_json_text(json, "tensor", layout->model->tensor[s->tensor].name);
        dyti_words_box_json(json, "box", &s->box);
        dyti_json_u64(json, "offset", s->offset);
        dyti_json_begin_array(json, "stride");
        for (uint32_t d = 0; d < s->box.ndim; d++) {
            dyti_json_i64(json, NULL, s->stride[d]);
        }
        dyti_json_end(json);
        dyti_json_end(json);
    }
    dyti_json_end(json);
}

/* One range, or a list of them where the cut has several. */
static void zero_json(const struct dyti_view *view, struct dyti_json *json)
{
    if (view->zero_count <= 1) {
        dyti_words_range_json(json, "zero", (int64_t)view->zero_lo,
                              (int64_t)view->zero_hi);
        return;
    }
    dyti_json_begin_array(json, "zero");
    for (uint32_t i = 0; i < view->zero_count; i++) {
        dyti_words_range_json(json, NULL, (int64_t)view->zero[i].lo,
                              (int64_t)view->zero[i].hi);
    }
    dyti_json_end(json);
}

static void rank_json(const struct dyti_layout *layout,
                      const struct dyti_view *view, uint32_t rank, bool shards,
                      struct dyti_json *json)
{
    const struct dyti_part *p = &view->part;

    dyti_json_begin_object(json, NULL);
    dyti_json_u64(json, "rank", rank);
    dyti_json_bool(json, "member", p->member);
    if (p->member) {
        dyti_json_u64(json, "pp", p->pp_rank);
        dyti_json_u64(json, "dp", p->dp_rank);
        dyti_json_u64(json, "tp", p->tp_rank);
        dyti_json_u64(json, "cp", p->cp_rank);
        dyti_json_u64(json, "ep", p->ep_rank);
        dyti_json_u64(json, "etp", p->etp_rank);
        dyti_words_range_json(json, "layers", p->layer_lo, p->layer_hi);
        dyti_words_range_json(json, "q_heads", p->q_lo, p->q_hi);
        dyti_words_range_json(json, "kv_heads", p->kv_lo, p->kv_hi);
        dyti_words_range_json(json, "ffn", p->ffn_lo, p->ffn_hi);
        dyti_words_range_json(json, "vocab", p->vocab_lo, p->vocab_hi);
        dyti_json_u64(json, "flat_elements", view->flat_elements);
        zero_json(view, json);
        dyti_json_begin_object(json, "bytes");
        for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
            if (is_worth(layout, kind)) {
                dyti_json_u64(json, dyti_kind_name((enum dyti_kind)kind),
                              view->region_bytes[kind]);
            }
        }
        dyti_json_end(json);
        if (shards) {
            shards_json(layout, view, json);
        }
    }
    dyti_json_end(json);
}

void dyti_explain_layout_json(const struct dyti_layout *layout, bool shards,
                              struct dyti_json *json, const char *key)
{
    const struct dyti_layout_desc *d = &layout->desc;
    const struct dyti_view *view;
    struct dyti_view own = {0};

    dyti_json_begin_object(json, key);
    dyti_json_text(json, "phase", d->phase);
    dyti_json_u64(json, "world_size", d->world_size);
    dyti_json_u64(json, "tp", d->tp);
    dyti_json_u64(json, "pp", d->pp);
    dyti_json_u64(json, "dp", d->dp);
    dyti_json_u64(json, "zero", d->zero);
    dyti_json_u64(json, "cp", d->cp);
    dyti_json_u64(json, "ep", d->ep);
    dyti_json_u64(json, "etp", d->etp);
    dyti_json_u64(json, "vpp", d->vpp);
    dyti_json_text(json, "dialect", dyti_dialect_name(d->dialect));
    dyti_words_hex_json(json, "fingerprint", layout->fingerprint);
    dyti_json_begin_object(json, "kinds");
    for (int kind = 0; kind < DYTI_KIND_COUNT; kind++) {
        if (!is_worth(layout, kind)) {
            continue;
        }
        dyti_json_begin_object(json, dyti_kind_name((enum dyti_kind)kind));
        dyti_json_text(json, "dtype", dyti_dtype_name(d->dtype[kind]));
        dyti_json_text(json, "residency",
                       dyti_words_residency(d->residency[kind]));
        dyti_json_end(json);
    }
    dyti_json_end(json);
    dyti_json_begin_array(json, "ranks");
    for (uint32_t r = 0; r < d->world_size && json->status == DYT_OK; r++) {
        json->status = with_view(layout, r, &own, &view);
        if (json->status == DYT_OK) {
            rank_json(layout, view, r, shards, json);
        }
        dyti_view_fini(&own);
    }
    dyti_json_end(json);
    dyti_json_end(json);
}
