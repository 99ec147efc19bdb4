/* Opening, running and closing a link. */
#include "lib/link_internal.h"

#include "comm/shm/shm.h"
#include "mover/direct/direct.h"
#include "mover/message/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define TEXT_BYTES ((DYTI_SAY_WORDS - DYTI_SAY_TEXT) * sizeof(uint64_t))

/* ---- meeting --------------------------------------------------------------
 */

/* All members say a few words; all get the same answer. */
static enum dyt_status say(struct dyti_link *link, enum dyt_status mine,
                           const uint64_t words[DYTI_SAY_WORDS],
                           uint64_t **out_said)
{
    const struct dyti_group *all = &link->all;
    uint64_t *said = calloc((size_t)all->size * (DYTI_SAY_WORDS + 1), 8);
    uint64_t *counts = NULL, own[DYTI_SAY_WORDS];
    enum dyt_status st = DYT_OK;

    if (said == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a link of %u members", all->size);
    }
    counts = said + (size_t)all->size * DYTI_SAY_WORDS;
    for (uint32_t r = 0; r < all->size; r++) {
        counts[r] = sizeof(own);
    }
    memcpy(own, words, sizeof(own));
    own[DYTI_SAY_STATUS] = (uint64_t)(uint32_t)(-(int)mine);
    snprintf((char *)&own[DYTI_SAY_TEXT], TEXT_BYTES, "%s",
             mine != DYT_OK ? dyti_error_message() : "");
    if (all->size > 1) {
        st = all->ops->all_gather(all->self, own, said, counts);
    } else {
        memcpy(said, own, sizeof(own));
    }
    if (st != DYT_OK) {
        free(said);
        return mine != DYT_OK ? mine : st;
    }
    for (uint32_t r = 0; r < all->size && mine == DYT_OK; r++) {
        const uint64_t *its = said + (size_t)r * DYTI_SAY_WORDS;

        if (its[DYTI_SAY_STATUS] != 0) {
            enum dyt_status theirs =
                (enum dyt_status)(-(int)(uint32_t)its[DYTI_SAY_STATUS]);

            mine = DYTI_FAIL(theirs, "member %u cannot open the link: %.*s", r,
                             (int)TEXT_BYTES - 1,
                             (const char *)&its[DYTI_SAY_TEXT]);
        }
    }
    if (mine != DYT_OK) {
        link->agreed = true;
        free(said);
        return mine;
    }
    *out_said = said;
    return DYT_OK;
}

static enum dyt_status compare(const struct dyti_link *link,
                               const uint64_t *said)
{
    const struct dyti_link_params *p = &link->params;

    for (uint32_t r = 0; r < p->member_count; r++) {
        const uint64_t *a = said + (size_t)r * DYTI_SAY_WORDS;
        const uint64_t *b = said + (size_t)p->source_count * DYTI_SAY_WORDS;

        if (a[DYTI_SAY_FINGERPRINT] != said[DYTI_SAY_FINGERPRINT]) {
            return DYTI_FAIL(DYT_ERR_STATE,
                             "members 0 and %u have other views of the link: "
                             "%016llx and %016llx",
                             r, (unsigned long long)said[DYTI_SAY_FINGERPRINT],
                             (unsigned long long)a[DYTI_SAY_FINGERPRINT]);
        }
        if (!dyti_link_is_source(link, r) &&
            a[DYTI_SAY_LIVE] != b[DYTI_SAY_LIVE]) {
            return DYTI_FAIL(DYT_ERR_STATE,
                             "members %u and %u serve from different sets",
                             p->source_count, r);
        }
    }
    return DYT_OK;
}

/* ---- open ------------------------------------------------------------------
 */

static enum dyt_status check_params(const struct dyti_link_params *p)
{
    if (p->struct_size != sizeof(*p)) {
        return DYTI_FAIL(DYT_ERR_ABI, "link parameters of %u bytes, not %zu",
                         p->struct_size, sizeof(*p));
    }
    if (p->source_count == 0 || p->source_count >= p->member_count ||
        p->rank >= p->member_count || p->catalogue == NULL ||
        p->memory == NULL) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "member %u of a link of %u, %u of them sources",
                         p->rank, p->member_count, p->source_count);
    }
    if ((unsigned)p->commit > DYT_COMMIT_IN_PLACE ||
        (unsigned)p->verify > DYT_VERIFY_OFF || p->live_set > 1 ||
        (p->commit == DYT_COMMIT_DOUBLE) != (p->second != NULL)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "commit mode %d, verify %d, live set %u%s",
                         (int)p->commit, (int)p->verify, p->live_set,
                         p->second == NULL ? "" : ", a second set");
    }
    return DYT_OK;
}

static enum dyt_status allocate(struct dyti_link *link)
{
    size_t count = link->params.member_count;

    link->source = calloc(count, sizeof(*link->source));
    link->target = calloc(2 * count, sizeof(*link->target));
    link->scratch_at = calloc(count, sizeof(*link->scratch_at));
    link->scratch_map = calloc(count, sizeof(*link->scratch_map));
    link->map = calloc(count, sizeof(*link->map));
    link->domain = calloc(count, sizeof(*link->domain));
    link->host = calloc(count, sizeof(*link->host));
    link->scratch_lent = calloc(count, sizeof(*link->scratch_lent));
    if (link->scratch_lent == NULL || link->source == NULL ||
        link->target == NULL || link->scratch_at == NULL ||
        link->scratch_map == NULL || link->map == NULL ||
        link->domain == NULL || link->host == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a link of %zu members", count);
    }
    return DYT_OK;
}

static enum dyt_status open_tools(struct dyti_link *link)
{
    const struct dyti_link_params *p = &link->params;
    uint32_t side = dyti_link_is_source(link, p->rank)
                        ? p->source_count
                        : p->member_count - p->source_count;
    struct dyti_mover_params mover = {.struct_size = sizeof(mover),
                                      .rank = p->rank,
                                      .world_size = p->member_count,
                                      .kernels = &link->hands.kernels};
    enum dyt_status st = dyti_hands_open(
        &link->hands, p->threads != 0 ? p->threads : dyti_hands_cores() / side,
        &link->guard);

    link->mover_ops = &dyti_mover_direct;
    st = st != DYT_OK ? st : link->mover_ops->open(&mover, &link->mover);
    mover.group = &link->all;
    if (st == DYT_OK && p->apart != NULL) {
        st = dyti_mover_message.open(&mover, &link->message);
    }
    return st != DYT_OK ? st : dyti_switch_cache_create(&link->cache);
}

/* By way of the host: what needs nobody else. */
static enum dyt_status prepare_host(struct dyti_link *link)
{
    const struct dyti_link_params *p = &link->params;
    enum dyt_status st = p->by_memory == NULL
                             ? DYT_OK
                             : p->by_memory(p->by_memory_arg, link->why,
                                            &link->params.cap_bytes);

    st = st != DYT_OK ? st : dyti_link_lay_out(link);
    st = st != DYT_OK ? st : dyti_link_choose_route(link);
    st = st != DYT_OK ? st : dyti_link_reach_all(link);
    st = st != DYT_OK ? st : dyti_link_open_scratch(link);
    return st != DYT_OK ? st : open_tools(link);
}

static enum dyt_status prepare(struct dyti_link *link, uint64_t *words)
{
    const struct dyti_link_params *p = &link->params;
    struct stat info;
    enum dyt_status st = link->is_direct ? DYT_OK : prepare_host(link);

    if (st != DYT_OK) {
        return st;
    }
    words[DYTI_SAY_FINGERPRINT] = dyti_link_fingerprint(link);
    words[DYTI_SAY_LIVE] = p->live_set;
    words[DYTI_SAY_ROOM] =
        p->cap_bytes == 0 ? UINT64_MAX : p->cap_bytes - link->own.bytes;
    words[DYTI_SAY_FD] = (uint64_t)(uint32_t)link->own.handle;
    if (!link->is_direct && link->own.base != NULL &&
        fstat(link->own.handle, &info) == 0) {
        words[DYTI_SAY_DEVICE] = (uint64_t)info.st_dev;
        words[DYTI_SAY_INODE] = (uint64_t)info.st_ino;
    }
    if (p->live_set == 1 && !dyti_link_is_source(link, p->rank)) {
        (void)atomic_fetch_or(&link->page->sets, 1u << DYTI_ARENA_ROLLOUT);
    }
    return DYT_OK;
}

/* Messages are of one size for all: what the one with the least has room for.
 */
static void find_room(struct dyti_link *link, const uint64_t *said)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t r = 0; r < link->params.member_count; r++) {
        uint64_t room = said[(size_t)r * DYTI_SAY_WORDS + DYTI_SAY_ROOM];

        least = room < least ? room : least;
    }
    link->staging_bytes = least == UINT64_MAX ? 0 : least > 0 ? least : 1;
}

static enum dyt_status open_link(struct dyti_link *link)
{
    uint64_t words[DYTI_SAY_WORDS] = {0}, *said = NULL;
    enum dyt_status st = dyti_link_open_control(link);

    if (st == DYT_OK && link->params.direct != NULL) {
        st = dyti_link_try_direct(link);
    }
    if (st != DYT_OK) {
        return st;
    }
    st = prepare(link, words);
    st = say(link, st, words, &said);
    if (st != DYT_OK) {
        return st;
    }
    st = compare(link, said);
    find_room(link, said);
    if (st == DYT_OK && !link->is_direct) {
        st = dyti_link_map_scratch(link, said);
    }
    st = st != DYT_OK ? st : dyti_link_plan(link);
    free(said);
    said = NULL;
    st = say(link, st, words, &said);
    free(said);
    if (st == DYT_OK && !link->is_direct) {
        dyti_segment_seal(&link->own); /* all that need it have mapped it */
    }
    return st;
}

enum dyt_status dyti_link_open(const struct dyti_link_params *params,
                               struct dyti_link **out_link)
{
    struct dyti_link *link = NULL;
    enum dyt_status st = check_params(params);

    if (st != DYT_OK) {
        return st;
    }
    link = calloc(1, sizeof(*link));
    if (link == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a link");
    }
    link->params = *params;
    link->own.handle = -1;
    link->guard.catalogue = params->catalogue;
    st = allocate(link);
    st = st != DYT_OK ? st : open_link(link);
    if (st != DYT_OK) {
        DYTI_NOTE("opening a link as member %u of %u", params->rank,
                  params->member_count);
        dyti_link_close(link);
        return st;
    }
    *out_link = link;
    return DYT_OK;
}

static void leave(struct dyti_link *link)
{
    if (link->page != NULL && !link->agreed) { /* nobody waits for this one */
        dyti_control_abort(link->page, &dyti_wait_futex, link->params.rank,
                           DYT_ERR_CANCELLED);
    }
    if (link->message != NULL) {
        dyti_mover_message.close(link->message);
    }
    if (link->all.self != NULL) {
        link->all.ops->close(link->all.self);
    }
    dyti_link_control_unmap(link->control, link->params.member_count);
}

/* Of the host's, or of a device. */
static void close_scratch(struct dyti_link *link)
{
    const struct dyti_memory_ops *memory;
    int handle = link->own.handle;

    if (!link->is_direct) {
        dyti_segment_close(&link->own);
    } else if (link->own.base != NULL) {
        memory = link->params.direct->module->memory;
        memory->unmap(&link->own);
        memory->close(handle);
        link->own = (struct dyti_segment_mem){.handle = -1};
    }
}

static void release_member(struct dyti_link *link, uint32_t r)
{
    uint32_t count = link->params.member_count;

    dyti_reach_fini(&link->source[r]);
    dyti_reach_fini(&link->target[r]);
    dyti_reach_fini(&link->target[count + r]);
    if (link->scratch != NULL) {
        dyti_dense_fini(&link->scratch[r]);
    }
    if (link->scratch_map[r].base != NULL) {
        (void)munmap(link->scratch_map[r].base, link->scratch_map[r].bytes);
        link->scratch_map[r].base = NULL;
    }
    if (link->scratch_lent[r].self != NULL) {
        link->params.direct->module->memory->give_back(&link->scratch_lent[r]);
    }
    link->scratch_at[r] = NULL;
}

void dyti_link_release(struct dyti_link *link)
{
    if (link->mover != NULL) {
        link->mover_ops->close(link->mover);
    }
    dyti_hands_close(&link->hands);
    dyti_guard_fini(&link->guard);
    link->guard.catalogue = link->params.catalogue;
    dyti_switch_cache_destroy(link->cache);
    dyti_layout_destroy(link->from);
    dyti_layout_destroy(link->to);
    for (uint32_t r = 0; r < link->params.member_count; r++) {
        release_member(link, r);
    }
    if (link->own.base != NULL) {
        (void)dyti_link_use(link);
        close_scratch(link);
    }
    free(link->commit);
    free(link->scratch);
    free(link->lent);
    link->mover = NULL;
    link->cache = NULL;
    link->from = link->to = NULL;
    link->commit = NULL;
    link->scratch = NULL;
    link->lent = NULL;
    link->lent_count = 0;
}

void dyti_link_close(struct dyti_link *link)
{
    if (link == NULL) {
        return;
    }
    if (link->self != NULL) {
        (void)dyti_link_use(link);
    }
    dyti_switch_destroy(link->self);
    leave(link);
    if (link->scratch_lent != NULL && link->source != NULL &&
        link->target != NULL && link->scratch_map != NULL &&
        link->scratch_at != NULL) {
        dyti_link_release(link);
    }
    free(link->scratch_lent);
    free(link->scratch_map);
    free(link->scratch_at);
    free(link->domain);
    free(link->host);
    free(link->source);
    free(link->target);
    free(link->map);
    free(link);
}
