/* Seconds of one whole GRPO step of SmolLM2-135M in fp32: generate 4 x 8
 * completions of 64 tokens (temperature 1, EOS ignored), score, switch, train,
 * switch; with a KL term (and so a reference policy) and without.
 *
 *   fp32/4x8x64/kl=K          the best world of this machine: one rank with all
 *                             cores, or two ranks
 *   fp32/4x8x64/kl=K/WORLD    each of them, and rollout TP 4 -> train PP 2 x
 *                             DP 2 with ZeRO-1 on four ranks
 *   .../memory                largest process, in the world of one rank
 *
 * Ours is the binary beside this program, on a job that is written here; the
 * opponent is TRL's trainer (grpo_trl.py in the folder --opponents, run by the
 * python of its environment in the cache). Rounds alternate who goes first; a
 * figure is the median over rounds and steps, the first step of a run left out.
 *
 * --quick: 2 x 2 x 4 with prompts of four letters, one round. */
#include "grpo_step.h"
#include "bench.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 2u
#define STEPS  3u
#define GOAL   1.5

enum { ONE_RANK, TWO_RANKS, FOUR_RANKS, WORLDS };

/* FOUR_RANKS is there for its switch, and never the best. */
static const struct world worlds[WORLDS] = {
    {"1rank", 1, 1, 1, 1, 0},
    {"tp2-dp2", 2, 2, 1, 2, 1},
    {"tp4-pp2dp2", 4, 4, 2, 2, 1},
};

struct figures {
    struct series ours[WORLDS], theirs;
};

/* ---- where things are --------------------------------------------------- */

static char *cache_folder(void)
{
    const char *own = getenv("DYNATRAIN_CACHE");
    const char *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");

    if (own != NULL && own[0] != '\0') {
        return text_of("%s", own);
    }
    if (xdg != NULL && xdg[0] != '\0') {
        return text_of("%s/dynatrain", xdg);
    }
    return text_of("%s/.cache/dynatrain", home != NULL ? home : "");
}

/* ../bin/dynatrain beside the folder of this program. */
static char *find_binary(void)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    self[n > 0 ? n : 0] = '\0';
    for (int i = 0; i < 2; i++) {
        slash = strrchr(self, '/');
        if (slash != NULL) {
            *slash = '\0';
        }
    }
    return text_of("%s/bin/dynatrain", self);
}

/* `path`, or NULL where access says no. */
static char *kept(char *path, int mode)
{
    if (access(path, mode) == 0) {
        return path;
    }
    printf("grpo_step: TRL is left out: there is no %s\n", path);
    free(path);
    return NULL;
}

static bool find_paths(const struct bench *bench, struct paths *out)
{
    char *cache = cache_folder();

    out->dynatrain = find_binary();
    out->model = bench->model != NULL
                     ? text_of("%s", bench->model)
                     : text_of("%s/models/smollm2-135m-instruct", cache);
    if (bench->opponents == NULL) {
        printf("grpo_step: TRL is left out: no --opponents DIR\n");
    } else {
        out->script = kept(text_of("%s/grpo_trl.py", bench->opponents), R_OK);
        out->python =
            out->script == NULL
                ? NULL
                : kept(text_of("%s/venv/bench-torch/bin/python", cache), X_OK);
    }
    free(cache);
    if (access(out->dynatrain, X_OK) != 0 || access(out->model, R_OK) != 0) {
        fprintf(stderr, "grpo_step: there is no %s\n",
                access(out->dynatrain, X_OK) != 0 ? out->dynatrain
                                                  : out->model);
        return false;
    }
    return true;
}

static void free_paths(struct paths *paths)
{
    free(paths->dynatrain);
    free(paths->model);
    free(paths->script);
    free(paths->python);
}

/* ---- measuring ---------------------------------------------------------- */

static bool run_ours(const struct paths *paths, const struct work *work,
                     uint32_t steps, struct figures *f)
{
    bool good = true;

    for (int w = 0; w < WORLDS; w++) {
        struct series *s = &f->ours[w];

        if (ours_run(paths, work, &worlds[w], steps, s)) {
            printf("  %s: %.3f s a step (rollout %.3f, switch %.4f, train "
                   "%.3f, switch %.4f)\n",
                   worlds[w].name, s->seconds[s->count - 1], s->rollout,
                   s->to_train, s->train, s->to_rollout);
        } else {
            good = false;
        }
        (void)fflush(stdout);
    }
    return good;
}

/* An opponent that fails is missing, and no fault of ours. */
static void run_theirs(const struct paths *paths, const struct work *work,
                       struct figures *f)
{
    if (paths->python == NULL) {
        return;
    }
    if (trl_run(paths, work, &f->theirs)) {
        printf("  trl: %.3f s a step\n",
               f->theirs.seconds[f->theirs.count - 1]);
    } else {
        printf("grpo_step: TRL is left out of this round: it failed\n");
    }
    (void)fflush(stdout);
}

static double median_or_0(struct series *s)
{
    return s->count > 0 ? bench_median(s->seconds, s->count) : 0;
}

static void record(struct bench *bench, const struct work *work,
                   struct figures *f)
{
    double theirs = median_or_0(&f->theirs), ours[WORLDS];
    const char *opponent = theirs > 0 ? "trl" : NULL;
    char name[64], text[96];
    int best = ONE_RANK;

    snprintf(name, sizeof(name), "fp32/%ux%ux%u/kl=%g", work->prompts,
             work->samples, work->tokens, work->kl);
    for (int w = 0; w < WORLDS; w++) {
        ours[w] = median_or_0(&f->ours[w]);
    }
    if (ours[TWO_RANKS] > 0 &&
        (ours[ONE_RANK] <= 0 || ours[TWO_RANKS] < ours[ONE_RANK])) {
        best = TWO_RANKS;
    }
    if (ours[best] > 0) {
        printf("  best of this machine: %s\n", worlds[best].name);
        bench_record(bench, name, ours[best], opponent, theirs, GOAL, "s");
    }
    for (int w = 0; w < WORLDS; w++) {
        if (ours[w] > 0) {
            snprintf(text, sizeof(text), "%s/%s", name, worlds[w].name);
            bench_record(bench, text, ours[w], opponent, theirs, 0, "s");
        }
    }
    if (ours[ONE_RANK] > 0) {
        snprintf(text, sizeof(text), "%s/memory", name);
        bench_record(bench, text, f->ours[ONE_RANK].peak_mb, opponent,
                     f->theirs.peak_mb, 0, "MB");
    }
}

static bool measure(struct bench *bench, const struct paths *paths,
                    const struct work *work)
{
    uint32_t rounds = bench->quick ? 1 : ROUNDS;
    uint32_t steps = bench_steps(bench, bench->quick ? 2 : STEPS, FIGURES);
    struct figures figures = {0};
    bool good = true;

    steps = steps < 2 ? 2 : steps; /* the first one does not count */
    for (uint32_t r = 0; r < rounds && good; r++) {
        if (r % 2 == 1) {
            run_theirs(paths, work, &figures);
        }
        good = run_ours(paths, work, steps, &figures);
        if (r % 2 == 0) {
            run_theirs(paths, work, &figures);
        }
    }
    record(bench, work, &figures);
    return good;
}

int main(int argc, char **argv)
{
    struct work work = {.prompts = 4, .samples = 8, .tokens = 64};
    struct paths paths = {0};
    struct bench bench;
    bool good;

    if (!bench_open(&bench, "grpo_step", argc, argv)) {
        return bench.exit_code;
    }
    if (bench.quick) {
        work = (struct work){
            .prompts = 2, .samples = 2, .tokens = 4, .letters = true};
    }
    good = find_paths(&bench, &paths);
    for (int kl = 0; kl < 2 && good; kl++) {
        work.kl = kl == 0 ? 0 : 0.04;
        good = measure(&bench, &paths, &work);
    }
    free_paths(&paths);
    if (!good) {
        (void)bench_close(&bench);
        return 1;
    }
    return bench_close(&bench);
}
