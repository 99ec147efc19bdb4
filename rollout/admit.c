/* Admission: a cohort enters when the cache can hold it to the end of its
 * longest possible life, so nothing is ever evicted and the result is a pure
 * function of the request. */
#include "rollout/internal.h"

int32_t *dyti_table_get(struct dyti_rollout *r)
{
    dyti_require(r->table_free_count > 0);
    return r->table_pool +
           (size_t)r->table_free[--r->table_free_count] * r->table_max;
}

void dyti_table_put(struct dyti_rollout *r, int32_t *table)
{
    r->table_free[r->table_free_count++] =
        (int32_t)((size_t)(table - r->table_pool) / r->table_max);
}

unsigned char *dyti_table_tail(struct dyti_rollout *r, const int32_t *table)
{
    size_t slot = (size_t)(table - r->table_pool) / r->table_max;

    return r->tail + slot * DYTI_ROLLOUT_TAIL;
}

uint32_t dyti_blocks_for(const struct dyti_rollout *r, uint64_t positions)
{
    return (uint32_t)((positions + r->params.block - 1) / r->params.block);
}

/* Blocks that one sample takes beyond the full blocks of its prompt. */
static uint32_t own_blocks(const struct dyti_rollout *r, uint32_t prompt,
                           uint32_t max_tokens)
{
    return dyti_blocks_for(r, (uint64_t)prompt + max_tokens) -
           prompt / r->params.block;
}

/* Blocks promised to what runs but not taken yet. */
static uint64_t promised(const struct dyti_rollout *r, uint32_t max_tokens)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < r->running_count; i++) {
        const struct dyti_sequence *s = &r->running[i];
        uint64_t whole = s->length - (s->sample->count - 1) + max_tokens;

        sum += dyti_blocks_for(r, whole) - s->table_count;
    }
    for (uint32_t i = 0; i < r->prefill_count; i++) {
        const struct dyti_cohort *c = &r->prefill[i];

        sum +=
            (uint64_t)c->count * own_blocks(r, c->prompt->id_count, max_tokens);
    }
    return sum;
}

static uint32_t live_sequences(const struct dyti_rollout *r)
{
    uint32_t live = r->running_count;

    for (uint32_t i = 0; i < r->prefill_count; i++) {
        live += r->prefill[i].count;
    }
    return live;
}

/* Samples of the next waiting prompt, from waiting->next on. */
static uint32_t same_prompt(const struct dyti_waiting *w)
{
    uint32_t n = 0;

    while (w->next + n < w->total &&
           w->prompt_of[w->next + n] == w->prompt_of[w->next]) {
        n++;
    }
    return n;
}

static void enter(struct dyti_rollout *r, struct dyti_waiting *w,
                  const struct dyti_prompt *prompt, uint32_t count)
{
    struct dyti_cohort *c = &r->prefill[r->prefill_count++];

    *c = (struct dyti_cohort){.prompt = prompt,
                              .sample = &w->sample[w->next],
                              .count = count,
                              .table = dyti_table_get(r)};
    c->table_count = dyti_blocks_for(r, prompt->id_count);
    for (uint32_t b = 0; b < c->table_count; b++) {
        c->table[b] = dyti_blocks_get(&r->blocks);
    }
    w->next += count;
}

/* How many of `want` samples fit now. */
static uint32_t room_for(const struct dyti_rollout *r, uint32_t prompt,
                         uint32_t max_tokens, uint32_t want)
{
    uint64_t taken = promised(r, max_tokens);
    uint64_t left =
        r->blocks.free_count > taken ? r->blocks.free_count - taken : 0;
    uint32_t shared = dyti_blocks_for(r, prompt);
    uint32_t own = own_blocks(r, prompt, max_tokens);
    uint32_t slots = r->params.max_sequences - live_sequences(r);
    uint64_t fit;

    if (left < shared) {
        return 0;
    }
    fit = own > 0 ? (left - shared) / own : want;
    fit = fit < slots ? fit : slots;
    return fit < want ? (uint32_t)fit : want;
}

enum dyt_status dyti_admit(struct dyti_rollout *r, struct dyti_waiting *w)
{
    uint32_t max_tokens = w->request->sampling->max_response_tokens;

    while (w->next < w->total) {
        const struct dyti_prompt *prompt =
            &w->request->prompt[w->prompt_of[w->next]];
        uint32_t want = same_prompt(w);
        uint32_t fit = room_for(r, prompt->id_count, max_tokens, want);
        bool idle = r->running_count == 0 && r->prefill_count == 0;

        /* A group enters whole, unless it could never: then in parts. */
        if (fit < want && !(idle && fit > 0)) {
            if (idle) {
                return DYTI_FAIL(
                    DYT_ERR_NOMEM,
                    "prompt %llu: %u prompt + %u response tokens need %u cache "
                    "blocks of %u positions and there are %u; raise kv.memory",
                    (unsigned long long)prompt->id, prompt->id_count,
                    max_tokens,
                    dyti_blocks_for(r, prompt->id_count) +
                        own_blocks(r, prompt->id_count, max_tokens),
                    r->params.block, r->blocks.count);
            }
            return DYT_OK;
        }
        enter(r, w, prompt, fit);
    }
    return DYT_OK;
}
