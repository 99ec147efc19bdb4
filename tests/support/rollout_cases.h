/* A small model, five prompts and a request: what the tests of rollout/ start
 * from. */
#ifndef ROLLOUT_CASES_H
#define ROLLOUT_CASES_H

#include "rollout_world.h"

#define RO_VOCAB   32
#define RO_PROMPTS 5u
#define RO_MAX_NEW 12u

static const uint32_t ro_length[RO_PROMPTS] = {2, 7, 4, 9, 1};

struct ro_case {
    struct dyti_arch arch;
    struct dyti_model *model;
    float **full;
    struct dyti_prompt *prompt;
    struct dyti_sampling s;
    struct dyti_rollout_request q;
    struct ro_desc desc;
};

static inline void ro_case_init(struct ro_case *f)
{
    *f = (struct ro_case){.arch = nn_cases[0].arch};
    f->arch.vocab = RO_VOCAB;
    assert_ok(dyti_model_build(&f->arch, &f->model));
    f->full = nn_full_random(f->model, 29);
    for (uint32_t t = 0; t < f->model->tensor_count; t++) {
        if (f->model->tensor[t].slot == DYTI_SLOT_FINAL_NORM) {
            for (int64_t i = 0; i < f->arch.hidden; i++) {
                f->full[t][i] *= 0.4f; /* all tokens have a chance */
            }
        }
    }
    f->prompt = ro_prompts(ro_length, RO_PROMPTS, RO_VOCAB);
    f->s = (struct dyti_sampling){
        .temperature = 1.0, .top_p = 1.0, .max_response_tokens = RO_MAX_NEW};
    f->q = (struct dyti_rollout_request){.prompt = f->prompt,
                                         .prompt_count = RO_PROMPTS,
                                         .samples_per_prompt = 20,
                                         .sampling = &f->s,
                                         .seed = 6};
    f->desc.model = f->model;
}

static inline void ro_case_fini(struct ro_case *f)
{
    ro_prompts_free(f->prompt, RO_PROMPTS);
    nn_full_free(f->model, f->full);
    dyti_model_destroy(f->model);
}

static inline struct dyti_batch ro_case_run(struct ro_case *f)
{
    return ro_once(&f->desc, f->full, &f->q);
}

#endif /* ROLLOUT_CASES_H */
