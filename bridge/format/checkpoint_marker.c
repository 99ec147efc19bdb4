/* complete.json: which files make a checkpoint, and what is in them.
 *
 *   {"format": 1, "step": 20, "files": {"state.json": 2113, …},
 *    "block_bytes": 16777216, "blocks": {"state.json": "9c0f…", …},
 *    "self": "…"}
 *
 * blocks: of each file, the content hashes of its blocks, 16 digits each, one
 * after the other.  self: the fingerprint of all the rest of the marker.  One
 * of before there were hashes ends behind "files". */
#include "format/checkpoint_dir.h"

#include "format/json_file.h"

#include "base/hash.h"
#include "base/log.h"

#include "base/banned.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_BYTES     (16u << 20)
#define BLOCK_BYTES_MAX (1 << 30)
#define DIGITS          16u /* of a hash */

/* ---- hashes as text ------------------------------------------------------ */

/* "" for a file of no bytes; NULL: no memory. */
static char *hashes_text(const uint64_t *hash, size_t count)
{
    char *text = malloc(count * DIGITS + 1);

    for (size_t i = 0; text != NULL && i < count; i++) {
        snprintf(text + i * DIGITS, DIGITS + 1, "%016llx",
                 (unsigned long long)hash[i]);
    }
    if (text != NULL) {
        text[count * DIGITS] = '\0';
    }
    return text;
}

/* The first block whose hash is another; `count` if there is none. */
static size_t first_other(const char *text, const uint64_t *hash, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char want[DIGITS + 1];

        snprintf(want, sizeof(want), "%016llx", (unsigned long long)hash[i]);
        if (memcmp(want, text + i * DIGITS, DIGITS) != 0) {
            return i;
        }
    }
    return count;
}

/* Of everything but "self", in one form whatever the spaces. */
static enum dyt_status fingerprint(const char *file, const json_t *json,
                                   char out[DIGITS + 1])
{
    char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);

    if (text == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s", file);
    }
    snprintf(
        out, DIGITS + 1, "%016llx",
        (unsigned long long)dyti_fingerprint_text(DYTI_FINGERPRINT_SEED, text));
    free(text);
    return DYT_OK;
}

/* ---- files and their hashes ---------------------------------------------- */

/* Of a marker's "files", or those of `only`. */
struct files {
    struct dyti_block_hashes *of; /* [count] */
    const char **name;            /* [count], borrowed from the marker */
    size_t count;
    char (*path)[DYTI_PATH_BYTES]; /* [count] */
};

static void files_fini(struct files *f)
{
    for (size_t i = 0; f->of != NULL && i < f->count; i++) {
        free(f->of[i].hash);
    }
    free(f->of);
    free(f->name);
    free(f->path);
}

static enum dyt_status files_init(struct files *f, const char *dir,
                                  const json_t *sizes, const char *only,
                                  uint64_t block_bytes)
{
    size_t most = json_object_size(sizes);
    const char *name;
    json_t *bytes;

    *f = (struct files){.of = calloc(most, sizeof(*f->of)),
                        .name = calloc(most, sizeof(*f->name)),
                        .path = calloc(most, sizeof(*f->path))};
    if (f->of == NULL || f->name == NULL || f->path == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s: %zu files", dir, most);
    }
    json_object_foreach((json_t *)(uintptr_t)sizes, name, bytes)
    {
        struct dyti_block_hashes *h = &f->of[f->count];
        enum dyt_status st;

        if (only != NULL && strcmp(only, name) != 0) {
            continue;
        }
        st = dyti_path_join(f->path[f->count], dir, name);
        if (st != DYT_OK) {
            return st;
        }
        f->name[f->count] = name;
        h->path = f->path[f->count++];
        h->bytes = (uint64_t)json_integer_value(bytes);
        h->hash = calloc(dyti_block_count(h->bytes, block_bytes) + 1,
                         sizeof(*h->hash));
        if (h->hash == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "%s", h->path);
        }
    }
    return DYT_OK;
}

/* ---- writing ------------------------------------------------------------ */

/* Its bytes on disk, after they have been synced. */
static enum dyt_status sync_file(const char *path, uint64_t *out_bytes)
{
    struct stat info;
    enum dyt_status st = DYT_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: %s", path, strerror(errno));
    }
    if (fsync(fd) != 0 || fstat(fd, &info) != 0) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: fsync: %s", path, strerror(errno));
    } else {
        *out_bytes = (uint64_t)info.st_size;
    }
    close(fd);
    return st;
}

static enum dyt_status collect_sizes(const char *path, json_t *files)
{
    struct dyti_listing list = {NULL, 0, 0};
    char file[DYTI_PATH_BYTES];
    enum dyt_status st = dyti_checkpoint_list(path, &list);

    for (size_t i = 0; i < list.count && st == DYT_OK; i++) {
        uint64_t bytes = 0;

        if (strcmp(list.name[i], DYTI_CHECKPOINT_MARKER) == 0) {
            continue;
        }
        st = dyti_path_join(file, path, list.name[i]);
        if (st == DYT_OK) {
            st = sync_file(file, &bytes);
        }
        if (st == DYT_OK) {
            st = dyti_json_put(files, list.name[i],
                               json_integer((json_int_t)bytes));
        }
    }
    free(list.name);
    return st;
}

static enum dyt_status collect_hashes(const char *path, const json_t *sizes,
                                      json_t *blocks)
{
    struct files f;
    enum dyt_status st = files_init(&f, path, sizes, NULL, BLOCK_BYTES);

    if (st == DYT_OK) {
        st = dyti_block_hashes(f.of, f.count, BLOCK_BYTES);
    }
    for (size_t i = 0; i < f.count && st == DYT_OK; i++) {
        char *text = hashes_text(f.of[i].hash,
                                 dyti_block_count(f.of[i].bytes, BLOCK_BYTES));

        st = dyti_json_put(blocks, f.name[i],
                           text != NULL ? json_string(text) : NULL);
        free(text);
    }
    files_fini(&f);
    return st;
}

enum dyt_status dyti_checkpoint_mark(const char *path, uint64_t step)
{
    char file[DYTI_PATH_BYTES], self[DIGITS + 1];
    json_t *files = json_object(), *blocks = json_object();
    json_t *json = json_pack("{s:i,s:I,s:O,s:i,s:O}", "format", 1, "step",
                             (json_int_t)step, "files", files, "block_bytes",
                             (int)BLOCK_BYTES, "blocks", blocks);
    enum dyt_status st = dyti_path_join(file, path, DYTI_CHECKPOINT_MARKER);

    if (st == DYT_OK && json == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%s", file);
    }
    if (st == DYT_OK) {
        st = collect_sizes(path, files);
    }
    if (st == DYT_OK) {
        st = collect_hashes(path, files, blocks);
    }
    if (st == DYT_OK) {
        st = fingerprint(file, json, self);
    }
    if (st == DYT_OK) {
        st = dyti_json_put(json, "self", json_string(self));
    }
    if (st == DYT_OK) {
        st = dyti_json_save(file, json);
    }
    json_decref(json);
    json_decref(files);
    json_decref(blocks);
    return st;
}

/* ---- reading ------------------------------------------------------------ */

static enum dyt_status check_file(const char *path, const char *name,
                                  const json_t *bytes)
{
    char file[DYTI_PATH_BYTES];
    struct stat info;
    enum dyt_status st = dyti_path_join(file, path, name);

    if (st != DYT_OK) {
        return st;
    }
    if (strchr(name, '/') != NULL || !json_is_integer(bytes)) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: the marker is damaged", path);
    }
    if (stat(file, &info) != 0) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: missing from the checkpoint",
                         file);
    }
    if ((json_int_t)info.st_size != json_integer_value(bytes)) {
        return DYTI_FAIL(
            DYT_ERR_FORMAT, "%s: %lld bytes, the checkpoint says %lld", file,
            (long long)info.st_size, (long long)json_integer_value(bytes));
    }
    return DYT_OK;
}

/* The marker is what was written: it has hashes and its own one or neither. */
static enum dyt_status check_self(const struct dyti_json_at *at, json_t *json)
{
    const char *self = NULL;
    const json_t *blocks = NULL;
    char want[DIGITS + 1];
    enum dyt_status st = dyti_json_text_or(at, "self", NULL, &self);

    if (st == DYT_OK) {
        st = dyti_json_object_or_null(at, "blocks", &blocks);
    }
    if (st == DYT_OK && self == NULL && blocks == NULL) {
        return DYT_OK;
    }
    if (st == DYT_OK && self != NULL) {
        snprintf(want, sizeof(want), "%s", self);
        if (strlen(self) == DIGITS) {
            char have[DIGITS + 1];

            (void)json_object_del(json, "self");
            st = fingerprint(at->file, json, have);
            if (st == DYT_OK && strcmp(want, have) == 0) {
                return DYT_OK;
            }
        }
    }
    return st != DYT_OK
               ? st
               : DYTI_FAIL(DYT_ERR_FORMAT,
                           "%s: not what was written, the file is damaged; an "
                           "older checkpoint may be whole",
                           at->file);
}

/* The marker, and each file of it there in its length. */
static enum dyt_status open_marker(const char *path, json_t **out_json)
{
    char file[DYTI_PATH_BYTES];
    struct dyti_json_at at = {file, "", NULL};
    const json_t *files = NULL;
    json_t *json = NULL, *bytes;
    const char *name;
    int64_t format = 0;
    enum dyt_status st = dyti_path_join(file, path, DYTI_CHECKPOINT_MARKER);

    if (st == DYT_OK && !dyti_file_exists(file)) {
        st = DYTI_FAIL(DYT_ERR_FORMAT, "%s: not a whole checkpoint (no %s)",
                       path, DYTI_CHECKPOINT_MARKER);
    }
    if (st == DYT_OK) {
        st = dyti_json_load(file, &json);
    }
    at.object = json;
    if (st == DYT_OK) {
        st = dyti_json_int(&at, "format", 1, 1, &format);
    }
    if (st == DYT_OK) {
        st = check_self(&at, json);
    }
    if (st == DYT_OK) {
        st = dyti_json_object_or_null(&at, "files", &files);
    }
    if (st == DYT_OK && json_object_size(files) == 0) {
        st = DYTI_FAIL(DYT_ERR_FORMAT, "%s: files is missing", file);
    }
    if (st == DYT_OK) {
        json_object_foreach((json_t *)(uintptr_t)files, name, bytes)
        {
            st = check_file(path, name, bytes);
            if (st != DYT_OK) {
                break;
            }
        }
    }
    if (st != DYT_OK) {
        json_decref(json);
        return st;
    }
    *out_json = json;
    return DYT_OK;
}

enum dyt_status dyti_checkpoint_check(const char *path)
{
    json_t *json = NULL;
    enum dyt_status st = open_marker(path, &json);

    json_decref(json);
    return st;
}

static enum dyt_status compare(const char *dir, const struct files *f,
                               const json_t *blocks, uint64_t block_bytes)
{
    for (size_t i = 0; i < f->count; i++) {
        const struct dyti_block_hashes *h = &f->of[i];
        const char *text =
            json_string_value(json_object_get(blocks, f->name[i]));
        size_t count = dyti_block_count(h->bytes, block_bytes), at;
        uint64_t lo, hi;

        if (text == NULL || strlen(text) != count * DIGITS) {
            return DYTI_FAIL(DYT_ERR_FORMAT, "%s: the marker is damaged", dir);
        }
        at = first_other(text, h->hash, count);
        if (at == count) {
            continue;
        }
        lo = at * block_bytes;
        hi = h->bytes - lo < block_bytes ? h->bytes : lo + block_bytes;
        return DYTI_FAIL(
            DYT_ERR_FORMAT,
            "%s: bytes %llu to %llu are not what was written, the file is "
            "damaged; an older checkpoint may be whole",
            h->path, (unsigned long long)lo, (unsigned long long)hi);
    }
    return DYT_OK;
}

/* Content of all files of an open marker, or of `only`. */
static enum dyt_status verify(const char *path, const json_t *json,
                              const char *only)
{
    struct dyti_json_at at = {path, DYTI_CHECKPOINT_MARKER ": ", json};
    const json_t *blocks = NULL;
    int64_t block_bytes = 0;
    struct files f;
    enum dyt_status st = dyti_json_object_or_null(&at, "blocks", &blocks);

    if (st == DYT_OK && blocks == NULL) {
        DYTI_LOG(DYTI_LOG_WARN, "checkpoint",
                 "%s was written without content hashes: what is in its files "
                 "is not checked",
                 path);
        return DYT_OK;
    }
    if (st == DYT_OK) {
        st =
            dyti_json_int(&at, "block_bytes", 8, BLOCK_BYTES_MAX, &block_bytes);
    }
    if (st == DYT_OK && block_bytes % 8 != 0) {
        st = DYTI_FAIL(DYT_ERR_FORMAT, "%s: the marker is damaged", path);
    }
    if (st != DYT_OK) {
        return st;
    }
    st = files_init(&f, path, json_object_get(json, "files"), only,
                    (uint64_t)block_bytes);
    if (st == DYT_OK) {
        st = dyti_block_hashes(f.of, f.count, (uint64_t)block_bytes);
    }
    if (st == DYT_OK) {
        st = compare(path, &f, blocks, (uint64_t)block_bytes);
    }
    files_fini(&f);
    return st;
}

static enum dyt_status verify_dir(const char *path, const char *only)
{
    json_t *json = NULL;
    enum dyt_status st = open_marker(path, &json);

    if (st == DYT_OK) {
        st = verify(path, json, only);
    }
    json_decref(json);
    return st;
}

enum dyt_status dyti_checkpoint_verify(const char *path)
{
    return verify_dir(path, NULL);
}

enum dyt_status dyti_checkpoint_verify_model(const char *dir)
{
    char file[DYTI_PATH_BYTES];
    enum dyt_status st = dyti_path_join(file, dir, DYTI_CHECKPOINT_MARKER);

    return st == DYT_OK && dyti_file_exists(file) ? verify_dir(dir, NULL) : st;
}

enum dyt_status dyti_checkpoint_verify_file(const char *path, const char *name)
{
    return verify_dir(path, name);
}
