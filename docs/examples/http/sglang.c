#include "sglang.h"

#include <jansson.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *sglang_pause_mode(uint32_t in_flight)
{
    static const char *const mode[] = {NULL, "abort", "retract"};

    return mode[in_flight];
}

/* ---- a pickle, as its workers unpickle them ------------------------------ */

struct bytes {
    unsigned char *data;
    size_t count;
};

static void add(struct bytes *b, const void *data, size_t count)
{
    memcpy(b->data + b->count, data, count);
    b->count += count;
}

static void add_little_endian(struct bytes *b, uint64_t value, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        b->data[b->count++] = (unsigned char)(value >> 8 * i);
    }
}

/* Protocol 2: an empty list, one row, append. */
static void pickle(struct bytes *b, const char *name, int64_t number)
{
    static const char head[] = "\x80\x02]X", middle[] = "ctorch\nLongTensor\n]",
                      tail[] = "a\x85R\x86"
                               "a.";
    size_t length = strlen(name);

    add(b, head, sizeof(head) - 1);
    add_little_endian(b, length, 4);
    add(b, name, length);
    add(b, middle, sizeof(middle) - 1);
    add(b, "\x8a\x08", 2);
    add_little_endian(b, (uint64_t)number, 8);
    add(b, tail, sizeof(tail) - 1);
}

static void base64(const struct bytes *b, char *out)
{
    static const char digit[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    for (size_t i = 0; i < b->count; i += 3) {
        size_t left = b->count - i;
        uint32_t bits = (uint32_t)b->data[i] << 16;

        bits |= left > 1 ? (uint32_t)b->data[i + 1] << 8 : 0;
        bits |= left > 2 ? b->data[i + 2] : 0;
        *out++ = digit[bits >> 18];
        *out++ = digit[bits >> 12 & 63];
        *out++ = left > 1 ? digit[bits >> 6 & 63] : '=';
        *out++ = left > 2 ? digit[bits & 63] : '=';
    }
    *out = '\0';
}

/* ---- the body ------------------------------------------------------------ */

static char *body_of(uint32_t workers, const char *payload, int64_t number,
                     bool flush)
{
    json_t *list = json_array();
    json_t *body = json_pack("{s:o, s:s, s:s, s:b}", "serialized_named_tensors",
                             list, "load_format", SGLANG_FORMAT, "selector",
                             "target", "flush_cache", (int)flush);
    char version[24];
    char *text = NULL;

    for (uint32_t i = 0; i < workers; i++) {
        json_array_append_new(list, json_string(payload));
    }
    if (flush) {
        snprintf(version, sizeof(version), "%lld", (long long)number);
        json_object_set_new(body, "weight_version", json_string(version));
    }
    if (body != NULL && json_array_size(list) == workers) {
        text = json_dumps(body, JSON_COMPACT);
    }
    json_decref(body);
    return text;
}

char *sglang_update_body(uint32_t workers, const char *name, int64_t number,
                         bool flush)
{
    size_t most = strlen(name) + 64;
    struct bytes b = {.data = malloc(most)};
    char *payload = malloc(most * 4 / 3 + 8), *text = NULL;

    if (b.data != NULL && payload != NULL) {
        pickle(&b, name, number);
        base64(&b, payload);
        text = body_of(workers, payload, number, flush);
    }
    free(payload);
    free(b.data);
    return text;
}
