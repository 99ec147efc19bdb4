/* Messages that travel while the caller works: offered by post(), launched at
 * the next look when the other end has met them (launch.c). */
#include "comm/nccl/nccl_group.h"

#include <string.h>

#define WAIT_NS 2000000

void dyti_nccl_posts_init(struct dyti_nccl_group *group)
{
    struct dyti_nccl_posts *posts = &group->posts;

    for (uint32_t i = 0; i < DYTI_GROUP_POSTS; i++) {
        posts->post[i].next = (uint16_t)(i + 1 < DYTI_GROUP_POSTS ? i + 2 : 0);
    }
    posts->unused = 1;
}

void dyti_nccl_posts_fini(struct dyti_nccl_group *group)
{
    struct dyti_nccl_posts *posts = &group->posts;

    for (uint32_t i = 0; i < DYTI_GROUP_POSTS; i++) {
        if (posts->post[i].before != NULL) {
            (void)cudaEventDestroy(posts->post[i].before);
        }
    }
    for (uint32_t i = 0; i < DYTI_NCCL_BATCHES; i++) {
        if (posts->batch[i].after != NULL) {
            (void)cudaEventDestroy(posts->batch[i].after);
        }
    }
}

/* ---- the table ------------------------------------------------------------
 */

static enum dyt_status refuse(const struct dyti_nccl_group *group,
                              const struct dyti_p2p *message)
{
    if (message->peer >= group->size) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "group %s: a message for member %u of %u", group->name,
                         message->peer, group->size);
    }
    if (message->through != NULL) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "group %s: messages of a device come from a buffer",
                         group->name);
    }
    return DYT_OK;
}

/* A place whose event stands behind what the caller has queued; 0: none now. */
static enum dyt_status begin_post(struct dyti_nccl_group *group,
                                  uint16_t *out_place)
{
    uint16_t place = group->posts.unused;
    struct dyti_nccl_post *post;
    enum dyt_status st;

    if (place == 0) {
        return DYT_PENDING;
    }
    post = &group->posts.post[place - 1];
    st = dyti_nccl_event(group, &post->before);
    st = st == DYT_OK
             ? dyti_nccl_cuda(group,
                              cudaEventRecord(post->before, group->caller),
                              "an event of the caller's stream")
             : st;
    *out_place = place;
    return st;
}

/* It is offered: the place is taken. */
static uint64_t end_offer(struct dyti_nccl_group *group, uint16_t place)
{
    struct dyti_nccl_posts *posts = &group->posts;
    struct dyti_nccl_post *post = &posts->post[place - 1];

    posts->unused = post->next;
    post->life++;
    post->open = true;
    post->is_launched = post->ended = false;
    post->status = DYT_OK;
    posts->open++;
    dyti_nccl_moved(posts);
    return (uint64_t)post->life << 32 | place;
}

enum dyt_status dyti_nccl_post(void *self, const struct dyti_p2p *message,
                               uint64_t *out_ticket)
{
    struct dyti_nccl_group *group = self;
    struct dyti_nccl_offer *offer;
    uint16_t place = 0;
    enum dyt_status st = dyti_nccl_enter(group);

    st = st == DYT_OK ? refuse(group, message) : st;
    st = st == DYT_OK ? begin_post(group, &place) : st;
    if (st != DYT_OK) {
        return st;
    }
    offer = &group->member[group->rank].offer[place - 1];
    offer->bytes = message->size_bytes;
    offer->peer = message->peer;
    offer->is_send = message->is_send;
    offer->is_wrong = false;
    memset(offer->head, 0, sizeof(offer->head));
    if (message->is_send && message->head != NULL) {
        memcpy(offer->head, message->head, sizeof(offer->head));
    }
    st = dyti_nccl_offer(group, place);
    if (st != DYT_OK) {
        return st;
    }
    group->posts.post[place - 1].message = *message;
    group->posts.post[place - 1].is_joint = false;
    *out_ticket = end_offer(group, place);
    return DYT_OK;
}

/* What all members must say alike. */
static uint64_t form_of(const struct dyti_joint *joint, const uint32_t *member,
                        uint32_t size)
{
    uint64_t form = joint->size_bytes * 2 + (uint64_t)joint->kind;

    form = form * 0x100000001b3u ^
           (joint->kind == DYTI_JOINT_BROADCAST ? joint->root : 0);
    for (uint32_t i = 0; i < size; i++) {
        form = form * 0x100000001b3u ^ member[i];
    }
    return form;
}

enum dyt_status dyti_nccl_post_joint(void *self, const struct dyti_joint *joint,
                                     uint64_t *out_ticket)
{
    struct dyti_nccl_group *group = self;
    const struct dyti_nccl_team *team = joint->team;
    const uint32_t *member = team == NULL ? group->everybody : team->member;
    uint32_t size = team == NULL ? group->size : team->size;
    struct dyti_nccl_offer *offer;
    uint16_t place = 0;
    enum dyt_status st = dyti_nccl_enter(group);

    if (st == DYT_OK && joint->kind == DYTI_JOINT_BROADCAST &&
        joint->root >= size) {
        st = DYTI_FAIL(DYT_ERR_INVALID,
                       "group %s: a joint message of member %u of %u",
                       group->name, joint->root, size);
    }
    st = st == DYT_OK ? begin_post(group, &place) : st;
    if (st != DYT_OK) {
        return st;
    }
    offer = &group->member[group->rank].offer[place - 1];
    offer->bytes = joint->size_bytes;
    offer->is_wrong = false;
    offer->epoch = joint->epoch;
    offer->number = joint->number;
    offer->form = form_of(joint, member, size);
    st = dyti_nccl_offer_joint(group, place, member, size);
    if (st != DYT_OK) {
        return st;
    }
    group->posts.post[place - 1].joint = *joint;
    group->posts.post[place - 1].is_joint = true;
    group->posts.post[place - 1].message = (struct dyti_p2p){
        .peer = group->size, .is_send = true, .size_bytes = joint->size_bytes};
    *out_ticket = end_offer(group, place);
    return DYT_OK;
}

static enum dyt_status spend(struct dyti_nccl_posts *posts, uint16_t place)
{
    struct dyti_nccl_post *post = &posts->post[place - 1];

    post->open = false;
    post->next = posts->unused;
    posts->unused = place;
    return post->status;
}

enum dyt_status dyti_nccl_poll(void *self, uint64_t ticket)
{
    struct dyti_nccl_group *group = self;
    struct dyti_nccl_posts *posts = &group->posts;
    uint32_t place = (uint32_t)ticket;
    struct dyti_nccl_post *post;
    enum dyt_status st = DYT_OK;

    if (place == 0 || place > DYTI_GROUP_POSTS ||
        !posts->post[place - 1].open ||
        posts->post[place - 1].life != (uint32_t)(ticket >> 32)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "group %s: no message has the ticket %llx",
                         group->name, (unsigned long long)ticket);
    }
    post = &posts->post[place - 1];
    if (!post->ended) {
        st = dyti_nccl_look(group);
    }
    if (st == DYT_ERR_INVALID && (!post->ended || post->status == DYT_OK)) {
        st = DYT_OK; /* of another message: who asks for that hears it */
    }
    if (st != DYT_OK && !post->ended) {
        return st;
    }
    if (!post->ended) {
        return DYT_PENDING;
    }
    if (spend(posts, (uint16_t)place) != DYT_OK && st == DYT_OK) {
        if (post->is_joint) {
            return DYTI_FAIL(post->status,
                             "group %s: a joint message that members describe "
                             "otherwise",
                             group->name);
        }
        return DYTI_FAIL(post->status,
                         "group %s: a message of another size than its other "
                         "end, rank %u",
                         group->name, group->world_rank[post->message.peer]);
    }
    return st;
}

enum dyt_status dyti_nccl_landed(void *self, uint64_t *ticket, uint32_t cap,
                                 uint32_t *out_count)
{
    struct dyti_nccl_group *group = self;
    struct dyti_nccl_posts *posts = &group->posts;
    enum dyt_status st = dyti_nccl_look(group);
    uint32_t count = 0;

    for (uint16_t i = 0; i < DYTI_GROUP_POSTS && count < cap && st == DYT_OK;
         i++) {
        if (posts->post[i].open && posts->post[i].ended) {
            ticket[count++] = (uint64_t)posts->post[i].life << 32 | (i + 1u);
            st = spend(posts, (uint16_t)(i + 1));
        }
    }
    *out_count = count;
    return st;
}

/* Who a message waits for; UINT32_MAX: nobody knows. */
static uint32_t awaited(struct dyti_nccl_group *group,
                        const struct dyti_nccl_post *post)
{
    const struct dyti_nccl_team *team = dyti_nccl_team_of(post);

    return !post->is_joint
               ? post->message.peer
               : dyti_nccl_who_lacks(
                     group, (uint16_t)(post - group->posts.post + 1),
                     team == NULL ? group->everybody : team->member,
                     team == NULL ? group->size : team->size);
}

/* The first message that has not ended; on the device it ends with its group.
 */
static enum dyt_status too_late(struct dyti_nccl_group *group)
{
    const struct dyti_nccl_post *post = group->posts.post;
    long long ms = (long long)(group->timeout_ns / 1000000);
    uint32_t who;
    enum dyt_status st;

    while (!post->open || post->ended) {
        post++;
    }
    who = awaited(group, post);
    st =
        who == UINT32_MAX
            ? DYTI_FAIL(DYT_ERR_TIMEOUT,
                        "group %s: rank %u waited %lld ms for a joint message "
                        "that all have begun",
                        group->name, group->world_rank[group->rank], ms)
            : DYTI_FAIL(DYT_ERR_TIMEOUT,
                        "group %s: rank %u waited %lld ms %s rank %u",
                        group->name, group->world_rank[group->rank], ms,
                        post->is_joint ? "for a joint message to be joined by"
                        : post->message.is_send ? "for a message to be taken by"
                                                : "for a message of",
                        group->world_rank[who]);
    return group->posts.batch_count > 0 ? dyti_nccl_break(group, st) : st;
}

enum dyt_status dyti_nccl_wait(void *self)
{
    struct dyti_nccl_group *group = self;
    struct dyti_nccl_posts *posts = &group->posts;
    int64_t until = dyti_nccl_now_ns() + WAIT_NS;
    uint32_t turn = 0;
    enum dyt_status st = DYT_OK;

    if (group->broken != DYT_OK) {
        return dyti_nccl_enter(group);
    }
    while (st == DYT_OK && posts->open > 0 && posts->moves == posts->seen &&
           dyti_nccl_now_ns() < until) {
        dyti_nccl_rest(&turn);
        st = dyti_nccl_look(group);
    }
    st = st == DYT_ERR_INVALID ? DYT_OK : st; /* poll() says it */
    posts->seen = posts->moves;
    if (st == DYT_OK) {
        st = dyti_nccl_look_at_abort(group);
    }
    if (st == DYT_OK && posts->open > 0 && group->timeout_ns > 0 &&
        dyti_nccl_now_ns() - posts->moved_ns >= group->timeout_ns) {
        st = too_late(group);
    }
    return st;
}

/* Until what has met is done: the other end does the same. */
static void drain(struct dyti_nccl_group *group, const bool *is_met)
{
    struct dyti_nccl_posts *posts = &group->posts;
    int64_t deadline = dyti_nccl_deadline(group);
    enum dyt_status st = DYT_OK;
    uint32_t turn = 0;

    for (uint32_t i = 0; i < DYTI_GROUP_POSTS; i++) {
        struct dyti_nccl_post *post = &posts->post[i];

        if (post->open && !post->ended && !is_met[i]) {
            post->ended = true;
            posts->open--;
        }
    }
    while (posts->open > 0 && (st == DYT_OK || st == DYT_ERR_INVALID)) {
        st = dyti_nccl_look(group);
        if (posts->open > 0 && deadline > 0 && dyti_nccl_now_ns() > deadline) {
            st = too_late(group);
            break;
        }
        dyti_nccl_rest(&turn);
    }
    if (posts->open > 0 && group->broken == DYT_OK) {
        (void)dyti_nccl_break(group, st);
    }
}

void dyti_nccl_cancel(void *self)
{
    struct dyti_nccl_group *group = self;
    struct dyti_nccl_posts *posts = &group->posts;
    bool is_met[DYTI_GROUP_POSTS];

    if (group->broken == DYT_OK &&
        dyti_nccl_withdraw(group, is_met) == DYT_OK) {
        drain(group, is_met);
    }
    for (uint16_t i = 0; i < DYTI_GROUP_POSTS; i++) {
        if (posts->post[i].open) {
            (void)spend(posts, (uint16_t)(i + 1));
        }
    }
    posts->open = 0;
    posts->batch_count = 0;
}
