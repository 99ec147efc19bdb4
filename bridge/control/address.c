/* Where a job meets: folders that are one user's alone, lock files. */
#include "control/hub.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum dyt_status no_address(const char *text)
{
    return DYTI_FAIL(DYT_ERR_CONFIG,
                     "\"%s\" is no address: give unix:PATH (a folder of its "
                     "own, such as unix:/run/user/%u/job/job.sock) or "
                     "tcp:HOST:PORT",
                     text != NULL ? text : "", (unsigned)geteuid());
}

static bool is_folder(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static enum dyt_status parse_unix(const char *text, const char *job,
                                  struct dyti_address *out)
{
    const char *path = text + 5;
    size_t n = strlen(path);
    int wrote;

    if (n == 0) {
        return no_address(text);
    }
    if (path[n - 1] == '/' || is_folder(path)) {
        if (job == NULL) {
            return DYTI_FAIL(DYT_ERR_CONFIG,
                             "%s is a folder: name the socket file in it, "
                             "which is JOB.sock",
                             path);
        }
        wrote = snprintf(out->path, sizeof(out->path), "%s%s%s.sock", path,
                         path[n - 1] == '/' ? "" : "/", job);
    } else {
        wrote = snprintf(out->path, sizeof(out->path), "%s", path);
    }
    if (wrote < 0 || (size_t)wrote >= sizeof(out->path)) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s: a socket's path has at most %u bytes", path,
                         DYTI_ADDRESS_BYTES - 1);
    }
    snprintf(out->endpoint, sizeof(out->endpoint), "ipc://%s", out->path);
    return DYT_OK;
}

/* 1 to 65535. */
static bool is_port(const char *text)
{
    size_t n = strspn(text, "0123456789");
    unsigned long port = strtoul(text, NULL, 10);

    return n >= 1 && n <= 5 && text[n] == '\0' && port >= 1 && port <= 65535;
}

enum dyt_status dyti_address_parse(const char *text, const char *job,
                                   struct dyti_address *out_address)
{
    struct dyti_address a = {0};
    enum dyt_status st = DYT_OK;

    if (text != NULL && strncmp(text, "unix:", 5) == 0) {
        st = parse_unix(text, job, &a);
    } else if (text != NULL && strncmp(text, "tcp:", 4) == 0) {
        const char *host = text + (strncmp(text, "tcp://", 6) == 0 ? 6 : 4);
        const char *colon = strrchr(host, ':');

        if (colon == NULL || colon == host || !is_port(colon + 1)) {
            return no_address(text);
        }
        if (strlen(host) >= DYTI_ADDRESS_BYTES) {
            return DYTI_FAIL(DYT_ERR_CONFIG,
                             "%.32s…: an address has at most %u bytes", text,
                             DYTI_ADDRESS_BYTES - 1);
        }
        a.is_tcp = true;
        snprintf(a.endpoint, sizeof(a.endpoint), "tcp://%s", host);
    } else {
        st = no_address(text);
    }
    if (st == DYT_OK) {
        *out_address = a;
    }
    return st;
}

enum dyt_status dyti_address_prepare(const struct dyti_address *address,
                                     bool make)
{
    char folder[DYTI_ADDRESS_BYTES];
    struct stat info;
    char *slash;

    if (address->is_tcp) {
        return DYT_OK;
    }
    memcpy(folder, address->path, sizeof(folder));
    slash = strrchr(folder, '/');
    if (slash == NULL) {
        memcpy(folder, ".", 2);
    } else {
        slash[slash == folder ? 1 : 0] = '\0';
    }
    if (make && mkdir(folder, 0700) != 0 && errno != EEXIST) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "the folder %s cannot be made: %s",
                         folder, strerror(errno));
    }
    if (lstat(folder, &info) != 0) {
        /* A member may be there before the manager. */
        return make ? DYTI_FAIL(DYT_ERR_CONFIG, "the folder %s: %s", folder,
                                strerror(errno))
                    : DYT_OK;
    }
    if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() ||
        (info.st_mode & 077) != 0) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "the folder %s of the socket must be this user's "
                         "alone (mode 0700): give it a folder of its own, "
                         "which is made if it is not there, or chmod 700 it",
                         folder);
    }
    return DYT_OK;
}
