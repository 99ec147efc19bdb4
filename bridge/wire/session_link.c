/* memory, readers, link: what members hold, by address. */
#include "wire/session.h"

#include "wire/define.h"

#include <stdlib.h>
#include <string.h>

#define EXTENT_FIELDS 8u
#define PART_FIELDS   (4u + DYTI_KIND_COUNT)

/* ---- one address set ----------------------------------------------------- */

static void write_extents(struct dyti_writer *w, const struct dyti_msg_part *p)
{
    dyti_write_array(w, (size_t)p->extent_count * EXTENT_FIELDS);
    for (uint32_t i = 0; i < p->extent_count; i++) {
        const struct dyti_msg_extent *e = &p->extent[i];

        dyti_write_u64(w, e->offset);
        dyti_write_u64(w, e->bytes);
        dyti_write_u64(w, e->address);
        dyti_write_i64(w, e->fd);
        dyti_write_u64(w, e->kind);
        dyti_write_u64(w, e->fd_offset);
        dyti_write_u64(w, e->device);
        dyti_write_u64(w, e->inode);
    }
}

static size_t shard_fields(const struct dyti_msg_part *p)
{
    size_t n = 1;

    for (uint32_t i = 0; i < p->shard_count; i++) {
        n += 5u + 3u * (size_t)p->shard[i].box.ndim;
    }
    return n;
}

static void write_part(struct dyti_writer *w, const struct dyti_msg_part *p)
{
    dyti_write_array(w, PART_FIELDS);
    dyti_write_u64(w, p->pid);
    dyti_write_u64(w, p->pid_start);
    for (uint32_t k = 0; k < DYTI_KIND_COUNT; k++) {
        dyti_write_u64(w, p->region_bytes[k]);
    }
    write_extents(w, p);
    dyti_write_array(w, shard_fields(p));
    dyti_write_u64(w, p->shard_count);
    for (uint32_t i = 0; i < p->shard_count; i++) {
        const struct dyti_shard *s = &p->shard[i];

        dyti_write_u64(w, s->tensor);
        dyti_write_u64(w, s->kind);
        dyti_write_u64(w, s->dtype);
        dyti_write_u64(w, s->offset);
        dyti_write_u64(w, s->box.ndim);
        for (uint32_t d = 0; d < s->box.ndim; d++) {
            dyti_write_i64(w, s->box.lo[d]);
            dyti_write_i64(w, s->box.hi[d]);
            dyti_write_i64(w, s->stride[d]);
        }
    }
}

static void read_extents(struct dyti_reader *outer, struct dyti_msg_part *p)
{
    struct dyti_reader r;

    if (!dyti_read_nested(outer, "extents", &r)) {
        return;
    }
    if (r.count % EXTENT_FIELDS != 0) {
        r.status =
            DYTI_FAIL(DYT_ERR_FORMAT, "%s message: %u numbers of extents",
                      r.what, r.count);
    }
    p->extent = dyti_read_room(&r, "extents", r.count / EXTENT_FIELDS,
                               sizeof(*p->extent), 0);
    p->extent_count = p->extent != NULL ? r.count / EXTENT_FIELDS : 0;
    for (uint32_t i = 0; i < p->extent_count; i++) {
        struct dyti_msg_extent *e = &p->extent[i];

        e->offset = dyti_read_u64(&r, "offset", UINT64_MAX);
        e->bytes = dyti_read_u64(&r, "bytes", UINT64_MAX);
        e->address = dyti_read_u64(&r, "address", UINT64_MAX);
        e->fd = dyti_read_i32(&r, "descriptor");
        e->kind = (uint32_t)dyti_read_u64(&r, "kind", DYTI_KIND_COUNT - 1);
        e->fd_offset = dyti_read_u64(&r, "offset", UINT64_MAX);
        e->device = dyti_read_u64(&r, "device", UINT64_MAX);
        e->inode = dyti_read_u64(&r, "inode", UINT64_MAX);
    }
    dyti_read_join(outer, &r);
}

static void read_shard(struct dyti_reader *r, struct dyti_shard *s)
{
    s->tensor = (uint32_t)dyti_read_u64(r, "tensor", UINT32_MAX);
    s->kind = (uint8_t)dyti_read_u64(r, "kind", DYTI_KIND_COUNT - 1);
    s->dtype = (uint8_t)dyti_read_u64(r, "dtype", DYTI_DTYPE_COUNT - 1);
    s->offset = dyti_read_u64(r, "offset", UINT64_MAX);
    s->box.ndim = (uint32_t)dyti_read_u64(r, "dimensions", DYT_MAX_DIMS);
    for (uint32_t d = 0; d < s->box.ndim; d++) {
        s->box.lo[d] = dyti_read_i64(r, "box");
        s->box.hi[d] = dyti_read_i64(r, "box");
        s->stride[d] = dyti_read_i64(r, "stride");
    }
}

static void read_shards(struct dyti_reader *outer, struct dyti_msg_part *p)
{
    struct dyti_reader r;
    uint64_t count;

    if (!dyti_read_nested(outer, "shards", &r)) {
        return;
    }
    /* A shard has five fields or more: no count is more than they could be. */
    count = dyti_read_u64(&r, "shard count", r.count / 5u);
    p->shard =
        dyti_read_room(&r, "shards", (uint32_t)count, sizeof(*p->shard), 0);
    p->shard_count = p->shard != NULL ? (uint32_t)count : 0;
    for (uint32_t i = 0; i < p->shard_count; i++) {
        read_shard(&r, &p->shard[i]);
    }
    if (r.status == DYT_OK && dyti_read_left(&r) > 0) {
        r.status = DYTI_FAIL(DYT_ERR_FORMAT,
                             "%s message: %u numbers after %u "
                             "shards",
                             r.what, dyti_read_left(&r), p->shard_count);
    }
    dyti_read_join(outer, &r);
}

static void read_part(struct dyti_reader *outer, struct dyti_msg_part *p)
{
    struct dyti_reader r;

    if (!dyti_read_nested(outer, "memory", &r)) {
        return;
    }
    p->pid = (uint32_t)dyti_read_u64(&r, "pid", UINT32_MAX);
    p->pid_start = dyti_read_u64(&r, "start time", UINT64_MAX);
    for (uint32_t k = 0; k < DYTI_KIND_COUNT; k++) {
        p->region_bytes[k] = dyti_read_u64(&r, "region bytes", UINT64_MAX);
    }
    read_extents(&r, p);
    read_shards(&r, p);
    dyti_read_join(outer, &r);
}

void dyti_msg_part_fini(struct dyti_msg_part *p)
{
    free(p->extent);
    free(p->shard);
    memset(p, 0, sizeof(*p));
}

static void write_parts(struct dyti_writer *w, const struct dyti_msg_part *part,
                        uint32_t count)
{
    dyti_write_array(w, count);
    for (uint32_t i = 0; i < count; i++) {
        write_part(w, &part[i]);
    }
}

static struct dyti_msg_part *read_parts(struct dyti_reader *outer,
                                        uint32_t *out_count)
{
    struct dyti_msg_part *part;
    struct dyti_reader r;

    *out_count = 0;
    if (!dyti_read_nested(outer, "memories", &r)) {
        return NULL;
    }
    part = dyti_read_room(&r, "memories", r.count, sizeof(*part), PART_FIELDS);
    *out_count = part != NULL ? r.count : 0;
    for (uint32_t i = 0; i < *out_count; i++) {
        read_part(&r, &part[i]);
    }
    dyti_read_join(outer, &r);
    return part;
}

static void free_parts(struct dyti_msg_part *part, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        dyti_msg_part_fini(&part[i]);
    }
    free(part);
}

/* ---- memory -------------------------------------------------------------- */

static void write_memory(struct dyti_writer *w, const struct dyti_msg_memory *m)
{
    dyti_write_array(w, 6);
    dyti_write_i64(w, m->status);
    dyti_write_text(w, m->text);
    dyti_write_u64(w, m->link);
    write_parts(w, m->part, m->part_count);
    write_parts(w, m->direct, m->direct_count);
    dyti_write_text(w, m->indirect);
}

static void read_memory(struct dyti_reader *r, struct dyti_msg_memory *m)
{
    m->status = dyti_read_i32(r, "status");
    m->text = dyti_read_text(r, "text");
    m->link = (uint32_t)dyti_read_u64(r, "link", UINT32_MAX);
    m->part = read_parts(r, &m->part_count);
    m->direct = read_parts(r, &m->direct_count);
    m->indirect = dyti_read_text(r, "indirect");
    if (r->status == DYT_OK && (m->part_count > 2 || m->direct_count > 2)) {
        r->status = DYTI_FAIL(DYT_ERR_FORMAT,
                              "memory message: %u address sets and %u of "
                              "devices, at most 2",
                              m->part_count, m->direct_count);
    }
}

void dyti_msg_memory_fini(struct dyti_msg_memory *m)
{
    free(m->text);
    free(m->indirect);
    free_parts(m->part, m->part_count);
    free_parts(m->direct, m->direct_count);
    memset(m, 0, sizeof(*m));
}

DYTI_WIRE_DEFINE(memory)

/* ---- readers ------------------------------------------------------------- */

static void write_readers(struct dyti_writer *w,
                          const struct dyti_msg_readers *m)
{
    dyti_write_array(w, 2);
    dyti_write_u64(w, m->link);
    dyti_write_bin(w, m->dtype, m->dtype_count);
}

static void read_readers(struct dyti_reader *r, struct dyti_msg_readers *m)
{
    m->link = (uint32_t)dyti_read_u64(r, "link", UINT32_MAX);
    m->dtype = dyti_read_items(r, "dtypes", 1, &m->dtype_count);
}

void dyti_msg_readers_fini(struct dyti_msg_readers *m)
{
    free(m->dtype);
    memset(m, 0, sizeof(*m));
}

DYTI_WIRE_DEFINE(readers)

/* ---- link ---------------------------------------------------------------- */

static void write_link(struct dyti_writer *w, const struct dyti_msg_link *m)
{
    dyti_write_array(w, 18);
    dyti_write_u64(w, m->link);
    dyti_write_u64(w, m->rank);
    dyti_write_u64(w, m->source_count);
    dyti_write_u64(w, m->member_count);
    dyti_write_u64(w, m->commit);
    dyti_write_u64(w, m->verify);
    dyti_write_u64(w, m->kinds);
    dyti_write_u64(w, m->live_set);
    dyti_write_u64(w, m->pid);
    dyti_write_i64(w, m->control_fd);
    dyti_write_i64(w, m->timeout_ns);
    dyti_write_u64(w, m->set_count);
    write_parts(w, m->part, m->part_count);
    dyti_write_u64(w, m->manager_island);
    dyti_write_bool(w, m->apart);
    dyti_write_array(w, m->island_count);
    for (uint32_t i = 0; i < m->island_count; i++) {
        dyti_write_u64(w, m->island[i]);
    }
    write_parts(w, m->direct, m->direct_count);
    dyti_write_text(w, m->indirect);
}

static void read_islands(struct dyti_reader *outer, struct dyti_msg_link *m)
{
    struct dyti_reader r;

    if (!dyti_read_nested(outer, "islands", &r)) {
        return;
    }
    m->island = dyti_read_room(&r, "islands", r.count, sizeof(*m->island), 0);
    m->island_count = m->island != NULL ? r.count : 0;
    for (uint32_t i = 0; i < m->island_count; i++) {
        m->island[i] = (uint32_t)dyti_read_u64(&r, "island", i);
    }
    dyti_read_join(outer, &r);
}

static void read_link(struct dyti_reader *r, struct dyti_msg_link *m)
{
    m->link = (uint32_t)dyti_read_u64(r, "link", UINT32_MAX);
    m->rank = (uint32_t)dyti_read_u64(r, "rank", INT32_MAX);
    m->source_count = (uint32_t)dyti_read_u64(r, "sources", INT32_MAX);
    m->member_count = (uint32_t)dyti_read_u64(r, "members", INT32_MAX);
    m->commit = (uint32_t)dyti_read_u64(r, "commit", DYT_COMMIT_IN_PLACE);
    m->verify = (uint32_t)dyti_read_u64(r, "verify", DYT_VERIFY_OFF);
    m->kinds = (uint32_t)dyti_read_u64(r, "kinds", UINT32_MAX);
    m->live_set = (uint32_t)dyti_read_u64(r, "live set", 1);
    m->pid = (uint32_t)dyti_read_u64(r, "pid", UINT32_MAX);
    m->control_fd = dyti_read_i32(r, "descriptor");
    m->timeout_ns = dyti_read_i64(r, "timeout");
    m->set_count = (uint32_t)dyti_read_u64(r, "address sets", 2);
    m->part = read_parts(r, &m->part_count);
    m->manager_island = (uint32_t)dyti_read_u64(r, "island", UINT32_MAX);
    m->apart = dyti_read_bool(r, "apart");
    read_islands(r, m);
    m->direct = read_parts(r, &m->direct_count);
    m->indirect = dyti_read_text(r, "indirect");
    if (r->status == DYT_OK &&
        (m->rank >= m->member_count || m->island_count != m->member_count ||
         m->source_count >= m->member_count || m->source_count == 0 ||
         m->set_count == 0 ||
         (m->direct_count != 0 && m->direct_count != m->part_count) ||
         (uint64_t)m->member_count * m->set_count != m->part_count)) {
        r->status = DYTI_FAIL(DYT_ERR_FORMAT,
                              "link message: rank %u of %u, %u sources, %u "
                              "memories in %u sets, %u of devices",
                              m->rank, m->member_count, m->source_count,
                              m->part_count, m->set_count, m->direct_count);
    }
}

void dyti_msg_link_fini(struct dyti_msg_link *m)
{
    free_parts(m->part, m->part_count);
    free_parts(m->direct, m->direct_count);
    free(m->indirect);
    free(m->island);
    memset(m, 0, sizeof(*m));
}

DYTI_WIRE_DEFINE(link)

/* ---- meet ---------------------------------------------------------------- */

static void write_meet(struct dyti_writer *w, const struct dyti_msg_meet *m)
{
    dyti_write_array(w, 4);
    dyti_write_u64(w, m->link);
    dyti_write_u64(w, m->rank);
    dyti_write_u64(w, m->what);
    dyti_write_bin(w, m->bytes, m->byte_count);
}

static void read_meet(struct dyti_reader *r, struct dyti_msg_meet *m)
{
    m->link = (uint32_t)dyti_read_u64(r, "link", UINT32_MAX);
    m->rank = (uint32_t)dyti_read_u64(r, "rank", INT32_MAX);
    m->what = (uint32_t)dyti_read_u64(r, "what", DYTI_MEET_COUNT - 1);
    m->bytes = dyti_read_items(r, "bytes", 1, &m->byte_count);
}

void dyti_msg_meet_fini(struct dyti_msg_meet *m)
{
    free(m->bytes);
    memset(m, 0, sizeof(*m));
}

DYTI_WIRE_DEFINE(meet)
