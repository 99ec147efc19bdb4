/* The opponent's step: its own program, in its own environment. */
#include "grpo_step.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

/* The one line of JSON that the program prints. */
static bool read_figure(const char *path, struct series *out)
{
    FILE *file = fopen(path, "re");
    bool found = false;
    char *line = NULL;
    size_t cap = 0;

    while (file != NULL && getline(&line, &cap, file) > 0) {
        json_t *json = json_loads(line, 0, NULL);
        double value = json_number_value(json_object_get(json, "value"));
        double peak = json_number_value(json_object_get(json, "peak_rss_mb"));

        if (value > 0 && out->count < FIGURES) {
            out->seconds[out->count++] = value;
            out->peak_mb = peak > out->peak_mb ? peak : out->peak_mb;
            found = true;
        }
        json_decref(json);
    }
    free(line);
    if (file != NULL) {
        fclose(file);
    }
    if (!found) {
        fprintf(stderr, "grpo_step: the opponent printed no figure\n");
    }
    return found;
}

bool trl_run(const struct paths *paths, const struct work *work,
             struct series *out)
{
    char *folder = folder_create();
    char *prompts, *samples, *tokens, *beta, *stdout_path, *stderr_path;
    bool good;

    if (folder == NULL) {
        return false;
    }
    prompts = text_of("%u", work->prompts);
    samples = text_of("%u", work->samples);
    tokens = text_of("%u", work->tokens);
    beta = text_of("%g", work->kl);
    stdout_path = text_of("%s/stdout", folder);
    stderr_path = text_of("%s/stderr", folder);
    good = program_run((char *[]){paths->python, paths->script, "--model",
                                  paths->model, "--runs", "1", "--prompts",
                                  prompts, "--samples", samples, "--tokens",
                                  tokens, "--beta", beta, NULL},
                       stdout_path, stderr_path) &&
           read_figure(stdout_path, out);
    free(stderr_path);
    free(stdout_path);
    free(beta);
    free(tokens);
    free(samples);
    free(prompts);
    folder_remove(folder);
    return good;
}
