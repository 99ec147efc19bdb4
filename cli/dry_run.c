#include "cli/dry_run.h"
#include "cli/switch_memory.h"

#include "explain/explain.h"
#include "plan/plan.h"
#include "sched/sched.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum dyt_status plan_of(const struct dyti_assembly *a,
                               const struct dyti_direction *d,
                               struct dyti_plan **out_plan)
{
    struct dyti_plan_inputs inputs;
    enum dyt_status st =
        dyti_plan_inputs_init(a->layout[d->from], d->from, a->layout[d->to],
                              d->to, DYTI_PLAN_KINDS_STATE, &inputs);

    st = st != DYT_OK ? st : dyti_plan_build(&inputs, out_plan);
    if (st != DYT_OK) {
        DYTI_NOTE("planning the switch %s", d->name);
    }
    return st;
}

/* Each rank's steps of one switch. */
static enum dyt_status show_schedules(const struct dyti_assembly *a,
                                      const struct dyti_direction *d,
                                      bool steps, FILE *out,
                                      struct dyti_json *json)
{
    const struct dyti_schedule_options options = {.side = DYTI_SIDE_PULL};
    enum dyt_status st = DYT_OK;

    for (uint32_t r = 0; st == DYT_OK && r < a->world_size; r++) {
        struct dyti_plan_inputs inputs;
        struct dyti_plan *plan = NULL;
        struct dyti_schedule *schedule = NULL;

        st =
            dyti_plan_inputs_init(a->layout[d->from], d->from, a->layout[d->to],
                                  d->to, DYTI_PLAN_KINDS_STATE, &inputs);
        st = st != DYT_OK ? st : dyti_plan_build_rank(&inputs, r, &plan);
        st = st != DYT_OK ? st
                          : dyti_schedule_build(plan, r, &options, &schedule);
        if (st == DYT_OK && out != NULL) {
            st = dyti_explain_schedule(schedule, steps, out);
        } else if (st == DYT_OK) {
            dyti_explain_schedule_json(schedule, steps, json, NULL);
        }
        dyti_schedule_destroy(schedule);
        dyti_plan_destroy(plan);
    }
    return st;
}

/* The rank that needs most memory beside the larger layout. */
static struct dyti_switch_memory most_needed(const struct dyti_assembly *a,
                                             const struct dyti_direction *d,
                                             uint32_t *out_rank)
{
    struct dyti_switch_memory most = {0};

    *out_rank = 0;
    for (uint32_t r = 0; r < a->world_size; r++) {
        struct dyti_switch_memory m =
            dyti_switch_memory_of(a, d->from, d->to, r);

        if (m.need_bytes > most.need_bytes) {
            most = m;
            *out_rank = r;
        }
    }
    return most;
}

static void show_need(const struct dyti_assembly *a,
                      const struct dyti_direction *d, FILE *out)
{
    uint32_t rank;
    struct dyti_switch_memory m = most_needed(a, d, &rank);

    fprintf(out,
            "mode %s needs at the most %" PRIu64
            " bytes beside the larger layout, on "
            "rank %u (source %" PRIu64 ", destination %" PRIu64
            ", staging %" PRIu64 "; switch.memory_cap %" PRIu64 ")\n",
            dyti_switch_mode_name(a->mode), m.need_bytes, rank, m.source_bytes,
            m.destination_bytes, m.staging_bytes, a->job->sw.memory_cap_bytes);
}

static void need_json(const struct dyti_assembly *a, struct dyti_json *json)
{
    dyti_json_begin_object(json, "needs");
    dyti_json_text(json, "mode", dyti_switch_mode_name(a->mode));
    for (size_t i = 0; i < DYTI_DIRECTIONS; i++) {
        uint32_t rank;
        struct dyti_switch_memory m =
            most_needed(a, &dyti_directions[i], &rank);

        dyti_json_begin_object(json, dyti_directions[i].key);
        dyti_json_u64(json, "rank", rank);
        dyti_json_u64(json, "bytes", m.need_bytes);
        dyti_json_u64(json, "source_bytes", m.source_bytes);
        dyti_json_u64(json, "destination_bytes", m.destination_bytes);
        dyti_json_u64(json, "staging_bytes", m.staging_bytes);
        dyti_json_end(json);
    }
    dyti_json_end(json);
}

static void work_bytes(const struct dyti_assembly *a, uint64_t *out)
{
    for (uint32_t r = 0; r < a->world_size; r++) {
        out[r] = a->map[r].work_bytes;
    }
}

static enum dyt_status show_arenas(const struct dyti_assembly *a, FILE *out,
                                   struct dyti_json *json)
{
    const struct dyti_layout *layout[DYTI_ARENA_SLOT_COUNT];
    struct dyti_arena_options options = {.mode = a->mode,
                                         .staging_bytes = a->staging_bytes};
    uint64_t *work = calloc(a->world_size, sizeof(*work));
    enum dyt_status st;

    if (work == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u ranks", a->world_size);
    }
    for (int s = 0; s < DYTI_ARENA_SLOT_COUNT; s++) {
        layout[s] = a->layout[s];
    }
    work_bytes(a, work);
    st = out != NULL
             ? dyti_explain_arenas(layout, work, &options, out)
             : dyti_explain_arenas_json(layout, work, &options, json, "memory");
    free(work);
    return st;
}

static const struct dyti_cluster *cluster_of(const struct dyti_plan_show *show)
{
    return show->prices != NULL ? &show->prices->cluster : show->cluster;
}

static void prices_json(const struct dyti_plan_show *show,
                        struct dyti_json *json)
{
    if (show->prices == NULL) {
        return;
    }
    dyti_json_begin_object(json, "prices");
    for (size_t i = 0; i < DYTI_DIRECTIONS; i++) {
        dyti_price_json(show->prices->price[i], show->pairs, json,
                        dyti_directions[i].key);
    }
    dyti_json_end(json);
}

enum dyt_status dyti_show_plans(const struct dyti_loaded_job *loaded,
                                const struct dyti_plan_show *show, FILE *out)
{
    const struct dyti_assembly *a = &loaded->assembly;
    enum dyt_status st = show_arenas(a, out, NULL);

    for (size_t i = 0; st == DYT_OK && i < DYTI_DIRECTIONS; i++) {
        struct dyti_plan *plan = NULL;

        fprintf(out, "\nswitch %s\n", dyti_directions[i].name);
        st = plan_of(a, &dyti_directions[i], &plan);
        st = st != DYT_OK ? st
                          : dyti_explain_plan(plan, cluster_of(show),
                                              show->transfers, out);
        show_need(a, &dyti_directions[i], out);
        if (st == DYT_OK && show->prices != NULL) {
            st = dyti_price_seconds_text(show->prices->price[i], out);
        }
        dyti_plan_destroy(plan);
        if (st == DYT_OK && show->steps) {
            st = show_schedules(a, &dyti_directions[i], true, out, NULL);
        }
    }
    return st;
}

enum dyt_status dyti_show_plans_json(const struct dyti_loaded_job *loaded,
                                     const struct dyti_plan_show *show,
                                     FILE *out)
{
    const struct dyti_assembly *a = &loaded->assembly;
    struct dyti_json json;
    const char *text;
    size_t bytes;
    enum dyt_status st;

    dyti_json_init(&json, 2);
    dyti_json_begin_object(&json, NULL);
    dyti_json_text(&json, "job", loaded->job.name);
    dyti_explain_layout_json(a->layout[DYTI_ARENA_ROLLOUT], false, &json,
                             "rollout");
    dyti_explain_layout_json(a->layout[DYTI_ARENA_TRAIN], false, &json,
                             "train");
    st = show_arenas(a, NULL, &json);
    need_json(a, &json);
    for (size_t i = 0; st == DYT_OK && i < DYTI_DIRECTIONS; i++) {
        struct dyti_plan *plan = NULL;

        st = plan_of(a, &dyti_directions[i], &plan);
        if (st == DYT_OK) {
            dyti_explain_plan_json(plan, cluster_of(show), show->transfers,
                                   &json, dyti_directions[i].key);
        }
        dyti_plan_destroy(plan);
    }
    prices_json(show, &json);
    dyti_json_end(&json);
    st = st != DYT_OK ? st : dyti_json_finish(&json, &text, &bytes);
    if (st == DYT_OK && fwrite(text, 1, bytes, out) != bytes) {
        st = DYTI_FAIL(DYT_ERR_IO, "cannot write the plan");
    }
    dyti_json_release(&json);
    return st;
}

enum dyt_status dyti_dry_run(const struct dyti_loaded_job *loaded, FILE *out)
{
    struct dyti_cluster_file assumed = {.host = NULL};
    struct dyti_plan_show show = {.cluster = NULL};
    char *text = NULL, *here = getcwd(NULL, 0);
    enum dyt_status st =
        here != NULL
            ? dyti_job_text(&loaded->job, here, &text)
            : DYTI_FAIL(DYT_ERR_IO, "where we are: %s", strerror(errno));

    free(here);
    if (st != DYT_OK) {
        return st;
    }
    fprintf(out, "# the job, resolved\n%s\n", text);
    free(text);
    st = dyti_explain_model(loaded->assembly.model, out);
    for (int s = 0; st == DYT_OK && s < DYTI_ARENA_SLOT_COUNT; s++) {
        if (loaded->assembly.layout[s] != NULL) {
            fprintf(out, "\n");
            st = dyti_explain_layout(loaded->assembly.layout[s], false, out);
        }
    }
    fprintf(out, "\n");
    st = st != DYT_OK ? st
                      : dyti_cluster_file_assume(loaded->job.ranks, &assumed);
    if (st == DYT_OK) {
        show.cluster = &assumed.cluster;
        st = dyti_show_plans(loaded, &show, out);
    }
    if (st == DYT_OK) {
        fprintf(
            out,
            "cluster  %s; `dynatrain plan` prices them, there and on others\n",
            assumed.name);
    }
    dyti_cluster_file_fini(&assumed);
    return st;
}
