/* The one include of a test program: CMocka, status asserts, a main that
 * fails on unexpected log lines, and temporary folders that vanish at exit.
 *
 *   static const struct CMUnitTest tests[] = {
 *       cmocka_unit_test(add_sums_examples),
 *   };
 *   DYT_TEST_MAIN(tests)
 */
#ifndef DYT_TEST_H
#define DYT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* CMocka wants the four above first. */
#include <cmocka.h>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"

#include <dirent.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* A sanitizer has threads and memory of its own: what is measured under one is
 * no measure. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DYT_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DYT_TEST_SANITIZED 1
#endif
#endif
#ifndef DYT_TEST_SANITIZED
#define DYT_TEST_SANITIZED 0
#endif

/* The thread sanitizer costs as much time as valgrind. */
#if defined(__SANITIZE_THREAD__)
#define DYT_TEST_SLOW 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define DYT_TEST_SLOW 1
#endif
#endif
#ifndef DYT_TEST_SLOW
#define DYT_TEST_SLOW 0
#endif

/* True also under valgrind, whose script sets the variable. */
static inline bool dyt_test_instrumented(void)
{
    return DYT_TEST_SANITIZED || getenv("DYT_TEST_INSTRUMENTED") != NULL;
}

/* 1, or more under valgrind: of a test that makes one call after the other
 * fail, only every so many-th then. */
static inline long dyt_test_stride(long under_valgrind)
{
    return getenv("DYT_TEST_INSTRUMENTED") != NULL ? under_valgrind : 1;
}

/* Rounds of a property test: `quick` by default, `full` where
 * DYNATRAIN_TEST_FULL is set (make test-full), a tenth of `quick` under
 * valgrind and the thread sanitizer, where each costs up to fifty times as
 * much.  Seeds count from 0, so that fewer rounds are the first ones. */
static inline uint64_t dyt_test_rounds(uint64_t quick, uint64_t full)
{
#ifdef DYT_TEST_HOOKS
    if (dyti_env_text(DYTI_ENV_TEST_FULL) != NULL) {
        return full;
    }
#endif
    (void)full;
    if (DYT_TEST_SLOW || getenv("DYT_TEST_INSTRUMENTED") != NULL) {
        return quick > 10 ? quick / 10 : 1;
    }
    return quick;
}

/* Descriptors of this process, to be compared: those of the look count too. */
static inline uint32_t dyt_open_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    uint32_t count = 0;

    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    (void)closedir(folder);
    return count;
}

/* Is this thread of ours on its way out?  One that was joined is listed until
 * the kernel is done with it, which says so in its flags. */
static inline bool dyt_thread_ends(const char *thread)
{
    const unsigned ending = 0x4; /* PF_EXITING */
    unsigned flags = ending;
    char path[300], line[512];
    FILE *file;

    snprintf(path, sizeof(path), "/proc/self/task/%.200s/stat", thread);
    file = fopen(path, "re");
    if (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        const char *rest = strrchr(line, ')'); /* behind its name */

        assert_non_null(rest);
        assert_int_equal(1,
                         sscanf(rest, ") %*c %*d %*d %*d %*d %*d %u", &flags));
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return (flags & ending) != 0;
}

/* Threads of this process, a sanitizer's among them. */
static inline uint32_t dyt_threads(void)
{
    DIR *folder = opendir("/proc/self/task");
    const struct dirent *entry;
    uint32_t count = 0;

    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        count += entry->d_name[0] != '.' && !dyt_thread_ends(entry->d_name);
    }
    (void)closedir(folder);
    return count;
}

#define DYT_TEST_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- statuses ---------------------------------------------------------- */

#define assert_ok(expr)                                                        \
    dyt_test_assert_status(DYT_OK, (expr), #expr, __FILE__, __LINE__)
#define assert_status(want, expr)                                              \
    dyt_test_assert_status((want), (expr), #expr, __FILE__, __LINE__)
/* The last failure's text holds `part`. */
#define assert_error_has(part)                                                 \
    dyt_test_assert_error_has((part), __FILE__, __LINE__)

static inline void dyt_test_assert_status(enum dyt_status want,
                                          enum dyt_status got, const char *expr,
                                          const char *file, int line)
{
    if (got == want) {
        return;
    }
    print_error("%s:%d: %s is %s, want %s\n", file, line, expr,
                dyt_status_name(got), dyt_status_name(want));
    if (got != DYT_OK) {
        print_error("    %s\n", dyti_error_text());
    }
    _fail(file, line);
}

static inline void dyt_test_assert_error_has(const char *part, const char *file,
                                             int line)
{
    if (strstr(dyti_error_text(), part) != NULL) {
        return;
    }
    print_error("%s:%d: the error does not say \"%s\" but:\n    %s\n", file,
                line, part, dyti_error_text());
    _fail(file, line);
}

/* ---- log lines --------------------------------------------------------- */

static bool dyt_test_complaints_expected;

/* This program provokes warnings or errors in the log on purpose. */
static inline void dyt_test_allow_complaints(void)
{
    dyt_test_complaints_expected = true;
}

/* ---- temporary folders ------------------------------------------------- */

#define DYT_TEST_DIRS 64

static char dyt_test_dir_path[DYT_TEST_DIRS][256];
static size_t dyt_test_dir_count;
static pid_t dyt_test_dir_owner;

static int dyt_test_remove_entry(const char *path, const struct stat *info,
                                 int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

/* Remove a folder and all in it; nothing there is fine. */
static inline void dyt_test_remove_tree(const char *path)
{
    nftw(path, dyt_test_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void dyt_test_remove_dirs(void)
{
    if (getpid() != dyt_test_dir_owner) {
        return; /* a forked child leaves its parent's folders alone */
    }
    for (size_t i = 0; i < dyt_test_dir_count; i++) {
        dyt_test_remove_tree(dyt_test_dir_path[i]);
    }
}

/* In memory, where there is room for what tests write, two at a time; in a
 * container that is often 64 MiB. */
static inline const char *dyt_test_root(void)
{
    static const char memory[] = "/dev/shm";
    const uint64_t enough = 1ull << 30;
    struct statvfs room;

    return access(memory, W_OK) == 0 && statvfs(memory, &room) == 0 &&
                   (uint64_t)room.f_bavail * room.f_frsize >= enough
               ? memory
               : "/tmp";
}

/* A fresh empty folder, removed when the program exits.  The path is valid
 * until then. */
static inline const char *dyt_test_dir(void)
{
    const char *root = dyt_test_root();
    char *path;

    if (dyt_test_dir_count == DYT_TEST_DIRS) {
        fail_msg("more than %d temporary folders", DYT_TEST_DIRS);
    }
    if (dyt_test_dir_owner == 0) {
        dyt_test_dir_owner = getpid();
        atexit(dyt_test_remove_dirs);
    }
    path = dyt_test_dir_path[dyt_test_dir_count];
    snprintf(path, sizeof(dyt_test_dir_path[0]), "%s/dyt_test.XXXXXX", root);
    if (mkdtemp(path) == NULL) {
        fail_msg("cannot make a folder in %s", root);
    }
    dyt_test_dir_count++;
    return path;
}

/* Write a whole file; the test fails if that is not possible. */
static inline void dyt_test_write(const char *path, const void *bytes,
                                  size_t size_bytes)
{
    FILE *file = fopen(path, "wb");

    if (file == NULL || fwrite(bytes, 1, size_bytes, file) != size_bytes ||
        fclose(file) != 0) {
        fail_msg("cannot write %s", path);
    }
}

/* Read a whole file, NUL-terminated; the caller frees it. */
static inline char *dyt_test_read(const char *path, size_t *out_bytes)
{
    FILE *file = fopen(path, "rb");
    char *bytes = NULL;
    size_t used = 0, got = 0;

    if (file == NULL) {
        fail_msg("cannot read %s", path);
    }
    do {
        char *bigger = realloc(bytes, used + 65536 + 1);

        if (bigger == NULL) {
            fail_msg("no memory to read %s", path);
        }
        bytes = bigger;
        got = fread(bytes + used, 1, 65536, file);
        used += got;
    } while (got == 65536);
    fclose(file);
    bytes[used] = '\0';
    if (out_bytes != NULL) {
        *out_bytes = used;
    }
    return bytes;
}

/* ---- main -------------------------------------------------------------- */

/* CMocka's result, and a failure where the log complained unexpectedly. */
static inline int dyt_test_verdict(int failed)
{
    uint64_t complaints = dyti_log_complaints();

    if (failed == 0 && complaints != 0 && !dyt_test_complaints_expected) {
        print_error("%" PRIu64 " unexpected warnings or errors were logged\n",
                    complaints);
        return 1;
    }
    return failed;
}

/* main() that runs `tests`, an array of struct CMUnitTest. */
#define DYT_TEST_MAIN(tests)                                                   \
    int main(void)                                                             \
    {                                                                          \
        return dyt_test_verdict(                                               \
            cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL));         \
    }

#endif /* DYT_TEST_H */
