/* A trainer's cuts and a server's, over a small model with all kinds of
 * parameters: fewer KV heads than ranks, vocabulary that no number of ranks
 * divides, fused rows, rows that are views of something larger, experts in any
 * order and twice.  What arrives does not depend on how the trainer cut it. */
#include "session_members.h"

#define VOCAB  50
#define HIDDEN 16
#define HEADS  8
#define KV     2
#define DIM    2 /* of a head */
#define FFN    24
#define LAYERS 2

static const struct {
    const char *name; /* in a layer */
    uint32_t ndim;
    int64_t shape[2];
    uint32_t axis; /* that tensor parallelism cuts */
    int64_t unit;  /* of what stays together; 0: whole on every rank */
} parts[] = {
    {"self_attn.q_proj.weight", 2, {HEADS * DIM, HIDDEN}, 0, DIM},
    {"self_attn.k_proj.weight", 2, {KV * DIM, HIDDEN}, 0, DIM},
    {"self_attn.v_proj.weight", 2, {KV * DIM, HIDDEN}, 0, DIM},
    {"self_attn.o_proj.weight", 2, {HIDDEN, HEADS *DIM}, 1, DIM},
    {"mlp.gate_proj.weight", 2, {FFN, HIDDEN}, 0, 1},
    {"mlp.up_proj.weight", 2, {FFN, HIDDEN}, 0, 1},
    {"mlp.down_proj.weight", 2, {HIDDEN, FFN}, 1, 1},
    {"input_layernorm.weight", 1, {HIDDEN}, 0, 0},
    {"post_attention_layernorm.weight", 1, {HIDDEN}, 0, 0},
};
#define PARTS DYT_TEST_COUNT(parts)

static const char *named(char out[NAME_BYTES], uint32_t layer, const char *part)
{
    snprintf(out, NAME_BYTES, "model.layers.%u.%s", layer, part);
    return out;
}

/* What rank `rank` of `of` has of n units: neighbours share where there are
 * fewer. */
static void share(int64_t n, int64_t unit, uint32_t rank, uint32_t of,
                  int64_t *lo, int64_t *hi)
{
    int64_t units = n / unit;

    *lo = units >= of ? units / of * rank : rank / (of / units);
    *hi = units >= of ? *lo + units / of : *lo + 1;
    *lo *= unit;
    *hi *= unit;
}

/* ---- the trainer --------------------------------------------------------- */

/* Sharded flat: axis 0 of everything, as evenly as it goes (some ranks get
 * nothing of a short one). */
static struct member *sharded(const char *folder, uint32_t rank, uint32_t of)
{
    struct member *m = member_new(folder, DYT_ROLE_TRAINER, 0, rank, of);
    char name[NAME_BYTES];

    m->join.tp_rank = 0;
    m->join.tp_size = 1;
    m->join.dp_rank = rank;
    m->join.dp_size = of;
    member_cut(m, "model.embed_tokens.weight", DYT_F32, 2, SHAPE(VOCAB, HIDDEN),
               0, VOCAB * rank / of, VOCAB * (rank + 1) / of);
    for (uint32_t i = 0; i < LAYERS * PARTS; i++) {
        int64_t n = parts[i % PARTS].shape[0];
        int64_t lo = n * rank / of, hi = n * (rank + 1) / of;

        if (lo < hi) {
            member_cut(m, named(name, i / PARTS, parts[i % PARTS].name),
                       DYT_F32, parts[i % PARTS].ndim, parts[i % PARTS].shape,
                       0, lo, hi);
        }
    }
    member_cut(m, "model.norm.weight", DYT_F32, 1, SHAPE(HIDDEN), 0,
               HIDDEN * rank / of, HIDDEN * (rank + 1) / of);
    return m;
}

/* By tensor parallelism; KV heads twice where there are fewer than ranks. */
static struct member *parallel(const char *folder, uint32_t rank, uint32_t of)
{
    struct member *m = member_new(folder, DYT_ROLE_TRAINER, 0, rank, of);
    int64_t cut = 64 / of, lo = cut * rank, hi = lo + cut;
    char name[NAME_BYTES];

    ROW(m, "model.embed_tokens.weight", DYT_F32, cut, HIDDEN); /* padded */
    memcpy(m->row[0].global_shape, SHAPE(VOCAB, HIDDEN), 2 * sizeof(int64_t));
    member_piece(m, "model.embed_tokens.weight", 2, SHAPE(VOCAB, HIDDEN), 0,
                 lo < VOCAB ? lo : VOCAB, hi < VOCAB ? hi : VOCAB, 0);
    for (uint32_t i = 0; i < LAYERS * PARTS; i++) {
        uint32_t p = i % PARTS;

        lo = 0;
        hi = parts[p].shape[parts[p].axis];
        if (parts[p].unit > 0) {
            share(hi, parts[p].unit, rank, of, &lo, &hi);
        }
        member_cut(m, named(name, i / PARTS, parts[p].name), DYT_F32,
                   parts[p].ndim, parts[p].shape, parts[p].axis, lo, hi);
    }
    WHOLE(m, "model.norm.weight", DYT_F32, HIDDEN);
    return m;
}

/* ---- the server ---------------------------------------------------------- */

static void fused(struct member *m, uint32_t layer, const char *as,
                  uint32_t first, uint32_t count, uint32_t rank, uint32_t of)
{
    int64_t lo[3], hi[3], rows = 0, at = 0;
    char name[NAME_BYTES];

    for (uint32_t i = 0; i < count; i++) {
        share(parts[first + i].shape[0], parts[first + i].unit, rank, of,
              &lo[i], &hi[i]);
        rows += hi[i] - lo[i];
    }
    ROW(m, named(name, layer, as), DYT_F32, rows, HIDDEN);
    for (uint32_t i = 0; i < count; i++) {
        member_piece(m, named(name, layer, parts[first + i].name), 2,
                     parts[first + i].shape, 0, lo[i], hi[i], at);
        at += hi[i] - lo[i];
    }
}

/* Rows as a known server has them, explained by its table. */
static struct member *server(const char *folder, uint32_t rank, uint32_t of)
{
    static const struct dyt_attribute head_dim = {"head_dim", DIM};
    struct member *m = member_new(folder, DYT_ROLE_RECEIVER, 0, rank, of);
    int64_t cut = 64 / of, lo = cut * rank, hi = lo + cut;
    char name[NAME_BYTES];

    assert_ok(dyt_rules_builtin("vllm/llama", &m->rules));
    m->by_rules = true;
    m->join.attribute = &head_dim;
    m->join.attribute_count = 1;
    ROW(m, "model.embed_tokens.weight", DYT_F32, cut, HIDDEN);
    m->padded[0] = true;
    member_piece(m, "model.embed_tokens.weight", 2, SHAPE(VOCAB, HIDDEN), 0,
                 lo < VOCAB ? lo : VOCAB, hi < VOCAB ? hi : VOCAB, 0);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        fused(m, layer, "self_attn.qkv_proj.weight", 0, 3, rank, of);
        fused(m, layer, "mlp.gate_up_proj.weight", 4, 2, rank, of);
        for (uint32_t p = 3; p < PARTS; p++) {
            int64_t n = parts[p].shape[parts[p].axis], own[2];

            if (p == 4 || p == 5) {
                continue;
            }
            lo = 0;
            hi = n;
            if (parts[p].unit > 0) {
                share(n, parts[p].unit, rank, of, &lo, &hi);
            }
            memcpy(own, parts[p].shape, sizeof(own));
            own[parts[p].axis] = hi - lo;
            member_row(m, named(name, layer, parts[p].name), DYT_F32,
                       parts[p].ndim, own, 0);
            member_piece(m, name, parts[p].ndim, parts[p].shape, parts[p].axis,
                         lo, hi, 0);
        }
    }
    ROW(m, "model.norm.weight", DYT_F32, HIDDEN);
    member_piece(m, "model.norm.weight", 1, SHAPE(HIDDEN), 0, 0, HIDDEN, 0);
    return m;
}

typedef struct member *(*member_maker)(const char *folder, uint32_t rank,
                                       uint32_t of);

/* Two versions between `nt` ranks and `nr`; the hash of the second, on all of
 * them. */
static uint64_t bring(member_maker trainer, uint32_t nt, uint32_t nr,
                      const struct session_mode *mode)
{
    const char *folder = session_folder();
    struct member *t[MEMBERS], *r[MEMBERS];
    uint64_t sum = 0;

    for (uint32_t i = 0; i < nt; i++) {
        t[i] = trainer(folder, i, nt);
    }
    for (uint32_t i = 0; i < nr; i++) {
        r[i] = server(folder, i, nr);
        r[i]->join.commit = mode->commit;
        r[i]->join.memory = mode->memory;
    }
    all_ok(t, nt, enter);
    all_ok(r, nr, enter);
    pass_on(t, nt, r, nr, 1);
    pass_on(t, nt, r, nr, 2);
    for (uint32_t i = 0; i < nt; i++) { /* with its padding as it was */
        assert_true(holds(t[i], 2));
    }
    for (uint32_t i = 0; i < nr; i++) {
        for (uint64_t row = 0; row < r[i]->rows; row++) {
            uint64_t hash = 0;

            assert_ok(dyt_session_row_hash(r[i]->session, row, &hash));
            sum = sum * 31 + hash;
        }
    }
    all_leave(t, nt, r, nr);
    return sum;
}

static void fewer_kv_heads_than_ranks(void **state)
{
    static const uint32_t degrees[][2] = {{1, 4}, {1, 8}, {2, 8}, {4, 2},
                                          {8, 1}, {8, 2}, {8, 8}};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(degrees); i++) {
        bring(parallel, degrees[i][0], degrees[i][1], &session_modes[i % 4]);
    }
}

/* Of four ranks that share two KV heads, two have rows of queries only, on
 * either side. */
static struct member *queries(const char *folder, uint32_t role, uint32_t rank,
                              uint32_t of)
{
    struct member *m = member_new(folder, role, 0, rank, of);
    int64_t q = HEADS * DIM / of, kv = (int64_t)(rank / (of / KV)) * DIM;

    member_cut(m, "q.weight", DYT_F32, 2, SHAPE(HEADS * DIM, HIDDEN), 0,
               q * rank, q * (rank + 1));
    if (rank % (of / KV) == 0) {
        member_cut(m, "k.weight", DYT_F32, 2, SHAPE(KV * DIM, HIDDEN), 0, kv,
                   kv + DIM);
        member_cut(m, "v.weight", DYT_F32, 2, SHAPE(KV * DIM, HIDDEN), 0, kv,
                   kv + DIM);
    }
    return m;
}

static void ranks_may_have_rows_of_queries_only(void **state)
{
    static const uint32_t degrees[][2] = {{4, 8}, {8, 4}, {2, 8}, {8, 2}};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        const char *folder = session_folder();
        uint32_t nt = degrees[i][0], nr = degrees[i][1];
        struct member *t[8], *r[8];

        for (uint32_t k = 0; k < nt; k++) {
            t[k] = queries(folder, DYT_ROLE_TRAINER, k, nt);
        }
        for (uint32_t k = 0; k < nr; k++) {
            r[k] = queries(folder, DYT_ROLE_RECEIVER, k, nr);
            r[k]->join.commit = session_modes[i].commit;
            r[k]->join.memory = session_modes[i].memory;
        }
        all_ok(t, nt, enter);
        all_ok(r, nr, enter);
        pass_on(t, nt, r, nr, 1);
        pass_on(t, nt, r, nr, 2);
        all_leave(t, nt, r, nr);
    }
}

static void sizes_that_no_number_of_ranks_divides(void **state)
{
    static const uint32_t degrees[][2] = {{3, 1}, {5, 2}, {7, 4}, {4, 8}};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(degrees); i++) {
        bring(sharded, degrees[i][0], degrees[i][1], &session_modes[i % 4]);
    }
}

static void what_arrives_does_not_depend_on_the_trainers_cut(void **state)
{
    uint64_t first = bring(sharded, 1, 2, &session_modes[0]);

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(session_modes); i++) {
        assert_int_equal(first, bring(sharded, 2, 2, &session_modes[i]));
        assert_int_equal(first, bring(sharded, 8, 2, &session_modes[i]));
        assert_int_equal(first, bring(parallel, 4, 2, &session_modes[i]));
    }
}

/* Updates that change nothing change nothing. */
static void updates_without_a_change_leave_every_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(session_modes); i++) {
        const char *folder = session_folder();
        struct member *t[3], *r[2];
        uint64_t hash = 0, before = 0;

        for (uint32_t k = 0; k < 3; k++) {
            t[k] = sharded(folder, k, 3);
        }
        for (uint32_t k = 0; k < 2; k++) {
            r[k] = server(folder, k, 2);
            r[k]->join.commit = session_modes[i].commit;
            r[k]->join.memory = session_modes[i].memory;
        }
        all_ok(t, 3, enter);
        all_ok(r, 2, enter);
        pass_on(t, 3, r, 2, 1);
        assert_ok(dyt_session_row_hash(r[1]->session, 1, &before));
        for (uint64_t v = 2; v <= 20; v++) {
            all_ask(t, 3, v, -1);
            all_ok(t, 3, offer_as_is);
            all_ask(r, 2, v, -1);
            all_ok(r, 2, receive);
            all_ok(t, 3, end_offer);
            assert_true(holds(r[0], 1) && holds(r[1], 1));
            assert_ok(dyt_session_row_hash(r[1]->session, 1, &hash));
            assert_int_equal(before, hash);
        }
        all_leave(t, 3, r, 2);
    }
}

/* ---- views of something larger ------------------------------------------- */

/* All elements of the pieces, whatever lies beside them. */
static bool has_elements(struct member *m, uint64_t version)
{
    for (uint32_t r = 0; r < m->rows; r++) {
        bool *seen = calloc(row_elements(&m->row[r]) + 1u, 1);
        struct version_check c = {.version = version,
                                  .data = m->row[r].data,
                                  .seen = seen,
                                  .member = m};
        bool ok = seen != NULL && visit_row(m, r, check_element, &c);

        free(seen);
        if (!ok) {
            return false;
        }
    }
    return true;
}

/* Rows with a pitch, two of them side by side in one allocation: what lies
 * between and beside them is not touched. */
static void rows_may_be_views_of_something_larger(void **state)
{
    (void)state;
    for (uint32_t mode = 0; mode < 2; mode++) { /* in memory of their own */
        const char *folder = session_folder();
        struct member *t[2], *r[1];
        float *big;

        for (uint32_t i = 0; i < 2; i++) {
            t[i] = member_new(folder, DYT_ROLE_TRAINER, 0, i, 2);
            member_cut(t[i], "q.weight", DYT_F32, 2, SHAPE(11, 6), 0, i * 5,
                       i == 0 ? 5 : 11);
            member_cut(t[i], "k.weight", DYT_F32, 2, SHAPE(7, 6), 1, i * 3,
                       (i + 1) * 3);
        }
        r[0] = member_new(folder, DYT_ROLE_RECEIVER, 0, 0, 1);
        r[0]->join.commit = session_modes[mode].commit;
        member_row(r[0], "q.weight", DYT_F32, 2, SHAPE(11, 6), 16);
        member_piece(r[0], "q.weight", 2, SHAPE(11, 6), 0, 0, 11, 0);
        member_row(r[0], "k.weight", DYT_F32, 2, SHAPE(7, 6), 16);
        member_piece(r[0], "k.weight", 2, SHAPE(7, 6), 0, 0, 7, 0);
        big = r[0]->row[0].data;
        for (int i = 0; i < 11 * 16; i++) {
            big[i] = UNTOUCHED;
        }
        r[0]->row[1].data = big + 8; /* columns 8 … 13 of the same lines */
        all_ok(t, 2, enter);
        all_ok(r, 1, enter);
        for (uint64_t v = 1; v <= 3; v++) {
            all_offer(t, 2, v);
            all_ask(r, 1, v, -1);
            all_ok(r, 1, receive);
            assert_true(has_elements(r[0], v));
            all_ok(t, 2, end_offer);
            for (int i = 0; i < 11 * 16; i++) {
                bool mine =
                    i % 16 < 6 || (i % 16 >= 8 && i % 16 < 14 && i / 16 < 7);

                assert_true(mine || big[i] == UNTOUCHED);
            }
        }
        all_leave(t, 2, r, 1);
    }
}

/* ---- experts ------------------------------------------------------------- */

/* Two workers with experts in an order of their own, one of them twice: every
 * place gets the expert that the map says, both copies too. */
static void experts_go_where_the_map_says(void **state)
{
    static const int32_t map[2][3] = {{3, 0, 4}, {1, 4, 2}};
    static const struct dyt_rule_part part = {
        .struct_size = sizeof(part),
        .tensor = "layers.{layer}.experts.{expert}.weight",
        .cut = DYT_RULE_EXPERTS,
        .per_expert = 1,
        .stack_axis = 0};
    static const struct dyt_rule rule = {.struct_size = sizeof(rule),
                                         .part_struct_size = sizeof(part),
                                         .name = "layers.{layer}.w13",
                                         .part = &part,
                                         .part_count = 1};
    static const struct dyt_rules rules = {.struct_size = sizeof(rules),
                                           .rule_struct_size = sizeof(rule),
                                           .family = "mine",
                                           .rule = &rule,
                                           .rule_count = 1};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(session_modes); i++) {
        const char *folder = session_folder();
        struct member *t[1] = {member_new(folder, DYT_ROLE_TRAINER, 0, 0, 1)};
        struct member *r[2];
        char name[NAME_BYTES];

        for (int x = 0; x < 5; x++) {
            snprintf(name, sizeof(name), "layers.0.experts.%d.weight", x);
            WHOLE(t[0], name, DYT_F32, 4, 6);
        }
        for (uint32_t k = 0; k < 2; k++) {
            r[k] = member_new(folder, DYT_ROLE_RECEIVER, 0, k, 2);
            r[k]->join.commit = session_modes[i].commit;
            r[k]->join.memory = session_modes[i].memory;
            r[k]->join.ep_rank = k;
            r[k]->join.ep_size = 2;
            r[k]->join.expert = map[k];
            r[k]->join.expert_count = 3;
            r[k]->rules = &rules;
            r[k]->by_rules = true;
            ROW(r[k], "layers.0.w13", DYT_F32, 3, 4, 6);
            for (int64_t place = 0; place < 3; place++) {
                snprintf(name, sizeof(name), "layers.0.experts.%d.weight",
                         map[k][place]);
                member_piece(r[k], name, 2, SHAPE(4, 6), 0, 0, 4, place);
            }
        }
        all_ok(t, 1, enter);
        all_ok(r, 2, enter);
        pass_on(t, 1, r, 2, 1);
        pass_on(t, 1, r, 2, 2);
        all_leave(t, 1, r, 2);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(fewer_kv_heads_than_ranks),
    cmocka_unit_test(ranks_may_have_rows_of_queries_only),
    cmocka_unit_test(sizes_that_no_number_of_ranks_divides),
    cmocka_unit_test(what_arrives_does_not_depend_on_the_trainers_cut),
    cmocka_unit_test(updates_without_a_change_leave_every_bit),
    cmocka_unit_test(rows_may_be_views_of_something_larger),
    cmocka_unit_test(experts_go_where_the_map_says),
};
DYT_TEST_MAIN(tests)
