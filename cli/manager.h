/* The manager process of `dynatrain run`: it holds no weights, starts the
 * workers, tells them what to do phase by phase, judges samples and keeps the
 * books.
 *   manager.c          the run: steps, stop conditions, the end
 *   manager_workers.c  processes: start, watch, stop
 *   manager_wait.c     one answer from every rank, or the reason why not
 *   manager_switch.c   one switch
 *   manager_prompts.c  rows of the data as prompts
 *   manager_batch.c    orders of prompts out, scored samples in
 *   manager_engine.c   the same by somebody else's engine
 *   manager_eval.c     evaluation
 *   manager_save.c     the run's folder, checkpoints, resuming
 *   manager_report.c   what people see while it runs
 *   manager_end.c      and at its end */
#ifndef DYTI_CLI_MANAGER_H
#define DYTI_CLI_MANAGER_H

#include "cli/assemble.h"
#include "cli/engine.h"
#include "cli/fault.h"
#include "cli/signals.h"
#include "control/control.h"
#include "exec/control.h"
#include "format/chat_template.h"
#include "format/checkpoint.h"
#include "format/data_jsonl.h"
#include "format/file.h"
#include "format/hf_config.h"
#include "format/metrics.h"
#include "ops/memory.h"
#include "phase/phase.h"
#include "score/score.h"
#include "wire/wire.h"

#include <sys/types.h>

#define DYTI_SHOWN 3u /* sample answers shown at start and end */

struct dyti_worker_process {
    pid_t pid; /* 0: not started, or reaped */
    int pidfd;
    int segment_fd;
    enum dyti_page_kind pages;
    bool said_hello;
    double copy_rate;
};

/* One switch as the manager saw it; times in ns, parts are those of the slowest
 * rank. */
struct dyti_switch_record {
    int64_t total_ns; /* pause order to the last rank's answer */
    int64_t pause_ns, prepare_ns, transfer_ns, verify_ns, commit_ns, post_ns;
    uint64_t kept_bytes, moved_bytes, read_bytes, written_bytes;
    uint64_t messages; /* both ways, all ranks */
};

/* Growing lists of doubles: curves and medians of the report. */
struct dyti_series {
    double *value;
    size_t count, cap;
};

struct dyti_manager {
    struct dyti_job *job; /* borrowed */
    char *model_dir;
    char *folder;     /* runs/<name> */
    const char *sets; /* --set, to be said where the command is said again */
    int lock_fd;
    struct dyti_assembly assembly;
    struct dyti_generation_config generation;

    /* Workers. */
    uint64_t job_id;
    char endpoint[DYTI_ENDPOINT_BYTES];
    struct dyti_control_server *server;
    struct dyti_worker_process worker[DYTI_RANKS_MAX];
    struct dyti_segment_mem control_mem;
    struct dyti_control_page *page;
    int life_write; /* workers end when this end closes */
    struct dyti_signals signals;
    struct dyti_reward_watch watch; /* of signals.fd */
    uint32_t interrupts;            /* that the run has looked at */

    /* Somebody else's generation; NULL: the ranks do it. */
    struct dyti_engine *engine;
    bool engine_serves;
    uint64_t engine_version;               /* that it serves */
    char session_address[DYTI_PATH_BYTES]; /* "": no session */

    /* The loop. */
    struct dyti_phase phase;
    struct dyti_data *train, *eval;
    struct dyti_data_cursor cursor;
    struct dyti_tokenizer tokenizer;
    struct dyti_chat_template *chat; /* NULL: "none" */
    struct dyti_score *score, *eval_score;
    struct dyti_metrics *metrics;
    uint64_t step, next_prompt, first_step;
    uint64_t overlong_prompts;
    int64_t start_ns, trained_ns; /* end of the last optimizer step */

    /* The books. */
    struct dyti_series reward, switch_seconds, refit_seconds, eval_exact;
    struct dyti_switch_record last_switch, to_rollout, to_train;
    int64_t switched_ns; /* end of the last switch to rollout */
    int64_t refit_ns, refit_resume_ns, refit_first_token_ns; /* the last one */
    double gap_max;
    double eval_match, eval_reward; /* of the last evaluation, NAN: none yet */
    double eval_length;             /* mean, in tokens */
    struct dyti_score_report eval_report;
    uint64_t eval_step, eval_samples, saved_step;
    double eval_seconds, save_seconds; /* of the last one */
    double seconds_rollout, seconds_score, seconds_switch, seconds_train,
        seconds_eval, seconds_save, seconds_start;
    uint64_t tokens_sampled, tokens_trained;
    char *shown_first[DYTI_SHOWN], *shown_last[DYTI_SHOWN];
    char isa[32], pages[32]; /* what rank 0 runs on */
    char resumed_isa[32];    /* of the checkpoint, "" for a fresh start */
    char *job_text;          /* resolved job */
    const char *end;         /* "steps", "reward", "seconds", "interrupted" */
    bool tty;
    int64_t last_line_ns, step_ns;
    struct dyti_faults faults; /* that a test ordered */
};

/* A step's samples with what scoring said of them. */
struct dyti_scored {
    struct dyti_batch batch;
    struct dyti_score_report report;
    char **text; /* [batch.sample_count], owned */
    int64_t generate_ns, first_token_ns, score_ns;
    uint64_t sampled;
    uint32_t resampled; /* extra rollouts */
};
void dyti_scored_fini(struct dyti_scored *scored);

/* ---- manager_workers.c --------------------------------------------------- */
enum dyt_status dyti_manager_start(struct dyti_manager *m, const char *resume);
/* bye, then wait, then kill: nothing is left.  Safe at any time. */
void dyti_manager_stop(struct dyti_manager *m, bool now);

/* ---- manager_wait.c ------------------------------------------------------ */
typedef enum dyt_status (*dyti_answer_fn)(void *arg, uint32_t rank,
                                          const struct dyti_frame *frame);
/* Wait until every rank has sent one message of `type`; heartbeats go to the
 * progress line.  A death, an error message, a second Ctrl-C or `seconds`
 * without a sign of life from one rank that has not answered, whatever the
 * others say, ends it with the reason, and wakes all other ranks. */
enum dyt_status dyti_manager_collect(struct dyti_manager *m,
                                     enum dyti_message type, double seconds,
                                     dyti_answer_fn answer, void *arg);
/* One look at deaths, signals and error messages, at most `ms` long; answers
 * other than errors must not be due. */
enum dyt_status dyti_manager_glance(struct dyti_manager *m, int64_t ms);
/* Send an encoded message to every rank. */
enum dyt_status dyti_manager_tell(struct dyti_manager *m, enum dyt_status st,
                                  struct dyti_buffer *buffer);
/* See what signals there were: the first lets the step end, the second is
 * DYT_ERR_CANCELLED. */
enum dyt_status dyti_manager_on_signal(struct dyti_manager *m);
/* The rank that hangs: all are woken, and it is the one that stays silent.
 * `answered` [ranks] have said what was asked; NULL: none. */
uint32_t dyti_manager_find_hung(struct dyti_manager *m, const bool *answered);
struct dyti_envelope dyti_manager_stamp(struct dyti_manager *m,
                                        enum dyti_message type);

/* ---- manager_switch.c ---------------------------------------------------- */
enum dyt_status dyti_manager_switch(struct dyti_manager *m,
                                    enum dyti_target target);

/* ---- manager_prompts.c --------------------------------------------------- */
/* That no prompt is too long for data.overlong_prompt = "error": now and not at
 * its row, which may be days away. */
enum dyt_status dyti_manager_check_prompts(struct dyti_manager *m);
/* Prompt of a row as ids; *out_dropped: for its length. */
enum dyt_status dyti_manager_prompt(struct dyti_manager *m,
                                    const struct dyti_data *data, uint64_t row,
                                    struct dyti_prompt *out_prompt,
                                    bool *out_dropped);

/* ---- manager_batch.c ----------------------------------------------------- */
/* Generate and score `prompt`s (taken over). */
enum dyt_status dyti_manager_generate(struct dyti_manager *m,
                                      struct dyti_msg_generate *order,
                                      const struct dyti_data *data,
                                      struct dyti_score *score,
                                      struct dyti_scored *out_scored);
/* The batch of the next step. */
enum dyt_status dyti_manager_next_batch(struct dyti_manager *m,
                                        struct dyti_scored *out_scored);

/* ---- manager_engine.c ----------------------------------------------------
 * Only where m->engine is there; DYT_OK and nothing else in start otherwise. */
enum dyt_status dyti_manager_engine_start(struct dyti_manager *m);
void dyti_manager_engine_stop(struct dyti_manager *m);
/* The version that the ranks offer, into the engine. */
enum dyt_status dyti_manager_engine_update(struct dyti_manager *m);
/* Samples as they come, with what a replica would say; taken over from
 * `samples` by setting its count to 0. */
typedef enum dyt_status (*dyti_samples_fn)(void *arg,
                                           struct dyti_msg_samples *samples);
enum dyt_status dyti_manager_engine_generate(
    struct dyti_manager *m, const struct dyti_msg_generate *order,
    dyti_samples_fn taken, void *arg);

/* ---- manager_eval.c ------------------------------------------------------ */
enum dyt_status dyti_manager_eval(struct dyti_manager *m);

/* ---- manager_save.c ------------------------------------------------------ */
/* Make and lock the run's folder.  DYT_ERR_BUSY: another run has it. */
enum dyt_status dyti_manager_open_folder(struct dyti_manager *m);
enum dyt_status dyti_manager_save(struct dyti_manager *m);
/* Weights of the newest checkpoint as a Hugging Face directory: export/. */
enum dyt_status dyti_manager_export(struct dyti_manager *m);
/* The newest whole checkpoint of the folder, NULL if there is none; fills step,
 * cursor and the rest of the books. */
enum dyt_status dyti_manager_resume(struct dyti_manager *m, char **out_path);

/* ---- manager_report.c ---------------------------------------------------- */
enum dyt_status dyti_series_add(struct dyti_series *series, double value);
/* Lengths of the completions of a batch, in tokens. */
struct dyti_lengths {
    double mean, min, max, clipped;
};
struct dyti_lengths dyti_lengths_of(const struct dyti_batch *batch);
/* A number of a step's metrics by its name; NAN: not there. */
double dyti_metric_value(const struct dyti_msg_metrics *metrics,
                         const char *name);
double dyti_series_median(const struct dyti_series *series);
double dyti_series_max(const struct dyti_series *series);
/* Mean of values [from, to). */
double dyti_series_mean(const struct dyti_series *series, size_t from,
                        size_t to);
/* aside: where an earlier run was put; "" for none. */
void dyti_manager_say_start(struct dyti_manager *m, const char *checkpoint,
                            const char *aside);
void dyti_manager_say_progress(struct dyti_manager *m, const char *what,
                               uint32_t done, uint32_t total);
enum dyt_status dyti_manager_say_step(struct dyti_manager *m,
                                      const struct dyti_scored *scored,
                                      const struct dyti_msg_metrics *metrics);
enum dyt_status dyti_manager_say_end(struct dyti_manager *m,
                                     enum dyt_status st);
void dyti_manager_keep_shown(struct dyti_manager *m,
                             const struct dyti_scored *scored);

/* ---- manager.c ------------------------------------------------------------
 */
/* The run, from start to exit code.  All arguments are borrowed. */
int dyti_manager_run(struct dyti_job *job, struct dyti_assembly *assembly,
                     char *model_dir, const char *sets, bool resume);

#endif /* DYTI_CLI_MANAGER_H */
