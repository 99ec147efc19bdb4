/* dynatrain plan JOB.toml: what a switch costs, before it is paid for. */
#include "cli/commands.h"
#include "cli/dry_run.h"
#include "cli/exit.h"
#include "cli/job_args.h"
#include "cli/plan_specs.h"

struct arguments {
    struct dyti_job_args job;
    bool json;
    struct dyti_plan_show show;
    struct dyti_plan_specs specs;
};

enum key {
    KEY_FROM = 256,
    KEY_TO,
    KEY_CLUSTER,
    KEY_HTML,
    KEY_PINNED,
    KEY_KINDS,
    KEY_PAIRS,
    KEY_EXACT
};

static const struct argp_option options[] = {
    {"json", 'j', NULL, 0, "One JSON document", 0},
    {"cluster", KEY_CLUSTER, "FILE", 0,
     "Hosts and links (default: hosts of 8, NVLink 200 GB/s, NIC 25 GB/s)", 0},
    {"pairs", KEY_PAIRS, NULL, 0, "With --json: every rank pair", 0},
    {"exact", KEY_EXACT, NULL, 0,
     "Order each message of per-tensor by itself: slow, and a little nearer",
     0},
    {"html", KEY_HTML, "FILE", 0, "Write a page with pictures as well", 0},
    {NULL, 0, NULL, 0, "With a job:", 1},
    DYTI_JOB_ARGS_SET_IN(1),
    {"transfers", 't', NULL, 0, "Every box that goes from rank to rank", 1},
    {"steps", 'p', NULL, 0, "Every step of every rank's schedule", 1},
    {NULL, 0, NULL, 0, "Without a job:", 2},
    {"from", KEY_FROM, "SPEC", 0, "The layout that is left", 2},
    {"to", KEY_TO, "SPEC", 0, "The layout that is wanted", 2},
    {"model", 'm', "MODEL", 0,
     "A folder with config.json, or that file; no weights are needed", 2},
    {"kinds", KEY_KINDS, "KIND,...", 0,
     "Of these kinds of state alone (param, master, ...); default: all but "
     "grad",
     2},
    {"pinned", KEY_PINNED, NULL, 0,
     "Keep the ranks of --to as described; else they are placed so that most "
     "bytes stay",
     2},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;

    switch (key) {
    case 'j':
        a->json = true;
        return 0;
    case 't':
        a->show.transfers = true;
        return 0;
    case 'p':
        a->show.steps = true;
        return 0;
    case KEY_FROM:
        a->specs.from = arg;
        return 0;
    case KEY_TO:
        a->specs.to = arg;
        return 0;
    case 'm':
        a->specs.model = arg;
        return 0;
    case KEY_CLUSTER:
        a->specs.cluster = arg;
        return 0;
    case KEY_HTML:
        a->specs.html = arg;
        return 0;
    case KEY_KINDS:
        a->specs.kinds = arg;
        return 0;
    case KEY_PINNED:
        a->specs.pinned = true;
        return 0;
    case KEY_PAIRS:
        a->specs.pairs = true;
        return 0;
    case KEY_EXACT:
        a->specs.exact = true;
        return 0;
    case ARGP_KEY_NO_ARGS:
        if (a->specs.from != NULL || a->specs.to != NULL) {
            return 0;
        }
        return dyti_job_args_parse(key, arg, state, &a->job);
    default:
        return dyti_job_args_parse(key, arg, state, &a->job);
    }
}

static const struct argp argp = {
    options,
    parse,
    "JOB.toml\n--from SPEC --to SPEC --model MODEL",
    "Prints what a switch moves, keeps and needs, without running it: the "
    "switches of a job, or one between any two layouts of a model, with the "
    "seconds that it would take on a cluster, how far that is from the least "
    "that any plan needs, and what other strategies would take.\v"
    "SPEC is dialect:key=value,… with the dialects native, hf, megatron, "
    "zero12, zero3, fsdp2, vllm and the keys tp pp dp cp ep etp vpp zero "
    "order experts ranks …; or a TOML file with [layout].\n\n"
    "Examples:\n"
    "  dynatrain plan --from megatron:tp=4,pp=8,dp=4,ep=16,etp=1,zero=1 \\\n"
    "      --to vllm:tp=8,dp=16 --model configs/models/qwen3-235b-a22b \\\n"
    "      --cluster configs/clusters/dgx-h100.toml --html plan.html\n"
    "  dynatrain plan --from native:tp=4 --to native:pp=2,dp=2,zero=1 \\\n"
    "      --model tiny --json\n"
    "  dynatrain plan configs/smollm2/job.toml \\\n"
    "      --cluster configs/clusters/laptop.toml\n"
    "  dynatrain plan job.toml --set phase.train.layout.zero=0 --json\n",
    NULL,
    NULL,
    NULL};

/* What says nothing of this kind of plan must not be passed over in silence:
 * whoever gives it believes that it counts. */
static enum dyt_status check_spec_arguments(const struct arguments *a)
{
    const char *wrong = a->show.transfers      ? "--transfers"
                        : a->show.steps        ? "--steps"
                        : a->job.set_count > 0 ? "--set"
                                               : NULL;

    if (a->job.job != NULL || a->specs.from == NULL || a->specs.to == NULL ||
        a->specs.model == NULL) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "a plan without a job needs --from, --to and --model, "
                         "and no JOB.toml");
    }
    return wrong == NULL ? DYT_OK
                         : DYTI_FAIL(DYT_ERR_CONFIG,
                                     "%s goes with a JOB.toml, not with --from "
                                     "and --to",
                                     wrong);
}

static int plan_specs(struct arguments *a)
{
    enum dyt_status st = dyti_exit_given(check_spec_arguments(a));

    a->specs.json = a->json;
    st = st != DYT_OK ? st : dyti_plan_specs(&a->specs, stdout);
    return st == DYT_OK ? DYTI_EXIT_OK : dyti_exit_fail("plan", st);
}

static enum dyt_status check_job_arguments(const struct arguments *a)
{
    const char *wrong = a->specs.model != NULL   ? "--model"
                        : a->specs.kinds != NULL ? "--kinds"
                        : a->specs.pinned        ? "--pinned"
                                                 : NULL;

    return wrong == NULL
               ? DYT_OK
               : DYTI_FAIL(
                     DYT_ERR_CONFIG,
                     "%s goes with --from and --to; %s says its own model "
                     "and ranks (--set changes them)",
                     wrong, a->job.job);
}

static enum dyt_status plan_job(struct arguments *a,
                                struct dyti_loaded_job *loaded)
{
    struct dyti_job_prices prices = {.file = {.host = NULL}};
    struct dyti_tell tell;
    enum dyt_status st;

    dyti_tell_start(&tell, "plan");
    st = dyti_exit_given(dyti_job_prices_build(loaded, a->specs.cluster,
                                               a->specs.exact, &tell, &prices));
    dyti_tell_stop(&tell);
    if (st != DYT_OK) {
        return st;
    }
    a->show.prices = &prices;
    a->show.pairs = a->specs.pairs;
    st = a->json ? dyti_show_plans_json(loaded, &a->show, stdout)
                 : dyti_show_plans(loaded, &a->show, stdout);
    if (st == DYT_OK && a->specs.html != NULL) {
        st = dyti_job_prices_page(&prices, loaded->job.name, a->specs.html);
    }
    dyti_job_prices_fini(&prices);
    return st;
}

int dyti_cmd_plan(int argc, char **argv)
{
    struct arguments a = {0};
    struct dyti_loaded_job loaded;
    enum dyt_status st;

    argp_err_exit_status = DYTI_EXIT_CALLER;
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    if (a.specs.pairs && !a.json) {
        return dyti_exit_fail(
            "plan", DYTI_FAIL(DYT_ERR_CONFIG, "--pairs goes with --json"));
    }
    if (a.specs.from != NULL || a.specs.to != NULL) {
        return plan_specs(&a);
    }
    st = dyti_exit_given(check_job_arguments(&a));
    st = st != DYT_OK ? st
                      : dyti_loaded_job_open(a.job.job, a.job.set,
                                             a.job.set_count, &loaded);
    if (st != DYT_OK) {
        return dyti_exit_fail("plan", st);
    }
    st = plan_job(&a, &loaded);
    dyti_loaded_job_close(&loaded);
    return st == DYT_OK ? DYTI_EXIT_OK : dyti_exit_fail("plan", st);
}
