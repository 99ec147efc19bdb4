/* Can the bytes of a link go once, from device to device?  Answered by all
 * members together while it opens, and if they can, all of it is made ready:
 *
 *   1  each tries what it needs of its own: its device, a loan of each of its
 *      extents.  They tell each other, and all find the same route
 *   2  layouts, own memory, scratch; loans are handed round
 *   3  each borrows what the route reads or writes
 *
 * After each step they tell each other how it went.  The first who could not is
 * why none does: nothing of it is kept then, and bytes go by way of the host.
 */
#include "lib/link_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES 248u

/* What a member tells. */
struct word {
    uint64_t could; /* 0: `text` is why not */
    uint64_t kept;  /* its memory cannot be lent to other processes */
    char text[TEXT_BYTES];
};

/* ---- telling ---------------------------------------------------------------
 */

static void put_text(char *out, const char *text)
{
    snprintf(out, TEXT_BYTES, "%s", text != NULL ? text : "");
}

/* Everybody's words, [member_count]; of several who could not the first one's
 * reason is the link's.
 * @param mine  DYT_OK: it could.  Otherwise the thread's last failure is why */
static enum dyt_status tell(struct dyti_link *link, enum dyt_status mine,
                            struct word *own, struct word *out, bool *out_all)
{
    uint32_t count = link->params.member_count;
    uint64_t *bytes = calloc(count, sizeof(*bytes));
    enum dyt_status st;

    if (bytes == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a link of %u members", count);
    }
    for (uint32_t r = 0; r < count; r++) {
        bytes[r] = sizeof(*own);
    }
    own->could = mine == DYT_OK;
    if (mine != DYT_OK) {
        put_text(own->text, dyti_error_message());
    }
    st = link->all.ops->all_gather(link->all.self, own, out, bytes);
    free(bytes);
    if (st != DYT_OK) {
        return st;
    }
    *out_all = true;
    for (uint32_t r = count; r-- > 0;) {
        if (out[r].could == 0) {
            out[r].text[TEXT_BYTES - 1] = '\0';
            snprintf(link->why, sizeof(link->why), "member %u: %s", r,
                     out[r].text);
            *out_all = false;
        }
    }
    return DYT_OK;
}

/* ---- the route -------------------------------------------------------------
 */

static bool is_same_process(const struct dyti_link *link, uint32_t a,
                            uint32_t b)
{
    const struct dyti_memory_view *x = dyti_link_memory(link, a);
    const struct dyti_memory_view *y = dyti_link_memory(link, b);

    return x->pid == y->pid && x->pid_start == y->pid_start;
}

/* Receivers read the sources' memory; if one of those cannot lend it, sources
 * write the receivers' scratch, which is ours and can be.  Rows that a server
 * has are never lent: it may let them sleep, and who has borrowed them would
 * not hear of it. */
static bool choose_route(struct dyti_link *link, const struct word *word)
{
    const struct dyti_link_params *p = &link->params;

    link->is_push = false;
    for (uint32_t s = 0; s < p->source_count; s++) {
        for (uint32_t t = p->source_count; t < p->member_count; t++) {
            if (word[s].kept != 0 && !is_same_process(link, s, t) &&
                !link->is_push) {
                link->is_push = true;
                snprintf(link->why, sizeof(link->why), "member %u: %.*s", s,
                         (int)(TEXT_BYTES - 1), word[s].text);
            }
        }
    }
    if (!link->is_push || p->commit == DYT_COMMIT_STAGED) {
        link->why[0] = '\0';
        return true;
    }
    return false;
}

/* ---- the three steps -------------------------------------------------------
 */

enum dyt_status dyti_link_use(const struct dyti_link *link)
{
    return link->is_direct ? link->params.direct->module->memory->use(
                                 link->params.direct->device)
                           : DYT_OK;
}

static enum dyt_status open_tools(struct dyti_link *link)
{
    const struct dyti_link_direct *d = link->params.direct;
    struct dyti_kernel_params kernels = {.struct_size = sizeof(kernels),
                                         .device = d->device};
    struct dyti_mover_params mover = {.struct_size = sizeof(mover),
                                      .rank = link->params.rank,
                                      .world_size = link->params.member_count,
                                      .kernels = &link->hands.kernels};
    enum dyt_status st = d->module->memory->use(d->device);

    st = st != DYT_OK
             ? st
             : d->module->kernels->open(&kernels, &link->hands.kernels.self);
    if (st != DYT_OK) {
        return st;
    }
    link->hands.kernels.ops = d->module->kernels;
    link->mover_ops = d->module->mover;
    st = link->mover_ops->open(&mover, &link->mover);
    return st != DYT_OK ? st : dyti_switch_cache_create(&link->cache);
}

static enum dyt_status begin(struct dyti_link *link, struct word *own)
{
    const struct dyti_link_direct *d = link->params.direct;
    const char *kept = "";
    enum dyt_status st;

    if (d->why != NULL) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED, "%s", d->why);
    }
    if (d->module == NULL || d->module->memory == NULL ||
        d->module->kernels == NULL || d->module->mover == NULL ||
        d->module->memory->lend == NULL) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "the device's module has no memory to lend, no "
                         "kernels or no mover");
    }
    st = open_tools(link);
    st = st != DYT_OK ? st : dyti_loans_make(link, &kept);
    if (st == DYT_OK && kept[0] != '\0') {
        own->kept = 1;
        put_text(own->text, kept);
    }
    return st;
}

static enum dyt_status open_scratch(struct dyti_link *link)
{
    const struct dyti_memory_ops *memory = link->params.direct->module->memory;
    const struct dyti_link_params *p = &link->params;
    uint64_t bytes;
    enum dyti_page_kind pages;
    int handle = -1;
    enum dyt_status st;

    if (link->scratch == NULL || dyti_link_is_source(link, p->rank) ||
        link->scratch[p->rank].bytes == 0) {
        return DYT_OK;
    }
    bytes = link->scratch[p->rank].bytes;
    pages = memory->probe(bytes);
    if (pages == DYTI_PAGES_COUNT) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "the device has no memory that can be mapped");
    }
    if (link->is_push && pages == DYTI_PAGES_IPC) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "sources that write scratch of a device need its "
                         "virtual memory calls: by an IPC handle it would go "
                         "while they write");
    }
    st = memory->create("dynatrain scratch", pages, &handle);
    st = st != DYT_OK ? st : memory->resize(handle, pages, bytes, NULL, 0);
    st = st != DYT_OK ? st : memory->map(handle, pages, bytes, &link->own);
    if (st != DYT_OK) {
        if (handle >= 0) {
            memory->close(handle);
        }
        link->own = (struct dyti_segment_mem){.handle = -1};
        DYTI_NOTE("scratch of a staged update on a device");
        return st;
    }
    link->scratch_at[p->rank] = link->own.base;
    return DYT_OK;
}

/* Kinds, layouts, scratch, and own memory from the device that copies. */
static enum dyt_status prepare(struct dyti_link *link)
{
    uint32_t rank = link->params.rank;
    bool is_receiver = !dyti_link_is_source(link, rank);
    enum dyt_status st = dyti_link_lay_out(link);

    st = st != DYT_OK ? st : dyti_loans_borrow_own(link);
    st = st != DYT_OK ? st : open_scratch(link);
    if (st == DYT_OK && link->scratch != NULL && is_receiver) {
        st = dyti_dense_copies(&link->scratch[rank], &link->target[rank],
                               link->own.base, false, &link->commit);
    }
    return st;
}

/* By the route that all found.  *out_met: did they meet?  Else it is what all
 * return. */
static enum dyt_status borrow(struct dyti_link *link, enum dyt_status *out_met)
{
    struct dyti_loans all = {.first = NULL};
    bool borrows =
        dyti_link_is_source(link, link->params.rank) == link->is_push;
    char words[TEXT_BYTES] = "";
    enum dyt_status st = dyti_loans_hand_round(link, &all, out_met), got;

    if (*out_met != DYT_OK) {
        dyti_loans_fini(&all);
        return *out_met;
    }
    if (st == DYT_OK && borrows) {
        st = dyti_loans_borrow(link, &all);
    }
    put_text(words, st != DYT_OK ? dyti_error_message() : "");
    /* also after a failure: the others may need what this one lends */
    got = dyti_loans_fetch(link, &all, st == DYT_OK && borrows, out_met);
    dyti_loans_fini(&all);
    return *out_met != DYT_OK || st == DYT_OK ? got
                                              : dyti_error_adopt(st, words);
}

/* *out_all: everybody could. */
static enum dyt_status attempt(struct dyti_link *link, struct word *word,
                               bool *out_all)
{
    struct word own = {0};
    bool all = false;
    enum dyt_status met = DYT_OK;
    enum dyt_status st = tell(link, begin(link, &own), &own, word, &all);

    if (st != DYT_OK || !all || !choose_route(link, word)) {
        return st;
    }
    st = tell(link, prepare(link), &own, word, &all);
    if (st != DYT_OK || !all) {
        return st;
    }
    st = borrow(link, &met);
    return met != DYT_OK ? met : tell(link, st, &own, word, out_all);
}

enum dyt_status dyti_link_try_direct(struct dyti_link *link)
{
    const struct dyti_link_direct *d = link->params.direct;
    struct dyti_link_params by_host = link->params;
    struct word *word = calloc(link->params.member_count, sizeof(*word));
    bool all = false;
    enum dyt_status st;

    if (word == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a link of %u members",
                         link->params.member_count);
    }
    link->params.memory = d->memory;
    link->params.second =
        link->params.commit == DYT_COMMIT_DOUBLE ? d->second : NULL;
    link->is_direct = true;
    st = attempt(link, word, &all);
    free(word);
    if (st != DYT_OK || !all) {
        dyti_link_release(link);
        link->is_direct = link->is_push = false;
        link->params = by_host;
    }
    return st;
}

bool dyti_link_is_direct(const struct dyti_link *link)
{
    return link->is_direct;
}

const char *dyti_link_why_not(const struct dyti_link *link)
{
    return link->why;
}
