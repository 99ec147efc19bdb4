/* One message of every kind, filled, and its way there and back: what the
 * tests and the fuzz harness of bridge/wire share. */
#ifndef WIRE_CASES_H
#define WIRE_CASES_H

#include "wire/session.h"
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

/* ---- sessions ------------------------------------------------------------ */

static struct dyt_piece wire_pieces[] = {
    {.struct_size = sizeof(struct dyt_piece),
     .transposed = 1,
     .tensor = "model.layers.0.mlp.gate_proj.weight",
     .box = {2, {0, 4}, {INT64_MAX, 8}},
     .at = {1, 0, 7}},
    {.struct_size = sizeof(struct dyt_piece), .tensor = "scalar"}};
static struct dyt_row wire_rows[] = {
    {.struct_size = sizeof(struct dyt_row),
     .kind = DYT_PARAM,
     .dtype = DYT_BF16,
     .flags = UINT32_MAX,
     .name = "w13\xc3\xbc",
     .ndim = 3,
     .shape = {8, 4, INT64_MAX},
     .stride = {32, 8, 1},
     .global_shape = {-1, 2, 3},
     .fd = -1,
     .piece = wire_pieces,
     .piece_count = 2,
     .piece_struct_size = sizeof(struct dyt_piece)},
    {.struct_size = sizeof(struct dyt_row), .name = "", .fd = -1},
    {.struct_size = sizeof(struct dyt_row),
     .kind = DYTI_KIND_COUNT - 1,
     .dtype = DYTI_DTYPE_COUNT - 1,
     .name = "eight",
     .fd = -1,
     .ndim = DYT_MAX_DIMS,
     .shape = {1, 2, 3, 4, 5, 6, 7, 8}}};
static struct dyti_msg_tensor wire_tensors[] = {
    {.name = "model.norm.weight",
     .ndim = 1,
     .shape = {576},
     .kinds = 31,
     .layer = -1,
     .expert = -1,
     .fixed_dtype = true,
     .dtype = DYTI_F32},
    {.name = "", .layer = INT32_MAX, .expert = INT32_MIN, .kinds = UINT32_MAX}};
static struct dyti_msg_extent wire_extents[] = {
    {.bytes = 4096, .address = 0x7f0000000000u, .fd = -1},
    {.offset = UINT64_MAX,
     .bytes = 1,
     .address = UINT64_MAX,
     .fd_offset = 8,
     .device = 9,
     .inode = UINT64_MAX,
     .fd = INT32_MAX,
     .kind = DYTI_KIND_COUNT - 1}};
static struct dyti_shard wire_shards[] = {
    {.tensor = UINT32_MAX,
     .kind = DYTI_KIND_COUNT - 1,
     .dtype = DYTI_DTYPE_COUNT - 1,
     .box = {2, {0, INT64_MIN}, {8, INT64_MAX}},
     .offset = UINT64_MAX,
     .stride = {64, -2}},
    {.tensor = 1, .box = {.ndim = 0}}};
static struct dyti_msg_part wire_parts[] = {
    {.pid = UINT32_MAX,
     .pid_start = UINT64_MAX,
     .region_bytes = {1, 2, UINT64_MAX},
     .extent = wire_extents,
     .extent_count = 2,
     .shard = wire_shards,
     .shard_count = 2},
    {.pid = 1, .extent = wire_extents, .extent_count = 1}};
static uint8_t wire_dtypes[] = {0, 1, 255, 2};
static uint32_t wire_islands[] = {0, 1};
static uint8_t wire_told[] = {7, 0, 0, 255};

WIRE_CASE(join, .job = "job_1", .pool = "rollout", .host_name = "h\xc3\xb6st",
          .role = 1, .replica = 2, .rank = 3, .size = 4, .tp_rank = 5,
          .tp_size = 6, .pp_rank = 7, .pp_size = 8, .dp_rank = 9, .dp_size = 10,
          .ep_rank = 11, .ep_size = 12, .commit = DYT_COMMIT_IN_PLACE,
          .no_crossing = (char[]){"none"}, .mapped = 1,
          .verify = DYT_VERIFY_OFF, .policy = DYT_POLICY_QUORUM, .quorum = 13,
          .max_version_skew = UINT32_MAX, .host = UINT64_MAX, .pid = 14,
          .pid_start = 15, .timeout_ns = INT64_MIN)
WIRE_CASE(joined, .member = INT32_MAX, .host = 1, .pid = UINT32_MAX,
          .pid_start = UINT64_MAX)
WIRE_CASE(rows, .row = wire_rows, .row_count = 3)
WIRE_CASE(catalogue, .tensor = wire_tensors, .tensor_count = 2,
          .fingerprint = UINT64_MAX)
WIRE_CASE(memory, .status = DYT_ERR_LAYOUT, .text = "it does not fit",
          .link = UINT32_MAX, .part = wire_parts, .part_count = 2)
WIRE_CASE(readers, .link = 3, .dtype = wire_dtypes, .dtype_count = 4)
WIRE_CASE(link, .link = 1, .rank = 1, .source_count = 1, .member_count = 2,
          .commit = DYT_COMMIT_DOUBLE, .verify = DYT_VERIFY_FULL,
          .kinds = UINT32_MAX, .live_set = 1, .pid = 5, .control_fd = -1,
          .timeout_ns = INT64_MAX, .set_count = 1, .part = wire_parts,
          .part_count = 2, .island = wire_islands, .island_count = 2,
          .manager_island = UINT32_MAX, .apart = true)
WIRE_CASE(meet, .link = 1, .rank = 2, .what = DYTI_MEET_COUNT - 1,
          .bytes = wire_told, .byte_count = 4)
WIRE_CASE(order, .what = DYTI_ORDER_CLOSE, .link = UINT32_MAX,
          .epoch = UINT64_MAX, .version = 1, .from_sibling = 1)
WIRE_CASE(report, .link = 7, .epoch = 8, .status = DYT_ERR_PEER,
          .text = "a peer", .committed = true, .broken = true, .live_set = 1,
          .moved_bytes = UINT64_MAX)
WIRE_CASE(request, .what = DYTI_REQUEST_RESTORE, .version = UINT64_MAX,
          .snapshot = true, .takes = true, .status = -3, .text = "why")
WIRE_CASE(answer, .what = DYTI_ANSWER_RELEASED, .version = UINT64_MAX,
          .status = DYT_ERR_STATE, .text = "no")
WIRE_CASE(status, .json = "{\"schema\": \"dynatrain-session-1\"}")

#define WIRE_ROW(name)                                                         \
    {                                                                          \
#name, wire_encode_##name, wire_again_##name                           \
    }

static const struct wire_case wire_cases[] = {
    WIRE_ROW(hello),     WIRE_ROW(assign),     WIRE_ROW(ready),
    WIRE_ROW(heartbeat), WIRE_ROW(switch),     WIRE_ROW(switch_done),
    WIRE_ROW(generate),  WIRE_ROW(samples),    WIRE_ROW(train),
    WIRE_ROW(metrics),   WIRE_ROW(checkpoint), WIRE_ROW(error),
    WIRE_ROW(join),      WIRE_ROW(joined),     WIRE_ROW(rows),
    WIRE_ROW(catalogue), WIRE_ROW(memory),     WIRE_ROW(readers),
    WIRE_ROW(link),      WIRE_ROW(meet),       WIRE_ROW(order),
    WIRE_ROW(report),    WIRE_ROW(request),    WIRE_ROW(answer),
    WIRE_ROW(status)};
#define WIRE_CASE_COUNT (sizeof(wire_cases) / sizeof(wire_cases[0]))

static const struct dyti_envelope wire_envelope = {.protocol = DYTI_PROTOCOL,
                                                   .type = DYTI_MSG_SAMPLES,
                                                   .job = 0xfeedfacecafebeefu,
                                                   .sender = 3,
                                                   .epoch = 40,
                                                   .sequence = 1000,
                                                   .version = 17};

#endif /* WIRE_CASES_H */
