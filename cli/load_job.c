#include "cli/load_job.h"

#include "base/env.h"
#include "cli/device.h"
#include "cli/exit.h"
#include "format/hf_config.h"

#include <stdlib.h>
#include <string.h>

enum dyt_status dyti_find_model(const char *model, char **out_dir)
{
    char cache[4096];
    bool has_cache = dyti_env_cache_dir(cache, sizeof(cache)) == DYT_OK;

    return dyti_model_path(model, has_cache ? cache : NULL, out_dir);
}

/* The reference policy's weights are read by the workers; that they are there
 * is known now. */
static enum dyt_status find_reference(const struct dyti_job *job)
{
    char *dir = NULL;
    enum dyt_status st = DYT_OK;

    if (job->algorithm.kl_coef > 0.0 && job->reference.model[0] != '\0') {
        st = dyti_find_model(job->reference.model, &dir);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("looking for reference.model");
    }
    free(dir);
    return st;
}

enum dyt_status dyti_loaded_job_open(const char *path, const char *const *set,
                                     size_t set_count,
                                     struct dyti_loaded_job *out)
{
    struct dyti_arch arch;
    enum dyt_status st;

    memset(out, 0, sizeof(*out));
    st = dyti_job_load(path, set, set_count, &out->job);
    if (st == DYT_OK && out->job.devices.kind == DYTI_DEVICE_CUDA) {
        st = dyti_device_refuse_cuda();
    }
    st = st != DYT_OK ? st : dyti_find_model(out->job.model, &out->model_dir);
    st = st != DYT_OK ? st : dyti_hf_config_read(out->model_dir, &arch);
    st = st != DYT_OK ? st : find_reference(&out->job);
    st = dyti_exit_given(st);
    st = st != DYT_OK ? st
                      : dyti_assembly_build(&out->job, &arch, &out->assembly);
    if (st != DYT_OK) {
        dyti_loaded_job_close(out);
    }
    return st;
}

void dyti_loaded_job_close(struct dyti_loaded_job *loaded)
{
    dyti_assembly_fini(&loaded->assembly);
    dyti_job_fini(&loaded->job);
    free(loaded->model_dir);
    memset(loaded, 0, sizeof(*loaded));
}
