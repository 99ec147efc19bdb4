/* Tokens per second of generation (temperature 1, EOS ignored), ranks as
 * processes over shared memory.
 *
 *   fp32/N, bf16/N   SmolLM2-135M, N sequences with prompts of 14 tokens and 64
 *                    new ones, in the best world of this machine: one rank with
 *                    all cores, or one rank a core
 *   …/tp4            the same in four ranks, TP 4
 *   tiny/tp4         the quickstart's rollout, TP 4: 32 prompts of 5 tokens, 16
 *                    samples of 4 tokens each, ms a call
 *
 * Opponents (bench/opponents) stay loaded and take turns with our worlds: one
 * call each that does not count, then rounds in alternating order; a figure is
 * the median.  --opponents with a folder of figures compares with those. */
#include "bench.h"
#include "contest.h"
#include "ours.h"
#include "program.h"
#include "rival.h"
#include "shapes.h"
#include "weights.h"

#include <stdlib.h>
#include <unistd.h>

#define ROUNDS 3u

enum { ALL_CORES, RANK_A_CORE, TP_4, WORLDS };
enum { TRANSFORMERS, LLAMA_CPP, VLLM, RIVALS };

static const struct rival_kind rival_kind[RIVALS] = {
    {"transformers", "rollout_transformers.py", "torch"},
    {"llama.cpp", "rollout_llamacpp.py", "llamacpp"},
    {"vllm", "rollout_vllm.py", "vllm"},
};

/* Everybody of one precision. */
struct field {
    struct bench *bench;
    const struct bench_weights *weights;
    const char *type; /* of cases: "fp32" */
    enum dyti_dtype dtype;
    struct rival rival[RIVALS];
};

/* ---- one case ----------------------------------------------------------- */

static struct world world_of(const struct field *f, int which,
                             uint32_t sequences)
{
    uint32_t cores = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    struct world w = {.name = "one rank, all cores",
                      .arch = &f->weights->arch,
                      .model = f->weights->folder,
                      .tp = 1,
                      .threads = cores,
                      .dtype = f->dtype,
                      .prompts = sequences,
                      .samples = 1,
                      .prompt_tokens = 14,
                      .new_tokens = 64};

    if (which == RANK_A_CORE) {
        w.name = "one rank a core";
        w.tp = cores < CREW_RANKS ? cores : CREW_RANKS;
        w.threads = 1;
    } else if (which == TP_4) {
        w.name = "tp 4";
        w.tp = 4;
        w.threads = 1;
    }
    return w;
}

/* Our rate beside that of everybody who took part. */
static void record(struct field *f, const char *name, double rate,
                   struct player *theirs, double goal)
{
    bool alone = true;

    for (int i = 0; i < RIVALS; i++) {
        double rival = contest_median(&theirs[i]);

        if (rival > 0) {
            bench_record(f->bench, name, rate, theirs[i].name, rival, goal,
                         "tokens/s");
            alone = false;
        }
    }
    if (alone) {
        bench_record(f->bench, name, rate, NULL, 0, goal, "tokens/s");
    }
}

static void record_all(struct field *f, const char *name, double tokens,
                       struct ours *ours, struct player *player)
{
    double rate[WORLDS], best;
    char text[64];

    for (int w = 0; w < WORLDS; w++) {
        double seconds = contest_median(&player[w]);

        rate[w] = seconds > 0 ? tokens / seconds : 0;
        if (seconds > 0) {
            ours_print(&ours[w], seconds);
        }
    }
    best = rate[ALL_CORES] > rate[RANK_A_CORE] ? rate[ALL_CORES]
                                               : rate[RANK_A_CORE];
    if (best > 0) {
        record(f, name, best, player + WORLDS, 1.0);
    }
    if (rate[TP_4] > 0) {
        snprintf(text, sizeof(text), "%s/tp4", name);
        record(f, text, rate[TP_4], player + WORLDS, 0);
    }
}

static void measure(struct field *f, const char *name, uint32_t sequences)
{
    struct player player[WORLDS + RIVALS] = {0};
    struct ours ours[WORLDS] = {0};
    double tokens = 0;

    for (int w = 0; w < WORLDS; w++) {
        struct world world = world_of(f, w, sequences);

        tokens = (double)sequences * world.new_tokens;
        player[w] = (struct player){
            .name = world.name, .turn = ours_turn, .arg = &ours[w]};
        player[w].out =
            (w == RANK_A_CORE && world.tp == 1) || !ours_open(&world, &ours[w]);
    }
    for (int i = 0; i < RIVALS; i++) {
        f->rival[i].case_name = name;
        player[WORLDS + i] =
            (struct player){.name = rival_kind[i].name,
                            .turn = rival_turn,
                            .arg = &f->rival[i],
                            .out = f->rival[i].process == NULL};
    }
    contest(player, WORLDS + RIVALS, bench_rounds(f->bench, ROUNDS));
    record_all(f, name, tokens, ours, player);
    for (int w = 0; w < WORLDS; w++) {
        if (player[w].out && ours[w].crew != NULL) {
            f->bench->exit_code = 1; /* ours failed */
        }
        ours_close(&ours[w]);
    }
}

/* ---- a precision -------------------------------------------------------- */

static void start_rivals(struct field *f)
{
    char *dtype = text_of("%s", f->dtype == DYTI_BF16 ? "bfloat16" : "float32");
    char *cache = cache_folder();
    char *gguf = text_of("%s/models/gguf/smollm2-%s.gguf", cache, dtype);
    const char *model = f->weights->folder;

    for (int i = 0; i < RIVALS; i++) {
        const char *more[] = {"--dtype", dtype, "--model", model,
                              NULL,      NULL,  NULL};

        if (i == LLAMA_CPP) {
            more[4] = "--gguf";
            more[5] = gguf;
        }
        rival_start(f->bench, &rival_kind[i], more, &f->rival[i]);
    }
    free(gguf);
    free(cache);
    free(dtype);
}

static void precision(struct bench *bench, const struct bench_weights *weights,
                      const char *type, enum dyti_dtype dtype)
{
    static const uint32_t sequences[] = {1, 8, 32};
    struct field f = {
        .bench = bench, .weights = weights, .type = type, .dtype = dtype};
    bool started = false;

    for (uint32_t i = 0; i < 3; i++) {
        char name[32];

        snprintf(name, sizeof(name), "%s/%u", type, sequences[i]);
        if (!bench_wants(bench, name)) {
            continue;
        }
        if (!started && weights->folder != NULL) {
            start_rivals(&f);
            started = true;
        }
        measure(&f, name, sequences[i]);
    }
    for (int i = 0; i < RIVALS; i++) {
        rival_stop(&f.rival[i]);
    }
}

/* ---- the quickstart's --------------------------------------------------- */

static void small(struct bench *bench, uint32_t calls)
{
    struct world w = {.name = "tiny, tp 4",
                      .arch = &bench_tiny,
                      .tp = 4,
                      .threads = 1,
                      .prompts = 32,
                      .samples = 16,
                      .prompt_tokens = 5,
                      .new_tokens = 4};
    struct ours ours;
    struct player player = {.name = w.name, .turn = ours_turn, .arg = &ours};

    if (!ours_open(&w, &ours)) {
        bench->exit_code = 1;
        return;
    }
    contest(&player, 1, calls);
    if (player.count > 0) {
        ours_print(&ours, contest_median(&player));
        bench_record(bench, "tiny/tp4", 1e3 * contest_median(&player), NULL, 0,
                     0, "ms");
    }
    ours_close(&ours);
}

int main(int argc, char **argv)
{
    struct bench_weights weights = {0};
    struct bench bench;

    if (!bench_open(&bench, "rollout", argc, argv)) {
        return bench.exit_code;
    }
    if (bench_wants(&bench, "tiny/tp4")) {
        small(&bench, bench_steps(&bench, bench.quick ? 3 : 50, CONTEST_TURNS));
    }
    if (!bench.quick) {
        if (!bench_weights(&bench, &weights)) {
            (void)bench_close(&bench);
            return 1;
        }
        precision(&bench, &weights, "fp32", DYTI_F32);
        precision(&bench, &weights, "bf16", DYTI_BF16);
        free(weights.folder);
    }
    return bench_close(&bench);
}
