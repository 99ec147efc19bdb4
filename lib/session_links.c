/* What the manager asks of this member's memory: views, snapshots, links. */
#include "lib/session_internal.h"

#include "base/array.h"
#include "lib/link_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* The rows in the second of two mapped sets. */
static enum dyt_status second_memory(struct dyt_session *s,
                                     const struct dyti_row_pieces *pieces)
{
    struct dyt_row *row = calloc(s->row_count + 1u, sizeof(*row));
    struct dyt_view view = {.struct_size = sizeof(view),
                            .row_struct_size = sizeof(*row),
                            .row = row,
                            .row_count = s->row_count};
    enum dyt_status st;

    if (row == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%llu rows",
                         (unsigned long long)s->row_count);
    }
    memcpy(row, s->row, s->row_count * sizeof(*row));
    for (uint64_t i = 0; i < s->row_count; i++) {
        row[i].data = dyti_mapped_row(s->mapped, i, 1);
        row[i].fd = dyti_mapped_fd(s->mapped, 1);
    }
    st = dyti_memory_view_build(s->catalogue, &view, pieces, &s->second);
    free(row);
    return st;
}

static enum dyt_status build_memory(struct dyt_session *s)
{
    struct dyt_view view = {.struct_size = sizeof(view),
                            .row_struct_size = sizeof(*s->row),
                            .row = s->row,
                            .row_count = s->row_count};
    struct dyti_place place = place_of(s);
    struct dyti_row_pieces pieces = {0};
    enum dyt_status st =
        dyti_rules_apply(s->catalogue, &view, s->rules, &place, &pieces);

    st = st != DYT_OK
             ? st
             : dyti_memory_view_build(s->catalogue, &view, &pieces, &s->memory);
    if (st == DYT_OK && s->mapped != NULL &&
        s->params.commit == DYT_COMMIT_DOUBLE) {
        st = second_memory(s, &pieces);
    }
    for (size_t i = 0; st == DYT_OK && i < pieces.count; i++) {
        s->has_pieces[pieces.piece[i].row] = true;
    }
    dyti_row_pieces_fini(&pieces);
    return st;
}

static enum dyt_status send_memory(struct dyt_session *s, uint32_t link,
                                   enum dyt_status status,
                                   const struct dyti_memory_view *memory[2],
                                   uint32_t count)
{
    struct dyti_envelope e =
        dyti_hub_client_stamp(s->client, DYTI_MSG_MEMORY, 0);
    struct dyti_msg_part part[2] = {0};
    struct dyti_msg_memory m = {.status = status,
                                .link = link,
                                .part = part,
                                .part_count = status == DYT_OK ? count : 0};
    struct dyti_buffer buffer;
    enum dyt_status st = DYT_OK;

    m.text = strdup(status == DYT_OK ? "" : dyti_error_message());
    if (m.text == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a message");
    }
    for (uint32_t i = 0; i < m.part_count && st == DYT_OK; i++) {
        st = dyti_part_from_memory(memory[i], &part[i]);
    }
    st = st != DYT_OK ? st : dyti_wire_memory_encode(&e, &m, &buffer);
    st = dyti_session_send(s, st, &buffer);
    free(m.text);
    dyti_msg_part_fini(&part[0]);
    dyti_msg_part_fini(&part[1]);
    return st;
}

enum dyt_status dyti_session_on_catalogue(struct dyt_session *s,
                                          const struct dyti_hub_frame *f)
{
    const struct dyti_memory_view *memory[2] = {&s->memory, &s->second};
    struct dyti_msg_catalogue m;
    struct dyti_model *catalogue = NULL;
    enum dyt_status st =
        dyti_wire_catalogue_decode(f->buffer.bytes, f->buffer.size_bytes, &m);

    if (st != DYT_OK) {
        return st;
    }
    st = dyti_catalogue_from_message(&m, &catalogue);
    dyti_msg_catalogue_fini(&m);
    pthread_mutex_lock(&s->lock);
    if (st == DYT_OK && s->view != NULL) { /* the publish still waits */
        dyti_memory_view_fini(&s->memory);
        dyti_memory_view_fini(&s->second);
        dyti_model_destroy(s->catalogue);
        s->catalogue = catalogue;
        catalogue = NULL;
        st = build_memory(s);
    }
    pthread_mutex_unlock(&s->lock);
    dyti_model_destroy(catalogue);
    return send_memory(s, UINT32_MAX, st, memory,
                       s->second.view.shard != NULL ? 2 : 1);
}

/* ---- snapshots ----------------------------------------------------------- */

static enum dyt_status link_at(struct dyt_session *s, uint32_t number,
                               struct dyti_session_link **out)
{
    size_t old = s->link_count;
    enum dyt_status st = DYTI_GROW(s->link, s->link_cap, (size_t)number + 1);

    if (st != DYT_OK) {
        return st;
    }
    s->link_count = number >= old ? (size_t)number + 1 : old;
    if (s->link_count > old) {
        memset(&s->link[old], 0, (s->link_count - old) * sizeof(*s->link));
    }
    *out = &s->link[number];
    return DYT_OK;
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
    st = link_at(s, number, &k);
    if (st == DYT_OK && s->whole != NULL && s->whole_version == s->offered) {
        memory[0] = dyti_snapshot_view(s->whole);
    } else if (st == DYT_OK &&
               m.dtype_count != DYTI_KIND_COUNT * s->catalogue->tensor_count) {
        st =
            DYTI_FAIL(DYT_ERR_FORMAT, "%u dtypes of a snapshot", m.dtype_count);
    } else if (st == DYT_OK) {
        dyti_snapshot_close(k->snapshot);
        k->snapshot = NULL;
        k->used = true;
        st = dyti_snapshot_open(s->catalogue, &s->memory, m.dtype,
                                s->params.cap_bytes, &k->snapshot);
        st = st != DYT_OK ? st : dyti_snapshot_take(k->snapshot);
        memory[0] = st == DYT_OK ? dyti_snapshot_view(k->snapshot) : NULL;
    }
    dyti_msg_readers_fini(&m);
    return send_memory(s, number, st, memory, 1);
}

bool dyti_session_has_snapshots(const struct dyt_session *s)
{
    for (size_t i = 0; i < s->link_count; i++) {
        if (s->link[i].snapshot != NULL) {
            return true;
        }
    }
    return false;
}

static enum dyt_status take_all(struct dyt_session *s, uint64_t version,
                                bool whole)
{
    enum dyt_status st = DYT_OK;

    if (whole && s->whole == NULL) {
        st = dyti_snapshot_open(s->catalogue, &s->memory, NULL,
                                s->params.cap_bytes, &s->whole);
    }
    if (st == DYT_OK && whole) {
        st = dyti_snapshot_take(s->whole);
        s->whole_version = version;
    }
    for (size_t i = 0; i < s->link_count && st == DYT_OK && !whole; i++) {
        if (s->link[i].snapshot != NULL) {
            st = dyti_snapshot_take(s->link[i].snapshot);
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

/* ---- links --------------------------------------------------------------- */

static void link_fini(struct dyt_session *s, struct dyti_session_link *k)
{
    if (s->last == k->link) {
        s->last = NULL;
    }
    dyti_link_close(k->link);
    for (uint32_t i = 0; i < k->member_count; i++) {
        if (k->memory != NULL) {
            dyti_memory_view_fini(&k->memory[i]);
        }
        if (k->second != NULL) {
            dyti_memory_view_fini(&k->second[i]);
        }
    }
    free(k->memory);
    free(k->second);
    k->link = NULL;
    k->memory = k->second = NULL;
    k->member_count = 0;
}

void dyti_session_links_close(struct dyt_session *s)
{
    for (size_t i = 0; i < s->link_count; i++) {
        link_fini(s, &s->link[i]);
        dyti_snapshot_close(s->link[i].snapshot);
    }
    free(s->link);
    s->link = NULL;
    s->link_count = s->link_cap = 0;
    dyti_snapshot_close(s->whole);
    s->whole = NULL;
}

/* The others as they told; this member as it knows itself. */
static enum dyt_status fill_memory(struct dyt_session *s,
                                   const struct dyti_msg_link *m,
                                   struct dyti_session_link *k)
{
    uint32_t n = m->member_count;
    bool two = m->set_count == 2;
    enum dyt_status st = DYT_OK;

    k->member_count = n;
    k->memory = calloc(n, sizeof(*k->memory));
    k->second = two ? calloc(n, sizeof(*k->second)) : NULL;
    if (k->memory == NULL || (two && k->second == NULL)) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a link of %u members", n);
    }
    for (uint32_t i = 0; i < n && st == DYT_OK; i++) {
        st = dyti_part_to_memory(s->catalogue, &m->part[i], &k->memory[i]);
        if (st == DYT_OK && two && i >= m->source_count) {
            st = dyti_part_to_memory(s->catalogue, &m->part[n + i],
                                     &k->second[i]);
        }
    }
    return st;
}

/* What only the owner knows of its rows, for hashes. */
static void lend_rows(const struct dyti_memory_view *own,
                      struct dyti_memory_view *copy)
{
    uint32_t shards = own->view.shard_count;

    if (own->shard_row == NULL || copy->view.shard_count != shards) {
        return;
    }
    copy->shard_row = calloc(shards + 1u, sizeof(*copy->shard_row));
    copy->row_as = calloc(own->row_count + 1u, sizeof(*copy->row_as));
    if (copy->shard_row == NULL || copy->row_as == NULL) {
        free(copy->shard_row);
        free(copy->row_as);
        copy->shard_row = copy->row_as = NULL;
        return;
    }
    memcpy(copy->shard_row, own->shard_row, shards * sizeof(*copy->shard_row));
    memcpy(copy->row_as, own->row_as, own->row_count * sizeof(*copy->row_as));
    copy->row_count = own->row_count;
}

static enum dyt_status open_control(const struct dyt_session *s,
                                    const struct dyti_msg_link *m, int *out_fd)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%u/fd/%d", m->pid, m->control_fd);
    *out_fd = open(path, O_RDWR | O_CLOEXEC);
    if (*out_fd < 0) {
        return DYTI_FAIL(DYT_ERR_IO,
                         "the manager's segment %s: %s (another user or "
                         "container?)",
                         path, strerror(errno));
    }
    (void)s;
    return DYT_OK;
}

static enum dyt_status open_link(struct dyt_session *s,
                                 const struct dyti_msg_link *m,
                                 struct dyti_session_link *k)
{
    struct dyti_link_params p = {.struct_size = sizeof(p),
                                 .rank = m->rank,
                                 .member_count = m->member_count,
                                 .source_count = m->source_count,
                                 .catalogue = s->catalogue,
                                 .commit = (enum dyt_commit_mode)m->commit,
                                 .verify = (enum dyt_verify)m->verify,
                                 .kinds = m->kinds,
                                 .cap_bytes = s->params.cap_bytes,
                                 .timeout_ns = m->timeout_ns,
                                 .live_set = m->live_set};
    int fd = -1;
    enum dyt_status st;

    if (s->catalogue == NULL || m->rank >= m->member_count ||
        m->source_count >= m->member_count ||
        m->part_count < m->member_count * m->set_count) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "a link of %u members, %u parts",
                         m->member_count, m->part_count);
    }
    st = fill_memory(s, m, k);
    st = st != DYT_OK ? st : open_control(s, m, &fd);
    if (st == DYT_OK) {
        lend_rows(&s->memory, &k->memory[m->rank]);
        if (k->second != NULL && m->rank >= m->source_count) {
            lend_rows(&s->second, &k->second[m->rank]);
        }
        k->rank = m->rank;
        k->source_count = m->source_count;
        k->used = true;
        p.memory = k->memory;
        p.second = k->second;
        p.control_fd = fd;
        st = dyti_link_open(&p, &k->link);
        close(fd);
    }
    if (st != DYT_OK) {
        link_fini(s, k);
    }
    return st;
}

static enum dyt_status report(struct dyt_session *s,
                              const struct dyti_msg_report *r)
{
    struct dyti_envelope e =
        dyti_hub_client_stamp(s->client, DYTI_MSG_REPORT, 0);
    struct dyti_msg_report m = *r;
    struct dyti_buffer buffer;
    enum dyt_status st;

    m.text = strdup(r->status == DYT_OK ? "" : dyti_error_message());
    st = m.text == NULL ? DYTI_FAIL(DYT_ERR_NOMEM, "a message")
                        : dyti_wire_report_encode(&e, &m, &buffer);
    st = dyti_session_send(s, st, &buffer);
    free(m.text);
    return st;
}

enum dyt_status dyti_session_on_link(struct dyt_session *s,
                                     const struct dyti_hub_frame *f)
{
    struct dyti_msg_report r = {0};
    struct dyti_session_link *k = NULL;
    struct dyti_msg_link m;
    enum dyt_status st =
        dyti_wire_link_decode(f->buffer.bytes, f->buffer.size_bytes, &m);

    if (st != DYT_OK) {
        return st;
    }
    r.link = m.link;
    st = link_at(s, m.link, &k);
    if (st == DYT_OK) {
        link_fini(s, k);
        st = open_link(s, &m, k);
    }
    dyti_msg_link_fini(&m);
    r.status = st;
    return report(s, &r);
}

/* ---- runs ---------------------------------------------------------------- */

/* The caller of receive() pauses the server; this thread waits for it. */
static enum dyt_status pause_server(struct dyt_session *s)
{
    int64_t until = dyti_session_now() + s->timeout_ns;
    enum dyt_status st = DYT_OK;

    if (s->params.role != DYT_ROLE_RECEIVER || s->hooks.pause == NULL) {
        return DYT_OK;
    }
    pthread_mutex_lock(&s->lock);
    s->hook = (struct dyti_session_hook_state){.wanted = true};
    pthread_cond_broadcast(&s->changed);
    while (!s->hook.paused && !s->hook.failed && !s->ending && st == DYT_OK) {
        if (!dyti_session_sleep(s, until)) {
            st = DYTI_FAIL(DYT_ERR_TIMEOUT, "the server did not pause in time");
        }
    }
    if (s->hook.failed) {
        st = DYTI_FAIL(DYT_ERR_STATE, "the server's pause hook failed");
    }
    s->hook.wanted = false;
    pthread_mutex_unlock(&s->lock);
    return st;
}

/* What the rows hold after a run, for valid() and its kind. */
static void note_run(struct dyt_session *s, const struct dyti_session_link *k,
                     const struct dyti_msg_order *o,
                     const struct dyt_switch_report *r, bool broken)
{
    pthread_mutex_lock(&s->lock);
    s->report = *r;
    s->report.source = o->from_sibling;
    s->report.scratch_bytes = dyti_link_scratch_bytes(k->link);
    if (r->committed) {
        s->version = o->version;
        s->valid = true;
        s->broken = false;
        s->received_since_restore = true;
        s->live_set = dyti_link_live_set(k->link);
    } else if (broken) {
        s->valid = false;
        s->broken = true;
        s->broken_epoch = o->epoch;
    }
    pthread_mutex_unlock(&s->lock);
}

static struct dyt_switch_report report_of(const struct dyti_switch_report *r,
                                          const struct dyti_msg_order *o,
                                          int64_t total_ns)
{
    return (struct dyt_switch_report){
        .struct_size = sizeof(struct dyt_switch_report),
        .committed = r->decision == DYTI_DECISION_COMMIT,
        .epoch = o->epoch,
        .version = o->version,
        .transfer_ns = r->transfer_ns,
        .verify_ns = r->verify_ns,
        .commit_ns = r->vote_ns + r->commit_ns,
        .total_ns = total_ns,
        .moved_bytes = r->moved_bytes,
        .written_bytes = r->written_bytes};
}

static enum dyt_status run(struct dyt_session *s, struct dyti_session_link *k,
                           const struct dyti_msg_order *o)
{
    bool receiver = k->rank >= k->source_count;
    struct dyti_switch_report r = {0};
    struct dyt_switch_report said;
    struct dyti_msg_report m = {.link = o->link, .epoch = o->epoch};
    int64_t start = dyti_session_now();
    char text[DYTI_SESSION_TEXT_BYTES];
    enum dyt_status st = receiver ? pause_server(s) : DYT_OK;

    st = st != DYT_OK ? st : dyti_link_run(k->link, o->epoch, o->version, &r);
    snprintf(text, sizeof(text), "%s", dyti_error_message());
    said = report_of(&r, o, dyti_session_now() - start);
    m.status = st;
    m.committed = said.committed != 0;
    if (receiver && said.committed != 0 && said.moved_bytes == 0) {
        /* the sources wrote it: what its rows hold */
        for (uint32_t kind = 0; kind < DYTI_KIND_COUNT; kind++) {
            said.moved_bytes += s->memory.view.region_bytes[kind];
        }
        said.written_bytes = said.moved_bytes;
    }
    m.moved_bytes = said.moved_bytes;
    if (receiver) {
        m.broken = dyti_link_valid(k->link) != DYT_OK;
        m.live_set = dyti_link_live_set(k->link);
        s->last = k->link;
        note_run(s, k, o, &said, m.broken);
    }
    if (st != DYT_OK) {
        dyti_error_adopt(st, text);
    }
    return report(s, &m);
}

enum dyt_status dyti_session_on_order(struct dyt_session *s,
                                      const struct dyti_hub_frame *f)
{
    struct dyti_session_link *k;
    struct dyti_msg_order o;
    enum dyt_status st =
        dyti_wire_order_decode(f->buffer.bytes, f->buffer.size_bytes, &o);

    if (st != DYT_OK) {
        return st;
    }
    k = o.link < s->link_count ? &s->link[o.link] : NULL;
    if (o.what == DYTI_ORDER_CLOSE) {
        if (k != NULL) {
            link_fini(s, k);
            dyti_snapshot_close(k->snapshot);
            k->snapshot = NULL;
            k->used = false;
        }
        return DYT_OK;
    }
    if (k == NULL || k->link == NULL) {
        struct dyti_msg_report r = {.link = o.link, .epoch = o.epoch};

        r.status = DYTI_FAIL(DYT_ERR_STATE, "link %u is not open", o.link);
        return report(s, &r);
    }
    return run(s, k, &o);
}
