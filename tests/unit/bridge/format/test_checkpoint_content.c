/* What is in a checkpoint's files: a bit that is another one is found, in every
 * file and in the marker, and is named by file and place. */
#include "checkpoint_run.h"

#include "format/checkpoint_dir.h"

#include "base/hash.h"

#include <fcntl.h>
#include <jansson.h>
#include <unistd.h>

#define BLOCK (16ull << 20) /* what a marker's hashes are of */

static void flip(const char *path, uint64_t bit)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    unsigned char byte;

    assert_true(fd >= 0);
    assert_int_equal(1, pread(fd, &byte, 1, (off_t)(bit / 8)));
    byte ^= (unsigned char)(1u << bit % 8);
    assert_int_equal(1, pwrite(fd, &byte, 1, (off_t)(bit / 8)));
    close(fd);
}

static uint64_t bytes_of(const char *path)
{
    struct stat info;

    assert_int_equal(0, stat(path, &info));
    return (uint64_t)info.st_size;
}

static void make(const char *path, uint64_t bytes)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    assert_true(fd >= 0);
    assert_int_equal(0, ftruncate(fd, (off_t)bytes));
    close(fd);
}

/* ---- every bit ------------------------------------------------------------
 */

static void check_file_of(const char *dir, const char *name)
{
    bool marker = strcmp(name, DYTI_CHECKPOINT_MARKER) == 0;
    char path[DYTI_PATH_BYTES + 300];
    uint64_t bits;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    bits = 8 * bytes_of(path);
    /* All of the marker, the ends and some of the rest. */
    for (uint64_t bit = 0; bit < bits;
         bit += marker || bit < 8 || bit + 8 >= bits
                    ? 1
                    : (bits / 7 < bits - 8 - bit ? bits / 7 : bits - 8 - bit)) {
        flip(path, bit);
        if (!marker) {
            assert_ok(dyti_checkpoint_check(dir));
        }
        assert_status(DYT_ERR_FORMAT, dyti_checkpoint_verify(dir));
        assert_error_has(marker ? "" : name);
        assert_error_has(marker ? "" : "bytes 0 to ");
        flip(path, bit);
    }
    assert_ok(dyti_checkpoint_verify(dir));
}

static void every_file_is_compared(void **state)
{
    struct dyti_listing list = {NULL, 0, 0};
    char path[DYTI_PATH_BYTES];
    struct run run;
    bool found = false;

    (void)state;
    run_start(&run, DYTI_BF16, 1, 2, 2, 1);
    assert_ok(save(&run, 4, 0, 1, 0));
    assert_ok(dyti_checkpoint_latest_sound(run.root, path, &found));
    assert_true(found);
    assert_ok(dyti_checkpoint_list(path, &list));
    assert_true(list.count >= 8);
    for (size_t i = 0; i < list.count; i++) {
        check_file_of(path, list.name[i]);
    }
    free(list.name);
    run_stop(&run);
}

/* ---- what follows ----------------------------------------------------------
 */

static void a_damaged_one_is_passed_over(void **state)
{
    char path[DYTI_PATH_BYTES], file[DYTI_PATH_BYTES + 64];
    struct run run;
    bool found = false;

    (void)state;
    dyt_test_allow_complaints();
    run_start(&run, DYTI_F32, 1, 1, 1, 0);
    assert_ok(save(&run, 1, 0, 9, 0));
    assert_ok(save(&run, 2, 0, 9, 0));
    snprintf(file, sizeof(file), "%s/step-00000002/exp_avg.safetensors",
             run.root);
    flip(file, 8 * bytes_of(file) - 3);
    assert_ok(dyti_checkpoint_latest_sound(run.root, path, &found));
    assert_true(found);
    assert_non_null(strstr(path, "step-00000001"));
    check_loaded(&run, path, run.layout, 1);
    /* By its sizes it is whole. */
    assert_ok(dyti_checkpoint_latest(run.root, path, &found));
    assert_non_null(strstr(path, "step-00000002"));
    run_stop(&run);
}

static void damaged_weights_are_not_exported(void **state)
{
    char path[DYTI_PATH_BYTES], to[512], file[DYTI_PATH_BYTES + 64];
    struct run run;
    bool found = false;

    (void)state;
    run_start(&run, DYTI_BF16, 1, 1, 1, 0);
    assert_ok(save(&run, 3, 0, 1, 0));
    assert_ok(dyti_checkpoint_latest(run.root, path, &found));
    snprintf(file, sizeof(file), "%s/model.safetensors", path);
    flip(file, 8 * bytes_of(file) - 1);
    snprintf(to, sizeof(to), "%s/out", dyt_test_dir());
    assert_status(DYT_ERR_FORMAT, dyti_checkpoint_export(path, to));
    assert_error_has("model.safetensors: bytes 0 to ");
    assert_int_not_equal(0, access(to, F_OK));
    assert_status(DYT_ERR_FORMAT, dyti_checkpoint_verify_model(path));
    flip(file, 8 * bytes_of(file) - 1);
    /* What is not exported does not hinder it. */
    snprintf(file, sizeof(file), "%s/master.safetensors", path);
    flip(file, 8 * bytes_of(file) - 1);
    assert_ok(dyti_checkpoint_export(path, to));
    assert_ok(dyti_checkpoint_verify_model(to)); /* no checkpoint */
    run_stop(&run);
}

/* One of before there were hashes. */
static void markers_without_hashes_pass(void **state)
{
    char path[DYTI_PATH_BYTES], file[DYTI_PATH_BYTES + 64];
    json_t *json;
    struct run run;
    bool found = false;
    uint64_t complaints;

    (void)state;
    dyt_test_allow_complaints();
    run_start(&run, DYTI_F32, 1, 1, 1, 0);
    assert_ok(save(&run, 3, 0, 1, 0));
    snprintf(file, sizeof(file), "%s/step-00000003/complete.json", run.root);
    json = json_load_file(file, 0, NULL);
    assert_non_null(json);
    assert_int_equal(0, json_object_del(json, "self"));
    /* A marker that only lost its own hash is no old one. */
    assert_int_equal(0, json_dump_file(json, file, 0));
    snprintf(path, sizeof(path), "%s/step-00000003", run.root);
    assert_status(DYT_ERR_FORMAT, dyti_checkpoint_check(path));
    assert_error_has("complete.json");
    assert_int_equal(0, json_object_del(json, "blocks"));
    assert_int_equal(0, json_object_del(json, "block_bytes"));
    assert_int_equal(0, json_dump_file(json, file, 0));
    json_decref(json);
    complaints = dyti_log_complaints();
    assert_ok(dyti_checkpoint_latest_sound(run.root, path, &found));
    assert_true(found);
    assert_true(dyti_log_complaints() == complaints + 1);
    check_loaded(&run, path, run.layout, 3);
    run_stop(&run);
}

/* ---- blocks ----------------------------------------------------------------
 */

static void the_place_is_that_of_the_block(void **state)
{
    const uint64_t bytes = 2 * BLOCK + 4097;
    char dir[300], file[400], empty[400], says[128];

    (void)state;
    snprintf(dir, sizeof(dir), "%s/one", dyt_test_dir());
    assert_int_equal(0, mkdir(dir, 0777));
    snprintf(file, sizeof(file), "%s/a", dir);
    snprintf(empty, sizeof(empty), "%s/b", dir);
    make(file, bytes);
    make(empty, 0);
    assert_ok(dyti_checkpoint_mark(dir, 1));
    assert_ok(dyti_checkpoint_verify(dir));
    for (uint64_t block = 0; block < 3; block++) {
        uint64_t hi = block < 2 ? (block + 1) * BLOCK : bytes;

        flip(file, 8 * (hi - 1));
        assert_status(DYT_ERR_FORMAT, dyti_checkpoint_verify(dir));
        snprintf(says, sizeof(says), "/a: bytes %llu to %llu are not",
                 (unsigned long long)(block * BLOCK), (unsigned long long)hi);
        assert_error_has(says);
        assert_ok(dyti_checkpoint_verify_file(dir, "b"));
        flip(file, 8 * (hi - 1));
    }
    assert_ok(dyti_checkpoint_verify_file(dir, "a"));
    snprintf(file, sizeof(file), "%s/complete.json", dir);
    assert_int_equal(0, unlink(file));
    assert_status(DYT_ERR_FORMAT, dyti_checkpoint_verify_file(dir, "a"));
}

/* Many threads and small blocks find what one pass over the file finds. */
static void blocks_are_parts_of_the_file(void **state)
{
    enum { SMALL = 1 << 20, MOST = 80 };
    const uint64_t bytes[3] = {(70ull << 20) + 3, 0, 9};
    struct dyti_block_hashes file[3];
    char path[3][400];

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        snprintf(path[i], sizeof(path[i]), "%s/f%zu", dyt_test_dir(), i);
        make(path[i], bytes[i]);
        file[i] = (struct dyti_block_hashes){
            path[i], bytes[i], calloc(MOST, sizeof(*file[i].hash))};
        assert_non_null(file[i].hash);
    }
    for (uint64_t bit = 5; bit < 8 * bytes[0]; bit += 7654321) {
        flip(path[0], bit);
    }
    flip(path[2], 8 * 8);
    assert_ok(dyti_block_hashes(file, 3, SMALL));
    for (size_t i = 0; i < 3; i++) {
        size_t size, count = dyti_block_count(bytes[i], SMALL);
        char *text = dyt_test_read(path[i], &size);

        assert_int_equal(bytes[i], size);
        assert_int_equal((bytes[i] + SMALL - 1) / SMALL, count);
        for (size_t b = 0; b < count; b++) {
            size_t at = b * SMALL, take = size - at < SMALL ? size - at : SMALL;

            assert_true(file[i].hash[b] ==
                        dyti_content_bytes(dyti_content_salt(0, 0), at / 8,
                                           text + at, take));
        }
        free(text);
    }
    file[0].bytes++; /* one more than there are */
    assert_status(DYT_ERR_IO, dyti_block_hashes(file, 3, SMALL));
    assert_error_has("f0: became shorter");
    assert_int_equal(0, unlink(path[2]));
    assert_status(DYT_ERR_IO, dyti_block_hashes(file + 2, 1, SMALL));
    assert_error_has("f2: No such file");
    for (size_t i = 0; i < 3; i++) {
        free(file[i].hash);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_file_is_compared),
    cmocka_unit_test(a_damaged_one_is_passed_over),
    cmocka_unit_test(damaged_weights_are_not_exported),
    cmocka_unit_test(markers_without_hashes_pass),
    cmocka_unit_test(the_place_is_that_of_the_block),
    cmocka_unit_test(blocks_are_parts_of_the_file),
};
DYT_TEST_MAIN(tests)
