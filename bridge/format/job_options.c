/* Every setting of a job: the table itself. */
#include "format/job_options.h"

#include "base/banned.h"

#include <math.h>

#define ROLLOUT  (1u << DYTI_PHASE_ROLLOUT)
#define TRAIN    (1u << DYTI_PHASE_TRAIN)
#define EXACT    (1u << DYTI_REWARD_EXACT)
#define NUMERIC  (1u << DYTI_REWARD_NUMERIC)
#define REGEX    (1u << DYTI_REWARD_REGEX)
#define POSITION (1u << DYTI_REWARD_POSITION_MATCH)
#define COMMAND  (1u << DYTI_REWARD_COMMAND)

/* ROW(scope struct, path, TYPE, field, fallback, help, more…) */
#define ROW(scope, path_, type_, field, fallback_, help_, ...)                 \
    {                                                                          \
        .path = (path_), .type = DYTI_OPT_##type_,                             \
        .offset = offsetof(struct scope, field), .fallback = (fallback_),      \
        .help = (help_), __VA_ARGS__                                           \
    }
#define JOB(...)            ROW(dyti_job, __VA_ARGS__)
#define PHASE(...)          ROW(dyti_job_phase, __VA_ARGS__)
#define REWARD(...)         ROW(dyti_job_reward, __VA_ARGS__)
#define COUNT(scope, field) .count_offset = offsetof(struct scope, field)
#define RANGE(lo, hi)       .min = (lo), .max = (hi)

/* clang-format off */
const struct dyti_option dyti_job_options[] = {
    JOB("name", TEXT, name, NULL,
        "name of the run: its folder in runs/"),
    JOB("model", TEXT, model, NULL,
        "a Hugging Face directory, or the name of one in the model cache"),
    JOB("runs", TEXT, runs, "\"runs\"",
        "folder that holds the folders of runs, relative to where you are"),
    JOB("seed", U64, seed, "1",
        "of sampling, shuffling and data order"),
    JOB("steps", U32, steps, NULL,
        "rollout + train steps until the run ends", RANGE(1, UINT32_MAX)),
    JOB("ranks", U32, ranks, "1",
        "worker processes; colocated phases share them all", RANGE(1, 65536)),
    JOB("pools.rollout", U32S, pool_rollout, "[]",
        "ranks that generate, where not all do",
        COUNT(dyti_job, pool_rollout_count)),
    JOB("pools.train", U32S, pool_train, "[]",
        "ranks that train, where not all do",
        COUNT(dyti_job, pool_train_count)),

    JOB("data.train", PATH, data.train, NULL,
        "JSONL file of training prompts"),
    JOB("data.prompt", TEXT, data.prompt, "\"\"",
        "template over a row's fields, as \"{letters}>\"; empty: the row's own `prompt` or `messages`"),
    JOB("data.chat_template", WORD, data.chat_template, "\"auto\"",
        "auto: the model's own, recognised; none: text as it is; or a built-in one by name",
        .choices = "auto|none|chatml|chatml-bos|smollm2|qwen2|hermes3|qwen2.5|qwen3|qwen3-no-think"
                   "|qwen3-2507|llama-3|llama-3.1|llama-3.2|mistral|mistral-v1|mistral-v3|mistral-v7"
                   "|mistral-v7-tekken"),
    JOB("data.shuffle", BOOL, data.shuffle, "true",
        "a new order of rows in each pass over the file"),
    JOB("data.max_prompt_tokens", U32, data.max_prompt_tokens, "1024",
        "longest prompt", RANGE(1, 1 << 24), .unit = "tokens"),
    JOB("data.overlong_prompt", CHOICE, data.overlong_prompt, "\"error\"",
        "what happens to a longer one", .choices = "drop|error|truncate_left"),

    JOB("algorithm.name", CHOICE, algorithm.name, "\"grpo\"",
        "how advantages are made", .choices = "grpo|rloo|!ppo|!reinforce++"),
    JOB("algorithm.prompts_per_step", U32, algorithm.prompts_per_step, NULL,
        "prompts generated for one step", RANGE(1, 1 << 20)),
    JOB("algorithm.samples_per_prompt", U32, algorithm.samples_per_prompt, NULL,
        "completions of each prompt: the group", RANGE(2, 1 << 16)),
    JOB("algorithm.advantage_scale", CHOICE, algorithm.advantage_scale, "\"group\"",
        "divide advantages by the standard deviation of this", .choices = "group|batch|none"),
    JOB("algorithm.zero_std_groups", CHOICE, algorithm.zero_std_groups, "\"keep\"",
        "groups in which all rewards are equal", .choices = "keep|drop|resample"),
    JOB("algorithm.max_resample_batches", U32, algorithm.max_resample_batches, "4",
        "most extra rollouts of a step with zero_std_groups = \"resample\"", RANGE(1, 1024)),
    JOB("algorithm.old_logprobs", CHOICE, algorithm.old_logprobs, "\"recompute\"",
        "log-probabilities that the ratio starts from: the trainer's, or the rollout's",
        .choices = "recompute|rollout"),
    JOB("algorithm.rollout_is", CHOICE, algorithm.rollout_is, "\"token\"",
        "correct the mismatch between rollout and trainer by importance weights",
        .choices = "off|token|sequence"),
    JOB("algorithm.rollout_is_mode", CHOICE, algorithm.rollout_is_mode, "\"truncate\"",
        "weights out of range are cut, or their tokens left out", .choices = "truncate|mask"),
    JOB("algorithm.rollout_is_min", REAL, algorithm.rollout_is_min, "0.0",
        "smallest importance weight", RANGE(0, 1e6)),
    JOB("algorithm.rollout_is_max", REAL, algorithm.rollout_is_max, "2.0",
        "largest importance weight", RANGE(0, 1e6), .above_min = true),
    JOB("algorithm.kl.coef", REAL, algorithm.kl_coef, "0.0",
        "weight of the KL term; 0: no reference policy", RANGE(0, 1e6)),
    JOB("algorithm.kl.estimator", CHOICE, algorithm.kl_estimator, "\"k3\"",
        "k1 and k2 are as in the literature; k3 in the loss has a biased gradient",
        .choices = "k1|k2|k3"),
    JOB("algorithm.kl.in", CHOICE, algorithm.kl_in, "\"loss\"",
        "where the KL term goes", .choices = "loss|reward"),
    JOB("algorithm.overlong", CHOICE, algorithm.overlong, "\"keep\"",
        "completions that were cut at max_response_tokens: in the loss, or not",
        .choices = "keep|mask"),
    JOB("algorithm.overlong_penalty.buffer", U32, algorithm.overlong_buffer, "0",
        "the last tokens before the limit, in which the penalty grows; 0: none",
        RANGE(0, 1 << 24), .unit = "tokens"),
    JOB("algorithm.overlong_penalty.factor", REAL, algorithm.overlong_factor, "1.0",
        "taken off the reward at the limit", RANGE(0, 1e6)),
    JOB("algorithm.max_staleness", U32, algorithm.max_staleness, "0",
        "updates that a sample may lie behind the trainer", RANGE(0, 1 << 20),
        .unserved_from = 1),

    JOB("algorithm.max_logprob_gap", REAL, algorithm.max_logprob_gap, "0.001",
        "largest difference between rollout and trainer in a token's log-probability; more ends the run, 0: any"
        " (also if not given and a phase is not f32)",
        RANGE(0, INFINITY)),

    JOB("reference.model", TEXT, reference.model, "\"\"",
        "weights of the reference policy; empty: the policy's own at the start"),
    JOB("reference.dtype", CHOICE, reference.dtype, "\"policy\"",
        "how they are stored; policy: as the train phase's param", .choices = "policy|f32|bf16"),

    JOB("switch.mode", CHOICE, sw.mode, "\"transactional\"",
        "what becomes of the old weights while the new arrive: kept apart; kept and served, in one of two address"
        " sets; kept until a local copy out of scratch; overwritten, INVALID until the commit",
        .choices = "transactional|double|staged|in_place"),
    JOB("switch.verify", CHOICE, sw.verify, "\"sample\"",
        "compare content hashes before commit: of nothing, of 1 %, of all",
        .choices = "off|sample|full"),
    JOB("switch.mover", CHOICE, sw.mover, "\"auto\"",
        "how bytes go between ranks: straight through mapped memory, or by messages of the group;"
        " auto: mapped on one host, messages between hosts", .choices = "auto|direct|message"),
    JOB("switch.strategy", CHOICE, sw.strategy, "\"optimal\"",
        "the order in which messages go", .choices = "optimal|xor|funnel|per-tensor"),
    JOB("switch.memory_cap", SIZE, sw.memory_cap_bytes, "0",
        "most that a switch may take on a rank beside what stays and the larger of its two layouts; 0: no cap."
        " transactional needs the smaller layout, double the rollout layout besides, staged the larger one besides,"
        " in_place as much as it is given (0: 64 MiB)", RANGE(0, 0x1p62)),
    JOB("switch.on_low_memory", CHOICE, sw.on_low_memory, "\"refuse\"",
        "what happens where the cap cannot be met", .choices = "refuse|in_place"),
    JOB("switch.release", BOOL, sw.release, "false",
        "give memory back that the next phase does not use (KV cache, activations, gradients, the ended layout): a"
        " smaller peak, and pages that are touched anew"),
    JOB("switch.in_flight", CHOICE, sw.in_flight, "\"wait\"",
        "sequences that run when a switch comes", .choices = "wait|!abort|!continue"),
    JOB("switch.deadline", SECONDS, sw.deadline, "60.0",
        "until a silent rank counts as hung", RANGE(0, INFINITY), .above_min = true),

    JOB("eval.data", PATH, eval.data, "\"\"",
        "JSONL file of held-out prompts; empty: no evaluation"),
    JOB("eval.every", U32, eval.every, "0",
        "steps between evaluations; 0: only before and after", RANGE(0, UINT32_MAX)),
    JOB("eval.samples", U32, eval.samples, "1",
        "completions of each prompt", RANGE(1, 1 << 16)),
    JOB("eval.limit", U32, eval.limit, "0",
        "first rows of the file that are used; 0: all", RANGE(0, UINT32_MAX)),
    JOB("eval.sampling", CHOICE, eval.sampling, "\"greedy\"",
        "the most likely token, or as in the rollout phase", .choices = "greedy|rollout"),
    JOB("eval.before_training", BOOL, eval.before_training, "true",
        "evaluate before the first step too"),

    JOB("stop.reward_mean", REAL, stop.reward_mean, "inf",
        "end the run when the mean reward reaches this; inf: never", RANGE(-INFINITY, INFINITY)),
    JOB("stop.window", U32, stop.window, "20",
        "steps that the mean is taken over", RANGE(1, 1 << 20)),
    JOB("stop.seconds", SECONDS, stop.seconds, "inf",
        "end the run after this time; inf: never", RANGE(0, INFINITY), .above_min = true),

    JOB("checkpoint.every", U32, checkpoint.every, "0",
        "steps between checkpoints; 0: only at the end and on Ctrl-C", RANGE(0, UINT32_MAX)),
    JOB("checkpoint.keep_last", U32, checkpoint.keep_last, "2",
        "newest checkpoints that are kept", RANGE(1, 1 << 16)),
    JOB("checkpoint.keep_best", U32, checkpoint.keep_best, "0",
        "best checkpoints, by the evaluation's reward, that are kept besides", RANGE(0, 1 << 16)),
    JOB("checkpoint.export_hf", BOOL, checkpoint.export_hf, "false",
        "write a Hugging Face directory at the end"),

    JOB("metrics.completions_every", U32, metrics.completions_every, "10",
        "steps between samples written to completions.jsonl; 0: never", RANGE(0, UINT32_MAX)),
    JOB("metrics.completions", U32, metrics.completions, "8",
        "samples written each time", RANGE(1, 1 << 20)),

    JOB("devices.kind", CHOICE, devices.kind, "\"host\"",
        "what computes; cuda is refused so far, naming the state of the device", .choices = "host|cuda"),
    JOB("devices.threads", U32, devices.threads, "0",
        "threads of one rank; 0: cores of the machine over ranks, at least 1", RANGE(0, 1024)),
    JOB("numerics.mode", CHOICE, numerics, "\"deterministic\"",
        "deterministic: equal layout, equal bits; invariant: any layout",
        .choices = "deterministic|!invariant"),
};

const struct dyti_option dyti_phase_options[] = {
    PHASE("engine", CHOICE, engine, "\"builtin\"",
          "what runs the phase: the ranks of the job, or a plugin that is given every version through a session",
          .choices = "builtin|plugin|!vllm"),
    PHASE("deadline", SECONDS, deadline, "600.0",
          "until a silent rank counts as hung", RANGE(0, INFINITY), .above_min = true),

    PHASE("layout.tp", U32, layout.tp, "1",
          "tensor-parallel degree; need not divide anything, at most the query heads", RANGE(1, 65536)),
    PHASE("layout.pp", U32, layout.pp, "1",
          "pipeline stages", RANGE(1, 65536)),
    PHASE("layout.dp", U32, layout.dp, "1",
          "data-parallel replicas", RANGE(1, 65536)),
    PHASE("layout.zero", U32, layout.zero, "0",
          "ZeRO stage: 1 shares the optimizer state among the replicas", RANGE(0, 3),
          .unserved_from = 2, .kinds = TRAIN),
    PHASE("layout.dtype", CHOICE, layout.dtype, "\"f32\"",
          "of the weights that the forward pass reads", .choices = "f32|bf16|!f16"),
    PHASE("layout.master", CHOICE, layout.master, "\"f32\"",
          "of the weights that the optimizer updates", .choices = "f32", .kinds = TRAIN),
    PHASE("layout.pp_layers", U32S, layout.pp_layers, "[]",
          "layers of each pipeline stage; empty: as even as can be", RANGE(1, 65536),
          COUNT(dyti_job_phase, layout.pp_layers_count)),
    PHASE("layout.ranks", U32S, layout.ranks, "[]",
          "world ranks by position (pp * dp_degree + dp) * tp_degree + tp; empty: the pool in order",
          COUNT(dyti_job_phase, layout.ranks_count)),

    PHASE("sampling.temperature", REAL, sampling.temperature, "1.0",
          "logits are divided by this, by the trainer too", RANGE(0, 100), .above_min = true,
          .kinds = ROLLOUT),
    PHASE("sampling.top_k", U32, sampling.top_k, "0",
          "keep the most likely tokens; 0: off", .kinds = ROLLOUT),
    PHASE("sampling.top_p", REAL, sampling.top_p, "1.0",
          "keep the most likely tokens up to this probability; 1: off", RANGE(0, 1), .above_min = true,
          .kinds = ROLLOUT),
    PHASE("sampling.min_p", REAL, sampling.min_p, "0.0",
          "drop tokens less likely than this share of the likeliest; 0: off", RANGE(0, 1),
          .kinds = ROLLOUT),
    PHASE("sampling.max_response_tokens", U32, sampling.max_response_tokens, "256",
          "longest completion", RANGE(1, 1 << 24), .unit = "tokens", .kinds = ROLLOUT),
    PHASE("sampling.min_response_tokens", U32, sampling.min_response_tokens, "0",
          "no stop before this length", RANGE(0, 1 << 24), .unit = "tokens", .kinds = ROLLOUT),
    PHASE("sampling.ignore_eos", BOOL, sampling.ignore_eos, "false",
          "go on to max_response_tokens", .kinds = ROLLOUT),
    PHASE("sampling.stop", TEXTS, sampling.stop, "[]",
          "strings that end a completion", COUNT(dyti_job_phase, sampling.stop_count), .kinds = ROLLOUT),
    PHASE("sampling.stop_token_ids", U32S, sampling.stop_token_id, "[]",
          "ids that end a completion, beside the model's EOS", RANGE(0, INT32_MAX),
          COUNT(dyti_job_phase, sampling.stop_token_id_count), .kinds = ROLLOUT),

    PHASE("plugin.path", PATH, plugin.path, "\"\"",
          "shared object with a generation engine (dynatrain/engine.h)", .kinds = ROLLOUT),
    PHASE("plugin.options", TEXTS, plugin.options, "[]",
          "what the engine is told, as \"key=value\"", COUNT(dyti_job_phase, plugin.options_count),
          .kinds = ROLLOUT),
    PHASE("plugin.address", TEXT, plugin.address, "\"\"",
          "where the session listens, unix:PATH or tcp:HOST:PORT; empty: a socket in the run's folder",
          .kinds = ROLLOUT),

    PHASE("kv.memory", SIZE, kv.memory_bytes, "\"64MiB\"",
          "of one rank, for keys and values of its layers", RANGE(1, 0x1p62), .kinds = ROLLOUT),
    PHASE("kv.block", U32, kv.block, "16",
          "tokens of a block", RANGE(1, 4096), .unit = "tokens", .kinds = ROLLOUT),
    PHASE("kv.max_sequences", U32, kv.max_sequences, "256",
          "most sequences that a replica runs at once", RANGE(1, 1 << 16), .kinds = ROLLOUT),
    PHASE("kv.max_batch_tokens", U32, kv.max_batch_tokens, "0",
          "rows of one pass; 0: 1024, or as many as one prompt or max_sequences need",
          RANGE(0, 1 << 24), .unit = "tokens", .kinds = ROLLOUT),

    PHASE("residency.optimizer", CHOICE, residency_optimizer, "\"parked\"",
          "optimizer state during rollout: stays where it is, or travels",
          .choices = "parked|move|!host", .kinds = ROLLOUT),
    PHASE("residency.grad", CHOICE, residency_grad, "\"dropped\"",
          "gradients during rollout", .choices = "dropped", .kinds = ROLLOUT),

    PHASE("batch.mini_batch", U32, batch.mini_batch, "0",
          "sequences of one optimizer update, over all ranks; 0: all of the step",
          RANGE(0, UINT32_MAX), .unit = "sequences", .kinds = TRAIN),
    PHASE("batch.micro_batch_tokens", U32, batch.micro_batch_tokens, "4096",
          "per rank: bounds memory, never changes the result", RANGE(1, 1 << 24),
          .unit = "tokens", .kinds = TRAIN),
    PHASE("batch.epochs", U32, batch.epochs, "1",
          "passes over a step's samples", RANGE(1, 1024), .kinds = TRAIN),

    PHASE("loss.loss_agg", CHOICE, loss.loss_agg, "\"token-mean\"",
          "how token losses become one; denominators are taken over the whole mini-batch",
          .choices = "token-mean|seq-mean-token-mean|seq-mean-token-sum|seq-mean-token-sum-norm",
          .kinds = TRAIN),
    PHASE("loss.ratio_level", CHOICE, loss.ratio_level, "\"token\"",
          "sequence: one ratio for a whole completion (GSPO)", .choices = "token|sequence", .kinds = TRAIN),
    PHASE("loss.clip_low", REAL, loss.clip_low, "0.2",
          "the ratio is clipped at 1 - this", RANGE(0, 1), .kinds = TRAIN),
    PHASE("loss.clip_high", REAL, loss.clip_high, "0.28",
          "the ratio is clipped at 1 + this", RANGE(0, 1e6), .kinds = TRAIN),
    PHASE("loss.clip_dual", REAL, loss.clip_dual, "0.0",
          "bound of the loss where the advantage is negative; 0: off, else above 1 + clip_high", RANGE(0, 1e6),
          .kinds = TRAIN),
    PHASE("loss.entropy_coef", REAL, loss.entropy_coef, "0.0",
          "bonus for entropy, a mean per token whatever loss_agg is", RANGE(-1e3, 1e3), .kinds = TRAIN),

    PHASE("optimizer.name", CHOICE, optimizer.name, "\"adamw\"",
          "the optimizer", .choices = "adamw", .kinds = TRAIN),
    PHASE("optimizer.lr", REAL, optimizer.lr, NULL,
          "learning rate", RANGE(0, 10), .kinds = TRAIN),
    PHASE("optimizer.betas", PAIR, optimizer.beta1, "[0.9, 0.999]",
          "decay of the two moments", RANGE(0, 1), .below_max = true, .kinds = TRAIN),
    PHASE("optimizer.eps", REAL, optimizer.eps, "1e-8",
          "added to the denominator", RANGE(0, 1), .above_min = true, .kinds = TRAIN),
    PHASE("optimizer.weight_decay", REAL, optimizer.weight_decay, "0.0",
          "decoupled", RANGE(0, 10), .kinds = TRAIN),
    PHASE("optimizer.max_grad_norm", REAL, optimizer.max_grad_norm, "1.0",
          "gradients are scaled down to this norm; 0: never", RANGE(0, 1e9), .kinds = TRAIN),

    PHASE("lr_schedule.name", CHOICE, lr_schedule.name, "\"constant\"",
          "of the learning rate, until the job's last update", .choices = "constant|linear|cosine",
          .kinds = TRAIN),
    PHASE("lr_schedule.warmup_steps", U32, lr_schedule.warmup_steps, "0",
          "updates over which the learning rate grows from 0", .kinds = TRAIN),
    PHASE("lr_schedule.final_ratio", REAL, lr_schedule.final_ratio, "0.0",
          "of the learning rate, where linear and cosine end", RANGE(0, 1), .kinds = TRAIN),

    PHASE("activation.recompute", CHOICE, recompute, "\"none\"",
          "keep activations for the backward pass, or recompute them layer by layer",
          .choices = "none|layer", .kinds = TRAIN),
};

const struct dyti_option dyti_reward_options[] = {
    REWARD("kind", CHOICE, kind, NULL,
           "what judges a completion", .choices = DYTI_REWARD_WORDS),
    REWARD("name", TEXT, name, "\"\"",
           "of its column in the metrics; empty: its kind"),
    REWARD("weight", REAL, weight, "1.0",
           "of it in the reward", RANGE(-1e9, 1e9)),
    REWARD("answer", TEXT, answer, "\"\"",
           "field of the row that holds the right answer",
           .kinds = EXACT | NUMERIC | POSITION | REGEX),
    REWARD("pattern", TEXT, pattern, "\"\"",
           "PCRE2 pattern that a right completion matches somewhere; with answer: whose first group equals it",
           .kinds = REGEX),
    REWARD("ignore_case", BOOL, ignore_case, "false",
           "A equals a (ASCII letters)", .kinds = EXACT | POSITION | REGEX),
    REWARD("tolerance", REAL, tolerance, "0.0",
           "how far the completion's last number may be from the answer", RANGE(0, INFINITY),
           .kinds = NUMERIC),
    REWARD("command", TEXTS, command, "[]",
           "program and arguments; it reads and writes one JSON line per batch",
           COUNT(dyti_job_reward, command_count), .kinds = COMMAND),
    REWARD("deadline", SECONDS, deadline, "60.0",
           "for the command's answer to one batch", RANGE(0, INFINITY), .above_min = true,
           .kinds = COMMAND),
};
/* clang-format on */

#define ITEMS(array) (sizeof(array) / sizeof((array)[0]))
const size_t dyti_job_option_count = ITEMS(dyti_job_options);
const size_t dyti_phase_option_count = ITEMS(dyti_phase_options);
const size_t dyti_reward_option_count = ITEMS(dyti_reward_options);

_Static_assert(sizeof(enum dyti_switch_mode) == sizeof(uint32_t) &&
                   sizeof(enum dyti_loss_agg) == sizeof(uint32_t),
               "an enum is stored as 32 bits");
_Static_assert(offsetof(struct dyti_optimizer, beta2) ==
                   offsetof(struct dyti_optimizer, beta1) + sizeof(double),
               "betas are a pair");
