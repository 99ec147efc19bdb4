/* The tokenizer's table: text → ids → text. */
#include "format/tokenizer.h"

#include "format/file.h"
#include "format/tokenizer_file.h"

#include "base/array.h"

#include "base/banned.h"

/* ---- encode ------------------------------------------------------------- */

struct encoding {
    struct dyti_tokenizer_file *file;
    struct dyti_ids ids;
};

static enum dyt_status on_word(void *arg, const char *word, size_t word_bytes)
{
    struct encoding *e = arg;

    return dyti_bpe_encode(&e->file->bpe, word, word_bytes, &e->ids);
}

static enum dyt_status on_normal_piece(void *arg, const char *text,
                                       size_t text_bytes, int32_t id)
{
    struct encoding *e = arg;

    if (id >= 0) {
        return dyti_ids_push(&e->ids, id);
    }
    return dyti_pre_run(&e->file->pre, text, text_bytes, on_word, e);
}

static enum dyt_status on_raw_piece(void *arg, const char *text,
                                    size_t text_bytes, int32_t id)
{
    struct encoding *e = arg;
    char *normal = NULL;
    size_t normal_bytes = 0;
    enum dyt_status st;

    if (id >= 0) {
        return dyti_ids_push(&e->ids, id);
    }
    if (e->file->form_count == 0) {
        return dyti_added_split(&e->file->normalized, text, text_bytes,
                                on_normal_piece, e);
    }
    st = dyti_tokenizer_normalize(e->file, text, text_bytes, &normal,
                                  &normal_bytes);
    if (st == DYT_OK) {
        st = dyti_added_split(&e->file->normalized, normal, normal_bytes,
                              on_normal_piece, e);
    }
    free(normal);
    return st;
}

static enum dyt_status push_all(struct dyti_ids *to,
                                const struct dyti_ids *from)
{
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < from->count && st == DYT_OK; i++) {
        st = dyti_ids_push(to, from->id[i]);
    }
    return st;
}

static enum dyt_status hf_encode(void *self, const char *text,
                                 size_t text_bytes, bool add_special,
                                 int32_t **out_ids, size_t *out_count)
{
    struct encoding e = {.file = self};
    size_t wrong = dyti_utf8_check(text, text_bytes);
    enum dyt_status st;

    if (wrong != SIZE_MAX) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "the text is not valid UTF-8 at byte %zu", wrong);
    }
    st = DYTI_GROW(e.ids.id, e.ids.cap, text_bytes / 4 + 8);
    if (st == DYT_OK && add_special) {
        st = push_all(&e.ids, &e.file->prefix);
    }
    if (st == DYT_OK) {
        st = dyti_added_split(&e.file->raw, text, text_bytes, on_raw_piece, &e);
    }
    if (st == DYT_OK && add_special) {
        st = push_all(&e.ids, &e.file->suffix);
    }
    if (st != DYT_OK) {
        free(e.ids.id);
        return st;
    }
    *out_ids = e.ids.id;
    *out_count = e.ids.count;
    return DYT_OK;
}

/* ---- decode ------------------------------------------------------------- */

static const struct dyti_token *token_of(const struct dyti_tokenizer_file *file,
                                         int32_t id)
{
    if (id < 0 || (size_t)id >= file->bpe.token_count ||
        file->bpe.token[id].text == NULL) {
        return NULL;
    }
    return &file->bpe.token[id];
}

/* Bytes of the longest prefix of an ill-formed sequence that could begin a
 * well-formed one: what becomes one U+FFFD (as Unicode recommends). */
static size_t bad_run(const unsigned char *p, size_t left)
{
    static const struct {
        unsigned char lo, hi, second_lo, second_hi, length;
    } row[] = {
        {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3},
        {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
        {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        size_t run = 1;

        if (p[0] < row[i].lo || p[0] > row[i].hi) {
            continue;
        }
        if (left > 1 && p[1] >= row[i].second_lo && p[1] <= row[i].second_hi) {
            run = 2;
            while (run < left && run < row[i].length &&
                   (p[run] & 0xc0) == 0x80) {
                run++;
            }
        }
        return run;
    }
    return 1;
}

/* *out_text is malloc'ed, valid UTF-8. */
static enum dyt_status make_valid(const char *bytes, size_t size_bytes,
                                  char **out_text, size_t *out_bytes)
{
    char *text = malloc(size_bytes * 3 + 1);
    size_t at = 0, put = 0, used = 0;

    if (text == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu bytes of text", size_bytes);
    }
    while (at < size_bytes) {
        if (dyti_utf8_next(bytes + at, size_bytes - at, &used) >= 0) {
            memcpy(text + put, bytes + at, used);
            put += used;
            at += used;
            continue;
        }
        memcpy(text + put, "\xef\xbf\xbd", 3);
        put += 3;
        at += bad_run((const unsigned char *)bytes + at, size_bytes - at);
    }
    text[put] = '\0';
    *out_text = text;
    *out_bytes = put;
    return DYT_OK;
}

static enum dyt_status hf_decode(void *self, const int32_t *ids, size_t count,
                                 bool skip_special, char **out_text,
                                 size_t *out_bytes)
{
    const struct dyti_tokenizer_file *file = self;
    char *bytes;
    size_t need = 0, used = 0;
    enum dyt_status st;

    for (size_t i = 0; i < count; i++) {
        const struct dyti_token *token = token_of(file, ids[i]);

        if (ids[i] < 0) {
            return DYTI_FAIL(DYT_ERR_INVALID, "token id %d", ids[i]);
        }
        need += token != NULL ? token->bytes_length : 0;
    }
    bytes = malloc(need + 1);
    if (bytes == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu bytes of text", need);
    }
    for (size_t i = 0; i < count; i++) {
        const struct dyti_token *token = token_of(file, ids[i]);

        if (token != NULL && !(skip_special && token->special)) {
            memcpy(bytes + used, token->bytes, token->bytes_length);
            used += token->bytes_length;
        }
    }
    st = make_valid(bytes, used, out_text, out_bytes);
    free(bytes);
    return st;
}

static enum dyt_status hf_token_bytes(void *self, int32_t id, const char **out,
                                      size_t *out_bytes)
{
    const struct dyti_tokenizer_file *file = self;
    const struct dyti_token *token = token_of(file, id);

    if (id < 0) {
        return DYTI_FAIL(DYT_ERR_INVALID, "token id %d", id);
    }
    *out = token != NULL ? token->bytes : "";
    *out_bytes = token != NULL ? token->bytes_length : 0;
    return DYT_OK;
}

static int32_t hf_vocab_size(void *self)
{
    const struct dyti_tokenizer_file *file = self;

    return (int32_t)file->bpe.token_count;
}

static int32_t hf_token_id(void *self, const char *text)
{
    const struct dyti_tokenizer_file *file = self;

    return dyti_bpe_find(&file->bpe, text, strlen(text));
}

const struct dyti_tokenizer_ops dyti_tokenizer_hf = {
    .struct_size = sizeof(struct dyti_tokenizer_ops),
    .name = "hf",
    .encode = hf_encode,
    .decode = hf_decode,
    .token_bytes = hf_token_bytes,
    .vocab_size = hf_vocab_size,
    .token_id = hf_token_id,
};

/* ---- open, close -------------------------------------------------------- */

static enum dyt_status from_json(const char *path, const json_t *json,
                                 struct dyti_tokenizer *out)
{
    struct dyti_json_at top = {path, "", json};
    struct dyti_tokenizer_file *file = malloc(sizeof(*file));
    enum dyt_status st;

    if (file == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s", path);
    }
    st = dyti_tokenizer_file_init(file, &top);
    if (st != DYT_OK) {
        dyti_tokenizer_file_fini(file);
        free(file);
        return st;
    }
    out->ops = &dyti_tokenizer_hf;
    out->self = file;
    return DYT_OK;
}

enum dyt_status dyti_tokenizer_parse(const char *file, const char *text,
                                     size_t size_bytes,
                                     struct dyti_tokenizer *out)
{
    json_t *json = NULL;
    enum dyt_status st = dyti_json_parse(file, text, size_bytes, &json);

    if (st == DYT_OK) {
        st = from_json(file, json, out);
    }
    json_decref(json);
    return st;
}

enum dyt_status dyti_tokenizer_open(const char *dir, struct dyti_tokenizer *out)
{
    char path[DYTI_PATH_BYTES];
    json_t *json = NULL;
    enum dyt_status st = dyti_path_join(path, dir, "tokenizer.json");

    if (st == DYT_OK) {
        st = dyti_json_load(path, &json);
    }
    if (st == DYT_OK) {
        st = from_json(path, json, out);
    }
    json_decref(json);
    return st;
}

void dyti_tokenizer_close(struct dyti_tokenizer *tokenizer)
{
    if (tokenizer->self != NULL) {
        dyti_tokenizer_file_fini(tokenizer->self);
        free(tokenizer->self);
    }
    memset(tokenizer, 0, sizeof(*tokenizer));
}
