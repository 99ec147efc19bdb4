/* dynatrain env */
#include "base/env.h"
#include "cli/commands.h"
#include "cli/exit.h"

#include <argp.h>
#include <stdbool.h>

static const struct argp_option options[] = {
    {"markdown", 'm', NULL, 0, "As a page of documentation", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    bool *markdown = state->input;

    (void)arg;
    switch (key) {
    case 'm':
        *markdown = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    options,
    parse,
    NULL,
    "Prints the settings that come from the environment: what each is now, "
    "and what it does.\v"
    "Example:\n"
    "  DYNATRAIN_LOG=info dynatrain env\n",
    NULL,
    NULL,
    NULL};

int dyti_cmd_env(int argc, char **argv)
{
    bool markdown = false;

    argp_err_exit_status = DYTI_EXIT_CALLER;
    argp_parse(&argp, argc, argv, 0, NULL, &markdown);
    if (markdown) {
        dyti_env_print_markdown(stdout);
    } else {
        dyti_env_print(stdout);
    }
    return DYTI_EXIT_OK;
}
