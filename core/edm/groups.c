/* Walks the coordinates of every layout; equal lists are one group. */
#include "edm/groups.h"

#include "base/array.h"
#include "base/checked.h"
#include "layout/dialect.h"

#include <stdio.h>
#include <string.h>

#define REGION_ALIGN 4096u

static const char *const dimension_name[DYTI_DIM_COUNT] = {
    "tp", "dp", "pp", "model", "embed", "all"};

const char *dyti_slot_name(enum dyti_arena_slot slot)
{
    return dyti_arena_slot_name(slot);
}

int64_t dyti_group_member(const struct dyti_group_entry *entry, uint32_t rank)
{
    for (uint32_t i = 0; i < entry->size; i++) {
        if (entry->member[i] == rank) {
            return i;
        }
    }
    return -1;
}

/* Coordinates in a layout; in a group some are free.  dp counts all replicas:
 * those of context parallelism too, and of a list each member. */
struct place {
    uint32_t tp, pp, dp;
};

static uint32_t replica_count(const struct dyti_layout *layout)
{
    return layout->desc.dialect == DYTI_DIALECT_LIST
               ? layout->member_count
               : layout->desc.dp * layout->desc.cp;
}

static uint32_t rank_at(const struct dyti_layout *layout, struct place at)
{
    uint32_t cp = layout->desc.cp;

    return layout->desc
        .ranks[layout->desc.dialect == DYTI_DIALECT_LIST
                   ? at.dp
                   : dyti_layout_member(layout, at.tp, at.dp % cp, at.dp / cp,
                                        at.pp)];
}

static uint32_t free_count(const struct dyti_layout *layout,
                           enum dyti_dimension dimension)
{
    const struct dyti_layout_desc *desc = &layout->desc;

    switch (dimension) {
    case DYTI_DIM_TP:
        return desc->tp;
    case DYTI_DIM_DP:
        return replica_count(layout);
    case DYTI_DIM_PP:
        return desc->pp;
    case DYTI_DIM_MODEL:
        return desc->tp * desc->pp;
    case DYTI_DIM_EMBED:
        return desc->pp > 1 ? 2 : 1;
    default:
        return layout->member_count;
    }
}

/* Member i of the group that `at` belongs to. */
static struct place member_place(const struct dyti_layout *layout,
                                 enum dyti_dimension dimension, struct place at,
                                 uint32_t i)
{
    const struct dyti_layout_desc *desc = &layout->desc;

    switch (dimension) {
    case DYTI_DIM_TP:
        at.tp = i;
        break;
    case DYTI_DIM_DP:
        at.dp = i;
        break;
    case DYTI_DIM_PP:
        at.pp = i;
        break;
    case DYTI_DIM_EMBED:
        at.pp = i == 0 ? 0 : desc->pp - 1;
        break;
    case DYTI_DIM_ALL:
        at.dp = i / desc->tp % replica_count(layout);
        at.pp = i / desc->tp / replica_count(layout);
        at.tp = i % desc->tp;
        break;
    default: /* MODEL */
        at.tp = i % desc->tp;
        at.pp = i / desc->tp;
        break;
    }
    return at;
}

/* The first of its group makes it: all free coordinates are 0. */
static bool is_first(const struct dyti_layout *layout,
                     enum dyti_dimension dimension, struct place at)
{
    struct place first = member_place(layout, dimension, at, 0);

    if (dimension == DYTI_DIM_EMBED && at.pp != 0) {
        return false;
    }
    return first.tp == at.tp && first.pp == at.pp && first.dp == at.dp;
}

/* Owns `member` from here on, whatever happens. */
static enum dyt_status add_list(struct dyti_group_table *table,
                                uint32_t *member, uint32_t size,
                                const struct dyti_group_ops *ops,
                                const char *slot, const char *dimension,
                                size_t *out_index)
{
    struct dyti_group_entry *entry;
    enum dyt_status st;

    for (size_t i = 0; i < table->entry_count; i++) {
        if (table->entry[i].size == size &&
            memcmp(table->entry[i].member, member, size * sizeof(*member)) ==
                0) {
            free(member);
            *out_index = i;
            return DYT_OK;
        }
    }
    st = DYTI_GROW(table->entry, table->entry_cap, table->entry_count + 1);
    if (st != DYT_OK) {
        free(member);
        return st;
    }
    entry = &table->entry[table->entry_count];
    *entry = (struct dyti_group_entry){.member = member,
                                       .size = size,
                                       .bytes = ops->region_bytes(size),
                                       .offset = table->total_bytes};
    (void)snprintf(entry->name, sizeof(entry->name), "%s%s%s", slot,
                   dimension[0] == '\0' ? "" : " ", dimension);
    table->total_bytes += dyti_align_up(entry->bytes, REGION_ALIGN);
    *out_index = table->entry_count++;
    return DYT_OK;
}

static enum dyt_status add_group(struct dyti_group_table *table,
                                 const struct dyti_layout *layout,
                                 enum dyti_arena_slot slot,
                                 enum dyti_dimension dimension, struct place at,
                                 uint32_t rank,
                                 const struct dyti_group_ops *ops)
{
    uint32_t size = free_count(layout, dimension);
    uint32_t *member = calloc(size, sizeof(*member));
    size_t index = 0;
    enum dyt_status st;

    if (member == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a group of %u", size);
    }
    for (uint32_t i = 0; i < size; i++) {
        member[i] = rank_at(layout, member_place(layout, dimension, at, i));
    }
    st = add_list(table, member, size, ops, dyti_slot_name(slot),
                  dimension_name[dimension], &index);
    if (st == DYT_OK && dyti_group_member(&table->entry[index], rank) >= 0) {
        table->own[slot][dimension] = (int32_t)index;
    }
    return st;
}

static enum dyt_status add_layout(struct dyti_group_table *table,
                                  const struct dyti_layout *layout,
                                  enum dyti_arena_slot slot, uint32_t rank,
                                  const struct dyti_group_ops *ops)
{
    enum dyt_status st = DYT_OK;

    for (int d = 0; d < DYTI_DIM_COUNT; d++) {
        for (uint32_t m = 0; m < layout->member_count && st == DYT_OK; m++) {
            struct place at =
                member_place(layout, DYTI_DIM_ALL, (struct place){0}, m);

            if (is_first(layout, (enum dyti_dimension)d, at)) {
                st = add_group(table, layout, slot, (enum dyti_dimension)d, at,
                               rank, ops);
            }
        }
    }
    return st;
}

static enum dyt_status add_world(struct dyti_group_table *table,
                                 uint32_t world_size,
                                 const struct dyti_group_ops *ops)
{
    uint32_t *member = calloc(world_size, sizeof(*member));
    size_t index = 0;

    if (member == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a group of %u", world_size);
    }
    for (uint32_t r = 0; r < world_size; r++) {
        member[r] = r;
    }
    return add_list(table, member, world_size, ops, "world", "", &index);
}

enum dyt_status dyti_group_table_init(
    struct dyti_group_table *table,
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT],
    uint32_t world_size, uint32_t rank, const struct dyti_group_ops *ops)
{
    enum dyt_status st;

    *table = (struct dyti_group_table){
        .total_bytes = dyti_align_up(dyti_control_bytes(), REGION_ALIGN)};
    memset(table->own, 0xff, sizeof(table->own)); /* -1 */
    st = add_world(table, world_size, ops);
    for (int s = 0; s < DYTI_ARENA_SLOT_COUNT && st == DYT_OK; s++) {
        if (layout[s] == NULL) {
            continue;
        }
        if (layout[s]->desc.world_size != world_size) {
            st = DYTI_FAIL(DYT_ERR_INVALID,
                           "the %s layout is of a world of %u ranks, not %u",
                           dyti_slot_name((enum dyti_arena_slot)s),
                           layout[s]->desc.world_size, world_size);
        } else {
            st = add_layout(table, layout[s], (enum dyti_arena_slot)s, rank,
                            ops);
        }
    }
    if (st != DYT_OK) {
        dyti_group_table_fini(table);
    }
    return st;
}

void dyti_group_table_fini(struct dyti_group_table *table)
{
    for (size_t i = 0; i < table->entry_count; i++) {
        free(table->entry[i].member);
    }
    free(table->entry);
    *table = (struct dyti_group_table){0};
}

enum dyt_status dyti_world_control_bytes(
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT],
    uint32_t world_size, const struct dyti_group_ops *group,
    uint64_t *out_bytes)
{
    struct dyti_group_table table;
    enum dyt_status st =
        dyti_group_table_init(&table, layout, world_size, 0, group);

    if (st == DYT_OK) {
        *out_bytes = table.total_bytes;
        dyti_group_table_fini(&table);
    }
    return st;
}
