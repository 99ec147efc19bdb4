/* Groups whose members share no memory: the first one keeps the region, and a
 * thread of it does there what the others ask for, over a group of hosts that
 * is theirs alone (params.carrier).  A member asks one thing at a time and
 * waits for the answer, so that the region's rules hold for all alike. */
#include "comm/nccl/nccl_group.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MET_MOST 32u
#define BYE_NS   5000000000 /* in which the others close, too */

enum op { OPEN = 1, MEET, OFFER, JOIN, LACKS, TAKE, WITHDRAW, BYE };

/* What a member asks; a team's list stands behind it. */
struct request {
    uint32_t op, number; /* OPEN: how often; MEET: which round */
    uint64_t tag;
    uint32_t size; /* of the team's list */
    uint16_t place;
    struct dyti_nccl_offer offer;
};

struct met {
    uint64_t other_bytes;
    uint16_t place;
    bool is_wrong;
    unsigned char head[DYTI_P2P_HEAD_BYTES];
};

struct reply {
    int32_t status;
    uint32_t who;   /* has not come, or lacks it; size: nobody */
    uint32_t wrong; /* MEET: is in another call; size: nobody */
    uint32_t count; /* TAKE */
    unsigned char id[NCCL_UNIQUE_ID_BYTES];
    bool is_met[DYTI_GROUP_POSTS];
    struct met met[MET_MOST];
};

/* Of a member that asks. */
struct dyti_nccl_desk {
    struct dyti_group carrier;
    struct request *request; /* with room for a list of all; owned */
    uint64_t request_bytes;
    struct reply reply;
};

/* One of them, as the first member knows it. */
struct client {
    struct dyti_nccl_group as; /* who it is, in the region */
    struct request *request;   /* owned */
    struct reply reply;
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
    _Atomic bool stops;
    _Atomic uint32_t present; /* have not said goodbye */
};

/* ---- asking ---------------------------------------------------------------
 */

/* Until a ticket of the carrier is done. */
static enum dyt_status carried(struct dyti_nccl_group *group, uint64_t ticket,
                               int64_t deadline)
{
    const struct dyti_group *c = &group->desk->carrier;
    uint32_t turn = 0;
    enum dyt_status st;

    while ((st = c->ops->poll(c->self, ticket)) == DYT_PENDING) {
        st = dyti_nccl_look_at_abort(group);
        if (st == DYT_OK && deadline > 0 && dyti_nccl_now_ns() > deadline) {
            st = DYTI_FAIL(DYT_ERR_TIMEOUT,
                           "group %s: rank %u: no answer of rank %u, which "
                           "keeps the list of messages",
                           group->name, group->world_rank[group->rank],
                           group->world_rank[0]);
        }
        if (st != DYT_OK) {
            return st;
        }
        dyti_nccl_rest(&turn);
    }
    return st;
}

static enum dyt_status ask(struct dyti_nccl_group *group, enum op op)
{
    struct dyti_nccl_desk *desk = group->desk;
    const struct dyti_group *c = &desk->carrier;
    const struct dyti_p2p message[2] = {
        {.buf = &desk->reply, .size_bytes = sizeof(desk->reply)},
        {.is_send = true,
         .buf = desk->request,
         .size_bytes = desk->request_bytes}};
    int64_t deadline =
        op == OPEN ? dyti_nccl_open_deadline(group) : dyti_nccl_deadline(group);
    uint64_t ticket[2] = {0};
    enum dyt_status st = DYT_OK;

    if (group->broken != DYT_OK) {
        return dyti_nccl_enter(group);
    }
    desk->request->op = (uint32_t)op;
    for (int i = 0; i < 2 && st == DYT_OK; i++) {
        st = c->ops->post(c->self, &message[i], &ticket[i]);
    }
    for (int i = 1; i >= 0 && st == DYT_OK; i--) {
        st = carried(group, ticket[i], deadline);
    }
    if (st == DYT_OK && desk->reply.status != DYT_OK) {
        return DYTI_FAIL((enum dyt_status)desk->reply.status,
                         "group %s: rank %u keeps the list of messages, and "
                         "refuses",
                         group->name, group->world_rank[0]);
    }
    return st == DYT_OK ? st : dyti_nccl_break(group, st);
}

enum dyt_status dyti_nccl_desk_open(struct dyti_nccl_group *group,
                                    uint32_t opens, uint32_t *out_who)
{
    enum dyt_status st;

    group->desk->request->number = opens;
    st = ask(group, OPEN);
    if (st == DYT_OK) {
        *out_who = group->desk->reply.who;
        memcpy(group->home->id, group->desk->reply.id, sizeof(group->home->id));
        atomic_store(&group->home->id_of,
                     *out_who == group->size ? opens : opens - 1);
    }
    return st;
}

enum dyt_status dyti_nccl_desk_meet(struct dyti_nccl_group *group, uint64_t tag,
                                    uint32_t *out_behind, uint32_t *out_wrong)
{
    enum dyt_status st;

    group->desk->request->number = group->round;
    group->desk->request->tag = tag;
    st = ask(group, MEET);
    if (st == DYT_OK) {
        *out_behind = group->desk->reply.who;
        *out_wrong = group->desk->reply.wrong;
    }
    return st;
}

static void put_offer(struct dyti_nccl_group *group, uint16_t place,
                      const uint32_t *member, uint32_t size)
{
    struct request *request = group->desk->request;

    request->place = place;
    request->offer = group->member[group->rank].offer[place - 1];
    request->size = size;
    if (size > 0) {
        memcpy(request + 1, member, size * sizeof(*member));
    }
}

enum dyt_status dyti_nccl_desk_offer(struct dyti_nccl_group *group,
                                     uint16_t place, const uint32_t *member,
                                     uint32_t size)
{
    put_offer(group, place, member, size);
    return ask(group, size == 0 ? OFFER : JOIN);
}

uint32_t dyti_nccl_desk_who_lacks(struct dyti_nccl_group *group, uint16_t place,
                                  const uint32_t *member, uint32_t size)
{
    put_offer(group, place, member, size);
    return ask(group, LACKS) == DYT_OK ? group->desk->reply.who : UINT32_MAX;
}

enum dyt_status dyti_nccl_desk_take(struct dyti_nccl_group *group,
                                    uint16_t place[DYTI_GROUP_POSTS],
                                    uint32_t *out_count)
{
    const struct reply *reply = &group->desk->reply;
    enum dyt_status st = ask(group, TAKE);

    for (uint32_t i = 0; st == DYT_OK && i < reply->count; i++) {
        const struct met *met = &reply->met[i];
        struct dyti_nccl_offer *offer =
            &group->member[group->rank].offer[met->place - 1];

        place[i] = met->place;
        offer->is_wrong = met->is_wrong;
        offer->other_bytes = met->other_bytes;
        memcpy(offer->head, met->head, sizeof(offer->head));
    }
    *out_count = st == DYT_OK ? reply->count : 0;
    return st;
}

enum dyt_status dyti_nccl_desk_withdraw(struct dyti_nccl_group *group,
                                        bool is_met[DYTI_GROUP_POSTS])
{
    enum dyt_status st = ask(group, WITHDRAW);

    if (st == DYT_OK) {
        memcpy(is_met, group->desk->reply.is_met,
               sizeof(group->desk->reply.is_met));
    }
    return st;
}

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
        dyti_nccl_take_some(as, place, MET_MOST, &c->reply.count);

    for (uint32_t i = 0; st == DYT_OK && i < c->reply.count; i++) {
        const struct dyti_nccl_offer *offer =
            &as->member[as->rank].offer[place[i] - 1];

        c->reply.met[i] = (struct met){.other_bytes = offer->other_bytes,
                                       .place = place[i],
                                       .is_wrong = offer->is_wrong};
        memcpy(c->reply.met[i].head, offer->head, sizeof(offer->head));
    }
    return st;
}

static bool is_sound(const struct client *c)
{
    const struct request *r = c->request;
    const uint32_t *member = (const uint32_t *)(const void *)(r + 1);
    bool sound = r->size <= c->as.size;

    if (r->op == OFFER || r->op == JOIN || r->op == LACKS) {
        sound = sound && r->place > 0 && r->place <= DYTI_GROUP_POSTS;
        sound = sound && (r->op != OFFER || r->offer.peer < c->as.size);
    }
    for (uint32_t i = 0; sound && i < r->size; i++) {
        sound = member[i] < c->as.size;
    }
    return sound;
}

static enum dyt_status answer(struct dyti_nccl_server *server, struct client *c)
{
    struct dyti_nccl_group *as = &c->as;
    const struct request *r = c->request;
    const uint32_t *member = (const uint32_t *)(const void *)(r + 1);

    c->reply = (struct reply){0};
    if (!is_sound(c)) {
        return DYT_ERR_INVALID;
    }
    if (r->op == OFFER || r->op == JOIN) {
        as->member[as->rank].offer[r->place - 1] = r->offer;
    }
    switch ((enum op)r->op) {
    case OPEN:
        answer_open(c);
        return DYT_OK;
    case MEET:
        answer_meet(c);
        return DYT_OK;
    case OFFER:
        return dyti_nccl_offer(as, r->place);
    case JOIN:
        return dyti_nccl_offer_joint(as, r->place, member, r->size);
    case LACKS:
        c->reply.who = dyti_nccl_who_lacks(as, r->place, member, r->size);
        return DYT_OK;
    case TAKE:
        return answer_take(c);
    case WITHDRAW:
        return dyti_nccl_withdraw(as, c->reply.is_met);
    case BYE:
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
    return NULL;
}

/* ---- open and close -------------------------------------------------------
 */

static enum dyt_status open_desk(struct dyti_nccl_group *group,
                                 const struct dyti_group *carrier,
                                 uint64_t bytes)
{
    struct dyti_nccl_desk *desk = calloc(1, sizeof(*desk));

    group->desk = desk;
    if (desk != NULL) {
        desk->carrier = *carrier;
        desk->request = calloc(1, bytes);
        desk->request_bytes = bytes;
    }
    return desk == NULL || desk->request == NULL
               ? DYTI_FAIL(DYT_ERR_NOMEM, "group %s: room to ask", group->name)
               : DYT_OK;
}

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
    uint64_t bytes = sizeof(struct request) + group->size * sizeof(uint32_t);

    if (group->size == 1) {
        return DYT_OK;
    }
    return group->rank == 0 ? open_server(group, carrier, bytes)
                            : open_desk(group, carrier, bytes);
}

/* Those that still wait for an answer get it. */
static void close_server(struct dyti_nccl_group *group)
{
    struct dyti_nccl_server *server = group->server;
    int64_t until = dyti_nccl_now_ns() + BYE_NS;
    uint32_t turn = 0;

    while (server->runs && group->broken == DYT_OK &&
           atomic_load(&server->present) > 0 && dyti_nccl_now_ns() < until &&
           atomic_load(&group->abort->value) == 0) {
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

static void close_desk(struct dyti_nccl_group *group)
{
    struct dyti_nccl_desk *desk = group->desk;
    const struct dyti_group *c = &desk->carrier;
    uint64_t ticket = 0;

    if (desk->request != NULL && group->broken == DYT_OK) {
        const struct dyti_p2p bye = {.is_send = true,
                                     .buf = desk->request,
                                     .size_bytes = desk->request_bytes};

        memset(desk->request, 0, sizeof(*desk->request));
        desk->request->op = BYE;
        if (c->ops->post(c->self, &bye, &ticket) != DYT_OK ||
            carried(group, ticket, dyti_nccl_now_ns() + BYE_NS) != DYT_OK) {
            c->ops->cancel(c->self);
        }
    } else {
        c->ops->cancel(c->self);
    }
    free(desk->request);
    free(desk);
}

void dyti_nccl_desk_fini(struct dyti_nccl_group *group)
{
    if (group->server != NULL) {
        close_server(group);
    }
    if (group->desk != NULL) {
        close_desk(group);
    }
}
