/* Where there is no device, a test of label gpu says why before its main(), and
 * exits 77.  The driver is asked by a child: tests fork ranks, and a process
 * that has started it has no children that could use it. */
#include "device/cuda/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SKIPPED 77

/* The child's exit status; 0: there is a device. */
static int look(void)
{
    static struct dyti_device_report report;

    dyti_cuda_probe(DYTI_CUDA_DRIVER, &report);
    if (report.state == DYTI_DEVICE_READY) {
        return 0;
    }
    printf("skipped: %s: %s\n", dyti_device_state_name(report.state),
           report.text);
    return SKIPPED;
}

/* One is enough, and of several nobody would know which: the first of those
 * that may be seen.  With DYT_GPU_ALL: all of them. */
static void choose(void)
{
#ifndef DYT_GPU_ALL
    char first[256];
    const char *seen = getenv("CUDA_VISIBLE_DEVICES");

    (void)snprintf(first, sizeof(first), "%s", seen == NULL ? "0" : seen);
    first[strcspn(first, ",")] = '\0';
    (void)setenv("CUDA_VISIBLE_DEVICES", first, 1);
#endif
}

__attribute__((constructor)) static void look_first(void)
{
    int code = -1;
    pid_t child;

    choose();
    (void)fflush(NULL);
    child = fork();
    if (child == 0) {
        code = look();
        (void)fflush(stdout);
        _exit(code);
    }
    if (child < 0 || waitpid(child, &code, 0) != child || !WIFEXITED(code)) {
        (void)fprintf(stderr, "the driver ended the process that asked it\n");
        _exit(1);
    }
    if (WEXITSTATUS(code) != 0) {
        _exit(WEXITSTATUS(code));
    }
}
