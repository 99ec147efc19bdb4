/* The hosts, speeds and patterns that a switch is planned with. */
#include "plan/traffic_detail.h"

#include <stdlib.h>

#define MEMORY_BYTES_PER_S 800e9
#define HOST_BYTES_PER_S   400e9
#define NIC_BYTES_PER_S    25e9

static const uint32_t *hosts_of(const struct dyti_plan_inputs *inputs)
{
    if (inputs->host != NULL) {
        return inputs->host;
    }
    if (inputs->dst->desc.host != NULL || inputs->want_count == 0) {
        return inputs->dst->desc.host;
    }
    return inputs->want[0].source[0].layout->desc.host;
}

enum dyt_status dyti_traffic_cluster(const struct dyti_plan_inputs *inputs,
                                     const struct dyti_traffic_options *options,
                                     struct dyti_cluster *out_cluster,
                                     uint32_t **out_host)
{
    uint32_t world = inputs->dst->desc.world_size;
    const uint32_t *host = hosts_of(inputs);
    struct dyti_cluster c = {.name = "default", .rank_count = world};
    uint32_t *own;

    if (options->cluster != NULL) {
        c = *options->cluster;
        host = c.host;
        if (c.rank_count != world) {
            return DYTI_FAIL(
                DYT_ERR_INVALID, "cluster %s has %u ranks, the layouts have %u",
                c.name == NULL ? "?" : c.name, c.rank_count, world);
        }
    } else {
        c.link[DYTI_LINK_SELF].bytes_per_s = MEMORY_BYTES_PER_S;
        c.link[DYTI_LINK_HOST].bytes_per_s = HOST_BYTES_PER_S;
        c.link[DYTI_LINK_NIC].bytes_per_s = NIC_BYTES_PER_S;
    }
    own = calloc((size_t)world + 1, sizeof(*own));
    if (own == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "hosts of %u ranks", world);
    }
    for (uint32_t r = 0; host != NULL && r < world; r++) {
        own[r] = host[r];
    }
    c.host = own;
    *out_cluster = c;
    *out_host = own;
    return DYT_OK;
}

static bool has_patterns(const struct dyti_pattern_list *list,
                         const struct dyti_layout *layout)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->patterns[i]->layout == layout) {
            return true;
        }
    }
    return false;
}

enum dyt_status dyti_pattern_list_build(const struct dyti_plan_inputs *inputs,
                                        struct dyti_pattern_list *out_list)
{
    struct dyti_pattern_list list = {0};
    enum dyt_status st = dyti_patterns_build(inputs->dst, &list.patterns[0]);

    list.count = st == DYT_OK;
    for (uint32_t w = 0; w < inputs->want_count; w++) {
        const struct dyti_plan_want *want = &inputs->want[w];

        for (uint32_t s = 0; s < want->source_count && st == DYT_OK; s++) {
            const struct dyti_layout *layout = want->source[s].layout;

            if (!has_patterns(&list, layout)) {
                st = dyti_patterns_build(layout, &list.patterns[list.count]);
                list.count += st == DYT_OK;
            }
        }
    }
    if (st != DYT_OK) {
        dyti_pattern_list_fini(&list);
        return st;
    }
    *out_list = list;
    return DYT_OK;
}

void dyti_pattern_list_fini(struct dyti_pattern_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        dyti_patterns_destroy(list->patterns[i]);
    }
    *list = (struct dyti_pattern_list){0};
}
