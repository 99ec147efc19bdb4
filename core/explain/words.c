/* Numbers, boxes and names as people and programs read them. */
#include "explain/words.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct dyti_words dyti_words_bytes(uint64_t bytes)
{
    static const char *const unit[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
    struct dyti_words w;
    double value = (double)bytes / 1024.0;
    size_t i = 0;

    if (bytes < 1024) {
        (void)snprintf(w.text, sizeof(w.text), "%" PRIu64 " B", bytes);
        return w;
    }
    while (value >= 1023.95 && i + 1 < sizeof(unit) / sizeof(unit[0])) {
        value /= 1024.0;
        i++;
    }
    (void)snprintf(w.text, sizeof(w.text), "%.1f %s", value, unit[i]);
    return w;
}

struct dyti_words dyti_words_seconds(double s)
{
    struct dyti_words w;

    if (s > 0.0 && s < 1e-6) {
        (void)snprintf(w.text, sizeof(w.text), "%.3g ns", s * 1e9);
    } else if (s < 1e-3) {
        (void)snprintf(w.text, sizeof(w.text), "%.1f us", s * 1e6);
    } else if (s < 1.0) {
        (void)snprintf(w.text, sizeof(w.text), "%.2f ms", s * 1e3);
    } else {
        (void)snprintf(w.text, sizeof(w.text), "%.2f s", s);
    }
    return w;
}

struct dyti_words dyti_words_shape(uint32_t ndim, const int64_t *shape)
{
    struct dyti_words w = {""};
    size_t at = 0;

    for (uint32_t d = 0; d < ndim && at < sizeof(w.text); d++) {
        at += (size_t)snprintf(w.text + at, sizeof(w.text) - at, "%s%" PRId64,
                               d == 0 ? "" : " x ", shape[d]);
    }
    return w;
}

struct dyti_words dyti_words_box(const struct dyt_box *box)
{
    struct dyti_words w = {"["};
    size_t at = 1;

    for (uint32_t d = 0; d < box->ndim && at < sizeof(w.text); d++) {
        at += (size_t)snprintf(w.text + at, sizeof(w.text) - at,
                               "%s%" PRId64 ":%" PRId64, d == 0 ? "" : ", ",
                               box->lo[d], box->hi[d]);
    }
    if (at < sizeof(w.text)) {
        (void)snprintf(w.text + at, sizeof(w.text) - at, "]");
    }
    return w;
}

struct dyti_words dyti_words_hex(uint64_t value)
{
    struct dyti_words w;

    (void)snprintf(w.text, sizeof(w.text), "%016" PRIx64, value);
    return w;
}

const char *dyti_words_cut(enum dyti_cut cut)
{
    static const char *const name[] = {[DYTI_CUT_NONE] = "whole",
                                       [DYTI_CUT_VOCAB] = "vocab",
                                       [DYTI_CUT_Q_HEADS] = "q heads",
                                       [DYTI_CUT_KV_HEADS] = "kv heads",
                                       [DYTI_CUT_FFN] = "ffn"};

    return (unsigned)cut < sizeof(name) / sizeof(name[0]) ? name[cut] : "?";
}

const char *dyti_words_residency(enum dyti_residency residency)
{
    static const char *const name[] = {[DYTI_HELD] = "held",
                                       [DYTI_PARKED] = "parked",
                                       [DYTI_DERIVED] = "derived",
                                       [DYTI_DROPPED] = "dropped"};

    return (unsigned)residency < sizeof(name) / sizeof(name[0])
               ? name[residency]
               : "?";
}

const char *dyti_words_slot(enum dyti_arena_slot slot)
{
    static const char *const name[DYTI_ARENA_SLOT_COUNT] = {
        [DYTI_ARENA_ROLLOUT] = "rollout",
        [DYTI_ARENA_TRAIN] = "train",
        [DYTI_ARENA_REFERENCE] = "reference"};

    return (unsigned)slot < DYTI_ARENA_SLOT_COUNT ? name[slot] : "?";
}

void dyti_words_box_json(struct dyti_json *json, const char *key,
                         const struct dyt_box *box)
{
    dyti_json_begin_object(json, key);
    dyti_json_begin_array(json, "lo");
    for (uint32_t d = 0; d < box->ndim; d++) {
        dyti_json_i64(json, NULL, box->lo[d]);
    }
    dyti_json_end(json);
    dyti_json_begin_array(json, "hi");
    for (uint32_t d = 0; d < box->ndim; d++) {
        dyti_json_i64(json, NULL, box->hi[d]);
    }
    dyti_json_end(json);
    dyti_json_end(json);
}

void dyti_words_hex_json(struct dyti_json *json, const char *key,
                         uint64_t value)
{
    dyti_json_text(json, key, dyti_words_hex(value).text);
}

void dyti_words_range_json(struct dyti_json *json, const char *key, int64_t lo,
                           int64_t hi)
{
    dyti_json_begin_array(json, key);
    dyti_json_i64(json, NULL, lo);
    dyti_json_i64(json, NULL, hi);
    dyti_json_end(json);
}

enum dyt_status dyti_words_done(FILE *out, const char *what)
{
    if (ferror(out) != 0 || fflush(out) != 0) {
        return DYTI_FAIL(DYT_ERR_IO, "writing %s: %s", what, strerror(errno));
    }
    return DYT_OK;
}
