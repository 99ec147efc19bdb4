/* Admission: samples enter when the cache can hold them to the end of their
 * longest possible life, so nothing is ever evicted and the result is a pure
 * function of the request.  Where a group does not fit whole, those that do
 * enter, and its prompt stays in the cache for the others. */
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

void dyti_group_close(struct dyti_rollout *r, struct dyti_cohort *c)
{
    for (uint32_t b = 0; b < c->table_count; b++) {
        dyti_blocks_put(&r->blocks, c->table[b]);
    }
    dyti_table_put(r, c->table);
    r->prefill_count--;
}

uint32_t dyti_blocks_for(const struct dyti_rollout *r, uint64_t positions)
{
    return (uint32_t)((positions + r->params.block - 1) / r->params.block);
}

/* What one group's samples take, in blocks. */
struct need {
    uint64_t prompt; /* shared by all */
    uint64_t each;   /* of a sample, beside the prompt's full blocks */
    uint64_t partly; /* 1 if the prompt's last block is partly filled */
};

static struct need need_of(const struct dyti_rollout *r, uint32_t prompt,
                           uint32_t max_tokens)
{
    uint64_t full = prompt / r->params.block;
    /* The last token is drawn and never fed. */
    uint64_t whole = dyti_blocks_for(r, (uint64_t)prompt + max_tokens - 1);
    struct need n = {.prompt = dyti_blocks_for(r, prompt),
                     .each = whole - full};

    n.partly = n.prompt - full;
    return n;
}

/* Blocks of `count` samples beside their prompt's.  All but one copy a partly
 * filled block; the group's very last takes it over. */
static uint64_t need_for(const struct need *n, uint64_t count, bool last)
{
    return count * n->each - (last ? n->partly : 0);
}

/* Blocks promised to what runs but not taken yet. */
static uint64_t promised(const struct dyti_rollout *r, uint32_t max_tokens)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < r->running_count; i++) {
        const struct dyti_sequence *s = &r->running[i];
        uint32_t prompt = s->length - (s->sample->count - 1);

        sum += dyti_blocks_for(r, (uint64_t)prompt + max_tokens - 1) -
               s->table_count;
    }
    for (uint32_t i = 0; i < r->prefill_count; i++) {
        const struct dyti_cohort *c = &r->prefill[i];
        struct need n = need_of(r, c->prompt->id_count, max_tokens);

        if (c->count > 0) {
            sum += need_for(&n, c->count, c->left == 0);
        }
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

/* The group that is not all in yet; only the newest one can be. */
static struct dyti_cohort *open_group(struct dyti_rollout *r)
{
    struct dyti_cohort *c;

    if (r->prefill_count == 0) {
        return NULL;
    }
    c = &r->prefill[r->prefill_count - 1];
    return c->left > 0 ? c : NULL;
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

/* How many of `want` samples fit into `room` blocks and `slots`. */
static uint32_t fitting(const struct need *n, uint64_t room, uint32_t slots,
                        uint32_t want)
{
    uint64_t fit = n->each > 0 ? room / n->each : want;

    if (want <= slots && need_for(n, want, true) <= room) {
        return want;
    }
    /* From here on one stays out, and with it the prompt stays. */
    fit = fit < slots ? fit : slots;
    return fit < want ? (uint32_t)fit : want - 1;
}

static struct dyti_cohort *new_group(struct dyti_rollout *r,
                                     const struct dyti_waiting *w,
                                     const struct dyti_prompt *prompt)
{
    struct dyti_cohort *c = &r->prefill[r->prefill_count++];

    *c = (struct dyti_cohort){.prompt = prompt,
                              .sample = &w->sample[w->next],
                              .table = dyti_table_get(r)};
    c->table_count = dyti_blocks_for(r, prompt->id_count);
    for (uint32_t b = 0; b < c->table_count; b++) {
        c->table[b] = dyti_blocks_get(&r->blocks);
    }
    return c;
}

/* More samples of the open group: the prompt's last row is run once more, for
 * the logits that they are drawn from. */
static bool admit_open(struct dyti_rollout *r, struct dyti_waiting *w,
                       struct dyti_cohort *c, uint64_t room, uint32_t slots)
{
    uint32_t max_tokens = w->request->sampling->max_response_tokens;
    struct need n = need_of(r, c->prompt->id_count, max_tokens);
    uint32_t fit = c->count > 0 ? 0 : fitting(&n, room, slots, c->left);

    if (fit == 0) {
        return false;
    }
    c->sample = &w->sample[w->next];
    c->count = fit;
    c->left -= fit;
    c->prefilled = c->prompt->id_count - 1;
    w->next += fit;
    return true;
}

static bool admit_new(struct dyti_rollout *r, struct dyti_waiting *w,
                      const struct dyti_prompt *prompt, uint64_t room,
                      uint32_t slots, bool idle)
{
    uint32_t max_tokens = w->request->sampling->max_response_tokens;
    uint32_t want = same_prompt(w), fit;
    struct need n = need_of(r, prompt->id_count, max_tokens);
    struct dyti_cohort *c;

    if (room < n.prompt) {
        return false;
    }
    room -= n.prompt;
    fit = fitting(&n, room, slots, want);
    if (fit == 0 && idle && need_for(&n, 1, true) <= room) {
        fit = want = 1; /* alone, and the others start anew after it */
    }
    if (fit == 0) {
        return false;
    }
    c = new_group(r, w, prompt);
    c->count = fit;
    c->left = want - fit;
    w->next += fit;
    return true;
}

enum dyt_status dyti_admit_check(const struct dyti_rollout *r,
                                 const struct dyti_prompt *prompt,
                                 uint32_t max_tokens)
{
    uint32_t blocks =
        dyti_blocks_for(r, (uint64_t)prompt->id_count + max_tokens - 1);

    if (blocks > r->blocks.count) {
        return DYTI_FAIL(DYT_ERR_NOMEM,
                         "prompt %llu: %u prompt + %u response tokens need %u "
                         "cache blocks of %u positions and there are %u; "
                         "raise kv.memory",
                         (unsigned long long)prompt->id, prompt->id_count,
                         max_tokens, blocks, r->params.block, r->blocks.count);
    }
    return DYT_OK;
}

void dyti_admit(struct dyti_rollout *r, struct dyti_waiting *w)
{
    uint32_t max_tokens = w->request->sampling->max_response_tokens;

    while (w->next < w->total) {
        const struct dyti_prompt *prompt =
            &w->request->prompt[w->prompt_of[w->next]];
        struct dyti_cohort *open = open_group(r);
        uint32_t live = live_sequences(r);
        uint64_t taken = promised(r, max_tokens);
        uint64_t room = r->blocks.free_count - taken;
        uint32_t slots = r->params.max_sequences - live;

        dyti_assert(taken <= r->blocks.free_count);
        if (open != NULL) {
            if (admit_open(r, w, open, room, slots)) {
                continue;
            }
            if (live > 0) {
                return;
            }
            dyti_group_close(r, open); /* its prompt is in its own way */
            continue;
        }
        if (!admit_new(r, w, prompt, room, slots, live == 0)) {
            dyti_require(live > 0); /* dyti_admit_check saw to it */
            return;
        }
    }
}
