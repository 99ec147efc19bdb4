/* Walking a box of up to four dimensions row by row, in element order.  Two
 * strides run along: source and destination bytes (copy), or bytes and element
 * index (hash). */
#ifndef DYTI_DEVICE_HOST_STRIDED_H
#define DYTI_DEVICE_HOST_STRIDED_H

#include <stdbool.h>
#include <stdint.h>

#define STRIDED_DIMS 4

struct strided {
    int64_t size[STRIDED_DIMS]; /* slow to fast */
    int64_t a[STRIDED_DIMS], b[STRIDED_DIMS];
};

/* Dimensions that lie dense in both are made one, so that rows are as long as
 * they can be; the rest moves to the end, leading sizes become 1.
 *
 * What is made here is written where it stays.  A struct that is returned gets
 * copied by vectors, and a vector of words that were just stored one by one
 * waits for every store before it, those of the last box's bytes too: with
 * small boxes that is most of the time. */
static inline void strided_make(const int64_t *size, const int64_t *a,
                                const int64_t *b, struct strided *out)
{
    int at = STRIDED_DIMS - 1;
    bool empty = true;

    for (int d = STRIDED_DIMS - 1; d >= 0; d--) {
        if (size[d] == 1) {
            continue;
        }
        if (!empty && a[d] == out->a[at] * out->size[at] &&
            b[d] == out->b[at] * out->size[at]) {
            out->size[at] *= size[d];
            continue;
        }
        if (!empty) {
            at--;
        }
        empty = false;
        out->size[at] = size[d];
        out->a[at] = a[d];
        out->b[at] = b[d];
    }
    for (int d = empty ? at : at - 1; d >= 0; d--) {
        out->size[d] = 1;
        out->a[d] = out->b[d] = 0;
    }
}

static inline int64_t strided_count(const struct strided *s)
{
    return s->size[0] * s->size[1] * s->size[2] * s->size[3];
}

/* A part of one row: `count` elements from offsets a and b on. */
struct strided_row {
    int64_t a, b, count;
};

struct strided_walk {
    const struct strided *s;
    int64_t index[STRIDED_DIMS]; /* of the next element */
    int64_t a, b;                /* its offsets */
    int64_t left;                /* elements */
};

/* Elements [lo, hi). */
static inline void strided_begin(const struct strided *s, int64_t lo,
                                 int64_t hi, struct strided_walk *out)
{
    out->s = s;
    out->a = out->b = 0;
    out->left = hi - lo;
    for (int d = STRIDED_DIMS - 1; d >= 0; d--) {
        out->index[d] = lo == 0 ? 0 : lo % s->size[d];
        lo = lo == 0 ? 0 : lo / s->size[d];
        out->a += out->index[d] * s->a[d];
        out->b += out->index[d] * s->b[d];
    }
}

/* The next row or part of one; false at the end. */
static inline bool strided_next(struct strided_walk *w,
                                struct strided_row *out_row)
{
    const struct strided *s = w->s;
    int64_t count = s->size[3] - w->index[3];

    if (w->left == 0) {
        return false;
    }
    count = count < w->left ? count : w->left;
    out_row->a = w->a;
    out_row->b = w->b;
    out_row->count = count;
    w->left -= count;
    w->a -= w->index[3] * s->a[3];
    w->b -= w->index[3] * s->b[3];
    w->index[3] = 0;
    for (int d = 2; d >= 0; d--) {
        w->a += s->a[d];
        w->b += s->b[d];
        if (++w->index[d] < s->size[d]) {
            break;
        }
        w->a -= s->size[d] * s->a[d];
        w->b -= s->size[d] * s->b[d];
        w->index[d] = 0;
    }
    return true;
}

#endif /* DYTI_DEVICE_HOST_STRIDED_H */
