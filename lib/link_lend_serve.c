/* The lender's half: lets borrowers in, and gives each what it asks for. */
#include "lib/link_lend_internal.h"

#include "base/descriptors.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void drop_guest(struct dyti_lend_exchange *e, uint32_t i)
{
    (void)close(e->guest[i].fd);
    e->guest[i] = e->guest[--e->guest_count];
}

/* Other processes of the user may come, too: more than there is room for wait
 * in the system's queue. */
static void let_in(struct dyti_lend_exchange *e)
{
    enum dyt_status st = DYT_OK;
    int fd = -1;

    while (e->listener >= 0 && e->guest_count < e->guest_cap &&
           (st = dyti_lend_accept(e->listener, &fd)) == DYT_OK) {
        e->guest[e->guest_count++] = (struct dyti_lend_guest){.fd = fd};
        e->has_moved = true;
    }
    if (st != DYT_PENDING) {
        dyti_lend_keep(e, st);
    }
}

static bool is_lent(const struct dyti_lend_exchange *e,
                    const struct dyti_memory_loan *loan)
{
    uint32_t i = 0;

    while (i < e->p->loan_count &&
           memcmp(&e->p->loan[i], loan, sizeof(*loan)) != 0) {
        i++;
    }
    return i < e->p->loan_count;
}

/* Pieces from `at` on, as many as a message holds. */
static enum dyt_status take_pieces(const struct dyti_lend_exchange *e,
                                   const struct dyti_lend_request *request,
                                   struct dyti_lend_reply *reply, int *piece)
{
    const struct dyti_memory_loan *loan = &request->loan;
    uint64_t at = request->at;
    enum dyt_status st = DYT_OK;

    if (!is_lent(e, loan)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "member %u asks for a loan that member %u has not "
                         "made",
                         request->rank, e->rank);
    }
    while (st == DYT_OK && at < loan->span && reply->count < DYTI_LEND_BATCH) {
        uint32_t i = reply->count;

        st = e->p->memory->lend_piece(loan, at, &reply->bytes[i], &piece[i]);
        if (st == DYT_OK) {
            at += reply->bytes[i];
            reply->count++;
        }
    }
    return st;
}

/* DYT_PENDING: later. */
static enum dyt_status answer(const struct dyti_lend_exchange *e,
                              const struct dyti_lend_guest *g)
{
    struct dyti_lend_reply reply = {.count = 0};
    int piece[DYTI_LEND_BATCH];
    enum dyt_status st, sent;
    uint32_t count;

    memset(piece, -1, sizeof(piece));
    st = take_pieces(e, &g->request, &reply, piece);
    count = reply.count;
    /* What could be had goes first, be it that few files may be open: who wants
     * more asks again. */
    if (count == 0 && st != DYT_OK) {
        reply.status = (int32_t)st;
        snprintf(reply.text, sizeof(reply.text), "%s", dyti_error_message());
    }
    sent = dyti_lend_send_reply(g->fd, &reply, piece);
    dyti_descriptors_close(piece, count);
    return sent;
}

/* False: it is no guest any more. */
static bool hear(struct dyti_lend_exchange *e, struct dyti_lend_guest *g)
{
    enum dyt_status st = dyti_lend_receive_request(g->fd, &g->request);
    uint32_t rank = g->request.rank;

    if (st == DYT_PENDING) {
        return true;
    }
    e->has_moved = true;
    if (st == DYT_OK && rank < e->size && dyti_lend_wants(e, rank, e->rank)) {
        g->is_known = true;
        g->rank = rank;
        if (g->request.ask == DYTI_LEND_PIECES) {
            g->is_asking = true;
            return true;
        }
        e->is_served[rank] = true;
    } else if (g->is_known && !e->is_served[g->rank]) {
        e->is_served[g->rank] = true; /* it comes no more */
        dyti_lend_keep(e, DYTI_FAIL(DYT_ERR_PEER,
                                    "member %u went away while it borrowed",
                                    g->rank));
    }
    return false; /* done, gone, or a stranger */
}

void dyti_lend_serve(struct dyti_lend_exchange *e)
{
    let_in(e);
    for (uint32_t i = 0; i < e->guest_count;) {
        struct dyti_lend_guest *g = &e->guest[i];
        bool stays = g->is_asking || hear(e, g);

        if (stays && g->is_asking) {
            enum dyt_status st = answer(e, g);

            g->is_asking = st == DYT_PENDING;
            e->has_moved |= st != DYT_PENDING;
        }
        if (stays) {
            i++;
        } else {
            drop_guest(e, i);
        }
    }
}
