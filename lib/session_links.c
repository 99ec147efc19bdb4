/* What the manager asks of this member's memory: views and snapshots. */
#include "lib/session_device.h"

#include "layout/list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the catalogue: what do the rows hold? --------------------------------
 */

static struct dyti_place place_of(const struct dyt_session *s)
{
    const struct dyt_session_params *p = &s->params;

    return (struct dyti_place){.tp_rank = p->tp_rank,
                               .tp_size = p->tp_size,
                               .ep_rank = p->ep_rank,
                               .ep_size = p->ep_size,
                               .expert = p->expert,
                               .expert_count = p->expert_count,
                               .attribute = p->attribute,
                               .attribute_count = p->attribute_count};
}

/* The rows in the second of two mapped sets, `first` in the other one. */
static enum dyt_status second_memory(struct dyt_session *s,
                                     const struct dyt_view *first,
                                     const struct dyti_row_pieces *pieces)
{
    struct dyt_row *row = NULL;
    struct dyt_view view;
    enum dyt_status st = dyti_session_copy_rows(first, &row, &view);

    for (uint64_t i = 0; st == DYT_OK && i < view.row_count; i++) {
        const struct dyt_row *other =
            s->second_mirror == NULL ? NULL
                                     : &dyti_mirror_rows(s->second_mirror)[i];

        if (!dyti_row_is_on_device(&s->row[i])) {
            row[i].data = dyti_mapped_row(s->mapped, i, 1);
            row[i].fd = dyti_mapped_fd(s->mapped, 1);
        } else if (other != NULL) {
            row[i].data = other->data;
            row[i].fd = other->fd;
            row[i].fd_offset = other->fd_offset;
        }
    }
    st = st != DYT_OK
             ? st
             : dyti_memory_view_build(s->catalogue, &view, pieces, &s->second);
    free(row);
    return st;
}

/* Two sets take turns while requests run: theirs is zero from the start, any
 * other's when a version is committed. */
static enum dyt_status keep_padding(struct dyt_session *s,
                                    struct dyti_row_pieces *pieces)
{
    enum dyt_status st = DYT_OK;

    free(s->pad);
    s->pad = pieces->pad;
    s->pad_count = pieces->pad_count;
    pieces->pad = NULL; /* moved */
    if (s->mapped != NULL && s->params.commit == DYT_COMMIT_DOUBLE) {
        st = dyti_session_clear_padding(s, 0);
        st = st != DYT_OK ? st : dyti_session_clear_padding(s, 1);
    }
    return st;
}

/* A receive would write them. */
static enum dyt_status check_writable(const struct dyt_session *s,
                                      const struct dyti_row_pieces *pieces)
{
    const struct dyt_row *first = NULL;
    uint32_t count = 0, last = UINT32_MAX;

    for (size_t i = 0; i < pieces->count; i++) {
        const struct dyt_row *row = &s->row[pieces->piece[i].row];

        if ((row->flags & DYT_ROW_READ_ONLY) != 0 &&
            pieces->piece[i].row != last) {
            last = pieces->piece[i].row;
            first = first == NULL ? row : first;
            count++;
        }
    }
    return s->params.role != DYT_ROLE_RECEIVER || count == 0
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_INVALID,
                           "%u rows of this receiver are DYT_ROW_READ_ONLY "
                           "and hold what a receive writes, row %s first: "
                           "hand in memory that may be written, or ask for "
                           "some with DYT_ROW_STAGED",
                           count, first->name);
}

/* What a receive writes of one tensor must not lie over another one. */
static enum dyt_status check_apart(const struct dyt_session *s)
{
    const struct dyti_view *view = &s->memory.view;
    struct dyti_faults faults = {.count = 0};
    enum dyt_status st = DYT_OK;
    uint32_t first = 0;

    for (uint32_t i = 1; st == DYT_OK && i <= view->shard_count; i++) {
        if (i == view->shard_count ||
            view->shard[i].kind != view->shard[first].kind) {
            st = dyti_find_overlaps(s->catalogue, s->params.rank,
                                    &view->shard[first], i - first, &faults);
            first = i;
        }
    }
    return st != DYT_OK || faults.count == 0
               ? st
               : DYTI_FAIL(DYT_ERR_LAYOUT,
                           "rows lie over each other: %s; give each memory of "
                           "its own, or flag a copy of the same tensor "
                           "DYT_ROW_ALIAS",
                           faults.text);
}

static enum dyt_status build_memory(struct dyt_session *s)
{
    struct dyt_view view = {.struct_size = sizeof(view),
                            .row_struct_size = sizeof(*s->row),
                            .row = s->row,
                            .row_count = s->row_count};
    struct dyti_place place = place_of(s);
    struct dyti_row_pieces pieces = {0};
    enum dyt_status st = dyti_session_open_devices(s, &view);

    if (st != DYT_OK) {
        return st;
    }
    st = dyti_rules_apply(s->catalogue, &view, s->rules, &place, &pieces);
    st = st != DYT_OK ? st : check_writable(s, &pieces);
    st = dyti_session_look_at_devices(s, &view, st);
    st = st != DYT_OK ? st : dyti_session_view_there(s, &view, &pieces);
    st =
        st != DYT_OK ? st : dyti_session_mirror_rows(s, &place, &view, &pieces);
    st = st != DYT_OK
             ? st
             : dyti_memory_view_build(s->catalogue, &view, &pieces, &s->memory);
    if (st == DYT_OK && s->params.role == DYT_ROLE_RECEIVER) {
        st = check_apart(s);
    }
    if (st == DYT_OK && s->mapped != NULL &&
        s->params.commit == DYT_COMMIT_DOUBLE) {
        st = second_memory(s, &view, &pieces);
    }
    for (size_t i = 0; st == DYT_OK && i < pieces.count; i++) {
        s->has_pieces[pieces.piece[i].row] = true;
    }
    if (st == DYT_OK && s->params.role == DYT_ROLE_RECEIVER) {
        st = keep_padding(s, &pieces);
    }
    dyti_row_pieces_fini(&pieces);
    return st;
}

/* @param there  the same rows on devices; NULL: a snapshot, which has none */
static enum dyt_status send_memory(struct dyt_session *s, uint32_t link,
                                   enum dyt_status status,
                                   const struct dyti_memory_view *memory[2],
                                   uint32_t count,
                                   const struct dyti_memory_view *there[2])
{
    struct dyti_envelope e =
        dyti_hub_client_stamp(s->client, DYTI_MSG_MEMORY, 0);
    struct dyti_msg_part part[2] = {0}, direct[2] = {0};
    bool lies_there = there != NULL && there[0]->view.shard != NULL;
    struct dyti_msg_memory m = {.status = status,
                                .link = link,
                                .part = part,
                                .part_count = status == DYT_OK ? count : 0,
                                .direct = direct};
    struct dyti_buffer buffer;
    enum dyt_status st = DYT_OK;

    m.direct_count = lies_there ? m.part_count : 0;
    m.text = strdup(status == DYT_OK ? "" : dyti_error_message());
    m.indirect = strdup(there != NULL ? s->indirect : "");
    if (m.text == NULL || m.indirect == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "a message");
    }
    for (uint32_t i = 0; i < m.part_count && st == DYT_OK; i++) {
        st = dyti_part_from_memory(memory[i], &part[i]);
        if (st == DYT_OK && lies_there) {
            st = dyti_part_from_memory(there[i], &direct[i]);
        }
    }
    st = st != DYT_OK ? st : dyti_wire_memory_encode(&e, &m, &buffer);
    st = dyti_session_send(s, st, &buffer);
    free(m.text);
    free(m.indirect);
    for (uint32_t i = 0; i < 2; i++) {
        dyti_msg_part_fini(&part[i]);
        dyti_msg_part_fini(&direct[i]);
    }
    return st;
}

enum dyt_status dyti_session_on_catalogue(struct dyt_session *s,
                                          const struct dyti_hub_frame *f)
{
    const struct dyti_memory_view *memory[2] = {&s->memory, &s->second};
    const struct dyti_memory_view *there[2] = {&s->there, &s->there_second};
    struct dyti_msg_catalogue m;
    struct dyti_model *catalogue = NULL;
    bool wanted;
    enum dyt_status st =
        dyti_wire_catalogue_decode(f->buffer.bytes, f->buffer.size_bytes, &m);

    if (st != DYT_OK) {
        return st;
    }
    st = dyti_catalogue_from_message(&m, &catalogue);
    dyti_msg_catalogue_fini(&m);
    pthread_mutex_lock(&s->lock);
    wanted = s->view != NULL; /* or the publish was given up */
    if (st == DYT_OK && wanted) {
        dyti_memory_view_fini(&s->memory);
        dyti_memory_view_fini(&s->second);
        dyti_model_destroy(s->catalogue);
        s->catalogue = catalogue;
        catalogue = NULL;
        st = build_memory(s);
    }
    if (st != DYT_OK && wanted) { /* the manager's answer has less room */
        snprintf(s->unfit, sizeof(s->unfit), "%s", dyti_error_message());
    }
    pthread_mutex_unlock(&s->lock);
    dyti_model_destroy(catalogue);
    return wanted ? send_memory(s, UINT32_MAX, st, memory,
                                s->second.view.shard != NULL ? 2 : 1, there)
                  : DYT_OK;
}

/* ---- snapshots ----------------------------------------------------------- */

static uint32_t kinds_of(const struct dyti_snapshot *snapshot)
{
    const struct dyti_view *view = &dyti_snapshot_view(snapshot)->view;
    uint32_t kinds = 0;

    for (uint32_t k = 0; k < DYTI_KIND_COUNT; k++) {
        kinds |= view->region_bytes[k] > 0 ? 1u << k : 0;
    }
    return kinds;
}

/* An offer that was made with a snapshot is read from that one: the rows may be
 * of another version by now. */
enum dyt_status dyti_session_on_readers(struct dyt_session *s,
                                        const struct dyti_hub_frame *f)
{
    const struct dyti_memory_view *memory[2] = {NULL, NULL};
    struct dyti_session_link *k = NULL;
    struct dyti_msg_readers m;
    enum dyt_status st =
        dyti_wire_readers_decode(f->buffer.bytes, f->buffer.size_bytes, &m);
    uint32_t number;

    if (st != DYT_OK) {
        return st;
    }
    number = m.link;
    st = dyti_session_link_at(s, number, &k);
    if (st == DYT_OK && s->whole != NULL && s->whole_version == s->offered) {
        memory[0] = dyti_snapshot_view(s->whole);
    } else if (st == DYT_OK && dyti_session_is_all_mirror(s)) {
        memory[0] = &s->memory; /* it is a snapshot */
    } else if (st == DYT_OK &&
               m.dtype_count != DYTI_KIND_COUNT * s->catalogue->tensor_count) {
        st =
            DYTI_FAIL(DYT_ERR_FORMAT, "%u dtypes of a snapshot", m.dtype_count);
    } else if (st == DYT_OK) {
        dyti_snapshot_close(k->snapshot);
        k->snapshot = NULL;
        k->used = true;
        st = dyti_session_check_alive(s, false);
        st = st != DYT_OK
                 ? st
                 : dyti_snapshot_open(s->catalogue, &s->memory, m.dtype,
                                      dyti_session_cap(s), &k->snapshot);
        st = st != DYT_OK ? st : dyti_session_take_mirror(s, 0, s->offered);
        st = st != DYT_OK ? st : dyti_snapshot_take(k->snapshot);
        st = st != DYT_OK ? st
                          : dyti_session_check_seal(s, kinds_of(k->snapshot));
        memory[0] = st == DYT_OK ? dyti_snapshot_view(k->snapshot) : NULL;
    }
    dyti_msg_readers_fini(&m);
    st = send_memory(s, number, st, memory, 1, NULL);
    dyti_session_withdraw_written(s);
    return st;
}

bool dyti_session_has_snapshots(const struct dyt_session *s)
{
    for (size_t i = 0; i < s->link_count; i++) {
        if (s->link[i] != NULL && s->link[i]->snapshot != NULL) {
            return true;
        }
    }
    return false;
}

/* Rows of devices are copied to their mirror where something else is copied
 * besides; otherwise by the first link that goes by it. */
static enum dyt_status take_all(struct dyt_session *s, uint64_t version,
                                bool whole)
{
    bool rows = whole && !dyti_session_is_all_mirror(s);
    enum dyt_status st = dyti_session_follow_offer(s, version, !whole);

    if (st == DYT_OK && (whole || dyti_session_has_snapshots(s))) {
        st = dyti_session_take_mirror(s, 0, version);
    }
    if (st == DYT_OK && rows && s->whole == NULL) {
        st = dyti_snapshot_open(s->catalogue, &s->memory, NULL,
                                dyti_session_cap(s), &s->whole);
    }
    st = st == DYT_OK && rows ? dyti_snapshot_take(s->whole) : st;
    if (st == DYT_OK && whole) {
        s->has_whole = true;
        s->whole_version = version;
    }
    for (size_t i = 0; i < s->link_count && st == DYT_OK && !whole; i++) {
        if (s->link[i] != NULL && s->link[i]->snapshot != NULL) {
            st = dyti_snapshot_take(s->link[i]->snapshot);
        }
    }
    return st;
}

enum dyt_status dyti_session_take_snapshots(struct dyt_session *s,
                                            uint64_t version, bool whole)
{
    struct dyti_envelope e =
        dyti_hub_client_stamp(s->client, DYTI_MSG_REQUEST, 0);
    struct dyti_msg_request r = {.what = DYTI_REQUEST_TAKEN,
                                 .version = version};
    struct dyti_buffer buffer;
    enum dyt_status took, st;

    if (!whole && !s->call[DYTI_CALL_OFFER].request.takes) {
        return DYT_OK;
    }
    r.renewed = dyti_session_is_renewed(s);
    took = take_all(s, version, whole);
    r.status = took;
    r.text = strdup(took == DYT_OK ? "" : dyti_error_message());
    st = r.text == NULL ? DYTI_FAIL(DYT_ERR_NOMEM, "a message")
                        : dyti_wire_request_encode(&e, &r, &buffer);
    st = dyti_session_send(s, st, &buffer);
    if (took != DYT_OK && r.text != NULL) {
        st = dyti_error_adopt(took, r.text);
    }
    free(r.text);
    return st;
}
