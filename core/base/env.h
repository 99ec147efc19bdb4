/* The settings that a user gives through the environment: one table, and the
 * one place that reads the environment.  `dynatrain env` and docs/env.md are
 * printed from it.
 * Threads: any, as long as nobody changes the environment. */
#ifndef DYTI_BASE_ENV_H
#define DYTI_BASE_ENV_H

#include "base/error.h"
#include "base/log.h"

#include <stddef.h>
#include <stdio.h>

/* X(id, name, default or NULL, values, help).  Defaults are what the reader of
 * the setting does when it is not given. */
#define DYTI_ENV_MAP(X)                                                        \
    X(LOG, "DYNATRAIN_LOG", "warn", "error|warn|info|debug|trace",             \
      "how much is written to the log, which is stderr")                       \
    X(LOG_AREA, "DYNATRAIN_LOG_AREA", NULL, DYTI_LOG_AREAS,                    \
      "limits info and finer lines to those of these areas that are named")    \
    X(DUMP, "DYNATRAIN_DUMP", NULL, "folder",                                  \
      "`run` writes what it is about to do: job, layouts, plans, schedules")   \
    X(TRACE, "DYNATRAIN_TRACE", NULL, "file",                                  \
      "writes regions as Chrome trace events, one a line")                     \
    X(ISA, "DYNATRAIN_ISA", NULL, "scalar|avx2|avx512|avx512_bf16",            \
      "the widest instruction set that kernels may use")                       \
    X(CACHE, "DYNATRAIN_CACHE", NULL, "folder",                                \
      "converted models and Python environments (else "                        \
      "$XDG_CACHE_HOME/dynatrain or ~/.cache/dynatrain)")                      \
    X(LIBRARY, "DYNATRAIN_LIBRARY", NULL, "file",                              \
      "the libdynatrain.so that the Python package loads (else its own)")      \
    X(MODULES, "DYNATRAIN_MODULES", NULL, "folder",                            \
      "where libdynatrain-gloo.so and libdynatrain-cuda.so are (else beside "  \
      "libdynatrain.so)")                                                      \
    X(VLLM, "DYNATRAIN_VLLM", NULL, "JSON object",                             \
      "options of the vLLM backend that its init_info does not give")          \
    X(SGLANG, "DYNATRAIN_SGLANG", NULL, "JSON object",                         \
      "options of SGLang's workers that no update gave them")                  \
    X(PREFIX, "DYNATRAIN_PREFIX", NULL, "folder",                              \
      "where make looks for libraries besides the system's places")

/* Settings that only test builds know; no page lists them. */
#ifdef DYT_TEST_HOOKS
#define DYTI_ENV_TEST_MAP(X)                                                   \
    X(FAULT, "DYNATRAIN_FAULT", NULL, "rank=2,at=verified,step=3,how=kill",    \
      "a fault that a test orders")                                            \
    X(FAULT_FILE, "DYNATRAIN_FAULT_FILE", NULL, "file",                        \
      "where a test says at what point a member of a session stops or dies")   \
    X(TEST_FULL, "DYNATRAIN_TEST_FULL", NULL, "1",                             \
      "property tests make all their rounds, not only the quick ones")
#else
#define DYTI_ENV_TEST_MAP(X)
#endif

/* DYTI_ENV_COUNT: how many people know. */
enum dyti_env {
#define DYTI_ENV_ENUM(id, name, fallback, values, help) DYTI_ENV_##id,
    DYTI_ENV_MAP(DYTI_ENV_ENUM) DYTI_ENV_COUNT,
    DYTI_ENV_BEFORE_TEST = DYTI_ENV_COUNT - 1,
    DYTI_ENV_TEST_MAP(DYTI_ENV_ENUM)
#undef DYTI_ENV_ENUM
        DYTI_ENV_ALL
};

/* All strings static; fallback is NULL where there is no default. */
struct dyti_env_row {
    const char *name, *fallback, *values, *help;
};

const struct dyti_env_row *dyti_env_row(enum dyti_env setting);

/* The value given, else the default, else NULL.  Set but empty counts as not
 * given. */
const char *dyti_env_text(enum dyti_env setting);

/* A variable that is not ours (RANK, SLURM_PROCID, HOME, ...); NULL when not
 * set or empty. */
const char *dyti_env_foreign(const char *name);

/* The cache folder, made of CACHE, XDG_CACHE_HOME or HOME.
 * DYT_ERR_STATE  none of them is set
 * DYT_ERR_INVALID  the path does not fit; *out untouched on both */
enum dyt_status dyti_env_cache_dir(char *out_path, size_t path_bytes);

/* DYNATRAIN_X names that are set but not in the table, most likely misspelt:
 * the first one, NULL if there is none. */
const char *dyti_env_unknown(void);

/* The table with present values, as text for people. */
void dyti_env_print(FILE *to);

/* The table as a page of Markdown. */
void dyti_env_print_markdown(FILE *to);

#endif /* DYTI_BASE_ENV_H */
