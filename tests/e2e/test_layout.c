/* `dynatrain layout`: what it prints, as people and programs read it.
 * DYT_BLESS=1 rewrites what is expected; look at the difference first. */
#include "dyt_job.h"

#define DATA "tests/golden/data/"

static void assert_golden(const char *path, const char *text)
{
    size_t bytes = 0;
    char *want;

    if (getenv("DYT_BLESS") != NULL) {
        dyt_test_write(path, text, strlen(text));
    }
    want = dyt_test_read(path, &bytes);
    assert_string_equal(want, text);
    free(want);
}

static void a_layout_is_printed(void **state)
{
    static const struct {
        const char *file;
        const char *arg[8];
    } row[] = {
        {DATA "layout_ranks.txt",
         {"megatron:tp=2,pp=2,dp=2,zero=1", "-m", "tiny"}},
        {DATA "layout_rank.txt",
         {"vllm:tp=2", "-m", "test-moe", "--rank", "1"}},
        {DATA "layout_tensor.txt",
         {"zero12:dp=3", "-m", "test-gqa", "--kind", "master", "-t",
          "model.layers.1.self_attn.q_proj.weight"}},
        {DATA "layout_native.txt",
         {"native:tp=2", "-m", "tiny", "-t",
          "model.layers.0.self_attn.k_proj.weight"}},
        {DATA "layout.json",
         {"fsdp2:dp=2", "-m", "tiny", "--rank", "1", "--json", "--tensor",
          "model.norm.weight"}},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        const char *const *a = row[i].arg;
        struct dyt_run run = dyt_run("layout", a[0], a[1], a[2], a[3], a[4],
                                     a[5], a[6], a[7], NULL);

        assert_exit(0, run);
        assert_golden(row[i].file, run.out);
        dyt_run_fini(&run);
    }
}

static void a_tensor_is_drawn(void **state)
{
    char path[300];
    char *svg;
    struct dyt_run run;

    (void)state;
    snprintf(path, sizeof(path), "%s/t.svg", dyt_test_dir());
    run = dyt_run("layout", "megatron:tp=2,dp=2,zero=1", "-m", "tiny", "-t",
                  "model.layers.0.mlp.up_proj.weight", "-k", "exp_avg", "--svg",
                  path, NULL);
    assert_exit(0, run);
    svg = dyt_test_read(path, NULL);
    assert_golden(DATA "layout.svg", svg);
    free(svg);
    dyt_run_fini(&run);
}

/* What docs/layout-schema.md shows is what is printed. */
static void the_page_shows_what_is_printed(void **state)
{
    char *page = dyt_test_read("docs/layout-schema.md", NULL);
    char *json = dyt_test_read(DATA "layout.json", NULL);

    (void)state;
    assert_non_null(strstr(page, json));
    free(page);
    free(json);
}

/* Every member that the document has is on the page. */
static void the_page_names_every_member(void **state)
{
    char *page = dyt_test_read("docs/layout-schema.md", NULL);
    char *json = dyt_test_read(DATA "layout.json", NULL);

    (void)state;
    for (char *p = json; (p = strstr(p, "\": ")) != NULL; p++) {
        char *start = p;
        char name[64];

        *p = '\0';
        while (start > json && start[-1] != '"') {
            start--;
        }
        snprintf(name, sizeof(name), "%s", start);
        *p = '"';
        if (strstr(page, name) == NULL) {
            fail_msg("docs/layout-schema.md does not name %s", name);
        }
    }
    free(page);
    free(json);
}

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        const char *arg[7], *part;
    } row[] = {
        {{"vlm", "-m", "tiny"}, "did you mean \"vllm\"?"},
        {{"vllm:tp=3", "-m", "tiny"}, "nearest degree that works is tp"},
        {{"vllm:tp=2", "-m", "nowhere"}, "nowhere"},
        {{"native:dp=1048576", "-m", "tiny", "-t", "model.norm.weight", "-s",
          "/dev/null"},
         "too many for a drawing"},
        {{"vllm:tp=2", "-m", "tiny", "-r", "2"}, "ranks 0 to 1"},
        {{"vllm:tp=2", "-m", "tiny", "-t", "x"}, "no tensor x"},
        {{"vllm:tp=2", "-m", "tiny", "-k", "weights"},
         "no kind \"weights\": one of param, grad, master"},
        {{"vllm:tp=2", "-m", "tiny", "-k", "master"},
         "no rank of a vllm layout holds it"},
        {{"vllm:tp=2", "-m", "tiny", "--svg", "/dev/null"}, "--tensor NAME"},
        {{"vllm:tp=2"}, "--help says more"},
        {{"nowhere.toml", "-m", "tiny"}, "nowhere.toml"},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        const char *const *a = row[i].arg;
        struct dyt_run run =
            dyt_run("layout", a[0], a[1], a[2], a[3], a[4], a[5], a[6], NULL);

        assert_exit(2, run);
        assert_says(row[i].part, run);
        dyt_run_fini(&run);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_layout_is_printed),
    cmocka_unit_test(a_tensor_is_drawn),
    cmocka_unit_test(the_page_shows_what_is_printed),
    cmocka_unit_test(the_page_names_every_member),
    cmocka_unit_test(what_is_wrong_is_named),
};

DYT_TEST_MAIN(tests)
