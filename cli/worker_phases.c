/* What each message of the manager makes a worker do. */
#include "cli/backends.h"
#include "cli/offer.h"
#include "cli/worker.h"
#include "edm/residency.h"

#include "base/log.h"
#include "base/trace.h"
#include "format/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define REGIONS_OF(slot) (UINT64_C(0xff) << (uint32_t)(slot)*8u)
#define BEAT_NS          200000000 /* between two heartbeats of a running phase */

struct dyti_envelope dyti_worker_stamp(struct dyti_worker *w,
                                       enum dyti_message type)
{
    return dyti_control_client_stamp(w->client, type, w->epoch, w->version);
}

enum dyt_status dyti_worker_send(struct dyti_worker *w, enum dyt_status st,
                                 struct dyti_buffer *buffer)
{
    return st != DYT_OK ? st : dyti_control_client_send(w->client, buffer);
}

/* A lost heartbeat is no failure: the next message of the phase counts. */
void dyti_worker_beat(void *worker, uint32_t done, uint32_t total)
{
    struct dyti_worker *w = worker;
    struct dyti_msg_heartbeat beat = {done, total};
    struct dyti_envelope e;
    struct dyti_buffer buffer;
    int64_t now = dyti_now_ns();

    if (now - w->last_beat_ns < BEAT_NS) {
        return;
    }
    w->last_beat_ns = now;
    e = dyti_worker_stamp(w, DYTI_MSG_HEARTBEAT);
    (void)dyti_worker_send(w, dyti_wire_heartbeat_encode(&e, &beat, &buffer),
                           &buffer);
}

/* ---- generate ------------------------------------------------------------ */

static void first_token(void *arg)
{
    struct dyti_worker *w = arg;

    w->first_token_ns = dyti_now_ns() - w->order_ns;
}

/* One rank of each replica tells: the first of its first stage. */
static bool speaks(const struct dyti_worker *w)
{
    const struct dyti_part *p =
        &dyti_layout_view(w->assembly.layout[DYTI_ARENA_ROLLOUT], w->args.rank)
             ->part;

    return p->member && p->tp_rank == 0 && p->pp_rank == 0;
}

static enum dyt_status generate(struct dyti_worker *w,
                                const struct dyti_msg_generate *order,
                                struct dyti_msg_samples *answer)
{
    struct dyti_sampling sampling =
        dyti_job_phase(&w->job, DYTI_PHASE_ROLLOUT)->sampling;
    struct dyti_rollout_request request = {.prompt = order->prompt,
                                           .prompt_count = order->prompt_count,
                                           .samples_per_prompt =
                                               order->samples_per_prompt,
                                           .sampling = &sampling,
                                           .eos = w->generation.eos,
                                           .eos_count = w->generation.eos_count,
                                           .seed = w->job.seed,
                                           .first_token = first_token,
                                           .progress = dyti_worker_beat,
                                           .arg = w};
    struct dyti_rollout_stats stats = {0};
    enum dyt_status st;

    if (w->rollout == NULL) {
        return DYT_OK;
    }
    if (order->greedy) {
        sampling.temperature = 0.0;
    }
    st = dyti_rollout_generate(w->rollout, &request, &answer->sample,
                               &answer->sample_count, &stats);
    answer->passes = stats.passes;
    answer->sampled = stats.sampled;
    answer->prefill_rows = stats.prefill_rows;
    w->kv_bytes = stats.kv_bytes > w->kv_bytes ? stats.kv_bytes : w->kv_bytes;
    return st;
}

static enum dyt_status act_generate(struct dyti_worker *w,
                                    const struct dyti_frame *frame)
{
    struct dyti_msg_generate order = {0};
    struct dyti_msg_samples answer = {0}, silent;
    struct dyti_envelope e;
    struct dyti_buffer buffer;
    enum dyt_status st = dyti_wire_generate_decode(
        frame->buffer.bytes, frame->buffer.size_bytes, &order);

    if (st != DYT_OK) {
        return st;
    }
    st = dyti_control_check_rank(dyti_world_control(w->world), w->args.rank,
                                 REGIONS_OF(DYTI_ARENA_ROLLOUT));
    if (st != DYT_OK) {
        DYTI_NOTE("generating step %llu", (unsigned long long)order.step);
        dyti_msg_generate_fini(&order);
        return st;
    }
    w->order_ns = w->last_beat_ns = dyti_now_ns();
    w->first_token_ns = 0;
    answer.step = order.step;
    dyti_faults_step(&w->faults, order.step);
    st = dyti_faults_at(&w->faults, "generate");
    st = st != DYT_OK ? st : generate(w, &order, &answer);
    st = st != DYT_OK ? st : dyti_faults_at(&w->faults, "generated");
    answer.generate_ns = dyti_now_ns() - w->order_ns;
    answer.first_token_ns = w->first_token_ns;
    if (st == DYT_OK) {
        silent = answer;
        if (!speaks(w)) {
            silent.sample_count = 0;
        }
        e = dyti_worker_stamp(w, DYTI_MSG_SAMPLES);
        st = dyti_worker_send(w, dyti_wire_samples_encode(&e, &silent, &buffer),
                              &buffer);
    }
    dyti_msg_samples_fini(&answer);
    dyti_msg_generate_fini(&order);
    return st;
}

/* ---- train --------------------------------------------------------------- */

#define METRIC_MAX   64u
#define MEMORY_MAX   20u /* owners of memory that are listed */
#define MEMORY_EVERY 10u /* steps */

struct memory_names {
    char text[MEMORY_MAX][64];
};

struct metric_list {
    char *name[METRIC_MAX];
    double value[METRIC_MAX];
    uint32_t count;
};

static void put(struct metric_list *list, const char *name, double value)
{
    union {
        const char *in;
        char *out; /* the encoder only reads names */
    } text = {.in = name};

    dyti_require(list->count < METRIC_MAX);
    list->name[list->count] = text.out;
    list->value[list->count++] = value;
}

static void put_metrics(struct metric_list *l,
                        const struct dyti_train_metrics *m)
{
    put(l, "version", (double)m->version);
    put(l, "updates", m->updates);
    put(l, "tokens", (double)m->tokens);
    put(l, "sequences", (double)m->sequences);
    put(l, "rows", (double)m->rows);
    put(l, "loss", m->loss);
    put(l, "policy_loss", m->policy_loss);
    put(l, "kl", m->kl);
    put(l, "entropy", m->entropy);
    put(l, "clip_frac/low", m->clip_frac_low);
    put(l, "clip_frac/high", m->clip_frac_high);
    put(l, "grad_norm", m->grad_norm);
    put(l, "lr", m->lr);
    put(l, "reward/mean", m->reward_mean);
    put(l, "reward/std", m->reward_std);
    put(l, "advantage/mean", m->advantage_mean);
    put(l, "advantage/abs_mean", m->advantage_abs_mean);
    put(l, "frac_reward_zero_std", m->frac_reward_zero_std);
    put(l, "frac_overlong", m->frac_overlong);
    put(l, "dropped", (double)m->dropped);
    put(l, "mismatch/logprob_abs_mean", m->mismatch_abs_mean);
    put(l, "mismatch/logprob_abs_max", m->mismatch_abs_max);
    put(l, "mismatch/rollout_kl", m->rollout_kl);
    put(l, "mismatch/ess", m->is_ess);
    put(l, "mismatch/frac_truncated", m->is_frac_truncated);
    put(l, "mismatch/frac_masked", m->is_frac_masked);
    put(l, "staleness/max", (double)m->staleness_max);
    put(l, "staleness/mean", m->staleness_mean);
    put(l, "time/train/logprob", (double)m->time_logprob_ns * 1e-9);
    put(l, "time/train/pipeline", (double)m->time_pipeline_ns * 1e-9);
    put(l, "time/train/reduce", (double)m->time_reduce_ns * 1e-9);
    put(l, "time/train/optimizer", (double)m->time_optimizer_ns * 1e-9);
    put(l, "time/train/gather", (double)m->time_gather_ns * 1e-9);
    put(l, "time/train", (double)m->time_total_ns * 1e-9);
}

/* Who has how much memory; looked at rarely, as it walks page tables. */
static enum dyt_status put_memory(struct dyti_worker *w,
                                  struct memory_names *names,
                                  struct metric_list *list)
{
    struct dyti_world_owner owner[MEMORY_MAX];
    struct rusage usage;
    double resident = 0.0;
    size_t count = 0;
    enum dyt_status st = dyti_world_memory(w->world, owner, MEMORY_MAX, &count);

    count = count < MEMORY_MAX ? count : MEMORY_MAX;
    for (size_t i = 0; st == DYT_OK && i < count; i++) {
        snprintf(names->text[i], sizeof(names->text[i]), "memory/%.48s",
                 owner[i].name);
        for (char *p = names->text[i]; *p != '\0'; p++) {
            *p = *p == ' ' ? '_' : *p;
        }
        put(list, names->text[i], (double)owner[i].touched_bytes);
        /* The control segment is shared: rank 0 counts it for all. */
        resident += w->args.rank == 0 || strcmp(owner[i].name, "control") != 0
                        ? (double)owner[i].touched_bytes
                        : 0.0;
    }
    put(list, "memory/resident_bytes", resident);
    getrusage(RUSAGE_SELF, &usage);
    put(list, "memory/peak_bytes", (double)usage.ru_maxrss * 1024.0);
    return st;
}

static enum dyt_status act_train(struct dyti_worker *w,
                                 const struct dyti_frame *frame)
{
    struct dyti_msg_train order = {0};
    struct dyti_train_metrics metrics = {0};
    struct metric_list list = {.count = 0};
    struct memory_names names;
    struct dyti_msg_metrics answer = {0};
    struct dyti_envelope e;
    struct dyti_buffer buffer;
    enum dyt_status st = dyti_wire_train_decode(
        frame->buffer.bytes, frame->buffer.size_bytes, &order);

    if (st != DYT_OK) {
        return st;
    }
    dyti_faults_step(&w->faults, order.step);
    st = dyti_faults_at(&w->faults, "train");
    if (st == DYT_OK && w->trainer != NULL) {
        st = dyti_trainer_step(w->trainer, &order.batch, order.step, &metrics);
        put_metrics(&list, &metrics);
    }
    st = st != DYT_OK ? st : dyti_faults_at(&w->faults, "trained");
    if (w->rollout != NULL) {
        put(&list, "memory/kv_bytes", (double)w->kv_bytes);
        w->kv_bytes = 0;
    }
    if (st == DYT_OK && order.step % MEMORY_EVERY == 1) {
        st = put_memory(w, &names, &list);
    }
    if (st == DYT_OK) {
        w->version = w->trainer != NULL ? metrics.version : w->version;
        answer = (struct dyti_msg_metrics){order.step, list.name, list.value,
                                           list.count};
        e = dyti_worker_stamp(w, DYTI_MSG_METRICS);
        st = dyti_worker_send(w, dyti_wire_metrics_encode(&e, &answer, &buffer),
                              &buffer);
    }
    dyti_msg_train_fini(&order);
    return st;
}

/* ---- switch -------------------------------------------------------------- */

static enum dyti_verify verify_of(const struct dyti_job *job)
{
    switch (job->sw.verify) {
    case DYTI_JOB_VERIFY_OFF:
        return DYTI_VERIFY_OFF;
    case DYTI_JOB_VERIFY_FULL:
        return DYTI_VERIFY_FULL;
    default:
        return DYTI_VERIFY_SAMPLE;
    }
}

static enum dyt_status answer_switch(struct dyti_worker *w,
                                     const struct dyti_switch_report *r,
                                     int64_t post_ns)
{
    struct dyti_msg_switch_done done = {.epoch = r->epoch,
                                        .committed =
                                            r->decision == DYTI_DECISION_COMMIT,
                                        .kept_bytes = r->kept_bytes,
                                        .moved_bytes = r->moved_bytes,
                                        .read_bytes = r->read_bytes,
                                        .written_bytes = r->written_bytes,
                                        .hashed_bytes = r->verified_bytes,
                                        .prepare_ns = r->prepare_ns,
                                        .transfer_ns = r->transfer_ns,
                                        .verify_ns = r->verify_ns,
                                        .commit_ns = r->vote_ns + r->commit_ns,
                                        .post_ns = post_ns};
    struct dyti_envelope e = dyti_worker_stamp(w, DYTI_MSG_SWITCH_DONE);
    struct dyti_buffer buffer;

    return dyti_worker_send(w, dyti_wire_switch_done_encode(&e, &done, &buffer),
                            &buffer);
}

static enum dyt_status run_switch(struct dyti_worker *w,
                                  enum dyti_target target,
                                  const struct dyti_switch_order *how,
                                  struct dyti_switch_report *report)
{
    bool rollout = target == DYTI_TARGET_ROLLOUT;
    struct dyti_switch *self = rollout ? w->to_rollout : w->to_train;
    struct dyti_world_switch_memory memory;

    return w->job.sw.release
               ? dyti_world_switch(
                     w->world, rollout ? DYTI_ARENA_TRAIN : DYTI_ARENA_ROLLOUT,
                     rollout ? DYTI_ARENA_ROLLOUT : DYTI_ARENA_TRAIN, self, how,
                     report, &memory)
               : dyti_switch_run(self, how, report);
}

static enum dyt_status act_switch(struct dyti_worker *w,
                                  const struct dyti_frame *frame)
{
    struct dyti_msg_switch order;
    struct dyti_switch_report report = {0};
    struct dyti_switch_order how = {.version = frame->envelope.version,
                                    .verify = verify_of(&w->job)};
    int64_t start;
    enum dyt_status st = dyti_wire_switch_decode(
        frame->buffer.bytes, frame->buffer.size_bytes, &order);

    if (st != DYT_OK) {
        return st;
    }
    how.epoch = w->epoch = order.epoch;
    w->version = frame->envelope.version;
    dyti_faults_switch(&w->faults, order.target, &how);
    if (order.target == DYTI_TARGET_TRAIN) {
        st = dyti_offer_done(w);
    }
    st = st != DYT_OK ? st : run_switch(w, order.target, &how, &report);
    if (st == DYT_OK && order.target == DYTI_TARGET_ROLLOUT) {
        st = dyti_offer_version(w, report.version);
    }
    if (st != DYT_OK) {
        return st;
    }
    start = dyti_now_ns();
    if (w->rollout != NULL && w->assembly.mode == DYTI_MODE_DOUBLE) {
        st = dyti_rollout_set_weights(
            w->rollout, dyti_world_region(w->world, w->args.rank,
                                          DYTI_ARENA_ROLLOUT, DYTI_PARAM));
        if (st != DYT_OK) {
            return st;
        }
    }
    if (w->rollout != NULL) {
        if (order.target == DYTI_TARGET_ROLLOUT) {
            dyti_rollout_set_version(w->rollout, report.version);
        } else {
            dyti_rollout_invalidate(w->rollout);
        }
    }
    return answer_switch(w, &report, dyti_now_ns() - start);
}

/* ---- the rest ------------------------------------------------------------ */

static enum dyt_status act_pause(struct dyti_worker *w)
{
    struct dyti_envelope e = dyti_worker_stamp(w, DYTI_MSG_PAUSED);
    struct dyti_buffer buffer;

    /* Work is done message by message, so nothing runs now. */
    return dyti_worker_send(w, dyti_wire_empty(&e, &buffer), &buffer);
}

static void writing(void *arg)
{
    dyti_worker_beat(arg, 0, 0);
}

static enum dyt_status act_checkpoint(struct dyti_worker *w,
                                      const struct dyti_frame *frame)
{
    const struct dyti_job_phase *train =
        dyti_job_phase(&w->job, DYTI_PHASE_TRAIN);
    struct dyti_checkpoint_spec spec = {
        .model = w->assembly.model,
        .dtype = dyti_job_dtype_of(train->layout.dtype),
        .optimizer = true,
        .progress = writing,
        .progress_arg = w};
    const void *base[DYTI_KIND_COUNT] = {0};
    struct dyti_msg_checkpoint order = {0};
    struct dyti_envelope e;
    struct dyti_buffer buffer;
    enum dyt_status st = dyti_wire_checkpoint_decode(
        frame->buffer.bytes, frame->buffer.size_bytes, &order);

    for (int k = DYTI_MASTER; k <= DYTI_EXP_AVG_SQ; k++) {
        base[k] = dyti_world_region(w->world, w->args.rank, DYTI_ARENA_TRAIN,
                                    (enum dyti_kind)k);
    }
    st = st != DYT_OK ? st : dyti_faults_at(&w->faults, "checkpoint");
    if (st == DYT_OK) {
        st = dyti_checkpoint_write(order.path, &spec,
                                   w->assembly.layout[DYTI_ARENA_TRAIN],
                                   w->args.rank, base);
    }
    st = st != DYT_OK ? st : dyti_faults_at(&w->faults, "checkpointed");
    dyti_msg_checkpoint_fini(&order);
    if (st != DYT_OK) {
        DYTI_NOTE("writing rank %u's part of a checkpoint", w->args.rank);
        return st;
    }
    e = dyti_worker_stamp(w, DYTI_MSG_CHECKPOINT_DONE);
    return dyti_worker_send(w, dyti_wire_empty(&e, &buffer), &buffer);
}

static enum dyt_status act(struct dyti_worker *w,
                           const struct dyti_frame *frame)
{
    switch ((enum dyti_message)frame->envelope.type) {
    case DYTI_MSG_GENERATE:
        dyti_log_identity((int32_t)w->args.rank, "rollout");
        return act_generate(w, frame);
    case DYTI_MSG_TRAIN:
        dyti_log_identity((int32_t)w->args.rank, "train");
        return act_train(w, frame);
    case DYTI_MSG_SWITCH:
        dyti_log_identity((int32_t)w->args.rank, "switch");
        return act_switch(w, frame);
    case DYTI_MSG_PAUSE:
        return act_pause(w);
    case DYTI_MSG_CHECKPOINT:
        return act_checkpoint(w, frame);
    default:
        return DYTI_FAIL(DYT_ERR_STATE, "a worker is not asked to %s",
                         dyti_message_name(frame->envelope.type));
    }
}

enum dyt_status dyti_worker_act(struct dyti_worker *w,
                                const struct dyti_frame *frame)
{
    struct dyti_trace_region region = dyti_trace_begin(
        "worker", dyti_message_name((enum dyti_message)frame->envelope.type));
    enum dyt_status st = act(w, frame);

    dyti_trace_end(&region, 0);
    return st;
}
