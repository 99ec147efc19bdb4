/* Files of tokenizers that ask for what is not there are refused by its name,
 * and so are texts that have no tokens. */
#include "dyt_test.h"

#include "format/tokenizer.h"

#define MODEL                                                                  \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"        \
    "\"merges\":[\"a b\"]}"
#define BYTES "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
#define FILE_WITH(pre, decoder, more)                                          \
    "{" MODEL ",\"pre_tokenizer\":" pre ",\"decoder\":" decoder more "}"

static void unknown_parts_are_refused_by_name(void **state)
{
    static const struct {
        const char *text;
        enum dyt_status want;
        const char *says;
    } row[] = {
        {FILE_WITH(BYTES, BYTES, ""), DYT_OK, ""},
        {FILE_WITH(BYTES, BYTES, ",\"normalizer\":{\"type\":\"Lowercase\"}"),
         DYT_ERR_UNSUPPORTED, "normalizer \"Lowercase\""},
        {FILE_WITH(BYTES, BYTES, ",\"normalizer\":3"), DYT_ERR_FORMAT,
         "normalizer must be an object"},
        {FILE_WITH("null", BYTES, ""), DYT_ERR_UNSUPPORTED, "ByteLevel"},
        {FILE_WITH("{\"type\":\"Whitespace\"}", BYTES, ""), DYT_ERR_UNSUPPORTED,
         "\"Whitespace\""},
        {FILE_WITH("{\"type\":\"Sequence\",\"pretokenizers\":[" BYTES "," BYTES
                   "]}",
                   BYTES, ""),
         DYT_ERR_UNSUPPORTED, "after ByteLevel"},
        {FILE_WITH("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},"
                   "\"behavior\":\"Isolated\"}",
                   BYTES, ""),
         DYT_ERR_UNSUPPORTED, "pattern ("},
        {FILE_WITH("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a&&b]\"},"
                   "\"behavior\":\"Isolated\"}",
                   BYTES, ""),
         DYT_ERR_UNSUPPORTED, "&&"},
        {FILE_WITH("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},"
                   "\"behavior\":\"Odd\"}",
                   BYTES, ""),
         DYT_ERR_UNSUPPORTED, "\"Odd\""},
        {FILE_WITH("{\"type\":\"Split\",\"behavior\":\"Isolated\"}", BYTES, ""),
         DYT_ERR_FORMAT, "Regex or String"},
        {FILE_WITH(BYTES, "null", ""), DYT_ERR_UNSUPPORTED, "decoder \"none\""},
        {FILE_WITH(BYTES, "{\"type\":\"Metaspace\"}", ""), DYT_ERR_UNSUPPORTED,
         "decoder \"Metaspace\""},
        {FILE_WITH(BYTES, BYTES,
                   ",\"post_processor\":{\"type\":\"RobertaProcessing\"}"),
         DYT_ERR_UNSUPPORTED, "\"RobertaProcessing\""},
        {FILE_WITH(BYTES, BYTES,
                   ",\"post_processor\":{\"type\":\"TemplateProcessing\","
                   "\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}}]}"),
         DYT_ERR_FORMAT, "<s>"},
        {FILE_WITH(BYTES, BYTES, ",\"added_tokens\":[3]"), DYT_ERR_FORMAT,
         "added_tokens"},
        {FILE_WITH(BYTES, BYTES,
                   ",\"added_tokens\":[{\"id\":1,\"content\":\"x\"}]"),
         DYT_ERR_FORMAT, "id 1 is \"b\" and \"x\""},
        {FILE_WITH(BYTES, BYTES,
                   ",\"added_tokens\":[{\"id\":9,\"content\":\"a\"}]"),
         DYT_ERR_FORMAT, "two ids"},
        {FILE_WITH(BYTES, BYTES,
                   ",\"added_tokens\":[{\"id\":2147483648,\"content\":\"x\"}]"),
         DYT_ERR_FORMAT, "added_tokens.id"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", DYT_ERR_UNSUPPORTED,
         "Unigram"},
        {"{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true}}",
         DYT_ERR_UNSUPPORTED, "byte_fallback"},
        {"{\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\"}}",
         DYT_ERR_UNSUPPORTED, "end_of_word_suffix"},
        {"{\"model\":{\"type\":\"BPE\",\"dropout\":0.1}}", DYT_ERR_UNSUPPORTED,
         "dropout"},
        {"{\"model\":{\"type\":\"BPE\"}}", DYT_ERR_FORMAT, "vocab is missing"},
        {"{\"model\":{\"vocab\":{\"a\":-1}}}", DYT_ERR_FORMAT, "\"a\""},
        {"{\"model\":{\"vocab\":{\"a\":0,\"b\":0}}}", DYT_ERR_FORMAT, "id 0"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a c\"]}}",
         DYT_ERR_FORMAT, "merges[0]"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a b c\"]}}",
         DYT_ERR_FORMAT, "two tokens"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\",1]]}}",
         DYT_ERR_FORMAT, "two tokens"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"unk_token\":\"u\"}}",
         DYT_ERR_FORMAT, "unk_token"},
        {"{}", DYT_ERR_FORMAT, "model is missing"},
        {"[", DYT_ERR_FORMAT, "t.json:1"},
    };

    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(row); i++) {
        struct dyti_tokenizer t = {NULL, NULL};

        if (dyti_tokenizer_parse("t.json", row[i].text, strlen(row[i].text),
                                 &t) != row[i].want) {
            fail_msg("row %zu: %s", i, dyti_error_text());
        }
        if (row[i].want != DYT_OK) {
            assert_error_has(row[i].says);
            assert_error_has("t.json");
            assert_null(t.self);
        }
        dyti_tokenizer_close(&t);
    }
}

static void characters_without_a_token(void **state)
{
    static const char file[] =
        "{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"<unk>\":2},"
        "\"unk_token\":\"<unk>\",\"fuse_unk\":true},\"pre_tokenizer\":" BYTES
        ",\"decoder\":" BYTES "}";
    static const char plain[] = FILE_WITH(BYTES, BYTES, "");
    struct dyti_tokenizer t = {NULL, NULL};
    int32_t *id = NULL;
    size_t count = 0;

    (void)state;
    assert_ok(dyti_tokenizer_parse("t.json", plain, strlen(plain), &t));
    assert_status(DYT_ERR_INVALID,
                  t.ops->encode(t.self, "abc", 3, false, &id, &count));
    assert_error_has("byte 0x63 of \"abc\" has no token");
    dyti_tokenizer_close(&t);

    assert_ok(dyti_tokenizer_parse("t.json", file, strlen(file), &t));
    assert_ok(t.ops->encode(t.self, "axxb", 4, false, &id, &count));
    assert_int_equal(3, count);
    assert_int_equal(2, id[1]);
    free(id);
    dyti_tokenizer_close(&t);
    dyti_tokenizer_close(&t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(unknown_parts_are_refused_by_name),
    cmocka_unit_test(characters_without_a_token),
};
DYT_TEST_MAIN(tests)
