/* Ranks, pools and degrees of a job: who works in which phase. */
#include "format/job_options.h"

#include "base/banned.h"

#define JOB   DYTI_SCOPE_JOB
#define PHASE DYTI_SCOPE_PHASE

/* Every rank below `ranks` and none twice. */
static enum dyt_status check_ranks(const struct dyti_job_reader *reader,
                                   enum dyti_option_scope scope, uint32_t index,
                                   const char *path, const uint32_t *rank,
                                   uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (rank[i] >= reader->job.ranks) {
            return dyti_reader_wrong(
                reader, scope, index, path,
                "%s: there is no rank %u: ranks = %u, so 0 to %u", path,
                rank[i], reader->job.ranks, reader->job.ranks - 1);
        }
        for (uint32_t j = 0; j < i; j++) {
            if (rank[j] == rank[i]) {
                return dyti_reader_wrong(
                    reader, scope, index, path,
                    "%s: rank %u is there twice: take one out", path, rank[i]);
            }
        }
    }
    return DYT_OK;
}

enum dyt_status dyti_reader_pools(const struct dyti_job_reader *reader)
{
    const struct dyti_job *job = &reader->job;
    enum dyt_status st;

    st = check_ranks(reader, JOB, 0, "pools.rollout", job->pool_rollout,
                     job->pool_rollout_count);
    if (st == DYT_OK) {
        st = check_ranks(reader, JOB, 0, "pools.train", job->pool_train,
                         job->pool_train_count);
    }
    if (st == DYT_OK &&
        (job->pool_rollout_count == 0) != (job->pool_train_count == 0)) {
        bool rollout = job->pool_rollout_count != 0;

        return dyti_reader_wrong(
            reader, JOB, 0, rollout ? "pools.rollout" : "pools.train",
            "pools: one pool without the other: give pools.%s too",
            rollout ? "train" : "rollout");
    }
    return st;
}

static bool in_list(const uint32_t *list, uint32_t count, uint32_t item)
{
    for (uint32_t i = 0; i < count; i++) {
        if (list[i] == item) {
            return true;
        }
    }
    return false;
}

/* layout.ranks as given, within the pool; or the pool, in order. */
static enum dyt_status fill_ranks(struct dyti_job_reader *reader,
                                  uint32_t index)
{
    struct dyti_job *job = &reader->job;
    struct dyti_job_phase *phase = &job->phase[index];
    struct dyti_job_layout *layout = &phase->layout;
    bool rollout = phase->kind == DYTI_PHASE_ROLLOUT;
    const uint32_t *pool = rollout ? job->pool_rollout : job->pool_train;
    uint32_t count = rollout ? job->pool_rollout_count : job->pool_train_count;
    enum dyt_status st;

    if (layout->ranks_count != 0) {
        st = check_ranks(reader, PHASE, index, "layout.ranks", layout->ranks,
                         layout->ranks_count);
        for (uint32_t i = 0; i < layout->ranks_count && st == DYT_OK; i++) {
            if (count != 0 && !in_list(pool, count, layout->ranks[i])) {
                st = dyti_reader_wrong(
                    reader, PHASE, index, "layout.ranks",
                    "layout.ranks: rank %u is not in pools.%s: add it "
                    "there or take it out here",
                    layout->ranks[i], phase->name);
            }
        }
        return st;
    }
    count = count == 0 ? job->ranks : count;
    layout->ranks = calloc(count, sizeof(*layout->ranks));
    if (layout->ranks == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u ranks", count);
    }
    layout->ranks_count = count;
    for (uint32_t i = 0; i < count; i++) {
        layout->ranks[i] = pool != NULL ? pool[i] : i;
    }
    return DYT_OK;
}

/* The degree that was set last: that is where the message points. */
static const char *degree_row(const struct dyti_job_reader *reader,
                              uint32_t index)
{
    static const char *const row[] = {"layout.tp", "layout.pp", "layout.dp"};

    for (size_t i = reader->origin_count; i-- > 0;) {
        const struct dyti_job_origin *origin = &reader->origin[i];

        for (size_t j = 0; j < 3; j++) {
            if (origin->scope == PHASE && origin->index == index &&
                strcmp(origin->option->path, row[j]) == 0) {
                return row[j];
            }
        }
    }
    return NULL;
}

static enum dyt_status check_degrees(const struct dyti_job_reader *reader,
                                     uint32_t index)
{
    const struct dyti_job_phase *phase = &reader->job.phase[index];
    const struct dyti_job_layout *l = &phase->layout;
    uint64_t tp = l->tp, pp = l->pp, dp = l->dp, have = l->ranks_count;
    uint64_t want = tp * pp * dp; /* below 2^48 */
    char hint[96] = "";

    if (want == have) {
        return DYT_OK;
    }
    if (have % (tp * pp) == 0) {
        snprintf(hint, sizeof(hint), "dp = %llu",
                 (unsigned long long)(have / (tp * pp)));
    } else if (have % (pp * dp) == 0) {
        snprintf(hint, sizeof(hint), "tp = %llu",
                 (unsigned long long)(have / (pp * dp)));
    } else if (have % (tp * dp) == 0) {
        snprintf(hint, sizeof(hint), "pp = %llu",
                 (unsigned long long)(have / (tp * dp)));
    } else {
        snprintf(hint, sizeof(hint), "tp = %llu, pp = 1, dp = 1",
                 (unsigned long long)have);
    }
    return dyti_reader_wrong(
        reader, PHASE, index, degree_row(reader, index),
        "phase.%s.layout: tp %u x pp %u x dp %u = %llu, but the phase "
        "has %u ranks: write %s, or give it %llu ranks",
        phase->name, l->tp, l->pp, l->dp, (unsigned long long)want,
        l->ranks_count, hint, (unsigned long long)want);
}

enum dyt_status dyti_reader_layout(struct dyti_job_reader *reader,
                                   uint32_t index)
{
    const struct dyti_job_layout *layout = &reader->job.phase[index].layout;
    enum dyt_status st = fill_ranks(reader, index);

    if (st == DYT_OK) {
        st = check_degrees(reader, index);
    }
    if (st == DYT_OK && layout->pp_layers_count != 0 &&
        layout->pp_layers_count != layout->pp) {
        return dyti_reader_wrong(
            reader, PHASE, index, "layout.pp_layers",
            "layout.pp_layers: %u entries for %u pipeline stages: "
            "write one for each stage",
            layout->pp_layers_count, layout->pp);
    }
    return st;
}

/* A rank that no phase uses would only wait. */
enum dyt_status dyti_reader_idle(const struct dyti_job_reader *reader)
{
    const struct dyti_job *job = &reader->job;

    for (uint32_t rank = 0; rank < job->ranks; rank++) {
        bool used = false;

        for (uint32_t i = 0; i < job->phase_count && !used; i++) {
            used = in_list(job->phase[i].layout.ranks,
                           job->phase[i].layout.ranks_count, rank);
        }
        if (!used) {
            return dyti_reader_wrong(
                reader, JOB, 0, "ranks",
                "ranks: rank %u of %u works in no phase: lower ranks, "
                "or give it to a phase",
                rank, job->ranks);
        }
    }
    return DYT_OK;
}
