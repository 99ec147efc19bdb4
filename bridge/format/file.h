/* Whole small files in and out, and paths.  Messages name the path.
 * Threads: any. */
#ifndef DYTI_FORMAT_FILE_H
#define DYTI_FORMAT_FILE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define DYTI_PATH_BYTES 4096u

/* "<dir>/<name>" into buf[DYTI_PATH_BYTES].
 * @return DYT_ERR_INVALID  longer than that */
enum dyt_status dyti_path_join(char buf[DYTI_PATH_BYTES], const char *dir,
                               const char *name);

/* True if something with that path can be read. */
bool dyti_file_exists(const char *path);

/**
 * Read a whole file.  *out_text is malloc'ed, the caller's, NUL-terminated.
 * @return DYT_ERR_IO      cannot be opened or read
 * @return DYT_ERR_FORMAT  longer than most_bytes
 * @return DYT_ERR_NOMEM
 */
enum dyt_status dyti_file_read(const char *path, uint64_t most_bytes,
                               char **out_text, size_t *out_bytes);

/**
 * Write a whole file so that either the old or the new content is there, never
 * a part: temporary name beside it, fsync, rename, fsync of the directory.
 * @return DYT_ERR_IO  the old content is untouched, no temporary is left
 */
enum dyt_status dyti_file_write(const char *path, const void *bytes,
                                size_t size_bytes);

/* As much of an open file as there is from `offset` on, size_bytes at most,
 * through short reads and signals.
 * @return bytes read: fewer only at the end of the file; < 0: errno says why */
ssize_t dyti_pread_most(int fd, void *bytes, size_t size_bytes,
                        uint64_t offset);

/* Every byte to an open file at `offset`, through short writes and signals.
 * `what` names the file in messages. */
enum dyt_status dyti_pwrite_all(int fd, const void *bytes, size_t size_bytes,
                                uint64_t offset, const char *what);

/* fsync of a directory, so that names in it are durable. */
enum dyt_status dyti_dir_sync(const char *dir);

/* mkdir, an existing directory is fine. */
enum dyt_status dyti_dir_make(const char *dir);

/* The same with all folders on the way. */
enum dyt_status dyti_dirs_make(const char *dir);

#endif /* DYTI_FORMAT_FILE_H */
