/* One message of every kind, filled, and its way there and back: what the
 * tests and the fuzz harness of bridge/wire share. */
#ifndef WIRE_CASES_H
#define WIRE_CASES_H

#include "wire/wire.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct wire_case {
    const char *name;
    enum dyt_status (*encode)(const struct dyti_envelope *e,
                              struct dyti_buffer *out);
    /* Decode; if that works, encode what came out. */
    enum dyt_status (*again)(const struct dyti_envelope *e, const void *bytes,
                             size_t size, struct dyti_buffer *out);
};

static int32_t wire_ids[] = {3, 0, 49151, -1, 2147483647};
static float wire_logprobs[] = {-0.5f, 0.0f, -1e30f, -INFINITY, -3.25f};
static struct dyti_version_span wire_spans[] = {{7, 0, 2},
                                                {18446744073709551615u, 2, 3}};

static struct dyti_prompt wire_prompts[] = {
    {.id = 9, .row = 18446744073709551615u, .ids = wire_ids, .id_count = 5},
    {.id = 10, .row = 0},
    {.id = 11, .row = 1, .ids = wire_ids + 1, .id_count = 1}};
static struct dyti_sample wire_samples[] = {
    {.prompt = 9,
     .index = 4294967295u,
     .finish = DYTI_FINISH_ABORT,
     .ids = wire_ids,
     .raw = wire_logprobs,
     .processed = wire_logprobs,
     .count = 5,
     .span = wire_spans,
     .span_count = 2,
     .reward = 0.75f,
     .dropped = true},
    {.prompt = 10, .index = 0, .finish = DYTI_FINISH_LENGTH}};
static char *wire_names[] = {"reward/mean", "", "kl"};
static double wire_values[] = {0.25, -1e300, 5e-324};

#define WIRE_CASE(name, ...)                                                   \
    static inline enum dyt_status wire_encode_##name(                          \
        const struct dyti_envelope *e, struct dyti_buffer *out)                \
    {                                                                          \
        struct dyti_msg_##name m = {__VA_ARGS__};                              \
                                                                               \
        return dyti_wire_##name##_encode(e, &m, out);                          \
    }                                                                          \
    static inline enum dyt_status wire_again_##name(                           \
        const struct dyti_envelope *e, const void *bytes, size_t size,         \
        struct dyti_buffer *out)                                               \
    {                                                                          \
        struct dyti_msg_##name m;                                              \
        enum dyt_status st = dyti_wire_##name##_decode(bytes, size, &m);       \
                                                                               \
        if (st == DYT_OK) {                                                    \
            st = dyti_wire_##name##_encode(e, &m, out);                        \
            dyti_msg_##name##_fini(&m);                                        \
        }                                                                      \
        return st;                                                             \
    }

WIRE_CASE(hello, .pid = 4194304)
WIRE_CASE(assign, .job_text = "name = \"a\"\n", .model_dir = "m\xc3\xbc",
          .resume = "", .threads = 4096)
WIRE_CASE(ready, .isa = "avx512_bf16", .pages = "2 MiB",
          .segment_bytes = 18446744073709551615u, .param_elements = 134515008,
          .load_seconds = 0.125, .copy_rate = 1e10)
WIRE_CASE(heartbeat, .done = 3, .total = 4294967295u)
WIRE_CASE(switch, .epoch = 12, .target = DYTI_TARGET_TRAIN)
WIRE_CASE(switch_done, .epoch = 12, .committed = true, .kept_bytes = 1,
          .moved_bytes = 2, .read_bytes = 3, .written_bytes = 4,
          .hashed_bytes = 5, .prepare_ns = -1, .transfer_ns = 7, .verify_ns = 8,
          .commit_ns = INT64_MAX, .post_ns = INT64_MIN)
WIRE_CASE(generate, .step = 5, .greedy = true, .samples_per_prompt = 16,
          .prompt = wire_prompts, .prompt_count = 3)
WIRE_CASE(samples, .step = 6, .sample = wire_samples, .sample_count = 2,
          .passes = 1, .sampled = 2, .prefill_rows = 3, .generate_ns = 4,
          .first_token_ns = 5)
WIRE_CASE(train, .step = 7,
          .batch = {.prompt = wire_prompts,
                    .prompt_count = 3,
                    .sample = wire_samples,
                    .sample_count = 2})
WIRE_CASE(metrics, .step = 8, .name = wire_names, .value = wire_values,
          .count = 3)
WIRE_CASE(checkpoint, .path = "runs/a/checkpoints/.step-8", .step = 8)
WIRE_CASE(error, .status = DYT_ERR_PEER, .rank = -1, .text = "it broke")

#define WIRE_ROW(name)                                                         \
    {                                                                          \
#name, wire_encode_##name, wire_again_##name                           \
    }

static const struct wire_case wire_cases[] = {
    WIRE_ROW(hello),     WIRE_ROW(assign),     WIRE_ROW(ready),
    WIRE_ROW(heartbeat), WIRE_ROW(switch),     WIRE_ROW(switch_done),
    WIRE_ROW(generate),  WIRE_ROW(samples),    WIRE_ROW(train),
    WIRE_ROW(metrics),   WIRE_ROW(checkpoint), WIRE_ROW(error)};
#define WIRE_CASE_COUNT (sizeof(wire_cases) / sizeof(wire_cases[0]))

static const struct dyti_envelope wire_envelope = {.protocol = DYTI_PROTOCOL,
                                                   .type = DYTI_MSG_SAMPLES,
                                                   .job = 0xfeedfacecafebeefu,
                                                   .sender = 3,
                                                   .epoch = 40,
                                                   .sequence = 1000,
                                                   .version = 17};

#endif /* WIRE_CASES_H */
