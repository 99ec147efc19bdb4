/* The borrower's half: asks each lender for one loan's pieces after the other,
 * and says when that was all. */
#include "lib/link_lend_internal.h"

#include "base/descriptors.h"

#include <unistd.h>

static void host_over(struct dyti_lend_exchange *e, struct dyti_lend_host *h,
                      enum dyt_status st)
{
    if (h->fd >= 0) {
        (void)close(h->fd);
        h->fd = -1;
    }
    h->is_over = true;
    e->has_moved = true;
    dyti_lend_keep(e, st);
}

/* The next want of a lender that lacks pieces; want_count: none. */
static uint32_t next_want(const struct dyti_lend_exchange *e, uint32_t member,
                          uint32_t from)
{
    while (from < e->p->want_count &&
           (e->p->want[from].member != member ||
            e->p->want[from].borrowed->wanted == 0)) {
        from++;
    }
    return from;
}

/* Asks for what comes next, or says that this was all; after a failure too: the
 * lender waits for it. */
static enum dyt_status ask(struct dyti_lend_exchange *e, uint32_t member)
{
    struct dyti_lend_request request = {.ask = DYTI_LEND_END, .rank = e->rank};
    struct dyti_lend_host *h = &e->host[member];
    uint32_t next = next_want(e, member, h->want);
    enum dyt_status st;

    if (e->status == DYT_OK && next < e->p->want_count) {
        h->at = next == h->want ? h->at : 0;
        h->want = next;
        request.ask = DYTI_LEND_PIECES;
        request.at = h->at;
        request.loan = *e->p->want[next].loan;
    }
    st = dyti_lend_send_request(h->fd, &request);
    if (st == DYT_PENDING) {
        return DYT_OK;
    }
    e->has_moved = true;
    if (st == DYT_OK && request.ask == DYTI_LEND_PIECES) {
        h->is_waiting = true;
    } else {
        host_over(e, h, st);
    }
    return st;
}

static enum dyt_status put_pieces(struct dyti_lend_exchange *e,
                                  struct dyti_lend_host *h,
                                  const struct dyti_lend_reply *reply,
                                  const int *piece)
{
    const struct dyti_lend_want *want = &e->p->want[h->want];
    enum dyt_status st = (enum dyt_status)reply->status;

    if (st != DYT_OK) {
        return DYTI_FAIL(st, "member %u: %s", want->member, reply->text);
    }
    if (reply->count == 0) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "member %u has no more pieces of a loan, and %u are "
                         "wanted",
                         want->member, want->borrowed->wanted);
    }
    for (uint32_t i = 0; i < reply->count && st == DYT_OK; i++) {
        st = e->p->memory->borrow_piece(want->borrowed, reply->bytes[i],
                                        piece[i]);
        h->at += st == DYT_OK ? reply->bytes[i] : 0;
    }
    return st;
}

/* What has come, if it has; a failure of it is kept, and the lender told. */
static void listen_to(struct dyti_lend_exchange *e, uint32_t member)
{
    struct dyti_lend_host *h = &e->host[member];
    struct dyti_lend_reply reply;
    int piece[DYTI_LEND_BATCH];
    enum dyt_status st = dyti_lend_receive_reply(h->fd, &reply, piece);

    if (st == DYT_PENDING) {
        return;
    }
    e->has_moved = true;
    h->is_waiting = false;
    if (st == DYT_ERR_PEER || st == DYT_ERR_FORMAT) {
        DYTI_NOTE("waiting for pieces of member %u", member);
        host_over(e, h, st);
    } else {
        dyti_lend_keep(e, st != DYT_OK ? st : put_pieces(e, h, &reply, piece));
    }
    dyti_descriptors_close(piece, reply.count);
}

void dyti_lend_ask(struct dyti_lend_exchange *e)
{
    for (uint32_t r = 0; r < e->size; r++) {
        struct dyti_lend_host *h = &e->host[r];
        enum dyt_status st = DYT_OK;

        if (!h->is_over && h->fd < 0) {
            st = dyti_lend_connect(e->line[(size_t)r * e->words], &h->fd);
            if (st != DYT_OK && st != DYT_PENDING) {
                DYTI_NOTE("borrowing of member %u", r);
                host_over(e, h, st);
            }
        }
        if (!h->is_over && h->fd >= 0 && h->is_waiting) {
            listen_to(e, r);
        }
        if (!h->is_over && h->fd >= 0 && !h->is_waiting) {
            (void)ask(e, r);
        }
    }
}
