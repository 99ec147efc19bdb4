#include "cli/job_args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

error_t dyti_job_args_parse(int key, char *arg, struct argp_state *state,
                            struct dyti_job_args *args)
{
    switch (key) {
    case 's':
        if (args->set_count == DYTI_SETS_MAX) {
            argp_error(state, "more than %u --set", DYTI_SETS_MAX);
        }
        args->set[args->set_count++] = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (args->job != NULL) {
            argp_error(state, "one job file at a time: \"%s\" and \"%s\"",
                       args->job, arg);
        }
        args->job = arg;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which job file?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* A word in quotes where a shell would read it otherwise. */
static void write_word(FILE *to, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./:=,";

    if (word[strspn(word, plain)] == '\0') {
        fputs(word, to);
        return;
    }
    fputc('\'', to);
    for (const char *c = word; *c != '\0'; c++) {
        fputs(*c == '\'' ? "'\\''" : (char[]){*c, '\0'}, to);
    }
    fputc('\'', to);
}

char *dyti_job_args_sets(const struct dyti_job_args *args)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);

    if (to == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < args->set_count; i++) {
        fputs(" --set ", to);
        write_word(to, args->set[i]);
    }
    if (fclose(to) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
