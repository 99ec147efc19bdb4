/* Regions of time as Chrome trace events ("chrome://tracing", Perfetto), one
 * JSON object a line.  Off unless started; then a region costs one test.
 *
 *   struct dyti_trace_region region = dyti_trace_begin("exec", "transfer");
 *   ...
 *   dyti_trace_end(&region, bytes);
 *
 * Processes of one run append to one file, whole lines at a time; ranks are
 * the file's processes (-1: the manager), threads its threads.
 * Threads: any.  Events wait in a buffer of their thread and are written when
 * it is full, when the thread ends, and by dyti_trace_flush. */
#ifndef DYTI_BASE_TRACE_H
#define DYTI_BASE_TRACE_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct dyti_trace_region {
    const char *area, *name; /* static texts without quotes or backslashes */
    uint64_t start_ns;       /* 0: tracing was off */
};

extern atomic_bool dyti_trace_started;

/* Start writing to `path` (NULL: stay off); once per process, before others
 * may trace.  fresh: begin a new file, which the first process of a run does;
 * otherwise add to it.  DYT_ERR_IO. */
enum dyt_status dyti_trace_start(const char *path, bool fresh);

/* Write what this thread has, close the file. */
void dyti_trace_stop(void);

/* Write what this thread has. */
void dyti_trace_flush(void);

struct dyti_trace_region dyti_trace_begin_slow(const char *area,
                                               const char *name);
void dyti_trace_end_slow(const struct dyti_trace_region *region,
                         uint64_t bytes);

static inline bool dyti_trace_on(void)
{
    return atomic_load_explicit(&dyti_trace_started, memory_order_relaxed);
}

static inline struct dyti_trace_region dyti_trace_begin(const char *area,
                                                        const char *name)
{
    struct dyti_trace_region off = {area, name, 0};

    return dyti_trace_on() ? dyti_trace_begin_slow(area, name) : off;
}

/* bytes: what the region moved, 0 if that has no meaning. */
static inline void dyti_trace_end(const struct dyti_trace_region *region,
                                  uint64_t bytes)
{
    if (region->start_ns != 0 && dyti_trace_on()) {
        dyti_trace_end_slow(region, bytes);
    }
}

#endif /* DYTI_BASE_TRACE_H */
