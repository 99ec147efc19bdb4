#include "cli/job_args.h"

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
