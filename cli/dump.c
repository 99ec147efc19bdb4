#include "cli/dump.h"

#include "cli/dry_run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static enum dyt_status write_plans(const struct dyti_loaded_job *loaded,
                                   FILE *out)
{
    const struct dyti_plan_show all = {.transfers = true, .steps = true};

    return dyti_show_plans(loaded, &all, out);
}

static enum dyt_status dump(
    const struct dyti_loaded_job *loaded, const char *folder, const char *name,
    enum dyt_status (*write)(const struct dyti_loaded_job *, FILE *))
{
    char path[4096];
    enum dyt_status st;
    FILE *out;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    out = fopen(path, "we");
    if (out == NULL) {
        return DYTI_FAIL(DYT_ERR_IO, "cannot write %s: %s", path,
                         strerror(errno));
    }
    st = write(loaded, out);
    if (st != DYT_OK) {
        DYTI_NOTE("writing %s", path);
    }
    if (fclose(out) != 0 && st == DYT_OK) {
        st =
            DYTI_FAIL(DYT_ERR_IO, "cannot write %s: %s", path, strerror(errno));
    }
    return st;
}

enum dyt_status dyti_dump_job(const struct dyti_loaded_job *loaded,
                              const char *folder)
{
    enum dyt_status st;

    if (folder == NULL) {
        return DYT_OK;
    }
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        st = DYTI_FAIL(DYT_ERR_IO, "cannot make the folder %s: %s", folder,
                       strerror(errno));
    } else {
        st = dump(loaded, folder, "job.txt", dyti_dry_run);
        st = st != DYT_OK ? st : dump(loaded, folder, "plan.txt", write_plans);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("writing what DYNATRAIN_DUMP asks for");
    }
    return st;
}
