/* The ranks meet: do all of them want, and hold, the same?  They refuse
 * together. */
#include "exec/switch_internal.h"

/* What each rank says when the ranks meet. */
enum {
    MEET_STATUS,
    MEET_FINGERPRINT,
    MEET_EPOCH,
    MEET_VERSION,
    MEET_VERIFY,
    MEET_COUNT
};
_Static_assert(MEET_COUNT == DYTI_MEET_WORDS, "room of what is said");

/* Has the manager locked what it ordered? */
static enum dyt_status check_lock(struct dyti_switch *self,
                                  const struct dyti_switch_order *order)
{
    uint64_t epoch = atomic_load(&self->params.control->epoch);

    if (order->unmanaged || epoch == order->epoch) {
        return DYT_OK;
    }
    return DYTI_FAIL(
        DYT_ERR_STATE, "switch %llu was ordered, but switch %llu is running",
        (unsigned long long)order->epoch, (unsigned long long)epoch);
}

static enum dyt_status compare_word(const struct dyti_switch *self,
                                    uint32_t rank, uint32_t word,
                                    const char *what)
{
    uint64_t mine = self->meeting[self->params.rank * DYTI_MEET_WORDS + word];
    uint64_t theirs = self->meeting[rank * DYTI_MEET_WORDS + word];

    if (mine != theirs) {
        return DYTI_FAIL(DYT_ERR_STATE,
                         "%s: rank %u has %016llx, rank %u has %016llx", what,
                         self->params.rank, (unsigned long long)mine, rank,
                         (unsigned long long)theirs);
    }
    return DYT_OK;
}

static enum dyt_status compare_ranks(const struct dyti_switch *self)
{
    static const char *const what[DYTI_MEET_WORDS] = {
        [MEET_FINGERPRINT] = "fingerprint of plan and schedule",
        [MEET_EPOCH] = "epoch of the switch",
        [MEET_VERSION] = "version of the switch",
        [MEET_VERIFY] = "verify"};

    for (uint32_t r = 0; r < self->params.world_size; r++) {
        uint64_t status = self->meeting[r * DYTI_MEET_WORDS];

        if (status != 0 && r != self->params.rank) {
            enum dyt_status theirs = (enum dyt_status)(-(int)(uint32_t)status);

            return DYTI_FAIL(theirs, "rank %u refuses the switch: %s", r,
                             dyt_status_text(theirs));
        }
    }
    for (uint32_t word = MEET_FINGERPRINT; word < DYTI_MEET_WORDS; word++) {
        for (uint32_t r = 0; r < self->params.world_size; r++) {
            enum dyt_status st = compare_word(self, r, word, what[word]);

            if (st != DYT_OK) {
                return st;
            }
        }
    }
    return DYT_OK;
}

void dyti_switch_refuse(struct dyti_switch *self, enum dyt_status status)
{
    self->refusal = status;
}

enum dyt_status dyti_switch_meet(struct dyti_switch *self,
                                 const struct dyti_switch_order *order)
{
    const struct dyti_group *all = &self->params.all;
    uint64_t *mine = self->meeting + self->params.rank * DYTI_MEET_WORDS;
    enum dyt_status st = check_lock(self, order), met;

    st = self->refusal != DYT_OK ? self->refusal : st;
    self->refusal = DYT_OK;
    if (st == DYT_OK) {
        st = dyti_mode_check(self);
    }
    mine[MEET_STATUS] = (uint64_t)(uint32_t)(-(int)st);
    mine[MEET_FINGERPRINT] = self->fingerprint;
    mine[MEET_EPOCH] = order->epoch;
    mine[MEET_VERSION] = order->version;
    mine[MEET_VERIFY] = order->verify;
    if (self->params.world_size > 1) {
        met =
            all->ops->all_gather(all->self, mine, self->meeting, self->counts);
        if (met != DYT_OK) {
            return st != DYT_OK ? st : met;
        }
    }
    if (st == DYT_OK) {
        st = compare_ranks(self);
    }
    if (st == DYT_OK && order->unmanaged) {
        st = dyti_switch_join(self->params.control, order->epoch,
                              order->version);
    }
    if (st == DYT_OK) {
        dyti_mode_begin(self, order->epoch);
    }
    return st;
}
