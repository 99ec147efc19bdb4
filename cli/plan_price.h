/* What both switches of a job take on a cluster, by each strategy: simulated,
 * before anything runs. */
#ifndef DYTI_CLI_PLAN_PRICE_H
#define DYTI_CLI_PLAN_PRICE_H

#include "cli/load_job.h"
#include "cli/tell.h"
#include "explain/price.h"
#include "format/cluster_file.h"

/* The two switches of a job. */
struct dyti_direction {
    const char *name, *key;
    enum dyti_arena_slot from, to;
};
#define DYTI_DIRECTIONS 2u
extern const struct dyti_direction dyti_directions[DYTI_DIRECTIONS];

struct dyti_job_prices {
    struct dyti_cluster_file file;
    struct dyti_cluster cluster; /* for the job's ranks */
    struct dyti_price *price[DYTI_DIRECTIONS];
};

/**
 * @param cluster  TOML file; NULL: as dyti_cluster_file_assume()
 * @param exact    each message of `per-tensor` is ordered by itself
 * @return what reading clusters and dyti_price_build return; the text names
 *         file or switch
 */
enum dyt_status dyti_job_prices_build(const struct dyti_loaded_job *loaded,
                                      const char *cluster, bool exact,
                                      struct dyti_tell *tell,
                                      struct dyti_job_prices *out);
/* Zeroed is fine, and what it leaves. */
void dyti_job_prices_fini(struct dyti_job_prices *prices);

/* A page of both at `path`. */
enum dyt_status dyti_job_prices_page(const struct dyti_job_prices *prices,
                                     const char *title, const char *path);

/* A page of `count` switches at `path`. */
enum dyt_status dyti_price_page(const char *title,
                                const struct dyti_price *const *price,
                                const char *const *name, size_t count,
                                const char *path);

#endif /* DYTI_CLI_PLAN_PRICE_H */
