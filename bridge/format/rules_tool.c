/* A program of the build: tables of rules as C rows, so that the library itself
 * reads no TOML.
 * usage: dyt_rules_tool OUTPUT INPUT.toml… */
#include "format/rules_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void print_text(FILE *out, const char *text)
{
    if (text == NULL) {
        fputs("NULL", out);
        return;
    }
    fputc('"', out);
    for (; *text != '\0'; text++) {
        fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
    fputc('"', out);
}

static void print_part(FILE *out, const struct dyt_rule_part *p)
{
    fprintf(out, "{sizeof(struct dyt_rule_part), %u, ", p->cut);
    print_text(out, p->tensor);
    fprintf(out, ", %u, %u, %" PRId64 ", ", p->axis, p->transposed, p->unit);
    print_text(out, p->unit_attribute);
    fprintf(out, ", %u, %u, ", p->stack_axis, p->per_expert);
    print_text(out, p->segments);
    fprintf(out, ", %u, 0},\n", p->segment);
}

static void print_table(FILE *out, const struct dyti_rules_file *file, int at)
{
    for (size_t i = 0; i < file->rules.rule_count; i++) {
        const struct dyt_rule *rule = &file->rule[i];

        if (rule->part_count == 0) {
            continue;
        }
        fprintf(out, "static const struct dyt_rule_part part_%d_%zu[] = {\n",
                at, i);
        for (uint32_t p = 0; p < rule->part_count; p++) {
            print_part(out, &rule->part[p]);
        }
        fprintf(out, "};\n");
    }
    fprintf(out, "static const struct dyt_rule rule_%d[] = {\n", at);
    for (size_t i = 0; i < file->rules.rule_count; i++) {
        const struct dyt_rule *rule = &file->rule[i];

        fprintf(out,
                "{sizeof(struct dyt_rule), sizeof(struct dyt_rule_part), ");
        print_text(out, rule->name);
        if (rule->part_count == 0) {
            fprintf(out, ", NULL, 0, %u},\n", rule->flags);
        } else {
            fprintf(out, ", part_%d_%zu, %u, %u},\n", at, i, rule->part_count,
                    rule->flags);
        }
    }
    fprintf(out, "};\n");
}

/* One row for the family and for each of its other names. */
static void print_names(FILE *out, const struct dyti_rules_file *file, int at)
{
    for (uint32_t i = 0; i <= file->also_count; i++) {
        fprintf(out, "{sizeof(struct dyt_rules), sizeof(struct dyt_rule), ");
        print_text(out, i == 0 ? file->rules.family : file->also[i - 1]);
        fprintf(out, ", rule_%d, %zu},\n", at, file->rules.rule_count);
    }
}

static int generate(FILE *out, char **path, int count)
{
    struct dyti_rules_file *file = calloc((size_t)count + 1, sizeof(*file));
    int failed = file == NULL;

    fprintf(out, "/* Made of configs/rules by the build. */\n");
    for (int i = 0; i < count && !failed; i++) {
        failed = dyti_rules_load(path[i], &file[i]) != DYT_OK;
        if (!failed) {
            print_table(out, &file[i], i);
        }
    }
    if (failed) {
        fprintf(stderr, "%s\n", dyti_error_message());
    } else {
        fprintf(out, "static const struct dyt_rules tables[] = {\n");
        for (int i = 0; i < count; i++) {
            print_names(out, &file[i], i);
        }
        fprintf(out, "};\n");
    }
    for (int i = 0; i < count && file != NULL; i++) {
        dyti_rules_file_fini(&file[i]);
    }
    free(file);
    return failed;
}

int main(int argc, char **argv)
{
    FILE *out = argc > 2 ? fopen(argv[1], "w") : NULL;
    int failed;

    if (out == NULL) {
        fprintf(stderr, "usage: dyt_rules_tool OUTPUT INPUT.toml...\n");
        return 2;
    }
    failed = generate(out, argv + 2, argc - 2);
    failed = fclose(out) != 0 || failed;
    if (failed) {
        (void)remove(argv[1]);
    }
    return failed;
}
