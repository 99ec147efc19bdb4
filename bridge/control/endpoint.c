/* What both ends of the control channel share: its address, its numbers, frames
 * in and out of ZeroMQ. */
#include "control/socket.h"

#include "base/descriptors.h"
#include "base/thread.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

void dyti_control_endpoint(uint64_t job, char out[DYTI_ENDPOINT_BYTES])
{
    snprintf(out, DYTI_ENDPOINT_BYTES, "ipc://@dynatrain-%016" PRIx64, job);
}

enum dyt_status dyti_control_random(uint64_t *out_number)
{
    uint64_t number = 0;

    while (number == 0) {
        if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number)) {
            return DYTI_FAIL(DYT_ERR_IO, "no random number from the system: %s",
                             strerror(errno));
        }
    }
    *out_number = number;
    return DYT_OK;
}

void dyti_frame_fini(struct dyti_frame *frame)
{
    dyti_buffer_fini(&frame->buffer);
    *frame = (struct dyti_frame){0};
}

/* The system's libzmq is not built with the thread sanitizer, which therefore
 * does not see that what was done before a message was sent is done when it is
 * received.  Equal bytes are equal messages here: they carry a sequence. */
#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif
#ifdef UNDER_TSAN
void __tsan_acquire(void *address);
void __tsan_release(void *address);

static void *place_of(const unsigned char *bytes, size_t size)
{
    static char place[65536];
    uint64_t hash = 14695981039346656037u;

    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ bytes[i]) * 1099511628211u;
    }
    return &place[(hash >> 32) % sizeof(place)];
}

#define HAPPENS_BEFORE(bytes, size) __tsan_release(place_of(bytes, size))
#define HAPPENS_AFTER(bytes, size)  __tsan_acquire(place_of(bytes, size))
#else
#define HAPPENS_BEFORE(bytes, size) ((void)0)
#define HAPPENS_AFTER(bytes, size)  ((void)0)
#endif

enum dyt_status dyti_zmq_fail(const char *call, const char *endpoint)
{
    return DYTI_FAIL(DYT_ERR_IO, "%s on %s: %s", call, endpoint,
                     zmq_strerror(zmq_errno()));
}

enum dyt_status dyti_zmq_open(int type, uint32_t more, struct dyti_socket *out)
{
    int none = 0, unlimited = 0;
    struct dyti_socket s = {NULL, NULL};
    sigset_t before;
    enum dyt_status room =
        dyti_descriptors_room(DYTI_ZMQ_DESCRIPTORS + more, "a ZeroMQ socket");

    room = room != DYT_OK ? room : dyti_threads_room(2, "a ZeroMQ socket");
    if (room != DYT_OK) {
        return room;
    }
    s.context = zmq_ctx_new();
    if (s.context == NULL) {
        return dyti_zmq_fail("zmq_ctx_new", "this process");
    }
    zmq_ctx_set(s.context, ZMQ_IO_THREADS, 1);
    /* The first socket starts its threads, which block signals themselves, but
     * not from their first instruction on. */
    dyti_signals_block(&before);
    s.socket = zmq_socket(s.context, type);
    dyti_signals_restore(&before);
    if (s.socket == NULL ||
        zmq_setsockopt(s.socket, ZMQ_LINGER, &none, sizeof(none)) != 0 ||
        zmq_setsockopt(s.socket, ZMQ_SNDHWM, &unlimited, sizeof(int)) != 0 ||
        zmq_setsockopt(s.socket, ZMQ_RCVHWM, &unlimited, sizeof(int)) != 0) {
        enum dyt_status st = dyti_zmq_fail("zmq_socket", "this process");

        dyti_zmq_close(&s);
        return st;
    }
    *out = s;
    return DYT_OK;
}

bool dyti_zmq_keep_alive(const struct dyti_socket *s)
{
    /* Silent for a second: asked each second, four times.  Words that nobody
     * confirms count as well. */
    static const struct {
        int option, value; /* in seconds; ms */
    } line[] = {{ZMQ_TCP_KEEPALIVE, 1},
                {ZMQ_TCP_KEEPALIVE_IDLE, 1},
                {ZMQ_TCP_KEEPALIVE_INTVL, 1},
                {ZMQ_TCP_KEEPALIVE_CNT, 4},
                {ZMQ_TCP_MAXRT, 5000}};

    for (size_t i = 0; i < sizeof(line) / sizeof(line[0]); i++) {
        if (zmq_setsockopt(s->socket, line[i].option, &line[i].value,
                           sizeof(line[i].value)) != 0) {
            return false;
        }
    }
    return true;
}

void dyti_zmq_close(struct dyti_socket *s)
{
    if (s->socket != NULL) {
        zmq_close(s->socket);
    }
    if (s->context != NULL) {
        while (zmq_ctx_term(s->context) != 0 && errno == EINTR) {
        } /* a signal ends it before its threads have */
    }
    *s = (struct dyti_socket){0};
}

static void free_bytes(void *bytes, void *hint)
{
    (void)hint;
    free(bytes);
}

enum dyt_status dyti_zmq_send(struct dyti_socket *s, struct dyti_buffer *buffer)
{
    zmq_msg_t message;

    HAPPENS_BEFORE(buffer->bytes, buffer->size_bytes);
    if (zmq_msg_init_data(&message, buffer->bytes, buffer->size_bytes,
                          free_bytes, NULL) != 0) {
        dyti_buffer_fini(buffer);
        return dyti_zmq_fail("zmq_msg_init_data", "a message");
    }
    *buffer = (struct dyti_buffer){0}; /* the message owns the bytes now */
    if (zmq_msg_send(&message, s->socket, 0) < 0) {
        enum dyt_status st =
            dyti_zmq_fail("zmq_msg_send", "the control socket");

        zmq_msg_close(&message);
        return st;
    }
    return DYT_OK;
}

bool dyti_zmq_take(zmq_msg_t *message, struct dyti_buffer *out)
{
    size_t size = zmq_msg_size(message);

    out->bytes = malloc(size > 0 ? size : 1);
    if (out->bytes == NULL) {
        return false;
    }
    memcpy(out->bytes, zmq_msg_data(message), size);
    out->size_bytes = size;
    HAPPENS_AFTER(out->bytes, size);
    return true;
}
