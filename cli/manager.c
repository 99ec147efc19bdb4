/* The run: load, switch, then step after step until a stop condition. */
#include "cli/manager.h"

#include "base/env.h"
#include "cli/backends.h"
#include "cli/check_rows.h"
#include "cli/commands.h"
#include "cli/earlier.h"
#include "cli/exit.h"
#include "format/tokenizer.h"
#include "reward/reward.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- open, close --------------------------------------------------------- */

static enum dyt_status look_at_signals(void *arg)
{
    return dyti_manager_on_signal(arg);
}

static enum dyt_status watch_signals(struct dyti_manager *m)
{
    enum dyt_status st = dyti_signals_open(m->tty, &m->signals);

    signal(SIGPIPE, SIG_IGN);
    m->watch = (struct dyti_reward_watch){m->signals.fd, look_at_signals, m};
    return st;
}

static enum dyti_score_kind score_kind(enum dyti_reward_kind kind)
{
    switch (kind) {
    case DYTI_REWARD_NUMERIC:
        return DYTI_SCORE_NUMERIC;
    case DYTI_REWARD_REGEX:
        return DYTI_SCORE_REGEX;
    case DYTI_REWARD_POSITION_MATCH:
        return DYTI_SCORE_POSITION_MATCH;
    case DYTI_REWARD_COMMAND:
        return DYTI_SCORE_COMMAND;
    default:
        return DYTI_SCORE_EXACT;
    }
}

/* The overlong penalty is part of training's reward, not of an evaluation. */
static enum dyt_status open_score(struct dyti_manager *m, bool penalty,
                                  struct dyti_score **out)
{
    const struct dyti_job *job = m->job;
    struct dyti_score_function *f = calloc(job->reward_count + 1u, sizeof(*f));
    struct dyti_score_params p = {
        .function = f,
        .function_count = job->reward_count,
        .tokenizer = m->tokenizer,
        .ops = &dyti_reward_native,
        .watch = &m->watch,
        .overlong_buffer = penalty ? job->algorithm.overlong_buffer : 0,
        .overlong_factor = job->algorithm.overlong_factor,
        .max_response_tokens = dyti_job_phase(m->job, DYTI_PHASE_ROLLOUT)
                                   ->sampling.max_response_tokens};
    enum dyt_status st;

    if (f == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u reward functions",
                         job->reward_count);
    }
    for (uint32_t i = 0; i < job->reward_count; i++) {
        const struct dyti_job_reward *r = &job->reward[i];

        f[i] = (struct dyti_score_function){.kind = score_kind(r->kind),
                                            .name = r->name,
                                            .weight = r->weight,
                                            .answer = r->answer,
                                            .pattern = r->pattern,
                                            .ignore_case = r->ignore_case,
                                            .tolerance = r->tolerance,
                                            .command = r->command,
                                            .command_count = r->command_count,
                                            .deadline = r->deadline};
    }
    st = dyti_score_create(&p, out);
    free(f);
    return st;
}

static enum dyt_status open_chat(struct dyti_manager *m)
{
    if (strcmp(m->job->data.chat_template, "none") == 0) {
        return DYT_OK;
    }
    return dyti_chat_template_open(m->model_dir, m->job->data.chat_template,
                                   &m->chat);
}

static enum dyt_status open_inputs(struct dyti_manager *m)
{
    enum dyt_status st = dyti_tokenizer_open(m->model_dir, &m->tokenizer);

    st = st != DYT_OK ? st : open_chat(m);
    st = st != DYT_OK ? st : dyti_data_open(m->job->data.train, &m->train);
    if (st == DYT_OK && m->job->eval.data[0] != '\0') {
        st = dyti_data_open(m->job->eval.data, &m->eval);
        st = st != DYT_OK ? st : dyti_check_rows(m->job, m->eval);
    }
    st = st != DYT_OK ? st : dyti_check_rows(m->job, m->train);
    st = st != DYT_OK ? st : dyti_manager_check_prompts(m);
    st = dyti_exit_given(st);
    st = st != DYT_OK ? st : open_score(m, true, &m->score);
    st = st != DYT_OK ? st : open_score(m, false, &m->eval_score);
    return st;
}

static void manager_init(struct dyti_manager *m, struct dyti_job *job,
                         struct dyti_assembly *assembly, char *model_dir)
{
    *m = (struct dyti_manager){
        .job = job,
        .model_dir = model_dir,
        .assembly = *assembly,
        .lock_fd = -1,
        .life_write = -1,
        .signals = {.fd = -1, .told_fd = -1, .signal_fd = -1},
        .control_mem = {.handle = -1},
        .eval_match = NAN,
        .eval_reward = NAN,
        .eval_step = UINT64_MAX, /* none yet */
        .tty = isatty(STDOUT_FILENO) == 1,
        .start_ns = dyti_now_ns(),
        .end = "error"};
    for (uint32_t r = 0; r < DYTI_RANKS_MAX; r++) {
        m->worker[r].pidfd = m->worker[r].segment_fd = -1;
    }
}

static void manager_fini(struct dyti_manager *m)
{
    dyti_score_destroy(m->score);
    dyti_score_destroy(m->eval_score);
    dyti_data_close(m->train);
    dyti_data_close(m->eval);
    dyti_chat_template_close(m->chat);
    dyti_tokenizer_close(&m->tokenizer);
    dyti_metrics_close(m->metrics);
    for (uint32_t i = 0; i < DYTI_SHOWN; i++) {
        free(m->shown_first[i]);
        free(m->shown_last[i]);
    }
    free(m->reward.value);
    free(m->switch_seconds.value);
    free(m->refit_seconds.value);
    free(m->eval_exact.value);
    dyti_score_report_fini(&m->eval_report);
    free(m->folder);
    free(m->job_text);
    dyti_signals_close(&m->signals);
    if (m->lock_fd >= 0) {
        close(m->lock_fd);
    }
}

/* ---- one step ------------------------------------------------------------ */

/* A number that the kept list lacks: of a rank that only generates. */
static enum dyt_status append_metric(struct dyti_msg_metrics *kept,
                                     const char *name, double value)
{
    size_t count = kept->count + 1u;
    char **names = realloc(kept->name, count * sizeof(*names));
    double *values = NULL;

    if (names != NULL) {
        kept->name = names;
        values = realloc(kept->value, count * sizeof(*values));
    }
    if (values != NULL) {
        kept->value = values;
        names[kept->count] = strdup(name);
    }
    if (values == NULL || names[kept->count] == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "metric %s", name);
    }
    values[kept->count++] = value;
    return DYT_OK;
}

/* A rank's memory counts where it is the largest so far; what is resident is
 * added up. */
static enum dyt_status merge_memory(struct dyti_msg_metrics *kept,
                                    const struct dyti_msg_metrics *m)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; st == DYT_OK && i < m->count; i++) {
        uint32_t k = 0;

        if (strncmp(m->name[i], "memory/", 7) != 0) {
            continue;
        }
        while (k < kept->count && strcmp(m->name[i], kept->name[k]) != 0) {
            k++;
        }
        if (k == kept->count) {
            st = append_metric(kept, m->name[i], m->value[i]);
        } else if (strcmp(m->name[i], "memory/resident_bytes") == 0) {
            kept->value[k] += m->value[i];
        } else {
            kept->value[k] = fmax(kept->value[k], m->value[i]);
        }
    }
    return st;
}

/* Metrics are the same on every train rank but for times and memory: those of
 * the one that knows the most numbers are kept. */
static enum dyt_status on_metrics(void *arg, uint32_t rank,
                                  const struct dyti_frame *frame)
{
    struct dyti_msg_metrics *kept = arg, m, other;
    enum dyt_status st = dyti_wire_metrics_decode(frame->buffer.bytes,
                                                  frame->buffer.size_bytes, &m);

    (void)rank;
    if (st != DYT_OK) {
        return st;
    }
    if (m.count > kept->count) {
        other = *kept;
        *kept = m;
        m = other;
    }
    st = merge_memory(kept, &m);
    dyti_msg_metrics_fini(&m);
    return st;
}

static enum dyt_status train(struct dyti_manager *m, struct dyti_scored *scored,
                             struct dyti_msg_metrics *out_metrics)
{
    struct dyti_msg_train order = {m->step, scored->batch};
    struct dyti_envelope e;
    struct dyti_buffer buffer;
    int64_t start = dyti_now_ns();
    double limit = dyti_job_phase(m->job, DYTI_PHASE_TRAIN)->deadline;
    enum dyt_status st = dyti_phase_take(&m->phase, DYTI_EVENT_TRAIN, 0);

    if (st != DYT_OK) {
        return st;
    }
    e = dyti_manager_stamp(m, DYTI_MSG_TRAIN);
    st = dyti_manager_tell(m, dyti_wire_train_encode(&e, &order, &buffer),
                           &buffer);
    st = st != DYT_OK ? st
                      : dyti_manager_collect(m, DYTI_MSG_METRICS, limit,
                                             on_metrics, out_metrics);
    if (st != DYT_OK) {
        DYTI_NOTE("training step %llu", (unsigned long long)m->step);
        return st;
    }
    m->trained_ns = dyti_now_ns();
    m->seconds_train += (double)(m->trained_ns - start) * 1e-9;
    m->tokens_trained += (uint64_t)dyti_metric_value(out_metrics, "tokens");
    m->gap_max = fmax(
        m->gap_max, dyti_metric_value(out_metrics, "mismatch/logprob_abs_max"));
    return dyti_phase_take(&m->phase, DYTI_EVENT_TRAINED,
                           (uint64_t)dyti_metric_value(out_metrics, "version"));
}

/* End of the last optimizer step to the first token of the new version. */
static enum dyt_status note_refit(struct dyti_manager *m, int64_t ordered_ns,
                                  const struct dyti_scored *s)
{
    if (m->trained_ns == 0) {
        return DYT_OK; /* the first rollout follows no optimizer step */
    }
    m->refit_first_token_ns = s->first_token_ns;
    m->refit_resume_ns = ordered_ns - m->switched_ns;
    m->refit_ns = ordered_ns - m->trained_ns + s->first_token_ns;
    m->trained_ns = 0;
    return dyti_series_add(&m->refit_seconds, (double)m->refit_ns * 1e-9);
}

static bool eval_due(const struct dyti_manager *m)
{
    if (m->eval == NULL || m->eval_step == m->step) {
        return false;
    }
    if (m->step == 0) {
        return m->job->eval.before_training;
    }
    return m->job->eval.every > 0 && m->step % m->job->eval.every == 0;
}

/* Rollout and trainer read the same weights: where they disagree about a token,
 * one of them is wrong, and what is learned too. */
static enum dyt_status check_gap(const struct dyti_manager *m,
                                 const struct dyti_msg_metrics *metrics)
{
    double limit = m->job->algorithm.max_logprob_gap;
    double gap = dyti_metric_value(metrics, "mismatch/logprob_abs_max");

    return limit <= 0.0 || gap <= limit
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_VERIFY,
                           "step %llu: rollout and trainer differ by %g in a "
                           "token's log-probability, more than "
                           "algorithm.max_logprob_gap = %g: their weights or "
                           "their sums are not the same",
                           (unsigned long long)m->step, gap, limit);
}

static enum dyt_status step(struct dyti_manager *m)
{
    struct dyti_scored scored;
    struct dyti_msg_metrics metrics = {0};
    int64_t ordered;
    enum dyt_status st;

    m->step++;
    dyti_faults_step(&m->faults, m->step);
    ordered = dyti_now_ns();
    st = dyti_manager_next_batch(m, &scored);
    if (st != DYT_OK) {
        DYTI_NOTE("generating step %llu", (unsigned long long)m->step);
        return st;
    }
    m->seconds_rollout += (double)scored.generate_ns * 1e-9;
    m->seconds_score += (double)scored.score_ns * 1e-9;
    m->tokens_sampled += scored.sampled;
    st = note_refit(m, ordered, &scored);
    st = st != DYT_OK ? st
                      : dyti_series_add(&m->reward,
                                        dyti_score_report_mean(&scored.report));
    st = st != DYT_OK ? st : dyti_manager_switch(m, DYTI_TARGET_TRAIN);
    st = st != DYT_OK ? st : train(m, &scored, &metrics);
    st = st != DYT_OK ? st : dyti_manager_say_step(m, &scored, &metrics);
    st = st != DYT_OK ? st : check_gap(m, &metrics);
    dyti_msg_metrics_fini(&metrics);
    dyti_scored_fini(&scored);
    return st;
}

/* ---- the loop ------------------------------------------------------------ */

/* Why the run ends now; NULL: it goes on. */
static const char *stop_reason(struct dyti_manager *m)
{
    size_t window = m->job->stop.window;

    m->interrupts = dyti_signals_count(&m->signals);
    if (m->interrupts > 0) {
        return "interrupted";
    }
    if (m->step >= m->job->steps) {
        return "steps";
    }
    if (m->reward.count >= window && window > 0 &&
        dyti_series_mean(&m->reward, m->reward.count - window,
                         m->reward.count) >= m->job->stop.reward_mean) {
        return "reward";
    }
    if ((double)(dyti_now_ns() - m->start_ns) * 1e-9 >= m->job->stop.seconds) {
        return "seconds";
    }
    return NULL;
}

static bool save_due(const struct dyti_manager *m)
{
    uint32_t every = m->job->checkpoint.every;

    return every > 0 && m->step > m->first_step && m->step % every == 0;
}

static enum dyt_status to_rollout(struct dyti_manager *m)
{
    enum dyt_status st = dyti_manager_switch(m, DYTI_TARGET_ROLLOUT);

    m->switched_ns = dyti_now_ns();
    return st;
}

/* Between two steps the state machine is in TRAIN_IDLE: saved from there, then
 * switched to rollout for the next step. */
static enum dyt_status loop(struct dyti_manager *m)
{
    enum dyt_status st;

    for (;;) {
        const char *why = stop_reason(m);

        if (why != NULL || save_due(m)) {
            st = dyti_manager_save(m);
            if (st != DYT_OK) {
                return st;
            }
        }
        if (why != NULL) {
            m->end = why;
            break;
        }
        st = to_rollout(m);
        if (st == DYT_OK && eval_due(m)) {
            st = dyti_manager_eval(m);
        }
        st = st != DYT_OK ? st : step(m);
        if (st != DYT_OK) {
            return st;
        }
    }
    if (m->eval != NULL && m->eval_step != m->step && m->interrupts == 0) {
        st = to_rollout(m);
        st = st != DYT_OK ? st : dyti_manager_eval(m);
        return st;
    }
    return DYT_OK;
}

static enum dyt_status run(struct dyti_manager *m, bool resume)
{
    char *checkpoint = NULL;
    char aside[DYTI_PATH_BYTES] = "";
    enum dyt_status st = dyti_manager_open_folder(m);

    st = st != DYT_OK ? st : watch_signals(m);
    st = st != DYT_OK ? st : open_inputs(m);
    if (st == DYT_OK && resume) {
        st = dyti_manager_resume(m, &checkpoint);
    } else if (st == DYT_OK) {
        st = dyti_earlier_aside(m->folder, aside);
    }
    st = st != DYT_OK ? st : dyti_metrics_open(m->folder, m->step, &m->metrics);
    if (st == DYT_OK) {
        m->first_step = m->step;
        m->step_ns = dyti_now_ns();
        dyti_manager_say_start(m, checkpoint, aside);
        st = dyti_manager_start(m, checkpoint);
        dyti_signals_under_way(&m->signals);
    }
    free(checkpoint);
    st = st != DYT_OK ? st : dyti_manager_engine_start(m);
    m->seconds_start = (double)(dyti_now_ns() - m->start_ns) * 1e-9;
    st = st != DYT_OK ? st : loop(m);
    if (st == DYT_OK && m->job->checkpoint.export_hf) {
        st = dyti_manager_export(m);
    }
    return st;
}

int dyti_manager_run(struct dyti_job *job, struct dyti_assembly *assembly,
                     char *model_dir, const char *sets, bool resume)
{
    struct dyti_manager m;
    enum dyt_status st, ended;

    if (job->ranks > DYTI_RANKS_MAX) {
        return dyti_exit_fail(
            "run",
            DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                      "%s: ranks %u: one host runs at most %u; a plan of "
                      "more can be made with `dynatrain plan`",
                      job->path, job->ranks, DYTI_RANKS_MAX));
    }
    manager_init(&m, job, assembly, model_dir);
    m.sets = sets;
    dyti_phase_init(&m.phase, 0);
    st = dyti_faults_read(&m.faults, DYTI_FAULT_MANAGER);
    st = st != DYT_OK ? st : run(&m, resume);
    dyti_phase_take(&m.phase, st == DYT_OK ? DYTI_EVENT_STOP : DYTI_EVENT_FAIL,
                    0);
    if (st != DYT_OK && m.page != NULL) { /* nobody waits for anybody now */
        dyti_control_abort(m.page, dyti_backends_host()->wait, 0, st);
    }
    if (st != DYT_OK) {
        dyti_exit_fail("run", st);
    }
    dyti_manager_engine_stop(&m);
    dyti_manager_stop(&m, st != DYT_OK);
    dyti_phase_take(&m.phase, DYTI_EVENT_ENDED, 0);
    ended = m.step > 0 || st == DYT_OK ? dyti_manager_say_end(&m, st) : DYT_OK;
    if (st == DYT_OK && ended != DYT_OK) {
        st = ended;
        dyti_exit_fail("run", st);
    }
    if (st == DYT_OK && m.interrupts > 0) {
        st = DYT_ERR_CANCELLED;
    }
    manager_fini(&m);
    return dyti_exit_code(st);
}
