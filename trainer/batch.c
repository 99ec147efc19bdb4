/* Sequences and mini-batches. */
#include "trainer/batch.h"

#include "base/array.h"
#include "trainer/pack.h"

#include <string.h>

/* The nearest sizes that divide: for the message only. */
static enum dyt_status refuse_mini(uint32_t count, uint32_t mini)
{
    uint32_t less = mini, more = mini;

    if (mini > count) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "batch.mini_batch is %u, but a step has %u sequences; "
                         "set it to at most %u",
                         mini, count, count);
    }
    while (count % less != 0) {
        less--;
    }
    while (count % more != 0) {
        more++;
    }
    return DYTI_FAIL(DYT_ERR_CONFIG,
                     "batch.mini_batch is %u, which does not divide the %u "
                     "sequences of a step; the nearest that do are %u and %u",
                     mini, count, less, more);
}

static enum dyt_status load_sequence(struct dyti_train_sequence *s,
                                     const struct dyti_batch *batch, uint32_t i,
                                     int64_t positions)
{
    const struct dyti_sample *sample = &batch->sample[i];
    const struct dyti_prompt *prompt = dyti_batch_prompt(batch, sample->prompt);
    uint64_t length;

    if (prompt == NULL || prompt->id_count == 0) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "sample %u of prompt %llu %s in the batch",
                         sample->index, (unsigned long long)sample->prompt,
                         prompt ? "has an empty prompt" : "has no prompt");
    }
    length = (uint64_t)prompt->id_count + sample->count;
    if (length > (uint64_t)positions) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "sample %u of prompt %llu has %llu tokens, training "
                         "was set up for %lld",
                         sample->index, (unsigned long long)sample->prompt,
                         (unsigned long long)length, (long long)positions);
    }
    *s = (struct dyti_train_sequence){
        .sample = sample,
        .prompt = prompt->ids,
        .prompt_count = prompt->id_count,
        .rows = (uint32_t)length - 1,
    };
    return DYT_OK;
}

enum dyt_status dyti_train_batch_load(struct dyti_train_batch *tb,
                                      const struct dyti_trainer_config *config,
                                      int64_t positions,
                                      const struct dyti_batch *batch)
{
    uint32_t count = batch->sample_count;
    uint32_t mini = config->mini_batch ? config->mini_batch : count;
    enum dyt_status st;

    tb->sequence_count = tb->mini = tb->mini_count = 0;
    tb->token_count = 0;
    if (count == 0) {
        return DYTI_FAIL(DYT_ERR_INVALID, "the batch has no sample");
    }
    if (count % mini != 0) {
        return refuse_mini(count, mini);
    }
    st = DYTI_GROW(tb->sequence, tb->sequence_cap, count);
    if (st != DYT_OK) {
        return st;
    }
    for (uint32_t i = 0; i < count; i++) {
        st = load_sequence(&tb->sequence[i], batch, i, positions);
        if (st != DYT_OK) {
            return st;
        }
        tb->sequence[i].token_first = tb->token_count;
        tb->token_count += batch->sample[i].count;
    }
    tb->sequence_count = count;
    tb->mini = mini;
    tb->mini_count = count / mini;
    return DYT_OK;
}

void dyti_train_batch_fini(struct dyti_train_batch *tb)
{
    free(tb->sequence);
    memset(tb, 0, sizeof(*tb));
}

/* One mini-batch being dealt: its kept sequences, and the pieces that groups
 * (samples of one prompt) are parted into.  Arrays are [mini], load is [dp]. */
struct deal {
    struct dyti_train_sequence **kept;
    uint64_t *load;
    uint32_t *rows, *end, *who; /* end: in `kept` */
    uint32_t kept_count, piece_count, dp;
};

/* Each group in `parts` pieces, as even as can be; a piece has the prompt's
 * rows once. */
static void cut_groups(struct deal *d, uint32_t parts)
{
    uint32_t lo = 0;

    d->piece_count = 0;
    while (lo < d->kept_count) {
        uint32_t hi = lo + 1, n, at = lo;

        while (hi < d->kept_count &&
               d->kept[hi]->prompt == d->kept[lo]->prompt) {
            hi++;
        }
        n = parts < hi - lo ? parts : hi - lo;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t end = lo + (uint32_t)((uint64_t)(hi - lo) * (i + 1) / n);
            uint32_t rows = d->kept[lo]->prompt_count;

            for (; at < end; at++) {
                rows += d->kept[at]->sample->count - 1;
            }
            d->rows[d->piece_count] = rows;
            d->end[d->piece_count++] = end;
        }
        lo = hi;
    }
}

/* Rows of the most loaded rank. */
static enum dyt_status deal_pieces(struct deal *d, uint64_t *out_most)
{
    uint64_t most = 0;
    enum dyt_status st = dyti_pack_even(d->rows, d->piece_count, d->dp, d->who);

    if (st != DYT_OK) {
        return st;
    }
    memset(d->load, 0, d->dp * sizeof(*d->load));
    for (uint32_t i = 0; i < d->piece_count; i++) {
        d->load[d->who[i]] += d->rows[i];
        most = d->load[d->who[i]] > most ? d->load[d->who[i]] : most;
    }
    *out_most = most;
    return DYT_OK;
}

static void give_out(struct deal *d)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < d->piece_count; i++) {
        for (; at < d->end[i]; at++) {
            d->kept[at]->owner = d->who[i];
        }
    }
}

/* Few pieces share most, many are spread most evenly: take what leaves the most
 * loaded rank with the least. */
static enum dyt_status deal_mini(struct dyti_train_batch *tb, uint32_t m,
                                 struct deal *d)
{
    struct dyti_train_sequence *s = tb->sequence + (size_t)m * tb->mini;
    uint64_t best = UINT64_MAX, most;

    d->kept_count = 0;
    for (uint32_t i = 0; i < tb->mini; i++) {
        if (s[i].keep) {
            d->kept[d->kept_count++] = &s[i];
        }
    }
    for (uint32_t parts = 1; parts <= d->dp; parts++) {
        enum dyt_status st;

        cut_groups(d, parts);
        st = deal_pieces(d, &most);
        if (st != DYT_OK) {
            return st;
        }
        if (most < best) {
            best = most;
            give_out(d);
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_train_batch_deal(struct dyti_train_batch *tb,
                                      const struct dyti_trainer_config *config,
                                      const bool *keep, uint32_t dp_size)
{
    size_t n = tb->mini;
    struct deal d = {.dp = dp_size};
    enum dyt_status st = DYT_OK;

    d.kept = malloc(n * (sizeof(*d.kept) + 3 * sizeof(*d.rows)) +
                    dp_size * sizeof(*d.load));
    if (d.kept == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "dealing %u sequences", tb->mini);
    }
    d.load = (uint64_t *)(void *)(d.kept + n);
    d.rows = (uint32_t *)(void *)(d.load + dp_size);
    d.end = d.rows + n;
    d.who = d.end + n;
    for (uint32_t i = 0; i < tb->sequence_count; i++) {
        struct dyti_train_sequence *s = &tb->sequence[i];

        s->keep = keep[i];
        s->masked = config->overlong == DYTI_OVERLONG_MASK &&
                    s->sample->finish == DYTI_FINISH_LENGTH;
    }
    for (uint32_t m = 0; m < tb->mini_count && st == DYT_OK; m++) {
        st = deal_mini(tb, m, &d);
    }
    free(d.kept);
    return st;
}

struct dyti_loss_totals dyti_train_batch_totals(
    const struct dyti_train_batch *tb, uint32_t m)
{
    const struct dyti_train_sequence *s = tb->sequence + (size_t)m * tb->mini;
    struct dyti_loss_totals totals = {0};

    for (uint32_t i = 0; i < tb->mini; i++) {
        if (s[i].keep) {
            totals.sequences++;
            totals.tokens += s[i].masked ? 0 : s[i].sample->count;
        }
    }
    return totals;
}

uint32_t dyti_train_batch_kept(const struct dyti_train_batch *tb, uint32_t m)
{
    return (uint32_t)dyti_train_batch_totals(tb, m).sequences;
}
