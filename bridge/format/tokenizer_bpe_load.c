/* "model" of tokenizer.json → struct dyti_bpe. */
#include "format/tokenizer_bpe.h"

#include "base/array.h"
#include "base/hash.h"

#include "base/banned.h"

/* ---- tokens ------------------------------------------------------------- */

static enum dyt_status reach(struct dyti_bpe *bpe, int32_t id)
{
    size_t need = (size_t)id + 1;
    enum dyt_status st = DYTI_GROW(bpe->token, bpe->token_cap, need);

    if (st == DYT_OK && need > bpe->token_count) {
        memset(&bpe->token[bpe->token_count], 0,
               (need - bpe->token_count) * sizeof(*bpe->token));
        bpe->token_count = need;
    }
    return st;
}

enum dyt_status dyti_bpe_add(struct dyti_bpe *bpe, const char *file, int32_t id,
                             const char *text, size_t text_bytes, bool of_model)
{
    struct dyti_token *token;
    enum dyt_status st;

    if (id < 0 || id >= DYTI_MOST_TOKENS) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: token \"%.60s\" has id %d", file,
                         text, id);
    }
    st = reach(bpe, id);
    if (st != DYT_OK) {
        return st;
    }
    token = &bpe->token[id];
    if (token->text != NULL) {
        if (token->text_bytes == text_bytes &&
            memcmp(token->text, text, text_bytes) == 0) {
            return DYT_OK;
        }
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: id %d is \"%.60s\" and \"%.60s\"",
                         file, id, token->text, text);
    }
    token->text = malloc(text_bytes + 1);
    if (token->text == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s: token %d", file, id);
    }
    memcpy(token->text, text, text_bytes);
    token->text[text_bytes] = '\0';
    token->text_bytes = (uint32_t)text_bytes;
    st = dyti_token_decodes(token, text, text_bytes);
    token->in_model = token->in_model && of_model;
    return st;
}

enum dyt_status dyti_token_decodes(struct dyti_token *token, const char *text,
                                   size_t text_bytes)
{
    char *bytes = malloc(text_bytes + 1);
    size_t length = text_bytes;

    if (bytes == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu bytes", text_bytes);
    }
    token->in_model = dyti_byte_text(text, text_bytes, bytes, &length);
    if (!token->in_model) { /* stands for itself */
        memcpy(bytes, text, text_bytes);
        length = text_bytes;
    }
    bytes[length] = '\0';
    free(token->bytes);
    token->bytes = bytes;
    token->bytes_length = (uint32_t)length;
    return DYT_OK;
}

static enum dyt_status read_vocab(struct dyti_bpe *bpe, const char *file,
                                  const json_t *vocab)
{
    const char *text;
    json_t *value;
    enum dyt_status st;

    json_object_foreach((json_t *)(uintptr_t)vocab, text, value)
    {
        json_int_t id = json_integer_value(value);

        if (!json_is_integer(value) || id < 0 || id >= DYTI_MOST_TOKENS) {
            return DYTI_FAIL(DYT_ERR_FORMAT,
                             "%s: model.vocab: \"%.60s\" must have an id under "
                             "%d",
                             file, text, DYTI_MOST_TOKENS);
        }
        st = dyti_bpe_add(bpe, file, (int32_t)id, text, strlen(text), true);
        if (st != DYT_OK) {
            return st;
        }
    }
    return DYT_OK;
}

/* ---- lookups ------------------------------------------------------------ */

static size_t slots_for(size_t count)
{
    size_t slots = 64;

    while (slots < count * 2) {
        slots *= 2;
    }
    return slots;
}

static enum dyt_status map_init(struct dyti_slot_map *map, size_t count)
{
    size_t slots = slots_for(count);

    free(map->slot);
    map->slot = calloc(slots, sizeof(*map->slot));
    if (map->slot == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a map of %zu tokens", count);
    }
    map->mask = slots - 1;
    return DYT_OK;
}

static void map_put(struct dyti_slot_map *map, uint32_t id, const char *bytes,
                    size_t length)
{
    size_t at =
        (size_t)dyti_fingerprint_bytes(DYTI_FINGERPRINT_SEED, bytes, length) &
        map->mask;

    while (map->slot[at] != 0) {
        at = (at + 1) & map->mask;
    }
    map->slot[at] = id + 1;
}

int32_t dyti_bpe_find(const struct dyti_bpe *bpe, const char *text,
                      size_t text_bytes)
{
    size_t at = (size_t)dyti_fingerprint_bytes(DYTI_FINGERPRINT_SEED, text,
                                               text_bytes) &
                bpe->by_text.mask;
    uint32_t slot;

    while ((slot = bpe->by_text.slot[at]) != 0) {
        const struct dyti_token *token = &bpe->token[slot - 1];

        if (token->text_bytes == text_bytes &&
            memcmp(token->text, text, text_bytes) == 0) {
            return (int32_t)(slot - 1);
        }
        at = (at + 1) & bpe->by_text.mask;
    }
    return -1;
}

static enum dyt_status build_maps(struct dyti_bpe *bpe, const char *file)
{
    enum dyt_status st = map_init(&bpe->by_text, bpe->token_count);

    if (st == DYT_OK) {
        st = map_init(&bpe->by_bytes, bpe->token_count);
    }
    for (size_t i = 0; i < bpe->token_count && st == DYT_OK; i++) {
        const struct dyti_token *token = &bpe->token[i];

        if (token->text == NULL) {
            continue;
        }
        if (dyti_bpe_find(bpe, token->text, token->text_bytes) >= 0) {
            return DYTI_FAIL(DYT_ERR_FORMAT, "%s: token \"%.60s\" has two ids",
                             file, token->text);
        }
        map_put(&bpe->by_text, (uint32_t)i, token->text, token->text_bytes);
        if (token->in_model) {
            map_put(&bpe->by_bytes, (uint32_t)i, token->bytes,
                    token->bytes_length);
        }
    }
    return st;
}

static void find_byte_ids(struct dyti_bpe *bpe)
{
    for (int byte = 0; byte < 256; byte++) {
        char one = (char)(unsigned char)byte;

        bpe->byte_id[byte] = dyti_bpe_find_bytes(bpe, &one, 1);
    }
}

/* ---- merges ------------------------------------------------------------- */

/* "a b" or ["a", "b"]: left and right as pointers into the document. */
static enum dyt_status split_merge(const char *file, size_t rank,
                                   const json_t *value, const char *part[2],
                                   size_t length[2])
{
    const char *text = json_string_value(value);
    const char *space = text != NULL ? strchr(text, ' ') : NULL;

    if (space != NULL && strchr(space + 1, ' ') == NULL) {
        part[0] = text;
        length[0] = (size_t)(space - text);
        part[1] = space + 1;
        length[1] = strlen(part[1]);
        return DYT_OK;
    }
    if (json_array_size(value) == 2) {
        for (size_t i = 0; i < 2; i++) {
            part[i] = json_string_value(json_array_get(value, i));
            length[i] = json_string_length(json_array_get(value, i));
        }
        if (part[0] != NULL && part[1] != NULL) {
            return DYT_OK;
        }
    }
    return DYTI_FAIL(DYT_ERR_FORMAT, "%s: model.merges[%zu] must be two tokens",
                     file, rank);
}

static enum dyt_status merge_ids(const struct dyti_bpe *bpe, const char *file,
                                 size_t rank, const char *const part[2],
                                 const size_t length[2], int32_t id[3])
{
    size_t total = length[0] + length[1];
    char *joined = malloc(total + 1);

    if (joined == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s: merge %zu", file, rank);
    }
    memcpy(joined, part[0], length[0]);
    memcpy(joined + length[0], part[1], length[1]);
    id[0] = dyti_bpe_find(bpe, part[0], length[0]);
    id[1] = dyti_bpe_find(bpe, part[1], length[1]);
    id[2] = dyti_bpe_find(bpe, joined, total);
    free(joined);
    if (id[0] < 0 || id[1] < 0 || id[2] < 0) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "%s: model.merges[%zu]: \"%.*s\" + \"%.*s\" or their "
                         "join is not in the vocabulary",
                         file, rank, (int)(length[0] < 60 ? length[0] : 60),
                         part[0], (int)(length[1] < 60 ? length[1] : 60),
                         part[1]);
    }
    return DYT_OK;
}

static void put_merge(struct dyti_bpe *bpe, uint32_t rank, const int32_t id[3])
{
    uint64_t pair = (uint64_t)(uint32_t)id[0] << 32 | (uint32_t)id[1];
    size_t at = (size_t)dyti_mix64(pair) & bpe->merge_mask;

    while (bpe->merge[at].pair != UINT64_MAX && bpe->merge[at].pair != pair) {
        at = (at + 1) & bpe->merge_mask;
    }
    bpe->merge[at] = (struct dyti_merge){pair, rank, id[2]};
}

static enum dyt_status read_merges(struct dyti_bpe *bpe, const char *file,
                                   const json_t *merges)
{
    size_t count = json_array_size(merges), slots = slots_for(count);
    enum dyt_status st = DYT_OK;

    if (count >= UINT32_MAX) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: %zu merges", file, count);
    }
    bpe->merge = malloc(slots * sizeof(*bpe->merge));
    if (bpe->merge == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s: %zu merges", file, count);
    }
    memset(bpe->merge, 0xff, slots * sizeof(*bpe->merge));
    bpe->merge_mask = slots - 1;
    for (size_t rank = 0; rank < count && st == DYT_OK; rank++) {
        const char *part[2] = {NULL, NULL};
        size_t length[2] = {0};
        int32_t id[3] = {0};

        st =
            split_merge(file, rank, json_array_get(merges, rank), part, length);
        if (st == DYT_OK) {
            st = merge_ids(bpe, file, rank, part, length, id);
        }
        if (st == DYT_OK) {
            put_merge(bpe, (uint32_t)rank, id);
        }
    }
    return st;
}

/* ---- the model ---------------------------------------------------------- */

static enum dyt_status refuse_options(const struct dyti_json_at *model)
{
    static const char *const texts[] = {"continuing_subword_prefix",
                                        "end_of_word_suffix"};
    const char *text = NULL;
    double dropout = 0;
    bool fallback = false;
    enum dyt_status st;

    st = dyti_json_text_or(model, "type", "BPE", &text);
    if (st == DYT_OK && strcmp(text, "BPE") != 0) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "%s: tokenizer model %.40s is not available; "
                         "byte-level BPE is",
                         model->file, text);
    }
    for (size_t i = 0; i < 2 && st == DYT_OK; i++) {
        st = dyti_json_text_or(model, texts[i], "", &text);
        if (st == DYT_OK && text[0] != '\0') {
            return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                             "%s: model.%s is not available", model->file,
                             texts[i]);
        }
    }
    if (st == DYT_OK) {
        st = dyti_json_real_or(model, "dropout", 0, &dropout);
    }
    if (st == DYT_OK) {
        st = dyti_json_bool_or(model, "byte_fallback", false, &fallback);
    }
    if (st == DYT_OK && (dropout > 0 || dropout < 0)) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "%s: model.dropout is not available", model->file);
    }
    if (st == DYT_OK && fallback) {
        return DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                         "%s: model.byte_fallback is not available; byte-level "
                         "BPE is",
                         model->file);
    }
    return st;
}

enum dyt_status dyti_bpe_init(struct dyti_bpe *bpe,
                              const struct dyti_json_at *model)
{
    const json_t *vocab = NULL;
    enum dyt_status st;

    memset(bpe, 0, sizeof(*bpe));
    bpe->unk = -1;
    if (model->object == NULL) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: model is missing", model->file);
    }
    st = refuse_options(model);
    if (st == DYT_OK) {
        st = dyti_json_bool_or(model, "fuse_unk", false, &bpe->fuse_unk);
    }
    if (st == DYT_OK) {
        st = dyti_json_bool_or(model, "ignore_merges", false,
                               &bpe->ignore_merges);
    }
    if (st == DYT_OK) {
        st = dyti_json_object_or_null(model, "vocab", &vocab);
    }
    if (st == DYT_OK && vocab == NULL) {
        st = DYTI_FAIL(DYT_ERR_FORMAT, "%s: model.vocab is missing",
                       model->file);
    }
    return st == DYT_OK ? read_vocab(bpe, model->file, vocab) : st;
}

enum dyt_status dyti_bpe_finish(struct dyti_bpe *bpe,
                                const struct dyti_json_at *model)
{
    const json_t *merges = NULL;
    const char *unk = NULL;
    enum dyt_status st = build_maps(bpe, model->file);

    if (st == DYT_OK) {
        find_byte_ids(bpe);
        st = dyti_json_text_or(model, "unk_token", NULL, &unk);
    }
    if (st == DYT_OK && unk != NULL) {
        bpe->unk = dyti_bpe_find(bpe, unk, strlen(unk));
        if (bpe->unk < 0) {
            return DYTI_FAIL(DYT_ERR_FORMAT,
                             "%s: unk_token \"%.60s\" is no token", model->file,
                             unk);
        }
    }
    if (st == DYT_OK) {
        st = dyti_json_array_or_null(model, "merges", &merges);
    }
    if (st == DYT_OK) {
        st = read_merges(bpe, model->file, merges);
    }
    return st;
}

void dyti_bpe_fini(struct dyti_bpe *bpe)
{
    for (size_t i = 0; i < bpe->token_count; i++) {
        free(bpe->token[i].text);
        free(bpe->token[i].bytes);
    }
    free(bpe->token);
    free(bpe->by_text.slot);
    free(bpe->by_bytes.slot);
    free(bpe->merge);
    memset(bpe, 0, sizeof(*bpe));
}
