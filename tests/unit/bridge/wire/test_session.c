/* Messages of sessions: fields where they belong, big ones whole, and frames
 * that promise much cost little. */
#include "dyt_test.h"

#include "wire_cases.h"

/* ---- what a decoder allocates -------------------------------------------- */

static size_t allocated; /* bytes that were asked for */

void *__real_calloc(size_t n, size_t size_bytes);
void *__wrap_calloc(size_t n, size_t size_bytes);
void *__real_malloc(size_t size_bytes);
void *__wrap_malloc(size_t size_bytes);

void *__wrap_calloc(size_t n, size_t size_bytes)
{
    allocated += n * size_bytes;
    return __real_calloc(n, size_bytes);
}

void *__wrap_malloc(size_t size_bytes)
{
    allocated += size_bytes;
    return __real_malloc(size_bytes);
}

#define MOST_PER_BYTE 80u

/* A payload of all the same bytes, with heads before it; whoever decodes it
 * asks for no more than a frame of that size can be worth. */
static void promise(const unsigned char *head, size_t head_bytes, int fill,
                    size_t size)
{
    unsigned char *bytes = __real_malloc(size);
    struct dyti_buffer e = {0};
    size_t at;

    assert_ok(dyti_wire_empty(&wire_envelope, &e));
    at = e.size_bytes - 1;
    memset(bytes, fill, size);
    memcpy(bytes, e.bytes, at);
    memcpy(bytes + at, head, head_bytes);
    dyti_buffer_fini(&e);
    for (size_t i = 0; i < WIRE_CASE_COUNT; i++) {
        struct dyti_buffer b = {0};
        enum dyt_status st;

        allocated = 0;
        st = wire_cases[i].again(&wire_envelope, bytes, size, &b);
        if (allocated > MOST_PER_BYTE * size + 4096) {
            fail_msg("%s: %zu bytes for a frame of %zu", wire_cases[i].name,
                     allocated, size);
        }
        dyti_buffer_fini(&b);
        assert_true(st == DYT_OK || st == DYT_ERR_FORMAT);
    }
    free(bytes);
}

static size_t envelope_bytes(void)
{
    struct dyti_buffer e = {0};
    size_t at;

    assert_ok(dyti_wire_empty(&wire_envelope, &e));
    at = e.size_bytes - 1;
    dyti_buffer_fini(&e);
    return at;
}

/* Sixty thousand items of one byte each where rows, tensors, pieces, extents,
 * shards or memories are due. */
static void promises_cost_what_their_bytes_are_worth(void **state)
{
#define MANY 0xdd, 0x00, 0x00, 0xea, 0x60 /* an array of 60000 */
    static const struct {
        unsigned char head[64];
        size_t bytes;
    } row[] = {
        {{MANY}, 5},
        {{0x91, MANY}, 6},       /* rows */
        {{0x92, 0x07, MANY}, 7}, /* a catalogue */
        {{0x94, 0x00, 0xa0, 0x07, MANY}, 9},
        {{0x91, 0x91, 0x96, 0xa0, 0, 0, 0, 0, MANY}, 13}, /* pieces of a row */
        {{0x94, 0x00, 0xa0, 0x07, 0x91, 0x9a, 0, 0, 0, 0, 0, 0, 0, 0, MANY},
         19}, /* extents */
        {{0x94, 0x00, 0xa0, 0x07, 0x91, 0x9a, 0,    0,    0,    0,    0,   0,
          0,    0,    0x90, 0xdd, 0x00, 0x00, 0xea, 0x60, 0xcd, 0x2e, 0xdf},
         23}, /* 11999 shards, the most that could be there */
        {{0x9d, 1, 1, 1, 2, 0, 0, 1, 0, 1, 0, 1, 1, MANY}, 18}};
    size_t at = envelope_bytes();

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        static const int fill[] = {0x00, 0x90, 0xa0, 0xc0};

        for (size_t f = 0; f < DYT_TEST_COUNT(fill); f++) {
            size_t items = 60000, inner = row[i].head[20] == 0xcd ? 3 : 0;

            promise(row[i].head, row[i].bytes, fill[f],
                    at + row[i].bytes + items - (inner > 0 ? 1 : 0));
        }
    }
}

/* ---- fields -------------------------------------------------------------- */

static void fields_are_where_they_belong(void **state)
{
    struct dyti_buffer b = {0};
    struct dyti_msg_join j;
    struct dyti_msg_rows rows;
    struct dyti_msg_memory m;

    (void)state;
    assert_ok(wire_encode_join(&wire_envelope, &b));
    assert_ok(dyti_wire_join_decode(b.bytes, b.size_bytes, &j));
    assert_string_equal("job_1", j.job);
    assert_string_equal("rollout", j.pool);
    assert_int_equal(1, j.role);
    assert_int_equal(2, j.replica);
    assert_int_equal(3, j.rank);
    assert_int_equal(4, j.size);
    assert_int_equal(5, j.tp_rank);
    assert_int_equal(8, j.pp_size);
    assert_int_equal(12, j.ep_size);
    assert_int_equal(13, j.quorum);
    assert_int_equal(UINT32_MAX, j.max_version_skew);
    assert_int_equal(14, j.pid);
    assert_true(j.timeout_ns == INT64_MIN);
    dyti_msg_join_fini(&j);
    dyti_buffer_fini(&b);

    assert_ok(wire_encode_rows(&wire_envelope, &b));
    assert_ok(dyti_wire_rows_decode(b.bytes, b.size_bytes, &rows));
    assert_int_equal(3, rows.row_count);
    assert_string_equal("w13\xc3\xbc", rows.row[0].name);
    assert_int_equal(DYT_BF16, rows.row[0].dtype);
    assert_int_equal(4, rows.row[0].shape[1]);
    assert_int_equal(8, rows.row[0].stride[1]);
    assert_int_equal(-1, rows.row[0].global_shape[0]);
    assert_int_equal(-1, rows.row[0].fd);
    assert_null(rows.row[0].data);
    assert_int_equal(2, rows.row[0].piece_count);
    assert_int_equal(1, rows.row[0].piece[0].transposed);
    assert_true(rows.row[0].piece[0].box.hi[0] == INT64_MAX);
    assert_int_equal(7, rows.row[0].piece[0].at[2]);
    assert_int_equal(0, rows.row[1].piece_count);
    assert_int_equal(8, rows.row[2].shape[7]);
    dyti_msg_rows_fini(&rows);
    dyti_buffer_fini(&b);

    assert_ok(wire_encode_memory(&wire_envelope, &b));
    assert_ok(dyti_wire_memory_decode(b.bytes, b.size_bytes, &m));
    assert_int_equal(2, m.part_count);
    assert_true(m.part[0].region_bytes[2] == UINT64_MAX);
    assert_int_equal(2, m.part[0].extent_count);
    assert_int_equal(INT32_MAX, m.part[0].extent[1].fd);
    assert_true(m.part[0].extent[1].inode == UINT64_MAX);
    assert_int_equal(2, m.part[0].shard_count);
    assert_int_equal(-2, m.part[0].shard[0].stride[1]);
    assert_true(m.part[0].shard[0].box.hi[1] == INT64_MAX);
    assert_int_equal(0, m.part[1].shard_count);
    dyti_msg_memory_fini(&m);
    dyti_buffer_fini(&b);
}

/* What lies on devices, beside what stands for it on hosts. */
static void memory_of_devices_is_told_too(void **state)
{
    char why[] = "row x lies on the host", text[] = "";
    uint32_t island[2] = {0, 0};
    struct dyti_msg_memory memory = {.part = wire_parts,
                                     .part_count = 2,
                                     .direct = wire_parts,
                                     .direct_count = 2,
                                     .indirect = why},
                           m;
    struct dyti_msg_link link = {.rank = 1,
                                 .member_count = 2,
                                 .source_count = 1,
                                 .set_count = 1,
                                 .part = wire_parts,
                                 .part_count = 2,
                                 .island = island,
                                 .island_count = 2,
                                 .direct = wire_parts,
                                 .direct_count = 2},
                         l;
    struct dyti_msg_report report = {.text = text, .direct = true}, r;
    struct dyti_msg_request request = {
        .what = DYTI_REQUEST_TAKEN, .text = text, .renewed = true};
    struct dyti_msg_request q;
    struct dyti_buffer b = {0};

    (void)state;
    assert_ok(dyti_wire_memory_encode(&wire_envelope, &memory, &b));
    assert_ok(dyti_wire_memory_decode(b.bytes, b.size_bytes, &m));
    assert_int_equal(2, m.direct_count);
    assert_int_equal(2, m.direct[0].extent_count);
    assert_string_equal(why, m.indirect);
    dyti_msg_memory_fini(&m);
    dyti_buffer_fini(&b);
    assert_ok(dyti_wire_link_encode(&wire_envelope, &link, &b));
    assert_ok(dyti_wire_link_decode(b.bytes, b.size_bytes, &l));
    assert_int_equal(2, l.direct_count);
    assert_string_equal("", l.indirect);
    dyti_msg_link_fini(&l);
    dyti_buffer_fini(&b);
    report.indirect = why;
    assert_ok(dyti_wire_report_encode(&wire_envelope, &report, &b));
    assert_ok(dyti_wire_report_decode(b.bytes, b.size_bytes, &r));
    assert_true(r.direct);
    assert_string_equal(why, r.indirect);
    dyti_msg_report_fini(&r);
    dyti_buffer_fini(&b);
    assert_ok(dyti_wire_request_encode(&wire_envelope, &request, &b));
    assert_ok(dyti_wire_request_decode(b.bytes, b.size_bytes, &q));
    assert_true(q.renewed);
    dyti_msg_request_fini(&q);
    dyti_buffer_fini(&b);
}

/* ---- what is out of range ------------------------------------------------ */

#define REFUSE(name, part, ...)                                                \
    do {                                                                       \
        struct dyti_msg_##name in = {__VA_ARGS__}, out;                        \
        struct dyti_buffer b = {0};                                            \
                                                                               \
        assert_ok(dyti_wire_##name##_encode(&wire_envelope, &in, &b));         \
        assert_status(DYT_ERR_FORMAT,                                          \
                      dyti_wire_##name##_decode(b.bytes, b.size_bytes, &out)); \
        assert_error_has(#name " message");                                    \
        assert_error_has(part);                                                \
        dyti_buffer_fini(&b);                                                  \
    } while (0)

static void contents_out_of_range_are_refused(void **state)
{
    struct dyt_row row = wire_rows[0];
    struct dyti_msg_tensor tensor = wire_tensors[0];
    struct dyti_msg_part three[3] = {{0}};
    struct dyti_shard shard = wire_shards[0];
    struct dyti_msg_extent extent = wire_extents[0];
    struct dyti_msg_part part = {.shard = &shard,
                                 .shard_count = 1,
                                 .extent = &extent,
                                 .extent_count = 1};

    (void)state;
    REFUSE(join, "role", .role = 2);
    REFUSE(join, "commit", .commit = DYT_COMMIT_IN_PLACE + 1);
    REFUSE(join, "memory", .mapped = 2);
    REFUSE(join, "verify", .verify = DYT_VERIFY_OFF + 1);
    REFUSE(join, "policy", .policy = DYT_POLICY_QUORUM + 1);
    REFUSE(joined, "member", .member = UINT32_MAX);
    REFUSE(order, "order", .what = DYTI_ORDER_COUNT);
    REFUSE(order, "source", .from_sibling = 2);
    REFUSE(report, "live set", .live_set = 2);
    REFUSE(request, "request", .what = DYTI_REQUEST_COUNT);
    REFUSE(answer, "answer", .what = DYTI_ANSWER_COUNT);
    row.kind = DYTI_KIND_COUNT;
    REFUSE(rows, "kind", .row = &row, .row_count = 1);
    row = wire_rows[0];
    row.dtype = DYTI_DTYPE_COUNT;
    REFUSE(rows, "dtype", .row = &row, .row_count = 1);
    tensor.dtype = DYTI_DTYPE_COUNT;
    REFUSE(catalogue, "dtype", .tensor = &tensor, .tensor_count = 1);
    REFUSE(memory, "3 address sets", .part = three, .part_count = 3);
    shard.kind = DYTI_KIND_COUNT;
    REFUSE(memory, "kind", .part = &part, .part_count = 1);
    shard = wire_shards[0];
    shard.dtype = DYTI_DTYPE_COUNT;
    REFUSE(memory, "dtype", .part = &part, .part_count = 1);
    shard = wire_shards[0];
    extent.kind = DYTI_KIND_COUNT;
    REFUSE(memory, "kind", .part = &part, .part_count = 1);
}

static void links_that_contradict_themselves_are_refused(void **state)
{
    (void)state;
    REFUSE(link, "rank 2 of 2", .rank = 2, .member_count = 2, .source_count = 1,
           .set_count = 1, .part = wire_parts, .part_count = 2);
    REFUSE(link, "2 sources", .rank = 1, .member_count = 2, .source_count = 2,
           .set_count = 1, .part = wire_parts, .part_count = 2);
    REFUSE(link, "0 sources", .rank = 1, .member_count = 2, .set_count = 1,
           .part = wire_parts, .part_count = 2);
    REFUSE(link, "0 sets", .rank = 1, .member_count = 2, .source_count = 1,
           .part = wire_parts, .part_count = 2);
    REFUSE(link, "2 memories in 2 sets", .rank = 1, .member_count = 2,
           .source_count = 1, .set_count = 2, .part = wire_parts,
           .part_count = 2);
    REFUSE(link, "1 memories", .rank = 1, .member_count = 2, .source_count = 1,
           .set_count = 1, .part = wire_parts, .part_count = 1);
    REFUSE(link, "1 of devices", .rank = 1, .member_count = 2,
           .source_count = 1, .set_count = 1, .part = wire_parts,
           .part_count = 2, .direct = wire_parts, .direct_count = 1);
    REFUSE(link, "commit", .commit = 3);
    REFUSE(link, "address sets", .set_count = 3);
}

/* ---- much at once -------------------------------------------------------- */

#define LOTS 18000u

static void eighteen_thousand_rows_are_one_frame(void **state)
{
    struct dyt_row *row = calloc(LOTS, sizeof(*row));
    struct dyt_piece *piece = calloc(LOTS, sizeof(*piece));
    char(*name)[96] = calloc(LOTS, sizeof(*name));
    struct dyti_msg_rows in = {.row = row, .row_count = LOTS}, out;
    struct dyti_buffer b = {0};

    (void)state;
    for (uint32_t i = 0; i < LOTS; i++) {
        snprintf(name[i], sizeof(name[i]),
                 "model.layers.%u.mlp.experts.%u.down_proj.weight", i / 384,
                 i % 384);
        row[i] = wire_rows[0];
        row[i].name = name[i];
        row[i].shape[0] = i;
        row[i].piece = &piece[i];
        row[i].piece_count = 1;
        piece[i] = wire_pieces[0];
        piece[i].tensor = name[i];
    }
    assert_ok(dyti_wire_rows_encode(&wire_envelope, &in, &b));
    assert_in_range(b.size_bytes, LOTS * 100, LOTS * 400);
    assert_ok(dyti_wire_rows_decode(b.bytes, b.size_bytes, &out));
    assert_int_equal(LOTS, out.row_count);
    for (uint32_t i = 0; i < LOTS; i++) {
        assert_string_equal(name[i], out.row[i].name);
        assert_string_equal(name[i], out.row[i].piece[0].tensor);
        assert_int_equal(i, out.row[i].shape[0]);
    }
    dyti_msg_rows_fini(&out);
    dyti_buffer_fini(&b);
    free(row);
    free(piece);
    free(name);
}

static void eighteen_thousand_shards_are_one_frame(void **state)
{
    struct dyti_shard *shard = calloc(LOTS, sizeof(*shard));
    struct dyti_msg_extent *extent = calloc(LOTS, sizeof(*extent));
    struct dyti_msg_part part = {.shard = shard,
                                 .shard_count = LOTS,
                                 .extent = extent,
                                 .extent_count = LOTS};
    struct dyti_msg_memory in = {.part = &part, .part_count = 1}, out;
    struct dyti_buffer b = {0};

    (void)state;
    for (uint32_t i = 0; i < LOTS; i++) {
        shard[i] = wire_shards[0];
        shard[i].tensor = i;
        extent[i] = wire_extents[1];
        extent[i].offset = i;
    }
    assert_ok(dyti_wire_memory_encode(&wire_envelope, &in, &b));
    assert_ok(dyti_wire_memory_decode(b.bytes, b.size_bytes, &out));
    assert_int_equal(LOTS, out.part[0].shard_count);
    assert_int_equal(LOTS, out.part[0].extent_count);
    for (uint32_t i = 0; i < LOTS; i++) {
        assert_int_equal(i, out.part[0].shard[i].tensor);
        assert_int_equal(i, out.part[0].extent[i].offset);
    }
    dyti_msg_memory_fini(&out);
    dyti_buffer_fini(&b);
    free(shard);
    free(extent);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(promises_cost_what_their_bytes_are_worth),
    cmocka_unit_test(fields_are_where_they_belong),
    cmocka_unit_test(memory_of_devices_is_told_too),
    cmocka_unit_test(contents_out_of_range_are_refused),
    cmocka_unit_test(links_that_contradict_themselves_are_refused),
    cmocka_unit_test(eighteen_thousand_rows_are_one_frame),
    cmocka_unit_test(eighteen_thousand_shards_are_one_frame),
};
DYT_TEST_MAIN(tests)
