/* Wrong configurations: each gives exactly one line that names the thing, the
 * place and the remedy. */
#include "dyt_test.h"
#include "format/job.h"
#include "job_text.h"

#include <ctype.h>

/* The good job with `with` in place of the first `take`, or one --set. */
struct wrong {
    const char *take, *with;
    const char *set; /* NULL: none */
    enum dyt_status status;
    const char *says[3]; /* place, thing, remedy: parts of the one line */
};

#define CONFIG DYT_ERR_CONFIG
#define LATER DYT_ERR_UNSUPPORTED

static const struct wrong wrongs[] = {
    /* not TOML, keys */
    {"steps = 10", "steps = ", NULL, CONFIG, {"job.toml:3:"}},
    {"steps = 10", "steps = 10\nsteps = 11", NULL, CONFIG, {"job.toml:4:", "steps"}},
    {"steps", "step", NULL, CONFIG, {"job.toml:3:1", "step:", "mean steps?"}},
    {"prompts_per_step", "promts_per_step", NULL, CONFIG,
     {"job.toml:10:1", "algorithm.promts_per_step",
      "did you mean algorithm.prompts_per_step?"}},
    {"[algorithm]", "[algoritm]", NULL, CONFIG, {"job.toml:9:2", "algoritm"}},
    {"tp = 4", "tq = 4", NULL, CONFIG,
     {"phase.rollout.layout.tq", "phase.rollout.layout.tp?"}},
    {"lr = 1e-3", "learn = 1", NULL, CONFIG,
     {"phase.train.optimizer.learn", "docs/config.md"}},
    {"ranks = 4", "ranks = 4\nlr = 1", NULL, CONFIG,
     {"job.toml:5:1", "phase.NAME.optimizer.lr?"}},
    {"pp = 2", "prompts_per_step = 2", NULL, CONFIG,
     {"unknown key", "algorithm.prompts_per_step?"}},
    {"answer = \"y\"", "anser = \"y\"", NULL, CONFIG,
     {"reward.functions.0.anser", "reward.functions.0.answer?"}},
    {"[[reward.functions]]", "[[reward.function]]", NULL, CONFIG,
     {"reward.function", "did you mean reward.functions?"}},
    {"[algorithm]", "[algorithm]\n\"kl.coef\" = 1", NULL, CONFIG,
     {"unknown key", "algorithm.kl.coef"}},
    /* types */
    {"steps = 10", "steps = \"10\"", NULL, CONFIG,
     {"job.toml:3:9", "steps", "wants an integer, not a string"}},
    {"steps = 10", "steps = 10.5", NULL, CONFIG,
     {"steps", "wants an integer, not a number"}},
    {"name = \"t\"", "name = 3", NULL, CONFIG, {"name", "wants a string"}},
    {"train = \"a.jsonl\"", "train = true", NULL, CONFIG,
     {"data.train", "wants a path in quotes"}},
    {"[data]", "[data]\nshuffle = \"yes\"", NULL, CONFIG,
     {"data.shuffle", "wants true or false"}},
    {"lr = 1e-3", "lr = \"fast\"", NULL, CONFIG,
     {"phase.train.optimizer.lr", "wants a number"}},
    {"lr = 1e-3", "lr = 1e-3\nbetas = [0.9]", NULL, CONFIG,
     {"optimizer.betas", "wants two numbers, as [0.9, 0.95]"}},
    {"lr = 1e-3", "lr = 1e-3\nbetas = [0.9, 1.0]", NULL, CONFIG,
     {"optimizer.betas", "1 is too large: must be below 1"}},
    {"tp = 4", "tp = 4\npp_layers = 3", NULL, CONFIG,
     {"layout.pp_layers", "wants a list of integers"}},
    {"max_response_tokens = 4", "max_response_tokens = 4\nstop = [1]", NULL,
     CONFIG, {"sampling.stop", "wants a list of strings"}},
    {"max_response_tokens = 4", "max_response_tokens = 4\nstop = [\"\"]", NULL,
     CONFIG, {"sampling.stop", "an empty string: leave it out"}},
    {"[data]", "[switch]\nmemory_cap = \"64 parsecs\"\n[data]", NULL, CONFIG,
     {"switch.memory_cap", "no size", "\"64MiB\""}},
    {"[data]", "[stop]\nseconds = \"soon\"\n[data]", NULL, CONFIG,
     {"stop.seconds", "no time", "\"80s\""}},
    {"[data]", "data = 3\n", NULL, CONFIG, {"data: wants a table", "[data]"}},
    {"[[phase]]", "[phase]", NULL, CONFIG, {"job.toml:"}},
    {GOOD_REWARD, "reward = 1\n", NULL, CONFIG, {"algorithm.reward"}},
    /* ranges */
    {"steps = 10", "steps = 0", NULL, CONFIG,
     {"job.toml:3:9", "steps", "0 is too small: at least 1"}},
    {"ranks = 4", "ranks = 70000", NULL, CONFIG, {"ranks", "at most 65536"}},
    {"steps = 10", "steps = 10\nseed = -1", NULL, CONFIG,
     {"seed", "-1 is too small"}},
    {"samples_per_prompt = 4", "samples_per_prompt = 1", NULL, CONFIG,
     {"algorithm.samples_per_prompt", "at least 2"}},
    {"max_response_tokens = 4", "max_response_tokens = 4\ntemperature = 0",
     NULL, CONFIG, {"sampling.temperature", "must be above 0"}},
    {"max_response_tokens = 4", "max_response_tokens = 4\ntop_p = 1.1", NULL,
     CONFIG, {"sampling.top_p", "at most 1"}},
    {"lr = 1e-3", "lr = nan", NULL, CONFIG, {"optimizer.lr", "not nan"}},
    {"lr = 1e-3", "lr = inf", NULL, CONFIG, {"optimizer.lr", "at most 10"}},
    /* words */
    {"[algorithm]", "[algorithm]\nname = \"gpro\"", NULL, CONFIG,
     {"algorithm.name", "grpo or rloo", "did you mean \"grpo\"?"}},
    {"[algorithm]", "[algorithm]\nname = \"ppo\"", NULL, LATER,
     {"algorithm.name", "\"ppo\" is not available yet", "grpo or rloo"}},
    {"[data]", "[data]\nchat_template = \"alpaca\"", NULL, CONFIG,
     {"data.chat_template", "\"alpaca\" is none of auto, none"}},
    {"tp = 4", "tp = 4\ndtype = \"fp32\"", NULL, CONFIG,
     {"layout.dtype", "f32 or bf16", "\"f32\"?"}},
    {"tp = 4", "tp = 4\ndtype = \"f16\"", NULL, LATER,
     {"layout.dtype", "not available yet"}},
    {"name = \"train\"", "name = \"learn\"", NULL, CONFIG,
     {"phase.name", "rollout or train"}},
    {"name = \"train\"", "name = \"score\"", NULL, LATER,
     {"phase.name", "not available yet"}},
    {"kind = \"exact\"", "kind = \"fuzzy\"", NULL, CONFIG,
     {"reward.functions.0.kind", "exact, numeric"}},
    /* documented, later */
    {"[data]", "[switch]\nmode = \"staged\"\n[data]", NULL, LATER,
     {"job.toml:6:8", "switch.mode: \"staged\"", "use transactional"}},
    {"[data]", "[switch]\nmode = \"in_place\"\n[data]", NULL, LATER,
     {"switch.mode: \"in_place\" is not available yet"}},
    {"[data]", "[switch]\nmode = \"fast\"\n[data]", NULL, CONFIG,
     {"switch.mode: \"fast\" is none of transactional"}},
    {"[data]", "[switch]\non_low_memory = \"in_place\"\n[data]", NULL, LATER,
     {"switch.on_low_memory", "use refuse"}},
    {"[data]", "[switch]\nin_flight = \"abort\"\n[data]", NULL, LATER,
     {"switch.in_flight", "use wait"}},
    {"[data]", "[devices]\nkind = \"cuda\"\n[data]", NULL, LATER,
     {"devices.kind", "use host"}},
    {"[data]", "[numerics]\nmode = \"invariant\"\n[data]", NULL, LATER,
     {"numerics.mode", "use deterministic"}},
    {"zero = 1", "zero = 2", NULL, LATER,
     {"layout.zero", "2 is not available yet: at most 1"}},
    {"zero = 1", "zero = 4", NULL, CONFIG, {"layout.zero", "at most 3"}},
    {"[algorithm]", "[algorithm]\nmax_staleness = 2", NULL, LATER,
     {"algorithm.max_staleness", "at most 0"}},
    {"[phase.layout]\ntp", "engine = {kind = \"vllm\", urls = []}\n"
                           "[phase.layout]\ntp",
     NULL, LATER, {"phase.rollout.engine", "\"vllm\" is not available yet"}},
    {"[phase.layout]\ntp", "engine = \"sglang\"\n[phase.layout]\ntp", NULL,
     CONFIG, {"phase.rollout.engine", "none of builtin"}},
    {"[phase.layout]\ntp",
     "[phase.residency]\noptimizer = \"host\"\n[phase.layout]\ntp", NULL, LATER,
     {"residency.optimizer", "parked or move"}},
    /* what must be there */
    {"model = \"m\"\n", "", NULL, CONFIG, {"job.toml: model is not set"}},
    {"steps = 10\n", "", NULL, CONFIG, {"job.toml: steps is not set"}},
    {"samples_per_prompt = 4\n", "", NULL, CONFIG,
     {"algorithm.samples_per_prompt is not set"}},
    {"lr = 1e-3\n", "", NULL, CONFIG, {"optimizer.lr is not set"}},
    {GOOD_REWARD, "", NULL, CONFIG, {"no reward", "[[reward.functions]]"}},
    {GOOD_ROLLOUT GOOD_TRAIN, "", NULL, CONFIG, {"no phases", "[[phase]]"}},
    {GOOD_TRAIN, "", NULL, CONFIG, {"no train phase", "\"train\""}},
    {GOOD_ROLLOUT, "", NULL, CONFIG, {"no rollout phase"}},
    {GOOD_ROLLOUT GOOD_TRAIN, GOOD_TRAIN GOOD_ROLLOUT, NULL, CONFIG,
     {"put the phase named rollout first"}},
    {GOOD_TRAIN, GOOD_TRAIN "[[phase]]\nname = \"train\"\n", NULL, CONFIG,
     {"a second phase named train"}},
    {"name = \"train\"\n", "", NULL, CONFIG, {"a phase without a name"}},
    {"kind = \"exact\"\n", "", NULL, CONFIG, {"without a kind", "exact"}},
    {"answer = \"y\"\n", "", NULL, CONFIG, {"kind exact needs answer"}},
    {"kind = \"exact\"", "kind = \"regex\"", NULL, CONFIG,
     {"kind regex needs pattern"}},
    {"kind = \"exact\"\nanswer = \"y\"", "kind = \"command\"", NULL, CONFIG,
     {"kind command needs command"}},
    /* wrong place */
    {"kind = \"exact\"", "kind = \"exact\"\ntolerance = 1", NULL, CONFIG,
     {"reward.functions.0.tolerance", "no meaning in a exact", "take it out"}},
    {"pp = 2", "pp = 2\n[phase.kv]\nblock = 8", NULL, CONFIG,
     {"phase.train.kv.block", "no meaning in a train phase"}},
    {"tp = 4", "tp = 4\nzero = 1", NULL, CONFIG,
     {"phase.rollout.layout.zero", "no meaning in a rollout phase"}},
    {"name = \"train\"", "name = \"train\"\nconfig = \"t.toml\"", NULL, CONFIG,
     {"both config and settings", "t.toml"}},
    {"name = \"train\"\n[phase.layout]\npp = 2\ndp = 2\nzero = 1\n"
     "[phase.optimizer]\nlr = 1e-3\n",
     "name = \"train\"\nconfig = \"none.toml\"", NULL, DYT_ERR_IO,
     {"none.toml", "reading phase.train.config of job.toml:"}},
    {"name = \"train\"\n[phase.layout]\npp = 2\ndp = 2\nzero = 1\n"
     "[phase.optimizer]\nlr = 1e-3\n",
     "name = \"train\"\nconfig = 3", NULL, CONFIG,
     {"phase.train.config", "wants a path in quotes"}},
    /* what must fit */
    {"tp = 4", "tp = 3", NULL, CONFIG,
     {"job.toml:", "tp 3 x pp 1 x dp 1 = 3, but the phase has 4 ranks",
      "write tp = 4, or give it 3 ranks"}},
    {"dp = 2", "dp = 3", NULL, CONFIG, {"pp 2 x dp 3", "write dp = 2"}},
    {"pp = 2", "pp = 3", NULL, CONFIG, {"pp 3 x dp 2", "pp = 2"}},
    {"pp = 2\ndp = 2", "pp = 2\ndp = 2\nranks = [0, 1, 2]", NULL, CONFIG,
     {"= 4, but the phase has 3 ranks"}},
    {"pp = 2\ndp = 2", "pp = 2\ndp = 2\nranks = [0, 1, 2, 4]", NULL, CONFIG,
     {"layout.ranks", "no rank 4", "0 to 3"}},
    {"pp = 2\ndp = 2", "pp = 2\ndp = 2\nranks = [0, 1, 2, 2]", NULL, CONFIG,
     {"layout.ranks", "rank 2 is there twice"}},
    {"pp = 2", "pp = 2\npp_layers = [1, 1, 1]", NULL, CONFIG,
     {"layout.pp_layers", "3 entries for 2 pipeline stages"}},
    {"pp = 2", "pp = 2\npp_layers = [2, 0]", NULL, CONFIG,
     {"layout.pp_layers", "at least 1"}},
    {"ranks = 4", "ranks = 4\npools = {rollout = [0, 1]}", NULL, CONFIG,
     {"one pool without the other", "pools.train"}},
    {"ranks = 4", "ranks = 4\npools = {rollout = [9], train = [0]}", NULL,
     CONFIG, {"pools.rollout", "no rank 9"}},
    {"ranks = 4", "ranks = 4\npools = {rollout = [0, 1], train = [2, 3]}", NULL,
     CONFIG, {"but the phase has 2 ranks", "tp = 2"}},
    {"tp = 4", "tp = 1\nranks = [0]", NULL, DYT_OK, {NULL}},
    {"ranks = 4", "ranks = 5", NULL, CONFIG, {"has 5 ranks"}},
    {"tp = 4", "tp = 4", "phase.rollout.layout.ranks=[0,1]", CONFIG,
     {"has 2 ranks"}},
    {"lr = 1e-3", "lr = 1e-3\n[phase.batch]\nmini_batch = 7", NULL, CONFIG,
     {"batch.mini_batch", "7 does not divide the 24 sequences",
      "the nearest that do are 6 and 8"}},
    {"lr = 1e-3", "lr = 1e-3\n[phase.batch]\nmini_batch = 1", NULL, CONFIG,
     {"batch.mini_batch", "1 sequences for 2 replicas"}},
    {"lr = 1e-3", "lr = 1e-3\n[phase.batch]\nmicro_batch_tokens = 11", NULL,
     CONFIG, {"batch.micro_batch_tokens", "8 prompt + 4", "at least 12"}},
    {"lr = 1e-3", "lr = 1e-3\n[phase.loss]\nclip_dual = 0.5", NULL, CONFIG,
     {"loss.clip_dual", "0 (off) or above 1"}},
    {"lr = 1e-3", "lr = 1e-3\n[phase.lr_schedule]\nwarmup_steps = 11", NULL,
     CONFIG, {"lr_schedule.warmup_steps", "the job's 10 updates"}},
    {"max_response_tokens = 4",
     "max_response_tokens = 4\nmin_response_tokens = 5", NULL, CONFIG,
     {"sampling.min_response_tokens", "max_response_tokens = 4", "lower it"}},
    {"max_response_tokens = 4",
     "max_response_tokens = 4\n[phase.kv]\nmax_batch_tokens = 16", NULL, CONFIG,
     {"kv.max_batch_tokens", "at least 256"}},
    {"[algorithm]", "[algorithm]\noverlong_penalty = {buffer = 9}", NULL,
     CONFIG, {"algorithm.overlong_penalty.buffer", "lower it"}},
    {"[algorithm]", "[algorithm]\nrollout_is_min = 3.0", NULL, CONFIG,
     {"algorithm.rollout_is_min", "not below rollout_is_max"}},
    {"[algorithm]", "[eval]\nevery = 3\n[algorithm]", NULL, CONFIG,
     {"eval.every", "without eval.data"}},
    {"[algorithm]", "[eval]\ndata = \"e\"\nsamples = 3\n[algorithm]", NULL,
     CONFIG, {"eval.samples", "3 equal greedy answers"}},
    {"[algorithm]", "[checkpoint]\nkeep_best = 1\n[algorithm]", NULL, CONFIG,
     {"checkpoint.keep_best", "eval.data"}},
    {"name = \"t\"", "name = \"a/b\"", NULL, CONFIG,
     {"job.toml:1:1", "cannot name a folder"}},
    {"name = \"t\"", "name = \"..\"", NULL, CONFIG, {"cannot name a folder"}},
    {"model = \"m\"", "model = \"\"", NULL, CONFIG, {"model: is empty"}},
    {"prompt = \"{x}>\"", "prompt = \"{x>\"", NULL, CONFIG,
     {"data.prompt", "a lone brace at character 1"}},
    {GOOD_REWARD, GOOD_REWARD GOOD_REWARD, NULL, CONFIG,
     {"reward.functions.1", "a second one named exact"}},
    {"kind = \"exact\"", "kind = \"exact\"\nweight = 0", NULL, CONFIG,
     {"every weight is 0"}},
    {"kind = \"exact\"", "kind = \"exact\"\nname = \"mean\"", NULL, CONFIG,
     {"reward.functions.0.name", "cannot name a metric"}},
    /* --set */
    {NULL, NULL, "steps", CONFIG, {"--set", "steps", "key=value"}},
    {NULL, NULL, "=3", CONFIG, {"--set", "key=value"}},
    {NULL, NULL, "steps=many", CONFIG,
     {"--set: steps", "wants an integer, not a string"}},
    {NULL, NULL, "stepz=3", CONFIG, {"--set", "did you mean steps?"}},
    {NULL, NULL, "phase.learn.layout.tp=3", CONFIG,
     {"--set", "no phase is named \"learn\""}},
    {NULL, NULL, "phase.train.layout.tq=3", CONFIG,
     {"--set", "phase.train.layout.tp?"}},
    {NULL, NULL, "phase.train.layout.dp=3", CONFIG, {"--set", "dp = 2"}},
    {NULL, NULL, "reward.functions.7.weight=1", CONFIG,
     {"--set", "no such reward function", "0"}},
    {NULL, NULL, "reward.functions=3", CONFIG, {"--set", "wants 1 to 64"}},
    {NULL, NULL, "switch.mode=staged", LATER, {"--set", "transactional"}},
};

/* `text` with the first `take` replaced; the caller frees it. */
static char *replaced(const char *text, const char *take, const char *with)
{
    const char *at = take == NULL ? NULL : strstr(text, take);
    char *out = NULL;

    if (take == NULL) {
        return strdup(text);
    }
    if (at == NULL) {
        fail_msg("the good job has no \"%s\"", take);
    }
    assert_true(asprintf(&out, "%.*s%s%s", (int)(at - text), text, with,
                         at + strlen(take)) >= 0);
    return out;
}

static bool one_clear_line(const char *line)
{
    size_t bytes = strlen(line);

    return bytes > 10 && bytes < 500 && strchr(line, '\n') == NULL &&
           strstr(line, "(null)") == NULL;
}

static void try_one(const struct wrong *wrong)
{
    char *text = replaced(GOOD_JOB, wrong->take, wrong->with);
    struct dyti_job job = {0};
    enum dyt_status st;
    const char *line;

    st = dyti_job_parse_text(text, strlen(text), "job.toml", &wrong->set,
                             wrong->set != NULL, &job);
    if (st != wrong->status) {
        print_error("%s: %s\n", text, dyti_error_text());
    }
    assert_int_equal(wrong->status, st);
    line = dyti_error_message();
    for (size_t i = 0; st != DYT_OK && i < 3 && wrong->says[i]; i++) {
        if (strstr(line, wrong->says[i]) == NULL || !one_clear_line(line)) {
            fail_msg("\"%s\" does not say \"%s\"", line, wrong->says[i]);
        }
    }
    if (st != DYT_OK) {
        assert_null(job.name); /* untouched */
    }
    dyti_job_fini(&job);
    free(text);
}

static void every_wrong_job_has_its_line(void **state)
{
    (void)state;
    assert_true(DYT_TEST_COUNT(wrongs) >= 45);
    for (size_t i = 0; i < DYT_TEST_COUNT(wrongs); i++) {
        try_one(&wrongs[i]);
    }
}

/* A job cut anywhere, or with a byte changed, never does worse than an error:
 * what the sanitizers watch. */
static void broken_texts_are_harmless(void **state)
{
    static const char good[] = GOOD_JOB;
    static const char bytes[] = "\"[]{}=.\n\x01\xff"
                                "0a";
    char text[sizeof(good)];

    (void)state;
    for (size_t i = 0; i < sizeof(good) - 1; i++) {
        struct dyti_job job = {0};

        if (dyti_job_parse_text(good, i, "job.toml", NULL, 0, &job) ==
            DYT_OK) {
            dyti_job_fini(&job);
        }
        memcpy(text, good, sizeof(good));
        text[i] = bytes[i % (sizeof(bytes) - 1)];
        if (dyti_job_parse_text(text, sizeof(good) - 1, "job.toml", NULL, 0,
                                &job) == DYT_OK) {
            dyti_job_fini(&job);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_wrong_job_has_its_line),
    cmocka_unit_test(broken_texts_are_harmless),
};
DYT_TEST_MAIN(tests)
