/* What is refused of a view alone, and of its memory; catalogues from views. */
#include "plugin_cases.h"

#include "plugin/near.h"

#include <fcntl.h>
#include <sys/mman.h>

static void sound_views_pass(void **state)
{
    struct case_view v = {0};

    (void)state;
    CASE_ROW(&v, "a", 4, 6)->stride[0] = 8;
    v.row[0].stride[1] = 1; /* rows of a wider matrix */
    CASE_ROW(&v, "b", 3);
    CASE_ROW(&v, "b_master", 3)->kind = DYT_MASTER;
    CASE_ROW(&v, "packed", 4, 4)->flags = DYT_ROW_STAGED;
    v.row[3].data = NULL;
    CASE_ROW(&v, "tied", 4, 6)->flags = DYT_ROW_ALIAS;
    v.row[4].data = v.row[0].data;
    assert_ok(dyti_view_check(case_view(&v)));
    case_view_free(&v);
}

static void all_faults_are_listed_at_once(void **state)
{
    struct case_view v = {0};

    (void)state;
    CASE_ROW(&v, "packed", 0);
    CASE_ROW(&v, "fp8", 4)->dtype = 17;
    CASE_ROW(&v, "wide", 4, 4)->stride[1] = 1; /* expanded: stride 0 */
    CASE_ROW(&v, "nowhere", 4)->data = NULL;
    CASE_ROW(&v, "odd", 4)->data = (void *)(DYT_ROW_BASE + 1);
    CASE_ROW(&v, "twice", 4);
    CASE_ROW(&v, "twice", 4);
    CASE_ROW(&v, "gpu", 4)->device.type = DYT_DEVICE_CUDA;
    v.row[v.count - 1].fd = 0; /* a descriptor is of the host's memory */
    CASE_ROW(&v, "alias", 4)->flags = DYT_ROW_ALIAS;
    assert_status(DYT_ERR_UNSUPPORTED, dyti_view_check(case_view(&v)));
    assert_error_has("row packed has shape [0]");
    assert_error_has("DYT_ROW_STAGED");
    assert_error_has("row fp8: dtype 17");
    assert_error_has("row wide: strides");
    assert_error_has("row nowhere: neither");
    assert_error_has("row odd at");
    assert_error_has("two rows are called twice");
    assert_error_has("row gpu lies on a CUDA");
    assert_error_has("row alias is flagged");
    case_view_free(&v);
}

static void more_than_ten_are_counted(void **state)
{
    struct case_view v = {0};
    char name[14][16];

    (void)state;
    for (int i = 0; i < 14; i++) {
        (void)snprintf(name[i], sizeof(name[i]), "r%d", i);
        CASE_ROW(&v, name[i], 4)->data = NULL;
    }
    assert_status(DYT_ERR_INVALID, dyti_view_check(case_view(&v)));
    assert_error_has("and 4 more");
    case_view_free(&v);
}

static void truncated_structs_are_refused_with_the_numbers(void **state)
{
    struct case_view v = {0};
    struct dyt_view view;

    (void)state;
    CASE_ROW(&v, "a", 4);
    view = *case_view(&v);
    view.struct_size = 8;
    assert_status(DYT_ERR_INVALID, dyti_view_check(&view));
    assert_error_has("struct_size 8");
    view = *case_view(&v);
    view.row_struct_size = 100;
    assert_status(DYT_ERR_INVALID, dyti_view_check(&view));
    assert_error_has("100");
    assert_error_has("288");
    v.row[0].struct_size = 12;
    assert_status(DYT_ERR_INVALID, dyti_view_check(case_view(&v)));
    assert_error_has("struct_size 12");
    case_view_free(&v);
}

static void pieces_must_lie_in_their_row(void **state)
{
    struct case_view v = {0};
    struct dyt_piece p[2] = {
        {.struct_size = sizeof(p[0]),
         .tensor = "t",
         .box = {2, {0, 0}, {2, 6}},
         .at = {2, 0}},
        {.struct_size = sizeof(p[0]),
         .tensor = "u",
         .transposed = 1,
         .box = {2, {0, 0}, {6, 2}},
         .at = {0, 0}},
    };
    struct dyt_row *row = CASE_ROW(&v, "a", 4, 6);

    (void)state;
    row->piece = p;
    row->piece_count = 2;
    row->piece_struct_size = sizeof(p[0]);
    assert_ok(dyti_view_check(case_view(&v)));
    p[0].at[0] = 3;
    assert_status(DYT_ERR_INVALID, dyti_view_check(case_view(&v)));
    assert_error_has("piece 0 of t");
    p[0].at[0] = 2;
    p[1].transposed = 0;
    assert_status(DYT_ERR_INVALID, dyti_view_check(case_view(&v)));
    assert_error_has("piece 1 of u");
    p[1].transposed = 1;
    p[0].box.lo[1] = 7; /* behind its end */
    assert_status(DYT_ERR_INVALID, dyti_view_check(case_view(&v)));
    assert_error_has("piece 0 of t: from [0, 7] to [2, 6]");
    p[0].box.lo[1] = 0;
    p[0].box.ndim = 99;
    assert_status(DYT_ERR_INVALID, dyti_view_check(case_view(&v)));
    assert_error_has("99 dimensions in a row of 2");
    row->piece_struct_size = 8;
    assert_status(DYT_ERR_INVALID, dyti_view_check(case_view(&v)));
    case_view_free(&v);
}

/* ---- memory -------------------------------------------------------------- */

static void memory_is_checked_without_touching_it(void **state)
{
    size_t page = 4096;
    char *at = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct case_view v = {0};

    (void)state;
    assert_true(at != MAP_FAILED);
    CASE_ROW(&v, "whole", 4096)->data = at;
    assert_ok(dyti_view_check_memory(case_view(&v), true));
    /* the third page read-only, the fourth gone */
    assert_int_equal(mprotect(at + 2 * page, page, PROT_READ), 0);
    assert_int_equal(munmap(at + 3 * page, page), 0);
    v.row[0].shape[0] = 3 * 2048;
    assert_ok(dyti_view_check_memory(case_view(&v), false));
    assert_status(DYT_ERR_INVALID, dyti_view_check_memory(case_view(&v), true));
    assert_error_has("row whole");
    assert_error_has("byte 8192 is read-only");
    v.row[0].flags = DYT_ROW_READ_ONLY;
    assert_ok(dyti_view_check_memory(case_view(&v), true));
    v.row[0].shape[0] = 4 * 2048;
    assert_status(DYT_ERR_INVALID,
                  dyti_view_check_memory(case_view(&v), false));
    assert_error_has("byte 12288 is not mapped");
    assert_int_equal(mprotect(at, page, PROT_NONE), 0);
    assert_status(DYT_ERR_INVALID,
                  dyti_view_check_memory(case_view(&v), false));
    assert_error_has("byte 0 is not readable");
    munmap(at, 3 * page);
    case_view_free(&v);
}

static void descriptors_are_checked(void **state)
{
    int fd = memfd_create("dyt", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct case_view v = {0};
    char *at;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 8192), 0);
    at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(at != MAP_FAILED);
    CASE_ROW(&v, "shared", 2048)->data = at + 4096;
    v.row[0].fd = fd;
    v.row[0].fd_offset = 4096;
    assert_ok(dyti_view_check_memory(case_view(&v), true));
    v.row[0].fd_offset = 0;
    assert_status(DYT_ERR_INVALID, dyti_view_check_memory(case_view(&v), true));
    assert_error_has("is not byte 0 of fd");
    v.row[0].fd_offset = 6144;
    assert_status(DYT_ERR_INVALID, dyti_view_check_memory(case_view(&v), true));
    assert_error_has("has 8192 bytes");
    v.row[0].data = NULL;
    v.row[0].fd_offset = 0;
    assert_ok(dyti_view_check_memory(case_view(&v), true));
    munmap(at, 8192);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    assert_status(DYT_ERR_INVALID, dyti_view_check_memory(case_view(&v), true));
    assert_error_has("seal");
    assert_ok(dyti_view_check_memory(case_view(&v), false));
    close(fd);
    assert_status(DYT_ERR_INVALID,
                  dyti_view_check_memory(case_view(&v), false));
    case_view_free(&v);
}

/* ---- catalogues ---------------------------------------------------------- */

static void catalogues_are_the_union_of_ranks(void **state)
{
    struct case_view v[2] = {{0}, {0}};
    struct dyt_view view[2];
    struct dyt_piece low = {.struct_size = sizeof(low),
                            .tensor = "model.layers.3.mlp.experts.7.w1",
                            .box = {2, {0, 0}, {2, 4}}};
    struct dyt_piece high = low;
    struct dyti_model *model = NULL;
    struct dyt_row *row;

    (void)state;
    high.box = (struct dyt_box){2, {2, 0}, {5, 4}};
    CASE_ROW(&v[0], "norm", 4);
    row = CASE_ROW(&v[0], "flat.0", 2, 4);
    row->piece = &low;
    row->piece_count = 1;
    row->piece_struct_size = sizeof(low);
    CASE_ROW(&v[1], "norm", 4);
    row = CASE_ROW(&v[1], "flat.0", 3, 4);
    row->piece = &high;
    row->piece_count = 1;
    row->piece_struct_size = sizeof(low);
    CASE_ROW(&v[1], "ids", 9)->dtype = DYT_I64;
    view[0] = *case_view(&v[0]);
    view[1] = *case_view(&v[1]);
    assert_ok(dyti_catalogue_build(view, 2, &model));
    assert_int_equal(model->tensor_count, 3);
    assert_string_equal(model->tensor[1].name, low.tensor);
    assert_int_equal(model->tensor[1].shape[0], 5);
    assert_int_equal(model->tensor[1].layer, 3);
    assert_int_equal(model->tensor[1].expert, 7);
    assert_true(model->tensor[0].fixed_dtype);
    assert_false(model->tensor[2].fixed_dtype);
    dyti_model_destroy(model);

    /* numbered by name, whichever rank comes first */
    view[0] = *case_view(&v[1]);
    view[1] = *case_view(&v[0]);
    assert_ok(dyti_catalogue_build(view, 2, &model));
    assert_string_equal(model->tensor[0].name, "ids");
    assert_string_equal(model->tensor[1].name, low.tensor);
    assert_string_equal(model->tensor[2].name, "norm");
    dyti_model_destroy(model);
    view[0] = *case_view(&v[0]);
    view[1] = *case_view(&v[1]);

    /* A cut without pieces says not which one it is. */
    v[1].row[0].global_shape[0] = 8;
    assert_status(DYT_ERR_LAYOUT, dyti_catalogue_build(view, 2, &model));
    assert_error_has("row norm of rank 1");
    v[1].row[0].global_shape[0] = 0;
    v[1].row[0].shape[0] = 8;
    assert_status(DYT_ERR_LAYOUT, dyti_catalogue_build(view, 2, &model));
    assert_error_has("norm is [4] on rank 0 and [8] on rank 1");
    case_view_free(&v[0]);
    case_view_free(&v[1]);
}

static void names_are_numbered_by_the_value_of_their_numbers(void **state)
{
    static const char *const in[] = {"layers.10.w", "layers.2.w", "b",
                                     "layers.2.v", "layers.2"};
    static const char *const want[] = {"b", "layers.2", "layers.2.v",
                                       "layers.2.w", "layers.10.w"};
    struct case_view v = {0};
    struct dyti_model *model = NULL;

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(in); i++) {
        CASE_ROW(&v, in[i], 4);
    }
    assert_ok(dyti_catalogue_build(case_view(&v), 1, &model));
    for (size_t i = 0; i < DYT_TEST_COUNT(want); i++) {
        assert_string_equal(want[i], model->tensor[i].name);
    }
    dyti_model_destroy(model);
    case_view_free(&v);
}

/* ---- near misses --------------------------------------------------------- */

/* The textbook's table. */
static uint32_t slow_distance(const char *a, const char *b)
{
    uint32_t at[32][32];

    for (uint32_t i = 0; i <= strlen(a); i++) {
        for (uint32_t j = 0; j <= strlen(b); j++) {
            uint32_t best = i == 0 ? j : j == 0 ? i : UINT32_MAX;

            if (i > 0 && j > 0) {
                best = at[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
                best = at[i - 1][j] + 1 < best ? at[i - 1][j] + 1 : best;
                best = at[i][j - 1] + 1 < best ? at[i][j - 1] + 1 : best;
            }
            at[i][j] = best;
        }
    }
    return at[strlen(a)][strlen(b)];
}

static void distances_are_the_textbooks(void **state)
{
    uint64_t rounds = dyt_test_rounds(20000, 200000);

    (void)state;
    for (uint64_t seed = 0; seed < rounds; seed++) {
        uint64_t x = seed * 0x9e3779b97f4a7c15u;
        char text[2][16];
        uint32_t want, limit;

        for (int t = 0; t < 2; t++) {
            size_t bytes;

            x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
            bytes = x % 15;
            for (size_t i = 0; i < bytes; i++) {
                x = (x ^ x >> 31) * 0x94d049bb133111ebu;
                text[t][i] = (char)('a' + (x >> 40) % 3);
            }
            text[t][bytes] = '\0';
        }
        limit = (uint32_t)(x % 12);
        want = slow_distance(text[0], text[1]);
        want = want > limit ? limit + 1 : want;
        if (dyti_near_distance(text[0], text[1], limit) != want) {
            fail_msg("seed %" PRIu64 ": \"%s\" \"%s\" limit %u: %u, want %u",
                     seed, text[0], text[1], limit,
                     dyti_near_distance(text[0], text[1], limit), want);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sound_views_pass),
    cmocka_unit_test(all_faults_are_listed_at_once),
    cmocka_unit_test(more_than_ten_are_counted),
    cmocka_unit_test(truncated_structs_are_refused_with_the_numbers),
    cmocka_unit_test(pieces_must_lie_in_their_row),
    cmocka_unit_test(memory_is_checked_without_touching_it),
    cmocka_unit_test(descriptors_are_checked),
    cmocka_unit_test(catalogues_are_the_union_of_ranks),
    cmocka_unit_test(names_are_numbered_by_the_value_of_their_numbers),
    cmocka_unit_test(distances_are_the_textbooks),
};
DYT_TEST_MAIN(tests)
