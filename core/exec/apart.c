/* Ranks that do not share this one's control page, because they are on other
 * hosts: their votes come over the group, and so does, by its end, that one of
 * them has failed. */
#include "exec/switch_internal.h"

#define WORDS(self) ((self)->counts[0] / sizeof(uint64_t)) /* of each rank */

static bool is_here(const struct dyti_switch *self, uint32_t rank)
{
    const uint32_t *island = self->params.island;

    return island == NULL || island[rank] == island[self->params.rank];
}

enum dyt_status dyti_apart_votes(struct dyti_switch *self, uint64_t epoch,
                                 enum dyt_status mine)
{
    const struct dyti_switch_params *p = &self->params;
    uint64_t *own = self->meeting + p->rank * WORDS(self);
    enum dyt_status st;

    if (p->island == NULL || p->world_size == 1) {
        return mine;
    }
    own[0] = (uint64_t)(uint32_t)(-(int)mine);
    st = p->all.ops->all_gather(p->all.self, own, self->meeting, self->counts);
    if (st != DYT_OK) { /* whoever has heard them all may decide before this */
        (void)dyti_switch_abort(p->control, p->wait, epoch);
        return mine != DYT_OK ? mine : st;
    }
    for (uint32_t r = 0; r < p->world_size; r++) {
        uint64_t said = self->meeting[r * WORDS(self)];

        if (!is_here(self, r)) {
            dyti_switch_vote(p->control, p->wait, r, epoch,
                             said == 0 ? DYTI_VOTE_READY : DYTI_VOTE_FAILED,
                             (enum dyt_status)(-(int)(uint32_t)said));
        }
    }
    return mine;
}

void dyti_apart_fail(struct dyti_switch *self, enum dyt_status status)
{
    const struct dyti_switch_params *p = &self->params;

    if (p->island != NULL) {
        dyti_control_abort(p->control, p->wait, p->rank, status);
    }
}

void dyti_apart_leave(struct dyti_switch *self, uint64_t epoch)
{
    for (uint32_t r = 0; r < self->params.world_size; r++) {
        if (!is_here(self, r)) {
            atomic_store(&self->params.control->rank[r].left, epoch);
        }
    }
}
