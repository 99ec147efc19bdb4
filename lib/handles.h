/* What stands behind the opaque handles of model.h, layout.h, plan.h and
 * schedule.h. */
#ifndef DYTI_LIB_HANDLES_H
#define DYTI_LIB_HANDLES_H

#include "layout/cluster.h"
#include "layout/layout.h"
#include "plan/traffic.h"
#include "sched/strategy.h"

#include <dynatrain/schedule.h>
#include <pthread.h>
#include <stdio.h>

struct dyt_model {
    struct dyti_model *model;
};

struct dyt_layout {
    const struct dyt_model *owner; /* borrowed */
    struct dyti_layout *layout;
    char *spec; /* on one line; NULL: from views */
    /* Views of a layout by degrees, built when a rank is asked for. */
    pthread_mutex_t lock;
    struct dyti_view *view; /* [world_size] */
    bool *built;
};

struct dyt_plan {
    const struct dyt_layout *from, *to; /* borrowed */
    struct dyti_cluster cluster;
    uint32_t *host; /* of the cluster */
    struct dyti_traffic *traffic;
};

struct dyt_schedule {
    const struct dyt_plan *plan; /* borrowed */
    const char *strategy;        /* static */
    struct dyti_pieces pieces;
    struct dyti_flow *flow; /* [flow_count] */
    size_t flow_count;
    uint64_t messages;
};

/* A handle of a layout, which it takes over on success. */
enum dyt_status dyti_handle_from(const dyt_model *model,
                                 struct dyti_layout *layout,
                                 dyt_layout **out_layout);

/* The view of a rank, built once.  DYT_ERR_INVALID: no such rank. */
enum dyt_status dyti_handle_view(const struct dyt_layout *layout, uint32_t rank,
                                 const struct dyti_view **out_view);

/* Whether a struct that the caller made is as long as that of the first
 * release; DYT_ERR_INVALID has both numbers. */
enum dyt_status dyti_struct_check(const char *name, uint32_t struct_size,
                                  uint32_t least);

/* DYT_ERR_INVALID: a pointer that a public function wants was not given. */
enum dyt_status dyti_null_argument(const char *function);

/* A text that grows as a FILE: open, write to *out_file, then finish, which
 * gives the text or frees it where `st` is not DYT_OK. */
struct dyti_text {
    FILE *file;
    char *bytes;
    size_t count;
};
enum dyt_status dyti_text_open(struct dyti_text *text);
enum dyt_status dyti_text_finish(struct dyti_text *text, enum dyt_status st,
                                 char **out_text);

#endif /* DYTI_LIB_HANDLES_H */
