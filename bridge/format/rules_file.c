#include "format/rules_file.h"

#include "base/banned.h"
#include "layout/spec_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOP_KEYS  "family|also|rule"
#define RULE_KEYS "name|flags|part"
#define PART_KEYS                                                              \
    "tensor|cut|axis|unit|transposed|stack_axis|per_expert|segments|segment"

struct reader {
    const char *name;
    struct dyti_rules_file *out;
    uint32_t part_count; /* taken so far */
};

/* ---- messages ------------------------------------------------------------ */

static enum dyt_status wrong(const struct reader *r, const struct dyti_toml *v,
                             const char *want)
{
    bool keyed = v->key_line != 0;

    return DYTI_FAIL(DYT_ERR_CONFIG, "%s:%u:%u: %.60s must be %s", r->name,
                     keyed ? v->key_line : v->line,
                     keyed ? v->key_column : v->column,
                     v->key == NULL ? "this" : v->key, want);
}

static enum dyt_status unknown(const struct reader *r,
                               const struct dyti_toml *v, const char *keys)
{
    char near[64] = "";

    dyti_spec_nearest(v->key, keys, near);
    return DYTI_FAIL(DYT_ERR_CONFIG,
                     "%s:%u:%u: there is no key \"%.60s\" (did you mean "
                     "\"%s\"?)",
                     r->name, v->key_line, v->key_column, v->key, near);
}

static enum dyt_status missing(const struct reader *r,
                               const struct dyti_toml *v, const char *key)
{
    return DYTI_FAIL(DYT_ERR_CONFIG, "%s:%u:%u: \"%s\" is missing", r->name,
                     v->line, v->column, key);
}

/* ---- values -------------------------------------------------------------- */

static enum dyt_status take_text(const struct reader *r,
                                 const struct dyti_toml *v, const char **out)
{
    if (v->type != DYTI_TOML_STRING || v->text_bytes == 0 ||
        v->text_bytes > 255) {
        return wrong(r, v, "a text of 1 to 255 bytes");
    }
    *out = v->text;
    return DYT_OK;
}

static enum dyt_status take_number(const struct reader *r,
                                   const struct dyti_toml *v, uint32_t most,
                                   uint32_t *out)
{
    if (v->type != DYTI_TOML_INTEGER || v->integer < 0 || v->integer > most) {
        char want[48];

        (void)snprintf(want, sizeof(want), "a whole number from 0 to %u", most);
        return wrong(r, v, want);
    }
    *out = (uint32_t)v->integer;
    return DYT_OK;
}

/* One of "a|b|c"; the number of the word. */
static bool word_at(const char *text, const char *words, uint32_t *out)
{
    size_t bytes = strlen(text);

    for (uint32_t i = 0;; i++) {
        size_t length = strcspn(words, "|");

        if (length == bytes && strncmp(words, text, bytes) == 0) {
            *out = i;
            return true;
        }
        if (words[length] == '\0') {
            return false;
        }
        words += length + 1;
    }
}

static enum dyt_status take_word(const struct reader *r,
                                 const struct dyti_toml *v, const char *words,
                                 uint32_t *out)
{
    char want[96];

    if (v->type == DYTI_TOML_STRING && word_at(v->text, words, out)) {
        return DYT_OK;
    }
    (void)snprintf(want, sizeof(want), "one of %s", words);
    return wrong(r, v, want);
}

static enum dyt_status take_unit(const struct reader *r,
                                 const struct dyti_toml *v,
                                 struct dyt_rule_part *p)
{
    if (v->type == DYTI_TOML_STRING) {
        return take_text(r, v, &p->unit_attribute);
    }
    if (v->type != DYTI_TOML_INTEGER || v->integer < 1 ||
        v->integer > INT32_MAX) {
        return wrong(r, v, "a number of elements, or an attribute's name");
    }
    p->unit = v->integer;
    return DYT_OK;
}

/* ---- tables -------------------------------------------------------------- */

static enum dyt_status read_part(struct reader *r, const struct dyti_toml *v,
                                 struct dyt_rule_part *p)
{
    enum dyt_status st = DYT_OK;

    *p = (struct dyt_rule_part){.struct_size = sizeof(*p)};
    if (v->type != DYTI_TOML_TABLE) {
        return wrong(r, v, "a table");
    }
    for (uint32_t i = 0; i < v->child_count && st == DYT_OK; i++) {
        const struct dyti_toml *c = &v->child[i];
        uint32_t word = 0;

        if (strcmp(c->key, "tensor") == 0) {
            st = take_text(r, c, &p->tensor);
        } else if (strcmp(c->key, "cut") == 0) {
            st = take_word(r, c, "whole|even|heads|vocab|experts", &p->cut);
        } else if (strcmp(c->key, "axis") == 0) {
            st = take_number(r, c, DYT_MAX_DIMS - 1, &p->axis);
        } else if (strcmp(c->key, "unit") == 0) {
            st = take_unit(r, c, p);
        } else if (strcmp(c->key, "transposed") == 0) {
            p->transposed = c->flag;
            st = c->type == DYTI_TOML_BOOL ? DYT_OK
                                           : wrong(r, c, "true or false");
        } else if (strcmp(c->key, "stack_axis") == 0) {
            st = take_number(r, c, DYT_MAX_DIMS - 1, &p->stack_axis);
        } else if (strcmp(c->key, "per_expert") == 0) {
            st = take_word(r, c, "name|axis", &word);
            p->per_expert = word + 1;
        } else if (strcmp(c->key, "segments") == 0) {
            st = take_text(r, c, &p->segments);
        } else if (strcmp(c->key, "segment") == 0) {
            st = take_number(r, c, 255, &p->segment);
        } else {
            st = unknown(r, c, PART_KEYS);
        }
    }
    return st != DYT_OK || p->tensor != NULL ? st : missing(r, v, "tensor");
}

static enum dyt_status read_parts(struct reader *r, const struct dyti_toml *v,
                                  struct dyt_rule *rule)
{
    enum dyt_status st = DYT_OK;

    if (v->type != DYTI_TOML_ARRAY) {
        return wrong(r, v, "a list of tables");
    }
    rule->part = r->out->part + r->part_count;
    rule->part_count = v->child_count;
    for (uint32_t i = 0; i < v->child_count && st == DYT_OK; i++) {
        st = read_part(r, &v->child[i], &r->out->part[r->part_count++]);
    }
    return st;
}

static enum dyt_status read_flags(struct reader *r, const struct dyti_toml *v,
                                  uint32_t *out)
{
    static const uint32_t flag[] = {DYT_ROW_READ_ONLY, DYT_ROW_ALIAS,
                                    DYT_ROW_OPTIONAL};
    enum dyt_status st = DYT_OK;

    if (v->type != DYTI_TOML_ARRAY) {
        return wrong(r, v, "a list of read_only, alias, optional");
    }
    for (uint32_t i = 0; i < v->child_count && st == DYT_OK; i++) {
        uint32_t word = 0;

        st = take_word(r, &v->child[i], "read_only|alias|optional", &word);
        *out |= st == DYT_OK ? flag[word] : 0;
    }
    return st;
}

static enum dyt_status read_rule(struct reader *r, const struct dyti_toml *v,
                                 struct dyt_rule *rule)
{
    enum dyt_status st = DYT_OK;

    *rule = (struct dyt_rule){.struct_size = sizeof(*rule),
                              .part_struct_size = sizeof(*rule->part)};
    if (v->type != DYTI_TOML_TABLE) {
        return wrong(r, v, "a table");
    }
    for (uint32_t i = 0; i < v->child_count && st == DYT_OK; i++) {
        const struct dyti_toml *c = &v->child[i];

        if (strcmp(c->key, "name") == 0) {
            st = take_text(r, c, &rule->name);
        } else if (strcmp(c->key, "flags") == 0) {
            st = read_flags(r, c, &rule->flags);
        } else if (strcmp(c->key, "part") == 0) {
            st = read_parts(r, c, rule);
        } else {
            st = unknown(r, c, RULE_KEYS);
        }
    }
    return st != DYT_OK || rule->name != NULL ? st : missing(r, v, "name");
}

/* ---- the whole ----------------------------------------------------------- */

static uint32_t count_parts(const struct dyti_toml *rules)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < rules->child_count; i++) {
        const struct dyti_toml *part = dyti_toml_find(&rules->child[i], "part");

        count += part == NULL ? 0 : part->child_count;
    }
    return count;
}

static enum dyt_status read_rules(struct reader *r, const struct dyti_toml *v)
{
    struct dyti_rules_file *out = r->out;
    enum dyt_status st = DYT_OK;

    if (v->type != DYTI_TOML_ARRAY) {
        return wrong(r, v, "a list of tables: [[rule]]");
    }
    out->rule = calloc(v->child_count + 1u, sizeof(*out->rule));
    out->part = calloc(count_parts(v) + 1u, sizeof(*out->part));
    if (out->rule == NULL || out->part == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u rules", v->child_count);
    }
    out->rules.rule = out->rule;
    out->rules.rule_count = v->child_count;
    for (uint32_t i = 0; i < v->child_count && st == DYT_OK; i++) {
        st = read_rule(r, &v->child[i], &out->rule[i]);
    }
    return st;
}

static enum dyt_status read_also(struct reader *r, const struct dyti_toml *v)
{
    struct dyti_rules_file *out = r->out;
    enum dyt_status st = DYT_OK;

    if (v->type != DYTI_TOML_ARRAY) {
        return wrong(r, v, "a list of names");
    }
    out->also = calloc(v->child_count + 1u, sizeof(*out->also));
    if (out->also == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u names", v->child_count);
    }
    for (uint32_t i = 0; i < v->child_count && st == DYT_OK; i++) {
        st = take_text(r, &v->child[i], &out->also[i]);
        out->also_count++;
    }
    return st;
}

static enum dyt_status read_root(struct reader *r, const struct dyti_toml *root)
{
    struct dyti_rules_file *out = r->out;
    enum dyt_status st = DYT_OK;

    out->rules = (struct dyt_rules){.struct_size = sizeof(out->rules),
                                    .rule_struct_size = sizeof(*out->rule)};
    for (uint32_t i = 0; i < root->child_count && st == DYT_OK; i++) {
        const struct dyti_toml *c = &root->child[i];

        if (strcmp(c->key, "family") == 0) {
            st = take_text(r, c, &out->rules.family);
        } else if (strcmp(c->key, "also") == 0) {
            st = read_also(r, c);
        } else if (strcmp(c->key, "rule") == 0) {
            st = read_rules(r, c);
        } else {
            st = unknown(r, c, TOP_KEYS);
        }
    }
    if (st == DYT_OK && out->rules.family == NULL) {
        st = DYTI_FAIL(DYT_ERR_CONFIG, "%s: \"family\" is missing", r->name);
    }
    if (st == DYT_OK && out->rule == NULL) {
        st = DYTI_FAIL(DYT_ERR_CONFIG, "%s: there is no [[rule]]", r->name);
    }
    return st;
}

/* Takes the tree over. */
static enum dyt_status read_tree(const char *name, struct dyti_toml *root,
                                 struct dyti_rules_file *out_file)
{
    struct dyti_rules_file file = {.root = *root};
    struct reader r = {.name = name, .out = &file};
    enum dyt_status st = read_root(&r, &file.root);

    if (st != DYT_OK) {
        dyti_rules_file_fini(&file);
        return st;
    }
    *out_file = file;
    return DYT_OK;
}

enum dyt_status dyti_rules_parse(const char *text, size_t text_bytes,
                                 const char *name,
                                 struct dyti_rules_file *out_file)
{
    struct dyti_toml root = {0};
    enum dyt_status st = dyti_toml_parse(text, text_bytes, name, &root);

    return st != DYT_OK ? st : read_tree(name, &root, out_file);
}

enum dyt_status dyti_rules_load(const char *path,
                                struct dyti_rules_file *out_file)
{
    struct dyti_toml root = {0};
    enum dyt_status st = dyti_toml_load(path, &root);

    return st != DYT_OK ? st : read_tree(path, &root, out_file);
}

void dyti_rules_file_fini(struct dyti_rules_file *file)
{
    free(file->also);
    free(file->rule);
    free(file->part);
    dyti_toml_fini(&file->root);
    *file = (struct dyti_rules_file){0};
}
