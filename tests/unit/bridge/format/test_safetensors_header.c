/* safetensors: what a header may say. */
#include "dyt_test.h"

#include "format/safetensors.h"

static size_t make_file(unsigned char *to, uint64_t header_bytes,
                        const char *json, size_t data_bytes)
{
    size_t length = strlen(json);

    for (unsigned i = 0; i < 8; i++) {
        to[i] = (unsigned char)(header_bytes >> (8 * i));
    }
    memcpy(to + 8, json, length);
    for (size_t i = 0; i < data_bytes; i++) {
        to[8 + length + i] = (unsigned char)i;
    }
    return 8 + length + data_bytes;
}

#define T(type, shape, lo, hi)                                                 \
    "{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" lo "," hi \
    "]}"

static void good_headers_are_read(void **state)
{
    const char *json = "{\"__metadata__\":{\"format\":\"pt\"},\"b\":" T(
        "F32", "[2,3]", "8",
        "32") ",\"a\":" T("I64", "[]", "0", "8") ",\"e\":" T("U8", "[0,4]", "8",
                                                             "8") "}  ";
    unsigned char bytes[1024];
    struct dyti_safetensors *set = NULL;
    const struct dyti_safetensor *t;
    int64_t one = 0, stride = 8;
    struct dyt_box box = {.ndim = 1, .lo = {0}, .hi = {1}};

    (void)state;
    assert_ok(dyti_safetensors_open_memory(
        "m", bytes, make_file(bytes, strlen(json), json, 32), &set));
    assert_int_equal(3, dyti_safetensors_count(set));
    assert_string_equal("a", dyti_safetensors_at(set, 0)->name);
    assert_null(dyti_safetensors_find(set, "c"));
    t = dyti_safetensors_find(set, "b");
    assert_non_null(t);
    assert_int_equal(DYTI_F32, t->dtype);
    assert_int_equal(2, t->ndim);
    assert_int_equal(3, t->shape[1]);
    assert_int_equal(8, t->data[0]);
    assert_string_equal("pt", dyti_safetensors_metadata(set, "format"));
    assert_null(dyti_safetensors_metadata(set, "x"));
    assert_ok(dyti_safetensors_read_box(set, dyti_safetensors_find(set, "a"),
                                        &box, DYTI_I64, &one, &stride));
    assert_true(one == 0x0706050403020100);
    assert_status(DYT_ERR_UNSUPPORTED, dyti_safetensors_read_box(
                                           set, t, &(struct dyt_box){.ndim = 2},
                                           DYTI_I32, &one, &stride));
    box.hi[0] = 2;
    assert_status(DYT_ERR_INVALID, dyti_safetensors_read_box(
                                       set, dyti_safetensors_find(set, "a"),
                                       &box, DYTI_I64, &one, &stride));
    dyti_safetensors_close(set);
}

static void bad_headers_are_refused(void **state)
{
    static const struct {
        const char *json;
        size_t data_bytes;
        enum dyt_status want;
        const char *says;
    } row[] = {
        {"", 0, DYT_ERR_FORMAT, "begin with {"},
        {" {}", 0, DYT_ERR_FORMAT, "begin with {"},
        {"{", 0, DYT_ERR_FORMAT, "header at byte"},
        {"{}x", 0, DYT_ERR_FORMAT, "header at byte"},
        {"{}", 4, DYT_ERR_FORMAT, "4 bytes after the last"},
        {"{\"a\":3}", 0, DYT_ERR_FORMAT, "a: must be an object"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, DYT_ERR_FORMAT,
         "data_offsets is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],"
         "\"x\":1}}",
         4, DYT_ERR_FORMAT, "more than"},
        {"{\"a\":" T("F3", "[1]", "0", "4") "}", 4, DYT_ERR_UNSUPPORTED,
         "unknown dtype F3"},
        {"{\"a\":" T("F32", "1", "0", "4") "}", 4, DYT_ERR_FORMAT, "shape"},
        {"{\"a\":" T("F32", "[-1]", "0", "4") "}", 4, DYT_ERR_FORMAT, "shape"},
        {"{\"a\":" T("F32", "[1.0]", "0", "4") "}", 4, DYT_ERR_FORMAT, "shape"},
        {"{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4,
         DYT_ERR_UNSUPPORTED, "9 dimensions"},
        {"{\"a\":" T("F32", "[4294967296,4294967296]", "0", "4") "}", 4,
         DYT_ERR_FORMAT, "too big"},
        {"{\"a\":" T("F32", "[4611686018427387904,4]", "0", "0") "}", 0,
         DYT_ERR_FORMAT, "too big"},
        {"{\"a\":" T("F32", "[1]", "0", "8") "}", 8, DYT_ERR_FORMAT,
         "dtype and shape need 4"},
        {"{\"a\":" T("F32", "[1]", "4", "0") "}", 4, DYT_ERR_FORMAT,
         "data_offsets"},
        {"{\"a\":" T("F32", "[1]", "-4", "0") "}", 4, DYT_ERR_FORMAT,
         "data_offsets"},
        {"{\"a\":" T("F32", "[1]", "0", "4.5") "}", 4, DYT_ERR_FORMAT,
         "data_offsets"},
        {"{\"a\":" T("F32", "[2]", "0", "8") "}", 4, DYT_ERR_FORMAT,
         "ends at byte 8 of 4"},
        {"{\"a\":" T("F32", "[1]", "0", "9223372036854775807") "}", 4,
         DYT_ERR_FORMAT, "ends at"},
        {"{\"a\":" T("F32", "[1]", "0", "9223372036854775808") "}", 4,
         DYT_ERR_FORMAT, "header at byte"},
        {"{\"a\":" T("F32", "[1]", "0", "4") ",\"b\":" T("F32", "[1]", "8",
                                                         "12") "}",
         12, DYT_ERR_FORMAT, "hole of 4 bytes before b"},
        {"{\"a\":" T("F32", "[1]", "4", "8") "}", 8, DYT_ERR_FORMAT,
         "hole of 4 bytes before a"},
        {"{\"a\":" T("F32", "[2]", "0", "8") ",\"b\":" T("F32", "[1]", "4",
                                                         "8") "}",
         8, DYT_ERR_FORMAT, "a and b overlap"},
        {"{\"a\":" T("F32", "[1]", "0", "4") ",\"a\":" T("F32", "[1]", "0",
                                                         "4") "}",
         4, DYT_ERR_FORMAT, "duplicate"},
        {"{\"__metadata__\":[]}", 0, DYT_ERR_FORMAT, "__metadata__"},
        {"{\"__metadata__\":{\"a\":1}}", 0, DYT_ERR_FORMAT, "__metadata__"},
    };
    unsigned char bytes[1024];

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_safetensors *set = NULL;
        size_t size = make_file(bytes, strlen(row[i].json), row[i].json,
                                row[i].data_bytes);

        if (dyti_safetensors_open_memory("bad.file", bytes, size, &set) !=
            row[i].want) {
            fail_msg("row %zu: %s", i, dyti_error_text());
        }
        assert_null(set);
        assert_error_has(row[i].says);
        assert_error_has("bad.file");
    }
}

static void lengths_beyond_the_file_are_refused(void **state)
{
    static const uint64_t length[] = {3, 1000, 100000001, UINT64_MAX,
                                      UINT64_MAX - 7};
    unsigned char bytes[64];
    struct dyti_safetensors *set = NULL;

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(length); i++) {
        size_t size = make_file(bytes, length[i], "{}", 0);

        assert_status(DYT_ERR_FORMAT,
                      dyti_safetensors_open_memory("short", bytes, size, &set));
        assert_error_has("does not fit");
    }
    for (size_t size = 0; size < 8; size++) {
        assert_status(DYT_ERR_FORMAT,
                      dyti_safetensors_open_memory("short", bytes, size, &set));
    }
    assert_null(set);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(good_headers_are_read),
    cmocka_unit_test(bad_headers_are_refused),
    cmocka_unit_test(lengths_beyond_the_file_are_refused),
};
DYT_TEST_MAIN(tests)
