/* Faults that tests order through DYNATRAIN_FAULT, in test builds only; in
 * others every function here is empty and no setting of that name exists.
 *
 *   DYNATRAIN_FAULT="rank=2,at=verified,step=3,how=kill"
 *
 *   rank   a number, "manager", or "all" (ranks); default "all"
 *   at     a point: hello built loaded generate generated train trained
 *          checkpoint checkpointed, those of a switch (exec/switch.h), and of
 *          the manager: spawned begin votes commit save parts saved
 *   step   the first step at which it happens; default 0
 *   to     "rollout" or "train": of points in a switch; default either
 *   how    kill hang exit fail, or a mistake: skip stale swap_kv late (at a
 *          switch), drop_micro double_shared double_replica (training),
 *          stale_kv (rollout)
 *   tensor what is stale; default 0
 *
 * Read once, at the start of a process. */
#ifndef DYTI_CLI_FAULT_H
#define DYTI_CLI_FAULT_H

#include "exec/switch.h"
#include "rollout/engine.h"
#include "trainer/trainer.h"
#include "wire/wire.h"

#define DYTI_FAULT_MANAGER (-1)

struct dyti_faults {
#ifdef DYT_TEST_HOOKS
    bool armed; /* this process is meant */
    char at[16], to[16], how[16];
    uint64_t step, tensor;
    uint64_t now;       /* step of the process */
    const char *target; /* of the switch that runs */
#else
    bool none;
#endif
};

#ifdef DYT_TEST_HOOKS

/* DYT_ERR_CONFIG: the setting cannot be read. */
enum dyt_status dyti_faults_read(struct dyti_faults *faults, int32_t self);
void dyti_faults_step(struct dyti_faults *faults, uint64_t step);
/* A point is reached.  Not DYT_OK: fail here. */
enum dyt_status dyti_faults_at(struct dyti_faults *faults, const char *point);
/* All ranks have voted: so that "votes" lies between the votes and the
 * decision, not somewhere before. */
void dyti_faults_await_votes(struct dyti_faults *faults,
                             struct dyti_control_page *page, uint32_t ranks,
                             uint64_t epoch, const struct dyti_wait_ops *wait);
void dyti_faults_switch(struct dyti_faults *faults, enum dyti_target target,
                        struct dyti_switch_order *order);
void dyti_faults_trainer(const struct dyti_faults *faults,
                         struct dyti_trainer_params *params);
void dyti_faults_rollout(const struct dyti_faults *faults,
                         struct dyti_rollout_params *params);

#else

static inline enum dyt_status dyti_faults_read(struct dyti_faults *faults,
                                               int32_t self)
{
    (void)faults;
    (void)self;
    return DYT_OK;
}

static inline void dyti_faults_step(struct dyti_faults *faults, uint64_t step)
{
    (void)faults;
    (void)step;
}

static inline enum dyt_status dyti_faults_at(struct dyti_faults *faults,
                                             const char *point)
{
    (void)faults;
    (void)point;
    return DYT_OK;
}

static inline void dyti_faults_await_votes(struct dyti_faults *faults,
                                           struct dyti_control_page *page,
                                           uint32_t ranks, uint64_t epoch,
                                           const struct dyti_wait_ops *wait)
{
    (void)faults;
    (void)page;
    (void)ranks;
    (void)epoch;
    (void)wait;
}

static inline void dyti_faults_switch(struct dyti_faults *faults,
                                      enum dyti_target target,
                                      struct dyti_switch_order *order)
{
    (void)faults;
    (void)target;
    (void)order;
}

static inline void dyti_faults_trainer(const struct dyti_faults *faults,
                                       struct dyti_trainer_params *params)
{
    (void)faults;
    (void)params;
}

static inline void dyti_faults_rollout(const struct dyti_faults *faults,
                                       struct dyti_rollout_params *params)
{
    (void)faults;
    (void)params;
}

#endif /* DYT_TEST_HOOKS */
#endif /* DYTI_CLI_FAULT_H */
