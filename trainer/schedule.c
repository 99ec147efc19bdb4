/* Constant, linear and cosine learning rates with warm-up. */
#include "trainer/schedule.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

double dyti_schedule_lr(const struct dyti_trainer_config *config,
                        uint64_t update)
{
    double lr = (double)config->lr, least = (double)config->min_lr, done;
    uint64_t warm = config->warmup_updates, total = config->total_updates;

    if (update < warm) {
        return lr * (double)(update + 1) / (double)warm;
    }
    if (config->schedule == DYTI_LR_CONSTANT) {
        return lr;
    }
    if (update >= total) {
        return least;
    }
    done = (double)(update - warm) / (double)(total - warm);
    if (config->schedule == DYTI_LR_LINEAR) {
        return least + (lr - least) * (1 - done);
    }
    return least + (lr - least) * 0.5 * (1 + cos(pi * done));
}
