/* 1F1B: pipeline stage s of pp runs pp - 1 - s forward passes ahead, then one
 * forward and one backward pass in turn, then the backward passes that are
 * left.  So at most pp - s micro-batches are alive on it.
 *
 *   stage 0   F0 F1 F2 B0 F3 B1 … B
 *   stage 1      F0 F1 B0 F2 B1 …          pp = 3
 *   stage 2         F0 B0 F1 B1 …
 *
 * Where a stage has something to send and to receive, both make progress
 * together: neighbours cannot wait for each other in a circle. */
#include "trainer/rank.h"

#include <stdlib.h>

struct pipeline {
    struct dyti_trainer *t;
    const struct dyti_pass *pass;
    uint32_t count;               /* micro-batches */
    struct dyti_nn_saved **saved; /* [slot_count] */
};

/* Member number of the same (tp, dp) on another stage. */
static uint32_t stage_member(const struct dyti_trainer *t, uint32_t pp)
{
    const struct dyti_part *part = &t->view->part;

    return (pp * part->dp_size + part->dp_rank) * part->tp_size + part->tp_rank;
}

static bool is_first(const struct pipeline *p)
{
    return p->t->view->part.pp_rank == 0;
}

static bool is_last(const struct pipeline *p)
{
    return p->t->view->part.pp_rank + 1 == p->t->view->part.pp_size;
}

#define NOTHING UINT32_MAX

/* What goes over the border to one neighbour: numbers of micro-batches. */
struct border {
    bool next; /* to and from the next stage, else the previous one */
    uint32_t send, receive;
};

static struct dyti_p2p message(const struct pipeline *p, uint32_t peer,
                               uint32_t micro, bool is_send, float *buf)
{
    const struct dyti_micro *m = &p->pass->micros->micro[micro];
    uint64_t width = (uint64_t)p->t->nn->model->arch.hidden;

    return (struct dyti_p2p){.peer = peer,
                             .is_send = is_send,
                             .buf = buf,
                             .size_bytes = (uint64_t)m->nn.packed.row_count *
                                           width * sizeof(float)};
}

/* Activations go to the next stage, gradients to the previous one. */
static enum dyt_status cross(const struct pipeline *p, struct border b)
{
    struct dyti_trainer *t = p->t;
    uint32_t stage = t->view->part.pp_rank;
    uint32_t peer;
    struct dyti_p2p msg[2];
    size_t count = 0;
    enum dyt_status st;

    if (b.next ? is_last(p) : is_first(p)) {
        return DYT_OK; /* the end of the line */
    }
    peer = stage_member(t, b.next ? stage + 1 : stage - 1);
    if (b.send != NOTHING) {
        msg[count++] = message(p, peer, b.send, true,
                               b.next ? t->ws.hidden : t->ws.dhidden);
    }
    if (b.receive != NOTHING) {
        msg[count++] = message(p, peer, b.receive, false,
                               b.next ? t->ws.dhidden : t->ws.hidden);
    }
    st = t->p.all.ops->exchange(t->p.all.self, msg, count);
    if (st != DYT_OK) {
        DYTI_NOTE("passing a micro-batch between pipeline stages %u and %u",
                  stage, b.next ? stage + 1 : stage - 1);
    }
    return st;
}

static enum dyt_status forward(struct pipeline *p, uint32_t i)
{
    struct dyti_trainer *t = p->t;
    const struct dyti_micro *m = &p->pass->micros->micro[i];
    uint32_t slot = i % t->ws.slot_count;
    struct dyti_region work, saved;
    enum dyt_status st;

    dyti_region_init(&work, t->ws.nn, t->ws.nn_bytes);
    dyti_region_init(&saved, t->ws.slot + slot * t->ws.slot_bytes,
                     t->ws.slot_bytes);
    st = dyti_nn_forward(t->nn, p->pass->weights, &m->nn, t->ws.hidden,
                         t->p.config.recompute, p->pass->train ? &saved : NULL,
                         &work, p->pass->train ? &p->saved[slot] : NULL);
    if (st == DYT_OK && p->pass->train) {
        t->live++;
        dyti_require(t->live <= t->ws.slot_count);
        t->live_max = t->live > t->live_max ? t->live : t->live_max;
    }
    if (st == DYT_OK && is_last(p)) {
        st = dyti_head_run(t, p->pass, m,
                           p->pass->drop_last && i + 1 == p->count);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("forward pass of micro-batch %u of %u", i + 1, p->count);
    } else {
        dyti_rank_progress(t);
    }
    return st;
}

static enum dyt_status backward(struct pipeline *p, uint32_t i)
{
    struct dyti_trainer *t = p->t;
    const struct dyti_micro *m = &p->pass->micros->micro[i];
    struct dyti_region work;
    enum dyt_status st;

    dyti_region_init(&work, t->ws.nn, t->ws.nn_bytes);
    st = dyti_nn_backward(t->nn, p->pass->weights, &t->grads, &m->nn,
                          p->saved[i % t->ws.slot_count], t->ws.dhidden, &work);
    t->live--;
    if (st != DYT_OK) {
        DYTI_NOTE("backward pass of micro-batch %u of %u", i + 1, p->count);
    } else {
        dyti_rank_progress(t);
    }
    return st;
}

/* The first `ahead` forward passes, and the arrival of the next one. */
static enum dyt_status warm_up(struct pipeline *p, uint32_t ahead)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < ahead && st == DYT_OK; i++) {
        st = cross(p, (struct border){false, NOTHING, i});
        st = st ? st : forward(p, i);
        st = st ? st : cross(p, (struct border){true, i, NOTHING});
    }
    if (st == DYT_OK && ahead < p->count) {
        st = cross(p, (struct border){false, NOTHING, ahead});
    }
    return st;
}

/* One forward and one backward pass: of micro-batches i + ahead and i. */
static enum dyt_status turn(struct pipeline *p, uint32_t i, uint32_t ahead)
{
    uint32_t next = i + ahead + 1 < p->count ? i + ahead + 1 : NOTHING;
    enum dyt_status st = forward(p, i + ahead);

    st = st ? st : cross(p, (struct border){true, i + ahead, i});
    st = st ? st : backward(p, i);
    return st ? st : cross(p, (struct border){false, i, next});
}

static enum dyt_status train(struct pipeline *p)
{
    const struct dyti_part *part = &p->t->view->part;
    uint32_t ahead = part->pp_size - 1 - part->pp_rank;
    enum dyt_status st;

    ahead = ahead < p->count ? ahead : p->count;
    st = warm_up(p, ahead);
    for (uint32_t i = 0; i + ahead < p->count && st == DYT_OK; i++) {
        st = turn(p, i, ahead);
    }
    for (uint32_t i = p->count - ahead; i < p->count && st == DYT_OK; i++) {
        st = cross(p, (struct border){true, NOTHING, i});
        st = st ? st : backward(p, i);
        st = st ? st : cross(p, (struct border){false, i, NOTHING});
    }
    return st;
}

static enum dyt_status score(struct pipeline *p)
{
    enum dyt_status st = DYT_OK;

    for (uint32_t i = 0; i < p->count && st == DYT_OK; i++) {
        st = cross(p, (struct border){false, NOTHING, i});
        st = st ? st : forward(p, i);
        st = st ? st : cross(p, (struct border){true, i, NOTHING});
    }
    return st;
}

enum dyt_status dyti_pipeline_run(struct dyti_trainer *t,
                                  const struct dyti_pass *pass)
{
    struct pipeline p = {
        .t = t, .pass = pass, .count = pass->micros->micro_count};
    enum dyt_status st;

    if (pass->micros->most_rows > (uint64_t)t->ws.rows) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "a micro-batch of %llu rows in work memory for %lld: "
                         "the batch is larger than batch_sequences = %u",
                         (unsigned long long)pass->micros->most_rows,
                         (long long)t->ws.rows, t->p.config.batch_sequences);
    }
    p.saved = calloc(t->ws.slot_count, sizeof(*p.saved));
    if (p.saved == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u micro-batches", t->ws.slot_count);
    }
    t->live = 0;
    st = pass->train ? train(&p) : score(&p);
    free(p.saved);
    return st;
}
