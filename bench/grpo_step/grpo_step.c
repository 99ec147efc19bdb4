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
 * Ours is the binary beside this program, on a job that is written here: a turn
 * is a run of a few steps, the first of which does not count.  The opponent is
 * TRL's trainer (grpo_trl.py in the folder --opponents), which stays loaded and
 * makes a step a turn, the first of which does not count either.  The order
 * alternates; a figure is the median over rounds and steps.
 *
 * --quick: 2 x 2 x 4 with prompts of four letters, one round. */
#include "grpo_step.h"
#include "bench.h"
#include "contest.h"
#include "program.h"
#include "rival.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 2u
#define STEPS  2u
#define GOAL   1.5

enum { ONE_RANK, TWO_RANKS, FOUR_RANKS, WORLDS };

/* FOUR_RANKS is there for its switch, and never the best. */
static const struct world worlds[WORLDS] = {
    {"1rank", 1, 1, 1, 1, 0},
    {"tp2-dp2", 2, 2, 1, 2, 1},
    {"tp4-pp2dp2", 4, 4, 2, 2, 1},
};

/* One of our worlds as a player. */
struct entry {
    const char *dynatrain, *model;
    const struct work *work;
    const struct world *world;
    double peak_mb;
    uint32_t steps;
};

/* ---- where things are --------------------------------------------------- */

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

static bool is_there(const char *path, int mode)
{
    if (access(path, mode) == 0) {
        return true;
    }
    fprintf(stderr, "grpo_step: there is no %s\n", path);
    return false;
}

static char *find_model(const struct bench *bench)
{
    char *cache = cache_folder(), *model;

    model = bench->model != NULL
                ? text_of("%s", bench->model)
                : text_of("%s/models/smollm2-135m-instruct", cache);
    free(cache);
    return model;
}

/* ---- measuring ---------------------------------------------------------- */

static uint32_t our_turn(void *arg, double *out_values, uint32_t most)
{
    struct entry *e = arg;
    struct series s;
    uint32_t n = 0;

    if (!ours_run(e->dynatrain, e->model, e->work, e->world, e->steps, &s)) {
        return 0;
    }
    while (n < s.count && n < most) {
        out_values[n] = s.seconds[n];
        n++;
    }
    e->peak_mb = s.peak_mb > e->peak_mb ? s.peak_mb : e->peak_mb;
    printf("  %s: %.3f s a step (rollout %.3f, switch %.4f, train %.3f, switch "
           "%.4f)\n",
           e->world->name, s.seconds[n - 1], s.rollout, s.to_train, s.train,
           s.to_rollout);
    (void)fflush(stdout);
    return n;
}

static bool start_trl(const struct bench *bench, const struct work *work,
                      const char *model, struct rival *out)
{
    static const struct rival_kind kind = {"trl", "grpo_trl.py", "torch"};
    char *prompts = text_of("%u", work->prompts);
    char *samples = text_of("%u", work->samples);
    char *tokens = text_of("%u", work->tokens);
    char *beta = text_of("%g", work->kl);
    const char *more[] = {"--model",   model,   "--prompts", prompts,
                          "--samples", samples, "--tokens",  tokens,
                          "--beta",    beta,    NULL};
    bool good = rival_start(bench, &kind, more, out);

    free(beta);
    free(tokens);
    free(samples);
    free(prompts);
    return good;
}

static void record(struct bench *bench, const char *name, struct player *player,
                   double our_peak, double their_peak)
{
    double theirs = contest_median(&player[WORLDS]), ours[WORLDS];
    const char *opponent = theirs > 0 ? "trl" : NULL;
    int best = ONE_RANK;
    char text[96];

    for (int w = 0; w < WORLDS; w++) {
        ours[w] = contest_median(&player[w]);
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
    if (our_peak > 0) {
        snprintf(text, sizeof(text), "%s/memory", name);
        bench_record(bench, text, our_peak, opponent, their_peak, 0, "MB");
    }
}

/* --case chooses a whole case, or one world of it. */
static bool wants_world(const struct bench *bench, const char *name, int world)
{
    char text[96];

    snprintf(text, sizeof(text), "%s/%s", name, worlds[world].name);
    return bench_wants(bench, name) || bench_wants(bench, text);
}

/* Those of our worlds that are wanted, as a mask. */
static unsigned enter(const struct bench *bench, const struct entry *common,
                      const char *name, struct entry *entry,
                      struct player *player)
{
    unsigned wanted = 0;

    for (int w = 0; w < WORLDS; w++) {
        entry[w] = *common;
        entry[w].world = &worlds[w];
        player[w] = (struct player){.name = worlds[w].name,
                                    .turn = our_turn,
                                    .arg = &entry[w],
                                    .fresh = true,
                                    .out = !wants_world(bench, name, w)};
        wanted |= player[w].out ? 0 : 1u << w;
    }
    return wanted;
}

/* The worlds and TRL in turns.  false: one of ours failed. */
static bool measure(struct bench *bench, const struct entry *common,
                    const char *name)
{
    struct player player[WORLDS + 1] = {0};
    struct entry entry[WORLDS];
    struct rival trl;
    unsigned wanted = enter(bench, common, name, entry, player);
    bool good = true;

    if (wanted == 0) {
        return true;
    }
    player[WORLDS] =
        (struct player){.name = "trl", .turn = rival_turn, .arg = &trl};
    player[WORLDS].out = !start_trl(bench, common->work, common->model, &trl);
    trl.case_name = name;
    contest(player, WORLDS + 1, bench_rounds(bench, bench->quick ? 1 : ROUNDS));
    record(bench, name, player, entry[ONE_RANK].peak_mb, trl.peak_mb);
    rival_stop(&trl);
    for (int w = 0; w < WORLDS; w++) {
        good = good && (!player[w].out || (wanted & 1u << w) == 0);
    }
    return good;
}

int main(int argc, char **argv)
{
    struct work work = {.prompts = 4, .samples = 8, .tokens = 64};
    char *dynatrain, *model, name[64];
    struct bench bench;
    uint32_t steps;
    bool good;

    if (!bench_open(&bench, "grpo_step", argc, argv)) {
        return bench.exit_code;
    }
    if (bench.quick) {
        work = (struct work){
            .prompts = 2, .samples = 2, .tokens = 4, .letters = true};
    }
    dynatrain = find_binary();
    model = find_model(&bench);
    good = is_there(dynatrain, X_OK) && is_there(model, R_OK);
    steps = bench_steps(&bench, STEPS, FIGURES);
    for (int kl = 0; kl < 2 && good; kl++) {
        struct entry common = {.dynatrain = dynatrain,
                               .model = model,
                               .work = &work,
                               .steps = steps < 2 ? 2 : steps};

        work.kl = kl == 0 ? 0 : 0.04;
        snprintf(name, sizeof(name), "fp32/%ux%ux%u/kl=%g", work.prompts,
                 work.samples, work.tokens, work.kl);
        good = measure(&bench, &common, name);
    }
    free(model);
    free(dynatrain);
    if (!good) {
        (void)bench_close(&bench);
        return 1;
    }
    return bench_close(&bench);
}
