/* Who copies in a link, and what must be mapped for it. */
#include "lib/link_internal.h"

static enum dyt_status unreachable(const struct dyti_link *link,
                                   uint32_t source, uint32_t target)
{
    const struct dyti_memory_view *a = &link->params.memory[source];
    const struct dyti_memory_view *b = &link->params.memory[target];
    const struct dyti_model *model = link->params.catalogue;
    const char *x = a->view.shard_count == 0
                        ? "?"
                        : model->tensor[a->view.shard[0].tensor].name;
    const char *y = b->view.shard_count == 0
                        ? "?"
                        : model->tensor[b->view.shard[0].tensor].name;

    return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                     "memory of source %u (%s) and of receiver %u (%s) is "
                     "private to their processes: take a snapshot of the "
                     "source, or use staged",
                     source, x, target, y);
}

enum dyt_status dyti_link_choose_route(struct dyti_link *link)
{
    const struct dyti_link_params *p = &link->params;
    uint32_t source = UINT32_MAX, target = UINT32_MAX;

    if (p->apart != NULL) { /* nobody reaches anybody: they send */
        return DYT_OK;
    }
    for (uint32_t s = 0; s < p->source_count; s++) {
        for (uint32_t t = p->source_count; t < p->member_count; t++) {
            if (!dyti_reach_can(&p->memory[s], &p->memory[t],
                                link->source_kinds)) {
                source = s;
            }
            if (link->scratch == NULL &&
                (!dyti_reach_can(&p->memory[t], &p->memory[s],
                                 link->target_kinds) ||
                 (p->commit == DYT_COMMIT_DOUBLE &&
                  !dyti_reach_can(&p->second[t], &p->memory[s],
                                  link->target_kinds)))) {
                target = t;
            }
        }
    }
    link->is_push = source != UINT32_MAX;
    return link->is_push && target != UINT32_MAX
               ? unreachable(link, source, target)
               : DYT_OK;
}

/* Own memory, and what the route reads or writes of others. */
static enum dyt_status reach_member(struct dyti_link *link, uint32_t rank)
{
    const struct dyti_link_params *p = &link->params;
    bool is_source = dyti_link_is_source(link, rank);
    bool is_peer = is_source != dyti_link_is_source(link, p->rank);
    enum dyt_status st = DYT_OK;

    if (rank != p->rank &&
        (p->apart != NULL || !is_peer || is_source == link->is_push)) {
        return DYT_OK;
    }
    if (is_source) {
        return dyti_reach_init(&link->source[rank], &p->memory[rank],
                               link->source_kinds, false, &link->guard);
    }
    if (rank != p->rank && link->scratch != NULL) {
        return DYT_OK; /* that is what is written */
    }
    st = dyti_reach_init(&link->target[rank], &p->memory[rank],
                         link->target_kinds, true, &link->guard);
    if (st == DYT_OK && p->commit == DYT_COMMIT_DOUBLE) {
        st = dyti_reach_init(&link->target[p->member_count + rank],
                             &p->second[rank], link->target_kinds, true,
                             &link->guard);
    }
    return st;
}

enum dyt_status dyti_link_reach_all(struct dyti_link *link)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t r = 0; r < link->params.member_count && st == DYT_OK; r++) {
        st = reach_member(link, r);
        if (st != DYT_OK) {
            DYTI_NOTE("reaching the memory of member %u", r);
        }
    }
    return st;
}

enum dyt_status dyti_link_open_scratch(struct dyti_link *link)
{
    const struct dyti_link_params *p = &link->params;
    enum dyt_status st;

    if (link->scratch == NULL || dyti_link_is_source(link, p->rank)) {
        return DYT_OK;
    }
    st = dyti_segment_open("dynatrain scratch", link->scratch[p->rank].bytes,
                           &link->own);
    if (st != DYT_OK) {
        DYTI_NOTE("scratch of a staged update");
        return st;
    }
    link->scratch_at[p->rank] = link->own.base;
    return dyti_dense_copies(&link->scratch[p->rank], &link->target[p->rank],
                             link->own.base, false, &link->commit);
}

enum dyt_status dyti_link_map_scratch(struct dyti_link *link,
                                      const uint64_t *said)
{
    const struct dyti_link_params *p = &link->params;
    enum dyt_status st = DYT_OK;

    if (link->scratch == NULL || !link->is_push ||
        !dyti_link_is_source(link, p->rank)) {
        return DYT_OK;
    }
    for (uint32_t r = p->source_count; r < p->member_count && st == DYT_OK;
         r++) {
        const uint64_t *words = said + (size_t)r * DYTI_SAY_WORDS;
        struct dyti_process_fd fd = {.pid = p->memory[r].pid,
                                     .pid_start = p->memory[r].pid_start,
                                     .fd = (int32_t)words[DYTI_SAY_FD],
                                     .device = words[DYTI_SAY_DEVICE],
                                     .inode = words[DYTI_SAY_INODE]};

        if (link->scratch[r].bytes > 0) {
            st = dyti_process_map(
                &fd, 0, link->scratch[r].bytes, true, &link->guard, NULL,
                &link->scratch_map[r].base, &link->scratch_map[r].bytes,
                &link->scratch_at[r]);
        }
        if (st != DYT_OK) {
            DYTI_NOTE("reaching the scratch of member %u", r);
        }
    }
    return st;
}
