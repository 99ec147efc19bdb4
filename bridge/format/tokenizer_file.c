/* tokenizer.json, part by part: model, added tokens, normalizer,
 * pre-tokenizer, post-processor, decoder.  Each part knows what it can do and
 * refuses the rest by name. */
#include "format/tokenizer_file.h"

#include "base/banned.h"

/* The "type" of a part, "" where there is none. */
static enum dyt_status part_type(const struct dyti_json_at *at,
                                 const char **out)
{
    if (!json_is_object(at->object)) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: %.*s must be an object", at->file,
                         (int)strcspn(at->prefix, "."), at->prefix);
    }
    return dyti_json_text_or(at, "type", "", out);
}

/* ---- normalizer --------------------------------------------------------- */

static enum dyt_status read_normalizer(struct dyti_tokenizer_file *file,
                                       const char *path, const json_t *json,
                                       unsigned depth)
{
    static const char *const name[] = {
        [DYTI_NFC] = "NFC",
        [DYTI_NFD] = "NFD",
        [DYTI_NFKC] = "NFKC",
        [DYTI_NFKD] = "NFKD",
    };
    struct dyti_json_at at = {path, "normalizer.", json};
    const json_t *list = NULL;
    const char *type = NULL;
    enum dyt_status st = part_type(&at, &type);

    if (st != DYT_OK) {
        return st;
    }
    for (size_t i = 0; i < sizeof(name) / sizeof(name[0]); i++) {
        if (strcmp(type, name[i]) == 0 && file->form_count < DYTI_MOST_FORMS) {
            file->form[file->form_count++] = (enum dyti_normal_form)i;
            return DYT_OK;
        }
    }
    if (strcmp(type, "Sequence") != 0 || depth > 4) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "%s: normalizer \"%.40s\" is not available; NFC, NFD, "
                         "NFKC, NFKD and Sequence are",
                         path, type);
    }
    st = dyti_json_array_or_null(&at, "normalizers", &list);
    for (size_t i = 0; i < json_array_size(list) && st == DYT_OK; i++) {
        st = read_normalizer(file, path, json_array_get(list, i), depth + 1);
    }
    return st;
}

enum dyt_status dyti_tokenizer_normalize(const struct dyti_tokenizer_file *file,
                                         const char *text, size_t text_bytes,
                                         char **out_text, size_t *out_bytes)
{
    char *now = NULL, *next = NULL;
    size_t now_bytes = text_bytes, next_bytes = 0;
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < file->form_count && st == DYT_OK; i++) {
        st = dyti_normalize(file->form[i], now != NULL ? now : text, now_bytes,
                            &next, &next_bytes);
        if (st == DYT_OK) {
            free(now);
            now = next;
            now_bytes = next_bytes;
        }
    }
    if (st == DYT_OK && now == NULL) {
        now = malloc(text_bytes + 1);
        if (now == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "%zu bytes of text", text_bytes);
        }
        memcpy(now, text, text_bytes);
        now[text_bytes] = '\0';
    }
    if (st != DYT_OK) {
        free(now);
        return st;
    }
    *out_text = now;
    *out_bytes = now_bytes;
    return DYT_OK;
}

/* ---- added tokens ------------------------------------------------------- */

static enum dyt_status read_flags(const struct dyti_json_at *at,
                                  struct dyti_added_token *token,
                                  bool *normalized, bool *special)
{
    enum dyt_status st;

    st = dyti_json_bool_or(at, "special", false, special);
    if (st == DYT_OK) {
        st = dyti_json_bool_or(at, "normalized", !*special, normalized);
    }
    if (st == DYT_OK) {
        st = dyti_json_bool_or(at, "single_word", false, &token->single_word);
    }
    if (st == DYT_OK) {
        st = dyti_json_bool_or(at, "lstrip", false, &token->lstrip);
    }
    if (st == DYT_OK) {
        st = dyti_json_bool_or(at, "rstrip", false, &token->rstrip);
    }
    return st;
}

static enum dyt_status read_added(struct dyti_tokenizer_file *file,
                                  const char *path, const json_t *json)
{
    struct dyti_json_at at = {path, "added_tokens.", json};
    struct dyti_added_token token = {0};
    const char *text = NULL;
    bool normalized = false, special = false;
    int64_t id = 0;
    enum dyt_status st;

    if (!json_is_object(json)) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: added_tokens must hold objects",
                         path);
    }
    st = dyti_json_int(&at, "id", 0, DYTI_MOST_TOKENS - 1, &id);
    if (st == DYT_OK) {
        st = dyti_json_text_or(&at, "content", "", &text);
    }
    if (st == DYT_OK) {
        st = read_flags(&at, &token, &normalized, &special);
    }
    if (st == DYT_OK && text[0] == '\0') {
        st = DYTI_FAIL(DYT_ERR_FORMAT, "%s: added token %lld has no content",
                       path, (long long)id);
    }
    if (st == DYT_OK) {
        st = dyti_bpe_add(&file->bpe, path, (int32_t)id, text, strlen(text),
                          false);
    }
    if (st == DYT_OK) {
        st = dyti_tokenizer_normalize(file, text, strlen(text), &token.text,
                                      &token.text_bytes);
    }
    if (st != DYT_OK) {
        return st;
    }
    if (!normalized) { /* found in the text as it comes: as it is written */
        free(token.text);
        token.text = strdup(text);
        token.text_bytes = strlen(text);
        if (token.text == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "%s: added token", path);
        }
    } else if (file->form_count > 0) { /* decodes to its normal form too */
        bool in_model = file->bpe.token[id].in_model;

        st = dyti_token_decodes(&file->bpe.token[id], token.text,
                                token.text_bytes);
        file->bpe.token[id].in_model = in_model;
        if (st != DYT_OK) {
            free(token.text);
            return st;
        }
    }
    token.id = (int32_t)id;
    file->bpe.token[id].special = special;
    st = dyti_added_add(normalized ? &file->normalized : &file->raw, token);
    if (st != DYT_OK) {
        free(token.text);
    }
    return st;
}

/* ---- post-processor ----------------------------------------------------- */

static enum dyt_status push_named(struct dyti_tokenizer_file *file,
                                  const struct dyti_json_at *at,
                                  const char *name, struct dyti_ids *to)
{
    const json_t *table = json_object_get(at->object, "special_tokens");
    const json_t *entry = json_object_get(table, name);
    const json_t *list = json_object_get(entry, "ids");
    enum dyt_status st = DYT_OK;

    if (!json_is_array(list)) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "%s: post_processor names \"%.40s\", which its "
                         "special_tokens do not have",
                         at->file, name);
    }
    for (size_t i = 0; i < json_array_size(list) && st == DYT_OK; i++) {
        const json_t *value = json_array_get(list, i);
        json_int_t id = json_integer_value(value);

        if (!json_is_integer(value) || id < 0 ||
            (size_t)id >= file->bpe.token_count) {
            return DYTI_FAIL(DYT_ERR_FORMAT,
                             "%s: post_processor: \"%.40s\" has no such id",
                             at->file, name);
        }
        st = dyti_ids_push(to, (int32_t)id);
    }
    return st;
}

/* The template for one text: tokens before and after "A". */
static enum dyt_status read_template(struct dyti_tokenizer_file *file,
                                     const struct dyti_json_at *at)
{
    const json_t *list = NULL;
    bool seen = false;
    enum dyt_status st = dyti_json_array_or_null(at, "single", &list);

    if (st == DYT_OK && (file->prefix.count > 0 || file->suffix.count > 0)) {
        st = DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                       "%s: two templates in post_processor are not available",
                       at->file);
    }
    for (size_t i = 0; i < json_array_size(list) && st == DYT_OK; i++) {
        const json_t *piece = json_array_get(list, i);
        const char *name = json_string_value(
            json_object_get(json_object_get(piece, "SpecialToken"), "id"));

        if (name != NULL) {
            st = push_named(file, at, name,
                            seen ? &file->suffix : &file->prefix);
        } else if (json_object_get(piece, "Sequence") != NULL && !seen) {
            seen = true;
        } else {
            st = DYTI_FAIL(DYT_ERR_FORMAT,
                           "%s: post_processor.single must hold special "
                           "tokens and one sequence",
                           at->file);
        }
    }
    return st;
}

static enum dyt_status read_post(struct dyti_tokenizer_file *file,
                                 const char *path, const json_t *json,
                                 unsigned depth)
{
    struct dyti_json_at at = {path, "post_processor.", json};
    const json_t *list = NULL;
    const char *type = NULL;
    enum dyt_status st = part_type(&at, &type);

    if (st != DYT_OK) {
        return st;
    }
    if (strcmp(type, "ByteLevel") == 0) {
        return DYT_OK; /* offsets only */
    }
    if (strcmp(type, "TemplateProcessing") == 0) {
        return read_template(file, &at);
    }
    if (strcmp(type, "Sequence") != 0 || depth > 4) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "%s: post-processor \"%.40s\" is not available; "
                         "TemplateProcessing, ByteLevel and Sequence are",
                         path, type);
    }
    st = dyti_json_array_or_null(&at, "processors", &list);
    for (size_t i = 0; i < json_array_size(list) && st == DYT_OK; i++) {
        st = read_post(file, path, json_array_get(list, i), depth + 1);
    }
    return st;
}

/* ---- decoder ------------------------------------------------------------ */

static enum dyt_status check_decoder(const char *path, const json_t *json)
{
    struct dyti_json_at at = {path, "decoder.", json};
    const json_t *list = NULL;
    const char *type = "none";
    enum dyt_status st = DYT_OK;

    if (json != NULL) {
        st = part_type(&at, &type);
    }
    if (st == DYT_OK && strcmp(type, "Sequence") == 0) {
        st = dyti_json_array_or_null(&at, "decoders", &list);
        if (st == DYT_OK && json_array_size(list) == 1) {
            return check_decoder(path, json_array_get(list, 0));
        }
    }
    if (st == DYT_OK && strcmp(type, "ByteLevel") != 0) {
        st = DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                       "%s: decoder \"%.40s\" is not available; ByteLevel is",
                       path, type);
    }
    return st;
}

/* ---- all of it ---------------------------------------------------------- */

static enum dyt_status read_model(struct dyti_tokenizer_file *file,
                                  const struct dyti_json_at *top)
{
    struct dyti_json_at model = {top->file, "model.", NULL};
    const json_t *added = NULL;
    enum dyt_status st;

    st = dyti_json_object_or_null(top, "model", &model.object);
    if (st == DYT_OK) {
        st = dyti_bpe_init(&file->bpe, &model);
    }
    if (st == DYT_OK) {
        st = dyti_json_array_or_null(top, "added_tokens", &added);
    }
    for (size_t i = 0; i < json_array_size(added) && st == DYT_OK; i++) {
        st = read_added(file, top->file, json_array_get(added, i));
    }
    if (st == DYT_OK) {
        dyti_added_finish(&file->raw);
        dyti_added_finish(&file->normalized);
        st = dyti_bpe_finish(&file->bpe, &model);
    }
    return st;
}

enum dyt_status dyti_tokenizer_file_init(struct dyti_tokenizer_file *file,
                                         const struct dyti_json_at *top)
{
    const json_t *normalizer = dyti_json_get(top, "normalizer");
    const json_t *post = dyti_json_get(top, "post_processor");
    enum dyt_status st = DYT_OK;

    memset(file, 0, sizeof(*file));
    if (normalizer != NULL) {
        st = read_normalizer(file, top->file, normalizer, 0);
    }
    if (st == DYT_OK) {
        st = read_model(file, top);
    }
    if (st == DYT_OK) {
        st = dyti_pre_init(&file->pre, top->file,
                           dyti_json_get(top, "pre_tokenizer"));
    }
    if (st == DYT_OK && post != NULL) {
        st = read_post(file, top->file, post, 0);
    }
    if (st == DYT_OK) {
        st = check_decoder(top->file, dyti_json_get(top, "decoder"));
    }
    return st;
}

void dyti_tokenizer_file_fini(struct dyti_tokenizer_file *file)
{
    dyti_bpe_fini(&file->bpe);
    dyti_pre_fini(&file->pre);
    dyti_added_fini(&file->raw);
    dyti_added_fini(&file->normalized);
    free(file->prefix.id);
    free(file->suffix.id);
    memset(file, 0, sizeof(*file));
}
