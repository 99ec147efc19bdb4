/* Compares a text with the one that is committed.  DYT_BLESS=1 in the
 * environment rewrites it instead. */
#ifndef DYT_GOLDEN_H
#define DYT_GOLDEN_H

#include "dyt_test.h"

/* name: a file of tests/golden/data. */
static inline void dyt_golden_check(const char *name, const char *text)
{
    char path[256];
    const char *bless = getenv("DYT_BLESS");
    char *want;
    size_t bytes = 0, at = 0;

    snprintf(path, sizeof(path), "tests/golden/data/%s", name);
    if (bless != NULL && strcmp(bless, "1") == 0) {
        dyt_test_write(path, text, strlen(text));
        return;
    }
    want = dyt_test_read(path, &bytes);
    if (strcmp(want, text) != 0) {
        size_t line = 1;

        while (want[at] == text[at]) {
            line += want[at++] == '\n';
        }
        print_error("%s differs in line %zu: want \"%.60s\", got \"%.60s\"; if "
                    "that is meant, run again with DYT_BLESS=1\n",
                    path, line, want + at, text + at);
        free(want);
        fail();
    }
    free(want);
}

/* A stream that writes to memory; dyt_golden_end closes and compares it. */
struct dyt_golden_stream {
    FILE *file;
    char *text;
    size_t bytes;
};

static inline FILE *dyt_golden_begin(struct dyt_golden_stream *s)
{
    s->text = NULL;
    s->file = open_memstream(&s->text, &s->bytes);
    assert_non_null(s->file);
    return s->file;
}

static inline void dyt_golden_end(struct dyt_golden_stream *s, const char *name)
{
    assert_int_equal(0, fclose(s->file));
    dyt_golden_check(name, s->text);
    free(s->text);
}

#endif /* DYT_GOLDEN_H */
