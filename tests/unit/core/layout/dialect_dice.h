/* Random models, and random layouts of a dialect that it does not refuse. */
#ifndef DYT_DIALECT_DICE_H
#define DYT_DIALECT_DICE_H

#include "dialect_world.h"

#include "layout/dialect.h"

struct dice {
    uint64_t state;
    int32_t slot[64]; /* of the explicit map thrown last */
};

static inline uint32_t roll(struct dice *d, uint32_t sides)
{
    d->state = d->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(d->state >> 33) % sides;
}

static inline struct dyti_arch random_arch(struct dice *d)
{
    struct dyti_arch arch[] = {
        DYT_ARCH_TINY_9_3,   DYT_ARCH_TINY_8_2,  DYT_ARCH_TINY_QWEN2,
        DYT_ARCH_TINY_QWEN3, DYT_ARCH_TINY_MOE,  DYT_ARCH_TINY_MIXTRAL,
        DYT_ARCH_TINY_MLA,   DYT_ARCH_TINY_GPT2, DYT_ARCH_TINY_MLA_DIRECT,
        DYT_ARCH_TINY_GATED,
    };

    return arch[roll(d, DYT_TEST_COUNT(arch))];
}

/* Every expert in some slot, in any order, and copies of some in what is left
 * over: case 38. */
static inline void random_map(struct dice *d, const struct dyti_arch *arch,
                              struct dyti_layout_desc *x)
{
    uint32_t experts = (uint32_t)arch->moe.count, ep = x->ep;
    uint32_t slots = (experts + ep - 1) / ep + 1;

    for (uint32_t i = 0; i < ep * slots; i++) {
        d->slot[i] = -1;
    }
    for (uint32_t e = 0; e < experts; e++) {
        uint32_t at = roll(d, ep * slots);

        while (d->slot[at] >= 0) {
            at = (at + 1) % (ep * slots);
        }
        d->slot[at] = (int32_t)e;
    }
    for (uint32_t i = 0; i < ep * slots; i++) {
        if (d->slot[i] < 0 && roll(d, 2) == 0) {
            d->slot[i] = (int32_t)roll(d, experts);
        }
    }
    x->experts = DYTI_EXPERTS_EXPLICIT;
    x->expert_slot = d->slot;
    x->expert_slots = slots;
}

static inline struct dyti_layout_desc random_desc(struct dice *d,
                                                  const struct dyti_arch *arch,
                                                  enum dyti_dialect dialect)
{
    static const uint8_t order[3][DYTI_AXIS_COUNT] = {
        {DYTI_AXIS_TP, DYTI_AXIS_CP, DYTI_AXIS_DP, DYTI_AXIS_PP},
        {DYTI_AXIS_DP, DYTI_AXIS_TP, DYTI_AXIS_PP, DYTI_AXIS_CP},
        {DYTI_AXIS_PP, DYTI_AXIS_CP, DYTI_AXIS_TP, DYTI_AXIS_DP}};
    static const uint32_t some[] = {1, 1, 2, 3, 4};
    struct dyti_layout_desc x = {.dialect = dialect,
                                 .tp = some[roll(d, 5)],
                                 .pp = 1 + roll(d, 2),
                                 .dp = some[roll(d, 5)],
                                 .cp = 1 + roll(d, 2),
                                 .vpp = 1 + (roll(d, 4) == 0),
                                 .zero = roll(d, 4)};

    if (arch->moe.count > 0) {
        x.ep = 1 + roll(d, 3);
        x.etp = 1 + roll(d, 2);
        x.experts = (enum dyti_expert_map)roll(d, 2);
        if (roll(d, 3) == 0) {
            random_map(d, arch, &x);
        }
    }
    if (dialect == DYTI_DIALECT_HF) {
        x.tp = x.pp = x.ep = x.etp = x.vpp = 1;
        x.zero = 0;
        x.experts = DYTI_EXPERTS_LINEAR;
    }
    memcpy(x.order, order[roll(d, 3)], sizeof(x.order));
    x.vocab_multiple = roll(d, 2) == 0 ? 0 : 8;
    x.round_robin = dialect == DYTI_DIALECT_ZERO12 && roll(d, 2) == 0;
    if (dialect == DYTI_DIALECT_MEGATRON) {
        x.bucket_multiple = x.zero == 1 && roll(d, 3) == 0 ? 320 : 0;
        x.glu_interleave = arch->moe.count > 0 ? roll(d, 4) : 0;
    }
    x.dtype[DYTI_PARAM] = roll(d, 2) == 0 ? DYTI_F32 : DYTI_BF16;
    x.world_size = x.tp * x.pp * x.dp * x.cp;
    return x;
}

/* Some layout of the dialect; refused ones are thrown again, with lower
 * degrees each time. */
static inline struct dyti_layout *random_layout(struct dice *d,
                                                const struct dyti_model *model,
                                                enum dyti_dialect dialect)
{
    struct dyti_layout *layout = NULL;

    for (int tries = 0; tries < 400; tries++) {
        struct dyti_layout_desc x = random_desc(d, &model->arch, dialect);

        if (dyti_layout_build(model, &x, &layout) == DYT_OK) {
            return layout;
        }
        /* A refusal says what would work. */
        assert_true(strstr(dyti_error_text(), "work") != NULL ||
                    strstr(dyti_error_text(), "available") != NULL ||
                    strstr(dyti_error_text(), "divide") != NULL ||
                    strstr(dyti_error_text(), "at most") != NULL);
    }
    fail_msg("no layout of dialect %s", dyti_dialect_ops(dialect)->name);
    return NULL;
}

#endif /* DYT_DIALECT_DICE_H */
