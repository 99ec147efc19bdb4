/* Turns offsets into addresses, once per prepared switch, so that the loop has
 * nothing to look up. */
#include "exec/switch_internal.h"

#include "sched/spans.h"

#include <stdlib.h>

unsigned char *dyti_switch_address(const struct dyti_switch_params *params,
                                   uint32_t rank, uint32_t slot, uint32_t kind,
                                   uint64_t offset)
{
    if (slot == DYTI_SLOT_STAGING) {
        return (unsigned char *)params->segment[rank] +
               params->map[rank].staging_offset + offset;
    }
    if (params->address != NULL) {
        return params->address(params->address_arg, rank, slot, kind,
                               params->set[slot], offset);
    }
    return (unsigned char *)params->segment[rank] +
           dyti_arena_offset(&params->map[rank], params->set[slot], slot,
                             kind) +
           offset;
}

/* Bytes of a region; of staging memory. */
static uint64_t region_bytes(const struct dyti_arena_map *map, uint8_t slot,
                             uint8_t kind)
{
    if (slot == DYTI_SLOT_STAGING) {
        return map->staging_bytes;
    }
    return slot < DYTI_ARENA_SLOT_COUNT && kind < DYTI_KIND_COUNT
               ? map->bytes[slot][kind]
               : 0;
}

static enum dyt_status check_end(const struct dyti_switch *self, uint32_t rank,
                                 uint8_t slot, uint8_t kind, uint64_t offset,
                                 struct dyti_span_reach reach)
{
    uint64_t bytes = rank >= self->params.world_size
                         ? 0
                         : region_bytes(&self->params.map[rank], slot, kind);

    if (reach.above > 0 && (reach.below > offset || offset > bytes ||
                            reach.above > bytes - offset)) {
        return DYTI_FAIL(
            DYT_ERR_LAYOUT,
            "a span of %llu bytes at %llu, %llu of them before it, is not in "
            "region %u, %s of rank %u",
            (unsigned long long)(reach.below + reach.above),
            (unsigned long long)offset, (unsigned long long)reach.below, slot,
            kind < DYTI_KIND_COUNT ? dyti_kind_name((enum dyti_kind)kind) : "?",
            rank);
    }
    return DYT_OK;
}

static enum dyt_status resolve_span(struct dyti_switch *self,
                                    const struct dyti_step *step,
                                    const struct dyti_span *span,
                                    struct dyti_copy *out_copy)
{
    struct dyti_copy copy = {.src_dtype = span->src_dtype,
                             .dst_dtype = span->dst_dtype};
    enum dyt_status st = check_end(
        self, step->src_rank, span->src_slot, span->src_kind, span->src_offset,
        dyti_span_reach(span->size, span->src_stride, span->src_dtype));

    if (st == DYT_OK) {
        st = check_end(
            self, step->dst_rank, span->dst_slot, span->dst_kind,
            span->dst_offset,
            dyti_span_reach(span->size, span->dst_stride, span->dst_dtype));
    }
    if (st != DYT_OK) {
        return st;
    }
    copy.src =
        dyti_switch_address(&self->params, step->src_rank, span->src_slot,
                            span->src_kind, span->src_offset);
    copy.dst =
        dyti_switch_address(&self->params, step->dst_rank, span->dst_slot,
                            span->dst_kind, span->dst_offset);
    for (uint32_t d = 0; d < DYTI_SPAN_DIMS; d++) {
        copy.size[d] = span->size[d];
        copy.src_stride[d] = span->src_stride[d];
        copy.dst_stride[d] = span->dst_stride[d];
    }
    *out_copy = copy;
    return DYT_OK;
}

static enum dyt_status resolve_step(struct dyti_switch *self,
                                    const struct dyti_step *step)
{
    const struct dyti_schedule *schedule = self->schedule;

    if (step->kind == DYTI_STEP_FENCE || step->kind == DYTI_STEP_MOVE ||
        step->kind == DYTI_STEP_COLLECTIVE || step->kind == DYTI_STEP_PACK ||
        step->kind == DYTI_STEP_UNPACK) {
        return DYT_OK; /* of messages: by streams */
    }
    if (step->kind != DYTI_STEP_COPY) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "steps of kind %s are not available",
                         dyti_step_kind_name((enum dyti_step_kind)step->kind));
    }
    for (uint32_t i = 0; i < step->span_count; i++) {
        uint32_t s = step->span_first + i;
        enum dyt_status st =
            resolve_span(self, step, &schedule->span[s], &self->copy[s]);

        if (st != DYT_OK) {
            DYTI_NOTE("resolving span %u from rank %u to rank %u", s,
                      step->src_rank, step->dst_rank);
            return st;
        }
    }
    if (step->span_count > 0 &&
        schedule->span[step->span_first].src_slot == DYTI_SLOT_STAGING) {
        return DYT_OK; /* was counted when it was staged */
    }
    if (step->src_rank == step->dst_rank) {
        self->kept_bytes += step->write_bytes;
    } else {
        self->moved_bytes += step->write_bytes;
    }
    return DYT_OK;
}

/* The other end is another rank's, and may not be mapped here. */
static enum dyt_status resolve_own_end(struct dyti_switch *self,
                                       const struct dyti_span *span,
                                       bool own_is_src,
                                       struct dyti_copy *out_copy)
{
    uint32_t rank = self->params.rank;
    uint8_t slot = own_is_src ? span->src_slot : span->dst_slot;
    uint8_t kind = own_is_src ? span->src_kind : span->dst_kind;
    uint64_t offset = own_is_src ? span->src_offset : span->dst_offset;
    struct dyti_copy copy = {.src_dtype = span->src_dtype,
                             .dst_dtype = span->dst_dtype};
    enum dyt_status st = check_end(
        self, rank, slot, kind, offset,
        dyti_span_reach(span->size,
                        own_is_src ? span->src_stride : span->dst_stride,
                        own_is_src ? span->src_dtype : span->dst_dtype));

    if (st != DYT_OK) {
        return st;
    }
    if (own_is_src) {
        copy.src = dyti_switch_address(&self->params, rank, slot, kind, offset);
    } else {
        copy.dst = dyti_switch_address(&self->params, rank, slot, kind, offset);
    }
    for (uint32_t d = 0; d < DYTI_SPAN_DIMS; d++) {
        copy.size[d] = span->size[d];
        copy.src_stride[d] = span->src_stride[d];
        copy.dst_stride[d] = span->dst_stride[d];
    }
    *out_copy = copy;
    return DYT_OK;
}

enum dyt_status dyti_switch_resolve_stream(struct dyti_switch *self,
                                           const struct dyti_stream *stream)
{
    for (uint32_t i = 0; i < stream->span_count; i++) {
        uint32_t s = stream->span_first + i;
        enum dyt_status st = resolve_own_end(
            self, &self->schedule->span[s],
            stream->src_rank == self->params.rank, &self->copy[s]);

        if (st != DYT_OK) {
            DYTI_NOTE("resolving span %u from rank %u to rank %u", s,
                      stream->src_rank, stream->dst_rank);
            return st;
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_switch_resolve(struct dyti_switch *self)
{
    enum dyt_status st = dyti_schedule_check(self->schedule);

    for (uint32_t i = 0; i < self->schedule->step_count && st == DYT_OK; i++) {
        st = resolve_step(self, &self->schedule->step[i]);
    }
    return st;
}
