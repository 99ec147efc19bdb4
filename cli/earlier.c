/* Names of one folder, renamed within it: no byte is copied. */
#include "cli/earlier.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define EARLIER_MOST 100000u

/* What a run writes; the lock stays, as do sockets of sessions. */
static bool of_a_run(const char *name)
{
    static const char *const whole[] = {"metrics.jsonl", "completions.jsonl",
                                        "summary.json", "checkpoints"};

    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
        if (strcmp(name, whole[i]) == 0) {
            return true;
        }
    }
    return strncmp(name, "export-", strlen("export-")) == 0;
}

static enum dyt_status make_room(const char *folder, char to[DYTI_PATH_BYTES])
{
    for (unsigned n = 1; n <= EARLIER_MOST; n++) {
        char name[32];
        enum dyt_status st;

        snprintf(name, sizeof(name), "earlier-%u", n);
        st = dyti_path_join(to, folder, name);
        if (st != DYT_OK) {
            return st;
        }
        if (mkdir(to, 0777) == 0) {
            return DYT_OK;
        }
        if (errno != EEXIST) {
            return DYTI_FAIL(DYT_ERR_IO, "%s: mkdir: %s", to, strerror(errno));
        }
    }
    return DYTI_FAIL(DYT_ERR_IO,
                     "%s: earlier-1 to earlier-%u are there: remove "
                     "some",
                     folder, EARLIER_MOST);
}

static enum dyt_status move_one(const char *folder, const char *name,
                                char to[DYTI_PATH_BYTES])
{
    char from[DYTI_PATH_BYTES], into[DYTI_PATH_BYTES];
    enum dyt_status st = to[0] != '\0' ? DYT_OK : make_room(folder, to);

    st = st != DYT_OK ? st : dyti_path_join(from, folder, name);
    st = st != DYT_OK ? st : dyti_path_join(into, to, name);
    if (st == DYT_OK && rename(from, into) != 0) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: rename to %s: %s", from, into,
                       strerror(errno));
    }
    return st;
}

/* A run that ended before its first step leaves nothing that anybody wants. */
static bool worth_keeping(const char *folder)
{
    char path[DYTI_PATH_BYTES];
    struct stat info;

    if (dyti_path_join(path, folder, "checkpoints") == DYT_OK &&
        stat(path, &info) == 0) {
        return true;
    }
    return dyti_path_join(path, folder, "metrics.jsonl") == DYT_OK &&
           stat(path, &info) == 0 && info.st_size > 0;
}

enum dyt_status dyti_earlier_aside(const char *folder,
                                   char out_to[DYTI_PATH_BYTES])
{
    char to[DYTI_PATH_BYTES] = "";
    enum dyt_status st = DYT_OK;
    struct dirent *entry;
    DIR *dir;

    if (!worth_keeping(folder)) {
        out_to[0] = '\0';
        return DYT_OK;
    }
    dir = opendir(folder);
    if (dir == NULL) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: %s", folder, strerror(errno));
    }
    while (st == DYT_OK && (entry = readdir(dir)) != NULL) {
        if (of_a_run(entry->d_name)) {
            st = move_one(folder, entry->d_name, to);
        }
    }
    closedir(dir);
    if (st != DYT_OK) {
        DYTI_NOTE("putting aside what an earlier run left");
        return st;
    }
    snprintf(out_to, DYTI_PATH_BYTES, "%s", to);
    return DYT_OK;
}
