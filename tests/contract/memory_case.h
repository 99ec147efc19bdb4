/* Memory of either kind as its contract's test speaks of it: bytes of a
 * segment, each kind of pages, and another process, which is this program
 * started anew. With SW_CUDA: memory of a device. */
#ifndef DYT_MEMORY_CASE_H
#define DYT_MEMORY_CASE_H

#include "dyt_test.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>

#ifdef SW_CUDA
#include "device/cuda/memory.h"
#include <cuda_runtime_api.h>
#define OPS dyti_memory_cuda
#else
#include "device/host/memory.h"
#define OPS dyti_memory_host
#endif
#ifdef DYT_GPUSIM
#include "gpusim/gpusim.h"
#endif

#define MIB ((uint64_t)1 << 20)

extern char **environ;

static const struct dyti_memory_ops *const ops = &OPS;

/* ---- bytes of a segment -------------------------------------------------- */

static inline void put(void *at, unsigned char value, uint64_t bytes)
{
#ifdef SW_CUDA
    assert_int_equal(cudaSuccess, cudaMemset(at, value, bytes));
    assert_int_equal(cudaSuccess, cudaDeviceSynchronize());
#else
    memset(at, value, bytes);
#endif
}

static inline unsigned char get(const void *at)
{
    unsigned char value = 0;

#ifdef SW_CUDA
    assert_int_equal(cudaSuccess,
                     cudaMemcpy(&value, at, 1, cudaMemcpyDeviceToHost));
#else
    value = *(const unsigned char *)at;
#endif
    return value;
}

static inline unsigned char *byte_of(const struct dyti_segment_mem *mem,
                                     uint64_t at)
{
    return (unsigned char *)mem->base + at;
}

/* Nothing of the device is left, and nothing happened that should not. */
static inline void end_clean(void)
{
#ifdef DYT_GPUSIM
    assert_int_equal(0, gpusim_leaks());
    assert_int_equal(0, gpusim_unexpected());
    assert_int_equal(0, gpusim_held_bytes());
#endif
}

typedef void (*check_fn)(enum dyti_page_kind pages);

/* In every page kind that this machine has, from the best one on. */
static inline void each(check_fn check)
{
    enum dyti_page_kind best = ops->probe(8 * MIB);

    assert_true(best < DYTI_PAGES_COUNT);
    assert_true(ops->has(best));
    for (int pages = (int)best; pages < DYTI_PAGES_COUNT; pages++) {
        if (ops->has((enum dyti_page_kind)pages)) {
            check((enum dyti_page_kind)pages);
            end_clean();
        }
    }
}

static inline int sized(enum dyti_page_kind pages, uint64_t bytes,
                        const uint64_t *part, uint32_t count)
{
    int handle = -1;

    assert_ok(ops->create("test", pages, &handle));
    assert_ok(ops->resize(handle, pages, bytes, part, count));
    return handle;
}

static inline int segment(enum dyti_page_kind pages, uint64_t bytes,
                          struct dyti_segment_mem *mem)
{
    int handle = sized(pages, bytes, NULL, 0);

    assert_ok(ops->map(handle, pages, bytes, mem));
    return handle;
}

static inline void let_go(struct dyti_segment_mem *mem)
{
    int handle = mem->handle;

    ops->unmap(mem);
    assert_null(mem->base);
    ops->unmap(mem); /* twice is fine */
    ops->close(handle);
}

/* ---- another process ----------------------------------------------------- */

/* It is told what to do letter by letter, and answers each with "." if that
 * went well. */
struct peer {
    pid_t pid;
    int to, from;
};

static inline void start_peer(struct peer *peer, int handle,
                              enum dyti_page_kind pages)
{
    int to[2], from[2];
    char word[3][16];
    char *argv[] = {"test", word[0], word[1], word[2], NULL};
    posix_spawn_file_actions_t actions;

    assert_int_equal(0, fcntl(handle, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(0, pipe2(to, O_CLOEXEC));
    assert_int_equal(0, pipe2(from, O_CLOEXEC));
    snprintf(word[0], sizeof(word[0]), "%d", handle);
    snprintf(word[1], sizeof(word[1]), "%d", (int)pages);
    snprintf(word[2], sizeof(word[2]), "%d", from[1]);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    /* onto itself: inherited */
    posix_spawn_file_actions_adddup2(&actions, from[1], from[1]);
    assert_int_equal(0, posix_spawn(&peer->pid, "/proc/self/exe", &actions,
                                    NULL, argv, environ));
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    peer->to = to[1];
    peer->from = from[0];
}

static inline void tell(const struct peer *peer, char order)
{
    char answer = 0;

    assert_int_equal(1, write(peer->to, &order, 1));
    assert_int_equal(1, read(peer->from, &answer, 1));
    assert_int_equal('.', answer);
}

static inline void end_peer(const struct peer *peer)
{
    int code = -1;

    close(peer->to);
    close(peer->from);
    assert_int_equal(peer->pid, waitpid(peer->pid, &code, 0));
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
}

static inline bool obey(char order, int handle, enum dyti_page_kind pages,
                        struct dyti_segment_mem *mem)
{
    uint64_t bytes = 0;

    switch (order) {
    case 's': /* size it: the memory is the peer's own */
        return ops->resize(handle, pages, 4 * MIB, NULL, 0) == DYT_OK;
    case 'm':
        return ops->map(handle, pages, 4 * MIB, mem) == DYT_OK;
    case 'w':
        put(byte_of(mem, 2 * MIB + 1), 42, 1);
        return true;
    case 'r':
        return ops->refresh(mem) == DYT_OK;
    case '2': /* half of it sleeps */
        return ops->touched(mem, 0, 4 * MIB, &bytes) == DYT_OK &&
               bytes == 2 * MIB;
    case 'd': /* is not its to drop */
        return ops->drop(mem, 0, 2 * MIB) == DYT_ERR_STATE &&
               ops->wake(mem, 0, 2 * MIB) == DYT_ERR_STATE;
    default:
        ops->unmap(mem);
        return order == 'u';
    }
}

static inline int be_peer(char **argv)
{
    int handle = (int)strtol(argv[1], NULL, 10);
    int answers = (int)strtol(argv[3], NULL, 10);
    enum dyti_page_kind pages = (enum dyti_page_kind)strtol(argv[2], NULL, 10);
    struct dyti_segment_mem mem = {0};
    char order;
    bool good = ops->use(NULL) == DYT_OK;

    while (good && read(0, &order, 1) == 1) {
        good = obey(order, handle, pages, &mem);
        if (!good) {
            print_error("peer at '%c': %s\n", order, dyti_error_text());
        }
        good = write(answers, good ? "." : "!", 1) == 1 && good;
    }
    ops->unmap(&mem);
    ops->close(handle);
#ifdef DYT_GPUSIM
    good = good && gpusim_unexpected() == 0 && gpusim_leaks() == 0;
#endif
    return good ? 0 : 1;
}

#endif /* DYT_MEMORY_CASE_H */
