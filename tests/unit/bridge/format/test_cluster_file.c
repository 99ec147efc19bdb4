/* Cluster files: the shipped ones, hosts as a number and as a list, each wrong
 * one named with its place. */
#include "dyt_test.h"

#include "format/cluster_file.h"

#define LINKS                                                                  \
    "[self]\ngigabytes_per_s = 8\n[host]\ngigabytes_per_s = 4\n[nic]\n"        \
    "gigabytes_per_s = 1.5\nlatency_us = 12\nmessage_us = 8\n"

static enum dyt_status parse(const char *text, struct dyti_cluster_file *out)
{
    return dyti_cluster_file_parse(text, strlen(text), "c.toml", out);
}

static void the_shipped_ones_are_what_they_say(void **state)
{
    static const struct {
        const char *path;
        uint32_t ranks, hosts;
        double nic;
    } row[] = {
        {"configs/clusters/a800.toml", 128, 16, 25e9},
        {"configs/clusters/dgx-h100.toml", 128, 16, 50e9},
        {"configs/clusters/laptop.toml", 8, 1, 1e9},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_cluster_file f;

        assert_ok(dyti_cluster_file_load(row[i].path, &f));
        assert_int_equal(row[i].ranks, f.cluster.rank_count);
        assert_int_equal(row[i].hosts, f.cluster.host_count);
        assert_true(f.cluster.link[DYTI_LINK_NIC].bytes_per_s == row[i].nic);
        dyti_cluster_file_fini(&f);
    }
}

/* What a host's ranks share, and what cores do, all in the units it says. */
static void what_a_host_has_is_read(void **state)
{
    struct dyti_cluster_file f;
    const struct dyti_cluster *c = &f.cluster;

    (void)state;
    assert_ok(parse("hosts = 2\nranks_per_host = 4\n"
                    "host_gigabytes_per_s = 6.5\nnic_gigabytes_per_s = 20\n"
                    "core_gigabytes_per_s = 30\ncores_per_host = 3\n"
                    "source_gigabytes_per_s = 3.5\n"
                    "start_us = 250\n[self]\ngigabytes_per_s = 8\n"
                    "convert_gigabytes_per_s = 4\nbox_ns = 12\n[host]\n"
                    "gigabytes_per_s = 4\nbox_ns = 20\nhalf_duplex = true\n"
                    "[nic]\ngigabytes_per_s = 1\n",
                    &f));
    assert_true(c->host_bytes_per_s == 6.5e9);
    assert_true(c->host_nic_bytes_per_s == 20e9);
    assert_true(c->core_bytes_per_s == 30e9);
    assert_int_equal(3, c->host_cores);
    assert_true(c->source_bytes_per_s == 3.5e9);
    assert_true(c->start_s == 250 * 1e-6);
    assert_true(c->link[DYTI_LINK_SELF].convert_bytes_per_s == 4e9);
    assert_true(c->link[DYTI_LINK_SELF].box_s == 12 * 1e-9);
    assert_true(c->link[DYTI_LINK_HOST].box_s == 20 * 1e-9);
    assert_true(c->link[DYTI_LINK_HOST].half_duplex);
    assert_true(c->link[DYTI_LINK_NIC].box_s == 0.0);
    dyti_cluster_file_fini(&f);
    assert_status(
        DYT_ERR_CONFIG,
        parse("hosts = 1\nranks_per_host = 1\ncores_per_host = 0\n" LINKS, &f));
    assert_error_has("cores_per_host must be a whole number from 1");
    assert_status(DYT_ERR_CONFIG, parse("hosts = 1\nranks_per_host = 1\n"
                                        "host_gigabyte_per_s = 1\n" LINKS,
                                        &f));
    assert_error_has("did you mean \"host_gigabytes_per_s\"?");
}

static void hosts_may_be_of_unequal_size(void **state)
{
    struct dyti_cluster_file f;
    struct dyti_cluster c;

    (void)state;
    assert_ok(parse("hosts = [2, 3]\nmemory = \"80GiB\"\n" LINKS, &f));
    assert_int_equal(5, f.cluster.rank_count);
    assert_int_equal(2, f.cluster.host_count);
    assert_int_equal(0, f.cluster.host[1]);
    assert_int_equal(1, f.cluster.host[2]);
    assert_true(f.cluster.rank_memory_bytes == 80ull << 30);
    assert_true(f.cluster.link[DYTI_LINK_NIC].bytes_per_s == 1.5e9);
    assert_true(f.cluster.link[DYTI_LINK_NIC].latency_s == 12 * 1e-6);
    assert_string_equal("c.toml", f.cluster.name);
    assert_ok(dyti_cluster_file_take(&f, 3, &c));
    assert_int_equal(3, c.rank_count);
    assert_int_equal(2, c.host_count);
    assert_status(DYT_ERR_CONFIG, dyti_cluster_file_take(&f, 6, &c));
    assert_error_has("need 6 ranks, c.toml has 5");
    dyti_cluster_file_fini(&f);
}

static void wrong_ones_are_named(void **state)
{
    static const struct {
        const char *text, *says;
    } row[] = {
        {"hosts =", "c.toml:1"},
        {LINKS, "hosts is missing"},
        {"hosts = 2\n" LINKS, "ranks_per_host is missing"},
        {"hosts = 0\nranks_per_host = 2\n" LINKS, "c.toml:1:1: hosts must be"},
        {"hosts = []\n" LINKS, "list of ranks"},
        {"hosts = [2]\nranks_per_host = 2\n" LINKS, "without ranks_per_host"},
        {"hosts = [2, 0]\n" LINKS, "whole number"},
        {"hosts = [2, \"x\"]\n" LINKS, "whole number"},
        {"hosts = 1048576\nranks_per_host = 2\n" LINKS, "1048576 ranks"},
        {"host = 2\n" LINKS, "host"},
        {"hots = 2\n" LINKS, "did you mean \"host"},
        {"hosts = 1\nranks_per_host = 2\nname = 3\n" LINKS, "name must be"},
        {"hosts = 1\nranks_per_host = 2\nmemory = \"much\"\n" LINKS,
         "c.toml:3:1: memory must be a size"},
        {"hosts = 1\nranks_per_host = 2\n[self]\ngigabytes_per_s = 1\n",
         "[host] gigabytes_per_s is missing"},
        {"hosts = 1\nranks_per_host = 2\n[self]\ngigabytes_per_s = 0\n",
         "gigabytes_per_s must be a number from 1e-6"},
        {"hosts = 1\nranks_per_host = 2\n[self]\ngigabytes_per_s = 1e-300\n",
         "gigabytes_per_s must be a number from 1e-6"},
        {"hosts = 1\nranks_per_host = 2\n[self]\nlatency_us = 1e-300\n",
         "latency_us must be 0 or a number from 1e-6"},
        {"hosts = 1\nranks_per_host = 2\n[self]\nlatency_us = nan\n",
         "latency_us must be"},
        {"hosts = 1\nranks_per_host = 2\n[self]\ngigabytes_per_s = nan\n",
         "gigabytes_per_s must be"},
        {"hosts = 1\nranks_per_host = 2\n[self]\nlatency_us = -1\n",
         "latency_us must be"},
        {"hosts = 1\nranks_per_host = 2\n[self]\nhalf_duplex = 1\n",
         "true or false"},
        {"hosts = 1\nranks_per_host = 2\n[self]\nlatency = 1\n",
         "did you mean \"latency_us\""},
        {"hosts = 1\nranks_per_host = 2\nself = 1\n", "a table"},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_cluster_file f = {0};

        if (parse(row[i].text, &f) != DYT_ERR_CONFIG) {
            fail_msg("row %zu: not refused", i);
        }
        assert_error_has(row[i].says);
        assert_null(f.host);
    }
    assert_status(DYT_ERR_IO,
                  dyti_cluster_file_load("/nonexistent.toml",
                                         &(struct dyti_cluster_file){0}));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_shipped_ones_are_what_they_say),
    cmocka_unit_test(what_a_host_has_is_read),
    cmocka_unit_test(hosts_may_be_of_unequal_size),
    cmocka_unit_test(wrong_ones_are_named),
};
DYT_TEST_MAIN(tests)
