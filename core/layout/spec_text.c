/* A layout's description as one line that reads back as the same. */
#include "layout/spec.h"

#include "base/array.h"
#include "base/banned.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *const dialect_name[DYTI_DIALECT_COUNT] = {
    "native", "hf", "megatron", "zero12", "zero3", "fsdp2", "vllm", "list"};

struct text {
    char *bytes;
    size_t count, cap;
    enum dyt_status status;
};

static void add(struct text *t, const char *fmt, ...) DYTI_PRINTF(2, 3);

static void add(struct text *t, const char *fmt, ...)
{
    char part[256];
    va_list args;
    int length;

    if (t->status != DYT_OK) {
        return;
    }
    va_start(args, fmt);
    length = vsnprintf(part, sizeof(part), fmt, args);
    va_end(args);
    dyti_require(length >= 0 && (size_t)length < sizeof(part));
    t->status = DYTI_GROW(t->bytes, t->cap, t->count + (size_t)length + 1);
    if (t->status == DYT_OK) {
        memcpy(t->bytes + t->count, part, (size_t)length + 1);
        t->count += (size_t)length;
    }
}

static uint32_t one(uint32_t degree)
{
    return degree == 0 ? 1 : degree;
}

/* Ranks, with runs as "a-b". */
static void add_ranks(struct text *t, const uint32_t *rank, uint32_t count)
{
    bool plain = true;

    for (uint32_t i = 0; i < count; i++) {
        plain = plain && rank[i] == i;
    }
    if (plain) {
        return;
    }
    add(t, ",ranks=");
    for (uint32_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && rank[end] == rank[end - 1] + 1;
             end++) {
        }
        add(t, "%s%u", i == 0 ? "" : "+", rank[i]);
        if (end > i + 1) {
            add(t, "-%u", rank[end - 1]);
        }
    }
}

/* Sizes of hosts whose ranks follow each other; others cannot be written. */
static void add_hosts(struct text *t, const struct dyti_layout_desc *d)
{
    add(t, ",hosts=");
    for (uint32_t i = 0, end; i < d->world_size; i = end) {
        for (end = i + 1; end < d->world_size && d->host[end] == d->host[i];
             end++) {
        }
        add(t, "%s%u", i == 0 ? "" : "+", end - i);
    }
}

static void add_experts(struct text *t, const struct dyti_layout_desc *d)
{
    if (d->experts == DYTI_EXPERTS_ROUND_ROBIN) {
        add(t, ",experts=round_robin");
    }
    if (d->experts != DYTI_EXPERTS_EXPLICIT) {
        return;
    }
    add(t, ",experts=");
    for (uint32_t i = 0; i < one(d->ep) * d->expert_slots; i++) {
        add(t, "%s%d",
            i == 0                     ? ""
            : i % d->expert_slots == 0 ? "/"
                                       : "+",
            d->expert_slot[i]);
    }
}

static void add_lists(struct text *t, const struct dyti_layout_desc *d)
{
    static const char *const axis[DYTI_AXIS_COUNT] = {"tp", "cp", "dp", "pp"};
    uint32_t members = one(d->tp) * one(d->cp) * one(d->dp) * one(d->pp);
    bool ordered = false;

    for (int i = 0; i < DYTI_AXIS_COUNT; i++) {
        ordered = ordered || d->order[i] != i;
    }
    if (ordered && (d->order[0] | d->order[1] | d->order[2] | d->order[3])) {
        add(t, ",order=%s-%s-%s-%s", axis[d->order[0]], axis[d->order[1]],
            axis[d->order[2]], axis[d->order[3]]);
    }
    if (d->ranks != NULL) {
        add_ranks(t, d->ranks, members);
    }
    for (uint32_t i = 0; d->pp_layers != NULL && i < one(d->pp) * one(d->vpp);
         i++) {
        add(t, "%s%u", i == 0 ? ",pp_layers=" : "+", d->pp_layers[i]);
    }
    add_experts(t, d);
    if (d->host != NULL) {
        add_hosts(t, d);
    }
    add(t, ",world=%u", d->world_size);
}

static void add_kinds(struct text *t, const struct dyti_layout_desc *d)
{
    static const char *const residency[] = {"held", "parked", "derived",
                                            "dropped"};
    bool serves =
        d->dialect == DYTI_DIALECT_HF || d->dialect == DYTI_DIALECT_VLLM;

    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        enum dyti_kind kind = (enum dyti_kind)k;
        enum dyti_residency usual = serves && k != DYTI_PARAM && k != DYTI_EXTRA
                                        ? DYTI_DROPPED
                                        : DYTI_HELD;

        if (k == DYTI_PARAM || d->dtype[k] != DYTI_F32) {
            add(t, ",dtype.%s=%s", dyti_kind_name(kind),
                dyti_dtype_name(d->dtype[k]));
        }
        if (d->residency[k] != usual) {
            add(t, ",residency.%s=%s", dyti_kind_name(kind),
                residency[d->residency[k]]);
        }
    }
}

enum dyt_status dyti_layout_spec_text(const struct dyti_layout_desc *desc,
                                      char **out_text)
{
    struct text t = {.status = DYT_OK};

    add(&t, "%s:tp=%u,pp=%u,dp=%u,cp=%u,ep=%u,etp=%u,vpp=%u",
        dialect_name[desc->dialect], one(desc->tp), one(desc->pp),
        one(desc->dp), one(desc->cp), one(desc->ep), one(desc->etp),
        one(desc->vpp));
    if (desc->zero > 0) {
        add(&t, ",zero=%u", desc->zero);
    }
    if (desc->vocab_multiple > 0) {
        add(&t, ",vocab_multiple=%u", desc->vocab_multiple);
    }
    if (desc->bucket_multiple > 0) {
        add(&t, ",bucket_multiple=%u", desc->bucket_multiple);
    }
    if (desc->glu_interleave > 0) {
        add(&t, ",glu_interleave=%u", desc->glu_interleave);
    }
    if (desc->round_robin) {
        add(&t, ",zero_order=round_robin");
    }
    add_lists(&t, desc);
    add_kinds(&t, desc);
    if (t.status != DYT_OK) {
        free(t.bytes);
        return t.status;
    }
    *out_text = t.bytes;
    return DYT_OK;
}
