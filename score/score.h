/* Rewards.  Answers "how good is each sample?"
 * in: samples, the rows they came from   out: reward and dropped of each sample
 *
 * The reward of a sample is the weighted sum of the reward functions, less the
 * overlong penalty.  A function whose answer is null drops the sample from its
 * group.  What a row says is asked through a callback, so that the file's
 * format stays outside. */
#ifndef DYTI_SCORE_SCORE_H
#define DYTI_SCORE_SCORE_H

#include "data/data.h"
#include "ops/reward.h"
#include "ops/tokenizer.h"

/* In the order of the words in the configuration. */
enum dyti_score_kind {
    DYTI_SCORE_EXACT,   /* 1 where the texts are equal, blanks around cut */
    DYTI_SCORE_NUMERIC, /* 1 where the last number is the answer's */
    DYTI_SCORE_REGEX,   /* 1 where the pattern matches (and its first group is
                           the answer, where there is one) */
    DYTI_SCORE_POSITION_MATCH, /* share of characters at the right position */
    DYTI_SCORE_COMMAND         /* what a child process says */
};

/* One reward function.  Strings are borrowed until dyti_score_destroy(). */
struct dyti_score_function {
    enum dyti_score_kind kind;
    const char *name; /* of its component */
    double weight;
    const char *answer;   /* field of the row; "" or NULL where not used */
    const char *pattern;  /* REGEX */
    bool ignore_case;     /* ASCII letters */
    double tolerance;     /* NUMERIC */
    char *const *command; /* [command_count] COMMAND */
    uint32_t command_count;
    double deadline; /* seconds, COMMAND */
};

/* The rows that prompts came from. */
struct dyti_score_rows {
    void *self;
    /* A field as text, malloc'ed; DYT_ERR_FORMAT names file and line. */
    enum dyt_status (*field_text)(void *self, uint64_t row, const char *field,
                                  char **out_text);
    /* The row as one line of JSON, borrowed while the rows live. */
    const char *(*row_json)(void *self, uint64_t row);
};

struct dyti_score_params {
    const struct dyti_score_function *function; /* [function_count], copied */
    uint32_t function_count;
    struct dyti_tokenizer tokenizer;
    const struct dyti_reward_ops *ops; /* NULL: no REGEX, no COMMAND */
    /* DAPO's soft punishment: nothing up to max_response_tokens - buffer, then
     * linear down to -factor at max_response_tokens.  buffer 0: none. */
    uint32_t overlong_buffer;
    double overlong_factor;
    uint32_t max_response_tokens;
    const struct dyti_reward_watch *watch; /* borrowed until destroy; or NULL */
};

struct dyti_score;

/**
 * Start judging: compiles patterns and starts commands.
 * @return DYT_ERR_CONFIG  a pattern is wrong or a program is not there
 * @return DYT_ERR_STATE   a function needs ops and there are none
 */
enum dyt_status dyti_score_create(const struct dyti_score_params *params,
                                  struct dyti_score **out_score);
/* Ends the commands.  NULL is fine. */
void dyti_score_destroy(struct dyti_score *score);

/* A named mean: of a component or of a command's own metric. */
struct dyti_score_mean {
    char *name; /* owned */
    double sum;
    uint64_t count;
};

/* Sums over all samples judged into it.  Zeroed is empty. */
struct dyti_score_report {
    uint64_t samples;  /* judged and used */
    uint64_t dropped;  /* answered with null */
    uint64_t exact;    /* used, and every function gave at least 1 */
    uint64_t groups;   /* with a used sample */
    uint64_t zero_std; /* of these: all rewards equal */
    double reward_sum; /* of used samples */
    /* By name: each function; NAME/x of a command's components; "overlong". */
    struct dyti_score_mean *component; /* [component_count], owned */
    uint32_t component_count;
    struct dyti_score_mean *metric; /* [metric_count], owned */
    uint32_t metric_count;
};

void dyti_score_report_fini(struct dyti_score_report *report);
/* Of the used samples; 0 without any. */
double dyti_score_report_mean(const struct dyti_score_report *report);

/**
 * Judge all samples of a batch: sets reward and dropped of each.  Whole groups
 * only: a group that is cut in two calls counts as two.  May be called for part
 * of a step's groups while others are still generated.
 *
 * @param report    Added to; NULL: not wanted.
 * @param out_text  NULL, or [sample_count] the decoded completions, malloc'ed
 *                  each, set on success: what completions.jsonl shows.
 * @return DYT_ERR_FORMAT   a row lacks the answer, or the answer of a `numeric`
 *                          holds no number
 * @return what dyti_reward_ops.command_judge says
 */
enum dyt_status dyti_score_judge(struct dyti_score *score, uint64_t step,
                                 const struct dyti_score_rows *rows,
                                 struct dyti_batch *batch,
                                 struct dyti_score_report *report,
                                 char **out_text);

/* ---- the functions themselves, on text ----------------------------------- */

double dyti_score_exact(const char *completion, const char *answer,
                        bool ignore_case);
double dyti_score_position_match(const char *completion, const char *answer,
                                 bool ignore_case);
/* false: the text holds no number.  A sign counts unless it follows a digit or
 * a letter; commas between groups of three digits are read over. */
bool dyti_score_last_number(const char *text, double *out_number);
/* What is taken off (>= 0). */
double dyti_score_overlong(uint32_t tokens, uint32_t max_tokens,
                           uint32_t buffer, double factor);

#endif /* DYTI_SCORE_SCORE_H */
