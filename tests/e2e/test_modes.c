/* The quickstart's job in every mode of a switch: three steps each, and a state
 * that is equal to the transactional one, bit for bit. */
#include "dyt_job.h"
#include "dyt_test.h"

#include <dirent.h>

struct row {
    const char *name;
    const char *set[5];
};

static const struct row rows[] = {
    {"transactional", {"switch.mode=transactional"}},
    {"double", {"switch.mode=double"}},
    {"staged", {"switch.mode=staged"}},
    {"in_place", {"switch.mode=in_place"}},
    {"in_place-capped",
     {"switch.mode=in_place", "switch.memory_cap=\"64KiB\""}},
    {"in_place-messages",
     {"switch.mode=in_place", "switch.memory_cap=\"64KiB\"",
      "switch.mover=message"}},
    {"fallen",
     {"switch.mode=staged", "switch.memory_cap=\"64KiB\"",
      "switch.on_low_memory=in_place"}},
    {"released", {"switch.release=true"}},
    {"released-double", {"switch.release=true", "switch.mode=double"}},
};

static void run_row(const struct dyt_job *job, const struct row *row,
                    const char *const *more)
{
    const char *sets[DYT_JOB_SETS + 1];
    char *name = dyt_words("name=%s", row->name);
    struct dyt_run run;
    size_t n = 0;

    sets[n++] = name;
    sets[n++] = "steps=3";
    sets[n++] = "switch.verify=full";
    for (size_t i = 0; i < DYT_TEST_COUNT(row->set) && row->set[i] != NULL;
         i++) {
        sets[n++] = row->set[i];
    }
    for (size_t i = 0; more[i] != NULL; i++) {
        sets[n++] = more[i];
    }
    sets[n] = NULL;
    run = dyt_job_run_list(job, sets);
    if (run.code != 0) {
        fail_msg("%s: exit code %d:\n%s", row->name, run.code, run.out);
    }
    dyt_nothing_left();
    dyt_run_fini(&run);
    free(name);
}

/* Files of the last checkpoint that hold tensors, compared by bytes. */
static size_t compare(const struct dyt_job *job, const char *name)
{
    static const char where[] = "%s/%s/checkpoints/step-00000003";
    char *want = dyt_words(where, job->runs, rows[0].name);
    char *have = dyt_words(where, job->runs, name);
    DIR *dir = opendir(want);
    struct dirent *entry;
    size_t count = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        char *a, *b;
        char *text[2];
        size_t bytes[2] = {0, 0};

        if (strstr(entry->d_name, ".safetensors") == NULL) {
            continue;
        }
        a = dyt_words("%s/%s", want, entry->d_name);
        b = dyt_words("%s/%s", have, entry->d_name);
        text[0] = dyt_test_read(a, &bytes[0]);
        text[1] = dyt_test_read(b, &bytes[1]);
        if (bytes[0] != bytes[1] || memcmp(text[0], text[1], bytes[0]) != 0) {
            fail_msg("%s differs from %s in %s", name, rows[0].name,
                     entry->d_name);
        }
        count++;
        free(text[0]);
        free(text[1]);
        free(a);
        free(b);
    }
    closedir(dir);
    free(want);
    free(have);
    return count;
}

static void every_mode_ends_with_the_same_bits(void **state)
{
    static const char *const worlds[][4] = {
        {NULL},
        {"phase.rollout.residency.optimizer=move", NULL},
        {"phase.rollout.layout.dtype=bf16", "phase.train.layout.zero=1", NULL}};

    (void)state;
    for (size_t w = 0; w < DYT_TEST_COUNT(worlds); w++) {
        struct dyt_job job = dyt_job_new("tiny");

        for (size_t i = 0; i < DYT_TEST_COUNT(rows); i++) {
            run_row(&job, &rows[i], worlds[w]);
            assert_true(compare(&job, rows[i].name) > 0);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_mode_ends_with_the_same_bits),
};
DYT_TEST_MAIN(tests)
