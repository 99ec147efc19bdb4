/* A member of a group over gloo: opened, closed, and the table of its calls. */
#include "comm/gloo/gloo_group.h"

#include <stdlib.h>
#include <string.h>

#define LOOPBACK        "127.0.0.1"
#define OPEN_TIMEOUT_MS 30000

static void group_close(void *self)
{
    struct dyti_gloo_group *group = self;

    if (group == NULL) {
        return;
    }
    if (group->watching) {
        (void)pthread_mutex_lock(&group->lock);
        group->closing = true;
        (void)pthread_cond_signal(&group->changed);
        (void)pthread_mutex_unlock(&group->lock);
        (void)pthread_join(group->watcher, NULL);
    }
    dyti_gloo_posts_fini(group);
    dyti_gloo_close(group->gloo);
    (void)pthread_mutex_destroy(&group->lock);
    (void)pthread_cond_destroy(&group->changed);
    free(group->world_rank);
    free(group->tags);
    free(group->tag_bytes);
    free(group->parts);
    free(group->takes);
    free(group->scratch);
    free(group);
}

static enum dyt_status check(const struct dyti_group_params *params)
{
    if (params->size == 0 || params->rank >= params->size) {
        return DYTI_FAIL(DYT_ERR_INVALID, "group %s: member %u of %u",
                         params->name, params->rank, params->size);
    }
    if (params->shared == NULL || params->abort == NULL ||
        params->shared_bytes < dyti_gloo_region_bytes(params->size)) {
        return DYTI_FAIL(
            DYT_ERR_INVALID,
            "group %s of %u needs an abort word and %llu shared "
            "bytes, got %llu",
            params->name, params->size,
            (unsigned long long)dyti_gloo_region_bytes(params->size),
            (unsigned long long)params->shared_bytes);
    }
    return DYT_OK;
}

static enum dyt_status allocate(struct dyti_gloo_group *group)
{
    uint32_t n = group->size;

    group->world_rank = calloc(n, sizeof(*group->world_rank));
    group->tags = calloc(n, sizeof(*group->tags));
    group->tag_bytes = calloc(n, sizeof(*group->tag_bytes));
    group->parts = calloc(n, sizeof(*group->parts));
    group->takes = calloc(n, sizeof(*group->takes));
    if (group->world_rank == NULL || group->tags == NULL ||
        group->tag_bytes == NULL || group->parts == NULL ||
        group->takes == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "group %s of %u", group->name, n);
    }
    for (uint32_t i = 0; i < n; i++) {
        group->tag_bytes[i] = sizeof(*group->tags);
    }
    return dyti_gloo_posts_init(group);
}

static enum dyt_status connect_all(struct dyti_gloo_group *group,
                                   const struct dyti_group_params *params)
{
    struct dyti_gloo_params how = {
        .rank = params->rank,
        .size = params->size,
        .address = params->address == NULL ? LOOPBACK : params->address,
        .store = {.arg = group,
                  .set = dyti_gloo_store_set,
                  .get = dyti_gloo_store_get,
                  .given_up = dyti_gloo_store_given_up},
        .open_timeout_ms = OPEN_TIMEOUT_MS,
        .timeout_ms = params->timeout_ns > 0
                          ? (params->timeout_ns + 999999) / 1000000
                          : 0};
    struct dyti_gloo_member *me = dyti_gloo_member_at(group, group->rank);
    enum dyt_status st;

    if (group->size == 1) {
        return DYT_OK;
    }
    me->opens++;
    atomic_store(&me->key_count, 0);
    atomic_store(&me->key_opens, me->opens);
    group->round = atomic_load(&me->round);
    if (dyti_gloo_open(&how, &group->gloo, group->text, sizeof(group->text)) !=
        DYTI_GLOO_OK) {
        st = dyti_gloo_look_at_abort(group);
        return st != DYT_OK
                   ? st
                   : DYTI_FAIL(DYT_ERR_PEER,
                               "group %s: rank %u cannot connect from %s: %s",
                               group->name, group->world_rank[group->rank],
                               how.address, group->text);
    }
    if (pthread_create(&group->watcher, NULL, dyti_gloo_watch, group) != 0) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "group %s: a thread", group->name);
    }
    group->watching = true;
    return DYT_OK;
}

static enum dyt_status group_open(const struct dyti_group_params *params,
                                  void **out_self)
{
    struct dyti_gloo_group *group;
    enum dyt_status st = check(params);

    if (st != DYT_OK) {
        return st;
    }
    group = calloc(1, sizeof(*group));
    if (group == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "group %s", params->name);
    }
    (void)pthread_mutex_init(&group->lock, NULL);
    (void)pthread_cond_init(&group->changed, NULL);
    group->name = params->name;
    group->rank = params->rank;
    group->size = params->size;
    group->shared = params->shared;
    group->abort = params->abort;
    group->timeout_ns = params->timeout_ns;
    group->apart = params->apart;
    group->told = params->changed;
    group->told_arg = params->changed_arg;
    st = allocate(group);
    for (uint32_t i = 0; st == DYT_OK && i < params->size; i++) {
        group->world_rank[i] =
            params->world_rank == NULL ? i : params->world_rank[i];
    }
    st = st != DYT_OK ? st : connect_all(group, params);
    if (st != DYT_OK) {
        group_close(group);
        return st;
    }
    *out_self = group;
    return DYT_OK;
}

static void group_traffic(void *self, struct dyti_group_traffic *out_traffic)
{
    const struct dyti_gloo_group *group = self;

    *out_traffic = group->traffic;
}

const struct dyti_group_ops dyti_group_gloo = {
    .struct_size = sizeof(struct dyti_group_ops),
    .name = "gloo",
    .caps = DYTI_GROUP_CAP_RANK_ORDER,
    .region_bytes = dyti_gloo_region_bytes,
    .open = group_open,
    .close = group_close,
    .barrier = dyti_gloo_group_barrier,
    .broadcast = dyti_gloo_group_broadcast,
    .all_gather = dyti_gloo_group_all_gather,
    .reduce_scatter = dyti_gloo_group_reduce_scatter,
    .all_reduce = dyti_gloo_group_all_reduce,
    .exchange = dyti_gloo_exchange,
    .traffic = group_traffic,
    .post = dyti_gloo_group_post,
    .poll = dyti_gloo_group_poll,
    .wait = dyti_gloo_group_wait,
    .cancel = dyti_gloo_group_cancel,
};
