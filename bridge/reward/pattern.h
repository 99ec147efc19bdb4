/* Internal to bridge/reward: the pattern entries of the table. */
#ifndef DYTI_REWARD_PATTERN_H
#define DYTI_REWARD_PATTERN_H

#include "ops/reward.h"

enum dyt_status dyti_pattern_open(const char *pattern, bool ignore_case,
                                  void **out_pattern);
void dyti_pattern_close(void *pattern);
enum dyt_status dyti_pattern_search(void *pattern, const char *text,
                                    size_t text_bytes, bool *out_found,
                                    size_t *out_lo, size_t *out_hi);

#endif /* DYTI_REWARD_PATTERN_H */
