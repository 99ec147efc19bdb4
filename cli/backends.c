#include "cli/backends.h"

#include "comm/shm/shm.h"
#include "device/host/host.h"
#include "device/host/memory.h"
#include "mover/direct/direct.h"
#include "mover/message/message.h"

#include <time.h>

int64_t dyti_seconds_ns(double seconds)
{
    return seconds < 1e9 ? (int64_t)(seconds * 1e9) : (int64_t)1e18;
}

int64_t dyti_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t system_now(void *self)
{
    (void)self;
    return dyti_now_ns();
}

static const struct dyti_clock_ops system_clock = {
    .struct_size = sizeof(struct dyti_clock_ops),
    .name = "monotonic",
    .now_ns = system_now};

static const struct dyti_backends host = {.memory = &dyti_memory_host,
                                          .kernels = &dyti_kernels_host,
                                          .group = &dyti_group_shm,
                                          .mover = &dyti_mover_direct,
                                          .message = &dyti_mover_message,
                                          .wait = &dyti_wait_futex,
                                          .clock = &system_clock};

const struct dyti_backends *dyti_backends_host(void)
{
    return &host;
}
