/* The two sides of msgpack that every message uses: a writer that remembers
 * its first failure, and a reader over the payload's array.  Strings and binary
 * are bounded by the frame; arrays by the bytes that could hold them. */
#ifndef DYTI_WIRE_CODEC_H
#define DYTI_WIRE_CODEC_H

#include "wire/wire.h"

#include <msgpack.h>

struct dyti_writer {
    msgpack_sbuffer buffer;
    msgpack_packer packer;
    bool failed; /* out of memory: what is there is not the message */
};

/* DYT_ERR_FORMAT unless the bytes are an envelope's array, a payload's array
 * and nothing else, with no count that they could not hold. */
enum dyt_status dyti_wire_shape(const char *what, const void *bytes,
                                size_t size_bytes);

/* Starts a frame with the envelope. */
void dyti_writer_begin(struct dyti_writer *w,
                       const struct dyti_envelope *envelope);
enum dyt_status dyti_writer_end(struct dyti_writer *w, const char *what,
                                struct dyti_buffer *out);

void dyti_write_array(struct dyti_writer *w, size_t count);
void dyti_write_u64(struct dyti_writer *w, uint64_t value);
void dyti_write_i64(struct dyti_writer *w, int64_t value);
void dyti_write_double(struct dyti_writer *w, double value);
void dyti_write_bool(struct dyti_writer *w, bool value);
void dyti_write_text(struct dyti_writer *w, const char *text);
void dyti_write_bin(struct dyti_writer *w, const void *bytes, size_t size);

/* Reads the fields of one array in order.  The first wrong one sets `status`
 * and the error text; later reads then do nothing and give zeros. */
struct dyti_reader {
    const char *what; /* message, for texts */
    const msgpack_object *item;
    uint32_t count, next;
    enum dyt_status status;
};

/* The payload of a frame as objects in `zone`. */
enum dyt_status dyti_reader_open(const char *what, const void *bytes,
                                 size_t size_bytes, msgpack_unpacked *frame,
                                 struct dyti_reader *out);

uint64_t dyti_read_u64(struct dyti_reader *r, const char *field, uint64_t max);
int64_t dyti_read_i64(struct dyti_reader *r, const char *field);
int32_t dyti_read_i32(struct dyti_reader *r, const char *field);
double dyti_read_double(struct dyti_reader *r, const char *field);
bool dyti_read_bool(struct dyti_reader *r, const char *field);
/* malloc'ed copy; no NUL inside. */
char *dyti_read_text(struct dyti_reader *r, const char *field);
/* Array of `item_bytes` items packed as binary: malloc'ed, NULL if empty. */
void *dyti_read_items(struct dyti_reader *r, const char *field,
                      size_t item_bytes, uint32_t *out_count);
/* Enter a nested array; false: wrong. */
bool dyti_read_nested(struct dyti_reader *r, const char *field,
                      struct dyti_reader *out);
/* Remaining items of the reader. */
static inline uint32_t dyti_read_left(const struct dyti_reader *r)
{
    return r->count - r->next;
}
/**
 * Zeroed memory for `count` structs that are made of the next `count` items of
 * `r`, each an array of at least `least` fields (0: plain items): what is
 * allocated is bounded by the frame, whatever its heads promise.
 * @return NULL  none, or the reader has failed
 */
void *dyti_read_room(struct dyti_reader *r, const char *field, uint32_t count,
                     size_t item_bytes, uint32_t least);
/* A nested reader failed: so does the outer one. */
void dyti_read_join(struct dyti_reader *outer, const struct dyti_reader *inner);

#endif /* DYTI_WIRE_CODEC_H */
