/* Text and JSON of each artifact, for `dynatrain plan`, --dry-run and dumps.
 *
 * Text goes to a FILE and is for people: bytes are rounded (12.3 MiB).  JSON
 * is one object a call, member `key` of what the writer has open (NULL at the
 * top), with exact numbers.
 * @return of the text functions: DYT_ERR_IO  writing failed; DYT_ERR_NOMEM
 *         JSON errors stick in the writer (base/json_out.h)
 */
#ifndef DYTI_EXPLAIN_EXPLAIN_H
#define DYTI_EXPLAIN_EXPLAIN_H

#include "base/json_out.h"
#include "layout/arena.h"
#include "sched/sched.h"

#include <stdio.h>

/* What tensors exist: sizes, and one line per tensor; equal layers share
 * theirs. */
enum dyt_status dyti_explain_model(const struct dyti_model *model, FILE *out);
void dyti_explain_model_json(const struct dyti_model *model,
                             struct dyti_json *json, const char *key);

/* Who holds what: one line per rank, and with `shards` every box of every
 * rank, with its place in the region. */
enum dyt_status dyti_explain_layout(const struct dyti_layout *layout,
                                    bool shards, FILE *out);
void dyti_explain_layout_json(const struct dyti_layout *layout, bool shards,
                              struct dyti_json *json, const char *key);

/* Which region of a rank's segment holds what, in which phase it is live, and
 * its bytes, in any mode.  layout as in dyti_arena_map_build_mode;
 * options->work_bytes is not looked at: work_bytes[world_size], NULL = 0 for
 * all.  The layouts are of one world. */
enum dyt_status dyti_explain_arenas(
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT],
    const uint64_t *work_bytes, const struct dyti_arena_options *options,
    FILE *out);
enum dyt_status dyti_explain_arenas_json(
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT],
    const uint64_t *work_bytes, const struct dyti_arena_options *options,
    struct dyti_json *json, const char *key);

/* How much of each kind goes over which links, what the choice of sources
 * gained over the first replica, and moved / bound of each kind of link with
 * the term that binds. */
struct dyti_traffic;
enum dyt_status dyti_explain_traffic(const struct dyti_traffic *traffic,
                                     FILE *out);
void dyti_explain_traffic_json(const struct dyti_traffic *traffic,
                               struct dyti_json *json, const char *key);

/* What goes from whom to whom: sources, bytes kept and moved per rank pair,
 * and with `transfers` every box; a plan of all ranks ends with its traffic, on
 * `cluster` (NULL: as plan/traffic.h assumes). */
struct dyti_cluster;
enum dyt_status dyti_explain_plan(const struct dyti_plan *plan,
                                  const struct dyti_cluster *cluster,
                                  bool transfers, FILE *out);
void dyti_explain_plan_json(const struct dyti_plan *plan,
                            const struct dyti_cluster *cluster, bool transfers,
                            struct dyti_json *json, const char *key);

/* In which order: one line per round of the rank, and with `steps` each. */
enum dyt_status dyti_explain_schedule(const struct dyti_schedule *schedule,
                                      bool steps, FILE *out);
void dyti_explain_schedule_json(const struct dyti_schedule *schedule,
                                bool steps, struct dyti_json *json,
                                const char *key);

#endif /* DYTI_EXPLAIN_EXPLAIN_H */
