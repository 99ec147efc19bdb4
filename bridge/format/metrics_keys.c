/* The table of metrics, and its page. */
#include "format/metrics_keys.h"
#include "format/metrics.h"

#include "base/banned.h"

static const struct {
    const char *key, *unit, *help;
} keys[] = {
    {"step", "", "rollout + train steps done, from 1"},
    {"reward/mean", "", "of the step's samples"},
    {"reward/std", "", "standard deviation of the step's samples"},
    {"reward/*", "",
     "mean of a reward function, by its name; of a command's "
     "components as NAME/COMPONENT; `overlong`: the penalty"},
    {"reward_metric/*", "", "mean of what a reward command reports besides"},
    {"reward_dropped", "samples", "dropped because a command said null"},
    {"frac_reward_zero_std", "", "share of groups whose rewards are all equal"},
    {"resampled_batches", "", "extra rollouts for groups without a spread"},
    {"dropped", "samples",
     "not trained on: a command's null, or a group without a spread"},
    {"frac_overlong", "", "share of samples cut at max_response_tokens"},
    {"prompts/overlong", "prompts",
     "too long so far: left out, or cut on the left"},
    {"completions/mean_length", "tokens", "of the step's completions"},
    {"completions/min_length", "tokens", "shortest"},
    {"completions/max_length", "tokens", "longest"},
    {"completions/clipped_ratio", "",
     "share that was cut at max_response_tokens"},
    {"updates", "updates", "optimizer updates of the step"},
    {"sequences", "sequences", "trained on"},
    {"tokens", "tokens", "sampled tokens trained on"},
    {"rows", "tokens", "rows of the forward passes: prompt and sampled tokens"},
    {"loss", "", "whole loss, mean over the step's updates"},
    {"policy_loss", "", "its policy term"},
    {"entropy", "nats", "mean per token, in the trainer"},
    {"kl", "nats", "mean per token to the reference policy"},
    {"clip_frac/low", "", "share of tokens clipped below"},
    {"clip_frac/high", "", "share of tokens clipped above"},
    {"grad_norm", "", "before clipping, mean over the step's updates"},
    {"lr", "", "of the last update"},
    {"advantage/mean", "", "of the step's samples"},
    {"advantage/abs_mean", "", "mean |advantage| of the step's samples"},
    {"mismatch/logprob_abs_mean", "nats",
     "mean |difference| of rollout's and trainer's log-probabilities"},
    {"mismatch/logprob_abs_max", "nats", "largest such difference"},
    {"mismatch/rollout_kl", "nats", "mean KL from rollout to trainer"},
    {"mismatch/ess", "",
     "effective sample size of the importance weights, "
     "as a share"},
    {"mismatch/frac_truncated", "",
     "share of importance weights that were cut"},
    {"mismatch/frac_masked", "", "share of tokens left out by their weight"},
    {"version", "", "committed updates in the weights after the step"},
    {"staleness/mean", "updates", "of the tokens that were trained on"},
    {"staleness/max", "updates", "of the tokens that were trained on"},
    {"time/step", "s", "whole step"},
    {"time/rollout", "s", "generation"},
    {"time/score", "s", "rewards that generation did not hide"},
    {"time/train", "s", "training"},
    {"time/train/*", "s",
     "part of it: logprob, pipeline, reduce, optimizer, gather"},
    {"time/switch_to_train", "s", "pause order to last resume"},
    {"time/switch_to_rollout", "s", "pause order to last resume"},
    {"time/refit", "s", "last optimizer step to the first new token"},
    {"time/refit/pause", "s", "of it: until all ranks have stopped"},
    {"time/refit/plan", "s", "of it: the slowest rank's preparation"},
    {"time/refit/transfer", "s", "of it: the slowest rank's bytes"},
    {"time/refit/verify", "s", "of it: the slowest rank's hashes"},
    {"time/refit/commit", "s", "of it: votes and decision"},
    {"time/refit/post", "s", "of it: what a rank does after the commit"},
    {"time/refit/resume", "s", "of it: until the order to generate"},
    {"time/refit/first_token", "s", "of it: from that order on"},
    {"time/eval", "s", "evaluation"},
    {"time/checkpoint", "s", "writing a checkpoint"},
    {"tokens_per_second/rollout", "1/s", "sampled tokens over time/rollout"},
    {"tokens_per_second/train", "1/s", "rows over time/train"},
    {"switch/bytes_to_train", "bytes", "read and written, halved"},
    {"switch/bytes_to_rollout", "bytes", "read and written, halved"},
    {"switch/messages_per_rank", "",
     "control messages of the switch to rollout, both ways"},
    {"memory/peak_bytes", "bytes",
     "most that a process ever had, largest of any rank; every ten steps"},
    {"memory/resident_bytes", "bytes",
     "behind the addresses of all owners, sum over ranks; every ten steps"},
    {"memory/kv_bytes", "bytes",
     "KV cache in use at the most, largest of any rank"},
    {"memory/*", "bytes",
     "behind the addresses of an owner, largest of any rank; every ten steps"},
    {"eval/reward", "", "mean of the held-out rows"},
    {"eval/exact_match", "", "share of held-out answers that are all right"},
    {"eval/samples", "samples", "judged"},
    {"eval/mean_length", "tokens", "of the answers"},
    {"eval/*", "", "mean of a reward function, by its name"},
};

static bool matches(const char *pattern, const char *key)
{
    size_t bytes = strcspn(pattern, "*");

    if (pattern[bytes] == '\0') {
        return strcmp(pattern, key) == 0;
    }
    return strncmp(pattern, key, bytes) == 0 && key[bytes] != '\0';
}

bool dyti_metrics_known(const char *key)
{
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (matches(keys[i].key, key)) {
            return true;
        }
    }
    return false;
}

void dyti_metrics_write_docs(FILE *out)
{
    fputs(
        "# What a run writes\n\n"
        "Made from the table in `bridge/format/metrics_keys.c`; a test keeps "
        "this page equal to it.\n\n"
        "A run writes into `runs/NAME/`:\n\n"
        "- `metrics.jsonl`: one JSON object a line, one line a step, with "
        "the keys below that apply. A number that is not finite is null.\n"
        "- `completions.jsonl`: every `metrics.completions_every` steps, one "
        "line a sample: `step`, `eval`, `group`, `sample`, `prompt`, `text`, "
        "`ids`, `reward`, `dropped`, `advantage`, `finish_reason`, "
        "`versions` (which version sampled `count` tokens from `first` "
        "on).\n"
        "- `summary.json`: `name`, `end` (steps, reward, seconds, "
        "interrupted or error), `steps`, `seconds`, `reward_first` and "
        "`reward_last` (mean of the first and last five steps), "
        "`exact_match`, `switch_count`, `switch_seconds_median`, "
        "`switch_seconds_worst`, `switch_bytes`, `switch_ratio` (bandwidth "
        "over memcpy), `refit_seconds_median`, `logprob_gap_max`; null where "
        "not measured.\n"
        "- `checkpoints/`, and with `checkpoint.export_hf` `export-STEP/`. "
        "`complete.json` of a checkpoint has the bytes and the content hashes "
        "of every file: one that is not what was written is named and passed "
        "over by `--resume`, and not exported or converted; "
        "`dynatrain model info` compares too.\n"
        "- `earlier-N/`: all of this of a run before, where one with the "
        "same name was started anew and not resumed.\n\n"
        "| key | unit | meaning |\n|---|---|---|\n",
        out);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        fprintf(out, "| `%s` | %s | %s |\n", keys[i].key, keys[i].unit,
                keys[i].help);
    }
}
