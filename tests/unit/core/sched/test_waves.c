/* Waves: what a random list of copies over each other leaves, is what copying
 * out of an untouched memory would; staging memory stays under the cap; the
 * smallest cap is compared with a search through every order. */
#include "dyt_test.h"

#include "base/rng.h"
#include "sched/waves.h"

#include <stdlib.h>
#include <string.h>

#define CELL  64u /* bytes: a place in staging memory */
#define CELLS 24u /* of a rank */
#define RANKS 3u
#define ITEMS (RANKS * CELLS)

struct memory {
    uint32_t cell[RANKS][CELLS]; /* unique ids */
    uint32_t staging[RANKS][ITEMS];
};

static uint32_t draw(uint64_t seed, uint64_t what, uint32_t below)
{
    return (uint32_t)(dyti_rng_u64(seed, what, 7, 0) % below);
}

/* Copies that write parts of the ranks' memories, each from somewhere; sizes
 * of up to `longest` cells. */
static size_t random_items(uint64_t seed, uint32_t ranks, uint32_t cells,
                           uint32_t longest, struct dyti_wave_item *out)
{
    size_t count = 0;
    uint64_t n = 0;

    for (uint32_t r = 0; r < ranks; r++) {
        for (uint32_t at = draw(seed, n++, 3); at < cells;) {
            uint32_t size = 1 + draw(seed, n++, longest);
            uint32_t src, lo;

            size = size < cells - at ? size : cells - at;
            src = draw(seed, n++, ranks);
            lo = draw(seed, n++, cells - size + 1);
            if (draw(seed, n++, 5) > 0 && (src != r || lo != at)) {
                out[count++] =
                    (struct dyti_wave_item){src,
                                            r,
                                            (uint64_t)lo * CELL,
                                            (uint64_t)(lo + size) * CELL,
                                            (uint64_t)at * CELL,
                                            (uint64_t)(at + size) * CELL,
                                            (uint64_t)size * CELL};
            }
            at += size;
        }
    }
    return count;
}

static void fill(struct memory *m)
{
    memset(m, 0, sizeof(*m));
    for (uint32_t i = 0; i < RANKS * CELLS; i++) {
        m->cell[i / CELLS][i % CELLS] = i + 1;
    }
}

static void oracle(const struct dyti_wave_item *item, size_t count,
                   struct memory *out)
{
    struct memory before;

    fill(out);
    fill(&before);
    for (size_t i = 0; i < count; i++) {
        memcpy(&out->cell[item[i].dst_rank][item[i].dst_lo / CELL],
               &before.cell[item[i].src_rank][item[i].src_lo / CELL],
               (item[i].src_hi - item[i].src_lo) / CELL * sizeof(uint32_t));
    }
}

static void run_action(const struct dyti_wave_item *it,
                       const struct dyti_wave_action *action, struct memory *m)
{
    size_t bytes = (it->src_hi - it->src_lo) / CELL * sizeof(uint32_t);
    uint32_t *src = &m->cell[it->src_rank][it->src_lo / CELL];
    uint32_t *dst = &m->cell[it->dst_rank][it->dst_lo / CELL];
    uint32_t *staged = &m->staging[it->dst_rank][action->staging_offset / CELL];

    memcpy(action->what == DYTI_WAVE_STAGE ? staged : dst,
           action->what == DYTI_WAVE_UNSTAGE ? staged : src, bytes);
}

/* Whatever the order inside a wave: as drawn by `order`. */
static void run(const struct dyti_wave_item *item,
                const struct dyti_waves *waves, uint64_t order,
                uint64_t cap_bytes, struct memory *m)
{
    fill(m);
    for (size_t w = 0; w < waves->wave_count; w++) {
        size_t lo = waves->wave_first[w], hi = waves->wave_first[w + 1];
        size_t left = hi - lo, at[2 * ITEMS];

        assert_true(lo < hi);
        for (size_t i = 0; i < left; i++) {
            at[i] = lo + i;
        }
        while (left > 0) {
            size_t pick = draw(order, w * 1000 + left, (uint32_t)left);
            const struct dyti_wave_action *a = &waves->action[at[pick]];

            assert_true(a->what == DYTI_WAVE_DIRECT ||
                        a->staging_offset + item[a->item].staged_bytes <=
                            cap_bytes);
            run_action(&item[a->item], a, m);
            at[pick] = at[--left];
        }
    }
}

static void check_case(uint64_t seed, const struct dyti_wave_item *item,
                       size_t count, uint64_t cap)
{
    struct dyti_waves waves = {0};
    struct memory want, have;

    assert_ok(dyti_waves_build(item, count, RANKS, cap, &waves));
    assert_true(waves.peak_bytes <= cap);
    oracle(item, count, &want);
    for (uint64_t order = 0; order < 3; order++) {
        run(item, &waves, seed * 3 + order, cap, &have);
        assert_memory_equal(want.cell, have.cell, sizeof(want.cell));
    }
    dyti_waves_fini(&waves);
}

static void any_order_in_a_wave_gives_what_the_oracle_gives(void **state)
{
    uint64_t none = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct dyti_wave_item item[ITEMS];
        size_t count =
            random_items(seed, RANKS, CELLS, 1 + draw(seed, 999, 6), item);
        uint64_t cap = 0;

        assert_ok(dyti_waves_smallest(item, count, RANKS, &cap));
        none += cap == 0;
        check_case(seed, item, count, cap);
        check_case(seed, item, count, cap + CELL * draw(seed, 1, 9));
        check_case(seed, item, count, (uint64_t)CELLS * CELL);
    }
    assert_in_range(none, 1, 399);
}

static void a_smaller_cap_is_refused_with_the_smallest(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct dyti_wave_item item[ITEMS];
        size_t count = random_items(seed, RANKS, CELLS, 4, item);
        struct dyti_waves waves;
        char number[32];
        uint64_t cap = 0;

        assert_ok(dyti_waves_smallest(item, count, RANKS, &cap));
        if (cap == 0) {
            continue;
        }
        assert_int_equal(
            DYT_ERR_UNSUPPORTED,
            dyti_waves_build(item, count, RANKS, cap - CELL, &waves));
        snprintf(number, sizeof(number), "works is %" PRIu64, cap);
        assert_non_null(strstr(dyti_error_text(), number));
        snprintf(number, sizeof(number), " %" PRIu64 " bytes", cap - CELL);
        assert_non_null(strstr(dyti_error_text(), number));
    }
}

/* ---- brute force ------------------------------------------------------------
 */

#define FEW 7u

struct search {
    const struct dyti_wave_item *item;
    size_t count;
    uint64_t cap;
    bool seen[2187]; /* 3^FEW states: waits, staged, done */
};

static bool blocked(const struct search *s, const uint8_t *state, size_t i)
{
    const struct dyti_wave_item *it = &s->item[i];

    for (size_t j = 0; j < s->count; j++) {
        const struct dyti_wave_item *o = &s->item[j];

        if (state[j] == 0 && (j != i || state[i] == 0) &&
            o->src_rank == it->dst_rank && o->src_lo < it->dst_hi &&
            it->dst_lo < o->src_hi) {
            return true;
        }
    }
    return false;
}

static bool reach(struct search *s, uint8_t *state)
{
    uint32_t code = 0;
    bool done = true;

    for (size_t i = 0; i < s->count; i++) {
        code = code * 3 + state[i];
        done = done && state[i] == 2;
    }
    if (done || s->seen[code]) {
        return done;
    }
    s->seen[code] = true;
    for (size_t i = 0; i < s->count; i++) {
        uint64_t used = s->item[i].staged_bytes;
        uint8_t was = state[i];

        if (was != 2 && !blocked(s, state, i)) {
            state[i] = 2;
            if (reach(s, state)) {
                return true;
            }
            state[i] = was;
        }
        for (size_t j = 0; j < s->count; j++) {
            used += state[j] == 1 && s->item[j].dst_rank == s->item[i].dst_rank
                        ? s->item[j].staged_bytes
                        : 0;
        }
        if (was == 0 && used <= s->cap) {
            state[i] = 1;
            if (reach(s, state)) {
                return true;
            }
            state[i] = was;
        }
    }
    return false;
}

static uint64_t brute_force(const struct dyti_wave_item *item, size_t count)
{
    struct search s = {.item = item, .count = count};

    for (s.cap = 0;; s.cap += CELL) {
        uint8_t state[FEW] = {0};

        memset(s.seen, 0, sizeof(s.seen));
        if (reach(&s, state)) {
            return s.cap;
        }
    }
}

static void the_smallest_cap_is_nearly_always_the_best(void **state)
{
    uint32_t cases = 0, best = 0;

    (void)state;
    for (uint64_t seed = 1; cases < 1000; seed++) {
        struct dyti_wave_item item[ITEMS];
        size_t count = random_items(seed, 2, 5, (uint32_t)(1 + seed % 3), item);
        uint64_t cap = 0, least;

        if (count == 0 || count > FEW) {
            continue;
        }
        assert_ok(dyti_waves_smallest(item, count, RANKS, &cap));
        least = brute_force(item, count);
        assert_true(cap >= least);
        assert_true((cap == 0) == (least == 0));
        cases++;
        best += cap == least;
    }
    print_message("%u of %u cases need no more than the best order\n", best,
                  cases);
    assert_true(best * 100 >= cases * 95);
}

static void a_full_cycle_needs_one_spare_item(void **state)
{
    struct dyti_wave_item item[RANKS];
    struct dyti_waves waves;
    uint64_t cap = 0;

    (void)state;
    for (uint32_t r = 0; r < RANKS; r++) { /* every rank gets its neighbour's */
        item[r] = (struct dyti_wave_item){
            r, (r + 1) % RANKS, 0, CELLS * CELL, 0, CELLS * CELL, CELLS * CELL};
    }
    assert_ok(dyti_waves_smallest(item, RANKS, RANKS, &cap));
    assert_int_equal(CELLS * CELL, cap);
    assert_ok(dyti_waves_build(item, RANKS, RANKS, cap, &waves));
    assert_int_equal(CELLS * CELL, waves.peak_bytes);
    dyti_waves_fini(&waves);
}

static void an_order_without_cycles_needs_nothing(void **state)
{
    struct dyti_wave_item item[CELLS];
    struct dyti_waves waves;

    (void)state;
    for (uint32_t i = 0; i + 1 < CELLS; i++) { /* all move up by one cell */
        item[i] = (struct dyti_wave_item){
            0,   0, i * CELL, (i + 1) * CELL, (i + 1) * CELL, (i + 2) * CELL,
            CELL};
    }
    assert_ok(dyti_waves_build(item, CELLS - 1, RANKS, 0, &waves));
    assert_int_equal(0, waves.peak_bytes);
    assert_int_equal(0, waves.staged_bytes);
    assert_int_equal(CELLS - 1, waves.wave_count);
    assert_int_equal(CELLS - 2, waves.action[0].item); /* the last one first */
    dyti_waves_fini(&waves);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(any_order_in_a_wave_gives_what_the_oracle_gives),
    cmocka_unit_test(a_smaller_cap_is_refused_with_the_smallest),
    cmocka_unit_test(the_smallest_cap_is_nearly_always_the_best),
    cmocka_unit_test(a_full_cycle_needs_one_spare_item),
    cmocka_unit_test(an_order_without_cycles_needs_nothing),
};
DYT_TEST_MAIN(tests)
