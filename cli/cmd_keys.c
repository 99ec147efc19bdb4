/* dynatrain keys: a key pair for sessions over tcp. */
#include "cli/commands.h"
#include "cli/exit.h"
#include "control/hub.h"

#include <argp.h>
#include <stdio.h>

static const struct argp_option options[] = {
    {"name", 'n', "NAME", 0, "Of the pair (default: manager)", 0},
    {0},
};

struct keys {
    const char *folder, *name;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct keys *k = state->input;

    switch (key) {
    case 'n':
        k->name = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (k->folder != NULL) {
            argp_error(state, "one folder, not also %s", arg);
        }
        k->folder = arg;
        return 0;
    case ARGP_KEY_END:
        if (k->folder == NULL) {
            argp_error(state, "no folder to put the keys into");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    options,
    parse,
    "FOLDER",
    "Makes a key pair for sessions over tcp: NAME.secret, which only its owner "
    "may read, and NAME.public.\v"
    "The manager needs its own secret key and the public keys of all who may "
    "join; a member needs its own secret key and the manager's public one.\n\n"
    "Examples:\n"
    "  dynatrain keys keys                  # keys/manager.{secret,public}\n"
    "  dynatrain keys keys --name trainer\n",
    NULL,
    NULL,
    NULL};

int dyti_cmd_keys(int argc, char **argv)
{
    struct keys k = {.name = "manager"};
    enum dyt_status st;

    argp_err_exit_status = DYTI_EXIT_CALLER;
    argp_parse(&argp, argc, argv, 0, NULL, &k);
    st = dyti_keys_make(k.folder, k.name);
    if (st != DYT_OK) {
        return dyti_exit_fail("keys", st);
    }
    printf("%s/%s.secret  keep it here, it proves who you are\n"
           "%s/%s.public  give it to the other side\n",
           k.folder, k.name, k.folder, k.name);
    return DYTI_EXIT_OK;
}
