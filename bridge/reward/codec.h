/* Internal to bridge/reward: what goes to a command and what comes back.
 *
 * Request: one line, a list with one object for each sample:
 *   {"id": 0, "group": 7, "prompt": "…", "completion": "…",
 *    "completion_ids": [1, 2], "finish_reason": "stop", "version": 3,
 *    "step": 4, …}      … = all fields of the data row with other names
 * Answer: one line, a list, each id once, in any order:
 *   {"id": 0, "reward": 0.5, "components": {"a": 1}, "metrics": {"b": 2}}
 * reward null: the sample is dropped.  components and metrics may be left out.
 */
#ifndef DYTI_REWARD_CODEC_H
#define DYTI_REWARD_CODEC_H

#include "ops/reward.h"

/* The line with its newline; *out_text is malloc'ed.
 * DYT_ERR_FORMAT: a text is not UTF-8, or a row no JSON object. */
enum dyt_status dyti_reward_request(const struct dyti_reward_item *item,
                                    size_t count, char **out_text,
                                    size_t *out_bytes);

/* reply [count] is in the order of the ids 0 … count - 1 and filled only on
 * DYT_OK.  DYT_ERR_FORMAT says what is wrong with the answer. */
enum dyt_status dyti_reward_answer(const char *text, size_t text_bytes,
                                   size_t count,
                                   struct dyti_reward_reply *reply);

#endif /* DYTI_REWARD_CODEC_H */
