/* Tokens per second of a training step (forward, policy loss over the whole
 * vocabulary, backward, AdamW), ranks as processes over shared memory.
 *
 *   fp32/8x144, bf16/8x144   SmolLM2-135M, 8 sequences of 144 tokens, in the
 *                            best world of this machine: one rank with all
 *                            cores, or one rank a core (DP with ZeRO-1)
 *   …/pp2dp2                 the same in four ranks, PP 2 x DP 2, ZeRO-1
 *   tiny/pp2dp2              the quickstart's step: 512 sequences of 9 tokens,
 *                            ms a step
 *
 * torch (bench/opponents/train_torch.py) stays loaded and takes turns with our
 * worlds: one step each that does not count, then rounds in alternating order;
 * a figure is the median.  In bf16 ours has bf16 weights and fp32 masters,
 * torch its autocast.  --opponents with a folder of figures compares with
 * those. */
#include "bench.h"
#include "contest.h"
#include "ours.h"
#include "rival.h"
#include "shapes.h"
#include "weights.h"

#include <stdlib.h>
#include <unistd.h>

#define ROUNDS 3u

enum { ALL_CORES, RANK_A_CORE, PP_2_DP_2, WORLDS };

static struct world world_of(const struct bench_weights *weights,
                             enum dyti_dtype dtype, int which)
{
    uint32_t cores = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    struct world w = {.name = "one rank, all cores",
                      .arch = &weights->arch,
                      .model = weights->folder,
                      .tp = 1,
                      .pp = 1,
                      .dp = 1,
                      .threads = cores,
                      .dtype = dtype,
                      .prompts = 2,
                      .samples = 4,
                      .prompt_tokens = 1,
                      .answer_tokens = 143,
                      .micro_tokens = 1152};

    if (which == RANK_A_CORE) {
        w.name = "one rank a core";
        w.dp = cores < CREW_RANKS ? cores : CREW_RANKS;
        w.zero = w.threads = 1;
    } else if (which == PP_2_DP_2) {
        w.name = "pp 2 x dp 2";
        w.pp = w.dp = 2;
        w.zero = w.threads = 1;
        w.micro_tokens = 288;
    }
    return w;
}

static void record_all(struct bench *bench, const char *name,
                       const struct ours *ours, struct player *player)
{
    double theirs = contest_median(&player[WORLDS]), rate[WORLDS], best;
    const char *opponent = theirs > 0 ? player[WORLDS].name : NULL;
    char text[64];

    for (int w = 0; w < WORLDS; w++) {
        const struct world *world = &ours[w].world;
        double seconds = contest_median(&player[w]);
        double tokens = (double)world->prompts * world->samples *
                        (world->prompt_tokens + world->answer_tokens);

        rate[w] = seconds > 0 ? tokens / seconds : 0;
        if (seconds > 0) {
            ours_print(&ours[w], seconds);
        }
    }
    best = rate[ALL_CORES] > rate[RANK_A_CORE] ? rate[ALL_CORES]
                                               : rate[RANK_A_CORE];
    if (best > 0) {
        bench_record(bench, name, best, opponent, theirs, 1.0, "tokens/s");
    }
    if (rate[PP_2_DP_2] > 0) {
        snprintf(text, sizeof(text), "%s/pp2dp2", name);
        bench_record(bench, text, rate[PP_2_DP_2], opponent, theirs, 0,
                     "tokens/s");
    }
}

static void measure(struct bench *bench, const struct bench_weights *weights,
                    const char *name, enum dyti_dtype dtype)
{
    static const struct rival_kind kind = {"torch", "train_torch.py", "torch"};
    const char *more[] = {"--model", weights->folder, NULL};
    struct player player[WORLDS + 1] = {0};
    struct ours ours[WORLDS] = {0};
    struct rival torch = {0};

    for (int w = 0; w < WORLDS; w++) {
        struct world world = world_of(weights, dtype, w);

        player[w] = (struct player){
            .name = world.name, .turn = ours_turn, .arg = &ours[w]};
        player[w].out =
            (w == RANK_A_CORE && world.dp == 1) || !ours_open(&world, &ours[w]);
    }
    player[WORLDS] =
        (struct player){.name = kind.name, .turn = rival_turn, .arg = &torch};
    player[WORLDS].out =
        weights->folder == NULL || !rival_start(bench, &kind, more, &torch);
    torch.case_name = name;
    contest(player, WORLDS + 1, bench_rounds(bench, ROUNDS));
    rival_stop(&torch);
    record_all(bench, name, ours, player);
    for (int w = 0; w < WORLDS; w++) {
        if (player[w].out && ours[w].crew != NULL) {
            bench->exit_code = 1; /* ours failed */
        }
        ours_close(&ours[w]);
    }
}

static void small(struct bench *bench, uint32_t steps)
{
    struct world w = {.name = "tiny, pp 2 x dp 2",
                      .arch = &bench_tiny,
                      .tp = 1,
                      .pp = 2,
                      .dp = 2,
                      .zero = 1,
                      .threads = 1,
                      .prompts = 32,
                      .samples = 16,
                      .prompt_tokens = 5,
                      .answer_tokens = 4,
                      .micro_tokens = 4096,
                      .entropy = 0.03f};
    struct ours ours;
    struct player player = {.name = w.name, .turn = ours_turn, .arg = &ours};

    if (!ours_open(&w, &ours)) {
        bench->exit_code = 1;
        return;
    }
    contest(&player, 1, steps);
    if (player.count > 0) {
        ours_print(&ours, contest_median(&player));
        bench_record(bench, "tiny/pp2dp2", 1e3 * contest_median(&player), NULL,
                     0, 0, "ms");
    }
    ours_close(&ours);
}

int main(int argc, char **argv)
{
    struct bench_weights weights = {0};
    struct bench bench;

    if (!bench_open(&bench, "train", argc, argv)) {
        return bench.exit_code;
    }
    if (bench_wants(&bench, "tiny/pp2dp2")) {
        small(&bench, bench_steps(&bench, bench.quick ? 3 : 50, CONTEST_TURNS));
    }
    if (!bench.quick) {
        if (!bench_weights(&bench, &weights)) {
            (void)bench_close(&bench);
            return 1;
        }
        if (bench_wants(&bench, "fp32/8x144")) {
            measure(&bench, &weights, "fp32/8x144", DYTI_F32);
        }
        if (bench_wants(&bench, "bf16/8x144")) {
            measure(&bench, &weights, "bf16/8x144", DYTI_BF16);
        }
        free(weights.folder);
    }
    return bench_close(&bench);
}
