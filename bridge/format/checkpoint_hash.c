/* Content hashes of files, block by block: several threads at once, through
 * the page cache, in little memory. */
#include "format/checkpoint_dir.h"

#include "format/file.h"

#include "base/hash.h"
#include "base/pool.h"

#include "base/banned.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

#define PIECE_BYTES   (256u << 10) /* stays in a core's cache */
#define ALONE_BYTES   (64u << 20)  /* up to here one thread does it */
#define THREADS_BYTES 4096u        /* between the scratch of two threads */

size_t dyti_block_count(uint64_t bytes, uint64_t block_bytes)
{
    return (size_t)(bytes / block_bytes + (bytes % block_bytes > 0));
}

struct reading {
    const struct dyti_block_hashes *file; /* [count] */
    size_t count;
    uint64_t block_bytes;
    unsigned char *scratch; /* [threads][PIECE_BYTES + THREADS_BYTES] */
    /* 0, or which file could not be read + 1, and why (0: too short). */
    _Atomic size_t failed;
    _Atomic int why;
};

static void fail(struct reading *r, size_t file, int why)
{
    size_t none = 0;

    if (atomic_compare_exchange_strong(&r->failed, &none, file + 1)) {
        atomic_store(&r->why, why);
    }
}

static void hash_block(struct reading *r, size_t file, size_t block,
                       unsigned char *scratch)
{
    const struct dyti_block_hashes *f = &r->file[file];
    uint64_t at = block * r->block_bytes;
    uint64_t end =
        f->bytes - at < r->block_bytes ? f->bytes : at + r->block_bytes;
    uint64_t salt = dyti_content_salt(0, 0), sum = 0;
    int fd = open(f->path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        fail(r, file, errno);
        return;
    }
    while (at < end) {
        size_t take = end - at < PIECE_BYTES ? (size_t)(end - at) : PIECE_BYTES;
        ssize_t got = dyti_pread_most(fd, scratch, take, at);

        if (got < 0 || (size_t)got < take) {
            fail(r, file, got < 0 ? errno : 0);
            break;
        }
        sum += dyti_content_bytes(salt, at / 8, scratch, take);
        at += take;
    }
    close(fd);
    f->hash[block] = sum;
}

/* Tiles are the blocks of all files, one file after the other. */
static void hash_tile(void *arg, size_t index, uint32_t thread)
{
    struct reading *r = arg;
    unsigned char *scratch =
        r->scratch + (size_t)thread * (PIECE_BYTES + THREADS_BYTES);

    if (atomic_load(&r->failed) != 0) {
        return; /* the rest does not matter any more */
    }
    for (size_t i = 0; i < r->count; i++) {
        size_t blocks = dyti_block_count(r->file[i].bytes, r->block_bytes);

        if (index < blocks) {
            hash_block(r, i, index, scratch);
            return;
        }
        index -= blocks;
    }
}

static uint32_t threads_for(uint64_t bytes, size_t blocks)
{
    long cores = bytes > ALONE_BYTES ? sysconf(_SC_NPROCESSORS_ONLN) : 1;
    size_t most =
        blocks < 16 ? blocks : 16; /* memory is not faster than that */

    return cores < 1 || most < 1  ? 1
           : (size_t)cores < most ? (uint32_t)cores
                                  : (uint32_t)most;
}

static enum dyt_status run(struct reading *r, size_t blocks, uint32_t threads)
{
    struct dyti_pool *pool = NULL;
    size_t failed;
    int why;

    r->scratch = malloc((size_t)threads * (PIECE_BYTES + THREADS_BYTES));
    if (r->scratch == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "reading by %u threads", threads);
    }
    if (threads > 1 && dyti_pool_create(threads, &pool) != DYT_OK) {
        pool = NULL; /* this thread alone then: slower, and as good */
    }
    dyti_pool_run(pool, blocks, hash_tile, r);
    dyti_pool_destroy(pool);
    free(r->scratch);
    failed = atomic_load(&r->failed);
    why = atomic_load(&r->why);
    if (failed == 0) {
        return DYT_OK;
    }
    if (why == EMFILE && threads > 1) { /* each of them has a file open */
        atomic_store(&r->failed, 0);
        atomic_store(&r->why, 0);
        return run(r, blocks, 1);
    }
    return DYTI_FAIL(DYT_ERR_IO, "%s: %s", r->file[failed - 1].path,
                     why != 0 ? strerror(why)
                              : "became shorter while it was read");
}

enum dyt_status dyti_block_hashes(const struct dyti_block_hashes *file,
                                  size_t count, uint64_t block_bytes)
{
    struct reading r = {
        .file = file, .count = count, .block_bytes = block_bytes};
    uint64_t bytes = 0;
    size_t blocks = 0;

    dyti_require(block_bytes > 0 && block_bytes % 8 == 0);
    for (size_t i = 0; i < count; i++) {
        bytes += file[i].bytes;
        blocks += dyti_block_count(file[i].bytes, block_bytes);
    }
    return run(&r, blocks, threads_for(bytes, blocks));
}
