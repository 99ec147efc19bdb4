/* Temporary folders, and programs run to their end. */
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPEN_FOLDERS 16

char *text_of(const char *format, ...)
{
    char *text = NULL;
    va_list args;

    va_start(args, format);
    if (vasprintf(&text, format, args) < 0) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    va_end(args);
    return text;
}

char *cache_folder(void)
{
    const char *own = getenv("DYNATRAIN_CACHE");
    const char *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");

    if (own != NULL && own[0] != '\0') {
        return text_of("%s", own);
    }
    if (xdg != NULL && xdg[0] != '\0') {
        return text_of("%s/dynatrain", xdg);
    }
    return text_of("%s/.cache/dynatrain", home != NULL ? home : "");
}

char *folder_create(void)
{
    const char *parent = getenv("TMPDIR");
    char *folder;

    parent = parent != NULL && parent[0] != '\0' ? parent : "/tmp";
    folder = text_of("%s/dynatrain-bench-XXXXXX", parent);
    if (mkdtemp(folder) == NULL) {
        fprintf(stderr, "cannot make a folder in %s: %s\n", parent,
                strerror(errno));
        free(folder);
        return NULL;
    }
    return folder;
}

static int remove_one(const char *path, const struct stat *st, int kind,
                      struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

void folder_remove(char *folder)
{
    if (folder != NULL) {
        (void)nftw(folder, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
    }
    free(folder);
}

void program_say_last(const char *name, FILE *errors)
{
    char line[512], last[512] = "(nothing on its stderr)";

    if (errors != NULL) {
        rewind(errors);
    }
    while (errors != NULL && fgets(line, sizeof(line), errors) != NULL) {
        if (line[0] != '\n') {
            memcpy(last, line, sizeof(last));
        }
    }
    last[strcspn(last, "\n")] = '\0';
    fprintf(stderr, "%s failed: %s\n", name, last);
}

static int start(char *const argv[], const char *out_path,
                 const char *error_path, pid_t *out_pid)
{
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);

    if (error != 0) {
        return error;
    }
    error = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out_path,
                                             flags, 0600);
    if (error == 0) {
        error = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO,
                                                 error_path, flags, 0600);
    }
    if (error == 0) {
        error = posix_spawn(out_pid, argv[0], &actions, NULL, argv, environ);
    }
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

bool program_run(char *const argv[], const char *out_path,
                 const char *error_path)
{
    pid_t pid = -1;
    int code = 1, error = start(argv, out_path, error_path, &pid);

    if (error != 0) {
        fprintf(stderr, "cannot start %s: %s\n", argv[0], strerror(error));
        return false;
    }
    while (waitpid(pid, &code, 0) < 0) {
        if (errno != EINTR) {
            return false;
        }
    }
    if (code != 0) {
        FILE *errors = fopen(error_path, "re");

        program_say_last(argv[0], errors);
        if (errors != NULL) {
            fclose(errors);
        }
    }
    return code == 0;
}
