/* The learning rate of an update: a pure function of its number. */
#ifndef DYTI_TRAINER_SCHEDULE_H
#define DYTI_TRAINER_SCHEDULE_H

#include "trainer/trainer.h"

/* update: 0 for the first.  Warm-up: lr * (update + 1) / warmup_updates; then
 * from lr at warmup_updates to min_lr at total_updates and beyond. */
double dyti_schedule_lr(const struct dyti_trainer_config *config,
                        uint64_t update);

#endif /* DYTI_TRAINER_SCHEDULE_H */
