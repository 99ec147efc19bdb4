#include "figures.h"

#include <dirent.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct search {
    const char *bench, *unit;
    const char *case_name;
    int case_length; /* of case_name, what counts */
    bench_figure_fn take;
    void *arg;
    uint32_t found;
};

static const char *text(const json_t *line, const char *key)
{
    const char *value = json_string_value(json_object_get(line, key));

    return value != NULL ? value : "";
}

static void take_line(struct search *s, const json_t *line)
{
    const char *name = text(line, "case");
    double value = json_number_value(json_object_get(line, "value"));

    if (strcmp(text(line, "bench"), s->bench) == 0 &&
        strcmp(text(line, "unit"), s->unit) == 0 &&
        strlen(name) == (size_t)s->case_length &&
        memcmp(name, s->case_name, strlen(name)) == 0 && value > 0) {
        s->take(s->arg, text(line, "opponent"), value);
        s->found++;
    }
}

static void read_file(struct search *s, const char *folder, const char *name)
{
    char *path = NULL, *line = NULL;
    size_t cap = 0;
    FILE *file;

    if (asprintf(&path, "%s/%s", folder, name) < 0) {
        return;
    }
    file = fopen(path, "re");
    free(path);
    while (file != NULL && getline(&line, &cap, file) > 0) {
        json_t *json = json_loads(line, 0, NULL);

        take_line(s, json);
        json_decref(json);
    }
    free(line);
    if (file != NULL) {
        fclose(file);
    }
}

static int is_jsonl(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');

    return dot != NULL && strcmp(dot, ".jsonl") == 0;
}

static void read_folder(struct search *s, const char *folder)
{
    struct dirent **entry = NULL;
    int count = scandir(folder, &entry, is_jsonl, alphasort);

    for (int i = 0; i < count; i++) {
        read_file(s, folder, entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
}

uint32_t bench_figures(const char *folder, const char *bench,
                       const char *case_name, const char *unit,
                       bench_figure_fn take, void *arg)
{
    const char *slash = strrchr(case_name, '/');
    struct search s = {.bench = bench,
                       .unit = unit,
                       .case_name = case_name,
                       .case_length = (int)strlen(case_name),
                       .take = take,
                       .arg = arg};

    if (folder == NULL) {
        return 0;
    }
    read_folder(&s, folder);
    if (s.found == 0 && slash != NULL) {
        s.case_length = (int)(slash - case_name);
        read_folder(&s, folder);
    }
    return s.found;
}
