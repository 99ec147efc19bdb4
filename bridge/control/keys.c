/* CURVE key pairs as files of one line, as ZeroMQ prints them (Z85). */
#include "control/hub.h"
#include "control/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 4096u
#define LINE_BYTES 128u

static enum dyt_status write_key(const char *path, const char *key, mode_t mode)
{
    char line[DYTI_KEY_CHARS + 2];
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    int length = snprintf(line, sizeof(line), "%s\n", key);
    bool ok;

    if (fd < 0) {
        return DYTI_FAIL(errno == EEXIST ? DYT_ERR_BUSY : DYT_ERR_IO,
                         "%s: %s%s", path, strerror(errno),
                         errno == EEXIST ? "; it is left as it is" : "");
    }
    ok = fchmod(fd, mode) == 0 && write(fd, line, (size_t)length) == length;
    ok = close(fd) == 0 && ok;
    explicit_bzero(line, sizeof(line));
    if (!ok) {
        enum dyt_status st = DYTI_FAIL(DYT_ERR_IO, "%s cannot be written: %s",
                                       path, strerror(errno));

        unlink(path); /* no half key */
        return st;
    }
    return DYT_OK;
}

enum dyt_status dyti_keys_make(const char *folder, const char *name)
{
    char public_key[DYTI_KEY_CHARS + 1], secret_key[DYTI_KEY_CHARS + 1];
    char path[PATH_BYTES], other[PATH_BYTES];
    enum dyt_status st;

    if (name[0] == '\0' || strchr(name, '/') != NULL || strlen(name) > 63 ||
        strlen(folder) > PATH_BYTES - 128) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "\"%s\" is no name of a key", name);
    }
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) {
        return DYTI_FAIL(DYT_ERR_IO, "the folder %s cannot be made: %s", folder,
                         strerror(errno));
    }
    if (zmq_curve_keypair(public_key, secret_key) != 0) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "this ZeroMQ was built without CURVE: %s",
                         zmq_strerror(zmq_errno()));
    }
    snprintf(path, sizeof(path), "%s/%s.secret", folder, name);
    st = write_key(path, secret_key, 0600);
    if (st == DYT_OK) {
        snprintf(other, sizeof(other), "%s/%s.public", folder, name);
        st = write_key(other, public_key, 0644);
        if (st != DYT_OK) {
            unlink(path); /* of no pair */
        }
    }
    explicit_bzero(secret_key, sizeof(secret_key));
    return st;
}

/* The file's bytes, as one text; what is not a file of a key's size is
 * refused. */
static enum dyt_status read_line(const char *path, bool secret,
                                 char line[LINE_BYTES])
{
    struct stat info;
    ssize_t got;
    /* a pipe by that name is not waited for */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 || fstat(fd, &info) != 0) {
        enum dyt_status st =
            DYTI_FAIL(DYT_ERR_CONFIG,
                      "the key %s cannot be read: %s; `dynatrain keys FOLDER` "
                      "makes keys",
                      path, strerror(errno));

        if (fd >= 0) {
            close(fd);
        }
        return st;
    }
    got = S_ISREG(info.st_mode) ? read(fd, line, LINE_BYTES - 1) : -1;
    close(fd);
    if (secret && (info.st_mode & 077) != 0) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "others may read the secret key %s: chmod 600 it, and "
                         "make a new one if somebody has",
                         path);
    }
    line[got > 0 ? got : 0] = '\0';
    return DYT_OK;
}

enum dyt_status dyti_key_read(const char *path, bool secret,
                              char out_key[DYTI_KEY_CHARS + 1])
{
    char line[LINE_BYTES] = "";
    unsigned char raw[32];
    enum dyt_status st = read_line(path, secret, line);
    size_t n = strcspn(line, " \r\n\t");

    if (st == DYT_OK && (n != DYTI_KEY_CHARS ||
                         line[n + strspn(line + n, " \r\n\t")] != '\0')) {
        st = DYTI_FAIL(DYT_ERR_CONFIG,
                       "%s is no key of `dynatrain keys`: one line of %u "
                       "characters",
                       path, DYTI_KEY_CHARS);
    }
    line[n] = '\0';
    if (st == DYT_OK && zmq_z85_decode(raw, line) == NULL) {
        st = DYTI_FAIL(DYT_ERR_CONFIG,
                       "%s is no key of `dynatrain keys`: a character in it is "
                       "of none",
                       path);
    }
    if (st == DYT_OK) {
        memcpy(out_key, line, DYTI_KEY_CHARS + 1);
    }
    explicit_bzero(raw, sizeof(raw));
    explicit_bzero(line, sizeof(line));
    return st;
}
