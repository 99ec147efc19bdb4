/* Layouts as people write them: one setter per key, used by both forms. */
#include "layout/spec.h"

#include "base/banned.h"
#include "layout/dialect.h"
#include "layout/spec_internal.h"

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
    KEY_BUCKET_MULTIPLE,
    KEY_GLU_INTERLEAVE,
    KEY_ZERO_ORDER,
    KEY_DTYPE,     /* + kind */
    KEY_RESIDENCY, /* + kind */
    KEY_COUNT
};

/* In the order of enum key; the last two with every kind. */
#define PLAIN_KEYS                                                             \
    "tp|pp|dp|cp|ep|etp|vpp|zero|order|experts|hosts|world|ranks|pp_layers|"   \
    "vocab_multiple|bucket_multiple|glu_interleave|zero_order"
#define KINDS "param|grad|master|exp_avg|exp_avg_sq|extra"
#define ALL_KEYS                                                               \
    PLAIN_KEYS "|dialect|dtype.param|dtype.grad|dtype.master|dtype.exp_avg|"   \
               "dtype.exp_avg_sq|dtype.extra|residency.param|residency.grad|"  \
               "residency.master|residency.exp_avg|residency.exp_avg_sq|"      \
               "residency.extra"

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
    case KEY_BUCKET_MULTIPLE:
        return &d->bucket_multiple;
    case KEY_GLU_INTERLEAVE:
        return &d->glu_interleave;
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

static enum dyt_status set_zero_order(struct dyti_spec_reader *r,
                                      const char *value)
{
    uint32_t how = 0;
    enum dyt_status st =
        dyti_spec_word(r, "zero_order", value, "catalogue|round_robin", &how);

    if (st == DYT_OK) {
        r->spec->desc.round_robin = how == 1;
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

enum dyt_status dyti_spec_set_key(struct dyti_spec_reader *r, const char *name,
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
    case KEY_ZERO_ORDER:
        return set_zero_order(r, value);
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

enum dyt_status dyti_spec_set_dialect(struct dyti_spec_reader *r,
                                      const char *name)
{
    struct dyti_layout_desc *d = &r->spec->desc;
    uint32_t dialect = 0;
    enum dyt_status st =
        dyti_spec_word(r, "dialect", name, DYTI_SPEC_DIALECTS, &dialect);

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
        st = dyti_spec_set_key(r, copy, equals + 1);
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
    st = dyti_spec_set_dialect(r, name);
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

/* ---- in and out ---------------------------------------------------------- */

enum dyt_status dyti_spec_conclude(struct dyti_spec_reader *r,
                                   const char *where, enum dyt_status st,
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

enum dyt_status dyti_layout_spec_parse(const char *text,
                                       struct dyti_layout_spec *out_spec)
{
    struct dyti_layout_spec spec = {0};
    struct dyti_spec_reader r = {.spec = &spec};
    char where[WHERE_BYTES];
    enum dyt_status st;

    snprintf(where, sizeof(where), "layout \"%.200s\": ", text);
    r.where = where;
    spec.shown = strdup(text);
    st = spec.shown == NULL ? DYTI_FAIL(DYT_ERR_NOMEM, "a layout")
                            : read_line(&r, text);
    return dyti_spec_conclude(&r, where, st, out_spec);
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
