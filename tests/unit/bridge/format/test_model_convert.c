/* Conversions inside: tiles, hashes, the memory cap as resident pages. */
#include "dyt_test.h"

#include "format/file.h"
#include "format/hf_config.h"
#include "format/model_convert_internal.h"
#include "format/weights.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* ---- tiles --------------------------------------------------------------- */

/* Every element of the box in exactly one tile, none larger than asked. */
static void tiles_cover_once(void **state)
{
    static const int64_t shape[][3] = {
        {7, 5, 3}, {1, 1, 1}, {1, 9, 1}, {4, 1, 6}, {10, 10, 10}};
    static const uint64_t most[] = {1, 2, 3, 7, 15, 16, 105, 5000};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(shape); i++) {
        for (size_t n = 0; n < DYT_TEST_COUNT(most); n++) {
            struct dyt_box box = {.ndim = 3}, tile = {.ndim = 0};
            uint8_t seen[16][16][16] = {{{0}}};
            int64_t left = 1;

            for (uint32_t d = 0; d < 3; d++) {
                box.lo[d] = d;
                box.hi[d] = d + shape[i][d];
                left *= shape[i][d];
            }
            while (dyti_convert_next_tile(&box, most[n], &tile)) {
                uint64_t count = 1;

                for (uint32_t d = 0; d < 3; d++) {
                    assert_true(tile.lo[d] < tile.hi[d]);
                    count *= (uint64_t)(tile.hi[d] - tile.lo[d]);
                }
                assert_true(count <= most[n]);
                for (int64_t x = tile.lo[0]; x < tile.hi[0]; x++) {
                    for (int64_t y = tile.lo[1]; y < tile.hi[1]; y++) {
                        for (int64_t z = tile.lo[2]; z < tile.hi[2]; z++) {
                            assert_int_equal(seen[x][y][z]++, 0);
                            left--;
                        }
                    }
                }
            }
            assert_int_equal(left, 0);
        }
    }
}

/* ---- models -------------------------------------------------------------- */

static void make_model(const char *dir, int64_t hidden, int64_t layers)
{
    struct dyti_arch arch = {.family = DYTI_LLAMA,
                             .vocab = 2000,
                             .hidden = hidden,
                             .layers = layers,
                             .q_heads = 8,
                             .kv_heads = 4,
                             .head_dim = 64,
                             .ffn = 3 * hidden,
                             .max_positions = 64,
                             .rms_eps = 1e-5,
                             .init_std = 0.02,
                             .rope = {.theta = 10000.0}};
    struct dyti_model *model = NULL;
    struct dyti_safetensors_plan plan;
    char path[300];
    int fd = -1;

    assert_ok(dyti_model_build(&arch, &model));
    assert_ok(dyti_hf_config_write(dir, &arch, NULL));
    assert_ok(dyti_weights_plan(model, DYTI_F32, &plan));
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    assert_ok(dyti_safetensors_create(path, &plan, &fd));
    close(fd);
    dyti_safetensors_plan_fini(&plan);
    dyti_model_destroy(model);
}

static void big_model(const char *dir)
{
    make_model(dir, 512, 4);
}

/* The largest resident memory of a child that converts (to NULL: does nothing),
 * bytes. */
static uint64_t peak_of(const char *from, const char *to, const char *text,
                        uint64_t cap)
{
    int64_t peak = 0;
    int pipe_fd[2], status = 0;
    pid_t pid;

    assert_int_equal(pipe(pipe_fd), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct dyti_layout_spec spec = {0};
        struct dyti_convert_report report;
        struct dyti_convert_desc d = {.from = from,
                                      .to = to,
                                      .form = DYTI_CONVERT_SHARDS,
                                      .spec = &spec,
                                      .memory_cap = cap};
        struct rusage usage;
        bool fine =
            to == NULL || (dyti_layout_spec_read(text, &spec) == DYT_OK &&
                           dyti_model_convert(&d, &report) == DYT_OK);

        dyti_layout_spec_fini(&spec);
        getrusage(RUSAGE_SELF, &usage);
        peak = fine ? usage.ru_maxrss * 1024 : -1;
        if (write(pipe_fd[1], &peak, sizeof(peak)) != sizeof(peak)) {
            _exit(1);
        }
        _exit(0);
    }
    assert_int_equal(read(pipe_fd[0], &peak, sizeof(peak)), sizeof(peak));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(pipe_fd[0]);
    close(pipe_fd[1]);
    assert_true(peak > 0);
    return (uint64_t)peak;
}

/* Resident memory stays within the cap, whichever way the rows lie. */
static void the_cap_is_kept(void **state)
{
    static const char *const spec[] = {"megatron:tp=2,pp=2", "vllm:tp=4",
                                       "zero3:dp=3", "fsdp2:dp=3",
                                       "native:tp=2"};
    /* slack: code, heap and lists that a child that does nothing has not */
    const uint64_t cap = 8u << 20, slack = 8u << 20;
    const char *dir = dyt_test_dir();
    char from[300], to[300];
    uint64_t nothing;

    (void)state;
    if (dyt_test_instrumented()) {
        skip(); /* shadow memory is no measure */
    }
    if (strncmp(dir, "/dev/shm/", strlen("/dev/shm/")) != 0) {
        skip(); /* of a file on a disk more is mapped than was asked for */
    }
    snprintf(from, sizeof(from), "%s/hf", dir);
    assert_ok(dyti_dir_make(from));
    big_model(from);
    nothing = peak_of(from, NULL, NULL, cap);
    for (size_t i = 0; i < DYT_TEST_COUNT(spec); i++) {
        uint64_t peak;

        snprintf(to, sizeof(to), "%s/%zu", dir, i);
        peak = peak_of(from, to, spec[i], cap);
        if (peak > nothing + cap + slack) {
            fail_msg("%s: %llu bytes above what nothing takes", spec[i],
                     (unsigned long long)(peak - nothing));
        }
        if (i > 0) {
            dyt_test_remove_tree(from);
        }
        snprintf(from, sizeof(from), "%s", to); /* the next one reads shards */
    }
}

/* ---- hashes -------------------------------------------------------------- */

/* A hash does not depend on the buffer, and sees one bit. */
static void hashes_are_of_the_content(void **state)
{
    const char *dir = dyt_test_dir();
    struct dyti_model_source *source = NULL;
    unsigned char *buffer = malloc(1u << 20);
    uint64_t a = 0, b = 0;
    char path[300];
    FILE *file;

    (void)state;
    assert_non_null(buffer);
    big_model(dir);
    assert_ok(dyti_model_source_open(dir, &source));
    assert_ok(
        dyti_model_hash(source, DYTI_PARAM, 3, DYTI_F32, buffer, 1u << 20, &a));
    assert_ok(
        dyti_model_hash(source, DYTI_PARAM, 3, DYTI_F32, buffer, 1000, &b));
    assert_int_equal(a, b);
    dyti_model_source_close(source);
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    file = fopen(path, "r+b");
    assert_non_null(file);
    for (int i = 0; i < 6000000; i += 4096) { /* in every tensor near */
        assert_int_equal(fseek(file, 2000 * 512 * 4 + 100000 + i, SEEK_SET), 0);
        fputc(1, file);
    }
    assert_int_equal(fclose(file), 0);
    assert_ok(dyti_model_source_open(dir, &source));
    assert_ok(
        dyti_model_hash(source, DYTI_PARAM, 3, DYTI_F32, buffer, 1u << 20, &b));
    assert_true(a != b);
    dyti_model_source_close(source);
    free(buffer);
}

/* ---- kills --------------------------------------------------------------- */

struct killer {
    const char *what;
    uint64_t percent;
};

static void kill_at(void *self, const char *what, uint64_t done, uint64_t total)
{
    const struct killer *k = self;

    if (strcmp(k->what, what) == 0 && done * 100 >= total * k->percent) {
        raise(SIGKILL);
    }
}

/* Killed at a known place: nothing is under the result's name, what was done is
 * taken over, and the result is whole. */
static void what_was_done_is_taken_over(void **state)
{
    static const struct {
        struct killer killer;
        uint32_t taken; /* at least */
    } row[] = {{{"writing", 0}, 0},  {{"writing", 30}, 1},
               {{"writing", 60}, 2}, {{"writing", 100}, 3},
               {{"checking", 1}, 5}, {{"checking", 100}, 5}};
    const char *dir = dyt_test_dir();
    char from[300], to[300], partial[320], line[] = "fsdp2:dp=5";

    (void)state;
    snprintf(from, sizeof(from), "%s/hf", dir);
    snprintf(to, sizeof(to), "%s/to", dir);
    snprintf(partial, sizeof(partial), "%s.partial", to);
    assert_ok(dyti_dir_make(from));
    make_model(from, 64, 2);
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct killer killer = row[i].killer;
        struct dyti_layout_spec spec = {0};
        struct dyti_convert_report report = {0};
        struct dyti_convert_desc d = {.from = from,
                                      .to = to,
                                      .form = DYTI_CONVERT_SHARDS,
                                      .spec = &spec,
                                      .memory_cap = 8u << 20,
                                      .progress = kill_at,
                                      .progress_self = &killer};
        struct dyti_model_source *source = NULL;
        int status = 0;
        pid_t pid;

        assert_ok(dyti_layout_spec_read(line, &spec));
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            _exit(dyti_model_convert(&d, &report) == DYT_OK ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        assert_false(dyti_file_exists(to));
        assert_true(dyti_file_exists(partial));
        d.progress = NULL;
        assert_ok(dyti_model_convert(&d, &report));
        assert_true(report.taken >= row[i].taken);
        assert_int_equal(report.files, 5);
        assert_false(dyti_file_exists(partial));
        assert_ok(dyti_model_source_open(to, &source));
        dyti_model_source_close(source);
        dyt_test_remove_tree(to);
        dyti_layout_spec_fini(&spec);
    }
}

/* ---- two at once, damage ------------------------------------------------- */

struct rival {
    const struct dyti_convert_desc *desc;
    bool asked;
};

static void convert_too(void *self, const char *what, uint64_t done,
                        uint64_t total)
{
    struct rival *r = self;
    struct dyti_convert_desc d = *r->desc;
    struct dyti_convert_report report;

    (void)what;
    (void)done;
    (void)total;
    if (!r->asked) {
        r->asked = true;
        d.progress = NULL;
        assert_status(DYT_ERR_BUSY, dyti_model_convert(&d, &report));
    }
}

static void two_at_once_are_refused(void **state)
{
    const char *dir = dyt_test_dir();
    char from[300], to[300];
    struct dyti_layout_spec spec = {0};
    struct dyti_convert_report report;
    struct dyti_convert_desc d = {.from = from,
                                  .to = to,
                                  .spec = &spec,
                                  .memory_cap = 8u << 20,
                                  .progress = convert_too};
    struct rival rival = {.desc = &d};

    (void)state;
    snprintf(from, sizeof(from), "%s/hf", dir);
    snprintf(to, sizeof(to), "%s/to", dir);
    assert_ok(dyti_dir_make(from));
    make_model(from, 64, 2);
    assert_ok(dyti_layout_spec_read("vllm:tp=2", &spec));
    d.progress_self = &rival;
    assert_ok(dyti_model_convert(&d, &report));
    assert_true(rival.asked);
    dyti_layout_spec_fini(&spec);
}

/* A file that was done and then damaged is found at the end, and the next
 * conversion begins anew. */
static void damage_is_found_and_mended(void **state)
{
    const char *dir = dyt_test_dir();
    char from[300], to[300], rank[360];
    struct killer killer = {"checking", 1};
    struct dyti_layout_spec spec = {0};
    struct dyti_convert_report report;
    struct dyti_convert_desc d = {.from = from,
                                  .to = to,
                                  .spec = &spec,
                                  .memory_cap = 8u << 20,
                                  .progress = kill_at,
                                  .progress_self = &killer};
    char *bytes;
    size_t count;
    pid_t pid;

    (void)state;
    snprintf(from, sizeof(from), "%s/hf", dir);
    snprintf(to, sizeof(to), "%s/to", dir);
    snprintf(rank, sizeof(rank), "%s.partial/rank-00001.safetensors", to);
    assert_ok(dyti_dir_make(from));
    make_model(from, 64, 2);
    assert_ok(dyti_layout_spec_read("fsdp2:dp=2", &spec));
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(dyti_model_convert(&d, &report) == DYT_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    bytes = dyt_test_read(rank, &count);
    bytes[count / 2] = (char)(bytes[count / 2] ^ 4);
    dyt_test_write(rank, bytes, count);
    free(bytes);
    d.progress = NULL;
    assert_status(DYT_ERR_VERIFY, dyti_model_convert(&d, &report));
    assert_error_has("is not what was written");
    assert_false(dyti_file_exists(to));
    assert_ok(dyti_model_convert(&d, &report));
    assert_int_equal(report.taken, 0);
    dyti_layout_spec_fini(&spec);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(tiles_cover_once),
    cmocka_unit_test(the_cap_is_kept),
    cmocka_unit_test(hashes_are_of_the_content),
    cmocka_unit_test(what_was_done_is_taken_over),
    cmocka_unit_test(two_at_once_are_refused),
    cmocka_unit_test(damage_is_found_and_mended),
};

DYT_TEST_MAIN(tests)
