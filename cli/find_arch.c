#include "cli/find_arch.h"

#include "cli/load_job.h"
#include "cli/read_all.h"
#include "format/hf_config.h"
#include "format/model_init.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static enum dyt_status read_config(const char *path, struct dyti_arch *out)
{
    FILE *in = fopen(path, "rb");
    char *text = NULL;
    size_t bytes = 0;
    enum dyt_status st;

    if (in == NULL) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: %s", path, strerror(errno));
    }
    st = dyti_read_all(in, path, &text, &bytes);
    st = st != DYT_OK ? st : dyti_hf_config_parse(path, text, bytes, out);
    (void)fclose(in);
    free(text);
    return st;
}

enum dyt_status dyti_find_arch(const char *model, struct dyti_arch *out_arch)
{
    struct stat info;
    bool exists = stat(model, &info) == 0;
    char *dir = NULL;
    enum dyt_status st;

    if (exists && S_ISREG(info.st_mode)) {
        return read_config(model, out_arch);
    }
    for (size_t i = 0; !exists && dyti_model_preset_at(i) != NULL; i++) {
        if (strcmp(dyti_model_preset_at(i)->name, model) == 0) {
            *out_arch = dyti_model_preset_at(i)->arch;
            return DYT_OK;
        }
    }
    st = dyti_find_model(model, &dir);
    st = st != DYT_OK ? st : dyti_hf_config_read(dir, out_arch);
    free(dir);
    return st;
}
