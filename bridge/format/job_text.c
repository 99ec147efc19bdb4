/* A resolved job back as TOML text, and the equality of two jobs: what reads
 * and what writes are proved against each other by parse(text(job)) == job. */
#include "format/job_options.h"

#include "base/banned.h"

#include <inttypes.h>
#include <math.h>

void dyti_toml_print_text(const char *text, FILE *out)
{
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\') {
            fprintf(out, "\\%c", *c);
        } else if (*c == '\n') {
            fputs("\\n", out);
        } else if (*c == '\t') {
            fputs("\\t", out);
        } else if (*c < 0x20 || *c == 0x7f) {
            fprintf(out, "\\u%04X", *c);
        } else {
            fputc(*c, out);
        }
    }
    fputc('"', out);
}

/* The shortest text that reads back as the same number, always a float. */
static void print_real(double number, FILE *out)
{
    char text[40];

    if (isinf(number)) {
        fputs(number < 0 ? "-inf" : "inf", out);
        return;
    }
    if (number == floor(number) && fabs(number) < 1e15) {
        fprintf(out, "%.1f", number);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, number);
        if (strtod(text, NULL) == number) {
            break;
        }
    }
    fputs(text, out);
    if (strpbrk(text, ".e") == NULL) {
        fputs(".0", out);
    }
}

static void print_size(uint64_t bytes, FILE *out)
{
    static const char *const unit[] = {"", "KiB", "MiB", "GiB", "TiB"};
    uint32_t power = 0;

    while (power < 4 && bytes != 0 && bytes % 1024 == 0) {
        bytes /= 1024;
        power++;
    }
    fprintf(out, power == 0 ? "%" PRIu64 "%s" : "\"%" PRIu64 "%s\"", bytes,
            unit[power]);
}

static const void *field(const struct dyti_option *option, const void *base)
{
    return (const unsigned char *)base + option->offset;
}

static uint32_t field_count(const struct dyti_option *option, const void *base)
{
    uint32_t count;

    memcpy(&count, (const unsigned char *)base + option->count_offset,
           sizeof(count));
    return count;
}

static void print_list(const struct dyti_option *option, const void *base,
                       FILE *out)
{
    const void *at = field(option, base);
    uint32_t count = field_count(option, base);

    fputc('[', out);
    for (uint32_t i = 0; i < count; i++) {
        fputs(i == 0 ? "" : ", ", out);
        if (option->type == DYTI_OPT_U32S) {
            fprintf(out, "%u", (*(uint32_t *const *)at)[i]);
        } else {
            dyti_toml_print_text((*(char **const *)at)[i], out);
        }
    }
    fputc(']', out);
}

void dyti_option_print(const struct dyti_option *option, const void *base,
                       FILE *out)
{
    const void *at = field(option, base);
    char word[64];

    switch (option->type) {
    case DYTI_OPT_BOOL:
        fputs(*(const bool *)at ? "true" : "false", out);
        break;
    case DYTI_OPT_U32:
        fprintf(out, "%u", *(const uint32_t *)at);
        break;
    case DYTI_OPT_U64:
        fprintf(out, "%" PRIu64, *(const uint64_t *)at);
        break;
    case DYTI_OPT_REAL:
    case DYTI_OPT_SECONDS:
        print_real(*(const double *)at, out);
        break;
    case DYTI_OPT_TEXT:
    case DYTI_OPT_PATH:
    case DYTI_OPT_WORD:
        dyti_toml_print_text(*(char *const *)at, out);
        break;
    case DYTI_OPT_CHOICE:
        fprintf(out, "\"%s\"",
                dyti_choice_word(option->choices, *(const uint32_t *)at, word,
                                 sizeof(word)));
        break;
    case DYTI_OPT_SIZE:
        print_size(*(const uint64_t *)at, out);
        break;
    case DYTI_OPT_PAIR:
        fputc('[', out);
        print_real(((const double *)at)[0], out);
        fputs(", ", out);
        print_real(((const double *)at)[1], out);
        fputc(']', out);
        break;
    default:
        print_list(option, base, out);
        break;
    }
}

/* Rows of [eval] where nothing is evaluated, of [plugin] where the ranks
 * generate: a job that gives them all the same is refused. */
static bool says_nothing(enum dyti_option_scope scope,
                         const struct dyti_option *row, const void *base)
{
    const struct dyti_job *job = base;
    const struct dyti_job_phase *phase = base;

    if (scope == DYTI_SCOPE_PHASE) {
        return strncmp(row->path, "plugin.", 7) == 0 &&
               phase->engine == DYTI_ENGINE_BUILTIN;
    }
    return scope == DYTI_SCOPE_JOB && strncmp(row->path, "eval.", 5) == 0 &&
           strcmp(row->path, "eval.data") != 0 && job->eval.data[0] == '\0';
}

struct printing {
    const char *root; /* before relative paths; NULL: nothing */
    FILE *out;
};

static void print_value(const struct printing *p,
                        const struct dyti_option *option, const void *base)
{
    const char *path = option->type == DYTI_OPT_PATH
                           ? *(char *const *)field(option, base)
                           : NULL;
    char *full = NULL;

    if (path == NULL || p->root == NULL || path[0] == '\0' || path[0] == '/') {
        dyti_option_print(option, base, p->out);
        return;
    }
    if (asprintf(&full, "%s/%s", p->root, path) >= 0) {
        dyti_toml_print_text(full, p->out);
        free(full);
    }
}

/* All rows of a scope that fit `kind`, under [prefix…] headers.  Rows of one
 * table follow each other in the table of settings. */
static void print_scope(const struct printing *p, enum dyti_option_scope scope,
                        uint32_t kind, const char *prefix, const void *base)
{
    size_t count;
    const struct dyti_option *row = dyti_options(scope, &count);
    char table[64] = "";

    for (size_t i = 0; i < count; i++) {
        size_t bytes = strcspn(row[i].path, ".");
        bool inside = row[i].path[bytes] == '.';

        if (!dyti_option_fits(&row[i], kind) ||
            says_nothing(scope, &row[i], base)) {
            continue;
        }
        if (inside && (strlen(table) != bytes ||
                       strncmp(table, row[i].path, bytes) != 0)) {
            snprintf(table, sizeof(table), "%.*s", (int)bytes, row[i].path);
            fprintf(p->out, "\n[%s%s]\n", prefix, table);
        }
        fprintf(p->out,
                "%s = ", inside ? row[i].path + bytes + 1 : row[i].path);
        print_value(p, &row[i], base);
        fputc('\n', p->out);
    }
}

enum dyt_status dyti_job_text(const struct dyti_job *job, const char *root,
                              char **out_text)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    const struct printing p = {root, out};

    if (out == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "the text of job %s", job->name);
    }
    print_scope(&p, DYTI_SCOPE_JOB, 0, "", job);
    for (uint32_t i = 0; i < job->phase_count; i++) {
        fputs("\n[[phase]]\nname = ", out);
        dyti_toml_print_text(job->phase[i].name, out);
        fputc('\n', out);
        print_scope(&p, DYTI_SCOPE_PHASE, job->phase[i].kind, "phase.",
                    &job->phase[i]);
    }
    for (uint32_t i = 0; i < job->reward_count; i++) {
        fputs("\n[[reward.functions]]\n", out);
        print_scope(&p, DYTI_SCOPE_REWARD, job->reward[i].kind, "",
                    &job->reward[i]);
    }
    if (fclose(out) != 0) {
        free(text);
        return DYTI_FAIL(DYT_ERR_NOMEM, "the text of job %s", job->name);
    }
    *out_text = text;
    return DYT_OK;
}

/* ---- equality ----------------------------------------------------------- */

static size_t plain_bytes(enum dyti_option_type type)
{
    switch (type) {
    case DYTI_OPT_BOOL:
        return sizeof(bool);
    case DYTI_OPT_U32:
    case DYTI_OPT_CHOICE:
        return sizeof(uint32_t);
    case DYTI_OPT_PAIR:
        return 2 * sizeof(double);
    default:
        return sizeof(uint64_t);
    }
}

static bool list_equal(const struct dyti_option *option, const void *a,
                       const void *b)
{
    const void *x = field(option, a), *y = field(option, b);
    uint32_t count = field_count(option, a);

    if (count != field_count(option, b)) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (option->type == DYTI_OPT_U32S) {
            if ((*(uint32_t *const *)x)[i] != (*(uint32_t *const *)y)[i]) {
                return false;
            }
        } else if (strcmp((*(char **const *)x)[i], (*(char **const *)y)[i]) !=
                   0) {
            return false;
        }
    }
    return true;
}

bool dyti_option_equal(const struct dyti_option *option, const void *a,
                       const void *b)
{
    switch (option->type) {
    case DYTI_OPT_TEXT:
    case DYTI_OPT_PATH:
    case DYTI_OPT_WORD:
        return strcmp(*(char *const *)field(option, a),
                      *(char *const *)field(option, b)) == 0;
    case DYTI_OPT_U32S:
    case DYTI_OPT_TEXTS:
        return list_equal(option, a, b);
    default:
        return memcmp(field(option, a), field(option, b),
                      plain_bytes(option->type)) == 0;
    }
}

static bool scope_equal(enum dyti_option_scope scope, const void *a,
                        const void *b)
{
    size_t count;
    const struct dyti_option *row = dyti_options(scope, &count);

    for (size_t i = 0; i < count; i++) {
        if (!dyti_option_equal(&row[i], a, b)) {
            return false;
        }
    }
    return true;
}

bool dyti_job_equal(const struct dyti_job *a, const struct dyti_job *b)
{
    bool equal = a->phase_count == b->phase_count &&
                 a->reward_count == b->reward_count &&
                 scope_equal(DYTI_SCOPE_JOB, a, b);

    for (uint32_t i = 0; equal && i < a->phase_count; i++) {
        equal = strcmp(a->phase[i].name, b->phase[i].name) == 0 &&
                scope_equal(DYTI_SCOPE_PHASE, &a->phase[i], &b->phase[i]);
    }
    for (uint32_t i = 0; equal && i < a->reward_count; i++) {
        equal = scope_equal(DYTI_SCOPE_REWARD, &a->reward[i], &b->reward[i]);
    }
    return equal;
}
