/* Messages that travel while the caller works: one list per peer and direction,
 * each moved on as far as its ring allows by every poll. */
#include "comm/shm/shm_group.h"

#include <stdlib.h>
#include <string.h>

enum dyt_status dyti_shm_posts_init(struct dyti_shm_group *group)
{
    struct dyti_shm_posts *posts = &group->posts;

    posts->send = calloc(group->size, sizeof(*posts->send));
    posts->recv = calloc(group->size, sizeof(*posts->recv));
    if (posts->send == NULL || posts->recv == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "messages of %u members", group->size);
    }
    for (uint32_t i = 0; i < DYTI_GROUP_POSTS; i++) {
        posts->post[i].next = (uint16_t)(i + 1 < DYTI_GROUP_POSTS ? i + 2 : 0);
    }
    posts->unused = 1;
    return DYT_OK;
}

void dyti_shm_posts_fini(struct dyti_shm_group *group)
{
    free(group->posts.send);
    free(group->posts.recv);
}

static uint64_t ticket_of(const struct dyti_shm_posts *posts, uint16_t place)
{
    return (uint64_t)posts->post[place - 1].life << 32 | place;
}

static void append(struct dyti_shm_posts *posts, struct dyti_shm_list *list,
                   uint16_t place)
{
    posts->post[place - 1].next = 0;
    if (list->last == 0) {
        list->first = place;
    } else {
        posts->post[list->last - 1].next = place;
    }
    list->last = place;
}

static uint16_t take_first(struct dyti_shm_posts *posts,
                           struct dyti_shm_list *list)
{
    uint16_t place = list->first;

    list->first = posts->post[place - 1].next;
    list->last = list->first == 0 ? 0 : list->last;
    return place;
}

static void take(struct dyti_shm_posts *posts, struct dyti_shm_list *list,
                 uint16_t place)
{
    uint16_t before = 0;

    for (uint16_t at = list->first; at != place;
         at = posts->post[at - 1].next) {
        before = at;
    }
    if (before == 0) {
        (void)take_first(posts, list);
        return;
    }
    posts->post[before - 1].next = posts->post[place - 1].next;
    list->last = list->last == place ? before : list->last;
}

static void spend(struct dyti_shm_posts *posts, uint16_t place)
{
    posts->post[place - 1].open = false;
    posts->post[place - 1].next = posts->unused;
    posts->unused = place;
}

static enum dyt_status move_on(struct dyti_shm_group *group,
                               struct dyti_shm_post *post, uint64_t *out_bytes)
{
    uint64_t before = post->done;
    bool moved = false;
    enum dyt_status st =
        post->message.is_send
            ? dyti_shm_send_some(group, &post->message, &post->done, &moved)
            : dyti_shm_receive_some(group, &post->message, &post->done, &moved);

    *out_bytes = post->done - before;
    return st;
}

/* Move the messages of one list on, oldest first: as much as a ring takes, and
 * no more, for there are other lists. */
static enum dyt_status run_list(struct dyti_shm_group *group,
                                struct dyti_shm_list *list, bool *moved)
{
    struct dyti_shm_posts *posts = &group->posts;
    uint64_t all = 0, told = 0;
    uint32_t peer = 0;

    while (list->first != 0 && all < group->ring_bytes) {
        struct dyti_shm_post *post = &posts->post[list->first - 1];
        uint64_t bytes = 0;
        enum dyt_status st = move_on(group, post, &bytes);

        peer = post->message.peer;
        if (st != DYT_OK) {
            return st;
        }
        if (bytes == 0) {
            break;
        }
        all += bytes;
        if (all - told >= group->part_bytes) {
            dyti_shm_ring_bell(group, peer);
            told = all;
        }
        if (post->done == post->message.size_bytes + DYTI_SHM_HEADER_BYTES) {
            post->arrived = true;
            posts->open--;
            append(posts, &posts->ended, take_first(posts, list));
        }
    }
    if (all > told) {
        dyti_shm_ring_bell(group, peer);
    }
    *moved |= all > 0;
    return DYT_OK;
}

/* One look at everything that is in flight. */
static enum dyt_status run_all(struct dyti_shm_group *group)
{
    struct dyti_shm_posts *posts = &group->posts;
    struct dyti_shm_member *me = &group->member[group->rank];
    enum dyt_status st = DYT_OK;

    /* Read before looking: a ring that changes afterwards rings it. */
    posts->seen = atomic_load(&me->bell);
    posts->moved = false;
    for (uint32_t peer = 0; peer < group->size && st == DYT_OK; peer++) {
        st = run_list(group, &posts->send[peer], &posts->moved);
        if (st == DYT_OK) {
            st = run_list(group, &posts->recv[peer], &posts->moved);
        }
    }
    if (posts->moved) {
        group->posts_patience = (struct dyti_shm_patience){0};
    }
    return st;
}

static enum dyt_status look(struct dyti_shm_group *group)
{
    enum dyt_status st =
        group->broken != DYT_OK ? dyti_shm_enter(group) : run_all(group);

    if (st == DYT_ERR_INVALID) {
        group->broken = DYT_OK; /* of a message: members can still meet */
    }
    return st;
}

enum dyt_status dyti_shm_post(void *self, const struct dyti_p2p *message,
                              uint64_t *out_ticket)
{
    struct dyti_shm_group *group = self;
    struct dyti_shm_posts *posts = &group->posts;
    struct dyti_shm_post *post;
    uint16_t place = posts->unused;
    enum dyt_status st = dyti_shm_enter(group);

    if (st != DYT_OK) {
        return st;
    }
    if (message->peer >= group->size) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "group %s: a message for member %u of %u", group->name,
                         message->peer, group->size);
    }
    if (place == 0) {
        return DYT_PENDING;
    }
    post = &posts->post[place - 1];
    posts->unused = post->next;
    post->message = *message;
    post->done = 0;
    post->life++;
    post->open = true;
    post->arrived = false;
    if (posts->open++ == 0) {
        group->posts_patience = (struct dyti_shm_patience){0};
    }
    posts->moved = true; /* look before sleeping */
    append(posts,
           message->is_send ? &posts->send[message->peer]
                            : &posts->recv[message->peer],
           place);
    *out_ticket = ticket_of(posts, place);
    return DYT_OK;
}

enum dyt_status dyti_shm_poll(void *self, uint64_t ticket)
{
    struct dyti_shm_group *group = self;
    struct dyti_shm_posts *posts = &group->posts;
    uint32_t place = (uint32_t)ticket;
    struct dyti_shm_post *post;
    enum dyt_status st;

    if (place == 0 || place > DYTI_GROUP_POSTS ||
        !posts->post[place - 1].open ||
        posts->post[place - 1].life != (uint32_t)(ticket >> 32)) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "group %s: no message has the ticket %llx",
                         group->name, (unsigned long long)ticket);
    }
    post = &posts->post[place - 1];
    if (!post->arrived) {
        st = look(group);
        if (st != DYT_OK) {
            return st;
        }
    }
    if (!post->arrived) {
        return DYT_PENDING;
    }
    take(posts, &posts->ended, (uint16_t)place);
    spend(posts, (uint16_t)place);
    return DYT_OK;
}

enum dyt_status dyti_shm_landed(void *self, uint64_t *ticket, uint32_t cap,
                                uint32_t *out_count)
{
    struct dyti_shm_group *group = self;
    struct dyti_shm_posts *posts = &group->posts;
    enum dyt_status st = look(group);
    uint32_t count = 0;

    while (st == DYT_OK && count < cap && posts->ended.first != 0) {
        uint16_t place = take_first(posts, &posts->ended);

        ticket[count++] = ticket_of(posts, place);
        spend(posts, place);
    }
    *out_count = count;
    return st;
}

/* The first peer that has not sent or taken what it should. */
static void note_peer(const struct dyti_shm_group *group)
{
    for (uint32_t i = 0; i < group->size; i++) {
        bool in = group->posts.recv[i].first != 0;

        if (in || group->posts.send[i].first != 0) {
            DYTI_NOTE("%s rank %u", in ? "receiving from" : "sending to",
                      group->world_rank[i]);
            return;
        }
    }
}

enum dyt_status dyti_shm_wait(void *self)
{
    struct dyti_shm_group *group = self;
    struct dyti_shm_posts *posts = &group->posts;
    struct dyti_shm_member *me = &group->member[group->rank];
    enum dyt_status st;

    if (group->broken != DYT_OK) {
        return dyti_shm_enter(group);
    }
    if (posts->moved || posts->open == 0) {
        posts->moved = false;
        return DYT_OK;
    }
    st = dyti_shm_wait_word(group, &group->posts_patience, &me->bell,
                            posts->seen, &me->asleep);
    if (st == DYT_ERR_TIMEOUT) {
        group->broken = DYT_OK; /* of a message: members can still meet */
    }
    if (st != DYT_OK) {
        note_peer(group);
    }
    return st;
}

void dyti_shm_cancel(void *self)
{
    struct dyti_shm_group *group = self;
    struct dyti_shm_posts *posts = &group->posts;

    for (uint32_t i = 0; i < DYTI_GROUP_POSTS; i++) {
        struct dyti_shm_post *post = &posts->post[i];

        if (post->open) {
            spend(posts, (uint16_t)(i + 1));
        }
    }
    posts->open = 0;
    posts->ended = (struct dyti_shm_list){0};
    memset(posts->send, 0, group->size * sizeof(*posts->send));
    memset(posts->recv, 0, group->size * sizeof(*posts->recv));
    for (uint32_t peer = 0; peer < group->size; peer++) {
        struct dyti_shm_ring *out = dyti_shm_ring(group, group->rank, peer);
        struct dyti_shm_ring *in = dyti_shm_ring(group, peer, group->rank);

        /* Whoever of the two is first: both end at the same line. */
        atomic_store(&out->head, dyti_shm_next_line(atomic_load(&out->head)));
        atomic_store(&in->tail, dyti_shm_next_line(atomic_load(&in->head)));
    }
}
