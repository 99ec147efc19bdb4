#include "wire/codec.h"

#include <stdlib.h>
#include <string.h>

/* ---- writing ------------------------------------------------------------- */

static int write_bytes(void *arg, const char *bytes, size_t size)
{
    struct dyti_writer *w = arg;

    w->failed =
        w->failed || msgpack_sbuffer_write(&w->buffer, bytes, size) != 0;
    return w->failed ? -1 : 0;
}

void dyti_writer_begin(struct dyti_writer *w, const struct dyti_envelope *e)
{
    *w = (struct dyti_writer){.failed = false};
    msgpack_sbuffer_init(&w->buffer);
    msgpack_packer_init(&w->packer, w, write_bytes);
    dyti_write_array(w, 7);
    dyti_write_u64(w, e->protocol);
    dyti_write_u64(w, e->type);
    dyti_write_u64(w, e->job);
    dyti_write_i64(w, e->sender);
    dyti_write_u64(w, e->epoch);
    dyti_write_u64(w, e->sequence);
    dyti_write_u64(w, e->version);
}

enum dyt_status dyti_writer_end(struct dyti_writer *w, const char *what,
                                struct dyti_buffer *out)
{
    if (w->failed) {
        msgpack_sbuffer_destroy(&w->buffer);
        return DYTI_FAIL(DYT_ERR_NOMEM, "encoding a %s message", what);
    }
    out->size_bytes = w->buffer.size;
    out->bytes = (unsigned char *)msgpack_sbuffer_release(&w->buffer);
    return DYT_OK;
}

void dyti_write_array(struct dyti_writer *w, size_t count)
{
    msgpack_pack_array(&w->packer, count);
}

void dyti_write_u64(struct dyti_writer *w, uint64_t value)
{
    msgpack_pack_uint64(&w->packer, value);
}

void dyti_write_i64(struct dyti_writer *w, int64_t value)
{
    msgpack_pack_int64(&w->packer, value);
}

void dyti_write_double(struct dyti_writer *w, double value)
{
    msgpack_pack_double(&w->packer, value);
}

void dyti_write_bool(struct dyti_writer *w, bool value)
{
    if (value) {
        msgpack_pack_true(&w->packer);
    } else {
        msgpack_pack_false(&w->packer);
    }
}

void dyti_write_text(struct dyti_writer *w, const char *text)
{
    const char *safe = text != NULL ? text : "";

    msgpack_pack_str(&w->packer, strlen(safe));
    msgpack_pack_str_body(&w->packer, safe, strlen(safe));
}

void dyti_write_bin(struct dyti_writer *w, const void *bytes, size_t size)
{
    msgpack_pack_bin(&w->packer, size);
    if (size > 0) {
        msgpack_pack_bin_body(&w->packer, bytes, size);
    }
}

/* ---- reading ------------------------------------------------------------- */

enum dyt_status dyti_reader_open(const char *what, const void *bytes,
                                 size_t size_bytes, msgpack_unpacked *frame,
                                 struct dyti_reader *out)
{
    size_t at = 0;
    enum dyt_status st = dyti_wire_shape(what, bytes, size_bytes);

    if (st != DYT_OK) {
        return st;
    }
    msgpack_unpacked_init(frame);
    for (int part = 0; part < 2; part++) { /* the envelope, then the payload */
        if (msgpack_unpack_next(frame, bytes, size_bytes, &at) !=
                MSGPACK_UNPACK_SUCCESS ||
            frame->data.type != MSGPACK_OBJECT_ARRAY) {
            msgpack_unpacked_destroy(frame);
            return DYTI_FAIL(DYT_ERR_NOMEM, "%s message of %zu bytes", what,
                             size_bytes);
        }
    }
    *out = (struct dyti_reader){what, frame->data.via.array.ptr,
                                frame->data.via.array.size, 0, DYT_OK};
    return DYT_OK;
}

static const msgpack_object *take(struct dyti_reader *r, const char *field)
{
    if (r->status != DYT_OK) {
        return NULL;
    }
    if (r->next >= r->count) {
        r->status = DYTI_FAIL(DYT_ERR_FORMAT, "%s message: no field %s",
                              r->what, field);
        return NULL;
    }
    return &r->item[r->next++];
}

static void wrong(struct dyti_reader *r, const char *field, const char *want)
{
    r->status = DYTI_FAIL(DYT_ERR_FORMAT, "%s message: %s is not %s", r->what,
                          field, want);
}

uint64_t dyti_read_u64(struct dyti_reader *r, const char *field, uint64_t max)
{
    const msgpack_object *o = take(r, field);

    if (o == NULL) {
        return 0;
    }
    if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER || o->via.u64 > max) {
        wrong(r, field, "a count in range");
        return 0;
    }
    return o->via.u64;
}

int64_t dyti_read_i64(struct dyti_reader *r, const char *field)
{
    const msgpack_object *o = take(r, field);

    if (o == NULL) {
        return 0;
    }
    if (o->type == MSGPACK_OBJECT_NEGATIVE_INTEGER) {
        return o->via.i64;
    }
    if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER || o->via.u64 > INT64_MAX) {
        wrong(r, field, "an integer");
        return 0;
    }
    return (int64_t)o->via.u64;
}

int32_t dyti_read_i32(struct dyti_reader *r, const char *field)
{
    int64_t value = dyti_read_i64(r, field);

    if (value < INT32_MIN || value > INT32_MAX) {
        wrong(r, field, "an integer of 32 bits");
        return 0;
    }
    return (int32_t)value;
}

double dyti_read_double(struct dyti_reader *r, const char *field)
{
    const msgpack_object *o = take(r, field);

    if (o == NULL) {
        return 0.0;
    }
    if (o->type != MSGPACK_OBJECT_FLOAT64 &&
        o->type != MSGPACK_OBJECT_FLOAT32) {
        wrong(r, field, "a number");
        return 0.0;
    }
    return o->via.f64;
}

bool dyti_read_bool(struct dyti_reader *r, const char *field)
{
    const msgpack_object *o = take(r, field);

    if (o != NULL && o->type != MSGPACK_OBJECT_BOOLEAN) {
        wrong(r, field, "true or false");
        return false;
    }
    return o != NULL && o->via.boolean;
}

char *dyti_read_text(struct dyti_reader *r, const char *field)
{
    const msgpack_object *o = take(r, field);
    char *copy;

    if (o == NULL) {
        return NULL;
    }
    if (o->type != MSGPACK_OBJECT_STR ||
        (o->via.str.size > 0 &&
         memchr(o->via.str.ptr, 0, o->via.str.size) != NULL)) {
        wrong(r, field, "text");
        return NULL;
    }
    copy = malloc((size_t)o->via.str.size + 1);
    if (copy == NULL) {
        r->status = DYTI_FAIL(DYT_ERR_NOMEM, "%s message: %s", r->what, field);
        return NULL;
    }
    if (o->via.str.size > 0) {
        memcpy(copy, o->via.str.ptr, o->via.str.size);
    }
    copy[o->via.str.size] = '\0';
    return copy;
}

void *dyti_read_items(struct dyti_reader *r, const char *field,
                      size_t item_bytes, uint32_t *out_count)
{
    const msgpack_object *o = take(r, field);
    void *copy;

    *out_count = 0;
    if (o == NULL) {
        return NULL;
    }
    if (o->type != MSGPACK_OBJECT_BIN || o->via.bin.size % item_bytes != 0) {
        wrong(r, field, "an array of its items");
        return NULL;
    }
    if (o->via.bin.size == 0) {
        return NULL;
    }
    copy = malloc(o->via.bin.size);
    if (copy == NULL) {
        r->status = DYTI_FAIL(DYT_ERR_NOMEM, "%s message: %s", r->what, field);
        return NULL;
    }
    memcpy(copy, o->via.bin.ptr, o->via.bin.size);
    *out_count = (uint32_t)(o->via.bin.size / item_bytes);
    return copy;
}

bool dyti_read_nested(struct dyti_reader *r, const char *field,
                      struct dyti_reader *out)
{
    const msgpack_object *o = take(r, field);

    if (o == NULL) {
        return false;
    }
    if (o->type != MSGPACK_OBJECT_ARRAY) {
        wrong(r, field, "an array");
        return false;
    }
    *out = (struct dyti_reader){r->what, o->via.array.ptr, o->via.array.size, 0,
                                DYT_OK};
    return true;
}

void dyti_read_join(struct dyti_reader *outer, const struct dyti_reader *inner)
{
    if (outer->status == DYT_OK) {
        outer->status = inner->status;
    }
}

void *dyti_read_room(struct dyti_reader *r, const char *field, uint32_t count,
                     size_t item_bytes, uint32_t least)
{
    void *room;

    if (r->status == DYT_OK && count > dyti_read_left(r)) {
        wrong(r, field, "as many as it says");
    }
    for (uint32_t i = 0; r->status == DYT_OK && least > 0 && i < count; i++) {
        const msgpack_object *o = &r->item[r->next + i];

        if (o->type != MSGPACK_OBJECT_ARRAY || o->via.array.size < least) {
            wrong(r, field, "an array of its fields");
        }
    }
    if (r->status != DYT_OK || count == 0) {
        return NULL;
    }
    room = calloc(count, item_bytes);
    if (room == NULL) {
        r->status = DYTI_FAIL(DYT_ERR_NOMEM, "%s message: %u %s", r->what,
                              count, field);
    }
    return room;
}
