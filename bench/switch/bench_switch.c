/* The colocated switch of one host against memcpy: rollout TP 4 <-> train PP 2
 * x DP 2 with ZeRO-1, four worker processes.  The opponent is memcpy by the
 * same processes between the same mapped segments, half of it before and half
 * after, in the same run.  Bytes are (read + written) / 2; the clock runs from
 * the order to the last rank's end. */
#include "bench.h"
#include "device/host/memory.h"
#include "shapes.h"
#include "team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS_MAX 64u
#define GOAL       0.8

struct subject {
    const char *name;
    const struct dyti_arch *arch;
    uint32_t rounds;
};

static const struct subject smollm2 = {
    .name = "smollm2-135m", .arch = &bench_smollm2, .rounds = 8};

static const struct subject gibibyte = {
    .name = "1-gib", .arch = &bench_gibibyte, .rounds = 5};

/* Smaller than the quickstart's, and as it was when figures were first kept. */
static const struct dyti_arch tiny_arch = {.family = DYTI_LLAMA,
                                           .vocab = 16,
                                           .hidden = 64,
                                           .layers = 2,
                                           .q_heads = 4,
                                           .kv_heads = 4,
                                           .head_dim = 16,
                                           .ffn = 192,
                                           .max_positions = 64,
                                           .rms_eps = 1e-5,
                                           .init_std = 0.08,
                                           .rope = {.theta = 10000},
                                           .tied = true};

static const struct subject tiny = {
    .name = "tiny", .arch = &tiny_arch, .rounds = 50};

static const char *const verify_name[] = {"off", "sample", "full"};
static const char *const pages_name[] = {"hugetlb", "thp", "4k"};

/* GB/s, and seconds of the refit (train -> rollout), one a round. */
struct figures {
    double speed[ROUNDS_MAX], refit[ROUNDS_MAX];
    uint32_t count;
};

/* Bytes and seconds add up over both directions. */
static void note(const struct team_trip *trip, struct figures *out)
{
    if (out != NULL && out->count < ROUNDS_MAX) {
        out->refit[out->count] = trip->seconds[0];
        out->speed[out->count++] = (double)(trip->bytes[0] + trip->bytes[1]) /
                                   (trip->seconds[0] + trip->seconds[1]) / 1e9;
    }
}

static enum dyt_status round_trip(struct team *team, enum dyti_verify verify,
                                  struct figures *out, uint64_t *out_bytes)
{
    const struct team_command how = {.verify = verify};
    struct team_trip trip = {0};
    enum dyt_status st = team_switch_trip(team, &how, &trip);

    if (st == DYT_OK) {
        note(&trip, out);
    }
    if (out_bytes != NULL) {
        out_bytes[0] = trip.bytes[0];
        out_bytes[1] = trip.bytes[1];
    }
    return st;
}

static enum dyt_status copy_trip(struct team *team, const uint64_t bytes[2],
                                 struct figures *out)
{
    struct team_trip trip = {0};
    enum dyt_status st = team_copy_trip(team, bytes, &trip);

    if (st == DYT_OK) {
        note(&trip, out);
    }
    return st;
}

static enum dyt_status measure(struct team *team, enum dyti_verify verify,
                               uint32_t rounds, const uint64_t bytes[2],
                               struct figures *ours, struct figures *theirs)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < rounds && st == DYT_OK; i++) {
        st = copy_trip(team, bytes, theirs);
    }
    for (uint32_t i = 0; i < rounds && st == DYT_OK; i++) {
        st = round_trip(team, verify, ours, NULL);
    }
    for (uint32_t i = 0; i < rounds && st == DYT_OK; i++) {
        st = copy_trip(team, bytes, theirs);
    }
    return st;
}

/* Four ranks, and only the weights: as it always was. */
static const char *ranks_name(const struct team_shape *shape)
{
    static const char *const plain[] = {"", "", " 2 ranks", " 3 ranks", "",
                                        "", "", "",         " 8 ranks"};
    static const char *const all[] = {"",
                                      "",
                                      " all state 2 ranks",
                                      " all state 3 ranks",
                                      " all state 4 ranks",
                                      "",
                                      "",
                                      "",
                                      " all state 8 ranks"};

    return shape->no_master ? " weights and moments 4 ranks"
                            : (shape->all_state ? all : plain)[shape->ranks];
}

static void record(struct bench *bench, const struct subject *subject,
                   const struct team *team, const char *dtype,
                   enum dyti_verify verify, struct figures *ours,
                   struct figures *theirs)
{
    bool gate =
        verify == DYTI_VERIFY_SAMPLE && team->shape.pages != DYTI_PAGES_4K;
    char name[128];

    (void)snprintf(name, sizeof(name), "%s%s %s verify=%s pages=%s",
                   subject->name, ranks_name(&team->shape), dtype,
                   verify_name[verify], pages_name[team->shape.pages]);
    if (subject == &tiny) {
        (void)snprintf(name, sizeof(name), "%s refit verify=%s", subject->name,
                       verify_name[verify]);
        bench_record(bench, name, bench_median(ours->refit, ours->count) * 1e6,
                     NULL, 0, 0, "us");
        return;
    }
    if (team->shape.no_master) {
        /* What people use, with the same state. */
        double seconds = bench_median(ours->refit, ours->count);

        bench_record(bench, "reshard by checkpoint", seconds, NULL, 0, 40, "s");
        bench_record(bench, "reshard by redistribute", seconds, NULL, 0, 20,
                     "s");
        bench_record(bench, "reshard by buckets", seconds, NULL, 0, 5, "s");
    }
    bench_record(bench, name, bench_median(ours->speed, ours->count), "memcpy",
                 bench_median(theirs->speed, theirs->count), gate ? GOAL : 0,
                 "GB/s");
    (void)snprintf(name, sizeof(name), "%s%s %s refit verify=%s pages=%s",
                   subject->name, ranks_name(&team->shape), dtype,
                   verify_name[verify], pages_name[team->shape.pages]);
    bench_record(bench, name, bench_median(ours->refit, ours->count) * 1e3,
                 "memcpy", bench_median(theirs->refit, theirs->count) * 1e3, 0,
                 "ms");
}

static enum dyt_status run_subject(struct bench *bench,
                                   const struct subject *subject,
                                   const struct team_shape *shape)
{
    enum dyti_page_kind pages = shape->pages;
    enum dyti_dtype dtype = shape->dtype;
    bool usual = shape->ranks == 4 && !shape->all_state;
    uint32_t rounds =
        bench_steps(bench, bench->quick ? 1 : subject->rounds, ROUNDS_MAX);
    uint64_t bytes[2] = {0, 0};
    struct team team;
    enum dyt_status st = DYT_OK;
    char label[64];

    (void)snprintf(label, sizeof(label), "%s%s", subject->name,
                   ranks_name(shape));
    if (!bench_wants(bench, label)) {
        return DYT_OK;
    }
    st = team_open(&team, subject->arch, shape);
    if (st == DYT_ERR_NOMEM && pages == DYTI_PAGES_HUGETLB) {
        (void)printf("switch     %s pages=hugetlb is left out: %s\n",
                     subject->name, dyti_error_message());
        return DYT_OK;
    }
    if (st != DYT_OK) {
        return st;
    }
    for (int i = 0; i < 2 && st == DYT_OK; i++) { /* plan, and touch */
        st = round_trip(&team, DYTI_VERIFY_OFF, NULL, bytes);
        if (st == DYT_OK) {
            st = copy_trip(&team, bytes, NULL);
        }
    }
    for (int verify = DYTI_VERIFY_OFF; verify <= DYTI_VERIFY_FULL; verify++) {
        if (!usual && verify != DYTI_VERIFY_SAMPLE) {
            continue;
        }
        struct figures ours = {.count = 0}, theirs = {.count = 0};

        if (st == DYT_OK) {
            st = measure(&team, (enum dyti_verify)verify, rounds, bytes, &ours,
                         &theirs);
        }
        if (st == DYT_OK) {
            record(bench, subject, &team, dyti_dtype_name(dtype),
                   (enum dyti_verify)verify, &ours, &theirs);
        }
    }
    team_close(&team);
    return st;
}

/* Asked for huge pages, does the kernel give them?  One touched byte tells. */
static bool thp_works(void)
{
    const struct dyti_memory_ops *memory = &dyti_memory_host;
    struct dyti_segment_mem mem = {0};
    uint64_t touched = 0;
    int handle = -1;
    bool works = false;

    if (memory->create("probe", DYTI_PAGES_THP, &handle) == DYT_OK &&
        memory->resize(handle, DYTI_PAGES_THP, 1, NULL, 0) == DYT_OK &&
        memory->map(handle, DYTI_PAGES_THP, 1, &mem) == DYT_OK) {
        *(volatile unsigned char *)mem.base = 1;
        works = memory->touched(&mem, 0, mem.bytes, &touched) == DYT_OK &&
                touched == mem.bytes;
    }
    memory->unmap(&mem);
    memory->close(handle);
    return works;
}

/* What both arenas of the model of 2 GiB take: the weights once for rollout,
 * once for each replica in training, and their masters.  Shared memory that is
 * not there kills who touches it, so it is asked for first. */
static bool two_gibibytes_fit(uint32_t ranks, enum dyti_page_kind pages)
{
    double need =
        2.1 * (ranks > 2 && ranks % 2 == 0 ? ranks / 2 + 2 : ranks + 2);
    bool reserved = pages == DYTI_PAGES_HUGETLB;
    /* pages of 2 MiB, or KiB of which some stays free */
    const char *key = reserved ? "HugePages_Free:" : "MemAvailable:";
    double have = 0, spare = reserved ? 0 : 1;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "r");

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            have = strtod(line + strlen(key), NULL) /
                   (reserved ? 1 << 9 : 1 << 20);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    if (have < need + spare) {
        (void)printf("switch     2-gib %u ranks is left out: %.1f GiB are "
                     "needed, %.1f are %s\n",
                     ranks, need, have, reserved ? "reserved" : "free");
        return false;
    }
    return true;
}

/* More ranks, fewer, and the optimizer's state too. */
static enum dyt_status run_ranks(struct bench *bench, enum dyti_page_kind pages)
{
    static const uint32_t ranks[] = {2, 3, 4, 8};
    struct dyti_arch longer = bench_gibibyte;
    struct subject twice = {.name = "2-gib", .arch = &longer, .rounds = 3};
    enum dyt_status st = DYT_OK;

    longer.layers = 33;
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        struct team_shape shape = {.ranks = ranks[i], .pages = pages};

        if (st == DYT_OK && ranks[i] != 4) {
            st = run_subject(bench, &smollm2, &shape);
        }
        if (st == DYT_OK && ranks[i] != 4) {
            st = run_subject(bench, &gibibyte, &shape);
        }
        if (st == DYT_OK && two_gibibytes_fit(ranks[i], pages)) {
            st = run_subject(bench, &twice, &shape);
        }
        shape.all_state = true;
        if (st == DYT_OK) {
            st = run_subject(bench, &smollm2, &shape);
        }
        shape.no_master = true;
        if (st == DYT_OK && ranks[i] == 4) {
            st = run_subject(bench, &smollm2, &shape);
        }
    }
    return st;
}

static enum dyt_status run_pages(struct bench *bench, enum dyti_page_kind best)
{
    enum dyt_status st = DYT_OK;

    for (int pages = (int)best;
         dyti_memory_host.has((enum dyti_page_kind)pages) && st == DYT_OK;
         pages++) {
        enum dyti_page_kind kind = (enum dyti_page_kind)pages;
        struct team_shape shape = {.ranks = 4, .pages = kind};

        if (kind == DYTI_PAGES_THP && !thp_works()) {
            continue;
        }
        st = run_subject(bench, &smollm2, &shape);
        if (st == DYT_OK && kind == best) {
            shape.dtype = DYTI_BF16;
            st = run_subject(bench, &smollm2, &shape);
            shape.dtype = DYTI_F32;
        }
        if (st == DYT_OK) {
            st = run_subject(bench, &gibibyte, &shape);
        }
    }
    return st;
}

int main(int argc, char **argv)
{
    enum dyti_page_kind best = dyti_memory_host.probe(0);
    struct team_shape shape = {.ranks = 4, .pages = best};
    enum dyt_status st = DYT_OK;
    struct bench bench;

    if (!bench_open(&bench, "switch", argc, argv)) {
        return bench.exit_code;
    }
    if (best == DYTI_PAGES_THP && !thp_works()) {
        best = DYTI_PAGES_4K;
    }
    st = run_subject(&bench, &tiny, &shape);
    if (st == DYT_OK && !bench.quick) {
        st = run_pages(&bench, best);
    }
    if (st == DYT_OK && !bench.quick) {
        st = run_ranks(&bench, best);
    }
    if (st != DYT_OK) {
        (void)fprintf(stderr, "switch: %s\n", dyti_error_text());
        (void)bench_close(&bench);
        return 1;
    }
    return bench_close(&bench);
}
