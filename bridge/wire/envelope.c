/* The outside of every message: who says what, in which protocol, before the
 * rest is read. */
#include "wire/codec.h"

enum dyt_status dyti_wire_empty(const struct dyti_envelope *envelope,
                                struct dyti_buffer *out)
{
    struct dyti_writer w;

    dyti_writer_begin(&w, envelope);
    dyti_write_array(&w, 0);
    return dyti_writer_end(&w, dyti_message_name(envelope->type), out);
}

static enum dyt_status read_envelope(const void *bytes, size_t size_bytes,
                                     struct dyti_envelope *out)
{
    msgpack_unpacked part;
    struct dyti_reader r;
    size_t at = 0;

    msgpack_unpacked_init(&part);
    if (msgpack_unpack_next(&part, bytes, size_bytes, &at) !=
        MSGPACK_UNPACK_SUCCESS) {
        msgpack_unpacked_destroy(&part);
        return DYTI_FAIL(DYT_ERR_NOMEM, "an envelope");
    }
    r = (struct dyti_reader){"any", part.data.via.array.ptr,
                             part.data.via.array.size, 0, DYT_OK};
    out->protocol = (uint32_t)dyti_read_u64(&r, "protocol", UINT32_MAX);
    out->type = (uint32_t)dyti_read_u64(&r, "type", UINT32_MAX);
    out->job = dyti_read_u64(&r, "job", UINT64_MAX);
    out->sender = dyti_read_i32(&r, "sender");
    out->epoch = dyti_read_u64(&r, "epoch", UINT64_MAX);
    out->sequence = dyti_read_u64(&r, "sequence", UINT64_MAX);
    out->version = dyti_read_u64(&r, "version", UINT64_MAX);
    if (r.status == DYT_OK && out->sender < DYTI_MANAGER_RANK) {
        r.status =
            DYTI_FAIL(DYT_ERR_FORMAT, "a message from rank %d", out->sender);
    }
    msgpack_unpacked_destroy(&part);
    return r.status;
}

enum dyt_status dyti_wire_envelope(const void *bytes, size_t size_bytes,
                                   struct dyti_envelope *out)
{
    struct dyti_envelope e = {0};
    enum dyt_status st = dyti_wire_shape("any", bytes, size_bytes);

    st = st != DYT_OK ? st : read_envelope(bytes, size_bytes, &e);
    if (st != DYT_OK) {
        return st;
    }
    if (e.protocol != DYTI_PROTOCOL) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "rank %d speaks protocol %u, this side %u: use one "
                         "version of dynatrain everywhere",
                         e.sender, e.protocol, DYTI_PROTOCOL);
    }
    if (e.type == 0 || e.type >= DYTI_MSG_COUNT) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "rank %d sent a message of type %u",
                         e.sender, e.type);
    }
    *out = e;
    return DYT_OK;
}

enum dyt_status dyti_wire_protocol(const void *bytes, size_t size_bytes,
                                   uint32_t *out_protocol)
{
    struct dyti_envelope e = {0};
    enum dyt_status st = dyti_wire_shape("any", bytes, size_bytes);

    st = st != DYT_OK ? st : read_envelope(bytes, size_bytes, &e);
    if (st == DYT_OK) {
        *out_protocol = e.protocol;
    }
    return st;
}
