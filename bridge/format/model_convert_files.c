/* A conversion on disk: DST.partial, its files, and how it becomes DST. */
#include "format/model_convert_internal.h"

#include "base/banned.h"
#include "base/hash.h"
#include "format/checkpoint_dir.h"
#include "format/convert.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TICKET       "convert.json" /* what is being converted, and the lock */
#define TICKET_BYTES 16384u

/* ---- DST.partial --------------------------------------------------------- */

static bool is_there(const char *path)
{
    struct stat info;

    return lstat(path, &info) == 0;
}

/* Fold a file's size and time of change. */
static uint64_t fold_file(uint64_t state, const char *dir, const char *name)
{
    char path[DYTI_PATH_BYTES];
    struct stat info;

    if (dyti_path_join(path, dir, name) != DYT_OK || stat(path, &info) != 0) {
        return dyti_fingerprint_u64(state, 0);
    }
    state = dyti_fingerprint_u64(state, (uint64_t)info.st_size);
    state = dyti_fingerprint_u64(state, (uint64_t)info.st_mtim.tv_sec);
    return dyti_fingerprint_u64(state, (uint64_t)info.st_mtim.tv_nsec);
}

/* What makes two conversions the same: source, model, layout, kinds. */
static void ticket_text(const struct dyti_conversion *c, char *buf)
{
    static const char *const name[] = {"config.json",
                                       "model.safetensors",
                                       "manifest.json",
                                       "rank-00000.safetensors",
                                       "state.json",
                                       "exp_avg.safetensors",
                                       "model.safetensors.index.json"};
    uint64_t state = DYTI_FINGERPRINT_SEED;

    state = dyti_fingerprint_text(state, c->desc->from);
    for (size_t i = 0; i < sizeof(name) / sizeof(name[0]); i++) {
        state = fold_file(state, c->desc->from, name[i]);
    }
    snprintf(buf, TICKET_BYTES,
             "{\"source\": \"%016llx\", \"model\": \"%016llx\", \"layout\": "
             "\"%016llx\", \"form\": %d, \"kinds\": %u}\n",
             (unsigned long long)state,
             (unsigned long long)c->layout->model->fingerprint,
             (unsigned long long)c->layout->fingerprint, (int)c->desc->form,
             c->kinds);
}

/* Whether the open ticket says what this conversion is. */
static bool same_ticket(int fd, const char *text)
{
    char old[TICKET_BYTES];
    ssize_t got = dyti_pread_most(fd, old, sizeof(old) - 1, 0);

    if (got < 0) {
        return false;
    }
    old[got] = '\0';
    return strcmp(old, text) == 0;
}

/* Everything in the directory but the ticket. */
static enum dyt_status clear(struct dyti_conversion *c, const char *text,
                             const char *path)
{
    enum dyt_status st = dyti_checkpoint_remove(c->partial);

    /* The ticket's lock went with its name: take a new one. */
    (void)close(c->lock);
    c->lock = -1;
    st = st != DYT_OK ? st : dyti_dir_make(c->partial);
    if (st != DYT_OK) {
        return st;
    }
    c->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (c->lock < 0 || flock(c->lock, LOCK_EX | LOCK_NB) != 0) {
        return DYTI_FAIL(DYT_ERR_BUSY, "%s: %s", path, strerror(errno));
    }
    st = dyti_pwrite_all(c->lock, text, strlen(text), 0, path);
    if (st == DYT_OK && fsync(c->lock) != 0) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: %s", path, strerror(errno));
    }
    return st;
}

enum dyt_status dyti_convert_begin(struct dyti_conversion *c)
{
    char path[DYTI_PATH_BYTES], text[TICKET_BYTES], to[DYTI_PATH_BYTES];
    size_t length = strlen(c->desc->to);
    enum dyt_status st;

    while (length > 1 && c->desc->to[length - 1] == '/') {
        length--;
    }
    snprintf(to, sizeof(to), "%.*s", (int)length, c->desc->to);
    if (is_there(to)) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "%s is there already: remove it, or choose another "
                         "name",
                         to);
    }
    if (length + sizeof(".partial") > sizeof(c->partial)) {
        return DYTI_FAIL(DYT_ERR_INVALID, "%.60s…: the path is too long", to);
    }
    snprintf(c->partial, sizeof(c->partial), "%.4000s.partial", to);
    ticket_text(c, text);
    st = dyti_dirs_make(c->partial);
    st = st != DYT_OK ? st : dyti_path_join(path, c->partial, TICKET);
    if (st != DYT_OK) {
        return st;
    }
    c->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (c->lock < 0) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: %s", path, strerror(errno));
    }
    if (flock(c->lock, LOCK_EX | LOCK_NB) != 0) {
        return DYTI_FAIL(DYT_ERR_BUSY, "another conversion into %s runs", to);
    }
    return same_ticket(c->lock, text) ? DYT_OK : clear(c, text, path);
}

void dyti_convert_give_up(struct dyti_conversion *c)
{
    char path[DYTI_PATH_BYTES];

    if (dyti_path_join(path, c->partial, TICKET) == DYT_OK) {
        (void)unlink(path);
    }
}

/* ---- one file ------------------------------------------------------------ */

/* Whether it was finished before: its size and its header are right. */
static bool is_done(const char *path, const struct dyti_shards_file *f)
{
    struct stat info;
    char *header;
    bool same = false;
    int fd;

    if (stat(path, &info) != 0 ||
        (uint64_t)info.st_size != f->plan.file_bytes) {
        return false;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC);
    header = malloc(f->plan.header_bytes);
    if (fd >= 0 && header != NULL) {
        same = dyti_pread_most(fd, header, f->plan.header_bytes, 0) ==
                   (ssize_t)f->plan.header_bytes &&
               memcmp(header, f->plan.header, f->plan.header_bytes) == 0;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    free(header);
    return same;
}

/* Tiles of a shard straight into the mapped file; pages that were written are
 * let go of. */
static enum dyt_status write_shard(struct dyti_conversion *c,
                                   const struct dyti_shard *shard,
                                   const struct dyti_shards_place *place,
                                   unsigned char *at)
{
    enum dyti_dtype dtype = (enum dyti_dtype)shard->dtype;
    uint64_t width = dyti_dtype_bytes(dtype);
    struct dyt_box tile = {.ndim = 0};
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    while (
        dyti_convert_next_tile(&shard->box, c->buffer_bytes / width, &tile)) {
        unsigned char *dst = at, *end = at;
        uint64_t elements = 1;
        uintptr_t lo, hi;
        enum dyt_status st;

        for (uint32_t d = 0; d < tile.ndim; d++) {
            dst += (tile.lo[d] - shard->box.lo[d]) * place->stride[d];
            end += (tile.hi[d] - 1 - shard->box.lo[d]) * place->stride[d];
            elements *= (uint64_t)(tile.hi[d] - tile.lo[d]);
        }
        st = dyti_model_source_read(c->source, (enum dyti_kind)shard->kind,
                                    shard->tensor, &tile, dtype, dst,
                                    place->stride);
        if (st != DYT_OK) {
            return st;
        }
        lo = (uintptr_t)dst / page * page;
        hi = ((uintptr_t)end + width + page - 1) / page * page;
        (void)madvise((void *)lo, hi - lo, MADV_DONTNEED);
        c->report.bytes += elements * width;
        dyti_convert_tell(c, "writing", elements * width);
    }
    return DYT_OK;
}

static enum dyt_status fill(struct dyti_conversion *c,
                            const struct dyti_shards_file *f, const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    unsigned char *map;
    enum dyt_status st = DYT_OK;

    if (fd < 0) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: %s", path, strerror(errno));
    }
    map = mmap(NULL, f->plan.file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
               0);
    if (map == MAP_FAILED) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: %s", path, strerror(errno));
        (void)close(fd);
        return st;
    }
    for (uint32_t i = 0; i < f->place_count && st == DYT_OK; i++) {
        const struct dyti_shards_place *p = &f->place[i];

        st = write_shard(c, &f->view.shard[p->shard], p,
                         map + f->plan.offset[p->entry] + p->offset);
    }
    (void)munmap(map, f->plan.file_bytes);
    if (st == DYT_OK && fsync(fd) != 0) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: %s", path, strerror(errno));
    }
    (void)close(fd);
    return st;
}

/* Bytes of the elements in a file: what is padding is not written. */
static uint64_t element_bytes(const struct dyti_shards_file *f)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < f->place_count; i++) {
        const struct dyti_shard *s = &f->view.shard[f->place[i].shard];
        uint64_t count = dyti_dtype_bytes((enum dyti_dtype)s->dtype);

        for (uint32_t d = 0; d < s->box.ndim; d++) {
            count *= (uint64_t)(s->box.hi[d] - s->box.lo[d]);
        }
        bytes += count;
    }
    return bytes;
}

enum dyt_status dyti_convert_count_files(struct dyti_conversion *c)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < c->file_count && st == DYT_OK; i++) {
        struct dyti_shards_file f = {.place_count = 0};

        st = dyti_shards_file_build(c->layout, c->file[i].rank,
                                    c->file[i].kinds, c->file[i].plain, &f);
        c->total += st == DYT_OK ? element_bytes(&f) : 0;
        dyti_shards_file_fini(&f);
    }
    return st;
}

enum dyt_status dyti_convert_write_file(struct dyti_conversion *c,
                                        const struct dyti_convert_file *file)
{
    char path[DYTI_PATH_BYTES], name[64], tmp[DYTI_PATH_BYTES];
    struct dyti_shards_file f = {.place_count = 0};
    int fd = -1;
    enum dyt_status st = dyti_shards_file_build(c->layout, file->rank,
                                                file->kinds, file->plain, &f);

    if (st != DYT_OK) {
        return st;
    }
    snprintf(name, sizeof(name), "%s.tmp", file->name);
    st = dyti_path_join(path, c->partial, file->name);
    st = st != DYT_OK ? st : dyti_path_join(tmp, c->partial, name);
    if (st == DYT_OK && is_done(path, &f)) {
        c->report.taken++;
        dyti_convert_tell(c, "writing", element_bytes(&f));
        goto out;
    }
    st = st != DYT_OK ? st : dyti_safetensors_create(tmp, &f.plan, &fd);
    if (st == DYT_OK) {
        (void)close(fd);
        st = fill(c, &f, tmp);
    }
    if (st == DYT_OK && rename(tmp, path) != 0) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: %s", path, strerror(errno));
    }
    st = st != DYT_OK ? st : dyti_dir_sync(c->partial);
out:
    dyti_shards_file_fini(&f);
    return st;
}

/* ---- the rest ------------------------------------------------------------ */

enum dyt_status dyti_convert_copy_rest(struct dyti_conversion *c)
{
    const char *from = c->desc->from;
    bool copied = false;
    enum dyt_status st =
        dyti_checkpoint_copy(from, c->partial, "config.json", &copied);

    if (st == DYT_OK && !copied) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s/config.json is gone", from);
    }
    for (size_t i = 0; st == DYT_OK && dyti_checkpoint_side_file(i) != NULL;
         i++) {
        st = dyti_checkpoint_copy(from, c->partial,
                                  dyti_checkpoint_side_file(i), &copied);
    }
    /* What a checkpoint knows beside its tensors goes along. */
    copied = false;
    if (st == DYT_OK && c->desc->form != DYTI_CONVERT_HF) {
        st = dyti_checkpoint_copy(from, c->partial, DYTI_CHECKPOINT_STATE,
                                  &copied);
    }
    if (st == DYT_OK && !copied && c->desc->form == DYTI_CONVERT_CHECKPOINT) {
        st = DYTI_FAIL(DYT_ERR_STATE,
                       "%s has no %s: only what was a checkpoint becomes one",
                       from, DYTI_CHECKPOINT_STATE);
    }
    return st;
}

static enum dyt_status mark_checkpoint(const struct dyti_conversion *c)
{
    struct dyti_checkpoint_state state;
    enum dyt_status st = dyti_checkpoint_read_state(c->partial, &state);

    if (st == DYT_OK) {
        st = dyti_checkpoint_mark(c->partial, state.step);
        dyti_checkpoint_state_fini(&state);
    }
    return st;
}

enum dyt_status dyti_convert_publish(struct dyti_conversion *c)
{
    char path[DYTI_PATH_BYTES], to[DYTI_PATH_BYTES];
    size_t length = strlen(c->partial) - strlen(".partial");
    char *slash;
    enum dyt_status st = dyti_path_join(path, c->partial, TICKET);

    snprintf(to, sizeof(to), "%.*s", (int)length, c->partial);
    if (st == DYT_OK && unlink(path) != 0) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: %s", path, strerror(errno));
    }
    if (st == DYT_OK && c->desc->form == DYTI_CONVERT_CHECKPOINT) {
        st = mark_checkpoint(c);
    }
    st = st != DYT_OK ? st : dyti_dir_sync(c->partial);
    if (st == DYT_OK && rename(c->partial, to) != 0) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: %s", to, strerror(errno));
    }
    slash = strrchr(to, '/');
    if (slash != NULL) {
        slash[slash == to ? 1 : 0] = '\0';
    }
    return st != DYT_OK ? st : dyti_dir_sync(slash == NULL ? "." : to);
}
