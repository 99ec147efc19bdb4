/* dynatrain: which subcommand? */
#include "base/edit.h"
#include "base/env.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/exit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help; /* NULL: not for people */
} command[] = {
    {"run", dyti_cmd_run, "the RLHF loop of a job file"},
    {"plan", dyti_cmd_plan, "what a job's switches cost, before they are paid"},
    {"layout", dyti_cmd_layout, "which rank holds what, at which bytes"},
    {"convert", dyti_cmd_convert,
     "a model from one form to another: files, shards of each dialect"},
    {"generate", dyti_cmd_generate, "text from a model"},
    {"model", dyti_cmd_model, "make a model, or say what one is"},
    {"tokenize", dyti_cmd_tokenize, "text to token ids, and back"},
    {"serve", dyti_cmd_serve,
     "the manager of a session: versions into other people's servers"},
    {"status", dyti_cmd_status, "who is in a session, and what they hold"},
    {"keys", dyti_cmd_keys, "a key pair for sessions over tcp"},
    {"doctor", dyti_cmd_doctor,
     "what this machine has, and what to do about it"},
    {"env", dyti_cmd_env, "settings from the environment"},
    {"worker", dyti_cmd_worker, NULL},
};

#define COMMAND_COUNT (sizeof(command) / sizeof(command[0]))

static void usage(FILE *to)
{
    fprintf(to, "Usage: dynatrain COMMAND [ARGUMENT...]\n\n"
                "Trains a language model by reinforcement: generate in one "
                "layout, score, hot-switch,\ntrain in another, hot-switch "
                "back, repeat.\n\nCommands:\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (command[i].help != NULL) {
            fprintf(to, "  %-9s %s\n", command[i].name, command[i].help);
        }
    }
    fprintf(
        to,
        "\nExamples:\n"
        "  dynatrain model init --preset tiny --out build/models/tiny\n"
        "  dynatrain run configs/quickstart/job.toml\n"
        "  dynatrain plan configs/smollm2/job.toml\n"
        "  dynatrain generate --chat smollm2-135m-instruct \"What is the "
        "capital of France?\"\n\n"
        "`dynatrain COMMAND --help` teaches a command.  Exit codes: 0 done, "
        "1 the run failed,\n2 something given is wrong, 3 device, 4 a rank "
        "died or hung, 130 stopped on request.\n");
}

/* What was printed is the result of a command: lost, it has failed.  At exit,
 * as --help and its like end the program where they are read.  (A run's results
 * are its files: it looks itself, and leaves nothing to be written.) */
static void check_output(int code, void *name)
{
    int lost = fflush(stdout) != 0 ? errno : ferror(stdout) != 0 ? EIO : 0;

    if (code != DYTI_EXIT_OK || lost == 0) {
        return;
    }
    fprintf(stderr, "%s: what it prints cannot be written: %s\n",
            (const char *)name, strerror(lost));
    _exit(DYTI_EXIT_RUN);
}

/* Of a standard stream that is closed, the next file that is opened would take
 * the place, and get what is meant for it: put something there that can be
 * neither read nor written. */
static bool open_streams(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 &&
            open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) {
            return false;
        }
    }
    return true;
}

/* Of the environment.  The workers of a run have their manager's, which has
 * said what is wrong there. */
static void read_settings(bool say)
{
    const char *unknown = dyti_env_unknown();
    const char *areas = dyti_env_text(DYTI_ENV_LOG_AREA);
    char word[64];

    if (!dyti_log_configure(dyti_env_text(DYTI_ENV_LOG), areas) && say) {
        fprintf(stderr,
                "dynatrain: warning: DYNATRAIN_LOG=%s is no level; `dynatrain "
                "env` lists them\n",
                dyti_env_text(DYTI_ENV_LOG));
    }
    if (dyti_log_area_unknown(areas, word) && say) {
        fprintf(stderr,
                "dynatrain: warning: DYNATRAIN_LOG_AREA names \"%s\", which is "
                "no area; the areas are %s\n",
                word, DYTI_LOG_AREAS);
    }
    if (unknown != NULL && say) {
        fprintf(stderr,
                "dynatrain: warning: %s is set and means nothing; `dynatrain "
                "env` lists what does\n",
                unknown);
    }
}

/* An option, or a command that there is not: perhaps one is meant. */
static int refuse(const char *word)
{
    uint32_t best = (uint32_t)(strlen(word) / 3 + 2);
    const char *near = NULL;

    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        uint32_t d = dyti_edit_distance(word, command[i].name);

        if (command[i].help != NULL && d < best) {
            best = d;
            near = command[i].name;
        }
    }
    fprintf(stderr, "dynatrain: there is no %s \"%s\"",
            word[0] == '-' ? "option" : "command", word);
    if (near != NULL) {
        fprintf(stderr, " (did you mean \"%s\"?)", near);
    }
    fprintf(stderr, "; `dynatrain --help` lists what there is\n");
    return DYTI_EXIT_CALLER;
}

int main(int argc, char **argv)
{
    char ask[] = "--help";
    static char name[32] = "dynatrain"; /* also at exit; of the command */

    if (!open_streams() || on_exit(check_output, name) != 0) {
        fprintf(stderr, "dynatrain: no memory, or no /dev/null\n");
        return DYTI_EXIT_RUN;
    }
    /* A file that may not grow is an error of write(2), which says which. */
    (void)signal(SIGXFSZ, SIG_IGN);
    read_settings(argc < 2 || strcmp(argv[1], "worker") != 0);
    if (argc == 3 && strcmp(argv[1], "help") == 0) {
        /* `help COMMAND` is `COMMAND --help`. */
        argv[1] = argv[2];
        argv[2] = ask;
    }
    if (argc == 3 && strcmp(argv[2], "-h") == 0) {
        argv[2] = ask;
    }
    if (argc < 2 || strcmp(argv[1], "--help") == 0 ||
        strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        usage(argc < 2 ? stderr : stdout);
        return argc < 2 ? DYTI_EXIT_CALLER : DYTI_EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("dynatrain " DYTI_VERSION "\n");
        return DYTI_EXIT_OK;
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(argv[1], command[i].name) == 0) {
            snprintf(name, sizeof(name), "dynatrain %s", command[i].name);
            argv[1] = name;
            return command[i].run(argc - 1, argv + 1);
        }
    }
    return refuse(argv[1]);
}
