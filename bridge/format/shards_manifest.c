/* The manifest of a sharded directory, in and out.  Nothing in it is believed
 * beyond what it says: paths are made from rank numbers, never read. */
#include "format/shards.h"

#include "base/banned.h"
#include "format/file.h"
#include "format/json_file.h"

#include <stdlib.h>
#include <string.h>

#define MOST_WORLD   (1 << 20)
#define MOST_TENSORS (1u << 22)

static enum dyt_status parse_hex(const struct dyti_json_at *at, const char *key,
                                 uint64_t *out)
{
    const char *text = NULL;
    unsigned long long value;
    char *end;
    enum dyt_status st = dyti_json_text_or(at, key, NULL, &text);

    if (st != DYT_OK) {
        return st;
    }
    if (text == NULL || strlen(text) != 16 ||
        strspn(text, "0123456789abcdef") != 16) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: %s%s is no 16 hex digits",
                         at->file, at->prefix, key);
    }
    value = strtoull(text, &end, 16);
    *out = value;
    return DYT_OK;
}

static enum dyt_status parse_kinds(const struct dyti_json_at *at,
                                   uint32_t *out_kinds)
{
    const json_t *list = NULL;
    enum dyt_status st = dyti_json_array_or_null(at, "kinds", &list);

    for (size_t i = 0; st == DYT_OK && i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        int kind = 0;

        while (kind < DYTI_EXTRA && name != NULL &&
               strcmp(name, dyti_kind_name((enum dyti_kind)kind)) != 0) {
            kind++;
        }
        if (name == NULL || kind >= DYTI_EXTRA) {
            return DYTI_FAIL(DYT_ERR_FORMAT,
                             "%s: kinds[%zu] is \"%.40s\", no kind: one of "
                             "param, grad, master, exp_avg, exp_avg_sq",
                             at->file, i, name != NULL ? name : "");
        }
        *out_kinds |= 1u << kind;
    }
    if (st == DYT_OK && *out_kinds == 0) {
        st = DYTI_FAIL(DYT_ERR_FORMAT, "%s: kinds is missing or empty",
                       at->file);
    }
    return st;
}

static enum dyt_status parse_hashes(const struct dyti_json_at *root,
                                    struct dyti_shards_manifest *m)
{
    const json_t *object = NULL;
    enum dyt_status st = dyti_json_object_or_null(root, "hashes", &object);
    const char *name;
    json_t *value;

    if (st != DYT_OK || object == NULL) {
        return st != DYT_OK ? st
                            : DYTI_FAIL(DYT_ERR_FORMAT, "%s: hashes is missing",
                                        root->file);
    }
    if (json_object_size(object) > MOST_TENSORS) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: more than %u hashes", root->file,
                         MOST_TENSORS);
    }
    m->tensor = calloc(json_object_size(object) + 1, sizeof(*m->tensor));
    if (m->tensor == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "hashes of %s", root->file);
    }
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        struct dyti_shards_hash *h = &m->tensor[m->tensor_count];
        char prefix[128];
        const struct dyti_json_at at = {root->file, prefix, value};

        if (!json_is_object(value)) {
            return DYTI_FAIL(DYT_ERR_FORMAT, "%s: hashes.%.80s is no object",
                             root->file, name);
        }
        snprintf(prefix, sizeof(prefix), "hashes.%.100s.", name);
        h->name = strdup(name);
        if (h->name == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "hashes of %s", root->file);
        }
        m->tensor_count++;
        for (int kind = 0; kind < DYTI_EXTRA && st == DYT_OK; kind++) {
            const char *key = dyti_kind_name((enum dyti_kind)kind);

            if ((m->kinds >> kind & 1u) != 0 &&
                json_object_get(value, key) != NULL) {
                st = parse_hex(&at, key, &h->hash[kind]);
            }
        }
        if (st != DYT_OK) {
            return st;
        }
    }
    return DYT_OK;
}

static enum dyt_status parse_root(const struct dyti_json_at *at,
                                  struct dyti_shards_manifest *m)
{
    const char *schema = NULL, *spec = NULL;
    int64_t world = 0;
    enum dyt_status st = dyti_json_text_or(at, "schema", "", &schema);

    if (st == DYT_OK && strcmp(schema, DYTI_SHARDS_SCHEMA) != 0) {
        st = DYTI_FAIL(DYT_ERR_FORMAT, "%s: schema is \"%.60s\", not %s",
                       at->file, schema, DYTI_SHARDS_SCHEMA);
    }
    st = st != DYT_OK ? st : dyti_json_text_or(at, "spec", NULL, &spec);
    if (st == DYT_OK && spec == NULL) {
        st = DYTI_FAIL(DYT_ERR_FORMAT, "%s: spec is missing", at->file);
    }
    st = st != DYT_OK ? st : dyti_json_int(at, "world", 1, MOST_WORLD, &world);
    st = st != DYT_OK
             ? st
             : parse_hex(at, "model_fingerprint", &m->model_fingerprint);
    st = st != DYT_OK
             ? st
             : parse_hex(at, "layout_fingerprint", &m->layout_fingerprint);
    st = st != DYT_OK ? st : parse_kinds(at, &m->kinds);
    st = st != DYT_OK ? st : parse_hashes(at, m);
    if (st == DYT_OK) {
        m->world = (uint32_t)world;
        m->spec = strdup(spec);
        st = m->spec == NULL ? DYTI_FAIL(DYT_ERR_NOMEM, "a manifest") : DYT_OK;
    }
    return st;
}

enum dyt_status dyti_shards_manifest_parse(
    const char *file, const char *text, size_t text_bytes,
    struct dyti_shards_manifest *out_manifest)
{
    struct dyti_shards_manifest m = {.kinds = 0};
    json_t *json = NULL;
    enum dyt_status st = dyti_json_parse(file, text, text_bytes, &json);

    if (st == DYT_OK) {
        const struct dyti_json_at at = {file, "", json};

        st = parse_root(&at, &m);
    }
    json_decref(json);
    if (st == DYT_OK) {
        *out_manifest = m;
    } else {
        dyti_shards_manifest_fini(&m);
    }
    return st;
}

static json_t *hex_json(uint64_t value)
{
    char text[17];

    snprintf(text, sizeof(text), "%016llx", (unsigned long long)value);
    return json_string(text);
}

static enum dyt_status put_hashes(json_t *root,
                                  const struct dyti_shards_manifest *m)
{
    json_t *all = json_object();
    enum dyt_status st = dyti_json_put(root, "hashes", all);

    for (uint32_t i = 0; i < m->tensor_count && st == DYT_OK; i++) {
        json_t *one = json_object();

        st = dyti_json_put(all, m->tensor[i].name, one);
        for (int kind = 0; kind < DYTI_EXTRA && st == DYT_OK; kind++) {
            if ((m->kinds >> kind & 1u) != 0) {
                st = dyti_json_put(one, dyti_kind_name((enum dyti_kind)kind),
                                   hex_json(m->tensor[i].hash[kind]));
            }
        }
    }
    return st;
}

enum dyt_status dyti_shards_manifest_write(const char *path,
                                           const struct dyti_shards_manifest *m)
{
    json_t *root = json_object(), *kinds = json_array();
    enum dyt_status st =
        dyti_json_put(root, "schema", json_string(DYTI_SHARDS_SCHEMA));

    st = st != DYT_OK ? st : dyti_json_put(root, "spec", json_string(m->spec));
    st = st != DYT_OK ? st
                      : dyti_json_put(root, "world", json_integer(m->world));
    st = st != DYT_OK ? st
                      : dyti_json_put(root, "model_fingerprint",
                                      hex_json(m->model_fingerprint));
    st = st != DYT_OK ? st
                      : dyti_json_put(root, "layout_fingerprint",
                                      hex_json(m->layout_fingerprint));
    for (int kind = 0; kind < DYTI_EXTRA && st == DYT_OK; kind++) {
        if ((m->kinds >> kind & 1u) != 0 &&
            json_array_append_new(kinds, json_string(dyti_kind_name(
                                             (enum dyti_kind)kind))) != 0) {
            st = DYTI_FAIL(DYT_ERR_NOMEM, "a manifest");
        }
    }
    if (st == DYT_OK) {
        st = dyti_json_put(root, "kinds", kinds);
    } else {
        json_decref(kinds);
    }
    st = st != DYT_OK ? st : put_hashes(root, m);
    st = st != DYT_OK ? st : dyti_json_save(path, root);
    json_decref(root);
    return st;
}

void dyti_shards_manifest_fini(struct dyti_shards_manifest *m)
{
    for (uint32_t i = 0; i < m->tensor_count; i++) {
        free(m->tensor[i].name);
    }
    free(m->tensor);
    free(m->spec);
    memset(m, 0, sizeof(*m));
}
