/* Messages that have ended: is what has come what was waited for? */
#include "mover/message/message_internal.h"

/* What has come is what was waited for. */
static enum dyt_status check_head(const struct dyti_message *mover,
                                  const struct dyti_message_flight *flight)
{
    const struct dyti_message_head *head = flight->head;

    if (head->magic != DYTI_MESSAGE_MAGIC || head->from != flight->peer ||
        head->to != flight->to || head->bytes != flight->bytes) {
        return DYTI_FAIL(DYT_ERR_PEER,
                         "what rank %u sent rank %u is no message of a switch, "
                         "or another's",
                         flight->peer, mover->rank);
    }
    if (head->epoch != mover->epoch) {
        return DYTI_FAIL(DYT_ERR_PEER,
                         "a late message of switch %llu from rank %u came in "
                         "switch %llu",
                         (unsigned long long)head->epoch, flight->peer,
                         (unsigned long long)mover->epoch);
    }
    if (head->number != flight->number) {
        return DYTI_FAIL(
            DYT_ERR_PEER, "message %llu from rank %u %s: message %llu was due",
            (unsigned long long)head->number, flight->peer,
            head->number < flight->number ? "came twice"
                                          : "came, one before it is lost",
            (unsigned long long)flight->number);
    }
    return DYT_OK;
}

/* The message is over: DYT_PENDING where others of its collective are not. */
static enum dyt_status end_flight(struct dyti_message *mover, uint16_t place,
                                  enum dyt_status st, uint64_t *out_mark)
{
    struct dyti_message_flight *flight = &mover->flight[place - 1];
    uint16_t last = mover->open[--mover->open_count];

    mover->open[flight->place] = last;
    mover->flight[last - 1].place = flight->place;
    flight->open = false;
    flight->next = mover->unused;
    mover->unused = place;
    *out_mark = flight->mark;
    if (st != DYT_OK) {
        if (flight->peer != mover->rank) { /* of one peer */
            DYTI_NOTE("%s rank %u",
                      flight->is_send ? "sending to" : "receiving from",
                      flight->peer);
        }
        return st;
    }
    st = flight->is_send ? DYT_OK : check_head(mover, flight);
    if (st == DYT_OK && flight->fused != 0) {
        struct dyti_message_fused *fused = &mover->fused[flight->fused - 1];

        *out_mark = fused->mark;
        return --fused->left == 0 ? DYT_OK : DYT_PENDING;
    }
    return st;
}

/* One look at all messages of a collective. */
static enum dyt_status poll_fused(struct dyti_message *mover,
                                  dyti_ticket ticket)
{
    uint32_t job = (uint32_t)ticket - DYTI_GROUP_POSTS - 1u;
    uint64_t mark;
    enum dyt_status st = DYT_PENDING;

    if (job >= DYTI_MESSAGE_FUSED_MAX || mover->fused[job].left == 0 ||
        mover->fused[job].life != (uint32_t)(ticket >> 32)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "rank %u: no collective has ticket %llx", mover->rank,
                         (unsigned long long)ticket);
    }
    for (uint32_t i = 0; i < mover->open_count && st == DYT_PENDING;) {
        uint16_t place = mover->open[i];

        if (mover->flight[place - 1].fused == job + 1u) {
            st = mover->group.ops->poll(mover->group.self,
                                        mover->flight[place - 1].group_ticket);
            if (st != DYT_PENDING) {
                st = end_flight(mover, place, st, &mark);
                continue;
            }
        }
        i++;
    }
    return st;
}

enum dyt_status dyti_message_poll(void *self, dyti_ticket ticket)
{
    struct dyti_message *mover = self;
    uint32_t place = (uint32_t)ticket;
    struct dyti_message_flight *flight;
    uint64_t mark;
    enum dyt_status st;

    if (place > DYTI_GROUP_POSTS) {
        return poll_fused(mover, ticket);
    }
    if (place == 0 || !mover->flight[place - 1].open ||
        mover->flight[place - 1].life != (uint32_t)(ticket >> 32)) {
        return DYTI_FAIL(DYT_ERR_INVALID, "rank %u: no message has ticket %llx",
                         mover->rank, (unsigned long long)ticket);
    }
    flight = &mover->flight[place - 1];
    st = mover->group.ops->poll(mover->group.self, flight->group_ticket);
    if (st == DYT_PENDING) {
        return st;
    }
    return end_flight(mover, (uint16_t)place, st, &mark);
}

/* That of a ticket of the group: there are few.  0: it is nobody's. */
static uint16_t flight_of(const struct dyti_message *mover,
                          uint64_t group_ticket)
{
    for (uint32_t i = 0; i < mover->open_count; i++) {
        if (mover->flight[mover->open[i] - 1].group_ticket == group_ticket) {
            return mover->open[i];
        }
    }
    return 0;
}

/* Ended: its mark into the list, but for one of several. */
static enum dyt_status end_one(struct dyti_message *mover, uint16_t place,
                               enum dyt_status st, uint64_t *mark,
                               uint32_t *count)
{
    uint64_t own = 0;

    st = end_flight(mover, place, st, &own);
    if (st == DYT_OK) {
        mark[(*count)++] = own;
    }
    return st == DYT_PENDING ? DYT_OK : st;
}

/* A group that says what has landed, or each asked in turn. */
enum dyt_status dyti_message_landed(void *self, uint64_t *mark, uint32_t cap,
                                    uint32_t *out_count)
{
    struct dyti_message *mover = self;
    const struct dyti_group_ops *ops = mover->group.ops;
    uint64_t ticket[DYTI_MESSAGE_LANDED_MAX];
    uint32_t count = 0, ended = 0;
    enum dyt_status st = DYT_OK;

    *out_count = 0;
    if (ops->landed != NULL) {
        st = ops->landed(
            mover->group.self, ticket,
            cap < DYTI_MESSAGE_LANDED_MAX ? cap : DYTI_MESSAGE_LANDED_MAX,
            &ended);
        for (uint32_t i = 0; i < ended && st == DYT_OK; i++) {
            uint16_t place = flight_of(mover, ticket[i]);

            st = place != 0 ? end_one(mover, place, DYT_OK, mark, &count)
                            : DYTI_FAIL(DYT_ERR_INVALID,
                                        "rank %u: a message that nobody posted "
                                        "has landed",
                                        mover->rank);
        }
        *out_count = count;
        return st;
    }
    for (uint32_t i = 0;
         i < mover->open_count && count < cap && st == DYT_OK;) {
        uint16_t place = mover->open[i];

        st =
            ops->poll(mover->group.self, mover->flight[place - 1].group_ticket);
        if (st == DYT_PENDING) {
            st = DYT_OK;
            i++;
        } else { /* another takes its place */
            st = end_one(mover, place, st, mark, &count);
        }
    }
    *out_count = count;
    return st;
}
