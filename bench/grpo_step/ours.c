/* Our step: a job written into a folder of its own, run by the binary, and read
 * back from the metrics that it leaves. */
#include "grpo_step.h"
#include "program.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOB "step" /* the job's name, and its folder in runs/ */

/* Settings that are not here are the defaults, as TRL's are in its step. */
static void write_job(FILE *f, const struct work *work,
                      const struct world *world, const char *folder,
                      const char *model, uint32_t steps)
{
    fprintf(f,
            "name = \"" JOB "\"\nmodel = \"%s\"\nruns = \"%s/runs\"\n"
            "seed = 1\nsteps = %u\nranks = %u\n\n",
            model, folder, steps, world->ranks);
    fprintf(f,
            "[[phase]]\nname = \"rollout\"\n"
            "[phase.layout]\ntp = %u\ndtype = \"f32\"\n"
            "[phase.sampling]\ntemperature = 1.0\nmax_response_tokens = %u\n"
            "ignore_eos = true\n"
            "[phase.kv]\nmemory = \"192MiB\"\nmax_sequences = %u\n\n",
            world->rollout_tp, work->tokens, work->prompts * work->samples);
    fprintf(f,
            "[[phase]]\nname = \"train\"\n"
            "[phase.layout]\npp = %u\ndp = %u\nzero = %u\ndtype = \"f32\"\n"
            "[phase.batch]\nmini_batch = %u\nmicro_batch_tokens = 1024\n"
            "[phase.optimizer]\nlr = 1e-6\n\n",
            world->train_pp, world->train_dp, world->zero,
            work->prompts * work->samples);
    fprintf(f,
            "[data]\ntrain = \"train.jsonl\"\nchat_template = \"none\"\n"
            "prompt = \"%s\"\nshuffle = false\nmax_prompt_tokens = 32\n\n"
            "[[reward.functions]]\nkind = \"regex\"\npattern = \"%s\"\n\n",
            work->letters ? "{letters}>"
                          : "Tell me about the number {number} and its "
                            "properties, in short.",
            work->letters ? "a" : "e.*e.*e.*e.*e.*e.*e.*e");
    fprintf(f,
            "[algorithm]\nname = \"grpo\"\nprompts_per_step = %u\n"
            "samples_per_prompt = %u\nkl = { coef = %.4f }\n",
            work->prompts, work->samples, work->kl);
}

/* A row for each prompt of each step. */
static void write_rows(FILE *f, const struct work *work, uint32_t steps)
{
    for (uint32_t i = 0; i < work->prompts * steps; i++) {
        if (work->letters) {
            fprintf(f, "{\"letters\": \"%c%c%c%c\"}\n", 'a' + (char)(i % 8),
                    'a' + (char)(i / 8 % 8), 'c', 'b');
        } else {
            fprintf(f, "{\"number\": \"%u\"}\n", i);
        }
    }
}

static FILE *open_in(const char *folder, const char *name, const char *mode)
{
    char *path = text_of("%s/%s", folder, name);
    FILE *file = fopen(path, mode);

    if (file == NULL) {
        fprintf(stderr, "grpo_step: cannot open %s: %s\n", path,
                strerror(errno));
    }
    free(path);
    return file;
}

static bool close_written(FILE *file)
{
    bool good = ferror(file) == 0;

    good = fclose(file) == 0 && good;
    if (!good) {
        fprintf(stderr, "grpo_step: the job cannot be written\n");
    }
    return good;
}

static bool prepare(const char *folder, const char *model,
                    const struct work *work, const struct world *world,
                    uint32_t steps)
{
    FILE *file = open_in(folder, "job.toml", "we");

    if (file == NULL) {
        return false;
    }
    write_job(file, work, world, folder, model, steps);
    if (!close_written(file)) {
        return false;
    }
    file = open_in(folder, "train.jsonl", "we");
    if (file == NULL) {
        return false;
    }
    write_rows(file, work, steps);
    return close_written(file);
}

static double number(const json_t *line, const char *key)
{
    return json_number_value(json_object_get(line, key)); /* 0: not there */
}

static void take_line(const json_t *line, struct series *out)
{
    double peak = number(line, "memory/peak_bytes") / 1048576.0;

    out->peak_mb = peak > out->peak_mb ? peak : out->peak_mb;
    if (number(line, "step") < 2 || out->count == FIGURES) {
        return; /* the first one touches memory and plans */
    }
    out->seconds[out->count++] = number(line, "time/step");
    out->rollout = number(line, "time/rollout");
    out->train = number(line, "time/train");
    out->to_train = number(line, "time/switch_to_train");
    out->to_rollout = number(line, "time/switch_to_rollout");
}

static bool read_metrics(const char *folder, struct series *out)
{
    FILE *file = open_in(folder, "runs/" JOB "/metrics.jsonl", "re");
    char *line = NULL;
    size_t cap = 0;

    if (file == NULL) {
        return false;
    }
    while (getline(&line, &cap, file) > 0) {
        json_t *json = json_loads(line, 0, NULL);

        take_line(json, out);
        json_decref(json);
    }
    free(line);
    fclose(file);
    if (out->count == 0) {
        fprintf(stderr, "grpo_step: a run left no metrics of a second step\n");
    }
    return out->count > 0;
}

bool ours_run(const char *dynatrain, const char *model, const struct work *work,
              const struct world *world, uint32_t steps, struct series *out)
{
    char *folder = folder_create();
    char *job, *stdout_path, *stderr_path;
    bool good;

    *out = (struct series){0};
    if (folder == NULL) {
        return false;
    }
    job = text_of("%s/job.toml", folder);
    stdout_path = text_of("%s/stdout", folder);
    stderr_path = text_of("%s/stderr", folder);
    good = prepare(folder, model, work, world, steps) &&
           program_run((char *[]){(char *)dynatrain, "run", job, NULL},
                       stdout_path, stderr_path) &&
           read_metrics(folder, out);
    free(stderr_path);
    free(stdout_path);
    free(job);
    folder_remove(folder);
    return good;
}
