/* In which order: rounds of one rank, steps if asked. */
#include "explain/explain.h"
#include "explain/words.h"

#include <inttypes.h>

static const char *side_name(uint8_t side)
{
    return side == DYTI_SIDE_PULL ? "pull" : "push";
}

/* The other rank of a step. */
static uint32_t peer_of(const struct dyti_schedule *s,
                        const struct dyti_step *step)
{
    return step->src_rank == s->rank ? step->dst_rank : step->src_rank;
}

/* The copies of one round from step `first` on; returns where they end. */
static uint32_t print_round(const struct dyti_schedule *s, uint32_t first,
                            FILE *out)
{
    const struct dyti_step *step = &s->step[first];
    uint64_t read = 0, write = 0;
    uint32_t end = first, spans = 0;

    while (end < s->step_count && s->step[end].kind == step->kind &&
           s->step[end].round == step->round) {
        read += s->step[end].read_bytes;
        write += s->step[end].write_bytes;
        spans += s->step[end].span_count;
        end++;
    }
    if (step->kind == DYTI_STEP_FENCE) {
        fprintf(out, "  fence, after %u steps\n", step->wait_count);
        return end;
    }
    fprintf(out, "  round %-5u %s rank %-5u %5u steps %6u copies %11s %11s\n",
            step->round, step->round == 0 ? "in  " : "with", peer_of(s, step),
            end - first, spans, dyti_words_bytes(read).text,
            dyti_words_bytes(write).text);
    return end;
}

static void print_steps(const struct dyti_schedule *s, FILE *out)
{
    for (uint32_t i = 0; i < s->step_count; i++) {
        const struct dyti_step *step = &s->step[i];

        fprintf(out,
                "  step %u: %s, round %u, %u -> %u, transfers %u+%u, copies "
                "%u+%u, %s, waits for %u\n",
                i, dyti_step_kind_name((enum dyti_step_kind)step->kind),
                step->round, step->src_rank, step->dst_rank,
                step->transfer_first, step->transfer_count, step->span_first,
                step->span_count, dyti_words_bytes(step->write_bytes).text,
                step->wait_count);
    }
}

static void print_collectives(const struct dyti_schedule *s, FILE *out)
{
    const char *sep = "  run as one collective each: ";

    for (int k = 0; k < DYTI_COLLECTIVE_KIND_COUNT; k++) {
        if (s->collective_count[k] > 0) {
            fprintf(out, "%s%u x %s", sep, s->collective_count[k],
                    dyti_collective_kind_name((enum dyti_collective_kind)k));
            sep = ", ";
        }
    }
    if (*sep == ',') {
        fputc('\n', out);
    }
}

enum dyt_status dyti_explain_schedule(const struct dyti_schedule *schedule,
                                      bool steps, FILE *out)
{
    const struct dyti_schedule *s = schedule;

    fprintf(out,
            "schedule of rank %u of %u: %s, %u steps, %u copies, chunks of %s, "
            "staging %s, fingerprint %s\n",
            s->rank, s->world_size, side_name((uint8_t)s->options.side),
            s->step_count, s->span_count,
            dyti_words_bytes(s->options.chunk_bytes).text,
            dyti_words_bytes(s->staging_bytes).text,
            dyti_words_hex(s->fingerprint).text);
    if (s->chain_count > 0) {
        fprintf(out,
                "  %u broadcasts run from host to host; this rank keeps and "
                "passes on %u of its messages\n",
                s->chain_count, s->passed_count);
    }
    print_collectives(s, out);
    fprintf(out, "  %-46s %11s %11s\n", "", "read", "written");
    for (uint32_t i = 0; i < s->step_count;) {
        i = print_round(s, i, out);
    }
    if (steps) {
        print_steps(s, out);
    }
    return dyti_words_done(out, "the schedule");
}

static void step_json(const struct dyti_schedule *s, uint32_t index,
                      struct dyti_json *json)
{
    const struct dyti_step *step = &s->step[index];

    dyti_json_begin_object(json, NULL);
    dyti_json_text(json, "kind",
                   dyti_step_kind_name((enum dyti_step_kind)step->kind));
    dyti_json_text(json, "side", side_name(step->side));
    dyti_json_u64(json, "round", step->round);
    dyti_json_u64(json, "src", step->src_rank);
    dyti_json_u64(json, "dst", step->dst_rank);
    dyti_json_u64(json, "transfer_first", step->transfer_first);
    dyti_json_u64(json, "transfer_count", step->transfer_count);
    dyti_json_u64(json, "copies", step->span_count);
    dyti_json_u64(json, "read_bytes", step->read_bytes);
    dyti_json_u64(json, "write_bytes", step->write_bytes);
    dyti_json_u64(json, "wait_count", step->wait_count);
    dyti_json_begin_array(json, "next");
    for (uint32_t k = 0; k < step->next_count; k++) {
        dyti_json_u64(json, NULL, s->next[step->next_first + k]);
    }
    dyti_json_end(json);
    dyti_json_end(json);
}

static const char *const collective_key[DYTI_COLLECTIVE_KIND_COUNT] = {
    "broadcasts_run_as_one", "all_gathers_run_as_one", "scatters_run_as_one",
    "gathers_run_as_one"};

void dyti_explain_schedule_json(const struct dyti_schedule *schedule,
                                bool steps, struct dyti_json *json,
                                const char *key)
{
    const struct dyti_schedule *s = schedule;

    dyti_json_begin_object(json, key);
    dyti_json_u64(json, "rank", s->rank);
    dyti_json_u64(json, "world_size", s->world_size);
    dyti_json_text(json, "side", side_name((uint8_t)s->options.side));
    dyti_json_u64(json, "rounds", s->round_count);
    if (s->chain_count > 0) {
        dyti_json_u64(json, "chains", s->chain_count);
        dyti_json_u64(json, "passed_messages", s->passed_count);
    }
    for (int k = 0; k < DYTI_COLLECTIVE_KIND_COUNT; k++) {
        if (s->collective_count[k] > 0) { /* "broadcasts_run_as_one", … */
            dyti_json_u64(json, collective_key[k], s->collective_count[k]);
        }
    }
    dyti_json_u64(json, "step_count", s->step_count);
    dyti_json_u64(json, "copies", s->span_count);
    dyti_json_u64(json, "chunk_bytes", s->options.chunk_bytes);
    dyti_json_u64(json, "staging_bytes", s->staging_bytes);
    dyti_json_u64(json, "read_bytes", s->read_bytes);
    dyti_json_u64(json, "write_bytes", s->write_bytes);
    dyti_words_hex_json(json, "fingerprint", s->fingerprint);
    if (steps) {
        dyti_json_begin_array(json, "steps");
        for (uint32_t i = 0; i < s->step_count; i++) {
            step_json(s, i, json);
        }
        dyti_json_end(json);
    }
    dyti_json_end(json);
}
