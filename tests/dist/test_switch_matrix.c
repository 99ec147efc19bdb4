/* The whole matrix: any model, any two layouts of any dialect, any kinds, in
 * every mode, by every mover.  Each switch is carried out by ranks that are
 * threads, and leaves what arrays of unique ids, moved element by element,
 * would hold; nothing else is touched, and no more memory than the mode's row
 * says.  What fails is shrunk to the smallest switch that does. */
#include "matrix_draw.h"
#include "matrix_oracle.h"

#include "comm/shm/shm.h"
#include "device/host/clock.h"
#include "device/host/host.h"
#include "device/host/memory.h"
#include "mover/direct/direct.h"
#include "mover/message/message.h"

static const char refusal[] = "smallest cap that works is ";

/* What the ranks of one switch share. */
struct play {
    const struct mx_case *c;
    const struct dyti_memory_ops *ops;
    int control, segment[MX_RANKS_MAX];
    struct dyti_segment_mem control_mem, segment_mem[MX_RANKS_MAX];
    _Atomic uint64_t least; /* cap that a refusal names; 0: none */
    bool faulty;            /* rank 0 leaves a bit wrong, and nobody verifies */
};

/* ---- one rank --------------------------------------------------------------
 */

static enum dyt_status open_world(const struct play *play, uint32_t rank,
                                  const struct dyti_kernels *kernels,
                                  struct dyti_world **out_world)
{
    static const enum dyti_page_kind pages[MX_RANKS_MAX]; /* 4K */
    const struct mx_case *c = play->c;
    int64_t mover = c->value[MX_MOVER];
    struct dyti_world_params params = {
        .struct_size = sizeof(params),
        .rank = rank,
        .world_size = c->world,
        .map = c->map,
        .control_pages = DYTI_PAGES_4K,
        .segment_pages = pages,
        .control_mem = &play->control_mem,
        .segment_mem = play->segment_mem,
        .memory = play->ops,
        .group = &dyti_group_shm,
        .mover = &dyti_mover_direct,
        .message = mover >= MX_MIXED ? &dyti_mover_message : NULL,
        .host = mover == MX_MIXED ? c->host : NULL,
        .wait = &dyti_wait_futex,
        .clock = &dyti_clock_host,
        .kernels = *kernels,
        .timeout_ns = 20000000000,
        .oversubscribed = true};

    for (int s = 0; s < DYTI_ARENA_SLOT_COUNT; s++) {
        params.layout[s] = c->layout[s];
    }
    return dyti_world_open(&params, out_world);
}

static enum dyt_status prepare(const struct play *play,
                               struct dyti_world *world,
                               struct dyti_switch **out_switch)
{
    const struct mx_case *c = play->c;
    const int64_t *v = c->value;
    struct dyti_world_switch_options options = {
        .kinds = c->kinds,
        .side = v[MX_MOVER] == MX_PUSH ||
                        (v[MX_MOVER] == MX_MIXED && v[MX_MIXED_PUSH] != 0)
                    ? DYTI_SIDE_PUSH
                    : DYTI_SIDE_PULL,
        .mover =
            v[MX_MOVER] == MX_MESSAGES ? DYTI_WORLD_MESSAGE : DYTI_WORLD_AUTO,
        .strategy = dyti_strategy_at((size_t)v[MX_STRATEGY]),
        .staging_bytes = (uint64_t)v[MX_STAGING],
        .message_bytes = (uint64_t)v[MX_MESSAGE],
        .no_fan_out = v[MX_NO_FAN_OUT] != 0};

    return dyti_world_prepare(world, c->from, c->to, &options, out_switch,
                              NULL);
}

static void check_memory(const struct play *play, struct dyt_rank *me)
{
    const struct mx_case *c = play->c;
    const struct dyti_arena_map *map = &c->map[me->rank];
    const struct dyti_segment_mem *mem = &play->segment_mem[me->rank];
    struct dyti_arena_cost cost;
    uint64_t touched = 0, slack = 2 * 4096; /* work, staging */

    for (int i = 0; i < DYTI_ARENA_SLOT_COUNT * DYTI_KIND_COUNT; i++) {
        slack += map->bytes[i / DYTI_KIND_COUNT][i % DYTI_KIND_COUNT] > 0
                     ? 2 * 4096
                     : 0;
    }
    rank_ok(me, dyti_arena_cost((const struct dyti_layout *const *)c->layout,
                                me->rank, &c->options, &cost));
    if (mem->base != NULL) {
        rank_ok(me, play->ops->touched(mem, 0, mem->bytes, &touched));
    }
    if (touched > cost.total + slack) {
        rank_wrong(me, "%" PRIu64 " bytes touched, the row says %" PRIu64,
                   touched, cost.total);
    }
}

/* Once more: what the last one has overlaid is written anew. */
static void switch_once(const struct play *play, struct dyti_world *world,
                        struct dyti_switch *self, uint64_t version,
                        struct dyt_rank *me)
{
    const struct mx_case *c = play->c;
    struct dyti_control_page *page = dyti_world_control(world);
    struct dyti_group all = dyti_world_all(world);
    unsigned char *kept[DYTI_KIND_COUNT] = {NULL};
    struct dyti_switch_report report;
    struct dyti_switch_order order = {.epoch = version,
                                      .version = version,
                                      .unmanaged = true,
                                      .verify =
                                          (enum dyti_verify)c->value[MX_VERIFY],
                                      .keep_abandoned = true};

    if (play->faulty) {
        order.verify = DYTI_VERIFY_OFF;
        order.fault = me->rank == 0 ? DYTI_FAULT_FLIP : DYTI_FAULT_NONE;
    }
    dyti_control_heal(page, me->rank, ~UINT64_C(0));
    mx_fill(c, world, me->rank, version);
    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        struct mx_region from = mx_region(c, world, me->rank, c->from, k);

        kept[k] = from.at == NULL ? NULL : malloc(from.bytes + 1);
        if (kept[k] != NULL) {
            memcpy(kept[k], from.at, from.bytes);
        }
    }
    if (c->world > 1 && all.ops->barrier(all.self) != DYT_OK) {
        rank_wrong(me, "meeting before the switch: %s", dyti_error_text());
    } else if (dyti_switch_run(self, &order, &report) != DYT_OK) {
        rank_wrong(me, "the switch: %s", dyti_error_text());
    } else if (report.decision != DYTI_DECISION_COMMIT) {
        rank_wrong(me, "not committed");
    } else {
        mx_check(c, world, me->rank, version, kept, me);
    }
    for (int k = 0; k < DYTI_KIND_COUNT; k++) {
        free(kept[k]);
    }
    /* nobody fills again before all have looked */
    if (c->world > 1 && all.ops->barrier(all.self) != DYT_OK) {
        rank_wrong(me, "meeting after the switch: %s", dyti_error_text());
    }
}

static void play_world(struct play *play, struct dyti_world *world,
                       struct dyt_rank *me)
{
    const int64_t *v = play->c->value;
    struct dyti_switch *self = NULL;
    enum dyt_status st = prepare(play, world, &self);

    if (st != DYT_OK) {
        const char *at = strstr(dyti_error_text(), refusal);

        if (st != DYT_ERR_UNSUPPORTED || at == NULL ||
            v[MX_MODE] != DYTI_MODE_IN_PLACE) {
            rank_wrong(me, "preparing: %s", dyti_error_text());
            return;
        }
        atomic_store(&play->least, strtoull(at + strlen(refusal), NULL, 10));
        return;
    }
    for (int64_t n = 0; n <= v[MX_REPEAT] && me->wrong[0] == '\0'; n++) {
        switch_once(play, world, self, (uint64_t)n + 1, me);
    }
    if (me->wrong[0] == '\0') {
        check_memory(play, me);
    }
}

static void play_rank(struct dyt_rank *me)
{
    struct play *play = me->arg;
    struct dyti_kernels kernels = {.ops = &dyti_kernels_host};
    struct dyti_kernel_params params = {.struct_size = sizeof(params)};
    struct dyti_world *world = NULL;

    if (kernels.ops->open(&params, &kernels.self) != DYT_OK ||
        open_world(play, me->rank, &kernels, &world) != DYT_OK) {
        rank_wrong(me, "opening: %s", dyti_error_text());
    } else {
        play_world(play, world, me);
    }
    dyti_world_close(world);
    kernels.ops->close(kernels.self);
}

/* ---- one switch ------------------------------------------------------------
 */

static void open_memory(struct play *play)
{
    const struct mx_case *c = play->c;
    uint64_t bytes = 0;

    assert_ok(
        dyti_world_control_bytes((const struct dyti_layout *const *)c->layout,
                                 c->world, &dyti_group_shm, &bytes));
    assert_ok(play->ops->create("control", DYTI_PAGES_4K, &play->control));
    assert_ok(play->ops->resize(play->control, DYTI_PAGES_4K, bytes, NULL, 0));
    assert_ok(play->ops->map(play->control, DYTI_PAGES_4K, bytes,
                             &play->control_mem));
    for (uint32_t r = 0; r < c->world; r++) {
        bytes = c->map[r].total_bytes;
        assert_ok(play->ops->create("rank", DYTI_PAGES_4K, &play->segment[r]));
        assert_ok(
            play->ops->resize(play->segment[r], DYTI_PAGES_4K, bytes, NULL, 0));
        assert_ok(play->ops->map(play->segment[r], DYTI_PAGES_4K, bytes,
                                 &play->segment_mem[r]));
    }
}

static void close_memory(struct play *play)
{
    for (uint32_t r = 0; r < play->c->world; r++) {
        play->ops->unmap(&play->segment_mem[r]);
        play->ops->close(play->segment[r]);
    }
    play->ops->unmap(&play->control_mem);
    play->ops->close(play->control);
}

/* NULL: it holds, or there is no such switch.  *out_least: a refusal. */
static const char *try_switch(const int64_t *value, bool faulty,
                              uint64_t *out_least)
{
    static char last[DYT_RANKS_WORDS]; /* that failed */
    char wrong[DYT_RANKS_WORDS] = "";
    struct mx_case c;
    struct play play = {.c = &c, .ops = &dyti_memory_host, .faulty = faulty};

    *out_least = 0;
    if (mx_open(value, &c)) {
        open_memory(&play);
        dyt_ranks_try(DYT_RANKS_THREADS, c.world, play_rank, &play, wrong);
        close_memory(&play);
        mx_close(&c);
    }
    *out_least = play.least;
    if (wrong[0] == '\0') {
        return NULL;
    }
    memcpy(last, wrong, sizeof(last));
    return last;
}

static uint32_t refusals; /* that named a cap with which it worked */

/* Where the cap cannot be met, it works with the smallest that is named. */
static const char *check_switch(const int64_t *value, bool faulty)
{
    int64_t again[MX_VALUES];
    uint64_t least;
    const char *why = try_switch(value, faulty, &least);

    if (why != NULL || least == 0) {
        return why;
    }
    if (least <= (uint64_t)value[MX_CAP]) {
        return "a refusal names a cap that there was";
    }
    memcpy(again, value, sizeof(again));
    again[MX_CAP] = (int64_t)least;
    why = try_switch(again, faulty, &least);
    refusals++;
    return why == NULL && least != 0 ? "the cap that a refusal named is refused"
                                     : why;
}

static const char *check(const int64_t *value)
{
    return check_switch(value, false);
}

/* ---- tests -----------------------------------------------------------------
 */

/* Nothing of the matrix is left out. */
struct seen {
    bool by[DYTI_MODE_COUNT][MX_MOVER_COUNT];
    bool dialects[DYTI_DIALECT_COUNT][DYTI_DIALECT_COUNT];
    int64_t kinds;
};

static void check_seen(const struct seen *seen, bool all_pairs)
{
    for (int i = 0; i < DYTI_MODE_COUNT * MX_MOVER_COUNT; i++) {
        assert_true(seen->by[i / MX_MOVER_COUNT][i % MX_MOVER_COUNT]);
    }
    for (int a = 0; a < DYTI_DIALECT_COUNT; a++) {
        uint32_t from = 0, to = 0;

        for (int b = 0; b < DYTI_DIALECT_COUNT; b++) {
            from += seen->dialects[a][b];
            to += seen->dialects[b][a];
        }
        assert_in_range(from, all_pairs ? DYTI_DIALECT_COUNT : 1,
                        DYTI_DIALECT_COUNT);
        assert_in_range(to, 1, DYTI_DIALECT_COUNT);
    }
    assert_int_equal((1 << DYTI_KIND_COUNT) - 1, seen->kinds | 1);
}

static void any_switch_leaves_what_ids_leave(void **state)
{
    uint64_t rounds = dyt_test_rounds(200, 2000);
    struct seen seen = {.kinds = 0};

    (void)state;
    for (uint64_t trial = 0; trial < rounds; trial++) {
        int64_t value[MX_VALUES];

        mx_draw(trial, value);
        seen.by[value[MX_MODE]][value[MX_MOVER]] = true;
        seen.dialects[value[MX_FROM + MX_DIALECT]][value[MX_TO + MX_DIALECT]] =
            true;
        seen.kinds |= value[MX_KINDS];
        dyt_shrink_hold(check, mx_name, mx_least, value, MX_VALUES);
    }
    print_message("%" PRIu64 " switches, %u refused with a cap that works\n",
                  rounds, refusals);
    if (rounds >= 200) { /* under a sanitizer there are fewer */
        check_seen(&seen, rounds >= 2000);
    }
}

static const char *check_faulty(const int64_t *value)
{
    return check_switch(value, true);
}

/* A wrong bit is seen, and what is printed for it is as small as can be. */
static void a_wrong_bit_shrinks_to_one_rank(void **state)
{
    uint32_t seen = 0;

    (void)state;
    for (uint64_t trial = 0; seen < 3; trial++) {
        int64_t value[MX_VALUES];
        const char *why;

        mx_draw(trial * 31, value);
        why = dyt_shrink_down(check_faulty, mx_least, value, MX_VALUES);
        if (why == NULL) {
            continue; /* rank 0 receives nothing */
        }
        seen++;
        assert_non_null(strstr(why, "instead of"));
        assert_int_equal(1, value[MX_WORLD]);
        assert_int_equal(DYTI_MODE_TRANSACTIONAL, value[MX_MODE]);
        assert_int_equal(MX_PULL, value[MX_MOVER]);
        assert_int_equal(1, value[MX_LAYERS]);
        assert_int_equal(0, value[MX_KINDS]);
        assert_int_equal(DYTI_DIALECT_NATIVE, value[MX_FROM + MX_DIALECT]);
        assert_int_equal(DYTI_DIALECT_NATIVE, value[MX_TO + MX_DIALECT]);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(any_switch_leaves_what_ids_leave),
    cmocka_unit_test(a_wrong_bit_shrinks_to_one_rank),
};
DYT_TEST_MAIN(tests)
