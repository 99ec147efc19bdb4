/* Opening, running and closing a link. */
#include "lib/link_internal.h"

#include "base/checked.h"
#include "comm/shm/shm.h"
#include "lib/module.h"
#include "mover/direct/direct.h"
#include "mover/message/message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What each member says when they meet while opening. */
enum {
    SAY_STATUS,
    SAY_FINGERPRINT,
    SAY_LIVE,
    SAY_FD,
    SAY_DEVICE,
    SAY_INODE,
    SAY_ROOM, /* for staging, under the cap */
    SAY_WORDS
};

/* ---- control --------------------------------------------------------------
 */

static uint64_t page_bytes(void)
{
    return dyti_align_up(dyti_control_bytes(), 4096);
}

uint64_t dyti_link_control_bytes(uint32_t member_count)
{
    return page_bytes() + dyti_group_shm.region_bytes(member_count);
}

enum dyt_status dyti_link_control_map(int32_t fd, uint32_t member_count,
                                      void **out_control)
{
    uint64_t bytes = dyti_link_control_bytes(member_count);
    struct stat info;
    void *at;

    if (fstat(fd, &info) != 0 || info.st_size < 0 ||
        (uint64_t)info.st_size < bytes) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "the control segment of %u members needs %llu bytes",
                         member_count, (unsigned long long)bytes);
    }
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        return DYTI_FAIL(DYT_ERR_IO, "mapping a control segment: %s",
                         strerror(errno));
    }
    *out_control = at;
    return DYT_OK;
}

void dyti_link_control_unmap(void *control, uint32_t member_count)
{
    if (control != NULL) {
        (void)munmap(control, dyti_link_control_bytes(member_count));
    }
}

static enum dyt_status open_control(struct dyti_link *link)
{
    const struct dyti_link_params *p = &link->params;
    struct dyti_group_params group = {.struct_size = sizeof(group),
                                      .name = "link",
                                      .rank = p->rank,
                                      .size = p->member_count,
                                      .timeout_ns = p->timeout_ns,
                                      .oversubscribed =
                                          p->member_count > dyti_hands_cores()};
    void *control = p->control;
    enum dyt_status st = DYT_OK;

    if (control == NULL) {
        st = dyti_link_control_map(p->control_fd, p->member_count,
                                   &link->control);
        control = link->control;
    }
    if (st == DYT_OK) {
        st = dyti_control_open(control, p->member_count, &link->page);
    }
    if (st != DYT_OK) {
        return st;
    }
    group.abort = &link->page->abort;
    if (p->apart != NULL) {
        group.apart = true;
        group.shared = p->apart->shared;
        group.shared_bytes = p->apart->shared_bytes;
        group.changed = p->apart->changed;
        group.changed_arg = p->apart->changed_arg;
        group.address = p->apart->address;
        return dyti_module_group(p->apart->module, &group, &link->all);
    }
    group.shared = (unsigned char *)control + page_bytes();
    group.shared_bytes = dyti_group_shm.region_bytes(p->member_count);
    link->all = (struct dyti_group){
        .ops = &dyti_group_shm, .rank = p->rank, .size = p->member_count};
    return dyti_group_shm.open(&group, &link->all.self);
}

enum dyt_status dyti_link_abort_at(void *control, uint32_t member_count,
                                   uint32_t rank, enum dyt_status status)
{
    struct dyti_control_page *page = NULL;
    enum dyt_status st;

    if (rank >= member_count) {
        return DYTI_FAIL(DYT_ERR_INVALID, "member %u of %u", rank,
                         member_count);
    }
    st = dyti_control_open(control, member_count, &page);
    if (st == DYT_OK) {
        dyti_control_abort(page, &dyti_wait_futex, rank, status);
    }
    return st;
}

enum dyt_status dyti_link_abort(int32_t control_fd, uint32_t member_count,
                                uint32_t rank, enum dyt_status status)
{
    void *control = NULL;
    enum dyt_status st =
        dyti_link_control_map(control_fd, member_count, &control);

    if (st == DYT_OK) {
        st = dyti_link_abort_at(control, member_count, rank, status);
        dyti_link_control_unmap(control, member_count);
    }
    return st;
}

/* ---- meeting --------------------------------------------------------------
 */

/* All members say a few words; all get the same answer. */
static enum dyt_status say(struct dyti_link *link, enum dyt_status mine,
                           const uint64_t words[SAY_WORDS], uint64_t **out_said)
{
    const struct dyti_group *all = &link->all;
    uint64_t *said = calloc((size_t)all->size * (SAY_WORDS + 1), 8);
    uint64_t *counts = NULL, own[SAY_WORDS];
    enum dyt_status st = DYT_OK;

    if (said == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a link of %u members", all->size);
    }
    counts = said + (size_t)all->size * SAY_WORDS;
    for (uint32_t r = 0; r < all->size; r++) {
        counts[r] = sizeof(own);
    }
    memcpy(own, words, sizeof(own));
    own[SAY_STATUS] = (uint64_t)(uint32_t)(-(int)mine);
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
        uint64_t status = said[(size_t)r * SAY_WORDS + SAY_STATUS];

        if (status != 0) {
            enum dyt_status theirs = (enum dyt_status)(-(int)(uint32_t)status);

            mine = DYTI_FAIL(theirs, "member %u cannot open the link: %s", r,
                             dyt_status_text(theirs));
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
        const uint64_t *a = said + (size_t)r * SAY_WORDS;
        const uint64_t *b = said + (size_t)p->source_count * SAY_WORDS;

        if (a[SAY_FINGERPRINT] != said[SAY_FINGERPRINT]) {
            return DYTI_FAIL(DYT_ERR_STATE,
                             "members 0 and %u have other views of the link: "
                             "%016llx and %016llx",
                             r, (unsigned long long)said[SAY_FINGERPRINT],
                             (unsigned long long)a[SAY_FINGERPRINT]);
        }
        if (!dyti_link_is_source(link, r) && a[SAY_LIVE] != b[SAY_LIVE]) {
            return DYTI_FAIL(DYT_ERR_STATE,
                             "members %u and %u serve from different sets",
                             p->source_count, r);
        }
    }
    return DYT_OK;
}

/* ---- memory ---------------------------------------------------------------
 */

static enum dyt_status unreachable(const struct dyti_link *link,
                                   uint32_t source, uint32_t target)
{
    const struct dyti_memory_view *a = &link->params.memory[source];
    const struct dyti_memory_view *b = &link->params.memory[target];
    const struct dyti_model *model = link->params.catalogue;
    const char *x = a->view.shard_count == 0
                        ? "?"
                        : model->tensor[a->view.shard[0].tensor].name;
    const char *y = b->view.shard_count == 0
                        ? "?"
                        : model->tensor[b->view.shard[0].tensor].name;

    return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                     "memory of source %u (%s) and of receiver %u (%s) is "
                     "private to their processes: take a snapshot of the "
                     "source, or use staged",
                     source, x, target, y);
}

/* All sources' memory by all receivers, else the other way round. */
static enum dyt_status choose_route(struct dyti_link *link)
{
    const struct dyti_link_params *p = &link->params;
    uint32_t source = UINT32_MAX, target = UINT32_MAX;

    if (p->apart != NULL) { /* nobody reaches anybody: they send */
        return DYT_OK;
    }
    for (uint32_t s = 0; s < p->source_count; s++) {
        for (uint32_t t = p->source_count; t < p->member_count; t++) {
            if (!dyti_reach_can(&p->memory[s], &p->memory[t],
                                link->source_kinds)) {
                source = s;
            }
            if (link->scratch == NULL &&
                (!dyti_reach_can(&p->memory[t], &p->memory[s],
                                 link->target_kinds) ||
                 (p->commit == DYT_COMMIT_DOUBLE &&
                  !dyti_reach_can(&p->second[t], &p->memory[s],
                                  link->target_kinds)))) {
                target = t;
            }
        }
    }
    link->is_push = source != UINT32_MAX;
    return link->is_push && target != UINT32_MAX
               ? unreachable(link, source, target)
               : DYT_OK;
}

/* Own memory, and what the route reads or writes of others. */
static enum dyt_status reach_member(struct dyti_link *link, uint32_t rank)
{
    const struct dyti_link_params *p = &link->params;
    bool is_source = dyti_link_is_source(link, rank);
    bool is_peer = is_source != dyti_link_is_source(link, p->rank);
    enum dyt_status st = DYT_OK;

    if (rank != p->rank &&
        (p->apart != NULL || !is_peer || is_source == link->is_push)) {
        return DYT_OK;
    }
    if (is_source) {
        return dyti_reach_init(&link->source[rank], &p->memory[rank],
                               link->source_kinds, false);
    }
    if (rank != p->rank && link->scratch != NULL) {
        return DYT_OK; /* that is what is written */
    }
    st = dyti_reach_init(&link->target[rank], &p->memory[rank],
                         link->target_kinds, true);
    if (st == DYT_OK && p->commit == DYT_COMMIT_DOUBLE) {
        st = dyti_reach_init(&link->target[p->member_count + rank],
                             &p->second[rank], link->target_kinds, true);
    }
    return st;
}

static enum dyt_status reach_all(struct dyti_link *link)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t r = 0; r < link->params.member_count && st == DYT_OK; r++) {
        st = reach_member(link, r);
        if (st != DYT_OK) {
            DYTI_NOTE("reaching the memory of member %u", r);
        }
    }
    return st;
}

static enum dyt_status open_scratch(struct dyti_link *link)
{
    const struct dyti_link_params *p = &link->params;
    enum dyt_status st;

    if (link->scratch == NULL || dyti_link_is_source(link, p->rank)) {
        return DYT_OK;
    }
    st = dyti_segment_open("dynatrain scratch", link->scratch[p->rank].bytes,
                           &link->own);
    if (st != DYT_OK) {
        DYTI_NOTE("scratch of a staged update");
        return st;
    }
    link->scratch_at[p->rank] = link->own.base;
    return dyti_dense_copies(&link->scratch[p->rank], &link->target[p->rank],
                             link->own.base, false, &link->commit);
}

/* Push: the receivers' scratch. */
static enum dyt_status map_scratch(struct dyti_link *link, const uint64_t *said)
{
    const struct dyti_link_params *p = &link->params;
    enum dyt_status st = DYT_OK;

    if (link->scratch == NULL || !link->is_push ||
        !dyti_link_is_source(link, p->rank)) {
        return DYT_OK;
    }
    for (uint32_t r = p->source_count; r < p->member_count && st == DYT_OK;
         r++) {
        const uint64_t *words = said + (size_t)r * SAY_WORDS;
        struct dyti_process_fd fd = {.pid = p->memory[r].pid,
                                     .pid_start = p->memory[r].pid_start,
                                     .fd = (int32_t)words[SAY_FD],
                                     .device = words[SAY_DEVICE],
                                     .inode = words[SAY_INODE]};

        if (link->scratch[r].bytes > 0) {
            st = dyti_process_map(&fd, 0, link->scratch[r].bytes, true,
                                  &link->scratch_map[r].base,
                                  &link->scratch_map[r].bytes,
                                  &link->scratch_at[r]);
        }
        if (st != DYT_OK) {
            DYTI_NOTE("reaching the scratch of member %u", r);
        }
    }
    return st;
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
    if (link->source == NULL || link->target == NULL ||
        link->scratch_at == NULL || link->scratch_map == NULL ||
        link->map == NULL || link->domain == NULL) {
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
        &link->hands, p->threads != 0 ? p->threads : dyti_hands_cores() / side);

    st = st != DYT_OK ? st : dyti_mover_direct.open(&mover, &link->mover);
    mover.group = &link->all;
    if (st == DYT_OK && p->apart != NULL) {
        st = dyti_mover_message.open(&mover, &link->message);
    }
    return st != DYT_OK ? st : dyti_switch_cache_create(&link->cache);
}

/* What needs nobody else. */
static enum dyt_status prepare(struct dyti_link *link, uint64_t *words)
{
    const struct dyti_link_params *p = &link->params;
    struct stat info;
    enum dyt_status st = dyti_link_lay_out(link);

    st = st != DYT_OK ? st : choose_route(link);
    st = st != DYT_OK ? st : reach_all(link);
    st = st != DYT_OK ? st : open_scratch(link);
    st = st != DYT_OK ? st : open_tools(link);
    if (st != DYT_OK) {
        return st;
    }
    words[SAY_FINGERPRINT] = dyti_link_fingerprint(link);
    words[SAY_LIVE] = p->live_set;
    words[SAY_ROOM] =
        p->cap_bytes == 0 ? UINT64_MAX : p->cap_bytes - link->own.bytes;
    words[SAY_FD] = (uint64_t)(uint32_t)link->own.handle;
    if (link->own.base != NULL && fstat(link->own.handle, &info) == 0) {
        words[SAY_DEVICE] = (uint64_t)info.st_dev;
        words[SAY_INODE] = (uint64_t)info.st_ino;
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
        uint64_t room = said[(size_t)r * SAY_WORDS + SAY_ROOM];

        least = room < least ? room : least;
    }
    link->staging_bytes = least == UINT64_MAX ? 0 : least > 0 ? least : 1;
}

static enum dyt_status open_link(struct dyti_link *link)
{
    uint64_t words[SAY_WORDS] = {0}, *said = NULL;
    enum dyt_status st = open_control(link);

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
    st = st != DYT_OK ? st : map_scratch(link, said);
    st = st != DYT_OK ? st : dyti_link_plan(link);
    free(said);
    said = NULL;
    st = say(link, st, words, &said);
    free(said);
    if (st == DYT_OK) {
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

void dyti_link_close(struct dyti_link *link)
{
    uint32_t count;

    if (link == NULL) {
        return;
    }
    count = link->params.member_count;
    dyti_switch_destroy(link->self);
    dyti_switch_cache_destroy(link->cache);
    if (link->mover != NULL) {
        dyti_mover_direct.close(link->mover);
    }
    leave(link);
    dyti_hands_close(&link->hands);
    dyti_layout_destroy(link->from);
    dyti_layout_destroy(link->to);
    for (uint32_t r = 0; link->map != NULL && r < count; r++) {
        dyti_reach_fini(&link->source[r]);
        dyti_reach_fini(&link->target[r]);
        dyti_reach_fini(&link->target[count + r]);
        if (link->scratch != NULL) {
            dyti_dense_fini(&link->scratch[r]);
        }
        if (link->scratch_map[r].base != NULL) {
            (void)munmap(link->scratch_map[r].base, link->scratch_map[r].bytes);
        }
    }
    dyti_segment_close(&link->own);
    free(link->commit);
    free(link->scratch);
    free(link->scratch_map);
    free(link->scratch_at);
    free(link->domain);
    free(link->source);
    free(link->target);
    free(link->map);
    free(link);
}
