/* Are these bytes two msgpack arrays and nothing else, each count of which the
 * bytes can hold?  Checked before msgpack-c sees them: it allocates what a
 * header promises, and a header may promise anything. */
#include "wire/codec.h"

#define MOST_DEPTH 8 /* of arrays in arrays; ours go to 4 */

struct cursor {
    const unsigned char *at, *end;
    uint64_t pending[MOST_DEPTH]; /* items left on each level */
    uint32_t depth;
};

/* `count` bytes as a big-endian number; false: they are not there. */
static bool take(struct cursor *c, size_t count, uint64_t *out)
{
    *out = 0;
    if ((size_t)(c->end - c->at) < count) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        *out = *out << 8 | *c->at++;
    }
    return true;
}

static bool skip(struct cursor *c, uint64_t count)
{
    if ((uint64_t)(c->end - c->at) < count) {
        return false;
    }
    c->at += count;
    return true;
}

/* Every item takes a byte, so an honest count is no larger than what is left.
 */
static bool enter(struct cursor *c, uint64_t count)
{
    if (count > (uint64_t)(c->end - c->at) || c->depth == MOST_DEPTH) {
        return false;
    }
    c->pending[c->depth++] = count;
    return true;
}

/* Strings and binary, by the bytes of their length. */
static bool sized(struct cursor *c, size_t length_bytes)
{
    uint64_t count;

    return take(c, length_bytes, &count) && skip(c, count);
}

static bool array(struct cursor *c, size_t length_bytes)
{
    uint64_t count;

    return take(c, length_bytes, &count) && enter(c, count);
}

/* One item, or the head of an array.  Maps and extensions are in no message. */
static bool item(struct cursor *c)
{
    uint64_t head;

    if (!take(c, 1, &head)) {
        return false;
    }
    if (head <= 0x7f || head >= 0xe0) {
        return true; /* small integers */
    }
    if (head >= 0xa0 && head <= 0xbf) {
        return skip(c, head & 0x1f); /* short strings */
    }
    if (head >= 0x90 && head <= 0x9f) {
        return enter(c, head & 0x0f); /* short arrays */
    }
    switch (head) {
    case 0xc0: /* nil, false, true */
    case 0xc2:
    case 0xc3:
        return true;
    case 0xc4: /* binary, strings */
    case 0xd9:
        return sized(c, 1);
    case 0xc5:
    case 0xda:
        return sized(c, 2);
    case 0xc6:
    case 0xdb:
        return sized(c, 4);
    case 0xcc: /* integers and floats */
    case 0xd0:
        return skip(c, 1);
    case 0xcd:
    case 0xd1:
        return skip(c, 2);
    case 0xca:
    case 0xce:
    case 0xd2:
        return skip(c, 4);
    case 0xcb:
    case 0xcf:
    case 0xd3:
        return skip(c, 8);
    case 0xdc:
        return array(c, 2);
    case 0xdd:
        return array(c, 4);
    default:
        return false;
    }
}

/* A whole array from here on. */
static bool whole_array(struct cursor *c)
{
    if (!item(c) || c->depth != 1) {
        return false;
    }
    while (c->depth > 0) {
        if (c->pending[c->depth - 1] == 0) {
            c->depth--;
        } else {
            c->pending[c->depth - 1]--;
            if (!item(c)) {
                return false;
            }
        }
    }
    return true;
}

enum dyt_status dyti_wire_shape(const char *what, const void *bytes,
                                size_t size_bytes)
{
    const unsigned char *first = bytes;
    struct cursor c = {.at = first, .end = first};

    c.end = size_bytes > 0 ? first + size_bytes : first;
    for (int part = 0; part < 2; part++) { /* the envelope, then the payload */
        if (!whole_array(&c)) {
            return DYTI_FAIL(DYT_ERR_FORMAT,
                             "%s message of %zu bytes: part %d is not a "
                             "msgpack array of what messages have",
                             what, size_bytes, part);
        }
    }
    if (c.at != c.end) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "%s message of %zu bytes has %zu bytes after its "
                         "payload",
                         what, size_bytes, (size_t)(c.end - c.at));
    }
    return DYT_OK;
}
