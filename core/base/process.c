#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* starttime is field 22; the command, field 2, may hold anything but ends with
 * the last bracket. */
static bool parse_start(const char *stat, uint64_t *out_start)
{
    const char *at = strrchr(stat, ')');
    char *end = NULL;

    for (int field = 2; at != NULL && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    if (at == NULL) {
        return false;
    }
    errno = 0;
    *out_start = strtoull(at + 1, &end, 10);
    return errno == 0 && end != at + 1;
}

enum dyt_status dyti_process_start(uint32_t pid, uint64_t *out_start)
{
    char path[64], text[1024];
    ssize_t got = -1;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%" PRIu32 "/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        got = read(fd, text, sizeof(text) - 1);
        (void)close(fd);
    }
    if (got <= 0) {
        return DYTI_FAIL(DYT_ERR_PEER, "process %" PRIu32 " is not there", pid);
    }
    text[got] = '\0';
    if (!parse_start(text, out_start)) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: no start time", path);
    }
    return DYT_OK;
}

enum dyt_status dyti_process_self(uint32_t *out_pid, uint64_t *out_start)
{
    *out_pid = (uint32_t)getpid();
    return dyti_process_start(*out_pid, out_start);
}

bool dyti_process_is_self(uint32_t pid, uint64_t start)
{
    uint32_t own = 0;
    uint64_t own_start = 0;

    return pid == (uint32_t)getpid() &&
           dyti_process_self(&own, &own_start) == DYT_OK && start == own_start;
}

int64_t dyti_process_space(void)
{
    struct stat info;

    return stat("/proc/self/ns/pid", &info) == 0 ? (int64_t)info.st_ino : 0;
}
