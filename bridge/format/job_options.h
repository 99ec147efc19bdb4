/* The one table of settings.  A row makes the parser's case, --set, the help
 * line, the line in docs/config.md and the line of a resolved job's text, so
 * these cannot drift apart.  Internal to the job_*.c files. */
#ifndef DYTI_FORMAT_JOB_OPTIONS_H
#define DYTI_FORMAT_JOB_OPTIONS_H

#include "base/edit.h"
#include "format/file.h"
#include "format/job.h"
#include "format/toml.h"

enum dyti_option_type {
    DYTI_OPT_BOOL,
    DYTI_OPT_U32,
    DYTI_OPT_U64, /* up to 2^63 - 1, as TOML has it */
    DYTI_OPT_REAL,
    DYTI_OPT_TEXT,
    DYTI_OPT_PATH,    /* text; relative to the job file */
    DYTI_OPT_WORD,    /* text out of `choices` */
    DYTI_OPT_CHOICE,  /* a 32-bit enum: position in `choices` */
    DYTI_OPT_SIZE,    /* u64 bytes: 4096, "64MiB" */
    DYTI_OPT_SECONDS, /* double: 80, "80s", "5m", inf */
    DYTI_OPT_U32S,    /* pointer and u32 count */
    DYTI_OPT_TEXTS,   /* pointer and u32 count */
    DYTI_OPT_PAIR     /* two doubles */
};

/* Where a row's offset counts from. */
enum dyti_option_scope {
    DYTI_SCOPE_JOB,    /* struct dyti_job */
    DYTI_SCOPE_PHASE,  /* struct dyti_job_phase */
    DYTI_SCOPE_REWARD, /* struct dyti_job_reward */
    DYTI_SCOPE_COUNT
};

struct dyti_option {
    const char *path; /* dotted, within its scope */
    enum dyti_option_type type;
    size_t offset;        /* of the value */
    size_t count_offset;  /* of a list's count */
    const char *fallback; /* TOML; NULL: must be set */
    const char *choices;  /* "a|b|!c": !c is known, but not available yet */
    double min, max;      /* of a number; both 0: what the type holds */
    bool above_min, below_max; /* the border itself is not allowed */
    double unserved_from; /* from here on: known, not available yet; 0: none */
    uint32_t kinds;       /* bits of phase or reward kinds; 0: all */
    const char *unit;     /* "tokens", …; NULL: none */
    const char *help;     /* one line */
};

extern const struct dyti_option dyti_job_options[];
extern const struct dyti_option dyti_phase_options[];
extern const struct dyti_option dyti_reward_options[];
extern const size_t dyti_job_option_count, dyti_phase_option_count,
    dyti_reward_option_count;

/* Words of the two kinds that name an array's elements. */
#define DYTI_PHASE_WORDS  "rollout|train|!score"
#define DYTI_REWARD_WORDS "exact|numeric|regex|position_match|command"

#define DYTI_PHASES_MAX  16u
#define DYTI_REWARDS_MAX 64u

/* The rows of a scope. */
const struct dyti_option *dyti_options(enum dyti_option_scope scope,
                                       size_t *out_count);
/* The row with this path; NULL if there is none. */
const struct dyti_option *dyti_option_find(enum dyti_option_scope scope,
                                           const char *path);
/* True if `path` is a table that some row lies in ("algorithm.kl"). */
bool dyti_option_is_table(enum dyti_option_scope scope, const char *path);
/* True if the row has a meaning for this phase or reward kind. */
bool dyti_option_fits(const struct dyti_option *option, uint32_t kind);
/* The known path or table nearest to a wrong one, into buf; false where none is
 * near. */
bool dyti_option_nearest(enum dyti_option_scope scope, const char *path,
                         char *buf, size_t buf_bytes);

/* Position of `word` among `choices`; -1 if it is none.  *out_served: false
 * where it is one that is not available yet. */
int32_t dyti_choice_find(const char *choices, const char *word,
                         size_t word_bytes, bool *out_served);
/* The word at a position, into buf; "?" outside. */
const char *dyti_choice_word(const char *choices, uint32_t position, char *buf,
                             size_t buf_bytes);
/* "a, b or c" of those that are served, into buf. */
const char *dyti_choice_list(const char *choices, char *buf, size_t buf_bytes);

/* ---- one value (job_value.c) -------------------------------------------- */

/* Where a value was written; what messages start with. */
struct dyti_place {
    const char *file;      /* "job.toml", "--set key"; borrowed */
    uint32_t line, column; /* 0: none */
    const char *folder;    /* what a path is relative to; NULL: leave it */
    bool loose;            /* words may stand for strings: a --set value */
};

/* "job.toml:3:1" or "--set steps=x" into buf. */
const char *dyti_place_text(const struct dyti_place *place, char *buf,
                            size_t buf_bytes);

/* `path` as it stands in a file of `folder` ("": the working directory). */
enum dyt_status dyti_job_path(const char *folder, const char *path,
                              char buf[DYTI_PATH_BYTES]);

/* Check a value and put it into `base` (the scope's struct) at the row's
 * offset; what was there is given back first.  `shown`: the key as the user
 * knows it.  Untouched on failure. */
enum dyt_status dyti_option_put(const struct dyti_option *option, void *base,
                                const struct dyti_toml *value,
                                const struct dyti_place *place,
                                const char *shown);
/* The row's fallback into a zeroed struct.  Nothing if it has none. */
enum dyt_status dyti_option_default(const struct dyti_option *option,
                                    void *base);
/* Give back what the row owns. */
void dyti_option_fini(const struct dyti_option *option, void *base);
/* Defaults of all rows; give back all rows. */
enum dyt_status dyti_scope_init(enum dyti_option_scope scope, void *base);
void dyti_scope_fini(enum dyti_option_scope scope, void *base);
/* The value as TOML. */
void dyti_option_print(const struct dyti_option *option, const void *base,
                       FILE *out);
/* True if two structs of one scope hold equal values in this row. */
bool dyti_option_equal(const struct dyti_option *option, const void *a,
                       const void *b);
bool dyti_job_equal(const struct dyti_job *a, const struct dyti_job *b);
/* Print a TOML basic string, quoted. */
void dyti_toml_print_text(const char *text, FILE *out);

/* ---- a job while it is read --------------------------------------------- */

/* Which rows were set, and where: for messages about two settings that do not
 * go together. */
struct dyti_job_origin {
    const struct dyti_option *option;
    enum dyti_option_scope scope;
    uint32_t index; /* of the phase or reward function */
    char *place;    /* owned */
};

struct dyti_job_reader {
    struct dyti_job job;
    const char *path;
    char *folder;  /* owned */
    bool resolved; /* text of dyti_job_text(): paths stay as they are */
    struct dyti_job_origin *origin; /* [origin_count], owned */
    size_t origin_count, origin_cap;
    char **phase_place;  /* [DYTI_PHASES_MAX] or NULL, owned */
    char **reward_place; /* [DYTI_REWARDS_MAX] or NULL, owned */
};

/* Note that a row was set. */
enum dyt_status dyti_reader_note(struct dyti_job_reader *reader,
                                 const struct dyti_option *option,
                                 enum dyti_option_scope scope, uint32_t index,
                                 const struct dyti_place *place);
/* Where a row was last set; the element's own place, or the job's path, where
 * it never was. */
const char *dyti_reader_where(const struct dyti_job_reader *reader,
                              enum dyti_option_scope scope, uint32_t index,
                              const char *path);
bool dyti_reader_was_set(const struct dyti_job_reader *reader,
                         enum dyti_option_scope scope, uint32_t index,
                         const char *path);

/* DYT_ERR_CONFIG with "place: text", the place as dyti_reader_where has it. */
enum dyt_status dyti_reader_wrong(const struct dyti_job_reader *reader,
                                  enum dyti_option_scope scope, uint32_t index,
                                  const char *path, const char *fmt, ...)
    DYTI_PRINTF(5, 6);

/* One key of a table into its row. */
enum dyt_status dyti_reader_put(struct dyti_job_reader *reader,
                                enum dyti_option_scope scope, uint32_t index,
                                const struct dyti_option *row,
                                const struct dyti_toml *value,
                                const struct dyti_place *place);
/* DYT_ERR_CONFIG: nobody knows this key; with the nearest that is known. */
enum dyt_status dyti_reader_unknown(const struct dyti_job_reader *reader,
                                    enum dyti_option_scope scope,
                                    uint32_t index, const char *path,
                                    const struct dyti_place *place);
/* A table of a file into the job, phase or reward function `index`. */
enum dyt_status dyti_reader_table(struct dyti_job_reader *reader,
                                  enum dyti_option_scope scope, uint32_t index,
                                  const struct dyti_toml *table,
                                  const struct dyti_place *place);
/* The root's phase and reward. */
enum dyt_status dyti_reader_phases(struct dyti_job_reader *reader,
                                   const struct dyti_toml *root,
                                   const struct dyti_place *file);
enum dyt_status dyti_reader_reward_table(struct dyti_job_reader *reader,
                                         const struct dyti_toml *root,
                                         const struct dyti_place *file);
/* Replace all reward functions by those of a list. */
enum dyt_status dyti_reader_rewards(struct dyti_job_reader *reader,
                                    const struct dyti_toml *list,
                                    const struct dyti_place *place);
/* One "key=value". */
enum dyt_status dyti_reader_set(struct dyti_job_reader *reader,
                                const char *text);
/* Pools and layout.ranks name ranks that exist, none twice; degrees multiply to
 * the ranks of a phase (layout.ranks is filled in); every rank has work. */
enum dyt_status dyti_reader_pools(const struct dyti_job_reader *reader);
enum dyt_status dyti_reader_layout(struct dyti_job_reader *reader,
                                   uint32_t index);
enum dyt_status dyti_reader_idle(const struct dyti_job_reader *reader);
/* What no single row can say; fills in what follows from other settings. */
enum dyt_status dyti_reader_check(struct dyti_job_reader *reader);

#endif /* DYTI_FORMAT_JOB_OPTIONS_H */
