/* Teams: members of a group with a communicator of their own, split from the
 * group's.  And buffers that communicators know (registered), of teams as well.
 */
#include "comm/nccl/nccl_group.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

/* ---- buffers --------------------------------------------------------------
 */

/* A refusal is none: the buffer goes without. */
static enum dyt_status attach_to(struct dyti_nccl_group *group, ncclComm_t comm,
                                 void *base, uint64_t bytes)
{
    struct dyti_nccl_attached a = {.base = base, .bytes = bytes, .comm = comm};
    enum dyt_status st = DYTI_GROW(group->attached, group->attached_cap,
                                   group->attached_count + 1);

    if (st != DYT_OK) {
        return st;
    }
    if (group->nccl->ncclCommRegister(comm, base, bytes, &a.handle) !=
        ncclSuccess) {
        a.handle = NULL;
    }
    group->attached[group->attached_count++] = a;
    return DYT_OK;
}

static bool registers(const struct dyti_nccl_group *group)
{
    return group->nccl->ncclCommRegister != NULL &&
           group->nccl->ncclCommDeregister != NULL && group->size > 1 &&
           group->broken == DYT_OK;
}

enum dyt_status dyti_nccl_attach(void *self, void *base, uint64_t size_bytes)
{
    struct dyti_nccl_group *group = self;
    enum dyt_status st = DYT_OK;

    if (!registers(group)) {
        return DYT_OK;
    }
    for (int lane = 0; lane < DYTI_NCCL_LANES && st == DYT_OK; lane++) {
        st = attach_to(group, group->comm[lane], base, size_bytes);
    }
    for (size_t i = 0; i < group->team_count && st == DYT_OK; i++) {
        st = attach_to(group, group->team[i]->comm, base, size_bytes);
    }
    return st;
}

/* A communicator that was aborted has forgotten it by itself. */
static void detach_at(struct dyti_nccl_group *group, size_t i)
{
    struct dyti_nccl_attached *a = &group->attached[i];

    if (a->handle != NULL && group->broken == DYT_OK) {
        (void)group->nccl->ncclCommDeregister(a->comm, a->handle);
    }
    *a = group->attached[--group->attached_count];
}

void dyti_nccl_detach(void *self, void *base)
{
    struct dyti_nccl_group *group = self;

    for (size_t i = group->attached_count; i-- > 0;) {
        if (group->attached[i].base == base) {
            detach_at(group, i);
        }
    }
}

void dyti_nccl_detach_all(struct dyti_nccl_group *group)
{
    while (group->attached_count > 0) {
        detach_at(group, group->attached_count - 1);
    }
}

/* What the group knows already. */
static enum dyt_status attach_known(struct dyti_nccl_group *group,
                                    ncclComm_t comm)
{
    size_t known = group->attached_count;
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < known && st == DYT_OK; i++) {
        struct dyti_nccl_attached a = group->attached[i];

        if (a.comm == group->comm[DYTI_NCCL_MESSAGES]) {
            st = attach_to(group, comm, a.base, a.bytes);
        }
    }
    return st;
}

/* ---- teams ----------------------------------------------------------------
 */

static void free_team(struct dyti_nccl_team *team)
{
    if (team != NULL) {
        free(team->member);
        free(team);
    }
}

void dyti_nccl_free_teams(struct dyti_nccl_group *group)
{
    for (size_t i = 0; i < group->team_count; i++) {
        free_team(group->team[i]);
    }
    free(group->team);
    group->team = NULL;
    group->team_count = 0;
}

static enum dyt_status new_team(struct dyti_nccl_group *group,
                                const uint32_t *member, uint32_t size,
                                uint32_t *out_place,
                                struct dyti_nccl_team **out_team)
{
    struct dyti_nccl_team *team;
    uint32_t place = size;
    enum dyt_status st =
        DYTI_GROW(group->team, group->team_cap, group->team_count + 1);

    if (st != DYT_OK) {
        return st;
    }
    for (uint32_t i = 0; i < size; i++) {
        place = member[i] == group->rank ? i : place;
        if (member[i] >= group->size) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "group %s: a team with member %u of %u",
                             group->name, member[i], group->size);
        }
    }
    if (place == size) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "group %s: member %u makes a team of %u others",
                         group->name, group->rank, size);
    }
    team = calloc(1, sizeof(*team));
    if (team != NULL) {
        team->member = malloc(size * sizeof(*member));
    }
    if (team == NULL || team->member == NULL) {
        free(team);
        return DYTI_FAIL(DYT_ERR_NOMEM, "group %s: a team of %u", group->name,
                         size);
    }
    memcpy(team->member, member, size * sizeof(*member));
    team->size = size;
    *out_place = place;
    *out_team = team;
    return DYT_OK;
}

enum dyt_status dyti_nccl_make_team(void *self, uint32_t color,
                                    const uint32_t *member, uint32_t size,
                                    void **out_team)
{
    struct dyti_nccl_group *group = self;
    struct dyti_nccl_team *team = NULL;
    uint32_t place = 0;
    enum dyt_status st = dyti_nccl_enter(group);

    if (st == DYT_OK && size > 0) {
        st = new_team(group, member, size, &place, &team);
    }
    if (st == DYT_OK && team != NULL) {
        group->team[group->team_count++] = team;
    }
    st = st == DYT_OK ? dyti_nccl_meet(group, DYTI_NCCL_TEAM, 0, 0) : st;
    if (st == DYT_OK && group->size > 1) {
        /* The group has the team already, so that both are aborted. */
        st = dyti_nccl_split(group, size > 0 ? (int)color : NCCL_SPLIT_NOCOLOR,
                             place, group, team != NULL ? &team->comm : NULL,
                             dyti_nccl_open_deadline(group));
        st = st == DYT_OK && team != NULL && registers(group)
                 ? attach_known(group, team->comm)
                 : st;
    }
    if (st != DYT_OK) {
        DYTI_NOTE("a team of %u of group %s", size, group->name);
        return st;
    }
    *out_team = team;
    return DYT_OK;
}
