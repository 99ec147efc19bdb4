/* A message's encode and decode functions from its write_ and read_ function:
 *   static void write_hello(struct dyti_writer *w, const struct dyti_msg_hello
 * *m); static void read_hello(struct dyti_reader *r, struct dyti_msg_hello *m);
 *   DYTI_WIRE_DEFINE(hello)
 * A decoder gives *out only when every field was right. */
#ifndef DYTI_WIRE_DEFINE_H
#define DYTI_WIRE_DEFINE_H

#include "wire/codec.h"

#define DYTI_WIRE_DEFINE(name)                                                 \
    enum dyt_status dyti_wire_##name##_encode(                                 \
        const struct dyti_envelope *envelope,                                  \
        const struct dyti_msg_##name *message, struct dyti_buffer *out)        \
    {                                                                          \
        struct dyti_writer w;                                                  \
                                                                               \
        dyti_writer_begin(&w, envelope);                                       \
        write_##name(&w, message);                                             \
        return dyti_writer_end(&w, #name, out);                                \
    }                                                                          \
                                                                               \
    enum dyt_status dyti_wire_##name##_decode(                                 \
        const void *bytes, size_t size_bytes, struct dyti_msg_##name *out)     \
    {                                                                          \
        msgpack_unpacked frame;                                                \
        struct dyti_reader r;                                                  \
        struct dyti_msg_##name m = {0};                                        \
        enum dyt_status st =                                                   \
            dyti_reader_open(#name, bytes, size_bytes, &frame, &r);            \
                                                                               \
        if (st != DYT_OK) {                                                    \
            return st;                                                         \
        }                                                                      \
        read_##name(&r, &m);                                                   \
        msgpack_unpacked_destroy(&frame);                                      \
        if (r.status != DYT_OK) {                                              \
            dyti_msg_##name##_fini(&m);                                        \
            return r.status;                                                   \
        }                                                                      \
        *out = m;                                                              \
        return DYT_OK;                                                         \
    }

#endif /* DYTI_WIRE_DEFINE_H */
