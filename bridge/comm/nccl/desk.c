/* Groups whose members share no memory: the first one keeps the region, and a
 * thread of it does there what the others ask for, over a group of hosts that
 * is theirs alone (params.carrier).  A member asks one thing at a time and
 * waits for the answer, so that the region's rules hold for all alike. */
#include "comm/nccl/desk.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* One of them, as the first member knows it. */
struct client {
    struct dyti_nccl_group as;         /* who it is, in the region */
    struct dyti_nccl_request *request; /* owned */
    struct dyti_nccl_reply reply;
    uint64_t ticket;
    bool answers; /* the ticket is of the reply */
    bool gone;
};

struct dyti_nccl_server {
    struct dyti_group carrier;
    uint64_t request_bytes;
    struct client *client; /* [size], owned; [0] is nobody */
    uint32_t size;
    pthread_t thread;
    bool runs;
    _Atomic bool stops, is_lost; /* lost: the carrier has failed */
    _Atomic uint32_t present;    /* have not said goodbye */
};

/* ---- answering ------------------------------------------------------------
 */

static void answer_open(struct client *c)
{
    struct dyti_nccl_group *as = &c->as;
    uint32_t opens = c->request->number;

    atomic_store(&as->member[as->rank].opened, opens);
    c->reply.who = dyti_nccl_who_has_not_opened(as, opens);
    if (c->reply.who == as->size &&
        (int32_t)(atomic_load(&as->home->id_of) - opens) < 0) {
        c->reply.who = 0; /* the id is not there yet */
    }
    memcpy(c->reply.id, as->home->id, sizeof(c->reply.id));
}

static void answer_meet(struct client *c)
{
    struct dyti_nccl_group *as = &c->as;
    uint32_t parity = c->request->number & 1u;

    as->round = c->request->number;
    as->member[as->rank].tag[parity] = c->request->tag;
    atomic_store(&as->member[as->rank].round, as->round);
    c->reply.who = dyti_nccl_who_is_behind(as);
    c->reply.wrong = as->size;
    for (uint32_t i = as->size; c->reply.who == as->size && i-- > 0;) {
        if (as->member[i].tag[parity] != c->request->tag) {
            c->reply.wrong = i;
        }
    }
}

static enum dyt_status answer_take(struct client *c)
{
    struct dyti_nccl_group *as = &c->as;
    uint16_t place[DYTI_GROUP_POSTS];
    enum dyt_status st =
        dyti_nccl_take_some(as, place, DYTI_NCCL_MET_MOST, &c->reply.count);

    for (uint32_t i = 0; st == DYT_OK && i < c->reply.count; i++) {
        const struct dyti_nccl_offer *offer =
            &as->member[as->rank].offer[place[i] - 1];

        c->reply.met[i] =
            (struct dyti_nccl_met){.other_bytes = offer->other_bytes,
                                   .place = place[i],
                                   .is_wrong = offer->is_wrong};
        memcpy(c->reply.met[i].head, offer->head, sizeof(offer->head));
    }
    return st;
}

static bool is_sound(const struct client *c)
{
    const struct dyti_nccl_request *r = c->request;
    const uint32_t *member = (const uint32_t *)(const void *)(r + 1);
    bool sound = r->size <= c->as.size;

    if (r->op == DYTI_NCCL_ASK_OFFER || r->op == DYTI_NCCL_ASK_JOIN ||
        r->op == DYTI_NCCL_ASK_LACKS) {
        sound = sound && r->place > 0 && r->place <= DYTI_GROUP_POSTS;
        sound = sound &&
                (r->op != DYTI_NCCL_ASK_OFFER || r->offer.peer < c->as.size);
    }
    for (uint32_t i = 0; sound && i < r->size; i++) {
        sound = member[i] < c->as.size;
    }
    return sound;
}

static enum dyt_status answer(struct dyti_nccl_server *server, struct client *c)
{
    struct dyti_nccl_group *as = &c->as;
    const struct dyti_nccl_request *r = c->request;
    const uint32_t *member = (const uint32_t *)(const void *)(r + 1);

    c->reply = (struct dyti_nccl_reply){0};
    if (!is_sound(c)) {
        return DYT_ERR_INVALID;
    }
    if (r->op == DYTI_NCCL_ASK_OFFER || r->op == DYTI_NCCL_ASK_JOIN) {
        as->member[as->rank].offer[r->place - 1] = r->offer;
    }
    switch ((enum dyti_nccl_op)r->op) {
    case DYTI_NCCL_ASK_OPEN:
        answer_open(c);
        return DYT_OK;
    case DYTI_NCCL_ASK_MEET:
        answer_meet(c);
        return DYT_OK;
    case DYTI_NCCL_ASK_OFFER:
        return dyti_nccl_offer(as, r->place);
    case DYTI_NCCL_ASK_JOIN:
        return dyti_nccl_offer_joint(as, r->place, member, r->size);
    case DYTI_NCCL_ASK_LACKS:
        c->reply.who = dyti_nccl_who_lacks(as, r->place, member, r->size);
        return DYT_OK;
    case DYTI_NCCL_ASK_TAKE:
        return answer_take(c);
    case DYTI_NCCL_ASK_WITHDRAW:
        return dyti_nccl_withdraw(as, c->reply.is_met);
    case DYTI_NCCL_ASK_BYE:
        c->gone = true;
        (void)atomic_fetch_sub(&server->present, 1);
        return DYT_OK;
    }
    return DYT_ERR_INVALID;
}

static enum dyt_status post(struct dyti_nccl_server *server, uint32_t member,
                            bool is_send)
{
    struct client *c = &server->client[member];
    const struct dyti_p2p message = {
        .peer = member,
        .is_send = is_send,
        .buf = is_send ? (void *)&c->reply : (void *)c->request,
        .size_bytes = is_send ? sizeof(c->reply) : server->request_bytes};

    c->answers = is_send;
    return server->carrier.ops->post(server->carrier.self, &message,
                                     &c->ticket);
}

/* One look at a member; *moved: something has come or gone. */
static enum dyt_status attend(struct dyti_nccl_server *server, uint32_t member,
                              bool *moved)
{
    struct client *c = &server->client[member];
    enum dyt_status st =
        server->carrier.ops->poll(server->carrier.self, c->ticket);

    if (st != DYT_OK) {
        return st == DYT_PENDING ? DYT_OK : st;
    }
    *moved = true;
    if (c->answers) {
        return c->gone ? DYT_OK : post(server, member, false);
    }
    c->reply.status = (int32_t)answer(server, c);
    if (c->gone) { /* it does not wait for an answer */
        return DYT_OK;
    }
    return post(server, member, true);
}

/* Whoever asks later is told at once, and not by his deadline, that nobody
 * answers any more: the answer to it is sent before.  DYT_PENDING: not all have
 * been told. */
static enum dyt_status tell_closed(struct dyti_nccl_server *server,
                                   bool *is_told)
{
    enum dyt_status left = DYT_OK;

    for (uint32_t m = 1; m < server->size; m++) {
        struct client *c = &server->client[m];
        enum dyt_status st = DYT_OK;

        if (c->gone) {
            continue;
        }
        if (c->answers) {
            st = server->carrier.ops->poll(server->carrier.self, c->ticket);
            c->answers = st == DYT_PENDING;
        }
        if (st == DYT_OK && !is_told[m]) {
            is_told[m] = true;
            c->reply = (struct dyti_nccl_reply){.status = DYTI_NCCL_CLOSED};
            st = post(server, m, true);
        }
        if (st != DYT_OK && st != DYT_PENDING) {
            return st;
        }
        left = c->answers ? DYT_PENDING : left;
    }
    return left;
}

static void close_counter(struct dyti_nccl_server *server)
{
    bool *is_told = calloc(server->size, sizeof(*is_told));
    int64_t until = dyti_nccl_now_ns() + DYTI_NCCL_BRIEF_NS;
    uint32_t turn = 0;

    while (is_told != NULL && tell_closed(server, is_told) == DYT_PENDING &&
           dyti_nccl_now_ns() < until) {
        dyti_nccl_rest(&turn);
    }
    free(is_told);
}

/* Ends when it is told to, or when a connection ends: then the others hear no
 * more, and so of it. */
static void *serve(void *arg)
{
    struct dyti_nccl_server *server = arg;
    uint32_t turn = 0;
    enum dyt_status st = DYT_OK;

    while (st == DYT_OK && !atomic_load(&server->stops)) {
        bool moved = false;

        for (uint32_t m = 1; m < server->size && st == DYT_OK; m++) {
            st = server->client[m].gone ? DYT_OK : attend(server, m, &moved);
        }
        turn = moved ? 0 : turn;
        dyti_nccl_rest(&turn);
    }
    if (st == DYT_OK && atomic_load(&server->present) > 0) {
        close_counter(server);
    }
    atomic_store(&server->is_lost, st != DYT_OK);
    return NULL;
}

/* ---- open and close -------------------------------------------------------
 */

static enum dyt_status open_server(struct dyti_nccl_group *group,
                                   const struct dyti_group *carrier,
                                   uint64_t bytes)
{
    struct dyti_nccl_server *server = calloc(1, sizeof(*server));
    enum dyt_status st = DYT_OK;

    group->server = server;
    if (server == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "group %s", group->name);
    }
    server->carrier = *carrier;
    server->request_bytes = bytes;
    server->size = group->size;
    atomic_store(&server->present, group->size - 1);
    server->client = calloc(group->size, sizeof(*server->client));
    for (uint32_t m = 1; server->client != NULL && m < group->size; m++) {
        struct client *c = &server->client[m];

        c->as.name = group->name;
        c->as.rank = m;
        c->as.size = group->size;
        c->as.world_rank = group->world_rank;
        c->as.everybody = group->everybody;
        c->as.shared = group->shared;
        c->as.abort = group->abort;
        c->as.timeout_ns = group->timeout_ns;
        dyti_nccl_find_region(&c->as);
        c->request = calloc(1, bytes);
        st = c->request == NULL ? DYT_ERR_NOMEM : st;
    }
    if (server->client == NULL || st != DYT_OK) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "group %s: room for %u members",
                         group->name, group->size);
    }
    for (uint32_t m = 1; m < group->size && st == DYT_OK; m++) {
        st = post(server, m, false);
    }
    if (st == DYT_OK && pthread_create(&server->thread, NULL, serve, server)) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "group %s: a thread", group->name);
    }
    server->runs = st == DYT_OK;
    return st;
}

enum dyt_status dyti_nccl_desk_init(struct dyti_nccl_group *group,
                                    const struct dyti_group *carrier)
{
    uint64_t bytes =
        sizeof(struct dyti_nccl_request) + group->size * sizeof(uint32_t);

    if (group->size == 1) {
        return DYT_OK;
    }
    return group->rank == 0 ? open_server(group, carrier, bytes)
                            : dyti_nccl_desk_begin(group, carrier, bytes);
}

/* How long the others may take to close.  None of them does after an abort; if
 * somebody is missing, others only; members that are in different calls have
 * all come. */
static int64_t patience_ns(const struct dyti_nccl_group *group)
{
    if (atomic_load(&group->abort->value) != 0 ||
        atomic_load(&group->server->is_lost)) {
        return 0;
    }
    return group->broken == DYT_OK || group->broken == DYT_ERR_INVALID
               ? DYTI_NCCL_BYE_NS
               : DYTI_NCCL_BRIEF_NS;
}

/* Those that still wait for an answer get it. */
static void close_server(struct dyti_nccl_group *group)
{
    struct dyti_nccl_server *server = group->server;
    int64_t from = dyti_nccl_now_ns();
    uint32_t turn = 0;

    while (server->runs && atomic_load(&server->present) > 0 &&
           dyti_nccl_now_ns() - from < patience_ns(group)) {
        dyti_nccl_rest(&turn);
    }
    atomic_store(&server->stops, true);
    if (server->runs) {
        (void)pthread_join(server->thread, NULL);
    }
    if (atomic_load(&server->present) > 0) { /* else nothing is under way */
        server->carrier.ops->cancel(server->carrier.self);
    }
    for (uint32_t m = 0; server->client != NULL && m < server->size; m++) {
        free(server->client[m].request);
    }
    free(server->client);
    free(server);
}

void dyti_nccl_desk_fini(struct dyti_nccl_group *group)
{
    if (group->server != NULL) {
        close_server(group);
    }
    if (group->desk != NULL) {
        dyti_nccl_desk_end(group);
    }
}
