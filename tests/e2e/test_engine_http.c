/* The example engine that talks HTTP, against servers that answer as vLLM and
 * SGLang do, and against some that should not be trusted. */
#include "dyt_run.h"

#include "base/error.h"
#include "plugin/engine_load.h"

#include <string.h>

#define SECONDS 1000000000ll

struct server {
    struct dyt_process process;
    char option[64]; /* http://127.0.0.1:PORT */
};

static struct server start(const char *kind, const char *fault)
{
    char python[] = "python3",
         script[] = DYT_SOURCE "/tests/e2e/fake_llm_server.py";
    char env[] = "/usr/bin/env", k[16], f[16];
    char *argv[] = {env, python, script, k, f, NULL};
    struct server s;
    char line[32] = "";
    size_t n = 0;

    snprintf(k, sizeof(k), "%s", kind);
    snprintf(f, sizeof(f), "%s", fault);
    s.process = dyt_start_argv(argv);
    while (n + 1 < sizeof(line) && read(s.process.fd, &line[n], 1) == 1 &&
           line[n] != '\n') {
        n++;
    }
    line[n] = '\0';
    assert_true(strtol(line, NULL, 10) > 0);
    snprintf(s.option, sizeof(s.option), "http://127.0.0.1:%s", line);
    return s;
}

static void stop(struct server *s)
{
    kill(s->process.pid, SIGKILL);
    waitpid(s->process.pid, NULL, 0);
    close(s->process.fd);
    close(s->process.pidfd);
}

/* ---- what the manager would do ------------------------------------------- */

struct engine {
    const struct dyt_engine_ops *ops;
    void *self;
};

static enum dyt_status open_engine(struct engine *e, const char *kind,
                                   const struct server *server, size_t count,
                                   const char *key, const char *value)
{
    static const char *const url[] = {"url", "url2", "url3"};
    struct dyt_engine_option option[6];
    struct dyt_engine_open open = {.struct_size = sizeof(open),
                                   .option = option,
                                   .job_address = "unix:/nowhere",
                                   .job = "job",
                                   .model = "model",
                                   .timeout_ns = 20 * SECONDS};

    assert_status(DYT_OK, dyti_engine_load(DYT_ENGINE_HTTP, &e->ops));
    option[open.option_count++] = (struct dyt_engine_option){"kind", kind};
    for (size_t i = 0; i < count; i++) {
        option[open.option_count++] =
            (struct dyt_engine_option){url[i], server[i].option};
    }
    if (key != NULL) {
        option[open.option_count++] = (struct dyt_engine_option){key, value};
    }
    return e->ops->open(&open, &e->self);
}

static enum dyt_status update_while(struct engine *e, uint64_t version,
                                    uint32_t in_flight)
{
    struct dyt_switch_report report = {.struct_size = sizeof(report)};
    enum dyt_status st = e->ops->pause(e->self, in_flight);

    st = st != DYT_OK ? st
                      : e->ops->update(e->self, version, 5 * SECONDS, &report);
    if (st == DYT_OK) {
        assert_int_equal(version, report.version);
        st = e->ops->resume(e->self);
    }
    return st;
}

static enum dyt_status update(struct engine *e, uint64_t version)
{
    return update_while(e, version, 0);
}

#define PROMPTS 5u
#define SAMPLES 3u

static enum dyt_status submit(struct engine *e, float temperature)
{
    static const int32_t token[PROMPTS] = {11, 12, 13, 14, 15}, stop[1] = {2};
    struct dyt_engine_prompt prompt[PROMPTS];

    for (uint32_t i = 0; i < PROMPTS; i++) {
        prompt[i] = (struct dyt_engine_prompt){.struct_size = sizeof(prompt[i]),
                                               .token = token,
                                               .token_count = i + 1,
                                               .id = 100 + i,
                                               .seed = 1,
                                               .samples = SAMPLES,
                                               .max_tokens = 6,
                                               .temperature = temperature,
                                               .top_p = 1.0f,
                                               .stop = stop,
                                               .stop_count = 1};
    }
    return e->ops->submit(e->self, prompt, PROMPTS);
}

/* The fake completes a prompt with its ids reversed, and more by the index. */
static void check_sample(const struct dyt_engine_sample *s, uint64_t version)
{
    uint32_t length = (uint32_t)(s->id - 100) + 1;
    uint32_t want = length + s->index < 6 ? length + s->index : 6;

    assert_int_equal(want, s->token_count);
    assert_int_equal(want == 6 ? DYT_ENGINE_LENGTH : DYT_ENGINE_STOP,
                     s->finish);
    assert_int_equal(10 + length, s->token[0]);
    for (uint32_t i = 0; i < want; i++) {
        assert_float_equal((float)s->token[i] / -1000.0f, s->logprob[i], 1e-6f);
    }
    assert_int_equal(1, s->span_count);
    assert_int_equal(version, s->span[0].version);
}

/* Every sample of every prompt, once. */
static enum dyt_status collect_all(struct engine *e, uint64_t version)
{
    uint32_t seen[PROMPTS] = {0}, count = 0;

    while (count < PROMPTS * SAMPLES) {
        struct dyt_engine_sample s = {.struct_size = sizeof(s)};
        enum dyt_status st = e->ops->collect(e->self, 20 * SECONDS, &s);

        if (st != DYT_OK) {
            return st;
        }
        assert_in_range(s.id, 100, 100 + PROMPTS - 1);
        assert_int_equal(0, seen[s.id - 100] >> s.index & 1u);
        seen[s.id - 100] |= 1u << s.index;
        check_sample(&s, version);
        count++;
    }
    {
        struct dyt_engine_sample s = {.struct_size = sizeof(s)};

        assert_status(DYT_PENDING, e->ops->collect(e->self, 1000, &s));
    }
    return DYT_OK;
}

static void generate_of_kind(const char *kind)
{
    struct server server[2] = {start(kind, ""), start(kind, "")};
    struct engine e;

    assert_status(DYT_OK, open_engine(&e, kind, server, 2, NULL, NULL));
    assert_status(DYT_ERR_PEER, submit(&e, 1.0f)); /* no version yet */
    e.ops->close(e.self);
    assert_status(DYT_OK, open_engine(&e, kind, server, 2, NULL, NULL));
    for (uint64_t version = 1; version < 4; version++) {
        /* requests wait, are aborted, go on */
        assert_status(DYT_OK, update_while(&e, version, (uint32_t)version - 1));
        assert_status(DYT_OK, submit(&e, 1.0f));
        assert_status(DYT_OK, collect_all(&e, version));
    }
    e.ops->close(e.self);
    stop(&server[0]);
    stop(&server[1]);
}

static void samples_of_vllm_come_back_whole(void **state)
{
    (void)state;
    generate_of_kind("vllm");
}

static void samples_of_sglang_come_back_whole(void **state)
{
    (void)state;
    generate_of_kind("sglang");
}

/* Requests run when a version comes.  They end before it, or begin anew after
 * it: no sample is of two versions, or called by another than made it. */
static void straddle(const char *kind, const char *fault, uint32_t in_flight)
{
    struct server server = start(kind, fault);
    struct dyt_engine_sample s = {.struct_size = sizeof(s)};
    struct engine e;

    assert_status(DYT_OK, open_engine(&e, kind, &server, 1, NULL, NULL));
    assert_status(DYT_OK, update(&e, 1));
    assert_status(DYT_OK, submit(&e, 1.0f));
    if (fault[0] != '\0') { /* they are at the server, which waits */
        assert_status(DYT_PENDING, e.ops->collect(e.self, SECONDS / 4, &s));
    }
    assert_status(DYT_OK, update_while(&e, 2, in_flight));
    assert_status(DYT_OK, collect_all(&e, in_flight == 0 ? 1 : 2));
    assert_status(DYT_OK, submit(&e, 1.0f));
    assert_status(DYT_OK, collect_all(&e, 2));
    e.ops->close(e.self);
    stop(&server);
}

static void a_sample_is_of_one_version_whatever_runs_at_an_update(void **state)
{
    (void)state;
    straddle("vllm", "", 0);
    straddle("vllm", "holds", 1);
    straddle("vllm", "holds", 2);
    for (uint32_t in_flight = 0; in_flight < 3; in_flight++) {
        straddle("sglang", "", in_flight);
    }
}

static void a_fault_of_one_server_is_another_ones_work(void **state)
{
    static const char *const faults[] = {"once-500", "dies"};

    (void)state;
    dyt_test_allow_complaints();
    for (size_t i = 0; i < 2; i++) {
        struct server server[2] = {start("vllm", faults[i]), start("vllm", "")};
        struct engine e;

        assert_status(DYT_OK, open_engine(&e, "vllm", server, 2, NULL, NULL));
        assert_status(DYT_OK, update(&e, 1));
        assert_status(DYT_OK, submit(&e, 1.0f));
        assert_status(DYT_OK, collect_all(&e, 1));
        e.ops->close(e.self);
        stop(&server[0]);
        stop(&server[1]);
    }
}

static void no_server_left_is_said(void **state)
{
    struct server server = start("vllm", "dies");
    struct engine e;

    (void)state;
    assert_status(DYT_OK, open_engine(&e, "vllm", &server, 1, NULL, NULL));
    assert_status(DYT_OK, update(&e, 1));
    assert_status(DYT_OK, submit(&e, 1.0f));
    assert_status(DYT_ERR_PEER, collect_all(&e, 1));
    assert_non_null(strstr(dyt_error_text(), "no server is left"));
    e.ops->close(e.self);
    stop(&server);
}

static void text_without_ids_is_refused(void **state)
{
    static const char *const kinds[] = {"vllm", "sglang"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct server server = start(kinds[i], "text-only");
        struct engine e;

        assert_status(DYT_ERR_UNSUPPORTED,
                      open_engine(&e, kinds[i], &server, 1, NULL, NULL));
        assert_non_null(strstr(dyt_error_text(), "needs token ids"));
        stop(&server);
    }
}

static void log_probabilities_of_another_temperature_are_refused(void **state)
{
    struct server server = start("vllm", "");
    struct engine e;

    (void)state;
    assert_status(DYT_OK, open_engine(&e, "vllm", &server, 1, NULL, NULL));
    assert_status(DYT_OK, update(&e, 1));
    assert_status(DYT_ERR_UNSUPPORTED, submit(&e, 0.7f));
    assert_non_null(strstr(dyt_error_text(), "logprobs=processed"));
    e.ops->close(e.self);
    assert_status(DYT_OK,
                  open_engine(&e, "vllm", &server, 1, "logprobs", "processed"));
    assert_status(DYT_OK, update(&e, 2));
    assert_status(DYT_OK, submit(&e, 0.7f));
    assert_status(DYT_OK, collect_all(&e, 2));
    e.ops->close(e.self);
    stop(&server);
}

static void refuses_of_kind(const char *kind)
{
    struct server server[2] = {start(kind, "refuses"), start(kind, "")};
    struct engine e;

    assert_status(DYT_OK, open_engine(&e, kind, server, 2, NULL, NULL));
    assert_status(DYT_OK, update(&e, 1));
    assert_status(DYT_OK, submit(&e, 1.0f));
    assert_status(DYT_OK, collect_all(&e, 1));
    e.ops->close(e.self);
    assert_status(DYT_OK, open_engine(&e, kind, server, 1, NULL, NULL));
    for (uint64_t version = 2; version < 4; version++) { /* it lives on */
        assert_status(DYT_ERR_PEER, update(&e, version));
        assert_non_null(strstr(dyt_error_text(), "version refused"));
    }
    e.ops->close(e.self);
    stop(&server[0]);
    stop(&server[1]);
}

static void a_replica_that_refuses_a_version_is_left_out(void **state)
{
    (void)state;
    refuses_of_kind("vllm");
    refuses_of_kind("sglang");
}

static void wrong_options_are_named(void **state)
{
    static const char *const wrong[][2] = {
        {"kind", "tgi"},     {"retries", "many"}, {"concurrency", "0"},
        {"url9", "ftp://x"}, {"speed", "fast"},   {"logprobs", "raw"},
    };
    struct engine e;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_status(DYT_ERR_CONFIG, open_engine(&e, "vllm", NULL, 0,
                                                  wrong[i][0], wrong[i][1]));
        assert_non_null(strstr(dyt_error_text(), wrong[i][0]));
    }
    assert_status(DYT_ERR_CONFIG, open_engine(&e, "vllm", NULL, 0, NULL, NULL));
    assert_non_null(strstr(dyt_error_text(), "no server"));
}

static void a_server_that_is_not_there_is_said(void **state)
{
    struct server server = {.option = "http://127.0.0.1:9"};
    struct engine e;

    (void)state;
    assert_status(DYT_ERR_PEER,
                  open_engine(&e, "vllm", &server, 1, NULL, NULL));
    assert_non_null(strstr(dyt_error_text(), "127.0.0.1:9"));
}

/* ---- what is no engine --------------------------------------------------- */

static void a_file_that_is_no_engine_is_refused(void **state)
{
    const struct dyt_engine_ops *ops;

    (void)state;
    assert_status(DYT_ERR_CONFIG, dyti_engine_load("/nowhere.so", &ops));
    assert_non_null(strstr(dyt_error_text(), "/nowhere.so"));
    assert_status(DYT_ERR_CONFIG, dyti_engine_load("libm.so.6", &ops));
    assert_non_null(strstr(dyt_error_text(), DYT_ENGINE_ENTRY_NAME));
}

static void a_table_that_lacks_something_is_refused(void **state)
{
    const struct dyt_engine_ops *whole;
    struct dyt_engine_ops ops;

    (void)state;
    assert_status(DYT_OK, dyti_engine_load(DYT_ENGINE_HTTP, &whole));
    ops = *whole;
    assert_status(DYT_OK, dyti_engine_check(&ops, "x"));
    ops.collect = NULL;
    assert_status(DYT_ERR_ABI, dyti_engine_check(&ops, "x"));
    assert_non_null(strstr(dyt_error_text(), "`collect`"));
    ops = *whole;
    ops.struct_size = 16;
    assert_status(DYT_ERR_ABI, dyti_engine_check(&ops, "x"));
    assert_non_null(strstr(dyt_error_text(), "16 bytes"));
    ops = *whole; /* of a caller who knows neither release nor restore */
    ops.struct_size = offsetof(struct dyt_engine_ops, release);
    assert_status(DYT_OK, dyti_engine_check(&ops, "x"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(samples_of_vllm_come_back_whole),
    cmocka_unit_test(samples_of_sglang_come_back_whole),
    cmocka_unit_test(a_sample_is_of_one_version_whatever_runs_at_an_update),
    cmocka_unit_test(a_fault_of_one_server_is_another_ones_work),
    cmocka_unit_test(no_server_left_is_said),
    cmocka_unit_test(text_without_ids_is_refused),
    cmocka_unit_test(log_probabilities_of_another_temperature_are_refused),
    cmocka_unit_test(a_replica_that_refuses_a_version_is_left_out),
    cmocka_unit_test(wrong_options_are_named),
    cmocka_unit_test(a_server_that_is_not_there_is_said),
    cmocka_unit_test(a_file_that_is_no_engine_is_refused),
    cmocka_unit_test(a_table_that_lacks_something_is_refused),
};
DYT_TEST_MAIN(tests)
