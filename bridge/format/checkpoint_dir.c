/* What is whole, what is left over, what may go. */
#include "format/checkpoint_dir.h"

#include "format/json_file.h"

#include "base/array.h"
#include "base/log.h"

#include "base/banned.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_BYTES (1u << 20)

static const char *const side_files[] = {
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
};

const char *dyti_checkpoint_side_file(size_t index)
{
    return index < sizeof(side_files) / sizeof(side_files[0])
               ? side_files[index]
               : NULL;
}

/* ---- names -------------------------------------------------------------- */

void dyti_checkpoint_name(uint64_t step, bool temporary, char buf[64])
{
    snprintf(buf, 64, "%sstep-%08llu", temporary ? "tmp-" : "",
             (unsigned long long)step);
}

bool dyti_checkpoint_name_parse(const char *name, bool temporary,
                                uint64_t *out_step)
{
    const char *digits = name + (temporary ? 4 : 0);
    char again[64], *end;
    unsigned long long step;

    if ((temporary && strncmp(name, "tmp-", 4) != 0) ||
        strncmp(digits, "step-", 5) != 0) {
        return false;
    }
    errno = 0;
    step = strtoull(digits + 5, &end, 10);
    dyti_checkpoint_name(step, temporary, again);
    if (errno != 0 || *end != '\0' || strcmp(again, name) != 0) {
        return false;
    }
    *out_step = step;
    return true;
}

/* ---- listing ------------------------------------------------------------ */

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

enum dyt_status dyti_checkpoint_list(const char *path,
                                     struct dyti_listing *list)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    enum dyt_status st = DYT_OK;

    if (dir == NULL && errno == ENOENT) {
        return DYT_OK;
    }
    if (dir == NULL) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: %s", path, strerror(errno));
    }
    while (st == DYT_OK && (entry = readdir(dir)) != NULL) {
        if (is_dots(entry->d_name)) {
            continue;
        }
        st = DYTI_GROW(list->name, list->cap, list->count + 1);
        if (st == DYT_OK) {
            snprintf(list->name[list->count++], sizeof(list->name[0]), "%s",
                     entry->d_name);
        }
    }
    closedir(dir);
    return st;
}

/* ---- removal ------------------------------------------------------------ */

enum dyt_status dyti_checkpoint_remove(const char *path)
{
    struct dyti_listing list = {NULL, 0, 0};
    char file[DYTI_PATH_BYTES];
    enum dyt_status st;

    /* The marker goes first, so that a half removed one is never whole. */
    st = dyti_path_join(file, path, DYTI_CHECKPOINT_MARKER);
    if (st == DYT_OK) {
        unlink(file);
        st = dyti_checkpoint_list(path, &list);
    }
    for (size_t i = 0; i < list.count && st == DYT_OK; i++) {
        st = dyti_path_join(file, path, list.name[i]);
        if (st == DYT_OK && unlink(file) != 0 && errno != ENOENT) {
            st = DYTI_FAIL(DYT_ERR_IO, "%s: %s", file, strerror(errno));
        }
    }
    if (st == DYT_OK && rmdir(path) != 0 && errno != ENOENT) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: %s", path, strerror(errno));
    }
    free(list.name);
    return st;
}

enum dyt_status dyti_checkpoint_clean(const char *root)
{
    struct dyti_listing list = {NULL, 0, 0};
    char path[DYTI_PATH_BYTES];
    uint64_t step;
    enum dyt_status st = dyti_checkpoint_list(root, &list);

    for (size_t i = 0; i < list.count && st == DYT_OK; i++) {
        if (!dyti_checkpoint_name_parse(list.name[i], true, &step)) {
            continue;
        }
        st = dyti_path_join(path, root, list.name[i]);
        if (st == DYT_OK) {
            st = dyti_checkpoint_remove(path);
        }
    }
    free(list.name);
    return st;
}

/* ---- whole ones --------------------------------------------------------- */

struct whole {
    uint64_t step;
    double score; /* -INFINITY = not measured */
    bool keep;
};

static int newest_first(const void *a, const void *b)
{
    const struct whole *x = a, *y = b;

    return (x->step < y->step) - (x->step > y->step);
}

static enum dyt_status path_of(const char *root, uint64_t step,
                               char path[DYTI_PATH_BYTES])
{
    char name[64];

    dyti_checkpoint_name(step, false, name);
    return dyti_path_join(path, root, name);
}

/* Steps that have a directory with our name, newest first, whole or not. */
static enum dyt_status list_steps(const char *root, struct whole **out,
                                  size_t *out_count)
{
    struct dyti_listing list = {NULL, 0, 0};
    struct whole *whole = NULL;
    size_t count = 0;
    uint64_t step;
    enum dyt_status st = dyti_checkpoint_list(root, &list);

    if (st == DYT_OK) {
        whole = calloc(list.count + 1, sizeof(*whole));
        if (whole == NULL) {
            st = DYTI_FAIL(DYT_ERR_NOMEM, "%s: %zu names", root, list.count);
        }
    }
    for (size_t i = 0; i < list.count && st == DYT_OK; i++) {
        if (dyti_checkpoint_name_parse(list.name[i], false, &step)) {
            whole[count++].step = step;
        }
    }
    free(list.name);
    if (st != DYT_OK) {
        return st;
    }
    qsort(whole, count, sizeof(*whole), newest_first);
    *out = whole;
    *out_count = count;
    return DYT_OK;
}

static enum dyt_status find_latest(const char *root,
                                   enum dyt_status (*check)(const char *path),
                                   char out_path[DYTI_PATH_BYTES],
                                   bool *out_found)
{
    char path[DYTI_PATH_BYTES];
    struct whole *whole = NULL;
    size_t count = 0;
    bool found = false;
    enum dyt_status st = list_steps(root, &whole, &count);

    for (size_t i = 0; i < count && st == DYT_OK && !found; i++) {
        st = path_of(root, whole[i].step, path);
        found = st == DYT_OK && check(path) == DYT_OK;
        if (st == DYT_OK && !found) {
            DYTI_LOG(DYTI_LOG_WARN, "checkpoint", "passed over, not whole: %s",
                     dyti_error_message());
        }
    }
    free(whole);
    if (st != DYT_OK) {
        return st;
    }
    if (found) {
        memcpy(out_path, path, sizeof(path));
    }
    *out_found = found;
    return DYT_OK;
}

enum dyt_status dyti_checkpoint_latest(const char *root,
                                       char out_path[DYTI_PATH_BYTES],
                                       bool *out_found)
{
    return find_latest(root, dyti_checkpoint_check, out_path, out_found);
}

enum dyt_status dyti_checkpoint_latest_sound(const char *root,
                                             char out_path[DYTI_PATH_BYTES],
                                             bool *out_found)
{
    return find_latest(root, dyti_checkpoint_verify, out_path, out_found);
}

static void keep_the_best(struct whole *whole, size_t count, uint32_t keep)
{
    for (uint32_t k = 0; k < keep; k++) {
        struct whole *best = NULL;

        for (size_t i = 0; i < count; i++) { /* newest first: ties go to it */
            if (!whole[i].keep && whole[i].score > -INFINITY &&
                (best == NULL || whole[i].score > best->score)) {
                best = &whole[i];
            }
        }
        if (best == NULL) {
            return;
        }
        best->keep = true;
    }
}

/* Only a whole one counts towards keep_last; what is not whole goes. */
static enum dyt_status choose(const char *root, struct whole *whole,
                              size_t count, uint32_t keep_last,
                              uint32_t keep_best)
{
    char path[DYTI_PATH_BYTES];
    uint32_t last = 0;

    for (size_t i = 0; i < count; i++) {
        struct dyti_checkpoint_state state = {0};
        enum dyt_status st = path_of(root, whole[i].step, path);

        if (st != DYT_OK) {
            return st;
        }
        whole[i].score = -INFINITY;
        if (dyti_checkpoint_check(path) != DYT_OK ||
            dyti_checkpoint_read_state(path, &state) != DYT_OK) {
            continue;
        }
        whole[i].keep = last++ < keep_last;
        if (!isnan(state.score)) {
            whole[i].score = state.score;
        }
        dyti_checkpoint_state_fini(&state);
    }
    keep_the_best(whole, count, keep_best);
    return DYT_OK;
}

enum dyt_status dyti_checkpoint_prune(const char *root, uint64_t step,
                                      uint32_t keep_last, uint32_t keep_best)
{
    char path[DYTI_PATH_BYTES];
    struct whole *whole = NULL;
    size_t count = 0;
    enum dyt_status st = list_steps(root, &whole, &count);

    if (st == DYT_OK) {
        st = choose(root, whole, count, keep_last < 1 ? 1 : keep_last,
                    keep_best);
    }
    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        if (whole[i].keep || whole[i].step == step) {
            continue;
        }
        st = path_of(root, whole[i].step, path);
        if (st == DYT_OK) {
            st = dyti_checkpoint_remove(path);
        }
    }
    free(whole);
    return st;
}

/* ---- copies ------------------------------------------------------------- */

static enum dyt_status copy_bytes(int from, int to, const char *what)
{
    char *buffer = malloc(COPY_BYTES);
    uint64_t at = 0;
    enum dyt_status st = DYT_OK;

    if (buffer == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s", what);
    }
    while (st == DYT_OK) {
        ssize_t got = dyti_pread_most(from, buffer, COPY_BYTES, at);

        if (got < 0) {
            st = DYTI_FAIL(DYT_ERR_IO, "%s: %s", what, strerror(errno));
        }
        if (got <= 0) {
            break;
        }
        st = dyti_pwrite_all(to, buffer, (size_t)got, at, what);
        at += (uint64_t)got;
    }
    if (st == DYT_OK && fsync(to) != 0) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: fsync: %s", what, strerror(errno));
    }
    free(buffer);
    return st;
}

enum dyt_status dyti_checkpoint_copy(const char *from_dir, const char *to_dir,
                                     const char *name, bool *out_copied)
{
    char source[DYTI_PATH_BYTES], target[DYTI_PATH_BYTES];
    int from = -1, to = -1;
    enum dyt_status st = dyti_path_join(source, from_dir, name);

    if (st == DYT_OK) {
        st = dyti_path_join(target, to_dir, name);
    }
    if (st != DYT_OK) {
        return st;
    }
    from = open(source, O_RDONLY | O_CLOEXEC);
    if (from < 0 && errno == ENOENT) {
        *out_copied = false;
        return DYT_OK;
    }
    if (from < 0) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: %s", source, strerror(errno));
    }
    to = open(target, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (to < 0) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: %s", target, strerror(errno));
    } else {
        st = copy_bytes(from, to, target);
        close(to);
    }
    close(from);
    if (st == DYT_OK) {
        *out_copied = true;
    }
    return st;
}
