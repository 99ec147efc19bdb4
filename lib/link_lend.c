/* Meeting, and the loop in which a member serves and asks. */
#include "lib/link_lend_internal.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SLICE_MS 5 /* how late an abort is seen, and what is tried again */

/* ---- who --------------------------------------------------------------------
 */

bool dyti_lend_wants(const struct dyti_lend_exchange *e, uint32_t who,
                     uint32_t whom)
{
    return (e->line[(size_t)who * e->words + 1 + whom / 64] >> whom % 64 &
            1u) != 0;
}

void dyti_lend_keep(struct dyti_lend_exchange *e, enum dyt_status st)
{
    if (st != DYT_OK && e->status == DYT_OK) {
        e->status = st;
        snprintf(e->text, sizeof(e->text), "%s", dyti_error_message());
    }
}

static void set_want(uint64_t *own, uint32_t whom)
{
    own[1 + whom / 64] |= (uint64_t)1 << whom % 64;
}

static enum dyt_status make_room(struct dyti_lend_exchange *e)
{
    size_t size = e->size;

    e->guest_cap = 2 * e->size;
    e->words = 1 + (e->size + 63) / 64;
    e->line = calloc(size * e->words, sizeof(*e->line));
    e->is_served = calloc(size, sizeof(*e->is_served));
    e->host = calloc(size, sizeof(*e->host));
    e->guest = calloc(e->guest_cap, sizeof(*e->guest));
    e->poll = calloc(1 + e->guest_cap + size, sizeof(*e->poll));
    if (e->line == NULL || e->is_served == NULL || e->host == NULL ||
        e->guest == NULL || e->poll == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "lending among %u members", e->size);
    }
    for (uint32_t r = 0; r < e->size; r++) {
        e->host[r].fd = -1;
    }
    return DYT_OK;
}

static void end(struct dyti_lend_exchange *e)
{
    for (uint32_t i = 0; i < e->guest_count; i++) {
        (void)close(e->guest[i].fd);
    }
    for (uint32_t r = 0; e->host != NULL && r < e->size; r++) {
        if (e->host[r].fd >= 0) {
            (void)close(e->host[r].fd);
        }
    }
    if (e->listener >= 0) {
        (void)close(e->listener);
    }
    free(e->line);
    free(e->is_served);
    free(e->host);
    free(e->guest);
    free(e->poll);
}

/* ---- meeting ----------------------------------------------------------------
 */

static enum dyt_status check_wants(const struct dyti_lend_params *p)
{
    for (uint32_t i = 0; i < p->want_count; i++) {
        if (p->want[i].member >= p->all->size) {
            return DYTI_FAIL(DYT_ERR_INVALID, "want %u is of member %u, of %u",
                             i, p->want[i].member, p->all->size);
        }
    }
    return DYT_OK;
}

static bool has_pieces(const struct dyti_lend_params *p)
{
    uint32_t i = 0;

    while (i < p->loan_count && p->loan[i].piece_count == 0) {
        i++;
    }
    return i < p->loan_count;
}

/* Everybody's line. */
static enum dyt_status meet(struct dyti_lend_exchange *e)
{
    const struct dyti_lend_params *p = e->p;
    size_t bytes = e->words * sizeof(*e->line);
    uint64_t *counts = calloc(e->size, sizeof(*counts));
    uint64_t *own = calloc(e->words, sizeof(*own));
    enum dyt_status st;

    if (counts == NULL || own == NULL) {
        free(counts);
        free(own);
        return DYTI_FAIL(DYT_ERR_NOMEM, "lending among %u members", e->size);
    }
    for (uint32_t r = 0; r < e->size; r++) {
        counts[r] = bytes;
    }
    dyti_lend_keep(e, check_wants(p));
    for (uint32_t i = 0; e->status == DYT_OK && i < p->want_count; i++) {
        if (p->want[i].borrowed->wanted > 0) {
            set_want(own, p->want[i].member);
        }
    }
    if (has_pieces(p)) {
        dyti_lend_keep(e, dyti_lend_listen(&e->listener, &own[0]));
    }
    memcpy(e->line + (size_t)e->rank * e->words, own, bytes);
    st = e->size == 1
             ? DYT_OK
             : p->all->ops->all_gather(p->all->self, own, e->line, counts);
    free(counts);
    free(own);
    return st;
}

/* From everybody's line: whom to ask, and who comes. */
static void find_partners(struct dyti_lend_exchange *e)
{
    for (uint32_t r = 0; r < e->size; r++) {
        struct dyti_lend_host *h = &e->host[r];

        h->is_wanted = dyti_lend_wants(e, e->rank, r);
        h->is_over = !h->is_wanted;
        e->is_served[r] = !dyti_lend_wants(e, r, e->rank) || e->listener < 0;
        if (h->is_wanted && e->line[(size_t)r * e->words] == 0) {
            h->is_over = true;
            dyti_lend_keep(
                e, DYTI_FAIL(DYT_ERR_PEER,
                             "member %u lends nothing by descriptors, or has "
                             "failed to",
                             r));
        }
    }
}

/* ---- the loop ---------------------------------------------------------------
 */

/* Member that is waited for; size: none. */
static uint32_t awaited(const struct dyti_lend_exchange *e)
{
    uint32_t r = 0;

    while (r < e->size && e->is_served[r] && e->host[r].is_over) {
        r++;
    }
    return r;
}

static int64_t now_ns(void)
{
    struct timespec t = {0};

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Until something comes, or for a little while. */
static void rest(struct dyti_lend_exchange *e)
{
    nfds_t n = 0;

    if (e->listener >= 0 && e->guest_count < e->guest_cap) {
        e->poll[n++] = (struct pollfd){.fd = e->listener, .events = POLLIN};
    }
    for (uint32_t i = 0; i < e->guest_count; i++) {
        if (!e->guest[i].is_asking) {
            e->poll[n++] =
                (struct pollfd){.fd = e->guest[i].fd, .events = POLLIN};
        }
    }
    for (uint32_t r = 0; r < e->size; r++) {
        if (e->host[r].is_waiting) {
            e->poll[n++] =
                (struct pollfd){.fd = e->host[r].fd, .events = POLLIN};
        }
    }
    (void)poll(e->poll, n, SLICE_MS);
}

static enum dyt_status check_waiting(const struct dyti_lend_exchange *e,
                                     int64_t since)
{
    uint64_t word =
        e->p->abort == NULL
            ? 0
            : atomic_load_explicit(&e->p->abort->value, memory_order_acquire);
    int64_t timeout = e->p->timeout_ns;

    if (word != 0) {
        return DYTI_FAIL(DYT_ERR_PEER,
                         "handing descriptors over: member %u ended it",
                         (uint32_t)(word >> 32) - 1);
    }
    return timeout <= 0 || now_ns() - since < timeout
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_TIMEOUT,
                           "handing descriptors over: nothing comes of member "
                           "%u for %lld ms",
                           awaited(e), (long long)(timeout / 1000000));
}

static void run(struct dyti_lend_exchange *e)
{
    int64_t since = now_ns();

    while (awaited(e) < e->size) {
        enum dyt_status st = check_waiting(e, since);

        if (st != DYT_OK) {
            dyti_lend_keep(e, st);
            return;
        }
        e->has_moved = false;
        dyti_lend_serve(e);
        dyti_lend_ask(e);
        if (e->has_moved) {
            since = now_ns();
        } else {
            rest(e);
        }
    }
}

enum dyt_status dyti_lend_pieces(const struct dyti_lend_params *params,
                                 enum dyt_status *out_met)
{
    struct dyti_lend_exchange e = {.p = params, .listener = -1};
    enum dyt_status st;

    if (params->struct_size != sizeof(*params)) {
        *out_met =
            DYTI_FAIL(DYT_ERR_ABI, "parameters of lending of %u bytes, not %zu",
                      params->struct_size, sizeof(*params));
        return *out_met;
    }
    e.rank = params->all->rank;
    e.size = params->all->size;
    st = make_room(&e);
    st = st != DYT_OK ? st : meet(&e);
    *out_met = st;
    if (st == DYT_OK) {
        find_partners(&e);
        run(&e);
        st = e.status == DYT_OK ? DYT_OK : DYTI_FAIL(e.status, "%s", e.text);
    }
    end(&e);
    return st;
}
