/* Patterns (PCRE2) and reward commands (a child process that speaks JSON
 * lines), behind the table of ops/reward.h. */
#ifndef DYTI_REWARD_REWARD_H
#define DYTI_REWARD_REWARD_H

#include "ops/reward.h"

/* The one symbol that others need. */
extern const struct dyti_reward_ops dyti_reward_native;

#endif /* DYTI_REWARD_REWARD_H */
