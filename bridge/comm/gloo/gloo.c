/* The group contract over gloo: every collective begins with an all-gather of
 * what each member thinks it is, so that different calls are an error and not a
 * wait for ever; a thread watches the abort word for calls that block. */
#include "comm/gloo/gloo_group.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOPBACK        "127.0.0.1"
#define OPEN_TIMEOUT_MS 30000
#define ABORT_NS        100000000 /* in which a death is seen by others */

/* ---- the region ---------------------------------------------------------- */

static uint64_t member_stride(uint32_t size)
{
    return dyti_align_up(sizeof(struct dyti_gloo_member) +
                             (uint64_t)size * DYTI_GLOO_ADDRESS_BYTES +
                             DYTI_GLOO_ADDRESS_BYTES,
                         64);
}

static uint64_t region_bytes(uint32_t size)
{
    return size * member_stride(size);
}

struct dyti_gloo_member *dyti_gloo_member_at(
    const struct dyti_gloo_group *group, uint32_t member)
{
    return (struct dyti_gloo_member *)(void *)(group->shared +
                                               member *
                                                   member_stride(group->size));
}

static int store_set(void *arg, const char *key, const void *data, size_t bytes)
{
    const struct dyti_gloo_group *group = arg;
    struct dyti_gloo_member *me = dyti_gloo_member_at(group, group->rank);
    uint32_t count = atomic_load(&me->key_count), offset = 0;
    struct dyti_gloo_key *entry = &me->key[count];

    if (count > 0) {
        offset = me->key[count - 1].offset + me->key[count - 1].bytes;
    }
    if (count == DYTI_GLOO_KEYS || strlen(key) >= sizeof(entry->name) ||
        bytes + offset > member_stride(group->size) - sizeof(*me)) {
        return -1;
    }
    memcpy(entry->name, key, strlen(key) + 1);
    memcpy(me->data + offset, data, bytes);
    entry->offset = offset;
    entry->bytes = (uint32_t)bytes;
    atomic_store(&me->key_count, count + 1);
    return 0;
}

static long store_get(void *arg, const char *key, void *data, size_t room)
{
    const struct dyti_gloo_group *group = arg;
    uint32_t opens = dyti_gloo_member_at(group, group->rank)->opens;

    if (atomic_load(&group->abort->value) != 0) {
        return -1;
    }
    for (uint32_t i = 0; i < group->size; i++) {
        const struct dyti_gloo_member *member = dyti_gloo_member_at(group, i);
        uint32_t count = atomic_load(&member->key_opens) == opens
                             ? atomic_load(&member->key_count)
                             : 0;

        for (uint32_t k = 0; k < count && k < DYTI_GLOO_KEYS; k++) {
            const struct dyti_gloo_key *entry = &member->key[k];

            if (strcmp(entry->name, key) == 0) {
                if (entry->bytes > room) {
                    return -1;
                }
                memcpy(data, member->data + entry->offset, entry->bytes);
                return (long)entry->bytes;
            }
        }
    }
    return 0;
}

/* ---- the watcher ----------------------------------------------------------
 */

/* While a call blocks, an abort must end it. */
static void *watch(void *arg)
{
    struct dyti_gloo_group *group = arg;

    (void)pthread_mutex_lock(&group->lock);
    while (!group->closing) {
        if (!group->busy) {
            (void)pthread_cond_wait(&group->changed, &group->lock);
            continue;
        }
        if (!group->interrupted && atomic_load(&group->abort->value) != 0) {
            group->interrupted = true;
            (void)pthread_mutex_unlock(&group->lock);
            dyti_gloo_interrupt(group->gloo);
            (void)pthread_mutex_lock(&group->lock);
        } else {
            struct timespec slice;

            (void)clock_gettime(CLOCK_REALTIME, &slice);
            slice.tv_nsec += DYTI_GLOO_SLICE_MS * 1000000;
            slice.tv_sec += slice.tv_nsec / 1000000000;
            slice.tv_nsec %= 1000000000;
            (void)pthread_cond_timedwait(&group->changed, &group->lock, &slice);
        }
    }
    (void)pthread_mutex_unlock(&group->lock);
    return NULL;
}

static void set_busy(struct dyti_gloo_group *group, bool busy)
{
    (void)pthread_mutex_lock(&group->lock);
    group->busy = busy;
    (void)pthread_cond_signal(&group->changed);
    (void)pthread_mutex_unlock(&group->lock);
}

/* ---- statuses -------------------------------------------------------------
 */

static enum dyt_status broken(struct dyti_gloo_group *group,
                              enum dyt_status status)
{
    group->broken = status;
    return status;
}

enum dyt_status dyti_gloo_look_at_abort(struct dyti_gloo_group *group)
{
    uint64_t value = atomic_load(&group->abort->value);

    if (value == 0) {
        return DYT_OK;
    }
    return broken(
        group,
        DYTI_FAIL(DYT_ERR_PEER, "group %s: rank %u failed: %s", group->name,
                  (uint32_t)(value >> 32) - 1u,
                  dyt_status_text((enum dyt_status)(-(int)(uint32_t)value))));
}

int64_t dyti_gloo_now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Who has not come as far as this member, or `size`. */
static uint32_t who_is_behind(const struct dyti_gloo_group *group)
{
    uint32_t i = 0;

    while (i < group->size &&
           (int32_t)(atomic_load(&dyti_gloo_member_at(group, i)->round) -
                     group->round) >= 0) {
        i++;
    }
    return i;
}

static enum dyt_status too_late(struct dyti_gloo_group *group, uint32_t behind)
{
    uint32_t me = group->world_rank[group->rank];
    long long ms = (long long)(group->timeout_ns / 1000000);

    return broken(
        group,
        behind < group->size
            ? DYTI_FAIL(DYT_ERR_TIMEOUT,
                        "group %s: rank %u waited %lld ms, rank %u "
                        "is missing",
                        group->name, me, ms, group->world_rank[behind])
            : DYTI_FAIL(DYT_ERR_TIMEOUT, "group %s: rank %u waited %lld ms",
                        group->name, me, ms));
}

/* A call of the shim has ended badly: why?  A connection also ends because a
 * peer gave up waiting, or died: whoever sees the death says so in the abort
 * word soon, and until the deadline somebody may only be late. */
static enum dyt_status why(struct dyti_gloo_group *group,
                           enum dyti_gloo_result result, int64_t start)
{
    bool has_deadline = group->timeout_ns > 0;
    int64_t until = has_deadline ? start + group->timeout_ns
                                 : dyti_gloo_now_ns() + ABORT_NS;
    const struct timespec slice = {.tv_nsec = 2000000};
    enum dyt_status st;

    while ((st = dyti_gloo_look_at_abort(group)) == DYT_OK &&
           result == DYTI_GLOO_BROKEN && dyti_gloo_now_ns() < until) {
        (void)nanosleep(&slice, NULL);
    }
    if (st != DYT_OK) {
        return st;
    }
    if (has_deadline && result == DYTI_GLOO_BROKEN) {
        return too_late(group, who_is_behind(group));
    }
    return broken(
        group,
        DYTI_FAIL(result == DYTI_GLOO_NOMEM ? DYT_ERR_NOMEM : DYT_ERR_PEER,
                  "group %s: rank %u lost a peer: %s", group->name,
                  group->world_rank[group->rank], group->text));
}

enum dyt_status dyti_gloo_enter(struct dyti_gloo_group *group)
{
    group->traffic.calls++;
    if (group->broken != DYT_OK) {
        return DYTI_FAIL(group->broken,
                         "group %s cannot be used after a failed call",
                         group->name);
    }
    return dyti_gloo_look_at_abort(group);
}

/* ---- collectives ----------------------------------------------------------
 */

enum call { BARRIER = 1, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE };

static uint64_t tag_of(enum call call, uint32_t detail, uint64_t amount)
{
    return (uint64_t)call << 56 | (uint64_t)(detail & 0xffffu) << 40 |
           (amount & 0xffffffffffu);
}

/* All members have come to the same call. */
static enum dyt_status meet(struct dyti_gloo_group *group, uint64_t tag)
{
    int64_t start = dyti_gloo_now_ns();
    enum dyti_gloo_result result;

    group->round++;
    atomic_store(&dyti_gloo_member_at(group, group->rank)->round, group->round);
    group->tags[group->rank] = tag;
    set_busy(group, true);
    result = dyti_gloo_all_gather(group->gloo, &group->tags[group->rank],
                                  group->tags, group->tag_bytes, group->text,
                                  sizeof(group->text));
    set_busy(group, false);
    if (result != DYTI_GLOO_OK) {
        return why(group, result, start);
    }
    for (uint32_t i = 0; i < group->size; i++) {
        if (group->tags[i] != tag) {
            return broken(
                group,
                DYTI_FAIL(DYT_ERR_INVALID,
                          "group %s: rank %u is in call %016llx and rank %u in "
                          "%016llx: all members must make the same calls",
                          group->name, group->world_rank[group->rank],
                          (unsigned long long)tag, group->world_rank[i],
                          (unsigned long long)group->tags[i]));
        }
    }
    return DYT_OK;
}

static enum dyt_status begin(struct dyti_gloo_group *group, uint64_t tag)
{
    enum dyt_status st = dyti_gloo_enter(group);

    return st != DYT_OK || group->size == 1 ? st : meet(group, tag);
}

static enum dyt_status barrier(void *self)
{
    return begin(self, tag_of(BARRIER, 0, 0));
}

static enum dyt_status broadcast(void *self, void *buf, uint64_t size_bytes,
                                 uint32_t root)
{
    struct dyti_gloo_group *group = self;
    enum dyt_status st;
    enum dyti_gloo_result result;
    int64_t start;

    if (root >= group->size) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "group %s: broadcast of member %u, there are %u",
                         group->name, root, group->size);
    }
    st = begin(group, tag_of(BROADCAST, root, size_bytes));
    if (st != DYT_OK || size_bytes == 0 || group->size == 1) {
        return st;
    }
    start = dyti_gloo_now_ns();
    set_busy(group, true);
    result = dyti_gloo_broadcast(group->gloo, buf, size_bytes, root,
                                 group->text, sizeof(group->text));
    set_busy(group, false);
    *(group->rank == root ? &group->traffic.sent_bytes
                          : &group->traffic.received_bytes) += size_bytes;
    return result == DYTI_GLOO_OK ? DYT_OK : why(group, result, start);
}

static enum dyt_status gather(struct dyti_gloo_group *group, const void *in,
                              void *out, const uint64_t *counts_bytes)
{
    int64_t start = dyti_gloo_now_ns();
    uint64_t sum = 0;
    enum dyti_gloo_result result;

    for (uint32_t i = 0; i < group->size; i++) {
        sum += counts_bytes[i];
    }
    if (sum == 0) {
        return DYT_OK;
    }
    set_busy(group, true);
    result = dyti_gloo_all_gather(group->gloo, in, out, counts_bytes,
                                  group->text, sizeof(group->text));
    set_busy(group, false);
    group->traffic.sent_bytes += counts_bytes[group->rank] * (group->size - 1);
    group->traffic.received_bytes += sum - counts_bytes[group->rank];
    return result == DYTI_GLOO_OK ? DYT_OK : why(group, result, start);
}

static enum dyt_status all_gather(void *self, const void *in, void *out,
                                  const uint64_t *counts_bytes)
{
    struct dyti_gloo_group *group = self;
    uint64_t sum = 0;
    enum dyt_status st;

    for (uint32_t i = 0; i < group->size; i++) {
        sum += counts_bytes[i];
    }
    st = begin(group, tag_of(ALL_GATHER, 0, sum));
    if (st == DYT_OK && group->size == 1) {
        if (sum > 0 && in != out) {
            memcpy(out, in, sum);
        }
        return DYT_OK;
    }
    return st == DYT_OK ? gather(group, in, out, counts_bytes) : st;
}

/* ---- reductions: parts go to their owners, who sum in member order --------
 */

static uint32_t element_bytes(enum dyti_reduce op)
{
    return op == DYTI_SUM_F32 || op == DYTI_MAX_F32 ? 4 : 8;
}

static void reduce_into(void *to, const void *from, uint64_t count,
                        enum dyti_reduce op)
{
    for (uint64_t i = 0; i < count; i++) {
        switch (op) {
        case DYTI_SUM_F32:
            ((float *)to)[i] += ((const float *)from)[i];
            break;
        case DYTI_SUM_F64:
            ((double *)to)[i] += ((const double *)from)[i];
            break;
        case DYTI_MAX_F32:
            if (((const float *)from)[i] > ((float *)to)[i]) {
                ((float *)to)[i] = ((const float *)from)[i];
            }
            break;
        case DYTI_MAX_U64:
            if (((const uint64_t *)from)[i] > ((uint64_t *)to)[i]) {
                ((uint64_t *)to)[i] = ((const uint64_t *)from)[i];
            }
            break;
        }
    }
}

static enum dyt_status grow(struct dyti_gloo_group *group, uint64_t bytes)
{
    void *scratch;

    if (bytes <= group->scratch_bytes) {
        return DYT_OK;
    }
    scratch = realloc(group->scratch, bytes);
    if (scratch == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "group %s: %llu bytes", group->name,
                         (unsigned long long)bytes);
    }
    group->scratch = scratch;
    group->scratch_bytes = bytes;
    return DYT_OK;
}

/* group->parts: bytes of each member's part. */
static enum dyt_status scatter(struct dyti_gloo_group *group, const void *in,
                               void *out, enum dyti_reduce op)
{
    uint64_t mine = group->parts[group->rank], sum = 0;
    int64_t start = dyti_gloo_now_ns();
    enum dyti_gloo_result result = DYTI_GLOO_OK;
    enum dyt_status st = grow(group, mine * group->size + 1);

    for (uint32_t i = 0; i < group->size; i++) {
        group->takes[i] = mine;
        sum += group->parts[i];
    }
    if (st != DYT_OK || sum == 0) {
        return st;
    }
    set_busy(group, true);
    result =
        dyti_gloo_all_to_all(group->gloo, in, group->parts, group->scratch,
                             group->takes, group->text, sizeof(group->text));
    set_busy(group, false);
    if (result != DYTI_GLOO_OK) {
        return why(group, result, start);
    }
    group->traffic.sent_bytes += sum - mine;
    group->traffic.received_bytes += mine * (group->size - 1);
    for (uint32_t i = 1; i < group->size; i++) {
        reduce_into(group->scratch, group->scratch + i * mine,
                    mine / element_bytes(op), op);
    }
    if (mine > 0) {
        memcpy(out, group->scratch, mine);
    }
    return DYT_OK;
}

static enum dyt_status reduce_scatter(void *self, const void *in, void *out,
                                      const uint64_t *counts,
                                      enum dyti_reduce op)
{
    struct dyti_gloo_group *group = self;
    uint64_t sum = 0;
    enum dyt_status st;

    for (uint32_t i = 0; i < group->size; i++) {
        group->parts[i] = counts[i] * element_bytes(op);
        sum += counts[i];
    }
    st = begin(group, tag_of(REDUCE_SCATTER, op, sum));
    if (st == DYT_OK && group->size == 1) {
        if (sum > 0 && in != out) {
            memmove(out, in, group->parts[0]);
        }
        return DYT_OK;
    }
    return st == DYT_OK ? scatter(group, in, out, op) : st;
}

static enum dyt_status all_reduce(void *self, void *buf, uint64_t count,
                                  enum dyti_reduce op)
{
    struct dyti_gloo_group *group = self;
    uint64_t each = count / group->size, before = 0;
    enum dyt_status st = begin(group, tag_of(ALL_REDUCE, op, count));

    if (st != DYT_OK || group->size == 1 || count == 0) {
        return st;
    }
    for (uint32_t i = 0; i < group->size; i++) {
        uint64_t part = each + (i < count % group->size);

        group->parts[i] = part * element_bytes(op);
        before += i < group->rank ? group->parts[i] : 0;
    }
    st = scatter(group, buf, (unsigned char *)buf + before, op);
    return st == DYT_OK
               ? gather(group, (unsigned char *)buf + before, buf, group->parts)
               : st;
}

/* ---- open and close -------------------------------------------------------
 */

static void group_close(void *self)
{
    struct dyti_gloo_group *group = self;

    if (group == NULL) {
        return;
    }
    if (group->watching) {
        (void)pthread_mutex_lock(&group->lock);
        group->closing = true;
        (void)pthread_cond_signal(&group->changed);
        (void)pthread_mutex_unlock(&group->lock);
        (void)pthread_join(group->watcher, NULL);
    }
    dyti_gloo_posts_fini(group);
    dyti_gloo_close(group->gloo);
    (void)pthread_mutex_destroy(&group->lock);
    (void)pthread_cond_destroy(&group->changed);
    free(group->world_rank);
    free(group->tags);
    free(group->tag_bytes);
    free(group->parts);
    free(group->takes);
    free(group->scratch);
    free(group);
}

static enum dyt_status check(const struct dyti_group_params *params)
{
    if (params->size == 0 || params->rank >= params->size) {
        return DYTI_FAIL(DYT_ERR_INVALID, "group %s: member %u of %u",
                         params->name, params->rank, params->size);
    }
    if (params->shared == NULL || params->abort == NULL ||
        params->shared_bytes < region_bytes(params->size)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "group %s of %u needs an abort word and %llu shared "
                         "bytes, got %llu",
                         params->name, params->size,
                         (unsigned long long)region_bytes(params->size),
                         (unsigned long long)params->shared_bytes);
    }
    return DYT_OK;
}

static enum dyt_status allocate(struct dyti_gloo_group *group)
{
    uint32_t n = group->size;

    group->world_rank = calloc(n, sizeof(*group->world_rank));
    group->tags = calloc(n, sizeof(*group->tags));
    group->tag_bytes = calloc(n, sizeof(*group->tag_bytes));
    group->parts = calloc(n, sizeof(*group->parts));
    group->takes = calloc(n, sizeof(*group->takes));
    if (group->world_rank == NULL || group->tags == NULL ||
        group->tag_bytes == NULL || group->parts == NULL ||
        group->takes == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "group %s of %u", group->name, n);
    }
    for (uint32_t i = 0; i < n; i++) {
        group->tag_bytes[i] = sizeof(*group->tags);
    }
    return dyti_gloo_posts_init(group);
}

static enum dyt_status connect_all(struct dyti_gloo_group *group,
                                   const struct dyti_group_params *params)
{
    struct dyti_gloo_params how = {
        .rank = params->rank,
        .size = params->size,
        .address = params->address == NULL ? LOOPBACK : params->address,
        .store = {.arg = group, .set = store_set, .get = store_get},
        .open_timeout_ms = OPEN_TIMEOUT_MS,
        .timeout_ms = params->timeout_ns > 0
                          ? (params->timeout_ns + 999999) / 1000000
                          : 0};
    struct dyti_gloo_member *me = dyti_gloo_member_at(group, group->rank);
    enum dyt_status st;

    if (group->size == 1) {
        return DYT_OK;
    }
    me->opens++;
    atomic_store(&me->key_count, 0);
    atomic_store(&me->key_opens, me->opens);
    group->round = atomic_load(&me->round);
    if (dyti_gloo_open(&how, &group->gloo, group->text, sizeof(group->text)) !=
        DYTI_GLOO_OK) {
        st = dyti_gloo_look_at_abort(group);
        return st != DYT_OK
                   ? st
                   : DYTI_FAIL(DYT_ERR_PEER,
                               "group %s: rank %u cannot connect from %s: %s",
                               group->name, group->world_rank[group->rank],
                               how.address, group->text);
    }
    if (pthread_create(&group->watcher, NULL, watch, group) != 0) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "group %s: a thread", group->name);
    }
    group->watching = true;
    return DYT_OK;
}

static enum dyt_status group_open(const struct dyti_group_params *params,
                                  void **out_self)
{
    struct dyti_gloo_group *group;
    enum dyt_status st = check(params);

    if (st != DYT_OK) {
        return st;
    }
    group = calloc(1, sizeof(*group));
    if (group == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "group %s", params->name);
    }
    (void)pthread_mutex_init(&group->lock, NULL);
    (void)pthread_cond_init(&group->changed, NULL);
    group->name = params->name;
    group->rank = params->rank;
    group->size = params->size;
    group->shared = params->shared;
    group->abort = params->abort;
    group->timeout_ns = params->timeout_ns;
    st = allocate(group);
    for (uint32_t i = 0; st == DYT_OK && i < params->size; i++) {
        group->world_rank[i] =
            params->world_rank == NULL ? i : params->world_rank[i];
    }
    st = st != DYT_OK ? st : connect_all(group, params);
    if (st != DYT_OK) {
        group_close(group);
        return st;
    }
    *out_self = group;
    return DYT_OK;
}

static void group_traffic(void *self, struct dyti_group_traffic *out_traffic)
{
    const struct dyti_gloo_group *group = self;

    *out_traffic = group->traffic;
}

const struct dyti_group_ops dyti_group_gloo = {
    .struct_size = sizeof(struct dyti_group_ops),
    .name = "gloo",
    .caps = DYTI_GROUP_CAP_RANK_ORDER,
    .region_bytes = region_bytes,
    .open = group_open,
    .close = group_close,
    .barrier = barrier,
    .broadcast = broadcast,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .all_reduce = all_reduce,
    .exchange = dyti_gloo_exchange,
    .traffic = group_traffic,
    .post = dyti_gloo_group_post,
    .poll = dyti_gloo_group_poll,
    .wait = dyti_gloo_group_wait,
    .cancel = dyti_gloo_group_cancel,
};
