/* Dealing out sequences: every kept one is in exactly one micro-batch of one dp
 * rank, loads are even, and rows and targets are where they belong. */
#include "base/rng.h"
#include "dyt_test.h"
#include "trainer/batch.h"
#include "trainer/pack.h"

static void even_examples(void **state)
{
    static const uint32_t rows[] = {9, 8, 7, 1, 1, 1, 1};
    uint32_t part[7], load[2] = {0, 0};

    (void)state;
    assert_ok(dyti_pack_even(rows, 7, 2, part));
    for (size_t i = 0; i < 7; i++) {
        load[part[i]] += rows[i];
    }
    assert_int_equal(load[0], 13); /* 9 and four ones */
    assert_int_equal(load[1], 15);
}

/* Few parts, none too long, a long one alone. */
static void capped_property(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 500; round++) {
        uint32_t rows[40], part[40], parts = 0;
        uint64_t load[40] = {0}, total = 0, cap;
        uint32_t inside[40] = {0};
        size_t count = dyti_rng_u64(1, round, 0, 0) % 40;

        cap = 1 + dyti_rng_u64(1, round, 1, 0) % 60;
        for (size_t i = 0; i < count; i++) {
            rows[i] = 1 + (uint32_t)(dyti_rng_u64(1, round, 2, i) % 30);
            total += rows[i];
        }
        assert_ok(dyti_pack_capped(rows, count, cap, part, &parts));
        for (size_t i = 0; i < count; i++) {
            assert_true(part[i] < parts);
            load[part[i]] += rows[i];
            inside[part[i]]++;
        }
        for (uint32_t p = 0; p < parts; p++) {
            assert_true(inside[p] > 0);
            assert_true(load[p] <= cap || inside[p] == 1);
        }
        assert_true(count > 0 || parts == 0);
        /* Two half-empty parts would have been one; growth is by an eighth. */
        assert_true(cap < 60 || parts <= 2 + 2 * (total + cap - 1) / cap);
    }
}

static void make(struct dyti_batch *b, uint32_t prompts, uint32_t samples)
{
    *b = (struct dyti_batch){.prompt_count = prompts,
                             .sample_count = prompts * samples};
    b->prompt = calloc(prompts, sizeof(*b->prompt));
    b->sample = calloc(b->sample_count, sizeof(*b->sample));
    for (uint32_t p = 0; p < prompts; p++) {
        b->prompt[p].id = p;
        b->prompt[p].id_count = 1 + p % 3;
        b->prompt[p].ids = calloc(3, sizeof(int32_t));
        for (int32_t t = 0; t < 3; t++) {
            b->prompt[p].ids[t] = (int32_t)(1000 * p) + t;
        }
    }
    for (uint32_t i = 0; i < b->sample_count; i++) {
        struct dyti_sample *s = &b->sample[i];

        s->prompt = i / samples;
        s->index = i % samples;
        s->count = 1 + (uint32_t)(dyti_rng_u64(2, i, 0, 0) % 9);
        s->ids = calloc(s->count, sizeof(*s->ids));
        for (uint32_t t = 0; t < s->count; t++) {
            s->ids[t] = (int32_t)(100000 + 100 * i + t);
        }
    }
}

/* What the row's token has seen, itself included, as packed prefixes say. */
static uint32_t context_of(const struct dyti_nn_micro *nn, int32_t row,
                           int32_t *out_ids)
{
    const struct dyti_packed *packed = &nn->packed;
    int64_t s = 0, first;
    int64_t before;
    uint32_t n = 0;

    while (row >= packed->first[s + 1]) {
        s++;
    }
    before = dyti_packed_prefix(packed, s, &first);
    for (int64_t r = first; r < first + before; r++) {
        assert_int_equal(nn->position[r], n);
        out_ids[n++] = nn->ids[r];
    }
    for (int32_t r = packed->first[s]; r <= row; r++) {
        assert_int_equal(nn->position[r], n);
        out_ids[n++] = nn->ids[r];
    }
    return n;
}

/* Target by target: its row has seen the prompt and the tokens before it, and
 * nothing else. */
static void check_micro(const struct dyti_train_batch *tb,
                        const struct dyti_micro *m, uint32_t *seen)
{
    uint32_t target = 0;

    for (uint32_t i = 0; i < m->sequence_count; i++) {
        const struct dyti_train_sequence *s = &tb->sequence[m->sequence[i]];

        seen[m->sequence[i]]++;
        for (uint32_t t = 0; t < s->sample->count; t++, target++) {
            int32_t ids[64];
            uint32_t n = context_of(&m->nn, m->head_row[target], ids);

            assert_int_equal(n, s->prompt_count + t);
            assert_memory_equal(ids, s->prompt, s->prompt_count * sizeof(*ids));
            assert_memory_equal(ids + s->prompt_count, s->sample->ids,
                                t * sizeof(*ids));
            assert_int_equal(m->target[target], s->sample->ids[t]);
        }
    }
    assert_int_equal(target, m->target_count);
}

/* Rows: each prompt once, each answer's tokens but the last. */
static void check_rows(const struct dyti_train_batch *tb,
                       const struct dyti_micro *m)
{
    uint64_t rows = 0;

    for (uint32_t i = 0; i < m->sequence_count; i++) {
        const struct dyti_train_sequence *s = &tb->sequence[m->sequence[i]];
        bool again =
            i > 0 && tb->sequence[m->sequence[i - 1]].prompt == s->prompt;

        rows += s->sample->count - 1 + (again ? 0 : s->prompt_count);
    }
    assert_int_equal(m->nn.packed.row_count, rows);
}

/* As even as can be, then together. */
static void groups_stay_together(void **state)
{
    struct dyti_train_batch tb = {0};
    struct dyti_trainer_config c;
    struct dyti_batch b;
    bool keep[16];

    (void)state;
    dyti_trainer_config_default(&c);
    c.mini_batch = 0;
    make(&b, 4, 4);
    for (uint32_t i = 0; i < 16; i++) {
        b.sample[i].count = 9; /* only lengths are looked at */
        b.prompt[i / 4].id_count = 3;
        keep[i] = true;
    }
    assert_ok(dyti_train_batch_load(&tb, &c, 13, &b));
    assert_ok(dyti_train_batch_deal(&tb, &c, keep, 2));
    for (uint32_t i = 0; i < 16; i++) {
        assert_int_equal(tb.sequence[i].owner, tb.sequence[i / 4 * 4].owner);
    }
    /* Three groups for two ranks: they are parted. */
    for (uint32_t i = 12; i < 16; i++) {
        keep[i] = false;
    }
    assert_ok(dyti_train_batch_deal(&tb, &c, keep, 2));
    for (uint32_t g = 0; g < 3; g++) {
        assert_int_not_equal(tb.sequence[4 * g].owner,
                             tb.sequence[4 * g + 3].owner);
    }
    dyti_train_batch_fini(&tb);
    dyti_batch_fini(&b);
}

static void every_kept_sequence_is_in_one_place(void **state)
{
    struct dyti_train_batch tb = {0};
    struct dyti_micro_set set = {0};
    struct dyti_trainer_config c;
    struct dyti_batch b;
    uint32_t seen[48] = {0};
    bool keep[48];

    (void)state;
    dyti_trainer_config_default(&c);
    c.mini_batch = 16;
    make(&b, 12, 4);
    for (uint32_t i = 0; i < 48; i++) {
        keep[i] = i % 7 != 0;
    }
    assert_ok(dyti_train_batch_load(&tb, &c, 13, &b));
    assert_int_equal(tb.mini_count, 3);
    assert_ok(dyti_train_batch_deal(&tb, &c, keep, 3));
    for (uint32_t m = 0; m < 3; m++) {
        for (uint32_t dp = 0; dp < 3; dp++) {
            assert_ok(dyti_micro_set_build(&set, &tb, dp, m, m + 1, 20));
            for (uint32_t i = 0; i < set.micro_count; i++) {
                check_micro(&tb, &set.micro[i], seen);
                check_rows(&tb, &set.micro[i]);
                assert_true(set.micro[i].nn.packed.row_count <= 20);
            }
        }
    }
    for (uint32_t i = 0; i < 48; i++) {
        assert_int_equal(seen[i], keep[i]);
    }
    dyti_micro_set_fini(&set);
    dyti_train_batch_fini(&tb);
    dyti_batch_fini(&b);
}

static void wrong_batches_are_named(void **state)
{
    struct dyti_train_batch tb = {0};
    struct dyti_trainer_config c;
    struct dyti_batch b;

    (void)state;
    dyti_trainer_config_default(&c);
    make(&b, 6, 4);
    c.mini_batch = 7;
    assert_status(DYT_ERR_CONFIG, dyti_train_batch_load(&tb, &c, 13, &b));
    assert_error_has("6 and 8");
    c.mini_batch = 25;
    assert_status(DYT_ERR_CONFIG, dyti_train_batch_load(&tb, &c, 13, &b));
    assert_error_has("at most 24");
    c.mini_batch = 0;
    assert_status(DYT_ERR_INVALID, dyti_train_batch_load(&tb, &c, 4, &b));
    assert_error_has("training was set up for 4");
    b.sample[5].prompt = 99;
    assert_status(DYT_ERR_INVALID, dyti_train_batch_load(&tb, &c, 13, &b));
    assert_error_has("prompt 99 has no prompt");
    dyti_train_batch_fini(&tb);
    dyti_batch_fini(&b);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(even_examples),
    cmocka_unit_test(capped_property),
    cmocka_unit_test(every_kept_sequence_is_in_one_place),
    cmocka_unit_test(groups_stay_together),
    cmocka_unit_test(wrong_batches_are_named),
};
DYT_TEST_MAIN(tests)
