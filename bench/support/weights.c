#include "weights.h"
#include "shapes.h"

#include "format/hf_config.h"
#include "format/job.h"

#include <stdlib.h>

#define USUAL "smollm2-135m-instruct"

bool bench_weights(const struct bench *bench, struct bench_weights *out)
{
    enum dyt_status st;

    *out = (struct bench_weights){.arch = bench_smollm2};
    st = dyti_model_path(bench->model != NULL ? bench->model : USUAL, NULL,
                         &out->folder);
    if (st != DYT_OK && bench->model == NULL) {
        printf("%s: random weights of SmolLM2-135M's shape (`make model` makes "
               "the real ones)\n",
               bench->name);
        return true;
    }
    st = st ? st : dyti_hf_config_read(out->folder, &out->arch);
    if (st != DYT_OK) {
        fprintf(stderr, "%s: %s\n", bench->name, dyti_error_text());
        free(out->folder);
        return false;
    }
    printf("%s: weights of %s\n", bench->name, out->folder);
    return true;
}
