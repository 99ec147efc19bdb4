/* Draws switches of the matrix: case number n is the same one for ever. */
#ifndef DYT_MATRIX_DRAW_H
#define DYT_MATRIX_DRAW_H

#include "matrix_case.h"

/* ---- drawing --------------------------------------------------------------
 */

static inline void mx_draw_degrees(uint64_t t, const int64_t *v,
                                   const struct dyti_model *model,
                                   int64_t *side)
{
    uint64_t which = (uint64_t)(side - v);
    struct dyt_case_desc desc;
    const struct dyti_layout_desc *d = &desc.desc;

    dyt_case_any_layout(t + which, t, model, (uint32_t)v[MX_WORLD],
                        DYTI_DIALECT_NATIVE, "draw", &desc);
    side[MX_TP] = d->tp;
    side[MX_CP] = d->cp;
    side[MX_DP] = d->dp;
    side[MX_PP] = d->pp;
    side[MX_VPP] = d->vpp;
    side[MX_EP] = d->ep == 0 ? 1 : d->ep;
    side[MX_ETP] = d->etp == 0 ? 1 : d->etp;
    side[MX_ZERO] = d->zero;
    side[MX_ODD] = (int64_t)(dyt_case_pick(t, 3, which, 1u << MX_ODD_BITS) &
                             dyt_case_pick(t, 4, which, 1u << MX_ODD_BITS)) |
                   1 << MX_ODD_PLACES;
    side[MX_DROPPED] =
        (int64_t)(dyt_case_pick(t, 5, which, 1u << DYTI_KIND_COUNT) &
                  dyt_case_pick(t, 6, which, 1u << DYTI_KIND_COUNT) & ~1u);
    side[MX_PARAM] = (int64_t)dyt_case_pick(t, 7, which, 3);
}

/* Degrees until the dialect takes them. */
static inline bool mx_draw_side(uint64_t trial, uint64_t attempt,
                                const int64_t *v, int64_t *side)
{
    uint64_t which = (uint64_t)(side - v);
    struct mx_case c = {
        .value = v, .world = (uint32_t)v[MX_WORLD], .model = mx_model(v)};
    struct dyti_layout *layout = NULL;

    side[MX_DIALECT] =
        (int64_t)dyt_case_pick(trial, 1, which, DYTI_DIALECT_COUNT);
    side[MX_LIST_OF] =
        (int64_t)dyt_case_pick(trial, 2, which, DYTI_DIALECT_LIST);
    for (uint64_t n = 0; c.model != NULL && layout == NULL && n < 60; n++) {
        mx_draw_degrees((trial * 64 + attempt) * 64 + n, v, c.model, side);
        layout = mx_layout(&c, side, false);
    }
    dyti_layout_destroy(layout);
    dyti_model_destroy(c.model);
    return layout != NULL;
}

static inline void mx_draw_rest(uint64_t trial, uint64_t attempt,
                                int64_t v[MX_VALUES])
{
    static const int64_t caps[] = {0, 256, 1024, 4096, 65536};
    static const int64_t small[] = {0, 0, 0, 128, 192, 320, 1000, 5000};
    uint64_t t = trial * 64 + attempt;

#define MX_DRAW(what, count) ((int64_t)dyt_case_pick(0x9d, t, (what), (count)))
    memset(v, 0, MX_VALUES * sizeof(*v));
    v[MX_SEED] = (int64_t)t;
    v[MX_MODE] = (int64_t)trial % DYTI_MODE_COUNT;
    v[MX_MOVER] = (int64_t)trial / DYTI_MODE_COUNT % MX_MOVER_COUNT;
    v[MX_WORLD] = 1 + MX_DRAW(1, MX_RANKS_MAX);
    v[MX_MIXED_PUSH] = MX_DRAW(2, 2);
    v[MX_HOSTS] = 1 + MX_DRAW(3, (uint64_t)v[MX_WORLD]);
    v[MX_NO_FAN_OUT] = MX_DRAW(4, 2);
    v[MX_STRATEGY] = MX_DRAW(5, 2) == 0 ? 0 : MX_DRAW(6, 4);
    v[MX_CAP] = caps[MX_DRAW(7, DYT_TEST_COUNT(caps))];
    v[MX_STAGING] = small[MX_DRAW(8, DYT_TEST_COUNT(small))];
    v[MX_MESSAGE] = small[MX_DRAW(9, DYT_TEST_COUNT(small))];
    v[MX_REPEAT] = MX_DRAW(10, 2);
    v[MX_VERIFY] = MX_DRAW(11, 3);
    v[MX_BACK] = MX_DRAW(12, 2);
    v[MX_PARKED] = MX_DRAW(13, 3) == 0;
    v[MX_KINDS] = MX_DRAW(14, 2) == 0 ? (1 << DYTI_KIND_COUNT) - 2
                                      : MX_DRAW(15, 1u << DYTI_KIND_COUNT);
    v[MX_FAMILY] = MX_DRAW(16, 9);
    v[MX_LAYERS] = 1 + MX_DRAW(17, 4);
    v[MX_HIDDEN] = 1 + MX_DRAW(18, 18);
    v[MX_VOCAB] = 12 + MX_DRAW(19, 40);
    v[MX_EXPERTS] = 2 + MX_DRAW(20, 6);
    v[MX_EXTRAS] = MX_DRAW(21, 2);
#undef MX_DRAW
}

/* Case number `trial`: modes and movers in turn, the rest drawn until both
 * dialects take it. */
static inline void mx_draw(uint64_t trial, int64_t v[MX_VALUES])
{
    for (uint64_t attempt = 0; attempt < 64; attempt++) {
        struct mx_case c;

        mx_draw_rest(trial, attempt, v);
        if (mx_draw_side(trial, attempt, v, v + MX_FROM) &&
            mx_draw_side(trial, attempt, v, v + MX_TO) && mx_open(v, &c)) {
            mx_close(&c);
            return;
        }
    }
    fail_msg("no switch of number %" PRIu64, trial);
}

#endif /* DYT_MATRIX_DRAW_H */
