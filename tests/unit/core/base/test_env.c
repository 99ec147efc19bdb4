/* Settings from the environment: values, defaults, misspelt names, listings
 * (base/env.h). */
#include "base/env.h"

#include "dyt_test.h"

/* What `print` writes, the caller's to free. */
static char *printed(void (*print)(FILE *to))
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);

    assert_non_null(to);
    print(to);
    fclose(to);
    return text;
}

static void forget_all(void)
{
    for (int i = 0; i < DYTI_ENV_COUNT; i++) {
        unsetenv(dyti_env_row((enum dyti_env)i)->name);
    }
}

static void value_default_or_nothing(void **state)
{
    (void)state;
    forget_all();
    assert_string_equal("warn", dyti_env_text(DYTI_ENV_LOG));
    assert_null(dyti_env_text(DYTI_ENV_TRACE));
    setenv("DYNATRAIN_LOG", "debug", 1);
    setenv("DYNATRAIN_TRACE", "t.json", 1);
    assert_string_equal("debug", dyti_env_text(DYTI_ENV_LOG));
    assert_string_equal("t.json", dyti_env_text(DYTI_ENV_TRACE));
    setenv("DYNATRAIN_LOG", "", 1); /* empty is not given */
    assert_string_equal("warn", dyti_env_text(DYTI_ENV_LOG));
    forget_all();
}

static void foreign_names_are_read_as_they_are(void **state)
{
    (void)state;
    unsetenv("SLURM_PROCID");
    assert_null(dyti_env_foreign("SLURM_PROCID"));
    setenv("SLURM_PROCID", "3", 1);
    assert_string_equal("3", dyti_env_foreign("SLURM_PROCID"));
    unsetenv("SLURM_PROCID");
}

static void cache_is_the_first_place_that_is_set(void **state)
{
    char path[64] = "untouched", tight[18];

    (void)state;
    forget_all();
    setenv("HOME", "/home/me", 1);
    unsetenv("XDG_CACHE_HOME");
    assert_ok(dyti_env_cache_dir(path, sizeof(path)));
    assert_string_equal("/home/me/.cache/dynatrain", path);
    setenv("XDG_CACHE_HOME", "/xdg", 1);
    assert_ok(dyti_env_cache_dir(path, sizeof(path)));
    assert_string_equal("/xdg/dynatrain", path);
    setenv("DYNATRAIN_CACHE", "/mine", 1);
    assert_ok(dyti_env_cache_dir(path, sizeof(path)));
    assert_string_equal("/mine", path);

    unsetenv("DYNATRAIN_CACHE");
    assert_ok(dyti_env_cache_dir(tight, 15)); /* just fits */
    assert_string_equal("/xdg/dynatrain", tight);
    assert_status(DYT_ERR_INVALID, dyti_env_cache_dir(tight, 14));
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_status(DYT_ERR_STATE, dyti_env_cache_dir(path, sizeof(path)));
    assert_string_equal("/mine", path);
}

static void misspelt_names_are_found(void **state)
{
    (void)state;
    forget_all();
    assert_null(dyti_env_unknown());
    setenv("DYNATRAIN_LOG", "info", 1);
    assert_null(dyti_env_unknown());
    setenv("DYNATRAIN_LOGG", "info", 1);
    assert_string_equal("DYNATRAIN_LOGG=info", dyti_env_unknown());
    unsetenv("DYNATRAIN_LOGG");
    forget_all();
}

static void listings_name_every_setting(void **state)
{
    char *text, *page;

    (void)state;
    forget_all();
    setenv("DYNATRAIN_ISA", "avx2", 1);
    text = printed(dyti_env_print);
    page = printed(dyti_env_print_markdown);
    for (int i = 0; i < DYTI_ENV_COUNT; i++) {
        const struct dyti_env_row *row = dyti_env_row((enum dyti_env)i);

        assert_non_null(strstr(text, row->name));
        assert_non_null(strstr(page, row->name));
        assert_non_null(strstr(text, row->help));
    }
    assert_non_null(strstr(text, "DYNATRAIN_ISA      avx2\n"));
    assert_non_null(strstr(text, "not set, which means warn"));
    assert_non_null(strstr(page, "error\\|warn\\|info"));
    free(text);
    free(page);
    forget_all();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(value_default_or_nothing),
    cmocka_unit_test(foreign_names_are_read_as_they_are),
    cmocka_unit_test(cache_is_the_first_place_that_is_set),
    cmocka_unit_test(misspelt_names_are_found),
    cmocka_unit_test(listings_name_every_setting),
};
DYT_TEST_MAIN(tests)
