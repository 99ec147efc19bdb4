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

static enum dyt_status load_sequence(struct dyti_sequence *s,
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
    *s = (struct dyti_sequence){
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

/* rows and who [mini] are scratch. */
static enum dyt_status deal_mini(struct dyti_train_batch *tb, uint32_t m,
                                 uint32_t dp_size, uint32_t *rows,
                                 uint32_t *who)
{
    struct dyti_sequence *s = tb->sequence + (size_t)m * tb->mini;
    uint32_t count = 0;
    enum dyt_status st;

    for (uint32_t i = 0; i < tb->mini; i++) {
        if (s[i].keep) {
            rows[count++] = s[i].rows;
        }
    }
    st = dyti_pack_even(rows, count, dp_size, who);
    if (st != DYT_OK) {
        return st;
    }
    count = 0;
    for (uint32_t i = 0; i < tb->mini; i++) {
        if (s[i].keep) {
            s[i].owner = who[count++];
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_train_batch_deal(struct dyti_train_batch *tb,
                                      const struct dyti_trainer_config *config,
                                      const bool *keep, uint32_t dp_size)
{
    uint32_t *scratch = malloc(2 * (size_t)tb->mini * sizeof(*scratch));
    enum dyt_status st = DYT_OK;

    if (scratch == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "dealing %u sequences", tb->mini);
    }
    for (uint32_t i = 0; i < tb->sequence_count; i++) {
        struct dyti_sequence *s = &tb->sequence[i];

        s->keep = keep[i];
        s->masked = config->overlong == DYTI_OVERLONG_MASK &&
                    s->sample->finish == DYTI_FINISH_LENGTH;
    }
    for (uint32_t m = 0; m < tb->mini_count && st == DYT_OK; m++) {
        st = deal_mini(tb, m, dp_size, scratch, scratch + tb->mini);
    }
    free(scratch);
    return st;
}

struct dyti_loss_totals dyti_train_batch_totals(
    const struct dyti_train_batch *tb, uint32_t m)
{
    const struct dyti_sequence *s = tb->sequence + (size_t)m * tb->mini;
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
