/* A job that is right, for tests to break one line at a time. */
#ifndef JOB_TEXT_H
#define JOB_TEXT_H

#define GOOD_HEAD                                                              \
    "name = \"t\"\n"                                                           \
    "model = \"m\"\n"                                                          \
    "steps = 10\n"                                                             \
    "ranks = 4\n"
#define GOOD_DATA                                                              \
    "[data]\n"                                                                 \
    "train = \"a.jsonl\"\n"                                                    \
    "prompt = \"{x}>\"\n"                                                      \
    "max_prompt_tokens = 8\n"
#define GOOD_ALGORITHM                                                         \
    "[algorithm]\n"                                                            \
    "prompts_per_step = 6\n"                                                   \
    "samples_per_prompt = 4\n"
#define GOOD_REWARD                                                            \
    "[[reward.functions]]\n"                                                   \
    "kind = \"exact\"\n"                                                       \
    "answer = \"y\"\n"
#define GOOD_ROLLOUT                                                           \
    "[[phase]]\n"                                                              \
    "name = \"rollout\"\n"                                                     \
    "[phase.layout]\n"                                                         \
    "tp = 4\n"                                                                 \
    "[phase.sampling]\n"                                                       \
    "max_response_tokens = 4\n"
#define GOOD_TRAIN                                                             \
    "[[phase]]\n"                                                              \
    "name = \"train\"\n"                                                       \
    "[phase.layout]\n"                                                         \
    "pp = 2\n"                                                                 \
    "dp = 2\n"                                                                 \
    "zero = 1\n"                                                               \
    "[phase.optimizer]\n"                                                      \
    "lr = 1e-3\n"
#define GOOD_JOB                                                               \
    GOOD_HEAD GOOD_DATA GOOD_ALGORITHM GOOD_REWARD GOOD_ROLLOUT GOOD_TRAIN

#endif /* JOB_TEXT_H */
