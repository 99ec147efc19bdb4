/* Broadcasts and all-gathers of a schedule whose members are a team. */
#include "exec/joint.h"

#include <stdlib.h>
#include <string.h>

uint32_t dyti_step_next_at(const struct dyti_schedule *s,
                           const struct dyti_step *step,
                           enum dyti_step_kind kind, uint64_t offset)
{
    for (uint32_t i = 0; i < step->next_count; i++) {
        const struct dyti_step *next = &s->step[s->next[step->next_first + i]];

        if (next->kind == kind && next->lo == step->lo &&
            next->hi == step->hi && next->staging_offset == offset) {
            return s->next[step->next_first + i];
        }
    }
    return DYTI_NO_STEP;
}

/* The PACK that fills a slot of a COLLECTIVE: they stand right before it. */
static uint32_t pack_before(const struct dyti_schedule *s, uint32_t index,
                            uint64_t offset)
{
    while (index-- > 0 && s->step[index].kind == DYTI_STEP_PACK) {
        if (s->step[index].staging_offset == offset) {
            return index;
        }
    }
    return DYTI_NO_STEP;
}

uint32_t dyti_step_of_part(const struct dyti_schedule *s, uint32_t index,
                           const struct dyti_fused_message *part)
{
    return part->is_send
               ? pack_before(s, index, part->staging_offset)
               : dyti_step_next_at(s, &s->step[index], DYTI_STEP_UNPACK,
                                   part->staging_offset);
}

/* ---- which ----------------------------------------------------------------
 */

/* The team of just these members, + 1; 0: there is none. */
static uint32_t team_of(const struct dyti_switch *self,
                        const struct dyti_step *step)
{
    const struct dyti_switch_params *p = &self->params;
    const uint32_t *member = self->schedule->member + step->member_first;

    if (step->kind != DYTI_STEP_COLLECTIVE ||
        (step->collective != DYTI_COLLECTIVE_BROADCAST &&
         step->collective != DYTI_COLLECTIVE_ALL_GATHER)) {
        return 0;
    }
    for (uint32_t i = 0; i < p->team_count; i++) {
        if (p->team[i].size == step->member_count &&
            memcmp(p->team[i].member, member,
                   step->member_count * sizeof(*member)) == 0) {
            return i + 1;
        }
    }
    return 0;
}

static bool may_join(const struct dyti_switch *self)
{
    const struct dyti_mover_ops *message = self->params.message;

    return self->params.team_count > 0 && self->schedule->part_count > 0 &&
           message->joint != NULL && message->joint(self->params.message_self);
}

static uint32_t place_of(const struct dyti_schedule *s,
                         const struct dyti_step *step, uint32_t rank)
{
    uint32_t i = 0;

    while (i + 1 < step->member_count &&
           s->member[step->member_first + i] != rank) {
        i++;
    }
    return i;
}

/* ---- where ----------------------------------------------------------------
 */

struct ring {
    uint64_t first, stride; /* of the buffers */
    uint32_t count, next;
    uint32_t user[DYTI_SLOTS_MAX]; /* the step that had it last */
};

/* As many as there could be all-gathers in the slots at a time. */
static struct ring ring_of(const struct dyti_schedule *s,
                           const struct dyti_joints *joints, uint64_t first)
{
    struct ring ring = {.first = first};
    uint32_t widest = 0, gathers = 0;

    for (uint32_t i = 0; i < s->step_count; i++) {
        const struct dyti_step *step = &s->step[i];

        if (joints->team[i] != 0 &&
            step->collective == DYTI_COLLECTIVE_ALL_GATHER) {
            widest = step->member_count > widest ? step->member_count : widest;
            gathers++;
        }
    }
    if (gathers > 0) {
        ring.stride = (widest * s->message_bytes + 63u) / 64u * 64u;
        ring.count = s->slot_count / widest;
        ring.count = ring.count == 0 ? 1 : ring.count;
        ring.count = ring.count > gathers ? gathers : ring.count;
    }
    memset(ring.user, 0xff, sizeof(ring.user)); /* DYTI_NO_STEP */
    return ring;
}

/* Of one that was: its UNPACKs free the buffer for `pack`. */
static void wait_for(const struct dyti_schedule *s, struct dyti_joints *joints,
                     uint32_t was, uint32_t pack)
{
    const struct dyti_step *step = &s->step[was];

    for (uint32_t k = 0; k < step->part_count; k++) {
        const struct dyti_fused_message *part = &s->part[step->part_first + k];
        uint32_t unpack =
            part->is_send ? DYTI_NO_STEP : dyti_step_of_part(s, was, part);

        if (unpack != DYTI_NO_STEP) {
            joints->frees[unpack] = pack;
            joints->held[pack]++;
        }
    }
}

/* False: a step of it is missing. */
static bool place_gather(const struct dyti_schedule *s,
                         struct dyti_joints *joints, struct ring *ring,
                         uint32_t index)
{
    const struct dyti_step *step = &s->step[index];
    uint32_t which = ring->next % ring->count, pack = DYTI_NO_STEP;
    uint64_t buffer = ring->first + which * ring->stride;
    uint64_t bytes = step->hi - step->lo;

    for (uint32_t k = 0; k < step->part_count; k++) {
        const struct dyti_fused_message *part = &s->part[step->part_first + k];
        uint32_t other = dyti_step_of_part(s, index, part);

        if (other == DYTI_NO_STEP) {
            return false;
        }
        pack = part->is_send ? other : pack;
        joints->at[other] =
            buffer +
            bytes * place_of(s, step, part->is_send ? s->rank : part->peer);
    }
    if (ring->user[which] != DYTI_NO_STEP) {
        wait_for(s, joints, ring->user[which], pack);
    }
    joints->at[index] = buffer;
    ring->user[which] = index;
    ring->next++;
    return true;
}

static enum dyt_status allocate(struct dyti_joints *joints, uint32_t steps)
{
    joints->team = calloc((size_t)steps + 1, sizeof(*joints->team));
    joints->at = calloc((size_t)steps + 1, sizeof(*joints->at));
    joints->frees = calloc((size_t)steps + 1, sizeof(*joints->frees));
    joints->held = calloc((size_t)steps + 1, sizeof(*joints->held));
    if (joints->team == NULL || joints->at == NULL || joints->frees == NULL ||
        joints->held == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "collectives of %u steps", steps);
    }
    return DYT_OK;
}

enum dyt_status dyti_joints_init(const struct dyti_switch *self,
                                 uint64_t slot_bytes,
                                 struct dyti_joints *out_joints)
{
    const struct dyti_schedule *s = self->schedule;
    struct dyti_joints joints = {0};
    struct ring ring;
    enum dyt_status st;

    *out_joints = joints;
    if (!may_join(self)) {
        return DYT_OK;
    }
    st = allocate(&joints, s->step_count);
    if (st != DYT_OK) {
        dyti_joints_fini(&joints);
        return st;
    }
    for (uint32_t i = 0; i < s->step_count; i++) {
        joints.team[i] = team_of(self, &s->step[i]);
        joints.at[i] = s->step[i].staging_offset;
        joints.frees[i] = DYTI_NO_STEP;
    }
    ring = ring_of(s, &joints, slot_bytes);
    for (uint32_t i = 0; i < s->step_count && st == DYT_OK; i++) {
        if (joints.team[i] == 0) {
            continue;
        }
        if (s->step[i].collective == DYTI_COLLECTIVE_BROADCAST) {
            joints.at[i] = s->part[s->step[i].part_first].staging_offset;
        } else if (!place_gather(s, &joints, &ring, i)) {
            st = DYTI_FAIL(DYT_ERR_INVALID,
                           "step %u of rank %u: an all-gather that is not "
                           "packed and unpacked whole",
                           i, s->rank);
        }
    }
    joints.bytes = ring.count * ring.stride;
    if (st != DYT_OK) {
        dyti_joints_fini(&joints);
        return st;
    }
    *out_joints = joints;
    return DYT_OK;
}

void dyti_joints_fini(struct dyti_joints *joints)
{
    free(joints->team);
    free(joints->at);
    free(joints->frees);
    free(joints->held);
    *joints = (struct dyti_joints){0};
}

struct dyti_joint dyti_joint_of(const struct dyti_switch *self,
                                const struct dyti_joints *joints,
                                uint32_t index, unsigned char *staging)
{
    const struct dyti_step *step = &self->schedule->step[index];
    bool all = step->collective == DYTI_COLLECTIVE_ALL_GATHER;

    return (struct dyti_joint){
        .kind = all ? DYTI_JOINT_ALL_GATHER : DYTI_JOINT_BROADCAST,
        .team = self->params.team[joints->team[index] - 1].self,
        .root = all ? 0 : place_of(self->schedule, step, step->src_rank),
        .buf = staging + joints->at[index],
        .size_bytes = step->hi - step->lo};
}
