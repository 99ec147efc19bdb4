/* Which lines are written, and how they look (base/log.h). */
#include "base/log.h"

#include "dyt_test.h"

#include <fcntl.h>
#include <sys/stat.h>

/* Run one call with stderr in a file; what it wrote, the caller's to free. */
static char *captured(enum dyti_log_level level, const char *area,
                      const char *text)
{
    char path[512];
    int saved = dup(STDERR_FILENO), to;

    snprintf(path, sizeof(path), "%s/log", dyt_test_dir());
    to = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(saved >= 0 && to >= 0);
    assert_true(dup2(to, STDERR_FILENO) >= 0);
    DYTI_LOG(level, area, "%s", text);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    close(to);
    return dyt_test_read(path, NULL);
}

static void level_and_area_decide(void **state)
{
    static const struct {
        const char *limit, *areas;
        enum dyti_log_level level;
        const char *area;
        int want;
    } row[] = {
        {NULL, NULL, DYTI_LOG_WARN, "plan", 1},
        {NULL, NULL, DYTI_LOG_INFO, "plan", 0},
        {"nonsense", NULL, DYTI_LOG_INFO, "plan", 0},
        {"error", NULL, DYTI_LOG_WARN, "plan", 0},
        {"error", NULL, DYTI_LOG_ERROR, "plan", 1},
        {"trace", NULL, DYTI_LOG_TRACE, "plan", 1},
        {"debug", NULL, DYTI_LOG_TRACE, "plan", 0},
        {"trace", "plan,sched", DYTI_LOG_TRACE, "plan", 1},
        {"trace", "plan,sched", DYTI_LOG_TRACE, "sched", 1},
        {"trace", "plan,sched", DYTI_LOG_TRACE, "exec", 0},
        {"trace", "explain,plan", DYTI_LOG_TRACE, "plan", 1},
        {"trace", "planner", DYTI_LOG_TRACE, "plan", 0},
        {"trace", "myplan", DYTI_LOG_TRACE, "plan", 0},
        {"trace", "sched", DYTI_LOG_WARN, "plan", 1},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        dyti_log_configure(row[i].limit, row[i].areas);
        if (dyti_log_enabled(row[i].level, row[i].area) != row[i].want) {
            fail_msg("row %zu", i);
        }
    }
    dyti_log_configure(NULL, NULL);
}

static void unknown_areas_are_named(void **state)
{
    static const struct {
        const char *list, *word;
    } row[] = {
        {NULL, NULL},
        {"", NULL},
        {DYTI_LOG_AREAS, NULL},
        {"edm", NULL},
        {",edm,,control,", NULL},
        {"edm,plan,sched", "plan"},
        {"ed", "ed"},
        {"edmx", "edmx"},
        {"edm control", "edm control"},
        {"edm, control", " control"},
        {"EDM", "EDM"},
        {"0123456789012345678901234567890123456789012345678901234567890123456",
         "012345678901234567890123456789012345678901234567890123456789012"},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        char word[64] = "";

        assert_int_equal(row[i].word != NULL,
                         dyti_log_area_unknown(row[i].list, word));
        assert_string_equal(row[i].word != NULL ? row[i].word : "", word);
    }
}

/* The areas of all lines of a source file. */
static size_t lines_found;

static int look_into(const char *path, const struct stat *info, int type,
                     struct FTW *at)
{
    size_t bytes, length = strlen(path);
    char *text;

    (void)info;
    (void)at;
    if (type != FTW_F || length < 2 || strcmp(path + length - 2, ".c") != 0) {
        return 0;
    }
    text = dyt_test_read(path, &bytes);
    for (char *p = text; (p = strstr(p, "DYTI_LOG(")) != NULL; p++) {
        const char *area = strchr(p, '"');
        char name[64], word[64];

        assert_non_null(area);
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(area + 1, "\""),
                 area + 1);
        if (name[0] == '\0' || dyti_log_area_unknown(name, word)) {
            fail_msg("%s: \"%s\" is no area of base/log.h", path, name);
        }
        lines_found++;
    }
    free(text);
    return 0;
}

static void every_line_is_of_a_known_area(void **state)
{
    static const char *const room[] = {"core",    "bridge", "cli",    "lib",
                                       "rollout", "score",  "trainer"};

    (void)state;
    lines_found = 0;
    for (size_t i = 0; i < DYT_TEST_COUNT(room); i++) {
        assert_int_equal(0, nftw(room[i], look_into, 16, FTW_PHYS));
    }
    assert_true(lines_found >= 8);
}

static void line_names_level_area_rank_and_phase(void **state)
{
    char *line;

    (void)state;
    dyti_log_configure("info", NULL);
    dyti_log_identity(3, "train");
    assert_int_equal(3, dyti_log_rank());
    line = captured(DYTI_LOG_INFO, "plan", "transfers 12");
    assert_string_equal("dynatrain info plan rank 3 phase train transfers 12\n",
                        line);
    free(line);
    dyti_log_identity(-1, "-");
    dyti_log_configure(NULL, NULL);
}

static void long_line_is_cut_and_still_ends(void **state)
{
    char big[3000];
    char *line;

    (void)state;
    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    dyti_log_configure("info", NULL);
    line = captured(DYTI_LOG_INFO, "plan", big);
    assert_true(strlen(line) <= 1024);
    assert_int_equal('\n', line[strlen(line) - 1]);
    free(line);
    dyti_log_configure(NULL, NULL);
}

static void only_warnings_and_errors_are_complaints(void **state)
{
    uint64_t before = dyti_log_complaints();

    (void)state;
    dyt_test_allow_complaints();
    dyti_log_configure("trace", NULL);
    free(captured(DYTI_LOG_INFO, "plan", "fine"));
    assert_int_equal(before, dyti_log_complaints());
    free(captured(DYTI_LOG_WARN, "plan", "odd"));
    free(captured(DYTI_LOG_ERROR, "plan", "lost"));
    assert_int_equal(before + 2, dyti_log_complaints());
    dyti_log_configure(NULL, NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(level_and_area_decide),
    cmocka_unit_test(unknown_areas_are_named),
    cmocka_unit_test(every_line_is_of_a_known_area),
    cmocka_unit_test(line_names_level_area_rank_and_phase),
    cmocka_unit_test(long_line_is_cut_and_still_ends),
    cmocka_unit_test(only_warnings_and_errors_are_complaints),
};
DYT_TEST_MAIN(tests)
