/* Any bytes as tokenizer.json: refused, or it encodes and decodes. */
#include "fuzz.h"

#include "format/tokenizer.h"

static void try_text(const struct dyti_tokenizer *t, const char *text)
{
    int32_t *id = NULL;
    size_t count = 0, bytes = 0;
    char *back = NULL;

    if (t->ops->encode(t->self, text, strlen(text), true, &id, &count) !=
        DYT_OK) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (id[i] < 0 || id[i] >= t->ops->vocab_size(t->self)) {
            abort();
        }
    }
    if (t->ops->decode(t->self, id, count, false, &back, &bytes) != DYT_OK ||
        strlen(back) > bytes) {
        abort();
    }
    free(back);
    free(id);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const text[] = {"", "abba ab", "<s>a 12 b</s>\n",
                                       "e\xcc\x81 \xc3\xa9  x<|im_end|>"};
    struct dyti_tokenizer t = {NULL, NULL};

    if (dyti_tokenizer_parse("f", (const char *)data, size, &t) != DYT_OK) {
        return 0;
    }
    for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++) {
        try_text(&t, text[i]);
    }
    dyti_tokenizer_close(&t);
    return 0;
}
