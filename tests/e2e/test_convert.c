/* `dynatrain convert`: round trips through the dialects, kills, caps, files
 * that lie. */
#include "dyt_job.h"

#include <glob.h>

static void join(char buf[400], const char *dir, const char *name)
{
    snprintf(buf, 400, "%s/%s", dir, name);
}

static void make_model(const char *dir, const char *preset)
{
    struct dyt_run run =
        dyt_run("model", "init", "--preset", preset, "--out", dir, NULL);

    assert_exit(0, run);
    dyt_run_fini(&run);
}

static void convert(const char *from, const char *to, const char *spec)
{
    struct dyt_run run = dyt_run("convert", from, to, "--to", spec,
                                 "--memory-cap", "8MiB", NULL);

    assert_exit(0, run);
    assert_says("hashes are", run);
    dyt_run_fini(&run);
}

static void assert_same_file(const char *a_dir, const char *b_dir,
                             const char *name)
{
    char a_path[400], b_path[400], *a, *b;
    size_t a_bytes, b_bytes;

    join(a_path, a_dir, name);
    join(b_path, b_dir, name);
    a = dyt_test_read(a_path, &a_bytes);
    b = dyt_test_read(b_path, &b_bytes);
    if (a_bytes != b_bytes || memcmp(a, b, a_bytes) != 0) {
        fail_msg("%s and %s differ", a_path, b_path);
    }
    free(a);
    free(b);
}

static bool there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Hugging Face -> Megatron -> vLLM -> ZeRO-3 -> … -> Hugging Face: every file
 * is what it was, bit for bit. */
static void what_goes_round_is_the_same(void **state)
{
    static const char *const chain[] = {"megatron:tp=2,pp=2",
                                        "vllm:tp=2",
                                        "zero3:dp=3",
                                        "fsdp2:tp=2,dp=3",
                                        "native:tp=2,pp=2",
                                        "zero12:dp=2,zero=2",
                                        "hf:dp=2",
                                        "megatron:dp=2,zero=1"};
    static const char *const preset[] = {"tiny", "test-moe", "test-mla",
                                         "test-llama3"};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(preset); i++) {
        const char *dir = dyt_test_dir();
        char first[400], from[400], to[400];

        join(first, dir, "hf");
        make_model(first, preset[i]);
        snprintf(from, sizeof(from), "%s", first);
        for (size_t n = 0; n < DYT_TEST_COUNT(chain); n++) {
            char name[16];

            snprintf(name, sizeof(name), "%zu", n);
            join(to, dir, name);
            convert(from, to, chain[n]);
            snprintf(from, sizeof(from), "%s", to);
        }
        join(to, dir, "again");
        convert(from, to, "hf");
        assert_same_file(first, to, "model.safetensors");
        assert_same_file(first, to, "config.json");
        assert_same_file(first, to, "tokenizer.json");
    }
}

/* A checkpoint keeps its state: through shards and back it can be resumed. */
static void state_goes_along(void **state)
{
    static const char *const file[] = {"model.safetensors",
                                       "exp_avg.safetensors",
                                       "exp_avg_sq.safetensors", "state.json"};
    struct dyt_job job = dyt_job_new("tiny");
    struct dyt_run run =
        dyt_job_run(&job, "name=a", "steps=2", "checkpoint.every=2", NULL);
    char pattern[400], sharded[400], again[400], marker[430];
    glob_t found;

    (void)state;
    assert_exit(0, run);
    dyt_run_fini(&run);
    join(pattern, job.runs, "a/checkpoints/step-*");
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    join(sharded, job.dir, "sharded");
    join(again, job.dir, "again");
    convert(found.gl_pathv[0], sharded, "megatron:tp=2,dp=2,zero=1");
    convert(sharded, again, "checkpoint");
    for (size_t i = 0; i < DYT_TEST_COUNT(file); i++) {
        assert_same_file(found.gl_pathv[0], again, file[i]);
    }
    snprintf(marker, sizeof(marker), "%s/complete.json", again);
    assert_true(there(marker));
    /* and what was none becomes none */
    join(pattern, job.dir, "none");
    run = dyt_run("convert", job.model, pattern, "--to", "checkpoint", NULL);
    assert_exit(2, run);
    assert_says("only what was a checkpoint becomes one", run);
    dyt_run_fini(&run);
    globfree(&found);
}

/* Killed anywhere: the result is whole or not there, and the same command goes
 * on or begins anew. */
static void a_kill_leaves_nothing_half(void **state)
{
    static const char *const at[] = {"writing 0", "writing 1",  "writing 4",
                                     "writing 8", "checking 0", "checking 3",
                                     "checking 9"};
    const char *dir = dyt_test_dir();
    char model[400], want[400], to[400], partial[420];

    (void)state;
    join(model, dir, "hf");
    join(want, dir, "want");
    join(to, dir, "to");
    snprintf(partial, sizeof(partial), "%s.partial", to);
    make_model(model, "small");
    convert(model, want, "zero3:dp=7");
    for (size_t i = 0; i < DYT_TEST_COUNT(at); i++) {
        struct dyt_process p =
            dyt_start("convert", model, to, "--to", "zero3:dp=7", NULL);
        struct dyt_run run;
        bool whole;

        (void)dyt_read_until(&p, at[i]);
        kill(p.pid, SIGKILL);
        run = dyt_finish(&p);
        whole = there(to);
        assert_true(run.signal == SIGKILL || run.code == 0);
        dyt_run_fini(&run);
        if (!whole) {
            assert_true(there(partial));
            convert(model, to, "zero3:dp=7");
        }
        assert_same_file(want, to, "manifest.json");
        for (int r = 0; r < 7; r++) {
            char name[48];

            snprintf(name, sizeof(name), "rank-%05d.safetensors", r);
            assert_same_file(want, to, name);
        }
        assert_false(there(partial));
        dyt_test_remove_tree(to);
    }
}

/* What another conversion left behind is not gone on with. */
static void another_conversion_begins_anew(void **state)
{
    const char *dir = dyt_test_dir();
    char model[400], to[400], stale[430];
    struct dyt_process p;
    struct dyt_run run;

    (void)state;
    join(model, dir, "hf");
    join(to, dir, "to");
    make_model(model, "small");
    p = dyt_start("convert", model, to, "--to", "zero3:dp=7", NULL);
    (void)dyt_read_until(&p, "writing 4");
    kill(p.pid, SIGKILL);
    run = dyt_finish(&p);
    dyt_run_fini(&run);
    dyt_test_remove_tree(to);
    convert(model, to, "zero3:dp=2");
    snprintf(stale, sizeof(stale), "%s/rank-00003.safetensors", to);
    assert_false(there(stale));
    /* and what is there is not written over */
    run = dyt_run("convert", model, to, "--to", "hf", NULL);
    assert_exit(2, run);
    assert_says("is there already", run);
    dyt_run_fini(&run);
}

/* Replace the first `from` in a file. */
static void edit(const char *path, const char *from, const char *to)
{
    size_t bytes;
    char *text = dyt_test_read(path, &bytes), *at = strstr(text, from);
    FILE *out;

    assert_non_null(at);
    out = fopen(path, "wb");
    assert_non_null(out);
    fwrite(text, 1, (size_t)(at - text), out);
    fwrite(to, 1, strlen(to), out);
    fwrite(at + strlen(from), 1, bytes - (size_t)(at - text) - strlen(from),
           out);
    assert_int_equal(fclose(out), 0);
    free(text);
}

/* Something else, or nothing, where a file should be. */
static void lacks_are_found(const char *good, const char *to)
{
    static const struct {
        const char *name, *part;
        bool is_folder;
    } row[] = {
        {"rank-00001.safetensors", "is no regular file", true},
        {"rank-00001.safetensors", "rank-00001.safetensors is missing", false},
        {"manifest.json", "files of ranks and no manifest.json", false},
        {"config.json", "config.json", false}};

    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        char *path = dyt_words("%s/%s", good, row[i].name);
        struct dyt_run run;

        (void)unlink(path);
        (void)rmdir(path);
        assert_int_equal(0, row[i].is_folder ? mkdir(path, 0700) : 0);
        run = dyt_run("convert", good, to, NULL);
        assert_exit(2, run);
        assert_says(row[i].part, run);
        dyt_run_fini(&run);
        assert_false(there(to));
        free(path);
    }
}

/* Manifests that lie, files that are damaged: refused by name, and nothing is
 * left under the result's name. */
static void lies_are_found(void **state)
{
    static const struct {
        const char *from, *to, *part;
    } row[] = {
        {"dynatrain.shards/1", "dynatrain.shards/9", "schema"},
        {"vllm:tp=2", "vllm:tp=1", "etp 2 does not divide"},
        {"\"vllm:", "\"megatron:", "fingerprint of the layout"},
        {"\"vllm:", "\"vlm:", "did you mean"},
        {"\"vllm:", "\"/etc/x.toml\", \"y\": \"", "no line"},
        {"\"world\": 2", "\"world\": 1000000", "is missing"},
        {"\"world\": 2", "\"world\": 0", "world"},
        {"\"kinds\": [", "\"kinds\": [\"exp_avg\", ", "fingerprint"},
        {"\"kinds\": [", "\"kinds\": [7, ", "kinds[0]"},
        {"\"kinds\": [", "\"kinds\": [\"parm\", ",
         "kinds[0] is \"parm\", no kind"},
        {"\"param\": \"", "\"param\": \"x",
         "hashes.model.embed_tokens.weight.param is no 16 hex digits"},
        {"\"hashes\": {", "\"hash\": {", "hashes is missing"},
        {"\"hashes\": {", "\"hashes\": {\"a\": 3, ", "no object"},
        {"\"model_fingerprint\": \"", "\"model_fingerprint\": \"x", "hex"},
    };
    const char *dir = dyt_test_dir();
    char model[400], good[400], manifest[430], to[400], rank[430];
    char *keep;
    size_t bytes;
    struct dyt_run run;

    (void)state;
    join(model, dir, "hf");
    join(good, dir, "good");
    join(to, dir, "to");
    snprintf(manifest, sizeof(manifest), "%s/manifest.json", good);
    snprintf(rank, sizeof(rank), "%s/rank-00001.safetensors", good);
    make_model(model, "test-moe");
    convert(model, good, "vllm:tp=2");
    keep = dyt_test_read(manifest, &bytes);
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        edit(manifest, row[i].from, row[i].to);
        run = dyt_run("convert", good, to, NULL);
        assert_exit(2, run);
        assert_says(row[i].part, run);
        dyt_run_fini(&run);
        assert_false(there(to));
        dyt_test_write(manifest, keep, bytes);
    }
    free(keep);
    /* one bit of one element */
    keep = dyt_test_read(rank, &bytes);
    keep[bytes / 2] = (char)(keep[bytes / 2] ^ 1);
    dyt_test_write(rank, keep, bytes);
    run = dyt_run("convert", good, to, NULL);
    assert_exit(2, run);
    assert_says("is not what its manifest says", run);
    dyt_run_fini(&run);
    assert_false(there(to));
    /* half a file */
    dyt_test_write(rank, keep, bytes / 2);
    run = dyt_run("convert", good, to, NULL);
    assert_exit(2, run);
    assert_says("rank-00001.safetensors", run);
    dyt_run_fini(&run);
    assert_false(there(to));
    free(keep);
    lacks_are_found(good, to);
}

/* case 42: nothing is made narrower that nobody asked for. */
static void types_are_kept_or_asked_for(void **state)
{
    const char *dir = dyt_test_dir();
    char model[400], narrow[400], wide[400], to[400];
    struct dyt_run run;

    (void)state;
    join(model, dir, "hf");
    join(narrow, dir, "narrow");
    join(wide, dir, "wide");
    join(to, dir, "to");
    make_model(model, "test-mla");
    convert(model, narrow, "vllm:tp=2,dtype.param=bf16");
    convert(narrow, wide, "hf:dtype.param=f32");
    convert(wide, to, "vllm:tp=2,dtype.param=bf16");
    assert_same_file(narrow, to, "manifest.json");
    run = dyt_run("layout", "vllm:dtype.param=bf16", "-m", narrow, "-t",
                  "model.layers.1.mlp.gate.e_score_correction_bias", NULL);
    assert_exit(0, run);
    assert_says("e_score_correction_bias: f32", run);
    dyt_run_fini(&run);
}

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        const char *arg[4], *part;
    } row[] = {
        {{"--to", "vlm:tp=2"}, "did you mean \"vllm\"?"},
        {{"--to", "vllm:tp=3"}, "nearest degree that works"},
        {{"--memory-cap", "1MiB"}, "the smallest that works is 4 MiB"},
        {{"--to", "checkpoint"}, "only what was a checkpoint"},
        {{"--to", "native:dp=20000"}, "at most 16384"},
        {{"--memory-cap", "much"}, "a size like 512MiB"},
    };
    const char *dir = dyt_test_dir();
    char model[400], to[400], partial[400];
    struct dyt_run run;

    (void)state;
    join(model, dir, "hf");
    join(to, dir, "to");
    join(partial, dir, "to.partial");
    make_model(model, "tiny");
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        const char *const *a = row[i].arg;

        run = dyt_run("convert", model, to, a[0], a[1], a[2], a[3], NULL);
        assert_exit(2, run);
        assert_says(row[i].part, run);
        dyt_run_fini(&run);
        assert_false(there(to));
        assert_false(there(partial));
    }
    run = dyt_run("convert", model, NULL);
    assert_exit(2, run);
    dyt_run_fini(&run);
    run = dyt_run("convert", "nowhere", to, NULL);
    assert_exit(2, run);
    assert_says("nowhere", run);
    dyt_run_fini(&run);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_goes_round_is_the_same),
    cmocka_unit_test(state_goes_along),
    cmocka_unit_test(a_kill_leaves_nothing_half),
    cmocka_unit_test(another_conversion_begins_anew),
    cmocka_unit_test(lies_are_found),
    cmocka_unit_test(types_are_kept_or_asked_for),
    cmocka_unit_test(what_is_wrong_is_named),
};

DYT_TEST_MAIN(tests)
