#include "base/trace.h"
#include "base/errno_text.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EVENTS     256u /* per thread, before they are written */
#define LINE_BYTES 320u /* of one event, names included */

struct event {
    const char *area, *name;
    uint64_t start_ns, length_ns, bytes;
    int32_t rank;
};

struct buffer {
    uint32_t count;
    long thread;
    struct event event[EVENTS];
};

atomic_bool dyti_trace_started;

/* Set once at start, before threads, like the log's level. */
static atomic_int file = -1;
static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int format(char *line, const struct event *event, long thread)
{
    int used = snprintf(
        line, LINE_BYTES,
        "{\"ph\": \"X\", \"cat\": \"%.40s\", \"name\": \"%.60s\", \"pid\": "
        "%" PRId32 ", \"tid\": %ld, \"ts\": %" PRIu64 ".%03u, \"dur\": "
        "%" PRIu64 ".%03u, \"args\": {\"bytes\": %" PRIu64 "}},\n",
        event->area, event->name, event->rank, thread, event->start_ns / 1000,
        (unsigned)(event->start_ns % 1000), event->length_ns / 1000,
        (unsigned)(event->length_ns % 1000), event->bytes);

    return used < (int)LINE_BYTES ? used : 0;
}

static atomic_bool lost; /* of this file, and said so */

static void write_all(int to, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t done = write(to, bytes, count);

        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            /* It must not stop the run; who wants it hears so, once. */
            if (!atomic_exchange(&lost, true)) {
                DYTI_LOG(DYTI_LOG_WARN, "trace", "events are lost: %s",
                         done < 0 ? dyti_errno_text(errno)
                                  : "nothing was written");
            }
            return;
        }
        bytes += done;
        count -= (size_t)done;
    }
}

static void flush(struct buffer *buffer)
{
    char lines[16 * LINE_BYTES];
    size_t used = 0;
    int to = atomic_load(&file);

    for (uint32_t i = 0; i < buffer->count && to >= 0; i++) {
        used += (size_t)format(lines + used, &buffer->event[i], buffer->thread);
        if (used + LINE_BYTES > sizeof(lines)) {
            write_all(to, lines, used);
            used = 0;
        }
    }
    if (to >= 0) {
        write_all(to, lines, used);
    }
    buffer->count = 0;
}

static void thread_ends(void *arg)
{
    flush(arg);
    free(arg);
}

static void make_key(void)
{
    /* Without a key nothing is recorded, which is all that can be done. */
    if (pthread_key_create(&key, thread_ends) != 0) {
        atomic_store(&dyti_trace_started, false);
    }
}

/* This thread's buffer, made at its first event; NULL if memory is out. */
static struct buffer *buffer_of_thread(void)
{
    struct buffer *buffer = pthread_getspecific(key);

    if (buffer == NULL) {
        buffer = calloc(1, sizeof(*buffer));
        if (buffer == NULL) {
            return NULL;
        }
        buffer->thread = syscall(SYS_gettid);
        if (pthread_setspecific(key, buffer) != 0) {
            free(buffer);
            return NULL;
        }
    }
    return buffer;
}

enum dyt_status dyti_trace_start(const char *path, bool fresh)
{
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
    int opened;

    if (path == NULL) {
        return DYT_OK;
    }
    if (dyti_trace_on()) {
        return DYTI_FAIL(DYT_ERR_STATE, "tracing has been started already");
    }
    opened = open(path, fresh ? flags | O_TRUNC : flags, 0666);
    if (opened < 0) {
        return DYTI_FAIL(DYT_ERR_IO, "cannot write the trace %s: %s", path,
                         strerror(errno));
    }
    atomic_store(&lost, false);
    if (fresh) {
        write_all(opened, "[\n", 2); /* the closing bracket is optional */
    }
    atomic_store(&file, opened);
    atomic_store(&dyti_trace_started, true);
    pthread_once(&key_once, make_key);
    return DYT_OK;
}

void dyti_trace_flush(void)
{
    struct buffer *buffer;

    if (dyti_trace_on()) {
        buffer = pthread_getspecific(key);
        if (buffer != NULL) {
            flush(buffer);
        }
    }
}

void dyti_trace_stop(void)
{
    struct buffer *buffer;
    int opened;

    if (!dyti_trace_on()) {
        return;
    }
    buffer = pthread_getspecific(key);
    if (buffer != NULL) {
        thread_ends(buffer);
        pthread_setspecific(key, NULL);
    }
    atomic_store(&dyti_trace_started, false);
    opened = atomic_exchange(&file, -1);
    close(opened);
}

struct dyti_trace_region dyti_trace_begin_slow(const char *area,
                                               const char *name)
{
    return (struct dyti_trace_region){area, name, now_ns()};
}

void dyti_trace_end_slow(const struct dyti_trace_region *region, uint64_t bytes)
{
    struct buffer *buffer = buffer_of_thread();

    if (buffer == NULL) {
        return;
    }
    buffer->event[buffer->count++] = (struct event){
        .area = region->area,
        .name = region->name,
        .start_ns = region->start_ns,
        .length_ns = now_ns() - region->start_ns,
        .bytes = bytes,
        .rank = dyti_log_rank(),
    };
    if (buffer->count == EVENTS) {
        flush(buffer);
    }
}
