/* safetensors: boxes both ways against element by
 * element copies, and that reading does not make the file resident. */
#include "dyt_test.h"

#include "format/safetensors.h"

#include "base/num.h"

#include <fcntl.h>
#include <sys/stat.h>

/* ---- boxes -------------------------------------------------------------- */

static unsigned seed = 20260601u;

static int64_t draw(int64_t n) /* 0..n-1 */
{
    return n <= 1 ? 0 : (int64_t)(rand_r(&seed) % (int)n);
}

/* Bits of element i as the file's dtype would hold value(i). */
static float value_of(size_t tensor, uint64_t i)
{
    return (float)((int)((i * 37 + tensor * 11) % 511) - 255) / 8.0f;
}

static void store(enum dyti_dtype dtype, void *to, float x)
{
    uint16_t half;
    int32_t i32 = (int32_t)x;
    int64_t i64 = (int64_t)x;

    switch (dtype) {
    case DYTI_F32:
        memcpy(to, &x, 4);
        break;
    case DYTI_BF16:
        half = dyti_f32_to_bf16(x);
        memcpy(to, &half, 2);
        break;
    case DYTI_F16:
        half = dyti_f32_to_f16(x);
        memcpy(to, &half, 2);
        break;
    case DYTI_I32:
        memcpy(to, &i32, 4);
        break;
    default:
        memcpy(to, &i64, 8);
        break;
    }
}

static uint64_t flat_index(const struct dyti_safetensors_entry *e,
                           const int64_t *at)
{
    uint64_t index = 0;

    for (uint32_t d = 0; d < e->ndim; d++) {
        index = index * (uint64_t)e->shape[d] + (uint64_t)at[d];
    }
    return index;
}

/* Calls visit for each point of the box, with its place in a dense array that
 * is `pad` elements wider in the innermost dimension. */
static void fill_or_check(const struct dyti_safetensors_entry *e, size_t tensor,
                          const struct dyt_box *box, enum dyti_dtype dtype,
                          unsigned char *memory, const int64_t *stride,
                          bool check)
{
    uint32_t item = dyti_dtype_bytes(dtype);
    int64_t at[DYT_MAX_DIMS];
    uint32_t d;

    for (d = 0; d < box->ndim; d++) {
        if (box->lo[d] == box->hi[d]) {
            return;
        }
        at[d] = box->lo[d];
    }
    for (;;) {
        int64_t offset = 0;
        unsigned char want[8];

        for (d = 0; d < box->ndim; d++) {
            offset += (at[d] - box->lo[d]) * stride[d];
        }
        store(dtype, want, value_of(tensor, flat_index(e, at)));
        if (check) {
            assert_memory_equal(want, memory + offset, item);
        } else {
            memcpy(memory + offset, want, item);
        }
        for (d = box->ndim; d-- > 0;) {
            if (++at[d] < box->hi[d]) {
                break;
            }
            at[d] = box->lo[d];
        }
        if (d == UINT32_MAX) {
            return;
        }
    }
}

/* Strides of a padded row-major copy of the box; its bytes. */
static size_t pad_strides(const struct dyt_box *box, uint32_t item,
                          int64_t *stride)
{
    int64_t step = item;

    if (draw(4) == 0) {
        step *= 2; /* not dense even in the innermost dimension */
    }
    for (uint32_t d = box->ndim; d-- > 0;) {
        stride[d] = step;
        step *= box->hi[d] - box->lo[d];
        step += draw(3) * item;
    }
    return (size_t)step + 16;
}

static struct dyt_box random_box(const struct dyti_safetensors_entry *e)
{
    struct dyt_box box = {.ndim = e->ndim};

    for (uint32_t d = 0; d < e->ndim; d++) {
        box.lo[d] = draw(e->shape[d] + 1);
        box.hi[d] = box.lo[d] + draw(e->shape[d] - box.lo[d] + 1);
    }
    return box;
}

static enum dyti_dtype memory_dtype(enum dyti_dtype file)
{
    return file == DYTI_I32 || file == DYTI_I64 ? file
                                                : (enum dyti_dtype)draw(3);
}

static void write_part(int fd, const struct dyti_safetensors_plan *plan,
                       size_t t, const struct dyt_box *box)
{
    enum dyti_dtype dtype = memory_dtype(plan->entry[t].dtype);
    int64_t stride[DYT_MAX_DIMS];
    size_t bytes = pad_strides(box, dyti_dtype_bytes(dtype), stride);
    unsigned char *memory = calloc(1, bytes);

    fill_or_check(&plan->entry[t], t, box, dtype, memory, stride, false);
    assert_ok(dyti_safetensors_write_box(fd, "f", plan, t, box, dtype, memory,
                                         stride));
    free(memory);
}

/* Several owners write disjoint parts (cut along one dimension) that cover the
 * tensor; values are exact in every dtype used. */
static void write_tensor(int fd, const struct dyti_safetensors_plan *plan,
                         size_t t)
{
    const struct dyti_safetensors_entry *e = &plan->entry[t];
    struct dyt_box box = {.ndim = e->ndim};
    uint32_t axis = (uint32_t)draw(e->ndim);

    memcpy(box.hi, e->shape, sizeof(box.hi));
    box.hi[axis] = 0;
    while (box.hi[axis] < e->shape[axis]) {
        box.lo[axis] = box.hi[axis];
        box.hi[axis] += 1 + draw(e->shape[axis] - box.hi[axis]);
        write_part(fd, plan, t, &box);
    }
}

static void read_tensor(const struct dyti_safetensors *set,
                        const struct dyti_safetensors_plan *plan, size_t t,
                        const char *name)
{
    const struct dyti_safetensor *have = dyti_safetensors_find(set, name);

    assert_non_null(have);
    for (int round = 0; round < 6; round++) {
        struct dyt_box box = random_box(&plan->entry[t]);
        enum dyti_dtype dtype = memory_dtype(have->dtype);
        int64_t stride[DYT_MAX_DIMS];
        size_t bytes = pad_strides(&box, dyti_dtype_bytes(dtype), stride);
        unsigned char *memory = calloc(1, bytes);

        assert_ok(
            dyti_safetensors_read_box(set, have, &box, dtype, memory, stride));
        fill_or_check(&plan->entry[t], t, &box, dtype, memory, stride, true);
        free(memory);
    }
}

static void boxes_agree_with_element_copies(void **state)
{
    const char *dir = dyt_test_dir();
    char path[512];

    (void)state;
    snprintf(path, sizeof(path), "%s/x.safetensors", dir);
    for (int round = 0; round < 60; round++) {
        struct dyti_safetensors_entry entry[6];
        struct dyti_safetensors_plan plan;
        struct dyti_safetensors *set = NULL;
        char name[6][16];
        size_t count = 1 + (size_t)draw(6);
        int fd = -1;

        for (size_t t = 0; t < count; t++) {
            memset(&entry[t], 0, sizeof(entry[t]));
            snprintf(name[t], sizeof(name[t]), "t%zu", t);
            entry[t].name = name[t];
            entry[t].dtype = (enum dyti_dtype)draw(DYTI_DTYPE_COUNT);
            entry[t].ndim = 1 + (uint32_t)draw(4);
            for (uint32_t d = 0; d < entry[t].ndim; d++) {
                entry[t].shape[d] = draw(7);
            }
        }
        assert_ok(dyti_safetensors_plan_build(entry, count, NULL, &plan));
        assert_int_equal(0, plan.header_bytes % 64);
        assert_ok(dyti_safetensors_create(path, &plan, &fd));
        for (size_t t = 0; t < count; t++) {
            assert_int_equal(0,
                             plan.offset[t] % dyti_dtype_bytes(entry[t].dtype));
            write_tensor(fd, &plan, t);
        }
        close(fd);
        assert_ok(dyti_safetensors_open(path, &set));
        assert_int_equal(count, dyti_safetensors_count(set));
        for (size_t t = 0; t < count; t++) {
            read_tensor(set, &plan, t, name[t]);
        }
        dyti_safetensors_close(set);
        dyti_safetensors_plan_fini(&plan);
    }
}

static void plans_refuse_bad_entries(void **state)
{
    struct dyti_safetensors_entry twice[2] = {{"a", DYTI_F32, 1, {2}},
                                              {"a", DYTI_F32, 1, {2}}};
    struct dyti_safetensors_entry negative = {"a", DYTI_F32, 1, {-1}};
    struct dyti_safetensors_entry big = {
        "a", DYTI_F32, 2, {INT64_MAX / 2, INT64_MAX / 2}};
    struct dyti_safetensors_plan plan = {.count = 77};

    (void)state;
    assert_status(DYT_ERR_INVALID,
                  dyti_safetensors_plan_build(twice, 2, NULL, &plan));
    assert_status(DYT_ERR_INVALID,
                  dyti_safetensors_plan_build(&negative, 1, NULL, &plan));
    assert_status(DYT_ERR_OVERFLOW,
                  dyti_safetensors_plan_build(&big, 1, NULL, &plan));
    assert_int_equal(77, plan.count);
}

/* ---- big files ---------------------------------------------------------- */

/* Our own peak since the last reset, in KiB. */
static long peak_kib(void)
{
    char *text = dyt_test_read("/proc/self/status", NULL);
    char *line = strstr(text, "VmHWM:");
    long kib = line != NULL ? strtol(line + 6, NULL, 10) : -1;

    free(text);
    return kib;
}

static void column_boxes_keep_the_file_out_of_memory(void **state)
{
    enum { ROWS = 4096, COLS = 4096 }; /* 64 MiB of f32 */
    const char *dir = dyt_test_dir();
    struct dyti_safetensors_entry entry = {"w", DYTI_F32, 2, {ROWS, COLS}};
    struct dyt_box all = {.ndim = 2, .hi = {ROWS, COLS}};
    struct dyt_box box = {.ndim = 2, .lo = {0, 1024}, .hi = {ROWS, 1280}};
    int64_t same_row[2] = {0, 4}, stride[2] = {256 * 2, 2};
    struct dyti_safetensors_plan plan;
    struct dyti_safetensors *set = NULL;
    float *row = malloc(COLS * sizeof(float));
    uint16_t *part = malloc(ROWS * 256 * 2);
    char path[512];
    long before, after;
    int fd = -1;

    (void)state;
    for (int i = 0; i < COLS; i++) {
        row[i] = (float)(i % 256);
    }
    memset(part, 1, ROWS * 256 * 2);
    snprintf(path, sizeof(path), "%s/big.safetensors", dir);
    assert_ok(dyti_safetensors_plan_build(&entry, 1, NULL, &plan));
    assert_ok(dyti_safetensors_create(path, &plan, &fd));
    assert_ok(dyti_safetensors_write_box(fd, path, &plan, 0, &all, DYTI_F32,
                                         row, same_row));
    close(fd);
    before = peak_kib();
    assert_ok(dyti_safetensors_open(path, &set));
    assert_ok(dyti_safetensors_read_box(set, dyti_safetensors_find(set, "w"),
                                        &box, DYTI_BF16, part, stride));
    after = peak_kib();
    assert_true(dyti_bf16_to_f32(part[255 + 256 * (ROWS - 1)]) == 255.0f);
    assert_true(dyti_bf16_to_f32(part[256 * 17]) == 0.0f);
    if (!dyt_test_instrumented() && after - before > 8192) {
        fail_msg("reading 2 MiB of a 64 MiB file took %ld KiB", after - before);
    }
    dyti_safetensors_close(set);
    dyti_safetensors_plan_fini(&plan);
    free(row);
    free(part);
}

static void a_long_vector_goes_through_windows(void **state)
{
    enum { COUNT = 3 << 20 }; /* 12 MiB: several windows and buffers */
    const char *dir = dyt_test_dir();
    struct dyti_safetensors_entry entry = {"w", DYTI_F32, 1, {COUNT}};
    struct dyt_box box = {.ndim = 1, .hi = {COUNT}};
    struct dyti_safetensors_plan plan;
    struct dyti_safetensors *set = NULL;
    float *x = malloc(COUNT * sizeof(float)), *y = calloc(COUNT, sizeof(float));
    int64_t stride = sizeof(float);
    char path[512];
    int fd = -1;

    (void)state;
    for (int i = 0; i < COUNT; i++) {
        x[i] = (float)i;
    }
    snprintf(path, sizeof(path), "%s/v.safetensors", dir);
    assert_ok(dyti_safetensors_plan_build(&entry, 1, NULL, &plan));
    assert_ok(dyti_safetensors_create(path, &plan, &fd));
    assert_ok(dyti_safetensors_write_box(fd, path, &plan, 0, &box, DYTI_F32, x,
                                         &stride));
    close(fd);
    assert_ok(dyti_safetensors_open(path, &set));
    assert_ok(dyti_safetensors_read_box(set, dyti_safetensors_find(set, "w"),
                                        &box, DYTI_F32, y, &stride));
    assert_memory_equal(x, y, COUNT * sizeof(float));
    dyti_safetensors_close(set);
    dyti_safetensors_plan_fini(&plan);
    free(x);
    free(y);
}

static void a_file_cut_while_open_is_an_error(void **state)
{
    enum { COUNT = 2 << 20 };
    const char *dir = dyt_test_dir();
    struct dyti_safetensors_entry entry = {"w", DYTI_F32, 1, {COUNT}};
    struct dyt_box box = {.ndim = 1, .lo = {COUNT - 8}, .hi = {COUNT}};
    struct dyti_safetensors_plan plan;
    struct dyti_safetensors *set = NULL;
    float out[8];
    int64_t stride = sizeof(float);
    char path[512];
    int fd = -1;

    (void)state;
    snprintf(path, sizeof(path), "%s/cut.safetensors", dir);
    assert_ok(dyti_safetensors_plan_build(&entry, 1, NULL, &plan));
    assert_ok(dyti_safetensors_create(path, &plan, &fd));
    assert_ok(dyti_safetensors_open(path, &set));
    assert_int_equal(0, ftruncate(fd, 4096));
    close(fd);
    assert_status(DYT_ERR_IO, dyti_safetensors_read_box(
                                  set, dyti_safetensors_find(set, "w"), &box,
                                  DYTI_F32, out, &stride));
    assert_error_has("became shorter");
    dyti_safetensors_close(set);
    dyti_safetensors_plan_fini(&plan);
    dyti_safetensors_close(NULL);
    set = NULL;
    assert_status(DYT_ERR_FORMAT, dyti_safetensors_open(path, &set));
    assert_null(set);
}

/* ---- the index ---------------------------------------------------------- */

static void write_one(const char *dir, const char *file, const char *name)
{
    struct dyti_safetensors_entry entry = {name, DYTI_F32, 1, {2}};
    struct dyti_safetensors_plan plan;
    char path[512];
    int fd = -1;

    snprintf(path, sizeof(path), "%s/%s", dir, file);
    assert_ok(dyti_safetensors_plan_build(&entry, 1, NULL, &plan));
    assert_ok(dyti_safetensors_create(path, &plan, &fd));
    close(fd);
    dyti_safetensors_plan_fini(&plan);
}

static void sharded_sets_need_a_true_index(void **state)
{
    static const struct {
        const char *index;
        enum dyt_status want;
        const char *says;
    } row[] = {
        {"{\"weight_map\":{\"a\":\"1.st\",\"b\":\"2.st\"}}", DYT_OK, ""},
        {"{\"weight_map\":{\"a\":\"1.st\"}}", DYT_OK, ""},
        {"{\"weight_map\":{\"a\":\"1.st\",\"b\":\"3.st\"}}", DYT_ERR_FORMAT,
         "absent"},
        {"{\"weight_map\":{\"a\":\"2.st\",\"b\":\"1.st\"}}", DYT_ERR_FORMAT,
         "is not in"},
        {"{\"weight_map\":{\"a\":\"1.st\",\"c\":\"2.st\"}}", DYT_ERR_FORMAT,
         "b of"},
        {"{\"weight_map\":{\"a\":\"1.st\",\"b\":\"2.st\",\"c\":\"2.st\"}}",
         DYT_ERR_FORMAT, "c is not in 2.st"},
        {"{\"weight_map\":{\"a\":\"1.st\",\"b\":\"4.st\"}}", DYT_ERR_FORMAT,
         "a is in"},
        {"{\"weight_map\":{\"a\":\"../1.st\"}}", DYT_ERR_FORMAT,
         "not a file of the directory"},
        {"{\"weight_map\":{\"a\":3}}", DYT_ERR_FORMAT, "must name a file"},
        {"{\"weight_map\":{}}", DYT_ERR_FORMAT, "weight_map"},
        {"{}", DYT_ERR_FORMAT, "weight_map"},
        {"{\"weight_map\":{\"a\":\"1.st\",\"a\":\"1.st\"}}", DYT_ERR_FORMAT,
         "duplicate"},
    };
    const char *dir = dyt_test_dir();
    struct dyti_safetensors *set = NULL;
    char path[512];

    (void)state;
    assert_status(DYT_ERR_IO, dyti_safetensors_open(dir, &set));
    assert_status(DYT_ERR_IO, dyti_safetensors_open("/nonexistent", &set));
    write_one(dir, "1.st", "a");
    write_one(dir, "2.st", "b");
    write_one(dir, "4.st", "a");
    snprintf(path, sizeof(path), "%s/model.safetensors.index.json", dir);
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        dyt_test_write(path, row[i].index, strlen(row[i].index));
        if (dyti_safetensors_open(dir, &set) != row[i].want) {
            fail_msg("row %zu: %s", i, dyti_error_text());
        }
        if (row[i].want == DYT_OK) {
            assert_non_null(dyti_safetensors_find(set, "a"));
            dyti_safetensors_close(set);
            set = NULL;
        } else {
            assert_error_has(row[i].says);
        }
        assert_null(set);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(boxes_agree_with_element_copies),
    cmocka_unit_test(plans_refuse_bad_entries),
    cmocka_unit_test(column_boxes_keep_the_file_out_of_memory),
    cmocka_unit_test(a_long_vector_goes_through_windows),
    cmocka_unit_test(a_file_cut_while_open_is_an_error),
    cmocka_unit_test(sharded_sets_need_a_true_index),
};
DYT_TEST_MAIN(tests)
