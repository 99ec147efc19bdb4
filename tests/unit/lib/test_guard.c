/* Guarded kernels against plain ones: the same bytes and the same hashes,
 * whatever the boxes look like and whichever end can be truncated; and an error
 * where it was. */
#include "base/rng.h"
#include "device/host/host.h"
#include "dyt_test.h"
#include "lib/link_internal.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define ARENA (12u << 20)
#define PAGE  4096u

/* Two arenas of files that can be truncated, two that cannot, each pair with
 * equal contents. */
struct fixture {
    int fd[2];
    unsigned char *shared[2], *own[2]; /* source, destination */
    struct dyti_guard guard;
    struct dyti_hands guarded, plain;
};

static unsigned char *map_file(int fd)
{
    unsigned char *at =
        mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    assert_true(at != MAP_FAILED);
    return at;
}

static void setup(struct fixture *f, uint32_t threads)
{
    memset(f, 0, sizeof(*f));
    for (int i = 0; i < 2; i++) {
        f->fd[i] = memfd_create("arena", MFD_CLOEXEC);
        assert_return_code(ftruncate(f->fd[i], ARENA), 0);
        f->shared[i] = map_file(f->fd[i]);
        f->own[i] = malloc(ARENA);
        assert_non_null(f->own[i]);
        assert_ok(dyti_guard_add(&f->guard, f->shared[i], ARENA, f->fd[i], 0,
                                 NULL, f->fd[i]));
    }
    assert_int_equal(2, f->guard.count);
    assert_ok(dyti_hands_open(&f->guarded, threads, &f->guard));
    assert_ok(dyti_hands_open(&f->plain, 1, NULL));
}

static void teardown(struct fixture *f)
{
    dyti_hands_close(&f->guarded);
    dyti_hands_close(&f->plain);
    dyti_guard_fini(&f->guard);
    for (int i = 0; i < 2; i++) {
        munmap(f->shared[i], ARENA);
        close(f->fd[i]);
        free(f->own[i]);
    }
}

static uint64_t pick(uint64_t seed, uint32_t trial, uint32_t what, uint64_t n)
{
    return dyti_rng_u64(seed, trial, what, 0) % n;
}

/* Numbers that any float dtype has exactly. */
static void fill_arenas(struct fixture *f, uint64_t seed)
{
    for (size_t i = 0; i < ARENA / 2; i++) {
        uint64_t bits = dyti_rng_u64(seed, i / 4, 0, 0) >> (i % 4 * 16);
        uint16_t value = (uint16_t)(bits & 0xbfff); /* finite as bf16 and f32 */

        memcpy(f->own[0] + 2 * i, &value, sizeof(value));
    }
    memset(f->own[1], 0x11, ARENA);
    for (int i = 0; i < 2; i++) {
        memcpy(f->shared[i], f->own[i], ARENA);
    }
}

static const enum dyti_dtype dtypes[3] = {DYTI_F32, DYTI_BF16, DYTI_I64};

/* Strides of a box whose dimensions lie in any order, with gaps. */
static uint64_t lay(uint64_t seed, uint32_t trial, uint32_t what,
                    const int64_t *size, int64_t element, int64_t *stride)
{
    uint32_t left[DYTI_COPY_DIMS] = {0, 1, 2, 3};
    int64_t end = element;

    for (uint32_t n = DYTI_COPY_DIMS; n > 0; n--) {
        uint32_t at = (uint32_t)pick(seed, trial, what + n, n);
        uint32_t d = left[at];
        int64_t gap = pick(seed, trial, what + 10 + n, 3) == 0
                          ? (int64_t)pick(seed, trial, what + 20 + n, 9)
                          : 0;

        left[at] = left[n - 1];
        stride[d] = end + (size[d] > 1 ? gap * element : 0);
        end = stride[d] * size[d];
    }
    return (uint64_t)end;
}

/* false: it does not fit the arenas. */
static bool make_copy(uint64_t seed, uint32_t trial, struct dyti_copy *out)
{
    enum dyti_dtype from = dtypes[pick(seed, trial, 0, 3)], to = from;
    uint64_t span[2];

    *out = (struct dyti_copy){.src_dtype = (uint8_t)from};
    if (from != DYTI_I64 && pick(seed, trial, 1, 2) == 0) {
        to = from == DYTI_F32 ? DYTI_BF16 : DYTI_F32;
    }
    out->dst_dtype = (uint8_t)to;
    for (uint32_t d = 0; d < DYTI_COPY_DIMS; d++) {
        out->size[d] = pick(seed, trial, 2 + d, 3) == 0
                           ? 1
                           : 1 + (int64_t)pick(seed, trial, 8 + d, 14);
        if (trial % 16 == 0 && d % 2 == 1) { /* several tiles */
            out->size[d] = 200 + (int64_t)pick(seed, trial, 8 + d, 400);
        }
    }
    span[0] = lay(seed, trial, 20, out->size, dyti_dtype_bytes(from),
                  out->src_stride);
    span[1] =
        lay(seed, trial, 60, out->size, dyti_dtype_bytes(to), out->dst_stride);
    if (span[0] > ARENA - 64 || span[1] > ARENA - 64) {
        return false;
    }
    /* offsets, for whoever adds an arena */
    out->src =
        (void *)(uintptr_t)(pick(seed, trial, 90, (ARENA - span[0]) / 8) * 8);
    out->dst =
        (void *)(uintptr_t)(pick(seed, trial, 91, (ARENA - span[1]) / 8) * 8);
    return true;
}

static struct dyti_copy in_arenas(const struct dyti_copy *copy,
                                  unsigned char *src, unsigned char *dst)
{
    struct dyti_copy out = *copy;

    out.src = src + (uintptr_t)copy->src;
    out.dst = dst + (uintptr_t)copy->dst;
    return out;
}

static enum dyt_status run(const struct dyti_hands *hands,
                           const struct dyti_copy *copy, size_t count)
{
    return hands->kernels.ops->copy(hands->kernels.self, copy, count);
}

static void copies_are_those_of_the_plain_kernels(void **state)
{
    uint64_t rounds = dyt_test_rounds(400, 4000);
    uint32_t made = 0, large = 0;
    struct fixture f;

    (void)state;
    setup(&f, 3);
    fill_arenas(&f, 3);
    for (uint32_t trial = 0; trial < rounds; trial++) {
        uint32_t ends = 1 + trial % 3; /* which of them are guarded, as bits */
        struct dyti_copy copy, guarded[2], plain;
        unsigned char *dst;

        if (!make_copy(11, trial, &copy)) {
            continue;
        }
        dst = ends & 2u ? f.shared[1] : f.own[1];
        guarded[0] = in_arenas(&copy, ends & 1u ? f.shared[0] : f.own[0], dst);
        /* and one without a range between */
        guarded[1] = guarded[0];
        guarded[1].size[0] = 0;
        assert_ok(run(&f.guarded, guarded, 2));
        plain = in_arenas(&copy, f.own[0], ends & 2u ? f.own[1] : f.shared[1]);
        assert_ok(run(&f.plain, &plain, 1));
        if (memcmp(f.own[1], f.shared[1], ARENA) != 0) {
            fail_msg("trial %u", trial);
        }
        made++;
        large += copy.size[0] * copy.size[1] * copy.size[2] * copy.size[3] >
                 (1 << 17);
    }
    assert_true(made > rounds / 4 && large > rounds / 100);
    teardown(&f);
}

static void hashes_are_those_of_the_plain_kernels(void **state)
{
    struct fixture f;

    (void)state;
    setup(&f, 2);
    fill_arenas(&f, 4);
    for (uint32_t trial = 0; trial < dyt_test_rounds(200, 2000); trial++) {
        struct dyti_hash_box box[3];
        uint64_t got[3] = {1, 2, 3}, want[3] = {1, 2, 3};
        struct dyti_copy copy;

        if (!make_copy(12, trial, &copy)) {
            continue;
        }
        for (uint32_t i = 0; i < 3; i++) {
            box[i] =
                (struct dyti_hash_box){.data = f.own[0] + (uintptr_t)copy.src,
                                       .index = trial,
                                       .salt = 77 + i,
                                       .dtype = copy.src_dtype};
            memcpy(box[i].size, copy.size, sizeof(copy.size));
            memcpy(box[i].stride, copy.src_stride, sizeof(copy.src_stride));
            for (uint32_t d = 0; d < DYTI_COPY_DIMS; d++) {
                box[i].index_stride[d] = (int64_t)pick(13, trial, d, 1000);
            }
        }
        assert_ok(
            f.plain.kernels.ops->hash(f.plain.kernels.self, box, 3, want));
        box[1].data = f.shared[0] + (uintptr_t)copy.src;
        assert_ok(
            f.guarded.kernels.ops->hash(f.guarded.kernels.self, box, 3, got));
        assert_memory_equal(want, got, sizeof(want));
    }
    teardown(&f);
}

static void bytes_are_carried_and_filled(void **state)
{
    struct fixture f;

    (void)state;
    setup(&f, 1);
    fill_arenas(&f, 5);
    for (uint32_t trial = 0; trial < 100; trial++) {
        const struct dyti_kernels *k = &f.guarded.kernels;
        uint64_t bytes = pick(14, trial, 0, 200000);
        uint64_t from = pick(14, trial, 1, ARENA - bytes);
        uint64_t to = pick(14, trial, 2, ARENA - bytes);
        uint32_t ends = trial % 4;

        assert_ok(dyti_kernels_carry(
            k, (ends & 2u ? f.shared[1] : f.own[1]) + to,
            (ends & 1u ? f.shared[0] : f.own[0]) + from, bytes));
        memcpy((ends & 2u ? f.own[1] : f.shared[1]) + to, f.own[0] + from,
               bytes);
        assert_ok(dyti_kernels_fill(k, f.shared[1] + from, bytes / 2,
                                    (uint8_t)trial));
        memset(f.own[1] + from, (int)(uint8_t)trial, bytes / 2);
        assert_memory_equal(f.own[1], f.shared[1], ARENA);
    }
    teardown(&f);
}

/* ---- what is gone -------------------------------------------------------- */

/* `end` of the copy's files is shorter than it, by whole pages or within one.
 */
static void is_an_error(struct fixture *f, const struct dyti_copy *copy,
                        int end, off_t bytes)
{
    struct dyti_hash_box box = {.dtype = copy->src_dtype};
    uint64_t sum = 5;

    assert_return_code(ftruncate(f->fd[end], bytes), 0);
    assert_status(DYT_ERR_IO, run(&f->guarded, copy, 1));
    assert_error_has("truncated while its rows were published");
    memcpy(box.size, copy->size, sizeof(box.size));
    memcpy(box.stride, end == 0 ? copy->src_stride : copy->dst_stride,
           sizeof(box.stride));
    box.data = end == 0 ? copy->src : copy->dst;
    box.dtype = end == 0 ? copy->src_dtype : copy->dst_dtype;
    assert_status(DYT_ERR_IO, f->guarded.kernels.ops->hash(
                                  f->guarded.kernels.self, &box, 1, &sum));
    assert_int_equal(5, sum);
    assert_return_code(ftruncate(f->fd[end], ARENA), 0);
    assert_ok(run(&f->guarded, copy, 1));
}

static void a_truncated_file_is_an_error(void **state)
{
    struct fixture f;
    uint32_t made = 0;

    (void)state;
    setup(&f, 2);
    fill_arenas(&f, 6);
    for (uint32_t trial = 0; trial < 300; trial++) {
        struct dyti_copy copy, guarded;
        int end = (int)(trial % 2);
        int64_t last = 0;
        uint64_t lo;

        if (!make_copy(15, trial, &copy)) {
            continue;
        }
        guarded = in_arenas(&copy, f.shared[0], f.shared[1]);
        lo = (uint64_t)(uintptr_t)(end == 0 ? copy.src : copy.dst);
        for (uint32_t d = 0; d < DYTI_COPY_DIMS; d++) {
            last += (copy.size[d] - 1) *
                    (end == 0 ? copy.src_stride[d] : copy.dst_stride[d]);
        }
        is_an_error(&f, &guarded, end,
                    (off_t)(lo + pick(16, trial, 0, (uint64_t)last + 1)));
        is_an_error(&f, &guarded, end, (off_t)(lo + (uint64_t)last));
        is_an_error(&f, &guarded, end, 0);
        made++;
    }
    assert_true(made > 50);
    teardown(&f);
}

struct shrinker {
    int fd;
    atomic_bool ends;
};

static void *shrink(void *arg)
{
    struct shrinker *s = arg;

    while (!atomic_load(&s->ends)) {
        if (ftruncate(s->fd, 5 * PAGE) != 0 || ftruncate(s->fd, ARENA) != 0) {
            break;
        }
    }
    return NULL;
}

/* Truncated at any moment: an error, or not, and never a signal. */
static void a_file_that_shrinks_meanwhile_is_no_crash(void **state)
{
    uint32_t failed = 0;

    (void)state;
    for (int end = 0; end < 2; end++) {
        struct dyti_copy copy = {.size = {1, 1, 1, ARENA / 4},
                                 .src_stride = {0, 0, 0, 4},
                                 .dst_stride = {0, 0, 0, 4}};
        struct shrinker s;
        struct fixture f;
        pthread_t thread;

        setup(&f, 2);
        s.fd = f.fd[end];
        atomic_init(&s.ends, false);
        copy = in_arenas(&copy, f.shared[0], f.shared[1]);
        assert_int_equal(0, pthread_create(&thread, NULL, shrink, &s));
        for (uint32_t i = 0; i < dyt_test_rounds(60, 600); i++) {
            enum dyt_status st = run(&f.guarded, &copy, 1);

            assert_true(st == DYT_OK || st == DYT_ERR_IO);
            failed += st == DYT_ERR_IO;
        }
        atomic_store(&s.ends, true);
        pthread_join(thread, NULL);
        teardown(&f);
    }
    assert_true(failed > 0);
}

static void memory_that_was_unmapped_is_an_error(void **state)
{
    struct dyti_copy copy = {.size = {1, 1, 1, 1000},
                             .src_stride = {0, 0, 0, 4},
                             .dst_stride = {0, 0, 0, 4}};
    struct fixture f;

    (void)state;
    setup(&f, 1);
    copy = in_arenas(&copy, f.shared[0], f.shared[1]);
    assert_ok(run(&f.guarded, &copy, 1));
    assert_return_code(mprotect(f.shared[1], PAGE, PROT_READ), 0);
    assert_status(DYT_ERR_IO, run(&f.guarded, &copy, 1));
    assert_error_has("it was unmapped");
    munmap(f.shared[0], PAGE);
    if (!dyt_test_instrumented()) { /* valgrind calls the question a fault */
        assert_status(DYT_ERR_IO, run(&f.guarded, &copy, 1));
        assert_error_has("it was unmapped");
    }
    teardown(&f);
}

/* ---- ranges -------------------------------------------------------------- */

static void only_what_can_be_truncated_is_a_range(void **state)
{
    unsigned char memory[64] = {0};
    struct dyti_guard guard = {0};
    char path[4096];
    int sealed = -1, file;

    (void)state;
    snprintf(path, sizeof(path), "%s/file", dyt_test_dir());
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    assert_ok(dyti_memfd_open("ours", 100, &sealed));
    assert_int_equal(-1, ftruncate(sealed, 50));
    assert_ok(dyti_guard_add(&guard, memory, 64, sealed, 0, NULL, sealed));
    assert_int_equal(0, guard.count);
    assert_ok(dyti_guard_add(&guard, memory + 20, 10, file, 20, NULL, file));
    assert_ok(dyti_guard_add(&guard, memory + 40, 10, file, 40, NULL, file));
    assert_ok(dyti_guard_add(&guard, memory, 10, file, 0, NULL, file));
    assert_int_equal(3, guard.count);
    assert_null(dyti_guard_find(&guard, memory + 10));
    assert_ptr_equal(&guard.range[1], dyti_guard_find(&guard, memory + 29));
    assert_null(dyti_guard_find(&guard, memory + 50));
    /* what overlaps becomes one */
    assert_ok(dyti_guard_add(&guard, memory + 25, 20, file, 25, NULL, file));
    assert_int_equal(2, guard.count);
    assert_int_equal((uintptr_t)memory + 20, guard.range[1].lo);
    assert_int_equal((uintptr_t)memory + 50, guard.range[1].hi);
    assert_int_equal(20, guard.range[1].offset);
    assert_status(DYT_ERR_IO, dyti_guard_add(&guard, memory + 60, 4, 1 << 20, 0,
                                             NULL, 1 << 20));
    assert_int_equal(2, guard.count);
    dyti_guard_fini(&guard);
    close(sealed);
    close(file);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(copies_are_those_of_the_plain_kernels),
    cmocka_unit_test(hashes_are_those_of_the_plain_kernels),
    cmocka_unit_test(bytes_are_carried_and_filled),
    cmocka_unit_test(a_truncated_file_is_an_error),
    cmocka_unit_test(a_file_that_shrinks_meanwhile_is_no_crash),
    cmocka_unit_test(memory_that_was_unmapped_is_an_error),
    cmocka_unit_test(only_what_can_be_truncated_is_a_range),
};
DYT_TEST_MAIN(tests)
