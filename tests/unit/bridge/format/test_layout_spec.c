/* Layouts as people write them: one line and TOML give the same description,
 * what is written reads back, what is wrong is named with the nearest right. */
#include "dyt_test.h"

#include "format/layout_spec.h"

static struct dyti_layout_spec read_ok(const char *text)
{
    struct dyti_layout_spec spec = {0};

    assert_ok(dyti_layout_spec_read(text, &spec));
    return spec;
}

static void refused(const char *text, const char *part)
{
    struct dyti_layout_spec spec = {0};

    assert_status(DYT_ERR_CONFIG, dyti_layout_spec_read(text, &spec));
    assert_error_has(part);
    assert_null(spec.shown);
}

static void degrees_are_read(void **state)
{
    struct dyti_layout_spec s =
        read_ok("megatron:tp=8,pp=4,dp=2,cp=1,zero=1,vpp=2,vocab_multiple=32");

    (void)state;
    assert_int_equal(s.desc.dialect, DYTI_DIALECT_MEGATRON);
    assert_int_equal(s.desc.tp, 8);
    assert_int_equal(s.desc.pp, 4);
    assert_int_equal(s.desc.dp, 2);
    assert_int_equal(s.desc.cp, 1);
    assert_int_equal(s.desc.ep, 1);
    assert_int_equal(s.desc.etp, 1);
    assert_int_equal(s.desc.vpp, 2);
    assert_int_equal(s.desc.zero, 1);
    assert_int_equal(s.desc.world_size, 64);
    assert_int_equal(s.desc.vocab_multiple, 32);
    dyti_layout_spec_fini(&s);
}

static void a_dialect_alone_is_a_layout(void **state)
{
    static const struct {
        const char *text;
        uint32_t zero;
        bool serves;
    } row[] = {{"native", 0, false},   {"hf", 0, true},
               {"megatron", 0, false}, {"zero12", 1, false},
               {"zero3", 3, false},    {"fsdp2", 3, false},
               {"vllm", 0, true}};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_layout_spec s = read_ok(row[i].text);

        assert_int_equal(s.desc.tp, 1);
        assert_int_equal(s.desc.world_size, 1);
        assert_int_equal(s.desc.zero, row[i].zero);
        assert_int_equal(s.desc.residency[DYTI_PARAM], DYTI_HELD);
        assert_int_equal(s.desc.residency[DYTI_MASTER],
                         row[i].serves ? DYTI_DROPPED : DYTI_HELD);
        dyti_layout_spec_fini(&s);
    }
}

static void lists_are_read(void **state)
{
    struct dyti_layout_spec s = read_ok(
        "native:tp=2,pp=2,ranks=4-6+1,pp_layers=10+12,hosts=3+5,order=pp-tp-cp-"
        "dp,residency.grad=dropped,dtype.param=f16");
    static const uint32_t rank[] = {4, 5, 6, 1},
                          host[] = {0, 0, 0, 1, 1, 1, 1, 1};

    (void)state;
    assert_memory_equal(s.desc.ranks, rank, sizeof(rank));
    assert_int_equal(s.desc.pp_layers[0], 10);
    assert_int_equal(s.desc.pp_layers[1], 12);
    assert_int_equal(s.desc.world_size, 8);
    assert_memory_equal(s.desc.host, host, sizeof(host));
    assert_int_equal(s.desc.order[0], DYTI_AXIS_PP);
    assert_int_equal(s.desc.order[3], DYTI_AXIS_DP);
    assert_int_equal(s.desc.residency[DYTI_GRAD], DYTI_DROPPED);
    assert_int_equal(s.desc.dtype[DYTI_PARAM], DYTI_F16);
    assert_true(s.param_dtype_given);
    dyti_layout_spec_fini(&s);
}

static void experts_are_words_or_slots(void **state)
{
    struct dyti_layout_spec s = read_ok("vllm:tp=2,ep=2,experts=0+1+4/2+3");
    static const int32_t slot[] = {0, 1, 4, 2, 3, -1};

    (void)state;
    assert_int_equal(s.desc.experts, DYTI_EXPERTS_EXPLICIT);
    assert_int_equal(s.desc.expert_slots, 3);
    assert_memory_equal(s.desc.expert_slot, slot, sizeof(slot));
    dyti_layout_spec_fini(&s);
    s = read_ok("vllm:tp=2,dp=2,experts=round_robin");
    assert_int_equal(s.desc.experts, DYTI_EXPERTS_ROUND_ROBIN);
    dyti_layout_spec_fini(&s);
}

static void toml_says_the_same(void **state)
{
    static const char text[] = "title = \"x\"\n"
                               "[layout]\n"
                               "dialect = \"vllm\"\n"
                               "tp = 2\n"
                               "dp = 2\n"
                               "ep = 2\n"
                               "experts = [[0, 1, 4], [2, 3, -1]]\n"
                               "hosts = [2, 2]\n"
                               "ranks = \"0-3\"\n"
                               "order = [\"dp\", \"tp\", \"cp\", \"pp\"]\n"
                               "dtype.param = \"f32\"\n"
                               "[layout.residency]\n"
                               "master = \"parked\"\n";
    struct dyti_layout_spec file, line;
    char path[300], *a, *b;

    (void)state;
    snprintf(path, sizeof(path), "%s/l.toml", dyt_test_dir());
    dyt_test_write(path, text, sizeof(text) - 1);
    file = read_ok(path);
    line = read_ok("vllm:tp=2,dp=2,ep=2,experts=0+1+4/2+3+-1,hosts=2+2,"
                   "ranks=0-3,order=dp-tp-cp-pp,dtype.param=f32,residency."
                   "master=parked");
    assert_ok(dyti_layout_spec_text(&file.desc, &a));
    assert_ok(dyti_layout_spec_text(&line.desc, &b));
    assert_string_equal(a, b);
    free(a);
    free(b);
    dyti_layout_spec_fini(&file);
    dyti_layout_spec_fini(&line);
}

static void what_is_written_reads_back(void **state)
{
    static const char *const spec[] = {
        "native:tp=2,pp=2,dp=3,zero=2,cp=2",
        "hf:dp=4",
        "megatron:tp=2,pp=2,vpp=2,pp_layers=1+2+1+2,zero=1",
        "megatron:dp=2,zero=1,bucket_multiple=65536,glu_interleave=32",
        "zero12:dp=8,zero=2",
        "zero12:dp=8,zero_order=round_robin",
        "zero3:dp=5,dtype.param=f32",
        "fsdp2:tp=2,dp=3,hosts=4",
        "vllm:tp=4,ranks=7+5+3+1,world=12,hosts=8+4",
        "vllm:tp=2,ep=2,experts=0+1/1+2",
        "native:tp=2,order=dp-tp-pp-cp,residency.exp_avg=parked",
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(spec); i++) {
        struct dyti_layout_spec a = read_ok(spec[i]), b;
        char *first, *second;

        assert_ok(dyti_layout_spec_text(&a.desc, &first));
        b = read_ok(first);
        assert_ok(dyti_layout_spec_text(&b.desc, &second));
        assert_string_equal(first, second);
        assert_int_equal(a.desc.world_size, b.desc.world_size);
        free(first);
        free(second);
        dyti_layout_spec_fini(&a);
        dyti_layout_spec_fini(&b);
    }
}

static void wrong_ones_name_key_and_nearest(void **state)
{
    (void)state;
    refused("megatorn:tp=2", "did you mean \"megatron\"?");
    refused("native:tpp=2", "no key \"tpp\" (did you mean \"tp\"?)");
    refused("native:dtype.parm=f32", "did you mean \"dtype.param\"?");
    refused("native:residency.gard=held", "did you mean \"residency.grad\"?");
    refused("native:tp=two", "tp = \"two\": a whole number");
    refused("native:tp=-2", "tp = \"-2\"");
    refused("native:tp=0", "tp is 0: at least 1");
    refused("native:tp=2,tp=2", "tp is given twice");
    refused("native:tp", "\"tp\" is no key=value");
    refused("native:tp=", "is no key=value");
    refused("native:zero=4", "from 0 to 3");
    refused("zero3:zero=0", "the nearest is zero 3");
    refused("native:dtype.param=b16", "did you mean \"bf16\"?");
    refused("native:order=tp-dp-pp", "each once");
    refused("native:order=tp-dp-pp-pp", "each once");
    refused("native:order=tp-dp-pp-cp-cp", "each once");
    refused("native:tp=2,ranks=1", "ranks has 1 entries");
    refused("native:ranks=3-1", "goes backwards");
    refused("native:ranks=0-99999999", "more than");
    refused("native:pp=2,pp_layers=1", "pp_layers has 1 entries");
    refused("vllm:ep=2,experts=0+1", "experts has 1 rows, ep 2");
    refused("vllm:experts=linaer", "did you mean \"linear\"?");
    refused("zero12:zero_order=round_robbin", "did you mean \"round_robin\"?");
    refused("megatron:bucket_multiple=0", "bucket_multiple is 0: at least 1");
    refused("megatron:dtype.param=f8", "one of f32|bf16|f16");
    refused("native:tp=4,hosts=2+1", "hosts have 3 ranks, the world has 4");
    refused("native:hosts=0", "a host without ranks");
    refused("native:tp=1048576,dp=1048576", "more than");
    refused("", "did you mean");
    refused("native:,", "is no key=value");
}

static void places_in_files_are_named(void **state)
{
    static const struct {
        const char *text, *part;
    } row[] = {
        {"[layout]\ntp = 2\nppp = 3\n", "l.toml:3:1: there is no key \"ppp\""},
        {"[layout]\ndialect = 3\n", "l.toml:2:11: dialect is a text"},
        {"[layout]\ndialect = \"vlm\"\n", "did you mean \"vllm\"?"},
        {"[layout]\ntp = 2.5\n", "l.toml:2:1: no layout is written with"},
        {"[layout]\npp_layers = []\n", "l.toml:2:1: no layout is written"},
        {"[layout]\nexperts = [[[1]]]\n", "l.toml:2:1: no layout is written"},
        {"[layout]\n[layout.dtype]\nparm = \"f32\"\n",
         "l.toml:3:1: there is no key \"dtype.parm\""},
        {"[lay]\ntp = 2\n", "has no table [layout]"},
        {"[layout]\ntp = 2\nranks = [0]\n", "ranks has 1 entries"},
    };
    char path[300];

    (void)state;
    snprintf(path, sizeof(path), "%s/l.toml", dyt_test_dir());
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        dyt_test_write(path, row[i].text, strlen(row[i].text));
        refused(path, row[i].part);
    }
    {
        struct dyti_layout_spec spec = {0};

        assert_status(DYT_ERR_IO,
                      dyti_layout_spec_read("/nowhere/l.toml", &spec));
    }
}

static void the_model_gives_the_type(void **state)
{
    struct dyti_arch arch = {.dtype = DYTI_F32};
    struct dyti_layout_spec s = read_ok("vllm");

    (void)state;
    dyti_layout_spec_use_model(&s, &arch);
    assert_int_equal(s.desc.dtype[DYTI_PARAM], DYTI_F32);
    dyti_layout_spec_fini(&s);
    s = read_ok("vllm:dtype.param=bf16");
    dyti_layout_spec_use_model(&s, &arch);
    assert_int_equal(s.desc.dtype[DYTI_PARAM], DYTI_BF16);
    dyti_layout_spec_fini(&s);
}

static void experts_are_cut_as_the_framework_does(void **state)
{
    static const struct {
        const char *text;
        uint32_t etp;
    } row[] = {{"megatron:tp=4,dp=2", 4},
               {"megatron:tp=4,dp=2,etp=1", 1},
               {"vllm:tp=2,dp=2", 4},      /* over all ranks */
               {"vllm:tp=2,dp=2,ep=4", 1}, /* whole ones are placed */
               {"native:tp=4", 1}};

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_arch dense = {.dtype = DYTI_F32};
        struct dyti_arch moe = {.moe = {.count = 8}};
        struct dyti_layout_spec s = read_ok(row[i].text);
        uint32_t given = s.etp_given ? row[i].etp : 1;

        dyti_layout_spec_use_model(&s, &dense);
        assert_int_equal(s.desc.etp, given);
        dyti_layout_spec_use_model(&s, &moe);
        assert_int_equal(s.desc.etp, row[i].etp);
        dyti_layout_spec_fini(&s);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(degrees_are_read),
    cmocka_unit_test(a_dialect_alone_is_a_layout),
    cmocka_unit_test(lists_are_read),
    cmocka_unit_test(experts_are_words_or_slots),
    cmocka_unit_test(toml_says_the_same),
    cmocka_unit_test(what_is_written_reads_back),
    cmocka_unit_test(wrong_ones_name_key_and_nearest),
    cmocka_unit_test(places_in_files_are_named),
    cmocka_unit_test(the_model_gives_the_type),
    cmocka_unit_test(experts_are_cut_as_the_framework_does),
};

DYT_TEST_MAIN(tests)
