/* What the members of a direct link lend each other: loans of their extents and
 * of scratch (ops/memory.h), handed round by their group. */
#include "lib/link_internal.h"
#include "lib/link_lend.h"

#include <stdlib.h>
#include <string.h>

static const struct dyti_memory_ops *memory_ops(const struct dyti_link *link)
{
    return link->params.direct->module->memory;
}

/* Kinds of a member that may travel: before layouts are known. */
static uint32_t kinds_of(const struct dyti_link *link, uint32_t rank)
{
    uint32_t kinds = link->params.kinds;

    return dyti_link_is_source(link, rank) ? kinds | 1u << DYTI_MASTER : kinds;
}

static uint32_t set_count(const struct dyti_link *link, uint32_t rank)
{
    return link->params.second != NULL && !dyti_link_is_source(link, rank) ? 2
                                                                           : 1;
}

static const struct dyti_memory_view *view_of(const struct dyti_link *link,
                                              uint32_t rank, uint32_t set)
{
    return set == 0 ? &link->params.memory[rank] : &link->params.second[rank];
}

static bool travels(const struct dyti_extent *extent, uint32_t kinds)
{
    return extent->kind < DYTI_KIND_COUNT && (kinds >> extent->kind & 1u) != 0;
}

/* ---- own -------------------------------------------------------------------
 */

enum dyt_status dyti_loans_make(struct dyti_link *link, const char **out_kept)
{
    uint32_t rank = link->params.rank, count = 0;
    uint32_t kinds = kinds_of(link, rank);
    enum dyt_status st = DYT_OK;

    for (uint32_t s = 0; s < set_count(link, rank); s++) {
        count += view_of(link, rank, s)->extent_count;
    }
    link->lent = calloc((size_t)count + 1, sizeof(*link->lent));
    if (link->lent == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u loans of memory", count);
    }
    link->lent_count = count;
    for (uint32_t s = 0, at = 0; s < set_count(link, rank); s++) {
        const struct dyti_memory_view *view = view_of(link, rank, s);

        for (uint32_t i = 0; i < view->extent_count && st == DYT_OK;
             i++, at++) {
            const struct dyti_extent *e = &view->extent[i];

            if (!travels(e, kinds)) {
                continue;
            }
            st = memory_ops(link)->lend((const void *)(uintptr_t)e->address,
                                        e->bytes, &link->lent[at]);
            if (st == DYT_OK && link->lent[at].way == DYTI_MEMORY_WAY_NONE) {
                *out_kept = link->lent[at].why;
            }
        }
    }
    return st;
}

static enum dyt_status borrow_view(struct dyti_link *link, uint32_t rank,
                                   uint32_t set,
                                   const struct dyti_memory_loan *loan)
{
    bool is_source = dyti_link_is_source(link, rank);
    struct dyti_reach *reach =
        is_source ? &link->source[rank]
                  : &link->target[set * link->params.member_count + rank];

    return dyti_reach_borrow(reach, view_of(link, rank, set),
                             is_source ? link->source_kinds
                                       : link->target_kinds,
                             memory_ops(link), loan);
}

/* Rows may lie on other devices than the one that copies. */
enum dyt_status dyti_loans_borrow_own(struct dyti_link *link)
{
    uint32_t rank = link->params.rank;
    const struct dyti_memory_loan *loan = link->lent;
    enum dyt_status st = DYT_OK;

    for (uint32_t s = 0; s < set_count(link, rank) && st == DYT_OK; s++) {
        st = borrow_view(link, rank, s, loan);
        loan += view_of(link, rank, s)->extent_count;
    }
    return st;
}

/* What a loan promises is what it was; the lender's own numbers may differ. */
static bool is_same(const struct dyti_memory_loan *a,
                    const struct dyti_memory_loan *b)
{
    return a->way == b->way && a->kind == b->kind &&
           a->piece_count == b->piece_count && a->offset == b->offset &&
           a->span == b->span && strcmp(a->device, b->device) == 0 &&
           memcmp(a->ipc, b->ipc, sizeof(a->ipc)) == 0;
}

enum dyt_status dyti_link_check_lent(const struct dyti_link *link)
{
    enum dyt_status st = dyti_link_use(link);

    for (uint32_t i = 0; i < link->lent_count && st == DYT_OK; i++) {
        const struct dyti_memory_loan *old = &link->lent[i];
        struct dyti_memory_loan loan;

        if (old->bytes == 0) {
            continue;
        }
        st = memory_ops(link)->lend((const void *)(uintptr_t)old->address,
                                    old->bytes, &loan);
        if (st == DYT_OK && !is_same(old, &loan)) {
            st = DYTI_FAIL(DYT_ERR_STATE,
                           "%llu bytes at %#llx are another allocation than "
                           "when the link was opened",
                           (unsigned long long)old->bytes,
                           (unsigned long long)old->address);
        }
    }
    return st;
}

/* ---- handed round ----------------------------------------------------------
 */

/* Loans that a member hands out on this route. */
static uint32_t handed(const struct dyti_link *link, uint32_t rank)
{
    bool is_source = dyti_link_is_source(link, rank);

    if (is_source == link->is_push) {
        return 0; /* it borrows */
    }
    return is_source ? view_of(link, rank, 0)->extent_count
                     : link->scratch[rank].bytes > 0;
}

void dyti_loans_fini(struct dyti_loans *all)
{
    free(all->loan);
    free(all->first);
    free(all->bytes);
    *all = (struct dyti_loans){.first = NULL};
}

static enum dyt_status make_room(const struct dyti_link *link,
                                 struct dyti_loans *all)
{
    uint32_t count = link->params.member_count;

    all->first = calloc((size_t)count + 1, sizeof(*all->first));
    all->bytes = calloc(count, sizeof(*all->bytes));
    for (uint32_t r = 0; all->first != NULL && all->bytes != NULL && r < count;
         r++) {
        all->first[r + 1] = all->first[r] + handed(link, r);
        all->bytes[r] = handed(link, r) * sizeof(*all->loan);
    }
    if (all->first != NULL) {
        all->loan = calloc((size_t)all->first[count] + 1, sizeof(*all->loan));
    }
    return all->loan == NULL || all->bytes == NULL
               ? DYTI_FAIL(DYT_ERR_NOMEM, "the loans of %u members", count)
               : DYT_OK;
}

enum dyt_status dyti_loans_hand_round(struct dyti_link *link,
                                      struct dyti_loans *all,
                                      enum dyt_status *out_met)
{
    uint32_t rank = link->params.rank;
    const void *own = link->lent;
    enum dyt_status st = make_room(link, all), lent = DYT_OK;

    if (st != DYT_OK) {
        *out_met = st;
        return st;
    }
    if (link->is_push && handed(link, rank) > 0) {
        own = &all->scratch;
        lent = memory_ops(link)->lend(link->own.base, link->scratch[rank].bytes,
                                      &all->scratch);
    }
    *out_met =
        link->all.ops->all_gather(link->all.self, own, all->loan, all->bytes);
    return *out_met != DYT_OK ? *out_met : lent;
}

static enum dyt_status borrow_scratch(struct dyti_link *link, uint32_t rank,
                                      const struct dyti_memory_loan *loan)
{
    enum dyt_status st =
        memory_ops(link)->borrow(loan, &link->scratch_lent[rank]);

    if (st == DYT_OK) {
        link->scratch_at[rank] = link->scratch_lent[rank].ptr;
    }
    return st;
}

enum dyt_status dyti_loans_borrow(struct dyti_link *link,
                                  const struct dyti_loans *all)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t r = 0; r < link->params.member_count && st == DYT_OK; r++) {
        const struct dyti_memory_loan *loan = &all->loan[all->first[r]];

        if (all->first[r + 1] == all->first[r]) {
            continue;
        }
        st = link->is_push ? borrow_scratch(link, r, loan)
                           : borrow_view(link, r, 0, loan);
        if (st != DYT_OK) {
            DYTI_NOTE("reaching the memory of member %u", r);
        }
    }
    return st;
}

/* ---- pieces ----------------------------------------------------------------
 */

/* How member `rank`'s loan number `index` was borrowed; NULL: it was not. */
static struct dyti_memory_borrowed *borrowed_of(struct dyti_link *link,
                                                uint32_t rank, size_t index)
{
    const struct dyti_reach *reach = &link->source[rank];

    if (link->is_push) {
        return &link->scratch_lent[rank];
    }
    return reach->borrowed != NULL ? &reach->borrowed[index] : NULL;
}

static uint32_t list_wants(struct dyti_link *link, const struct dyti_loans *all,
                           struct dyti_lend_want *want)
{
    uint32_t count = 0;

    for (uint32_t r = 0; r < link->params.member_count; r++) {
        for (size_t i = all->first[r]; i < all->first[r + 1]; i++) {
            struct dyti_memory_borrowed *b =
                borrowed_of(link, r, i - all->first[r]);

            if (b != NULL && b->wanted > 0) {
                want[count++] = (struct dyti_lend_want){
                    .member = r, .loan = &all->loan[i], .borrowed = b};
            }
        }
    }
    return count;
}

enum dyt_status dyti_loans_fetch(struct dyti_link *link,
                                 const struct dyti_loans *all, bool wants,
                                 enum dyt_status *out_met)
{
    size_t room = all->first[link->params.member_count] + 1;
    struct dyti_lend_want *want = calloc(room, sizeof(*want));
    struct dyti_lend_params p = {.struct_size = sizeof(p),
                                 .memory = memory_ops(link),
                                 .all = &link->all,
                                 .abort = &link->page->abort,
                                 .timeout_ns = link->params.timeout_ns,
                                 .loan =
                                     link->is_push ? &all->scratch : link->lent,
                                 .loan_count = handed(link, link->params.rank),
                                 .want = want};
    enum dyt_status st = DYT_OK, got;

    if (want == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%zu loans of memory", room);
    } else if (wants) {
        p.want_count = list_wants(link, all, want);
    }
    got = dyti_lend_pieces(&p, out_met);
    free(want);
    return st != DYT_OK ? st : got;
}
