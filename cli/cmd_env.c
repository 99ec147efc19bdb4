#include "base/env.h"
#include "cli/commands.h"
#include "cli/exit.h"

#include <stdio.h>
#include <string.h>

int dyti_cmd_env(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--markdown") == 0) {
        dyti_env_print_markdown(stdout);
    } else {
        dyti_env_print(stdout);
    }
    return DYTI_EXIT_OK;
}
