/* Words, texts and lists of a job. */
#include "format/job_value.h"

#include "base/banned.h"

/* The nearest of the choices to a word, as " (did you mean \"x\"?)". */
static void choice_hint(const char *choices, const char *word, char *buf,
                        size_t buf_bytes)
{
    uint32_t best = (uint32_t)(strlen(word) / 3 + 2);

    buf[0] = '\0';
    for (uint32_t i = 0;; i++) {
        char have[64];
        uint32_t d;

        if (dyti_choice_word(choices, i, have, sizeof(have))[0] == '?') {
            return;
        }
        d = dyti_edit_distance(word, have);
        if (d < best) {
            best = d;
            snprintf(buf, buf_bytes, " (did you mean \"%s\"?)", have);
        }
    }
}

/* {kind = "vllm", …}: a choice that takes settings of its own. */
static const struct dyti_toml *choice_text(const struct dyti_toml *value)
{
    const struct dyti_toml *kind = dyti_toml_find(value, "kind");

    return kind != NULL && kind->type == DYTI_TOML_STRING ? kind : value;
}

enum dyt_status dyti_value_read_choice(const struct dyti_spot *spot,
                                       uint32_t *out)
{
    const char *choices = spot->option->choices;
    const struct dyti_toml *value = choice_text(spot->value);
    char list[256], hint[96];
    bool served;
    int32_t position;

    if (value->type != DYTI_TOML_STRING) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "%s: wants %s, not %s", spot->text,
                         dyti_choice_list(choices, list, sizeof(list)),
                         dyti_toml_type_name(value->type));
    }
    position =
        dyti_choice_find(choices, value->text, value->text_bytes, &served);
    dyti_choice_list(choices, list, sizeof(list));
    if (position < 0) {
        choice_hint(choices, value->text, hint, sizeof(hint));
        return DYTI_FAIL(DYT_ERR_CONFIG, "%s: \"%.80s\" is none of %s%s",
                         spot->text, value->text, list, hint);
    }
    if (!served) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "%s: \"%s\" is not available yet: use %s", spot->text,
                         value->text, list);
    }
    if (value != spot->value) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s: \"%s\" takes no settings: write it as a string",
                         spot->text, value->text);
    }
    *out = (uint32_t)position;
    return DYT_OK;
}

static char *copy(const char *text)
{
    char *twin = strdup(text);

    if (twin == NULL) {
        DYTI_FAIL(DYT_ERR_NOMEM, "a setting");
    }
    return twin;
}

enum dyt_status dyti_value_read_text(const struct dyti_spot *spot, char **out)
{
    const struct dyti_toml *value = spot->value;
    char buf[DYTI_PATH_BYTES];
    const char *text = value->text;
    uint32_t position;
    enum dyt_status st;

    if (value->type != DYTI_TOML_STRING) {
        return dyti_value_wrong_type(spot);
    }
    if (spot->option->type == DYTI_OPT_WORD) {
        st = dyti_value_read_choice(spot, &position);
        if (st != DYT_OK) {
            return st;
        }
    }
    if (spot->option->type == DYTI_OPT_PATH && text[0] != '\0') {
        st = dyti_job_path(spot->place->folder, text, buf);
        if (st != DYT_OK) {
            return DYTI_FAIL(DYT_ERR_CONFIG, "%s: the path is too long",
                             spot->text);
        }
        text = buf;
    }
    *out = copy(text);
    return *out == NULL ? DYT_ERR_NOMEM : DYT_OK;
}

/* ---- lists -------------------------------------------------------------- */

enum dyt_status dyti_value_read_u32s(const struct dyti_spot *spot,
                                     uint32_t **out, uint32_t *out_count)
{
    const struct dyti_toml *value = spot->value;
    uint32_t *item = NULL;

    if (value->type != DYTI_TOML_ARRAY) {
        return dyti_value_wrong_type(spot);
    }
    if (value->child_count != 0) {
        item = calloc(value->child_count, sizeof(*item));
        if (item == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "%s", spot->text);
        }
    }
    for (uint32_t i = 0; i < value->child_count; i++) {
        struct dyti_spot one;
        int64_t number = 0;
        enum dyt_status st;

        dyti_spot_init(&one, spot->option, &value->child[i], spot->place,
                       spot->shown);
        st = dyti_value_read_integer(&one, UINT32_MAX, &number);
        if (st != DYT_OK) {
            free(item);
            return st;
        }
        item[i] = (uint32_t)number;
    }
    *out = item;
    *out_count = value->child_count;
    return DYT_OK;
}

void dyti_value_free_texts(char **item, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        free(item[i]);
    }
    free(item);
}

enum dyt_status dyti_value_read_texts(const struct dyti_spot *spot, char ***out,
                                      uint32_t *out_count)
{
    const struct dyti_toml *value = spot->value;
    char **item = NULL;

    if (value->type != DYTI_TOML_ARRAY) {
        return dyti_value_wrong_type(spot);
    }
    if (value->child_count != 0) {
        item = calloc(value->child_count, sizeof(*item));
        if (item == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "%s", spot->text);
        }
    }
    for (uint32_t i = 0; i < value->child_count; i++) {
        struct dyti_spot one;
        enum dyt_status st;

        dyti_spot_init(&one, spot->option, &value->child[i], spot->place,
                       spot->shown);
        st = value->child[i].type != DYTI_TOML_STRING
                 ? dyti_value_wrong_type(&one)
             : value->child[i].text_bytes == 0
                 ? DYTI_FAIL(DYT_ERR_CONFIG,
                             "%s: an empty string: leave it out", one.text)
                 : DYT_OK;
        if (st == DYT_OK) {
            item[i] = copy(value->child[i].text);
            st = item[i] == NULL ? DYT_ERR_NOMEM : DYT_OK;
        }
        if (st != DYT_OK) {
            dyti_value_free_texts(item, value->child_count);
            return st;
        }
    }
    *out = item;
    *out_count = value->child_count;
    return DYT_OK;
}
