/* What no single setting can say: settings that must fit each other, and those
 * that follow from others.  Every message names what to change. */
#include "format/data_jsonl.h"
#include "format/job_options.h"

#include "base/array.h"
#include "base/banned.h"

#include <stdarg.h>

#define JOB    DYTI_SCOPE_JOB
#define PHASE  DYTI_SCOPE_PHASE
#define REWARD DYTI_SCOPE_REWARD

static enum dyt_status warn(struct dyti_job *job, const char *fmt, ...)
    DYTI_PRINTF(2, 3);

static enum dyt_status warn(struct dyti_job *job, const char *fmt, ...)
{
    char **grown = realloc(job->warning,
                           (job->warning_count + 1u) * sizeof(*job->warning));
    va_list args;
    int got;

    if (grown == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a warning");
    }
    job->warning = grown;
    va_start(args, fmt);
    got = vasprintf(&grown[job->warning_count], fmt, args);
    va_end(args);
    if (got < 0) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a warning");
    }
    job->warning_count++;
    return DYT_OK;
}

static bool is_name(const char *text)
{
    return text[0] != '\0' && text[0] != '.' &&
           text[strspn(text, "abcdefghijklmnopqrstuvwxyz"
                             "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")] ==
               '\0';
}

/* ---- what must be set --------------------------------------------------- */

static enum dyt_status check_required(const struct dyti_job_reader *reader,
                                      enum dyti_option_scope scope,
                                      uint32_t index, uint32_t kind)
{
    size_t count;
    const struct dyti_option *row = dyti_options(scope, &count);

    for (size_t i = 0; i < count; i++) {
        if (row[i].fallback == NULL && dyti_option_fits(&row[i], kind) &&
            !dyti_reader_was_set(reader, scope, index, row[i].path)) {
            return dyti_reader_wrong(reader, scope, index, NULL,
                                     "%s is not set, and has no default: %s",
                                     row[i].path, row[i].help);
        }
    }
    return DYT_OK;
}

/* ---- phases ------------------------------------------------------------- */

static enum dyt_status check_order(const struct dyti_job_reader *reader)
{
    const struct dyti_job *job = &reader->job;

    if (job->phase_count < 2) {
        bool rollout =
            job->phase_count == 1 && job->phase[0].kind == DYTI_PHASE_ROLLOUT;

        return dyti_reader_wrong(
            reader, JOB, 0, NULL,
            "phase: there is no %s phase: write [[phase]] with name = "
            "\"%s\"",
            rollout ? "train" : "rollout", rollout ? "train" : "rollout");
    }
    if (job->phase[0].kind != DYTI_PHASE_ROLLOUT) {
        return dyti_reader_wrong(
            reader, PHASE, 0, NULL,
            "phase: a step begins with rollout: put the phase named "
            "rollout first");
    }
    return DYT_OK;
}

/* A plugin is given token ids and versions, and has its own cache. */
static enum dyt_status check_plugin(const struct dyti_job_reader *reader,
                                    uint32_t index)
{
    const struct dyti_job_phase *phase = &reader->job.phase[index];
    static const char *const row[] = {"plugin.path", "plugin.options",
                                      "plugin.address"};

    if (phase->kind == DYTI_PHASE_TRAIN &&
        phase->engine != DYTI_ENGINE_BUILTIN) {
        return dyti_reader_wrong(reader, PHASE, index, "engine",
                                 "engine: the train phase is run by the ranks "
                                 "of the job: write \"builtin\"");
    }
    if (phase->engine == DYTI_ENGINE_BUILTIN) {
        for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
            if (!reader->resolved &&
                dyti_reader_was_set(reader, PHASE, index, row[i])) {
                return dyti_reader_wrong(
                    reader, PHASE, index, row[i],
                    "%s: has no effect with engine = \"builtin\": write "
                    "engine = \"plugin\"",
                    row[i]);
            }
        }
        return DYT_OK;
    }
    if (phase->plugin.path[0] == '\0') {
        return dyti_reader_wrong(
            reader, PHASE, index, "engine",
            "engine: \"plugin\" needs plugin.path, a shared object with a "
            "generation engine");
    }
    if (reader->job.sw.mode == DYTI_MODE_DOUBLE) {
        return dyti_reader_wrong(
            reader, JOB, 0, "switch.mode",
            "switch.mode: \"double\" is for ranks that serve while they are "
            "given a version: with engine = \"plugin\" the engine decides how "
            "it takes one");
    }
    if (phase->sampling.stop_count > 0) {
        return dyti_reader_wrong(
            reader, PHASE, index, "sampling.stop",
            "sampling.stop: a plugin is given token ids and not text: use "
            "sampling.stop_token_ids");
    }
    return DYT_OK;
}

static enum dyt_status check_rollout(struct dyti_job_reader *reader,
                                     uint32_t index)
{
    struct dyti_job *job = &reader->job;
    struct dyti_job_phase *phase = &job->phase[index];
    const struct dyti_sampling *sampling = &phase->sampling;
    uint32_t least = phase->kv.max_sequences > job->data.max_prompt_tokens
                         ? phase->kv.max_sequences
                         : job->data.max_prompt_tokens;

    if (sampling->min_response_tokens > sampling->max_response_tokens) {
        return dyti_reader_wrong(
            reader, PHASE, index, "sampling.min_response_tokens",
            "sampling.min_response_tokens: %u is more than "
            "max_response_tokens = %u: lower it",
            sampling->min_response_tokens, sampling->max_response_tokens);
    }
    if (job->algorithm.overlong_buffer > sampling->max_response_tokens) {
        return dyti_reader_wrong(
            reader, JOB, 0, "algorithm.overlong_penalty.buffer",
            "algorithm.overlong_penalty.buffer: %u is more than "
            "max_response_tokens = %u: lower it",
            job->algorithm.overlong_buffer, sampling->max_response_tokens);
    }
    if (phase->kv.max_batch_tokens == 0) {
        phase->kv.max_batch_tokens = least > 1024 ? least : 1024;
    } else if (phase->kv.max_batch_tokens < least) {
        return dyti_reader_wrong(
            reader, PHASE, index, "kv.max_batch_tokens",
            "kv.max_batch_tokens: %u is too small: one prompt and one "
            "token of every sequence must fit, at least %u",
            phase->kv.max_batch_tokens, least);
    }
    if (sampling->top_k != 0 || sampling->top_p < 1.0 ||
        sampling->min_p > 0.0) {
        return warn(job, "with top_k, top_p or min_p the training ratio is "
                         "taken over the untruncated distribution: it is "
                         "biased");
    }
    return DYT_OK;
}

/* Nearest divisors of `total` around `near`: below or equal, and above. */
static void divisors(uint64_t total, uint64_t near, uint64_t *out_below,
                     uint64_t *out_above)
{
    uint64_t below = near < total ? near : total;
    uint64_t above = near < total ? near : total;

    while (below > 1 && total % below != 0) {
        below--;
    }
    while (above < total && total % above != 0) {
        above++;
    }
    *out_below = below;
    *out_above = above;
}

static enum dyt_status check_mini_batch(struct dyti_job_reader *reader,
                                        uint32_t index)
{
    const struct dyti_algorithm *algorithm = &reader->job.algorithm;
    struct dyti_job_phase *phase = &reader->job.phase[index];
    uint64_t total =
        (uint64_t)algorithm->prompts_per_step * algorithm->samples_per_prompt;
    uint64_t below, above;

    if (total > UINT32_MAX) {
        return dyti_reader_wrong(
            reader, JOB, 0, "algorithm.samples_per_prompt",
            "algorithm: %u prompts x %u samples are more than 2^32 "
            "sequences: lower one",
            algorithm->prompts_per_step, algorithm->samples_per_prompt);
    }
    if (phase->batch.mini_batch == 0) {
        phase->batch.mini_batch = (uint32_t)total;
    }
    if (total % phase->batch.mini_batch != 0) {
        divisors(total, phase->batch.mini_batch, &below, &above);
        return dyti_reader_wrong(
            reader, PHASE, index, "batch.mini_batch",
            "batch.mini_batch: %u does not divide the %llu sequences "
            "of a step (%u prompts x %u samples): the nearest that do "
            "are %llu and %llu",
            phase->batch.mini_batch, (unsigned long long)total,
            algorithm->prompts_per_step, algorithm->samples_per_prompt,
            (unsigned long long)below, (unsigned long long)above);
    }
    if (phase->batch.mini_batch < phase->layout.dp) {
        return dyti_reader_wrong(
            reader, PHASE, index, "batch.mini_batch",
            "batch.mini_batch: %u sequences for %u replicas: at least "
            "one for each, so %u or more",
            phase->batch.mini_batch, phase->layout.dp, phase->layout.dp);
    }
    return DYT_OK;
}

static enum dyt_status check_train(struct dyti_job_reader *reader,
                                   uint32_t index)
{
    struct dyti_job *job = &reader->job;
    const struct dyti_job_phase *phase = &job->phase[index];
    const struct dyti_job_phase *rollout = &job->phase[0];
    uint64_t longest = (uint64_t)job->data.max_prompt_tokens +
                       rollout->sampling.max_response_tokens;
    uint64_t updates;
    enum dyt_status st = check_mini_batch(reader, index);

    if (st != DYT_OK) {
        return st;
    }
    if (phase->batch.micro_batch_tokens < longest) {
        return dyti_reader_wrong(
            reader, PHASE, index, "batch.micro_batch_tokens",
            "batch.micro_batch_tokens: %u is too small for one "
            "sequence (%u prompt + %u response tokens): at least %llu",
            phase->batch.micro_batch_tokens, job->data.max_prompt_tokens,
            rollout->sampling.max_response_tokens, (unsigned long long)longest);
    }
    if (phase->loss.clip_dual != 0.0 &&
        phase->loss.clip_dual <= 1.0 + phase->loss.clip_high) {
        return dyti_reader_wrong(
            reader, PHASE, index, "loss.clip_dual",
            "loss.clip_dual: %g: write 0 (off), or more than 1 + clip_high = "
            "%g",
            phase->loss.clip_dual, 1.0 + phase->loss.clip_high);
    }
    if ((phase->layout.dtype != DYTI_JOB_F32 ||
         rollout->layout.dtype != DYTI_JOB_F32) &&
        !dyti_reader_was_set(reader, JOB, 0, "algorithm.max_logprob_gap")) {
        job->algorithm.max_logprob_gap = 0.0; /* bf16 rounds more coarsely */
    }
    updates = (uint64_t)job->steps * phase->batch.epochs *
              ((uint64_t)job->algorithm.prompts_per_step *
               job->algorithm.samples_per_prompt / phase->batch.mini_batch);
    if (phase->lr_schedule.warmup_steps > updates) {
        return dyti_reader_wrong(
            reader, PHASE, index, "lr_schedule.warmup_steps",
            "lr_schedule.warmup_steps: %u is more than the job's "
            "%llu updates: lower it",
            phase->lr_schedule.warmup_steps, (unsigned long long)updates);
    }
    if (phase->layout.dtype != rollout->layout.dtype) {
        return warn(job,
                    "rollout reads %s weights and the trainer %s: their "
                    "log-probabilities differ by the rounding",
                    rollout->layout.dtype == DYTI_JOB_BF16 ? "bf16" : "f32",
                    phase->layout.dtype == DYTI_JOB_BF16 ? "bf16" : "f32");
    }
    return DYT_OK;
}

/* ---- the job ------------------------------------------------------------ */

static enum dyt_status check_algorithm(struct dyti_job_reader *reader)
{
    const struct dyti_algorithm *algorithm = &reader->job.algorithm;

    if (algorithm->rollout_is_min >= algorithm->rollout_is_max) {
        return dyti_reader_wrong(
            reader, JOB, 0, "algorithm.rollout_is_min",
            "algorithm.rollout_is_min: %g is not below rollout_is_max "
            "= %g: lower it",
            algorithm->rollout_is_min, algorithm->rollout_is_max);
    }
    if (algorithm->old_logprobs == DYTI_OLD_ROLLOUT &&
        algorithm->rollout_is != DYTI_IS_OFF && !reader->resolved &&
        dyti_reader_was_set(reader, JOB, 0, "algorithm.rollout_is")) {
        return warn(&reader->job,
                    "algorithm.rollout_is has no effect with old_logprobs = "
                    "\"rollout\": the ratio already corrects");
    }
    return DYT_OK;
}

static enum dyt_status check_eval(const struct dyti_job_reader *reader)
{
    static const char *const row[] = {"eval.every", "eval.samples",
                                      "eval.limit", "eval.sampling",
                                      "eval.before_training"};
    const struct dyti_job *job = &reader->job;

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        if (job->eval.data[0] == '\0' && !reader->resolved &&
            dyti_reader_was_set(reader, JOB, 0, row[i])) {
            return dyti_reader_wrong(
                reader, JOB, 0, row[i],
                "%s: has no effect without eval.data: give a file", row[i]);
        }
    }
    if (job->eval.samples > 1 && job->eval.sampling == DYTI_EVAL_GREEDY) {
        return dyti_reader_wrong(
            reader, JOB, 0, "eval.samples",
            "eval.samples: %u equal greedy answers: write 1, or "
            "sampling = \"rollout\"",
            job->eval.samples);
    }
    if (job->checkpoint.keep_best != 0 && job->eval.data[0] == '\0') {
        return dyti_reader_wrong(
            reader, JOB, 0, "checkpoint.keep_best",
            "checkpoint.keep_best: nothing says which is best without "
            "eval.data: give a file, or write 0");
    }
    return DYT_OK;
}

static enum dyt_status check_job(struct dyti_job_reader *reader)
{
    const struct dyti_job *job = &reader->job;
    uint32_t column;
    enum dyt_status st;

    if (!is_name(job->name)) {
        return dyti_reader_wrong(
            reader, JOB, 0, "name",
            "name: \"%.80s\" cannot name a folder: use letters, "
            "digits, _ - and . (not first)",
            job->name);
    }
    if (job->model[0] == '\0') {
        return dyti_reader_wrong(
            reader, JOB, 0, "model",
            "model: is empty: give a Hugging Face directory");
    }
    if (job->data.train[0] == '\0') {
        return dyti_reader_wrong(reader, JOB, 0, "data.train",
                                 "data.train: is empty: give a JSONL file");
    }
    if (!dyti_template_check(job->data.prompt, &column)) {
        return dyti_reader_wrong(
            reader, JOB, 0, "data.prompt",
            "data.prompt: a lone brace at character %u: write {field}, "
            "and {{ or }} for a brace",
            column);
    }
    st = check_algorithm(reader);
    return st == DYT_OK ? check_eval(reader) : st;
}

/* ---- rewards ------------------------------------------------------------ */

static enum dyt_status name_reward(struct dyti_job_reader *reader,
                                   uint32_t index)
{
    struct dyti_job_reward *reward = &reader->job.reward[index];
    char word[64];

    if (reward->name[0] == '\0') {
        char *name = strdup(dyti_choice_word(DYTI_REWARD_WORDS, reward->kind,
                                             word, sizeof(word)));

        if (name == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "a reward function");
        }
        free(reward->name);
        reward->name = name;
    }
    if (!is_name(reward->name) || strcmp(reward->name, "mean") == 0 ||
        strcmp(reward->name, "std") == 0) {
        return dyti_reader_wrong(
            reader, REWARD, index, "name",
            "reward.functions.%u.name: \"%.80s\" cannot name a "
            "metric: use letters, digits, _ - and ., not mean or std",
            index, reward->name);
    }
    for (uint32_t i = 0; i < index; i++) {
        if (strcmp(reader->job.reward[i].name, reward->name) == 0) {
            return dyti_reader_wrong(
                reader, REWARD, index, "name",
                "reward.functions.%u: a second one named %s: give it "
                "a name of its own",
                index, reward->name);
        }
    }
    return DYT_OK;
}

static enum dyt_status check_reward(struct dyti_job_reader *reader,
                                    uint32_t index)
{
    const struct dyti_job_reward *reward = &reader->job.reward[index];
    const char *missing = NULL;
    char word[64];

    switch (reward->kind) {
    case DYTI_REWARD_REGEX:
        missing = reward->pattern[0] == '\0' ? "pattern" : NULL;
        break;
    case DYTI_REWARD_COMMAND:
        missing = reward->command_count == 0 ? "command" : NULL;
        break;
    default:
        missing = reward->answer[0] == '\0' ? "answer" : NULL;
        break;
    }
    if (missing != NULL) {
        return dyti_reader_wrong(
            reader, REWARD, index, missing,
            "reward.functions.%u: kind %s needs %s: %s", index,
            dyti_choice_word(DYTI_REWARD_WORDS, reward->kind, word,
                             sizeof(word)),
            missing, dyti_option_find(REWARD, missing)->help);
    }
    return name_reward(reader, index);
}

static enum dyt_status check_rewards(struct dyti_job_reader *reader)
{
    bool weighted = false;
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < reader->job.reward_count && st == DYT_OK; i++) {
        st = check_reward(reader, i);
        weighted = weighted || reader->job.reward[i].weight != 0.0;
    }
    if (st == DYT_OK && !weighted) {
        return dyti_reader_wrong(
            reader, REWARD, 0, "weight",
            "reward.functions: every weight is 0: nothing could be "
            "learned, give one a weight");
    }
    return st;
}

enum dyt_status dyti_reader_check(struct dyti_job_reader *reader)
{
    struct dyti_job *job = &reader->job;
    enum dyt_status st = check_required(reader, JOB, 0, 0);

    for (uint32_t i = 0; i < job->phase_count && st == DYT_OK; i++) {
        st = check_required(reader, PHASE, i, job->phase[i].kind);
    }
    st = st == DYT_OK ? check_order(reader) : st;
    st = st == DYT_OK ? check_job(reader) : st;
    st = st == DYT_OK ? dyti_reader_pools(reader) : st;
    for (uint32_t i = 0; i < job->phase_count && st == DYT_OK; i++) {
        st = dyti_reader_layout(reader, i);
        if (st == DYT_OK) {
            st = job->phase[i].kind == DYTI_PHASE_ROLLOUT
                     ? check_rollout(reader, i)
                     : check_train(reader, i);
        }
        st = st != DYT_OK ? st : check_plugin(reader, i);
    }
    st = st == DYT_OK ? dyti_reader_idle(reader) : st;
    return st == DYT_OK ? check_rewards(reader) : st;
}
