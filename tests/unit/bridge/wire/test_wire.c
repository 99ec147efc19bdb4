/* Every message comes back as it was; no bytes whatever do harm. */
#include "dyt_test.h"

#include "base/rng.h"
#include "wire_cases.h"

static void every_message_comes_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < WIRE_CASE_COUNT; i++) {
        struct dyti_buffer a = {0}, b = {0};
        struct dyti_envelope e = {0};

        assert_ok(wire_cases[i].encode(&wire_envelope, &a));
        assert_ok(dyti_wire_envelope(a.bytes, a.size_bytes, &e));
        assert_int_equal(e.type, wire_envelope.type);
        assert_int_equal(e.job, wire_envelope.job);
        assert_int_equal(e.sender, wire_envelope.sender);
        assert_int_equal(e.epoch, wire_envelope.epoch);
        assert_int_equal(e.sequence, wire_envelope.sequence);
        assert_int_equal(e.version, wire_envelope.version);
        assert_ok(
            wire_cases[i].again(&wire_envelope, a.bytes, a.size_bytes, &b));
        assert_int_equal(a.size_bytes, b.size_bytes);
        assert_memory_equal(a.bytes, b.bytes, a.size_bytes);
        dyti_buffer_fini(&a);
        dyti_buffer_fini(&b);
    }
}

/* Encoding the same wrong thing twice would hide in the test above. */
static void fields_are_where_they_belong(void **state)
{
    struct dyti_buffer b = {0};
    struct dyti_msg_train m;
    struct dyti_msg_metrics n;
    const struct dyti_sample *s;

    (void)state;
    assert_ok(wire_encode_train(&wire_envelope, &b));
    assert_ok(dyti_wire_train_decode(b.bytes, b.size_bytes, &m));
    assert_int_equal(m.step, 7);
    assert_int_equal(m.batch.prompt_count, 3);
    assert_int_equal(m.batch.prompt[0].id, 9);
    assert_int_equal(m.batch.prompt[0].row, UINT64_MAX);
    assert_int_equal(m.batch.prompt[0].id_count, 5);
    assert_int_equal(m.batch.prompt[0].ids[2], 49151);
    assert_null(m.batch.prompt[1].ids);
    assert_int_equal(m.batch.sample_count, 2);
    s = &m.batch.sample[0];
    assert_int_equal(s->prompt, 9);
    assert_int_equal(s->index, UINT32_MAX);
    assert_int_equal(s->finish, DYTI_FINISH_ABORT);
    assert_int_equal(s->count, 5);
    assert_int_equal(s->ids[4], INT32_MAX);
    assert_true(s->raw[3] == -INFINITY && s->processed[4] == -3.25f);
    assert_true(s->reward == 0.75f && s->dropped);
    assert_int_equal(s->span_count, 2);
    assert_int_equal(s->span[0].version, 7);
    assert_int_equal(s->span[1].first, 2);
    assert_int_equal(s->span[1].count, 3);
    assert_int_equal(m.batch.sample[1].count, 0);
    dyti_msg_train_fini(&m);
    assert_null(m.batch.sample);
    dyti_buffer_fini(&b);
    assert_ok(wire_encode_metrics(&wire_envelope, &b));
    assert_ok(dyti_wire_metrics_decode(b.bytes, b.size_bytes, &n));
    assert_int_equal(n.count, 3);
    assert_string_equal(n.name[0], "reward/mean");
    assert_string_equal(n.name[1], "");
    assert_true(n.value[2] == 5e-324);
    dyti_msg_metrics_fini(&n);
    dyti_buffer_fini(&b);
}

/* ---- envelopes ----------------------------------------------------------- */

static void refused(const struct dyti_envelope *e, const char *part)
{
    struct dyti_buffer b = {0};
    struct dyti_envelope out = {.job = 5};

    assert_ok(dyti_wire_empty(e, &b));
    assert_status(DYT_ERR_FORMAT,
                  dyti_wire_envelope(b.bytes, b.size_bytes, &out));
    assert_error_has(part);
    assert_int_equal(out.job, 5);
    dyti_buffer_fini(&b);
}

static void wrong_envelopes_are_refused_by_name(void **state)
{
    struct dyti_envelope e = wire_envelope, out;
    struct dyti_buffer b = {0};
    unsigned char *longer;

    (void)state;
    e.protocol = DYTI_PROTOCOL + 1;
    refused(&e, "speaks protocol 2, this side 1");
    e.protocol = DYTI_PROTOCOL;
    e.type = 0;
    refused(&e, "type 0");
    e.type = DYTI_MSG_COUNT;
    refused(&e, "message of type");
    e.type = DYTI_MSG_BYE;
    e.sender = -2;
    refused(&e, "rank -2");
    e.sender = DYTI_MANAGER_RANK;
    assert_ok(dyti_wire_empty(&e, &b));
    assert_ok(dyti_wire_envelope(b.bytes, b.size_bytes, &out));
    assert_int_equal(out.sender, DYTI_MANAGER_RANK);
    longer = malloc(b.size_bytes + 1);
    memcpy(longer, b.bytes, b.size_bytes);
    longer[b.size_bytes] = 0xc0;
    assert_status(DYT_ERR_FORMAT,
                  dyti_wire_envelope(longer, b.size_bytes + 1, &out));
    assert_error_has("1 bytes after its payload");
    free(longer);
    dyti_buffer_fini(&b);
    assert_status(DYT_ERR_FORMAT, dyti_wire_envelope("", 0, &out));
    assert_status(DYT_ERR_FORMAT, dyti_wire_envelope(NULL, 0, &out));
}

/* ---- lengths ------------------------------------------------------------- */

/* Where the payload starts: an envelope alone has the same bytes and 0x90. */
static size_t payload_at(void)
{
    struct dyti_buffer b = {0};
    size_t at;

    assert_ok(dyti_wire_empty(&wire_envelope, &b));
    at = b.size_bytes - 1;
    dyti_buffer_fini(&b);
    return at;
}

/* One field more at the end is a newer sender; one less is refused. */
static void longer_arrays_pass_shorter_do_not(void **state)
{
    size_t at = payload_at();

    (void)state;
    for (size_t i = 0; i < WIRE_CASE_COUNT; i++) {
        struct dyti_buffer a = {0}, b = {0};
        unsigned char *longer;

        assert_ok(wire_cases[i].encode(&wire_envelope, &a));
        longer = malloc(a.size_bytes + 1);
        memcpy(longer, a.bytes, a.size_bytes);
        if (a.bytes[at] == 0xdc) { /* more than fifteen */
            longer[at + 2]++;
        } else {
            assert_in_range(a.bytes[at], 0x91, 0x9e);
            longer[at]++;
        }
        longer[a.size_bytes] = 0xc3;
        assert_ok(
            wire_cases[i].again(&wire_envelope, longer, a.size_bytes + 1, &b));
        assert_memory_equal(a.bytes, b.bytes, a.size_bytes);
        dyti_buffer_fini(&b);
        memcpy(longer, a.bytes, at);
        longer[at] = 0x90;
        assert_status(DYT_ERR_FORMAT,
                      wire_cases[i].again(&wire_envelope, longer, at + 1, &b));
        assert_error_has("no field");
        assert_error_has(wire_cases[i].name);
        free(longer);
        dyti_buffer_fini(&a);
    }
}

static void every_cut_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < WIRE_CASE_COUNT; i++) {
        struct dyti_buffer a = {0}, b = {0};

        assert_ok(wire_cases[i].encode(&wire_envelope, &a));
        for (size_t n = 0; n < a.size_bytes; n++) {
            unsigned char *cut = malloc(n + 1); /* its end is an end */
            struct dyti_envelope e;

            memcpy(cut, a.bytes, n);
            cut = realloc(cut, n > 0 ? n : 1);
            assert_status(DYT_ERR_FORMAT,
                          wire_cases[i].again(&wire_envelope, cut, n, &b));
            assert_status(DYT_ERR_FORMAT, dyti_wire_envelope(cut, n, &e));
            free(cut);
        }
        dyti_buffer_fini(&a);
    }
}

/* Headers that promise four thousand million items, strings or bytes, and
 * arrays in arrays without end, are refused before anything is allocated. */
static void promises_are_not_believed(void **state)
{
    static const unsigned char heads[][5] = {
        {0xdd, 0xff, 0xff, 0xff, 0xff}, {0xdb, 0xff, 0xff, 0xff, 0xff},
        {0xc6, 0xff, 0xff, 0xff, 0xff}, {0xdc, 0xff, 0xff, 0x00, 0x00},
        {0xdf, 0xff, 0xff, 0xff, 0xff}, {0xc9, 0xff, 0xff, 0xff, 0xff}};
    size_t at = payload_at();
    struct dyti_buffer a = {0}, b = {0};
    unsigned char bytes[600];

    (void)state;
    assert_ok(dyti_wire_empty(&wire_envelope, &a));
    for (size_t i = 0; i < DYT_TEST_COUNT(heads); i++) {
        memcpy(bytes, a.bytes, at);
        bytes[at] = 0x91;
        memcpy(bytes + at + 1, heads[i], 5);
        for (size_t k = 0; k < WIRE_CASE_COUNT; k++) {
            assert_status(
                DYT_ERR_FORMAT,
                wire_cases[k].again(&wire_envelope, bytes, at + 6, &b));
        }
    }
    memset(bytes + at, 0x91, sizeof(bytes) - at - 1);
    bytes[sizeof(bytes) - 1] = 0xc0;
    for (size_t k = 0; k < WIRE_CASE_COUNT; k++) {
        assert_status(DYT_ERR_FORMAT, wire_cases[k].again(&wire_envelope, bytes,
                                                          sizeof(bytes), &b));
    }
    dyti_buffer_fini(&a);
}

/* ---- contents ------------------------------------------------------------ */

static void contents_out_of_range_are_refused(void **state)
{
    struct dyti_msg_switch to = {.epoch = 1, .target = 2};
    struct dyti_msg_assign assign = {.threads = 4097};
    struct dyti_sample sample = wire_samples[0];
    struct dyti_msg_samples samples = {.sample = &sample, .sample_count = 1};
    struct dyti_buffer b = {0};
    struct dyti_msg_assign assign_out;
    struct dyti_msg_switch to_out;
    struct dyti_msg_samples samples_out;
    size_t last;

    (void)state;
    assert_ok(dyti_wire_switch_encode(&wire_envelope, &to, &b));
    assert_status(DYT_ERR_FORMAT,
                  dyti_wire_switch_decode(b.bytes, b.size_bytes, &to_out));
    assert_error_has("switch message: target");
    dyti_buffer_fini(&b);
    assert_ok(dyti_wire_assign_encode(&wire_envelope, &assign, &b));
    assert_status(DYT_ERR_FORMAT,
                  dyti_wire_assign_decode(b.bytes, b.size_bytes, &assign_out));
    assert_error_has("assign message: threads");
    dyti_buffer_fini(&b);
    sample.finish = (enum dyti_finish)3;
    assert_ok(dyti_wire_samples_encode(&wire_envelope, &samples, &b));
    assert_status(DYT_ERR_FORMAT, dyti_wire_samples_decode(
                                      b.bytes, b.size_bytes, &samples_out));
    assert_error_has("samples message: finish");
    dyti_buffer_fini(&b);
    /* Text with a NUL inside. */
    assert_ok(wire_encode_error(&wire_envelope, &b));
    last = b.size_bytes - 3;
    b.bytes[last] = 0;
    {
        struct dyti_msg_error out;

        assert_status(DYT_ERR_FORMAT,
                      dyti_wire_error_decode(b.bytes, b.size_bytes, &out));
        assert_error_has("error message: text");
    }
    dyti_buffer_fini(&b);
}

/* ---- rubbish ------------------------------------------------------------- */

static void harmless(const void *bytes, size_t size)
{
    struct dyti_envelope e;
    enum dyt_status st = dyti_wire_envelope(bytes, size, &e);

    assert_true(st == DYT_OK || st == DYT_ERR_FORMAT);
    for (size_t k = 0; k < WIRE_CASE_COUNT; k++) {
        struct dyti_buffer b = {0};

        st = wire_cases[k].again(&wire_envelope, bytes, size, &b);
        assert_true(st == DYT_OK || st == DYT_ERR_FORMAT ||
                    st == DYT_ERR_NOMEM);
        dyti_buffer_fini(&b);
    }
}

static void mutations_do_no_harm(void **state)
{
    uint64_t each = dyt_test_rounds(1500, 50000);

    (void)state;
    for (size_t i = 0; i < WIRE_CASE_COUNT; i++) {
        struct dyti_buffer a = {0};

        assert_ok(wire_cases[i].encode(&wire_envelope, &a));
        for (uint64_t n = 0; n < each; n++) {
            unsigned char *bytes = malloc(a.size_bytes);
            uint64_t changes = 1 + dyti_rng_u64(1, i, n, 0) % 4;

            memcpy(bytes, a.bytes, a.size_bytes);
            for (uint64_t c = 1; c <= changes; c++) {
                uint64_t r = dyti_rng_u64(1, i, n, c);

                bytes[r % a.size_bytes] = (unsigned char)(r >> 32);
            }
            harmless(bytes, a.size_bytes);
            free(bytes);
        }
        dyti_buffer_fini(&a);
    }
}

static void random_bytes_do_no_harm(void **state)
{
    uint64_t rounds = dyt_test_rounds(5000, 200000);

    (void)state;
    for (uint64_t n = 0; n < rounds; n++) {
        size_t size = dyti_rng_u64(2, n, 0, 0) % 64;
        unsigned char *bytes = malloc(size > 0 ? size : 1);

        for (size_t i = 0; i < size; i++) {
            bytes[i] = (unsigned char)dyti_rng_u64(2, n, 1, i);
        }
        harmless(bytes, size);
        free(bytes);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_message_comes_back),
    cmocka_unit_test(fields_are_where_they_belong),
    cmocka_unit_test(wrong_envelopes_are_refused_by_name),
    cmocka_unit_test(longer_arrays_pass_shorter_do_not),
    cmocka_unit_test(every_cut_is_refused),
    cmocka_unit_test(promises_are_not_believed),
    cmocka_unit_test(contents_out_of_range_are_refused),
    cmocka_unit_test(mutations_do_no_harm),
    cmocka_unit_test(random_bytes_do_no_harm),
};
DYT_TEST_MAIN(tests)
