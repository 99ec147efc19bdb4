/* What a seed draws of a piece, against looking at each of its elements. */
#include "dyt_test.h"

#include "base/rng.h"
#include "ops/sample.h"

#include <string.h>

#define DIMS  DYTI_COPY_DIMS
#define SIDE  12 /* of a tensor, at most */
#define CASES 4000u

static int64_t below(uint64_t seed, uint64_t step, int64_t count)
{
    return (int64_t)(dyti_rng_u64(seed, step, 1, 2) % (uint64_t)count);
}

/* A piece of a tensor, of strides that nothing else has, and a lattice. */
static struct dyti_sample make_sample(uint64_t seed)
{
    struct dyti_sample s = {.box = {.data = (const void *)0x100000,
                                    .salt = seed,
                                    .dtype = DYTI_F32},
                            .key = seed * 7};
    int64_t index_stride = 1;

    for (uint32_t d = DIMS; d-- > 0;) {
        int64_t side = 1 + below(seed, 10 + d, SIDE);
        bool all = below(seed, 20 + d, 3) == 0;

        s.lo[d] = below(seed, 30 + d, side);
        s.box.size[d] = 1 + below(seed, 40 + d, side - s.lo[d]);
        s.box.stride[d] = 1 + below(seed, 50 + d, 1000);
        s.box.index_stride[d] = index_stride;
        s.step[d] = all ? 1 : 1 + below(seed, 60 + d, 4);
        s.starts[d] = all ? 1 : 1 + below(seed, 70 + d, side);
        s.count[d] = all ? side : 1 + below(seed, 80 + d, side);
        index_stride *= side;
    }
    return s;
}

/* Is a coordinate of a tensor one of the lattice's? */
static bool is_on(const struct dyti_sample *s, uint32_t d, int64_t at,
                  int64_t start)
{
    return at >= start && (at - start) % s->step[d] == 0 &&
           (at - start) / s->step[d] < s->count[d];
}

struct found {
    int64_t data, index;
    bool hit;
};

/* Elements of the piece, row-major, that are on the lattice. */
static size_t look_at_each(const struct dyti_sample *s, uint64_t seed,
                           struct found *out)
{
    uint64_t bits = dyti_rng_u64(seed, s->key, 0, 0);
    int64_t start[DIMS], x[DIMS];
    size_t count = 0;

    for (uint32_t d = 0; d < DIMS; d++) {
        start[d] = (int64_t)(bits % (uint64_t)s->starts[d]);
        bits /= (uint64_t)s->starts[d];
    }
    memcpy(x, s->lo, sizeof(x));
    for (bool more = true; more;) {
        struct found at = {.data = (int64_t)(uintptr_t)s->box.data,
                           .hit = true};
        uint32_t d = DIMS;

        for (uint32_t k = 0; k < DIMS; k++) {
            at.data += (x[k] - s->lo[k]) * s->box.stride[k];
            at.index += x[k] * s->box.index_stride[k];
            at.hit = at.hit && is_on(s, k, x[k], start[k]);
        }
        if (at.hit) {
            out[count++] = at;
        }
        while (d > 0 && ++x[d - 1] == s->lo[d - 1] + s->box.size[d - 1]) {
            x[d - 1] = s->lo[d - 1];
            d--;
        }
        more = d > 0;
    }
    return count;
}

/* Elements of a box, row-major. */
static size_t walk(const struct dyti_hash_box *box, struct found *out)
{
    size_t count = 0;

    for (int64_t a = 0; a < box->size[0]; a++) {
        for (int64_t b = 0; b < box->size[1]; b++) {
            for (int64_t c = 0; c < box->size[2]; c++) {
                for (int64_t e = 0; e < box->size[3]; e++) {
                    const int64_t x[DIMS] = {a, b, c, e};
                    struct found at = {.data = (int64_t)(uintptr_t)box->data,
                                       .index = (int64_t)box->index,
                                       .hit = true};

                    for (uint32_t d = 0; d < DIMS; d++) {
                        at.data += x[d] * box->stride[d];
                        at.index += x[d] * box->index_stride[d];
                    }
                    out[count++] = at;
                }
            }
        }
    }
    return count;
}

static void draws_what_is_on_the_lattice(void **state)
{
    static struct found want[SIDE * SIDE * SIDE * SIDE];
    static struct found got[SIDE * SIDE * SIDE * SIDE];
    uint32_t with = 0, without = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        struct dyti_sample s = make_sample(seed);
        size_t count = look_at_each(&s, seed + 99, want);
        struct dyti_hash_box box;
        bool some = dyti_sample_draw(&s, seed + 99, &box);

        assert_int_equal(count > 0, some);
        with += some;
        without += !some;
        if (!some) {
            continue;
        }
        assert_true(box.salt == s.box.salt && box.dtype == s.box.dtype);
        assert_int_equal(count,
                         box.size[0] * box.size[1] * box.size[2] * box.size[3]);
        assert_int_equal(count, walk(&box, got));
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(want[i].data, got[i].data);
            assert_int_equal(want[i].index, got[i].index);
        }
        assert_true(count <= dyti_sample_most(&s));
    }
    assert_true(with > CASES / 10 && without > CASES / 10);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(draws_what_is_on_the_lattice),
};
DYT_TEST_MAIN(tests)
