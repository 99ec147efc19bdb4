/* The transaction: prepare, transfer, verify, vote, commit. */
#include "exec/switch_internal.h"

#include "base/hash.h"
#include "base/trace.h"

#include <stdio.h>
#include <stdlib.h>

const char *dyti_switch_point_name(enum dyti_switch_point point)
{
    static const char *const name[DYTI_AT_COUNT] = {
        "start",    "prepared", "wave",       "transferred",
        "verified", "voted",    "committing", "decided"};

    return point < DYTI_AT_COUNT ? name[point] : "?";
}

static unsigned char *own_region(const void *arg, uint32_t slot, uint32_t kind,
                                 uint64_t offset)
{
    const struct dyti_switch_params *params = arg;

    return dyti_switch_address(params, params->rank, slot, kind, offset);
}

static enum dyt_status allocate(struct dyti_switch *self)
{
    size_t spans = self->schedule->span_count + 1u;
    size_t steps = self->schedule->step_count + 1u;
    size_t ranks = self->params.world_size;

    self->copy = calloc(spans, sizeof(*self->copy));
    self->waits = calloc(steps, sizeof(*self->waits));
    self->ready = calloc(steps, sizeof(*self->ready));
    self->meeting = calloc(ranks * DYTI_MEET_WORDS, sizeof(*self->meeting));
    self->counts = calloc(ranks, sizeof(*self->counts));
    if (self->copy == NULL || self->waits == NULL || self->ready == NULL ||
        self->meeting == NULL || self->counts == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a switch of %zu spans", spans);
    }
    for (size_t r = 0; r < ranks; r++) {
        self->counts[r] = DYTI_MEET_WORDS * sizeof(uint64_t);
    }
    return DYT_OK;
}

void dyti_switch_destroy(struct dyti_switch *self)
{
    if (self == NULL) {
        return;
    }
    dyti_switch_destroy(self->other);
    dyti_queue_fini(self); /* it counts steps of the schedule */
    dyti_in_place_fini(self);
    dyti_verifier_fini(&self->verifier);
    dyti_messages_fini(self);
    free(self->copy);
    free(self->waits);
    free(self->ready);
    free(self->meeting);
    free(self->counts);
    free(self);
}

enum dyt_status dyti_switch_create(const struct dyti_switch_params *params,
                                   struct dyti_switch **out_switch)
{
    struct dyti_switch *self = calloc(1, sizeof(*self));
    enum dyt_status st;

    if (self == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a switch");
    }
    self->params = *params;
    dyti_mode_sets(&self->params, params->is_other);
    self->schedule = params->plan->schedule;
    if (self->schedule->rank != params->rank ||
        self->schedule->world_size != params->world_size) {
        st = DYTI_FAIL(DYT_ERR_INVALID,
                       "rank %u of %u was given the schedule of rank %u of %u",
                       params->rank, params->world_size, self->schedule->rank,
                       self->schedule->world_size);
        goto out;
    }
    if (params->map[params->rank].mode == DYTI_MODE_IN_PLACE) {
        st = dyti_in_place_init(self);
    } else {
        st = DYT_OK;
    }
    if (st == DYT_OK) {
        st = allocate(self);
    }
    if (st == DYT_OK) {
        st = dyti_switch_resolve(self);
    }
    if (st == DYT_OK) {
        st = dyti_messages_init(self);
    }
    if (st == DYT_OK) {
        st = dyti_verifier_init(
            &self->verifier, &params->plan->plan->inputs, params->rank,
            &params->kernels, params->device_memory, own_region, &self->params);
    }
    if (st == DYT_OK) {
        st = dyti_mode_init(self);
    }
    if (st == DYT_OK) {
        st = dyti_queue_init(self);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("preparing a switch on rank %u", params->rank);
        goto out;
    }
    *out_switch = self;
    self = NULL;
out:
    dyti_switch_destroy(self);
    return st;
}

/* ---- the parts of a run ----------------------------------------------------
 */

static int64_t now(const struct dyti_switch *self)
{
    const struct dyti_clock_ops *clock = self->params.clock;

    return clock == NULL ? 0 : clock->now_ns(self->params.clock_self);
}

void dyti_switch_at(const struct dyti_switch_order *order,
                    enum dyti_switch_point point)
{
#ifdef DYT_TEST_HOOKS
    if (order->at != NULL) {
        order->at(order->at_arg, point);
    }
#else
    (void)order;
    (void)point;
#endif
}

enum dyt_status dyti_switch_move(struct dyti_switch *self,
                                 const struct dyti_switch_order *order)
{
    return self->in_place != NULL ? dyti_in_place_transfer(self, order)
                                  : dyti_switch_transfer(self, order);
}

static enum dyt_status transfer(struct dyti_switch *self,
                                const struct dyti_switch_order *order)
{
    enum dyt_status st = DYT_OK;

#ifdef DYT_TEST_HOOKS
    if (order->fault != DYTI_FAULT_NONE) {
        st = dyti_fault_before(self, order);
        if (st == DYT_OK && order->fault != DYTI_FAULT_LATE &&
            (order->fault != DYTI_FAULT_SKIP || self->in_place != NULL)) {
            st = dyti_switch_move(self, order);
        }
        return st == DYT_OK ? dyti_fault_after(self, order) : st;
    }
#else
#endif
    st = dyti_switch_move(self, order);
    return st;
}

static uint64_t seed_of(const struct dyti_switch *self,
                        const struct dyti_switch_order *order)
{
    return dyti_fingerprint_u64(self->params.plan->fingerprint, order->epoch);
}

/* Live memory is INVALID before anybody writes there: pushed bytes wait for
 * those whose memory it is. */
static enum dyt_status open_live(struct dyti_switch *self,
                                 const struct dyti_switch_order *order)
{
    const struct dyti_group *all = &self->params.all;

    if (!self->params.overwrites) {
        return DYT_OK;
    }
    dyti_mode_overwrites(self, order->epoch);
    return self->schedule->options.side == DYTI_SIDE_PUSH && all->size > 1
               ? all->ops->barrier(all->self)
               : DYT_OK;
}

/* In place the sources are gone when the destination is there. */
static enum dyt_status remember_sources(struct dyti_switch *self,
                                        const struct dyti_switch_order *order)
{
    return self->in_place == NULL || order->verify == DYTI_VERIFY_OFF
               ? DYT_OK
               : dyti_verifier_sources(&self->verifier,
                                       order->verify == DYTI_VERIFY_FULL,
                                       seed_of(self, order));
}

static enum dyt_status verify(struct dyti_switch *self,
                              const struct dyti_switch_order *order,
                              enum dyt_status transferred, uint64_t *out_bytes)
{
    const struct dyti_group *all = &self->params.all;
    enum dyt_status st = transferred, met;

    /* Pushed bytes are there when the one who pushes says so. */
    if (self->schedule->options.side == DYTI_SIDE_PUSH &&
        self->params.world_size > 1) {
        met = all->ops->barrier(all->self);
        st = st != DYT_OK ? st : met;
    }
    if (order->verify == DYTI_VERIFY_OFF) {
        return st;
    }
    return dyti_verifier_run(&self->verifier, all,
                             order->verify == DYTI_VERIFY_FULL,
                             seed_of(self, order), st, out_bytes);
}

/* All have moved their bytes, and found what differs: it may be the caller that
 * knows why. */
static enum dyt_status ask_caller(const struct dyti_switch_order *order,
                                  enum dyt_status verified)
{
    enum dyt_status st = DYT_OK;
    char words[1024];

    if (order->check == NULL || order->verify == DYTI_VERIFY_OFF ||
        (verified != DYT_OK && verified != DYT_ERR_VERIFY)) {
        return verified;
    }
    (void)snprintf(words, sizeof(words), "%s", dyti_error_message());
    st = order->check(order->check_arg);
    return st != DYT_OK || verified == DYT_OK
               ? st
               : dyti_error_adopt(verified, words);
}

/* Vote, wait for the one decision. */
static enum dyti_decision vote(struct dyti_switch *self,
                               const struct dyti_switch_order *order,
                               enum dyt_status mine)
{
    const struct dyti_switch_params *params = &self->params;

    mine = dyti_apart_votes(self, order->epoch, mine);
    dyti_switch_vote(params->control, params->wait, params->rank, order->epoch,
                     mine == DYT_OK ? DYTI_VOTE_READY : DYTI_VOTE_FAILED, mine);
    dyti_switch_at(order, DYTI_AT_VOTED);
#ifdef DYT_TEST_HOOKS
    if (order->fault == DYTI_FAULT_LATE) {
        (void)dyti_switch_transfer(self, order);
    }
#endif
    if (order->unmanaged) {
        (void)dyti_switch_commit(params->control, params->wait, order->epoch);
    }
    return dyti_switch_await(params->control, params->wait, order->epoch,
                             params->timeout_ns);
}

/* What this rank said of its failure stays said: a decision has words too. */
static enum dyti_decision vote_failed(struct dyti_switch *self,
                                      const struct dyti_switch_order *order,
                                      enum dyt_status mine)
{
    enum dyti_decision decision;
    char words[1024];

    (void)snprintf(words, sizeof(words), "%s", dyti_error_message());
    decision = vote(self, order, mine);
    (void)dyti_error_adopt(mine, words);
    return decision;
}

/* The epoch is not ours: nothing to vote on, nothing to leave. */
static bool foreign_epoch(const struct dyti_switch *self,
                          const struct dyti_switch_order *order)
{
    return atomic_load(&self->params.control->epoch) != order->epoch;
}

#ifdef DYT_TEST_HOOKS
static enum dyt_status half_way(void *arg)
{
    const struct dyti_switch_order *order = arg;

    dyti_switch_at(order, DYTI_AT_COMMITTING);
    return order->fault == DYTI_FAULT_COMMIT
               ? DYTI_FAIL(DYT_ERR_DEVICE, "a local copy")
               : DYT_OK;
}
#endif

/* What the mode does when all have decided for it. */
static enum dyt_status commit(struct dyti_switch *self,
                              const struct dyti_switch_order *order)
{
    struct dyti_control_rank *rank =
        &self->params.control->rank[self->params.rank];
    enum dyt_status st;

#ifdef DYT_TEST_HOOKS
    struct dyti_switch_order told = *order;

    st = dyti_mode_commit(self, order->epoch, half_way, &told);
#else
    st = dyti_mode_commit(self, order->epoch, NULL, NULL);
#endif
    if (st != DYT_OK) {
        return st;
    }
    atomic_store(&rank->serves, order->version);
#ifdef DYT_TEST_HOOKS
    if (!order->keep_abandoned) {
        return dyti_fault_fill_abandoned(self);
    }
#endif
    return DYT_OK;
}

static enum dyt_status leave(struct dyti_switch *self,
                             const struct dyti_switch_order *order,
                             struct dyti_switch_report *report)
{
    struct dyti_control_page *page = self->params.control;
    enum dyt_status st = DYT_OK;

    report->version = atomic_load(&page->version);
    if (report->decision == DYTI_DECISION_COMMIT) {
        report->version = order->version;
        st = commit(self, order);
    }
    dyti_switch_at(order, DYTI_AT_DECIDED);
    dyti_apart_leave(self, order->epoch);
    dyti_switch_leave(page, self->params.rank, order->epoch);
    return st;
}

/* A rank that was well, and reads that all of them give up. */
static enum dyt_status say_why(struct dyti_switch *self,
                               const struct dyti_switch_order *order)
{
    enum dyt_status st = dyti_switch_commit(self->params.control,
                                            self->params.wait, order->epoch);

    return st == DYT_OK || st == DYT_PENDING
               ? DYTI_FAIL(DYT_ERR_PEER, "switch %llu aborted",
                           (unsigned long long)order->epoch)
               : st;
}

static void fill_counts(const struct dyti_switch *self,
                        const struct dyti_switch_order *order,
                        struct dyti_switch_report *report)
{
    *report = (struct dyti_switch_report){
        .epoch = order->epoch,
        .kept_bytes = self->kept_bytes,
        .moved_bytes = self->moved_bytes,
        .read_bytes = self->schedule->read_bytes,
        .written_bytes = self->schedule->write_bytes,
        .step_count = self->schedule->step_count,
        .copy_count = self->schedule->span_count};
}

/* A part of a switch, as the trace and the device's own tools show it. */
static struct dyti_trace_region begin_part(const struct dyti_switch *self,
                                           const char *name, const char *range)
{
    dyti_kernels_push(&self->params.kernels, range);
    return dyti_trace_begin("exec", name);
}

static void end_part(const struct dyti_switch *self,
                     struct dyti_trace_region *region, uint64_t bytes)
{
    dyti_trace_end(region, bytes);
    dyti_kernels_pop(&self->params.kernels);
}

enum dyt_status dyti_switch_run(struct dyti_switch *self,
                                const struct dyti_switch_order *order,
                                struct dyti_switch_report *out_report)
{
    struct dyti_switch_report *report = out_report;
    struct dyti_trace_region region;
    int64_t start, met, moved, checked, decided;
    enum dyt_status st = self->refusal, left;

    self->refusal = DYT_OK;
    self = dyti_mode_live(self);
    self->refusal = st;
    start = now(self);
    fill_counts(self, order, report);
    dyti_switch_at(order, DYTI_AT_START);
    region = begin_part(self, "prepare", "exec: prepare");
    dyti_messages_begin(self, order->epoch);
    st = dyti_switch_meet(self, order);
    end_part(self, &region, 0);
    met = moved = checked = now(self);
    if (st != DYT_OK && foreign_epoch(self, order)) {
        dyti_apart_fail(self, st);
        DYTI_NOTE("preparing switch %llu on rank %u",
                  (unsigned long long)order->epoch, self->params.rank);
        report->version = atomic_load(&self->params.control->version);
        return st;
    }
    dyti_switch_at(order, DYTI_AT_PREPARED);
    if (st == DYT_OK) {
        region = begin_part(self, "transfer", "exec: transfer");
        st = self->params.met == NULL ? DYT_OK
                                      : self->params.met(self->params.met_arg);
        st = st != DYT_OK ? st : open_live(self, order);
        st = st != DYT_OK ? st : remember_sources(self, order);
        st = st != DYT_OK ? st : transfer(self, order);
        if (st != DYT_OK) {
            dyti_apart_fail(self, st);
        }
        end_part(self, &region, self->kept_bytes + self->moved_bytes);
        moved = now(self);
        dyti_switch_at(order, DYTI_AT_TRANSFERRED);
        region = begin_part(self, "verify", "exec: verify");
        st = verify(self, order, st, &report->verified_bytes);
        st = ask_caller(order, st);
        end_part(self, &region, report->verified_bytes);
        checked = now(self);
    }
    if (st == DYT_OK) {
        dyti_mode_verified(self, order->epoch);
    }
    dyti_switch_at(order, DYTI_AT_VERIFIED);
    region = begin_part(self, "vote", "exec: vote");
    report->decision =
        st == DYT_OK ? vote(self, order, st) : vote_failed(self, order, st);
    end_part(self, &region, 0);
    decided = now(self);
    if (st == DYT_OK && report->decision != DYTI_DECISION_COMMIT) {
        st = say_why(self, order);
    }
    left = leave(self, order, report);
    st = st != DYT_OK ? st : left;
    report->prepare_ns = met - start;
    report->transfer_ns = moved - met;
    report->verify_ns = checked - moved;
    report->vote_ns = decided - checked;
    report->commit_ns = now(self) - decided;
    report->total_ns = now(self) - start;
    if (st != DYT_OK) {
        DYTI_NOTE("switch %llu on rank %u", (unsigned long long)order->epoch,
                  self->params.rank);
    }
    return st;
}
