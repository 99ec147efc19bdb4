/* SmolLM2-135M-Instruct as `make model` leaves it in the cache, and what
 * transformers says of it.  A test program that uses it ends with
 *
 *   int main(void)
 *   {
 *       return real_model_main(tests, DYT_TEST_COUNT(tests));
 *   }
 *
 * and is skipped where the model is not there. */
#ifndef DYT_REAL_MODEL_H
#define DYT_REAL_MODEL_H

#include "dyt_test.h"

#include "format/hf_config.h"
#include "format/job.h"

#include <jansson.h>

#define REFS "tests/data/smollm2/refs_smollm2.json"

static char *model_dir;
static json_t *refs;
static struct dyti_model *model;

static inline int real_model_main(const struct CMUnitTest *tests, size_t count)
{
    struct dyti_arch arch;
    json_error_t error;
    int failed;

    if (dyti_model_path("smollm2-135m-instruct", NULL, &model_dir) != DYT_OK) {
        print_message("skipped: the model is not in the cache, `make model` "
                      "brings it\n");
        return 77;
    }
    refs = json_load_file(REFS, 0, &error);
    if (refs == NULL || dyti_hf_config_read(model_dir, &arch) != DYT_OK ||
        dyti_model_build(&arch, &model) != DYT_OK) {
        print_error("%s: %s%s\n", model_dir, dyti_error_text(),
                    refs == NULL ? error.text : "");
        return 1;
    }
    failed = dyt_test_verdict(
        _cmocka_run_group_tests("model", tests, count, NULL, NULL));
    dyti_model_destroy(model);
    json_decref(refs);
    free(model_dir);
    return failed;
}

#endif /* DYT_REAL_MODEL_H */
