/* A job, resolved: what `dynatrain run JOB.toml` will do, every default filled
 * in and every value checked.  Answers "what does this configuration mean?"
 * in: TOML files and --set   out: used by cli/, which hands rooms their parts
 *
 * One table (format/job_options.h) makes the parser, --set, the help listing,
 * docs/config.md and the canonical TOML text of a resolved job.
 * Errors are one line: "job.toml:12:1: <what is wrong>: <what to do>".
 *   DYT_ERR_CONFIG       wrong: unknown key, wrong type, out of range, …
 *   DYT_ERR_UNSUPPORTED  right, but not available yet
 *   DYT_ERR_IO           a file cannot be read
 */
#ifndef DYTI_FORMAT_JOB_H
#define DYTI_FORMAT_JOB_H

#include "base/dtype.h"
#include "base/error.h"
#include "data/settings.h"
#include "layout/arena.h"

#include <stddef.h>
#include <stdio.h>

/* Values of the enums are in the order of the words in the configuration. */
enum dyti_job_dtype { DYTI_JOB_F32, DYTI_JOB_BF16 };
enum dyti_phase_kind { DYTI_PHASE_ROLLOUT, DYTI_PHASE_TRAIN };
enum dyti_job_engine { DYTI_ENGINE_BUILTIN, DYTI_ENGINE_PLUGIN };
enum dyti_keep { DYTI_KEEP_PARKED, DYTI_KEEP_MOVE };
enum dyti_grad_keep { DYTI_GRAD_DROPPED };
enum dyti_job_recompute { DYTI_JOB_RECOMPUTE_NONE, DYTI_JOB_RECOMPUTE_LAYER };
/* As enum dyti_world_mover; as dyti_strategy_at() counts. */
enum dyti_job_mover { DYTI_JOB_AUTO, DYTI_JOB_DIRECT, DYTI_JOB_MESSAGE };
enum dyti_job_strategy {
    DYTI_JOB_OPTIMAL,
    DYTI_JOB_XOR,
    DYTI_JOB_FUNNEL,
    DYTI_JOB_PER_TENSOR
};
enum dyti_job_verify {
    DYTI_JOB_VERIFY_OFF,
    DYTI_JOB_VERIFY_SAMPLE,
    DYTI_JOB_VERIFY_FULL
};
enum dyti_low_memory { DYTI_LOW_REFUSE, DYTI_LOW_IN_PLACE };
enum dyti_in_flight { DYTI_IN_FLIGHT_WAIT };
enum dyti_eval_sampling { DYTI_EVAL_GREEDY, DYTI_EVAL_ROLLOUT };
enum dyti_device_kind { DYTI_DEVICE_HOST, DYTI_DEVICE_CUDA };
enum dyti_numerics { DYTI_NUMERICS_DETERMINISTIC };
enum dyti_reference_dtype {
    DYTI_REFERENCE_POLICY, /* as the train phase's param */
    DYTI_REFERENCE_F32,
    DYTI_REFERENCE_BF16
};
enum dyti_reward_kind {
    DYTI_REWARD_EXACT,
    DYTI_REWARD_NUMERIC,
    DYTI_REWARD_REGEX,
    DYTI_REWARD_POSITION_MATCH,
    DYTI_REWARD_COMMAND
};

/* [phase.layout] */
struct dyti_job_layout {
    uint32_t tp, pp, dp;        /* tp * pp * dp == rank_count */
    uint32_t zero;              /* 0 or 1 */
    enum dyti_job_dtype dtype;  /* of param */
    enum dyti_job_dtype master; /* f32 */
    uint32_t *pp_layers; /* [pp] layers per pipeline stage; NULL: as even as
                            can be */
    uint32_t pp_layers_count; /* pp or 0 */
    uint32_t *ranks;          /* [ranks_count] world ranks by member, filled in
                                 also where the file leaves it out */
    uint32_t ranks_count;
};

/* One [[phase]].  Tables that its kind has not hold their defaults. */
struct dyti_job_phase {
    char *name; /* "rollout" or "train": the kind, and what --set says */
    enum dyti_phase_kind kind;
    enum dyti_job_engine engine;
    double deadline; /* seconds until a silent rank counts as hung */
    struct dyti_job_layout layout;
    /* rollout */
    struct {
        char *path;     /* of a shared object (dynatrain/engine.h), resolved */
        char **options; /* [options_count] "key=value", the engine's own */
        uint32_t options_count;
        char *address; /* of the session; "": a socket in the run's folder */
    } plugin;
    struct dyti_sampling sampling;
    struct dyti_kv kv;
    enum dyti_keep residency_optimizer; /* master, exp_avg, exp_avg_sq */
    enum dyti_grad_keep residency_grad;
    /* train */
    struct dyti_batching batch;
    struct dyti_loss loss;
    struct dyti_optimizer optimizer;
    struct dyti_lr_schedule lr_schedule;
    enum dyti_job_recompute recompute; /* as enum dyti_recompute of nn.h */
};

/* One [[reward.functions]]; what a kind does not use is empty. */
struct dyti_job_reward {
    enum dyti_reward_kind kind;
    char *name; /* of the component in metrics; the kind if left out */
    double weight;
    char *answer;     /* field of the row that holds the right answer */
    char *pattern;    /* regex: PCRE2 */
    bool ignore_case; /* exact, position_match */
    double tolerance; /* numeric: |difference| allowed */
    char **command;   /* [command_count] program and arguments */
    uint32_t command_count;
    double deadline; /* seconds for one batch */
};

struct dyti_job {
    char *path;   /* of the job file, as given; "" when parsed from text */
    char *folder; /* of the job file: what data paths were relative to */

    char *name;  /* [A-Za-z0-9_.-]+: the folder in runs/ */
    char *model; /* as written; see dyti_model_path() */
    char *runs;  /* folder of run folders */
    uint64_t seed;
    uint32_t steps;
    uint32_t ranks;                      /* processes in the world */
    uint32_t *pool_rollout, *pool_train; /* world ranks, NULL: all */
    uint32_t pool_rollout_count, pool_train_count;

    struct dyti_job_phase *phase; /* [phase_count], in order */
    uint32_t phase_count;

    struct {
        char *train;         /* path, resolved against the job's folder */
        char *prompt;        /* template over fields; "": the row says */
        char *chat_template; /* "auto", "none" or a name */
        bool shuffle;
        uint32_t max_prompt_tokens;
        enum dyti_overlong_prompt overlong_prompt;
    } data;

    struct dyti_job_reward *reward; /* [reward_count] */
    uint32_t reward_count;

    struct dyti_algorithm algorithm;

    struct {
        char *model; /* "": the policy's weights at the start */
        enum dyti_reference_dtype dtype;
    } reference; /* needed only where algorithm.kl_coef > 0 */

    struct {
        enum dyti_switch_mode mode;
        enum dyti_job_verify verify;
        enum dyti_job_mover mover;
        enum dyti_job_strategy strategy;
        uint64_t memory_cap_bytes; /* 0: none; cli/switch_memory.h */
        enum dyti_low_memory on_low_memory;
        bool release; /* memory that the next phase does not use */
        enum dyti_in_flight in_flight;
        double deadline; /* seconds */
    } sw;

    struct {
        char *data;     /* path, resolved; "": no evaluation */
        uint32_t every; /* steps; 0: only at start and end */
        uint32_t samples;
        uint32_t limit; /* rows; 0: all */
        enum dyti_eval_sampling sampling;
        bool before_training;
    } eval;

    struct {
        double reward_mean; /* +inf: never */
        uint32_t window;    /* steps that the mean is taken over */
        double seconds;     /* +inf: never */
    } stop;

    struct {
        uint32_t every; /* steps; 0: only when stopped or finished */
        uint32_t keep_last, keep_best;
        bool export_hf; /* at the end */
    } checkpoint;

    struct {
        uint32_t completions_every; /* steps; 0: never */
        uint32_t completions;       /* samples written each time */
    } metrics;

    struct {
        enum dyti_device_kind kind;
        uint32_t threads; /* per rank; 0: the machine's cores / ranks */
    } devices;
    enum dyti_numerics numerics;

    /* What is legal but should be said, one line each; owned. */
    char **warning;
    uint32_t warning_count;
};

/**
 * Read a job file and the phase files that it names.
 *
 * @param sets      [set_count] "key=value", applied after the files; a value is
 *                  TOML, or a bare word where the key wants a string.
 *                  phase.NAME.key addresses a phase by its name.
 * @param out_job   Give back with dyti_job_fini(); untouched on failure.
 */
enum dyt_status dyti_job_load(const char *path, const char *const *sets,
                              size_t set_count, struct dyti_job *out_job);

/* As dyti_job_load, from text.  `path` names it in messages, and the folder
 * that phase files and data are relative to. */
enum dyt_status dyti_job_parse_text(const char *text, size_t text_bytes,
                                    const char *path, const char *const *sets,
                                    size_t set_count, struct dyti_job *out_job);

/* Zeroed is fine, and what it leaves. */
void dyti_job_fini(struct dyti_job *job);

/* The phase of a kind; NULL if there is none. */
struct dyti_job_phase *dyti_job_phase(struct dyti_job *job,
                                      enum dyti_phase_kind kind);
const struct dyti_job_phase *dyti_job_phase_of(const struct dyti_job *job,
                                               enum dyti_phase_kind kind);

/**
 * The resolved job as one TOML text, every setting written that has an effect.
 * It is a job file: reading it gives an equal job.  *out_text is malloc'ed.
 * @param root  NULL: paths stay as they were resolved, absolute or relative to
 *              the working directory (what the manager sends to workers, read
 *              with dyti_job_read_text); else put before relative ones, so that
 *              the text can lie in any folder (what --dry-run prints)
 */
enum dyt_status dyti_job_text(const struct dyti_job *job, const char *root,
                              char **out_text);
/* Reads what dyti_job_text wrote: no path is resolved again. */
enum dyt_status dyti_job_read_text(const char *text, size_t text_bytes,
                                   struct dyti_job *out_job);

static inline enum dyti_dtype dyti_job_dtype_of(enum dyti_job_dtype dtype)
{
    return dtype == DYTI_JOB_BF16 ? DYTI_BF16 : DYTI_F32;
}

/* Every option, for people: docs/config.md, and `run --help-config`. */
void dyti_job_write_docs(FILE *out);
void dyti_job_write_help(FILE *out);

/**
 * Where a model's files are: `model` itself if that is a folder, else
 * CACHE/models/model.  cache NULL: as base/env.h has it.
 * @return DYT_ERR_CONFIG  neither is a folder; the text says what to type
 */
enum dyt_status dyti_model_path(const char *model, const char *cache,
                                char **out_path);

#endif /* DYTI_FORMAT_JOB_H */
