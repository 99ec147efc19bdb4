/* Where there is no device, a test of label gpu says why and is skipped; else
 * it runs.  The driver is asked by a child: tests fork ranks, and a process
 * that has started it has no children that could use it. */
#include "gpu/body.h"
#undef main

#include "device/cuda/driver.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SKIPPED 77

/* 0: there is one. */
static int look(void)
{
    static struct dyti_device_report report;

    dyti_cuda_probe(DYTI_CUDA_DRIVER, &report);
    if (report.state == DYTI_DEVICE_READY) {
        printf("%s, sm_%u\n", report.row[0].name, report.row[0].arch);
        return 0;
    }
    printf("skipped: %s: %s\n", dyti_device_state_name(report.state),
           report.text);
    return SKIPPED;
}

int main(void)
{
    int code = -1;
    pid_t child = fork();

    if (child == 0) {
        code = look();
        (void)fflush(stdout);
        _exit(code);
    }
    if (child < 0 || waitpid(child, &code, 0) != child) {
        perror("asking the driver");
        return 1;
    }
    if (!WIFEXITED(code)) {
        printf("the driver ended the process that asked it\n");
        return 1;
    }
    return WEXITSTATUS(code) != 0 ? WEXITSTATUS(code) : dyt_gpu_body();
}
