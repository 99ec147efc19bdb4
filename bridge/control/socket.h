/* ZeroMQ calls that both sides make; errors are translated in endpoint.c. */
#ifndef DYTI_CONTROL_SOCKET_H
#define DYTI_CONTROL_SOCKET_H

#include "control/control.h"

#include <zmq.h>

struct dyti_socket {
    void *context, *socket;
};

/* "<call> on <endpoint>: <ZeroMQ's text>". */
enum dyt_status dyti_zmq_fail(const char *call, const char *endpoint);
/* libzmq ends the process where a context gets no thread or descriptor, and
 * where a listener on this machine has none for who connects: asked before.
 *   more  descriptors that the socket will take besides, for what it is bound
 *         or connected to and who connects
 * DYT_ERR_IO, DYT_ERR_NOMEM: there are not as many. */
enum dyt_status dyti_zmq_open(int type, uint32_t more, struct dyti_socket *out);
/* What a context with one socket has. */
#define DYTI_ZMQ_DESCRIPTORS 6u
/* Lines to peers that vanish without a word, as those of other machines may,
 * are hung up by the kernel after 5 s.  Not by ZeroMQ's own heartbeats:
 * libzmq 4.3.4 aborts where one is due on a line that has broken while what it
 * brought could not be taken, as while a socket closes (stream_engine_base.cpp:
 * timer_event calls out_event whatever _io_error).  Before it connects or
 * binds. */
bool dyti_zmq_keep_alive(const struct dyti_socket *s);
void dyti_zmq_close(struct dyti_socket *s);
/* One frame; takes the buffer over without a copy. */
enum dyt_status dyti_zmq_send(struct dyti_socket *s,
                              struct dyti_buffer *buffer);
/* Frees a frame above DYTI_FRAME_MOST_BYTES and names the limit. */
enum dyt_status dyti_hub_too_big(struct dyti_buffer *buffer);
/* A copy of a received frame; false: out of memory. */
bool dyti_zmq_take(zmq_msg_t *message, struct dyti_buffer *out);

#endif /* DYTI_CONTROL_SOCKET_H */
