/* Any bytes as rows of data; all that a row can be asked for is asked. */
#include "fuzz.h"

#include "format/data_jsonl.h"

static void ask(const struct dyti_data *data, uint64_t row)
{
    static const char *const prompt[] = {"", "{prompt}>", "{a}{{{b}}}"};

    for (size_t i = 0; i < sizeof(prompt) / sizeof(prompt[0]); i++) {
        char *text = NULL;

        if (dyti_data_prompt_text(data, row, prompt[i], &text) == DYT_OK) {
            free(text);
        }
    }
    if (dyti_data_row_json(data, row) == NULL) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dyti_data *rows = NULL;

    if (dyti_data_parse("f", (const char *)data, size, &rows) == DYT_OK) {
        for (uint64_t i = 0; i < dyti_data_rows(rows); i++) {
            ask(rows, i);
        }
        dyti_data_close(rows);
    } else if (strchr(dyti_error_text(), '\n') != NULL) {
        abort();
    }
    return 0;
}
