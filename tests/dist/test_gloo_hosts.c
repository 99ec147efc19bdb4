/* Ranks on two hosts, shown with two network namespaces and a cable between
 * them: groups over gloo, and a switch whose links between the hosts go by
 * messages.  Skipped by name where namespaces are not permitted. */
#include "switch_scene.h"

#include "comm/gloo/gloo.h"
#include "mover/message/message.h"

#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>

#define SKIPPED 77

struct hosts {
    const struct sw_memory *memory;
    _Atomic uint32_t *ready; /* namespaces made, then the cable is there */
    _Atomic int32_t *pid;    /* [2] of the ranks */
    uint64_t seed;
};

static struct dyti_group_ops of_host;
static const char *address; /* of this process */

static enum dyt_status open_here(const struct dyti_group_params *params,
                                 void **out_self)
{
    struct dyti_group_params here = *params;

    here.address = address;
    return dyti_group_gloo.open(&here, out_self);
}

static void trip(struct sw_rank *rank)
{
    struct dyt_rank *me = rank->me;
    const struct dyti_world_switch_options options = {.mover = DYTI_WORLD_AUTO};
    struct dyti_switch_report report;
    struct dyti_switch_order order = {.epoch = 1,
                                      .version = 1,
                                      .unmanaged = true,
                                      .verify = DYTI_VERIFY_FULL};

    sw_update(rank, DYTI_ARENA_TRAIN, 1);
    rank_ok(me, sw_switch(rank, DYTI_ARENA_TRAIN, DYTI_ARENA_ROLLOUT, &options,
                          &order, &report));
    rank_true(me, sw_check(rank, DYTI_ARENA_ROLLOUT, DYTI_PARAM, 1));
    order.epoch = 2;
    rank_ok(me, sw_switch(rank, DYTI_ARENA_ROLLOUT, DYTI_ARENA_TRAIN, &options,
                          &order, &report));
    rank_true(me, sw_check_all(rank, DYTI_ARENA_TRAIN, 1));
    /* the peer's memory is not mapped here */
    rank_true(me, dyti_world_region(rank->world, 1 - me->rank, DYTI_ARENA_TRAIN,
                                    DYTI_PARAM) == NULL);
}

/* One line of a shell; its exit status, -1 where there is none. */
static int shell(const char *line)
{
    char *const argv[] = {"sh", "-c", (char *)(uintptr_t)line, NULL};
    pid_t pid;
    int code = -1;

    if (posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ) != 0 ||
        waitpid(pid, &code, 0) != pid) {
        return -1;
    }
    return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
}

/* A line between this namespace and that of process `peer`, both ends with an
 * address. */
static bool lay_cable(int peer)
{
    static const char *const here =
        "ip addr add 10.77.3.1/24 dev dyt0 && ip link set dyt0 up && "
        "ip link set lo up";
    char line[256];

    (void)snprintf(line, sizeof(line),
                   "ip link add dyt0 type veth peer name dyt1 netns %d", peer);
    if (shell(line) != 0 || shell(here) != 0) {
        return false;
    }
    (void)snprintf(line, sizeof(line),
                   "nsenter -t %d -n sh -c 'ip addr add 10.77.3.2/24 dev dyt1 "
                   "&& ip link set dyt1 up && ip link set lo up'",
                   peer);
    return shell(line) == 0;
}

static void host_rank(struct dyt_rank *me)
{
    const struct hosts *hosts = me->arg;
    struct sw_rank rank;

    if (unshare(CLONE_NEWNET) != 0) {
        rank_wrong(me, "unshare");
    }
    atomic_store(&hosts->pid[me->rank], (int32_t)getpid());
    (void)atomic_fetch_add(hosts->ready, 1);
    while (atomic_load(hosts->ready) < 2) {
    }
    if (me->rank == 0) {
        if (!lay_cable(atomic_load(&hosts->pid[1]))) {
            rank_wrong(me, "no cable between the namespaces");
        }
        (void)atomic_fetch_add(hosts->ready, 1);
    }
    while (atomic_load(hosts->ready) < 3) {
    }
    address = me->rank == 0 ? "10.77.3.1" : "10.77.3.2";
    if (sw_enter(&rank, me, hosts->seed, 2, hosts->memory)) {
        trip(&rank);
    }
    sw_rank_close(&rank);
}

static void a_switch_between_two_hosts(void **state)
{
    static const uint32_t two_hosts[] = {0, 1};
    char *page = dyt_ranks_shared(4096);

    (void)state;
    of_host = dyti_group_gloo;
    of_host.open = open_here;
    sw_group = &of_host;
    sw_message = &dyti_mover_message;
    sw_host = two_hosts;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct hosts hosts = {
            .ready = (void *)page, .pid = (void *)(page + 64), .seed = seed};
        struct sw_stage stage = {
            .kind = DYT_RANKS_PROCESSES, .seed = seed, .world_size = 2};

        memset(page, 0, 4096);
        sw_play(&stage, host_rank, &hosts, &hosts.memory);
    }
    munmap(page, 4096);
}

/* Asked in a child, so that this process stays where it is. */
static bool permitted(void)
{
    int code = 1;
    pid_t pid = fork();

    if (pid == 0) {
        _exit(unshare(CLONE_NEWNET) == 0 &&
                      shell("ip link add dyt9 type veth peer name dyt8 "
                            ">/dev/null 2>&1 && command -v nsenter "
                            ">/dev/null") == 0
                  ? 0
                  : 1);
    }
    return pid > 0 && waitpid(pid, &code, 0) == pid && code == 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_switch_between_two_hosts),
};

int main(void)
{
    if (!permitted()) {
        print_message("skipped: network namespaces are not permitted here\n");
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
