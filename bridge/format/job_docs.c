/* The table of settings for people: docs/config.md and the help listing. */
#include "format/job_options.h"

#include "base/banned.h"

#include <math.h>

static const char *type_word(enum dyti_option_type type)
{
    static const char *const word[] = {
        [DYTI_OPT_BOOL] = "true, false", [DYTI_OPT_U32] = "integer",
        [DYTI_OPT_U64] = "integer",      [DYTI_OPT_REAL] = "number",
        [DYTI_OPT_TEXT] = "string",      [DYTI_OPT_PATH] = "path",
        [DYTI_OPT_WORD] = "word",        [DYTI_OPT_CHOICE] = "word",
        [DYTI_OPT_SIZE] = "size",        [DYTI_OPT_SECONDS] = "time",
        [DYTI_OPT_U32S] = "integers",    [DYTI_OPT_TEXTS] = "strings",
        [DYTI_OPT_PAIR] = "two numbers"};

    return word[type];
}

/* "`a`, `b`; not yet: `c`", or the type with its range and unit. */
static void print_values(const struct dyti_option *option, bool markdown,
                         FILE *out)
{
    const char *tick = markdown ? "`" : "";
    char word[64];

    if (option->choices != NULL) {
        for (int served = 1; served >= 0; served--) {
            uint32_t shown = 0;

            for (uint32_t i = 0;; i++) {
                bool is_served;

                dyti_choice_word(option->choices, i, word, sizeof(word));
                if (i >= 1 && dyti_choice_word(option->choices, i, word,
                                               sizeof(word))[0] == '?') {
                    break;
                }
                dyti_choice_find(option->choices, word, strlen(word),
                                 &is_served);
                if (is_served == (served == 1)) {
                    fprintf(out, "%s%s%s%s",
                            shown++ != 0 ? ", "
                            : served     ? ""
                                         : "; not yet: ",
                            tick, word, tick);
                }
            }
        }
        return;
    }
    fputs(type_word(option->type), out);
    if (option->min != 0.0 || option->max != 0.0) {
        bool open_top = isinf(option->max) || option->max >= 0x1p31 ||
                        option->unserved_from > 0;
        bool open_bottom = isinf(option->min);

        if (!open_bottom) {
            fprintf(out, option->above_min ? " above %.10g" : " from %.10g",
                    option->min);
        }
        if (option->unserved_from > 0) {
            fprintf(out, " to %.10g (more: not yet)",
                    option->unserved_from - 1);
        } else if (!open_top) {
            fprintf(out, option->below_max ? " below %.10g" : " to %.10g",
                    option->max);
        }
    }
    if (option->unit != NULL) {
        fprintf(out, ", %s", option->unit);
    }
}

/* Words of the kinds that a row is for: "rollout", "exact, numeric". */
static void print_kinds(const struct dyti_option *option, const char *words,
                        FILE *out)
{
    bool first = true;
    char word[64];

    for (uint32_t i = 0; i < 32 && option->kinds != 0; i++) {
        if ((option->kinds >> i & 1u) != 0) {
            fprintf(out, "%s%s", first ? "" : ", ",
                    dyti_choice_word(words, i, word, sizeof(word)));
            first = false;
        }
    }
    if (first) {
        fputs("all", out);
    }
}

static void docs_row(const struct dyti_option *option, const char *kind_words,
                     FILE *out)
{
    fprintf(out, "| `%s` | ", option->path);
    if (kind_words != NULL) {
        print_kinds(option, kind_words, out);
        fputs(" | ", out);
    }
    if (option->fallback == NULL) {
        fputs("*must be set* | ", out);
    } else {
        fprintf(out, "`%s` | ", option->fallback);
    }
    print_values(option, true, out);
    fprintf(out, " | %s |\n", option->help);
}

static void docs_scope(enum dyti_option_scope scope, const char *kind_words,
                       FILE *out)
{
    size_t count;
    const struct dyti_option *row = dyti_options(scope, &count);

    fputs(kind_words == NULL
              ? "| key | default | values | meaning |\n|---|---|---|---|\n"
              : "| key | for | default | values | meaning |\n"
                "|---|---|---|---|---|\n",
          out);
    for (size_t i = 0; i < count; i++) {
        docs_row(&row[i], kind_words, out);
    }
}

void dyti_job_write_docs(FILE *out)
{
    fputs("# Configuration\n\n"
          "Made from the table of settings in `bridge/format/job_options.c`; a "
          "test keeps this page equal to it.\n\n"
          "`dynatrain run JOB.toml` reads one TOML file. Unknown keys are "
          "errors. `--set key=value` changes a setting after the files are "
          "read; `--set phase.NAME.key=value` one of a phase, `--set "
          "reward.functions.0.key=value` one of a reward function. A value of "
          "`--set` is TOML, or a bare word where a string is wanted.\n\n"
          "- **path**: relative to the job file; from `--set`, to where you "
          "are. `model` and `runs` are always relative to where you are.\n"
          "- **size**: bytes as an integer, or text as `\"64MiB\"` (B, KiB, "
          "MiB, GiB, TiB, kB, MB, GB, TB).\n"
          "- **time**: seconds as a number, or text as `\"5m\"` (ms, s, m, "
          "h).\n"
          "- *not yet*: known, and refused until it exists.\n\n"
          "## The job\n\n",
          out);
    docs_scope(DYTI_SCOPE_JOB, NULL, out);
    fputs("\n## Phases\n\n"
          "Each `[[phase]]` has a `name` (`rollout`, then `train`) and either "
          "`config = \"FILE.toml\"` (relative to the job file) or its settings "
          "in place, as `[phase.layout]`.\n\n",
          out);
    docs_scope(DYTI_SCOPE_PHASE, DYTI_PHASE_WORDS, out);
    fputs("\n## Reward functions\n\n"
          "Each `[[reward.functions]]`; the reward is their weighted sum, each "
          "is a column `reward/NAME` of the metrics.\n\n",
          out);
    docs_scope(DYTI_SCOPE_REWARD, DYTI_REWARD_WORDS, out);
}

static void help_scope(enum dyti_option_scope scope, const char *prefix,
                       FILE *out)
{
    size_t count;
    const struct dyti_option *row = dyti_options(scope, &count);

    for (size_t i = 0; i < count; i++) {
        fprintf(out, "  %s%s = %s\n      %s (", prefix, row[i].path,
                row[i].fallback == NULL ? "(must be set)" : row[i].fallback,
                row[i].help);
        print_values(&row[i], false, out);
        fputs(")\n", out);
    }
}

void dyti_job_write_help(FILE *out)
{
    fputs("Settings of a job:\n", out);
    help_scope(DYTI_SCOPE_JOB, "", out);
    fputs("Settings of a phase (NAME is rollout or train):\n", out);
    help_scope(DYTI_SCOPE_PHASE, "phase.NAME.", out);
    fputs("Settings of a reward function (N counts from 0):\n", out);
    help_scope(DYTI_SCOPE_REWARD, "reward.functions.N.", out);
}
