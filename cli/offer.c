#include "cli/offer.h"

#include "cli/backends.h"
#include "format/file.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_BYTES 256u

enum dyt_status dyti_offer_address(const struct dyti_job *job, char *buf,
                                   size_t buf_bytes)
{
    const struct dyti_job_phase *p = dyti_job_phase_of(job, DYTI_PHASE_ROLLOUT);
    const char *given = p->plugin.address;
    bool own = given[0] == '\0', local = strncmp(given, "unix:", 5) == 0;
    const char *path = own ? job->runs : local ? given + 5 : "/";
    char here[PATH_MAX] = "";
    int got;

    /* Servers are told this address, and were started in other folders. */
    if (path[0] != '/' && path[0] != '\0' &&
        getcwd(here, sizeof(here)) == NULL) {
        return DYTI_FAIL(DYT_ERR_IO, "the folder that this was started in: %s",
                         strerror(errno));
    }
    if (own) { /* the socket's folder is its owner's alone, a run's is not */
        got = snprintf(buf, buf_bytes, "unix:%s%s%s/%s/session/job.sock", here,
                       here[0] != '\0' ? "/" : "", path, job->name);
    } else if (here[0] != '\0') {
        got = snprintf(buf, buf_bytes, "unix:%s/%s", here, path);
    } else {
        got = snprintf(buf, buf_bytes, "%s", given);
    }
    return got >= 0 && (size_t)got < buf_bytes
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_CONFIG,
                           "the address of the session is longer than %zu "
                           "bytes: set phase.rollout.plugin.address",
                           buf_bytes);
}

/* ---- rows ---------------------------------------------------------------- */

struct rows {
    struct dyt_row *row; /* [count] */
    struct dyt_piece *piece;
    char (*name)[NAME_BYTES];
    size_t count;
};

static void rows_fini(struct rows *r)
{
    free(r->row);
    free(r->piece);
    free(r->name);
}

static enum dyt_status rows_init(struct rows *r, size_t count)
{
    *r = (struct rows){.row = calloc(count + 1, sizeof(*r->row)),
                       .piece = calloc(count + 1, sizeof(*r->piece)),
                       .name = calloc(count + 1, sizeof(*r->name)),
                       .count = count};
    if (r->row != NULL && r->piece != NULL && r->name != NULL) {
        return DYT_OK;
    }
    rows_fini(r);
    return DYTI_FAIL(DYT_ERR_NOMEM, "%zu rows to offer", count);
}

/* A shard of the region is a row with one piece. */
static void fill_row(const struct dyti_worker *w,
                     const struct dyti_shard *shard, size_t i, struct rows *r)
{
    const enum dyti_arena_slot slot = DYTI_ARENA_ROLLOUT;
    const struct dyti_tensor *t = &w->assembly.model->tensor[shard->tensor];
    const struct dyti_arena_map *map = &w->assembly.map[w->args.rank];
    unsigned char *base =
        dyti_world_region(w->world, w->args.rank, slot, DYTI_PARAM);
    uint32_t element = dyti_dtype_bytes((enum dyti_dtype)shard->dtype);
    struct dyt_row *row = &r->row[i];
    struct dyt_piece *piece = &r->piece[i];

    /* a tensor may be cut into several: names are unique in a view */
    if (i > 0 && strcmp(r->piece[i - 1].tensor, t->name) == 0) {
        snprintf(r->name[i], NAME_BYTES, "%.200s#%zu", t->name, i);
    } else {
        snprintf(r->name[i], NAME_BYTES, "%.200s", t->name);
    }
    *piece = (struct dyt_piece){
        .struct_size = sizeof(*piece), .tensor = t->name, .box = shard->box};
    *row = (struct dyt_row){.struct_size = sizeof(*row),
                            .kind = DYT_PARAM,
                            .dtype = shard->dtype,
                            .flags = DYT_ROW_READ_ONLY,
                            .name = r->name[i],
                            .ndim = t->ndim,
                            .piece_count = 1,
                            .data = base + shard->offset,
                            .fd = w->args.segment_fd[w->args.rank],
                            .piece_struct_size = sizeof(*piece),
                            .fd_offset =
                                map->offset[slot][DYTI_PARAM] + shard->offset,
                            .piece = piece};
    for (uint32_t d = 0; d < t->ndim; d++) {
        row->shape[d] = shard->box.hi[d] - shard->box.lo[d];
        row->stride[d] = shard->stride[d] / (int64_t)element;
        row->global_shape[d] = t->shape[d];
    }
}

static enum dyt_status publish(struct dyti_worker *w)
{
    const struct dyti_view *view =
        dyti_layout_view(w->assembly.layout[DYTI_ARENA_ROLLOUT], w->args.rank);
    uint32_t first = view->kind_first[DYTI_PARAM];
    uint32_t count = view->kind_first[DYTI_PARAM + 1] - first;
    struct dyt_view rows = {.struct_size = sizeof(rows),
                            .row_struct_size = sizeof(struct dyt_row),
                            .row_count = count};
    struct rows r;
    enum dyt_status st = rows_init(&r, count);

    if (st != DYT_OK) {
        return st;
    }
    for (uint32_t i = 0; i < count; i++) {
        fill_row(w, &view->shard[first + i], i, &r);
    }
    rows.row = r.row;
    st = dyt_session_publish(w->session, &rows, NULL);
    rows_fini(&r);
    return st;
}

/* ---- session ------------------------------------------------------------- */

enum dyt_status dyti_offer_open(struct dyti_worker *w)
{
    const struct dyti_layout *layout = w->assembly.layout[DYTI_ARENA_ROLLOUT];
    const struct dyti_part *part =
        &dyti_layout_view(layout, w->args.rank)->part;
    char address[DYTI_PATH_BYTES];
    struct dyt_session_params p = {
        .struct_size = sizeof(p),
        .role = DYT_ROLE_TRAINER,
        .address = address,
        .job = w->job.name,
        .rank = part->member_index,
        .size = layout->member_count,
        .verify = w->job.sw.verify == DYTI_JOB_VERIFY_OFF ? DYT_VERIFY_OFF
                  : w->job.sw.verify == DYTI_JOB_VERIFY_FULL
                      ? DYT_VERIFY_FULL
                      : DYT_VERIFY_SAMPLE,
        .timeout_ns = dyti_seconds_ns(w->job.sw.deadline)};
    enum dyt_status st;

    if (dyti_job_phase(&w->job, DYTI_PHASE_ROLLOUT)->engine !=
            DYTI_ENGINE_PLUGIN ||
        !part->member) {
        return DYT_OK;
    }
    st = dyti_offer_address(&w->job, address, sizeof(address));
    st = st != DYT_OK ? st : dyt_session_join(&p, &w->session);
    st = st != DYT_OK ? st : publish(w);
    if (st != DYT_OK) {
        DYTI_NOTE("offering the rollout layout to the engine");
    }
    return st;
}

void dyti_offer_close(struct dyti_worker *w)
{
    dyt_ticket_destroy(w->ticket);
    dyt_session_leave(w->session);
    w->ticket = NULL;
    w->session = NULL;
}

enum dyt_status dyti_offer_version(struct dyti_worker *w, uint64_t version)
{
    struct dyt_offer_params offer = {.struct_size = sizeof(offer),
                                     .version = version};

    if (w->session == NULL || (w->has_offered && version == w->offered)) {
        return DYT_OK;
    }
    w->has_offered = true;
    w->offered = version;
    return dyt_session_offer(w->session, &offer, &w->ticket);
}

enum dyt_status dyti_offer_done(struct dyti_worker *w)
{
    enum dyt_status st;

    if (w->ticket == NULL) {
        return DYT_OK;
    }
    st = dyt_ticket_wait(w->ticket, -1);
    if (st == DYT_PENDING) {
        st = DYTI_FAIL(DYT_ERR_TIMEOUT,
                       "version %llu is still being read by an engine",
                       (unsigned long long)w->offered);
    }
    dyt_ticket_destroy(w->ticket);
    w->ticket = NULL;
    return st;
}
