/* Members whose coordinates differ in one dimension alone are a set. */
#include "edm/teams.h"

#include "base/array.h"
#include "layout/dialect.h"

#include <stdlib.h>
#include <string.h>

/* Coordinates that are free in a set. */
enum axis { TP = 1, CP = 2, DP = 4, PP = 8, ETP = 16, EP = 32, EDP = 64 };

static const uint32_t dimension[] = {TP,           PP,  CP | DP, /* replicas */
                                     TP | PP,      /* one replica */
                                     TP | CP | DP, /* one stage */
                                     EP,           EDP, ETP | EP};

/* Are two members in the same set of a dimension?  A stage has its members as
 * (tp, cp, dp), and experts the same as (etp, ep, edp). */
static bool is_same(const struct dyti_part *a, const struct dyti_part *b,
                    uint32_t free_axes)
{
    bool expert = (free_axes & (ETP | EP | EDP)) != 0;
    bool same = (free_axes & PP) != 0 || a->pp_rank == b->pp_rank;

    if (expert) {
        return same && ((free_axes & ETP) != 0 || a->etp_rank == b->etp_rank) &&
               ((free_axes & EP) != 0 || a->ep_rank == b->ep_rank) &&
               ((free_axes & EDP) != 0 || a->edp_rank == b->edp_rank);
    }
    return same && ((free_axes & TP) != 0 || a->tp_rank == b->tp_rank) &&
           ((free_axes & CP) != 0 || a->cp_rank == b->cp_rank) &&
           ((free_axes & DP) != 0 || a->dp_rank == b->dp_rank);
}

static int compare_rank(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static bool is_known(const struct dyti_team_table *table,
                     const uint32_t *member, uint32_t size)
{
    for (size_t i = 0; i < table->count; i++) {
        if (table->set[i].size == size &&
            memcmp(table->set[i].member, member, size * sizeof(*member)) == 0) {
            return true;
        }
    }
    return false;
}

static bool overlaps(const struct dyti_team_set *set, const uint32_t *member,
                     uint32_t size)
{
    for (uint32_t i = 0, k = 0; i < set->size && k < size;) {
        if (set->member[i] == member[k]) {
            return true;
        }
        if (set->member[i] < member[k]) {
            i++;
        } else {
            k++;
        }
    }
    return false;
}

/* The first round that it does not meet anybody of. */
static uint32_t round_of(const struct dyti_team_table *table,
                         const uint32_t *member, uint32_t size)
{
    for (uint32_t round = 0;; round++) {
        bool is_free = true;

        for (size_t i = 0; i < table->count && is_free; i++) {
            is_free = table->set[i].round != round ||
                      !overlaps(&table->set[i], member, size);
        }
        if (is_free) {
            return round;
        }
    }
}

/* Copies `member`, which it sorts. */
static enum dyt_status add_set(struct dyti_team_table *table, uint32_t *member,
                               uint32_t size, uint32_t world_size)
{
    struct dyti_team_set set = {.size = size};
    enum dyt_status st;

    qsort(member, size, sizeof(*member), compare_rank);
    if (size < DYTI_TEAM_LEAST || size == world_size ||
        is_known(table, member, size)) {
        return DYT_OK;
    }
    st = DYTI_GROW(table->set, table->cap, table->count + 1);
    if (st != DYT_OK) {
        return st;
    }
    set.member = malloc(size * sizeof(*member));
    if (set.member == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a team of %u", size);
    }
    memcpy(set.member, member, size * sizeof(*member));
    set.round = round_of(table, member, size);
    table->round_count =
        set.round >= table->round_count ? set.round + 1 : table->round_count;
    table->set[table->count++] = set;
    return DYT_OK;
}

/* All sets of one dimension: each is found at its first member. */
static enum dyt_status add_dimension(struct dyti_team_table *table,
                                     const struct dyti_layout *layout,
                                     const struct dyti_part *part,
                                     uint32_t free_axes, uint32_t *member)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t first = 0; first < layout->member_count && st == DYT_OK;
         first++) {
        uint32_t size = 0;
        bool is_first = true;

        for (uint32_t m = 0; m < layout->member_count; m++) {
            if (is_same(&part[first], &part[m], free_axes)) {
                is_first = is_first && m >= first;
                member[size++] = layout->desc.ranks[m];
            }
        }
        st = is_first ? add_set(table, member, size, layout->desc.world_size)
                      : DYT_OK;
    }
    return st;
}

static enum dyt_status add_layout(struct dyti_team_table *table,
                                  const struct dyti_layout *layout)
{
    uint32_t count = layout->member_count;
    struct dyti_part *part = calloc(count, sizeof(*part));
    uint32_t *member = calloc(count, sizeof(*member));
    bool is_list = layout->desc.dialect == DYTI_DIALECT_LIST;
    enum dyt_status st = part == NULL || member == NULL
                             ? DYTI_FAIL(DYT_ERR_NOMEM, "teams of %u", count)
                             : DYT_OK;

    for (uint32_t m = 0; m < count && st == DYT_OK; m++) {
        member[m] = layout->desc.ranks[m];
        if (!is_list) {
            dyti_layout_part(layout, m, &part[m]);
        }
    }
    for (size_t d = 0; d < sizeof(dimension) / sizeof(dimension[0]) &&
                       st == DYT_OK && !is_list;
         d++) {
        st = add_dimension(table, layout, part, dimension[d], member);
    }
    for (uint32_t m = 0; m < count && st == DYT_OK; m++) {
        member[m] = layout->desc.ranks[m]; /* sorted in between */
    }
    st = st == DYT_OK ? add_set(table, member, count, layout->desc.world_size)
                      : st;
    free(part);
    free(member);
    return st;
}

enum dyt_status dyti_team_table_init(
    struct dyti_team_table *table,
    const struct dyti_layout *const layout[DYTI_ARENA_SLOT_COUNT],
    uint32_t world_size)
{
    enum dyt_status st = DYT_OK;

    *table = (struct dyti_team_table){0};
    for (int s = 0; s < DYTI_ARENA_SLOT_COUNT && st == DYT_OK; s++) {
        if (layout[s] != NULL && world_size >= DYTI_TEAM_LEAST) {
            st = add_layout(table, layout[s]);
        }
    }
    if (st != DYT_OK) {
        dyti_team_table_fini(table);
    }
    return st;
}

void dyti_team_table_fini(struct dyti_team_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        free(table->set[i].member);
    }
    free(table->set);
    *table = (struct dyti_team_table){0};
}
