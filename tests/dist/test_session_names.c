/* Who is who, and what is what: places that two members claim, rows whose names
 * or dtypes differ, in any order, tied or not.  All of it is found before a
 * byte moves, and disturbs nobody who is there. */
#include "session_members.h"

/* ---- places -------------------------------------------------------------- */

static struct member *small(const char *folder, uint32_t role, uint32_t replica,
                            uint32_t rank, uint32_t size)
{
    struct member *m = member_new(folder, role, replica, rank, size);

    member_cut(m, "a.weight", DYT_F32, 2, SHAPE(24, 6), 0, 24 / size * rank,
               24 / size * (rank + 1));
    return m;
}

/* Ranks of one server that were all given the same place. */
static void one_place_is_one_member(void **state)
{
    const char *folder = session_folder();
    struct member *t[1] = {small(folder, DYT_ROLE_TRAINER, 0, 0, 1)};
    struct member *r[4], *wrong[4];

    (void)state;
    all_ok(t, 1, enter);
    for (uint32_t i = 0; i < 4; i++) {
        r[i] = small(folder, DYT_ROLE_RECEIVER, 0, i, 4);
    }
    all_ok(r, 4, enter);
    for (uint32_t i = 0; i < 4; i++) {
        wrong[i] = small(folder, DYT_ROLE_RECEIVER, 0, 2, 4);
    }
    all_call(wrong, 4, enter);
    all_are(wrong, 4, DYT_ERR_BUSY);
    for (uint32_t i = 0; i < 4; i++) {
        assert_non_null(strstr(wrong[i]->text, "rank 2 of replica rollout/0"));
        leave(wrong[i]);
    }
    pass_on(t, 1, r, 4, 1);
    all_leave(t, 1, r, 4);
}

/* Ranks that join again at once, as a server does that is set up otherwise:
 * nothing of who left is in their way. */
static void a_place_is_free_when_its_member_has_left(void **state)
{
    const char *folder = session_folder();
    struct member *t[1] = {small(folder, DYT_ROLE_TRAINER, 0, 0, 1)};
    struct member *r[3];

    (void)state;
    all_ok(t, 1, enter);
    for (uint64_t turn = 1; turn <= 20; turn++) {
        for (uint32_t i = 0; i < 3; i++) {
            r[i] = small(folder, DYT_ROLE_RECEIVER, 0, i, 3);
        }
        all_ok(r, 3, enter);
        pass_on(t, 1, r, 3, turn);
        for (uint32_t i = 0; i < 3; i++) {
            leave(r[i]);
        }
    }
    leave(t[0]);
}

static void coordinates_are_one_members(void **state)
{
    const char *folder = session_folder();
    struct member *t[1] = {small(folder, DYT_ROLE_TRAINER, 0, 0, 1)};
    struct member *r[2], *wrong = small(folder, DYT_ROLE_RECEIVER, 0, 1, 2);

    (void)state;
    all_ok(t, 1, enter);
    r[0] = small(folder, DYT_ROLE_RECEIVER, 0, 0, 2);
    r[1] = small(folder, DYT_ROLE_RECEIVER, 0, 1, 2);
    assert_ok(dyt_session_join(&r[0]->join, &r[0]->session));
    wrong->join.tp_rank = 0; /* rank 1 of 2, but the first's coordinates */
    assert_status(DYT_ERR_CONFIG, enter(wrong));
    assert_non_null(strstr(wrong->text, "coordinates"));
    wrong->join.tp_rank = 2;
    assert_status(DYT_ERR_CONFIG, enter(wrong));
    leave(wrong);
    leave(r[0]);
    r[0] = small(folder, DYT_ROLE_RECEIVER, 0, 0, 2);
    all_ok(r, 2, enter);
    pass_on(t, 1, r, 2, 1);
    all_leave(t, 1, r, 2);
}

/* A pipeline stage that comes as a trainer of its own takes nobody's place:
 * stages are ranks of one trainer. */
static void stages_are_ranks_of_one_trainer(void **state)
{
    static const char *const stage[2] = {"layers.0.weight", "layers.1.weight"};
    const char *folder = session_folder();
    struct member *t[2], *r[1], *alone;

    (void)state;
    r[0] = member_new(folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    for (uint32_t i = 0; i < 2; i++) {
        t[i] = member_new(folder, DYT_ROLE_TRAINER, 0, i, 2);
        t[i]->join.tp_rank = 0;
        t[i]->join.tp_size = 1;
        t[i]->join.pp_rank = i;
        t[i]->join.pp_size = 2;
        WHOLE(t[i], stage[i], DYT_F32, 5, 7);
        WHOLE(r[0], stage[i], DYT_F32, 5, 7);
    }
    all_ok(t, 2, enter);
    all_ok(r, 1, enter);
    pass_on(t, 2, r, 1, 1);
    alone = member_new(folder, DYT_ROLE_TRAINER, 0, 0, 1);
    WHOLE(alone, stage[1], DYT_F32, 5, 7);
    assert_status(DYT_ERR_BUSY, enter(alone));
    assert_non_null(strstr(alone->text, "a job has one trainer"));
    leave(alone);
    pass_on(t, 2, r, 1, 2);
    all_leave(t, 2, r, 1);
}

/* ---- dtypes and order ---------------------------------------------------- */

/* A list with a wider tensor in the middle, in any order on either side. */
static void rows_of_any_dtype_come_in_any_order(void **state)
{
    static const struct {
        const char *name;
        enum dyt_dtype dtype;
        int64_t n;
    } row[4] = {{"a.weight", DYT_BF16, 33},
                {"a.bias", DYT_F32, 7},
                {"b.weight", DYT_BF16, 50},
                {"b.bias", DYT_F32, 1}};

    (void)state;
    for (uint32_t order = 0; order < 24; order++) {
        const char *folder = session_folder();
        struct member *t[1] = {member_new(folder, DYT_ROLE_TRAINER, 0, 0, 1)};
        struct member *r[1] = {member_new(folder, DYT_ROLE_RECEIVER, 0, 0, 1)};
        const struct session_mode *mode = &session_modes[order % 4];
        uint32_t left[4] = {0, 1, 2, 3}, pick = order;

        r[0]->join.commit = mode->commit;
        r[0]->join.memory = mode->memory;
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t at = pick % (4 - i), mine = left[at];

            pick /= 4 - i;
            memmove(&left[at], &left[at + 1], (3 - at) * sizeof(left[0]));
            WHOLE(t[0], row[i].name, row[i].dtype, row[i].n);
            WHOLE(r[0], row[mine].name, row[mine].dtype, row[mine].n);
        }
        all_ok(t, 1, enter);
        all_ok(r, 1, enter);
        pass_on(t, 1, r, 1, 1 + order);
        all_leave(t, 1, r, 1);
    }
}

/* ---- names --------------------------------------------------------------- */

static struct member *named(const char *folder, uint32_t role, bool head)
{
    struct member *m = member_new(folder, role, 0, 0, 1);

    WHOLE(m, "model.embed_tokens.weight", DYT_F32, 50, 4);
    WHOLE(m, "model.layers.0.mlp.gate_proj.weight", DYT_F32, 6, 4);
    WHOLE(m, "model.layers.0.mlp.up_proj.weight", DYT_F32, 6, 4);
    if (head) {
        WHOLE(m, "lm_head.weight", DYT_F32, 50, 4);
    }
    return m;
}

/* Every wrong row of a dialect that the trainer does not speak, at once. */
static void a_wrong_dialect_is_refused_with_all_that_does_not_fit(void **state)
{
    const char *folder = session_folder();
    struct member *t[1] = {named(folder, DYT_ROLE_TRAINER, true)};
    struct member *r[1], *wrong;

    (void)state;
    all_ok(t, 1, enter);
    wrong = member_new(folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    WHOLE(wrong, "model.embed_tokens.weigth", DYT_F32, 50, 4); /* misspelt */
    WHOLE(wrong, "model.layers.0.mlp.up_proj.weight", DYT_F32, 4, 6);
    WHOLE(wrong, "transformer.wte", DYT_F32, 50, 4); /* another dialect's */
    assert_status(DYT_ERR_LAYOUT, enter(wrong));
    assert_non_null(strstr(wrong->text, "model.embed_tokens.weigth"));
    assert_non_null(strstr(wrong->text, "model.embed_tokens.weight"));
    assert_non_null(strstr(wrong->text, "model.layers.0.mlp.up_proj.weight"));
    assert_non_null(strstr(wrong->text, "transformer.wte"));
    leave(wrong);
    /* a tensor that nobody of the replica has */
    wrong = named(folder, DYT_ROLE_RECEIVER, false);
    assert_status(DYT_ERR_LAYOUT, enter(wrong));
    assert_non_null(strstr(wrong->text, "lm_head.weight"));
    leave(wrong);
    r[0] = named(folder, DYT_ROLE_RECEIVER, true);
    all_ok(r, 1, enter); /* and the place is free */
    pass_on(t, 1, r, 1, 1);
    all_leave(t, 1, r, 1);
}

/* A list of many is told whole, and what is too long of it is counted. */
static void all_that_is_missing_is_told(void **state)
{
    static char name[12][64];
    const char *folder = session_folder();
    struct member *t[1] = {member_new(folder, DYT_ROLE_TRAINER, 0, 0, 1)};
    struct member *r = member_new(folder, DYT_ROLE_RECEIVER, 0, 0, 1);

    (void)state;
    for (uint32_t i = 0; i < 12; i++) {
        snprintf(name[i], sizeof(name[i]),
                 "model.layers.%u.self_attn.q_proj.weight", i);
        WHOLE(t[0], name[i], DYT_F32, 4, 6);
    }
    WHOLE(r, name[0], DYT_F32, 4, 6);
    all_ok(t, 1, enter);
    assert_status(DYT_ERR_LAYOUT, enter(r));
    for (uint32_t i = 1; i <= 10; i++) {
        char says[160];

        snprintf(says, sizeof(says),
                 "missing: param of %s, [4, 6], is in no row of the replica",
                 name[i]);
        assert_error_has(says);
    }
    assert_error_has("; and 1 more");
    leave(r);
    leave(t[0]);
}

/* What a trainer's ranks leave out of their own tensors is theirs. */
static void a_trainer_that_leaves_a_gap_hears_so(void **state)
{
    const char *folder = session_folder();
    struct member *t = member_new(folder, DYT_ROLE_TRAINER, 0, 0, 1);

    (void)state;
    member_cut(t, "a.weight", DYT_F32, 2, SHAPE(24, 6), 0, 0, 23);
    assert_status(DYT_ERR_LAYOUT, enter(t));
    assert_error_has("element [23, 0] of param of a.weight, [24, 6], is in no "
                     "row of the trainer");
    leave(t);
}

/* ---- heads --------------------------------------------------------------- */

/* Rank `rank` of a server whose rows a table of rules explains. */
static struct member *server(const char *folder, uint32_t rank, uint32_t tp,
                             const char *head, bool same_memory)
{
    struct member *m = member_new(folder, DYT_ROLE_RECEIVER, 0, rank, tp);
    int64_t lo = rank * 32, hi = tp == 1 ? 50 : lo + (rank == 0 ? 32 : 18);
    int64_t half = 6 / tp;

    assert_ok(dyt_rules_builtin("vllm/llama", &m->rules));
    m->by_rules = true;
    ROW(m, "model.embed_tokens.weight", DYT_F32, 64 / tp, 4);
    member_piece(m, "model.embed_tokens.weight", 2, SHAPE(50, 4), 0, lo, hi, 0);
    ROW(m, "lm_head.weight", DYT_F32, 64 / tp, 4);
    m->padded[0] = m->padded[1] = true;
    member_piece(m, head, 2, SHAPE(50, 4), 0, lo, hi, 0);
    if (same_memory) {
        m->row[1].data = m->row[0].data;
        m->row[1].flags |= DYT_ROW_ALIAS;
    }
    ROW(m, "model.layers.0.mlp.gate_up_proj.weight", DYT_F32, 2 * half, 4);
    member_piece(m, "model.layers.0.mlp.gate_proj.weight", 2, SHAPE(6, 4), 0,
                 half * rank, half * (rank + 1), 0);
    member_piece(m, "model.layers.0.mlp.up_proj.weight", 2, SHAPE(6, 4), 0,
                 half * rank, half * (rank + 1), half);
    return m;
}

/* Tied: one tensor with two names, which the server has once or twice; untied:
 * two.  On one rank or two, with vocabulary that is padded on the server:
 * padding is zero there, whatever lay in it before. */
static void a_head_is_the_embedding_or_its_own(void **state)
{
    static const struct {
        bool head, same_memory;
    } trial[] = {{false, true}, {false, false}, {true, false}};

    (void)state;
    for (uint32_t i = 0; i < DYT_TEST_COUNT(trial) * 2; i++) {
        bool own = trial[i / 2].head;
        uint32_t tp = 1 + i % 2;
        const char *folder = session_folder();
        struct member *t[1] = {named(folder, DYT_ROLE_TRAINER, own)};
        struct member *r[2];

        for (uint32_t rank = 0; rank < tp; rank++) {
            r[rank] =
                server(folder, rank, tp,
                       own ? "lm_head.weight" : "model.embed_tokens.weight",
                       trial[i / 2].same_memory);
        }
        all_ok(t, 1, enter);
        all_ok(r, tp, enter);
        pass_on(t, 1, r, tp, 1);
        pass_on(t, 1, r, tp, 2);
        all_leave(t, 1, r, tp);
    }
}

/* ---- draft models -------------------------------------------------------- */

static void is_refused_with_the_remedy(struct member *wrong,
                                       enum dyt_status want, const char *tensor)
{
    assert_status(want, enter(wrong));
    if (strstr(wrong->text, tensor) == NULL ||
        strstr(wrong->text, "draft model") == NULL ||
        strstr(wrong->text, "job of") == NULL ||
        strstr(wrong->text, "another address") == NULL) {
        fail_msg("%s", wrong->text);
    }
    leave(wrong);
}

/* A draft model's tensors are a target of their own, whoever brings them into
 * the policy's job: named, with what to do, and nobody is disturbed. */
static void a_draft_model_is_sent_to_a_job_of_its_own(void **state)
{
    const char *folder = session_folder();
    struct member *t[1] = {named(folder, DYT_ROLE_TRAINER, true)};
    struct member *r[1], *wrong;

    (void)state;
    all_ok(t, 1, enter);
    r[0] = named(folder, DYT_ROLE_RECEIVER, true);
    all_ok(r, 1, enter);
    /* a pool for it, with tensors that the trainer has not */
    wrong = member_new(folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    wrong->join.pool = "draft";
    WHOLE(wrong, "model.fc.weight", DYT_F32, 4, 8);
    is_refused_with_the_remedy(wrong, DYT_ERR_LAYOUT, "model.fc.weight");
    /* … and with too few of those that it has */
    wrong = named(folder, DYT_ROLE_RECEIVER, false);
    wrong->join.pool = "draft";
    is_refused_with_the_remedy(wrong, DYT_ERR_LAYOUT, "lm_head.weight");
    /* among the policy's, by rules */
    wrong = server(folder, 0, 1, "lm_head.weight", false);
    wrong->join.replica = 1;
    ROW(wrong, "draft_model.fc.weight", DYT_F32, 4, 8);
    is_refused_with_the_remedy(wrong, DYT_ERR_UNSUPPORTED,
                               "draft_model.fc.weight");
    pass_on(t, 1, r, 1, 1);
    all_leave(t, 1, r, 1);
}

/* The trainer publishes both; and then each in its job. */
static void a_trainer_publishes_a_draft_by_itself(void **state)
{
    const char *folder = session_folder();
    struct member *t[1] = {named(folder, DYT_ROLE_TRAINER, true)};
    struct member *r[1];

    (void)state;
    WHOLE(t[0], "draft_model.fc.weight", DYT_F32, 4, 8);
    all_ok(t, 1, enter);
    is_refused_with_the_remedy(named(folder, DYT_ROLE_RECEIVER, true),
                               DYT_ERR_LAYOUT, "draft_model.fc.weight");
    leave(t[0]);
    for (uint32_t draft = 0; draft < 2; draft++) {
        folder = session_folder();
        if (draft == 0) {
            t[0] = named(folder, DYT_ROLE_TRAINER, true);
            r[0] = named(folder, DYT_ROLE_RECEIVER, true);
        } else {
            t[0] = member_new(folder, DYT_ROLE_TRAINER, 0, 0, 1);
            r[0] = member_new(folder, DYT_ROLE_RECEIVER, 0, 0, 1);
            r[0]->join.pool = "draft";
            WHOLE(t[0], "draft_model.fc.weight", DYT_F32, 4, 8);
            WHOLE(r[0], "draft_model.fc.weight", DYT_F32, 4, 8);
        }
        all_ok(t, 1, enter);
        all_ok(r, 1, enter);
        pass_on(t, 1, r, 1, 1);
        all_leave(t, 1, r, 1);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_place_is_one_member),
    cmocka_unit_test(a_place_is_free_when_its_member_has_left),
    cmocka_unit_test(coordinates_are_one_members),
    cmocka_unit_test(stages_are_ranks_of_one_trainer),
    cmocka_unit_test(rows_of_any_dtype_come_in_any_order),
    cmocka_unit_test(a_wrong_dialect_is_refused_with_all_that_does_not_fit),
    cmocka_unit_test(all_that_is_missing_is_told),
    cmocka_unit_test(a_trainer_that_leaves_a_gap_hears_so),
    cmocka_unit_test(a_draft_model_is_sent_to_a_job_of_its_own),
    cmocka_unit_test(a_trainer_publishes_a_draft_by_itself),
    cmocka_unit_test(a_head_is_the_embedding_or_its_own),
};
DYT_TEST_MAIN(tests)
