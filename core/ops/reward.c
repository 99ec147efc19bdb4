#include "ops/reward.h"

#include "base/banned.h"

static void free_values(struct dyti_reward_value *value, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        free(value[i].name);
    }
    free(value);
}

void dyti_reward_reply_fini(struct dyti_reward_reply *reply)
{
    free_values(reply->component, reply->component_count);
    free_values(reply->metric, reply->metric_count);
    *reply = (struct dyti_reward_reply){0};
}
