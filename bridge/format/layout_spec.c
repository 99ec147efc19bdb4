/* Layouts as people write them: one setter per key, used by both forms. */
#include "format/layout_spec.h"

#include "base/array.h"
#include "base/banned.h"
#include "format/layout_spec_internal.h"
#include "format/toml.h"
#include "layout/dialect.h"

#include <stdlib.h>
#include <string.h>

#define WHERE_BYTES 512u

enum key {
    KEY_TP,
    KEY_PP,
    KEY_DP,
    KEY_CP,
    KEY_EP,
    KEY_ETP,
    KEY_VPP,
    KEY_ZERO,
    KEY_ORDER,
    KEY_EXPERTS,
    KEY_HOSTS,
    KEY_WORLD,
    KEY_RANKS,
    KEY_PP_LAYERS,
    KEY_VOCAB_MULTIPLE,
    KEY_DTYPE,     /* + kind */
    KEY_RESIDENCY, /* + kind */
    KEY_COUNT
};

/* In the order of enum key; the last two with every kind. */
#define PLAIN_KEYS                                                             \
    "tp|pp|dp|cp|ep|etp|vpp|zero|order|experts|hosts|world|ranks|pp_layers|"   \
    "vocab_multiple"
#define KINDS "param|grad|master|exp_avg|exp_avg_sq|extra"
#define ALL_KEYS                                                               \
    PLAIN_KEYS "|dialect|dtype.param|dtype.grad|dtype.master|dtype.exp_avg|"   \
               "dtype.exp_avg_sq|dtype.extra|residency.param|residency.grad|"  \
               "residency.master|residency.exp_avg|residency.exp_avg_sq|"      \
               "residency.extra"
#define DIALECTS "native|hf|megatron|zero12|zero3|fsdp2|vllm"

/* ---- one key ------------------------------------------------------------- */

/* The key and, of dtype.KIND and residency.KIND, its kind. */
static enum dyt_status find_key(const struct dyti_spec_reader *r,
                                const char *name, enum key *out_key,
                                uint32_t *out_kind)
{
    const char *dot = strchr(name, '.');
    enum key group = KEY_COUNT;
    char near[64] = "";
    uint32_t at = 0;

    if (dot != NULL && strncmp(name, "dtype.", 6) == 0) {
        group = KEY_DTYPE;
    } else if (dot != NULL && strncmp(name, "residency.", 10) == 0) {
        group = KEY_RESIDENCY;
    }
    for (const char *w = group == KEY_COUNT ? PLAIN_KEYS : KINDS; *w != '\0';
         at++) {
        size_t length = strcspn(w, "|");
        const char *word = group == KEY_COUNT ? name : dot + 1;

        if (strlen(word) == length && memcmp(word, w, length) == 0) {
            *out_key = group == KEY_COUNT ? (enum key)at : group;
            *out_kind = group == KEY_COUNT ? 0 : at;
            return DYT_OK;
        }
        w += length + (w[length] == '|');
    }
    dyti_spec_nearest(name, ALL_KEYS, near);
    return DYTI_FAIL(DYT_ERR_CONFIG,
                     "%sthere is no key \"%.60s\" (did you mean \"%s\"?)",
                     r->where, name, near);
}

static uint32_t *degree_of(struct dyti_layout_desc *d, enum key key)
{
    switch (key) {
    case KEY_TP:
        return &d->tp;
    case KEY_PP:
        return &d->pp;
    case KEY_DP:
        return &d->dp;
    case KEY_CP:
        return &d->cp;
    case KEY_EP:
        return &d->ep;
    case KEY_ETP:
        return &d->etp;
    case KEY_VPP:
        return &d->vpp;
    case KEY_WORLD:
        return &d->world_size;
    default:
        return &d->vocab_multiple;
    }
}

static enum dyt_status set_degree(struct dyti_spec_reader *r, enum key key,
                                  const char *name, const char *value)
{
    uint32_t degree = 0;
    enum dyt_status st =
        dyti_spec_number(r, name, value, DYTI_SPEC_MOST_RANKS, &degree);

    if (st == DYT_OK && degree == 0) {
        st = DYTI_FAIL(DYT_ERR_CONFIG, "%s%s is 0: at least 1", r->where, name);
    }
    if (st == DYT_OK) {
        *degree_of(&r->spec->desc, key) = degree;
    }
    return st;
}

static enum dyt_status set_experts(struct dyti_spec_reader *r,
                                   const char *value)
{
    uint32_t how = 0;
    enum dyt_status st;

    if ((value[0] >= '0' && value[0] <= '9') || value[0] == '-') {
        st = dyti_spec_slots(r, value);
        how = DYTI_EXPERTS_EXPLICIT;
    } else {
        st = dyti_spec_word(r, "experts", value, "linear|round_robin", &how);
    }
    if (st == DYT_OK) {
        r->spec->desc.experts = (enum dyti_expert_map)how;
    }
    return st;
}

static enum dyt_status set_list(struct dyti_spec_reader *r, enum key key,
                                const char *value)
{
    switch (key) {
    case KEY_RANKS:
        return dyti_spec_u32s(r, "ranks", value, true, &r->spec->ranks,
                              &r->rank_count);
    case KEY_PP_LAYERS:
        return dyti_spec_u32s(r, "pp_layers", value, false, &r->spec->pp_layers,
                              &r->layer_count);
    default:
        return dyti_spec_u32s(r, "hosts", value, false, &r->host_size,
                              &r->host_count);
    }
}

static enum dyt_status set_kind(struct dyti_spec_reader *r, enum key key,
                                const char *name, uint32_t kind,
                                const char *value)
{
    struct dyti_layout_desc *d = &r->spec->desc;
    uint32_t word = 0;
    enum dyt_status st;

    if (key == KEY_DTYPE) {
        st = dyti_spec_word(r, name, value, "f32|bf16|f16", &word);
        if (st == DYT_OK) {
            d->dtype[kind] = (enum dyti_dtype)word;
            r->spec->param_dtype_given |= kind == DYTI_PARAM;
        }
    } else {
        st = dyti_spec_word(r, name, value, "held|parked|derived|dropped",
                            &word);
        if (st == DYT_OK) {
            d->residency[kind] = (enum dyti_residency)word;
        }
    }
    return st;
}

static enum dyt_status set_key(struct dyti_spec_reader *r, const char *name,
                               const char *value)
{
    enum key key = KEY_COUNT;
    uint32_t kind = 0;
    enum dyt_status st = find_key(r, name, &key, &kind);

    if (st != DYT_OK) {
        return st;
    }
    if (key < KEY_DTYPE && (r->given >> key & 1u) != 0) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "%s%s is given twice", r->where, name);
    }
    r->given |= 1u << key;
    switch (key) {
    case KEY_ZERO:
        r->zero_given = true;
        return dyti_spec_number(r, name, value, 3, &r->spec->desc.zero);
    case KEY_ORDER:
        return dyti_spec_order(r, value);
    case KEY_EXPERTS:
        return set_experts(r, value);
    case KEY_HOSTS:
    case KEY_RANKS:
    case KEY_PP_LAYERS:
        return set_list(r, key, value);
    case KEY_DTYPE:
    case KEY_RESIDENCY:
        return set_kind(r, key, name, kind, value);
    default:
        return set_degree(r, key, name, value);
    }
}

static enum dyt_status set_dialect(struct dyti_spec_reader *r, const char *name)
{
    struct dyti_layout_desc *d = &r->spec->desc;
    uint32_t dialect = 0;
    enum dyt_status st = dyti_spec_word(r, "dialect", name, DIALECTS, &dialect);

    if (st != DYT_OK) {
        return st;
    }
    d->dialect = (enum dyti_dialect)dialect;
    d->dtype[DYTI_PARAM] = DYTI_BF16;
    if (d->dialect == DYTI_DIALECT_HF || d->dialect == DYTI_DIALECT_VLLM) {
        for (int kind = DYTI_GRAD; kind < DYTI_EXTRA; kind++) {
            d->residency[kind] = DYTI_DROPPED;
        }
    }
    return DYT_OK;
}

/* ---- one line ------------------------------------------------------------ */

/* "key=value" of `length` bytes. */
static enum dyt_status read_setting(struct dyti_spec_reader *r,
                                    const char *text, size_t length)
{
    char *copy = strndup(text, length), *equals;
    enum dyt_status st;

    if (copy == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a setting");
    }
    equals = strchr(copy, '=');
    if (equals == NULL || equals == copy || equals[1] == '\0') {
        st = DYTI_FAIL(DYT_ERR_CONFIG, "%s\"%.60s\" is no key=value, like tp=8",
                       r->where, copy);
    } else {
        *equals = '\0';
        st = set_key(r, copy, equals + 1);
    }
    free(copy);
    return st;
}

static enum dyt_status read_line(struct dyti_spec_reader *r, const char *text)
{
    size_t length = strcspn(text, ":");
    char name[64];
    enum dyt_status st;
    const char *at;

    snprintf(name, sizeof(name), "%.*s", (int)length, text);
    st = set_dialect(r, name);
    at = text + length;
    if (*at == ':') {
        at++;
    }
    while (st == DYT_OK && *at != '\0') {
        length = strcspn(at, ",");
        st = read_setting(r, at, length);
        at += length + (at[length] == ',');
    }
    return st;
}

/* ---- TOML ---------------------------------------------------------------- */

/* Text that grows. */
struct text {
    char *bytes;
    size_t count, cap;
};

static enum dyt_status add_text(struct text *t, const char *bytes)
{
    size_t length = strlen(bytes);
    enum dyt_status st = DYTI_GROW(t->bytes, t->cap, t->count + length + 1);

    if (st == DYT_OK) {
        memcpy(t->bytes + t->count, bytes, length + 1);
        t->count += length;
    }
    return st;
}

/* A value as the one-line form writes it: lists with +, lists of lists with /.
 */
static enum dyt_status value_text(const struct dyti_spec_reader *r,
                                  const struct dyti_toml *v, uint32_t depth,
                                  struct text *t)
{
    char number[32];
    enum dyt_status st = DYT_OK;
    bool nested = v->type == DYTI_TOML_ARRAY && v->child_count > 0 &&
                  v->child[0].type == DYTI_TOML_ARRAY;

    switch (v->type) {
    case DYTI_TOML_STRING:
        return add_text(t, v->text);
    case DYTI_TOML_INTEGER:
        snprintf(number, sizeof(number), "%lld", (long long)v->integer);
        return add_text(t, number);
    case DYTI_TOML_ARRAY:
        for (uint32_t i = 0; i < v->child_count && depth < 2 && st == DYT_OK;
             i++) {
            st = i == 0 ? DYT_OK : add_text(t, nested ? "/" : "+");
            st = st != DYT_OK ? st : value_text(r, &v->child[i], depth + 1, t);
        }
        if (st == DYT_OK && depth < 2 && v->child_count > 0) {
            return DYT_OK;
        }
        break;
    default:
        break;
    }
    return st != DYT_OK
               ? st
               : DYTI_FAIL(DYT_ERR_CONFIG, "%sno layout is written with %s%s",
                           r->where, dyti_toml_type_name(v->type),
                           v->type == DYTI_TOML_ARRAY ? " like this" : "");
}

static enum dyt_status read_entry(struct dyti_spec_reader *r, const char *file,
                                  const char *table, const struct dyti_toml *v)
{
    char where[WHERE_BYTES], key[128];
    struct text t = {0};
    enum dyt_status st;

    snprintf(where, sizeof(where), "%s:%u:%u: ", file, v->key_line,
             v->key_column);
    snprintf(key, sizeof(key), "%s%s%s", table, *table == '\0' ? "" : ".",
             v->key);
    r->where = where;
    if (v->type == DYTI_TOML_TABLE && *table == '\0' &&
        (strcmp(v->key, "dtype") == 0 || strcmp(v->key, "residency") == 0)) {
        st = DYT_OK;
        for (uint32_t i = 0; i < v->child_count && st == DYT_OK; i++) {
            st = read_entry(r, file, v->key, &v->child[i]);
        }
    } else {
        st = value_text(r, v, 0, &t);
        st = st != DYT_OK ? st : set_key(r, key, t.bytes);
    }
    free(t.bytes);
    r->where = "";
    return st;
}

static enum dyt_status read_table(struct dyti_spec_reader *r, const char *file,
                                  const struct dyti_toml *table)
{
    const struct dyti_toml *dialect = dyti_toml_find(table, "dialect");
    char where[WHERE_BYTES];
    enum dyt_status st;

    snprintf(where, sizeof(where), "%s:%u:%u: ", file,
             dialect != NULL ? dialect->line : table->line,
             dialect != NULL ? dialect->column : table->column);
    r->where = where;
    if (dialect != NULL && dialect->type != DYTI_TOML_STRING) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "%sdialect is a text: " DIALECTS,
                         where);
    }
    st = set_dialect(r, dialect == NULL ? "native" : dialect->text);
    for (uint32_t i = 0; i < table->child_count && st == DYT_OK; i++) {
        if (&table->child[i] != dialect) {
            st = read_entry(r, file, "", &table->child[i]);
        }
    }
    r->where = "";
    return st;
}

/* ---- in and out ---------------------------------------------------------- */

static enum dyt_status conclude(struct dyti_spec_reader *r, const char *where,
                                enum dyt_status st,
                                struct dyti_layout_spec *out_spec)
{
    r->where = where;
    st = st != DYT_OK ? st : dyti_spec_finish(r);
    free(r->host_size);
    if (st == DYT_OK) {
        *out_spec = *r->spec;
    } else {
        dyti_layout_spec_fini(r->spec);
    }
    return st;
}

enum dyt_status dyti_layout_spec_from_toml(const struct dyti_toml *table,
                                           const char *file,
                                           struct dyti_layout_spec *out_spec)
{
    struct dyti_layout_spec spec = {.shown = strdup(file)};
    struct dyti_spec_reader r = {.spec = &spec, .where = ""};
    char where[WHERE_BYTES];
    enum dyt_status st = spec.shown == NULL ? DYTI_FAIL(DYT_ERR_NOMEM, "a name")
                                            : read_table(&r, file, table);

    snprintf(where, sizeof(where), "%s: ", file);
    return conclude(&r, where, st, out_spec);
}

static enum dyt_status read_file(const char *path,
                                 struct dyti_layout_spec *out_spec)
{
    struct dyti_toml root = {0};
    const struct dyti_toml *table;
    enum dyt_status st = dyti_toml_load(path, &root);

    if (st != DYT_OK) {
        return st;
    }
    table = dyti_toml_find(&root, "layout");
    if (table == NULL || table->type != DYTI_TOML_TABLE) {
        st = DYTI_FAIL(DYT_ERR_CONFIG, "%s has no table [layout]", path);
    } else {
        st = dyti_layout_spec_from_toml(table, path, out_spec);
    }
    dyti_toml_fini(&root);
    return st;
}

enum dyt_status dyti_layout_spec_read(const char *text,
                                      struct dyti_layout_spec *out_spec)
{
    size_t length = strlen(text);
    struct dyti_layout_spec spec = {0};
    struct dyti_spec_reader r = {.spec = &spec};
    char where[WHERE_BYTES];
    enum dyt_status st;

    if (length > 5 && strcmp(text + length - 5, ".toml") == 0) {
        return read_file(text, out_spec);
    }
    snprintf(where, sizeof(where), "layout \"%.200s\": ", text);
    r.where = where;
    spec.shown = strdup(text);
    st = spec.shown == NULL ? DYTI_FAIL(DYT_ERR_NOMEM, "a layout")
                            : read_line(&r, text);
    return conclude(&r, where, st, out_spec);
}

void dyti_layout_spec_fini(struct dyti_layout_spec *spec)
{
    free(spec->shown);
    free(spec->ranks);
    free(spec->pp_layers);
    free(spec->host);
    free(spec->expert_slot);
    memset(spec, 0, sizeof(*spec));
}

void dyti_layout_spec_use_model(struct dyti_layout_spec *spec,
                                const struct dyti_arch *arch)
{
    if (!spec->param_dtype_given) {
        spec->desc.dtype[DYTI_PARAM] = arch->dtype;
    }
    if (!spec->etp_given && arch->moe.count > 0) {
        struct dyti_layout_desc *d = &spec->desc;

        if (d->dialect == DYTI_DIALECT_MEGATRON) {
            d->etp = d->tp;
        } else if (d->dialect == DYTI_DIALECT_VLLM && d->ep == 1) {
            d->etp = d->tp * d->dp;
        }
    }
}
