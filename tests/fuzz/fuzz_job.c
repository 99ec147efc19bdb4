/* Any bytes as a job: what is read must read back equal, what is refused must
 * be refused in one line. */
#include "fuzz.h"

#include "format/job.h"
#include "format/job_options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dyti_job job = {0}, again = {0};
    char *text = NULL;

    if (dyti_job_parse_text((const char *)data, size, "/nowhere/f.toml", NULL,
                            0, &job) != DYT_OK) {
        if (strchr(dyti_error_text(), '\n') != NULL) {
            abort();
        }
        return 0;
    }
    if (dyti_job_text(&job, NULL, &text) != DYT_OK ||
        dyti_job_read_text(text, strlen(text), &again) != DYT_OK ||
        !dyti_job_equal(&job, &again)) {
        abort();
    }
    free(text);
    dyti_job_fini(&job);
    dyti_job_fini(&again);
    return 0;
}
