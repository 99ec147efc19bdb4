/* Whole small files in and out: every read and write loops over short counts
 * and signals, and a write is seen whole or not at all. */
#include "format/file.h"

#include "base/errno_text.h"

#include "base/banned.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum dyt_status dyti_path_join(char buf[DYTI_PATH_BYTES], const char *dir,
                               const char *name)
{
    int need = snprintf(buf, DYTI_PATH_BYTES, "%s/%s", dir, name);

    if (need < 0 || (size_t)need >= DYTI_PATH_BYTES) {
        return DYTI_FAIL(DYT_ERR_INVALID, "path too long: %.200s/%.200s", dir,
                         name);
    }
    return DYT_OK;
}

bool dyti_file_exists(const char *path)
{
    return access(path, R_OK) == 0;
}

ssize_t dyti_pread_most(int fd, void *bytes, size_t size_bytes, uint64_t offset)
{
    char *to = bytes;
    size_t done = 0;

    while (done < size_bytes) {
        ssize_t got =
            pread(fd, to + done, size_bytes - done, (off_t)(offset + done));

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return -1;
        }
        if (got == 0) {
            break;
        }
        done += (size_t)got;
    }
    return (ssize_t)done;
}

static enum dyt_status read_all(int fd, const char *path, char *to,
                                size_t size_bytes)
{
    ssize_t got = dyti_pread_most(fd, to, size_bytes, 0);

    if (got < 0) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: %s", path, strerror(errno));
    }
    return (size_t)got == size_bytes
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_IO, "%s: became shorter while it was read",
                           path);
}

/* A pipe or device has no size to trust; only regular files are read whole. */
static enum dyt_status regular_size(int fd, const char *path,
                                    uint64_t most_bytes, size_t *out_bytes)
{
    struct stat info;

    if (fstat(fd, &info) != 0) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: %s", path, strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: not a regular file", path);
    }
    if ((uint64_t)info.st_size > most_bytes) {
        return DYTI_FAIL(
            DYT_ERR_FORMAT, "%s: %llu bytes, at most %llu expected", path,
            (unsigned long long)info.st_size, (unsigned long long)most_bytes);
    }
    *out_bytes = (size_t)info.st_size;
    return DYT_OK;
}

enum dyt_status dyti_file_read(const char *path, uint64_t most_bytes,
                               char **out_text, size_t *out_bytes)
{
    enum dyt_status st;
    char *text = NULL;
    size_t size_bytes = 0;
    /* A pipe is refused, not waited for until somebody writes to it. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: %s", path, strerror(errno));
    }
    st = regular_size(fd, path, most_bytes, &size_bytes);
    if (st != DYT_OK) {
        goto out;
    }
    text = malloc(size_bytes + 1);
    if (text == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%s: %zu bytes", path, size_bytes);
        goto out;
    }
    st = read_all(fd, path, text, size_bytes);
    if (st != DYT_OK) {
        goto out;
    }
    text[size_bytes] = '\0';
    *out_text = text;
    *out_bytes = size_bytes;
    text = NULL;
out:
    free(text);
    close(fd);
    return st;
}

enum dyt_status dyti_pwrite_all(int fd, const void *bytes, size_t size_bytes,
                                uint64_t offset, const char *what)
{
    const char *from = bytes;
    size_t done = 0;

    while (done < size_bytes) {
        ssize_t put =
            pwrite(fd, from + done, size_bytes - done, (off_t)(offset + done));

        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put <= 0) {
            return DYTI_FAIL(DYT_ERR_IO, "%s: writing %zu bytes at %llu: %s",
                             what, size_bytes, (unsigned long long)offset,
                             put == 0 ? "nothing was written"
                                      : dyti_errno_text(errno));
        }
        done += (size_t)put;
    }
    return DYT_OK;
}

enum dyt_status dyti_dir_sync(const char *dir)
{
    enum dyt_status st = DYT_OK;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: %s", dir, strerror(errno));
    }
    /* Some filesystems cannot sync a directory and say EINVAL: nothing to do
     * about it, and nothing is lost that another call would keep. */
    if (fsync(fd) != 0 && errno != EINVAL) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: fsync: %s", dir, strerror(errno));
    }
    close(fd);
    return st;
}

enum dyt_status dyti_dir_make(const char *dir)
{
    struct stat info;

    if (mkdir(dir, 0777) == 0) {
        return DYT_OK;
    }
    if (errno == EEXIST && stat(dir, &info) == 0 && S_ISDIR(info.st_mode)) {
        return DYT_OK;
    }
    return errno == EEXIST
               ? DYTI_FAIL(DYT_ERR_IO, "%s is no folder", dir)
               : DYTI_FAIL(DYT_ERR_IO, "%s: mkdir: %s", dir, strerror(errno));
}

enum dyt_status dyti_dirs_make(const char *dir)
{
    char part[DYTI_PATH_BYTES];
    struct stat info;

    if (dir[0] == '\0' || strlen(dir) >= sizeof(part)) {
        return DYTI_FAIL(DYT_ERR_INVALID, "\"%.80s\" is no name of a folder",
                         dir);
    }
    for (const char *slash = strchr(dir + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof(part), "%.*s", (int)(slash - dir), dir);
        /* Asked first: making what is there may be forbidden. */
        if (stat(part, &info) != 0 || !S_ISDIR(info.st_mode)) {
            enum dyt_status st = dyti_dir_make(part);

            if (st != DYT_OK) {
                return st;
            }
        }
    }
    return dyti_dir_make(dir);
}

static enum dyt_status sync_parent(const char *path)
{
    char dir[DYTI_PATH_BYTES];
    const char *slash = strrchr(path, '/');

    if (slash == NULL) {
        return dyti_dir_sync(".");
    }
    if (slash == path) {
        return dyti_dir_sync("/");
    }
    snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
    return dyti_dir_sync(dir);
}

enum dyt_status dyti_file_write(const char *path, const void *bytes,
                                size_t size_bytes)
{
    char temp[DYTI_PATH_BYTES];
    enum dyt_status st;
    int fd, need;

    need = snprintf(temp, sizeof(temp), "%s.tmp.%ld", path, (long)getpid());
    if (need < 0 || (size_t)need >= sizeof(temp)) {
        return DYTI_FAIL(DYT_ERR_INVALID, "path too long: %.200s", path);
    }
    fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: %s", temp, dyti_errno_text(errno));
    }
    st = dyti_pwrite_all(fd, bytes, size_bytes, 0, path);
    if (st == DYT_OK && fsync(fd) != 0) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: fsync: %s", path, strerror(errno));
    }
    if (close(fd) != 0 && st == DYT_OK) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: close: %s", path, strerror(errno));
    }
    if (st == DYT_OK && rename(temp, path) != 0) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: rename: %s", path, strerror(errno));
    }
    if (st != DYT_OK) {
        unlink(temp);
        return st;
    }
    return sync_parent(path);
}
