#include "cables.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* What leaves by a device is held to the rate.  The bucket holds a few of the
 * packets that veth hands over whole. */
#define SHAPED                                                                 \
    "tc qdisc add dev %s root tbf rate %umbit burst 256kb latency 40ms"

/* A shell's line in a namespace; true: it ended with 0. */
static bool run_in(int space, const char *line)
{
    int code = -1;
    pid_t pid;

    (void)fflush(NULL);
    pid = fork();
    if (pid == 0) {
        if (setns(space, CLONE_NEWNET) == 0) {
            (void)execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        }
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &code, 0) != pid || code != 0) {
        (void)fprintf(stderr, "cannot do: %s\n", line);
        return false;
    }
    return true;
}

/* A namespace that only its handle keeps. */
static int make_namespace(void)
{
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), made = -1;

    if (home < 0) {
        return -1;
    }
    if (unshare(CLONE_NEWNET) == 0) {
        made = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        if (setns(home, CLONE_NEWNET) != 0) {
            (void)close(made);
            made = -1;
        }
    }
    (void)close(home);
    return made;
}

void cables_address(uint32_t end, char *out, uint32_t room)
{
    (void)snprintf(out, room, "10.77.0.%u", 1 + end);
}

static bool lay_one(struct cables *cables, uint32_t end)
{
    char address[16], port[16], line[320];

    (void)snprintf(port, sizeof(port), "port%u", end);
    cables->end[end] = make_namespace();
    if (cables->end[end] < 0) {
        return false;
    }
    (void)snprintf(line, sizeof(line),
                   "ip link add %s type veth peer name nic netns /proc/%d/fd/%d"
                   " && ip link set %s master switch up && " SHAPED,
                   port, (int)getpid(), cables->end[end], port, port,
                   cables->mbit_per_s);
    if (!run_in(cables->fabric, line)) {
        return false;
    }
    cables_address(end, address, sizeof(address));
    (void)snprintf(line, sizeof(line),
                   "ip link set lo up && ip addr add %s/24 dev nic && "
                   "ip link set nic up && " SHAPED,
                   address, "nic", cables->mbit_per_s);
    return run_in(cables->end[end], line);
}

bool cables_lay(struct cables *cables, uint32_t count, uint32_t mbit_per_s)
{
    bool good;

    *cables = (struct cables){.count = count, .mbit_per_s = mbit_per_s};
    for (uint32_t i = 0; i < CABLES_MAX; i++) {
        cables->end[i] = -1;
    }
    cables->fabric = make_namespace();
    good = cables->fabric >= 0 && count <= CABLES_MAX &&
           run_in(cables->fabric,
                  "ip link add switch type bridge && ip link set switch up");
    for (uint32_t i = 0; i < count && good; i++) {
        good = lay_one(cables, i);
    }
    if (!good) {
        cables_close(cables);
    }
    return good;
}

bool cables_enter(const struct cables *cables, uint32_t end)
{
    return setns(cables->end[end], CLONE_NEWNET) == 0;
}

void cables_close(struct cables *cables)
{
    for (uint32_t i = 0; i < cables->count && i < CABLES_MAX; i++) {
        if (cables->end[i] >= 0) {
            (void)close(cables->end[i]);
        }
    }
    if (cables->fabric >= 0) {
        (void)close(cables->fabric);
    }
    *cables = (struct cables){.fabric = -1};
}
