/* --set key=value: a key of the job, of a phase by its name, or of a reward
 * function by its number. */
#include "format/job_options.h"

#include "base/banned.h"

static bool takes_word(enum dyti_option_type type)
{
    return type == DYTI_OPT_TEXT || type == DYTI_OPT_PATH ||
           type == DYTI_OPT_WORD || type == DYTI_OPT_CHOICE ||
           type == DYTI_OPT_SIZE || type == DYTI_OPT_SECONDS;
}

static bool takes_number(enum dyti_option_type type)
{
    return type == DYTI_OPT_SIZE || type == DYTI_OPT_SECONDS;
}

/* "KEY=VALUE" as a tree with one child; a VALUE that is no TOML, or none that
 * the row can take, is a bare word. */
static enum dyt_status set_value(const char *key, const char *value,
                                 const struct dyti_option *row,
                                 struct dyti_toml *out_root)
{
    struct dyti_toml root = {0};
    enum dyti_toml_type type;
    char *text = NULL;
    int bytes = asprintf(&text, "v = %s", value);
    enum dyt_status st;

    if (bytes < 0) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "--set %s", key);
    }
    st = dyti_toml_parse(text, (size_t)bytes, "--set", &root);
    free(text);
    type = st == DYT_OK && root.child_count == 1 ? root.child[0].type
                                                 : DYTI_TOML_DATE;
    if (type == DYTI_TOML_STRING ||
        (type != DYTI_TOML_DATE &&
         (row == NULL || !takes_word(row->type) || type == DYTI_TOML_TABLE ||
          takes_number(row->type)))) {
        *out_root = root;
        return DYT_OK;
    }
    dyti_toml_fini(&root);
    if (st == DYT_ERR_NOMEM) {
        return st;
    }
    if (row != NULL && !takes_word(row->type) && value[0] != '\0' &&
        value[strspn(value, "+-0123456789")] == '\0') {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "--set: %s: %.80s is no number that 64 bits can hold",
                         key, value);
    }
    root.type = DYTI_TOML_TABLE;
    root.child = calloc(1, sizeof(*root.child));
    if (root.child == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "--set %s", key);
    }
    root.child_count = 1;
    root.child[0].type = DYTI_TOML_STRING;
    root.child[0].text = strdup(value);
    root.child[0].text_bytes = strlen(value);
    if (root.child[0].text == NULL) {
        dyti_toml_fini(&root);
        return DYTI_FAIL(DYT_ERR_NOMEM, "--set %s", key);
    }
    *out_root = root;
    return DYT_OK;
}

/* "phase.NAME.rest" → the phase and rest. */
static enum dyt_status set_phase(const struct dyti_job_reader *reader,
                                 const char *key, uint32_t *out_index,
                                 const char **out_path)
{
    const char *name = key + strlen("phase.");
    size_t bytes = strcspn(name, ".");

    for (uint32_t i = 0; i < reader->job.phase_count; i++) {
        const char *have = reader->job.phase[i].name;

        if (strlen(have) == bytes && memcmp(have, name, bytes) == 0) {
            *out_index = i;
            *out_path = name[bytes] == '.' ? name + bytes + 1 : name + bytes;
            return DYT_OK;
        }
    }
    return DYTI_FAIL(DYT_ERR_CONFIG,
                     "--set: %s: no phase is named \"%.*s\": write "
                     "phase.rollout.… or phase.train.…",
                     key, (int)bytes, name);
}

/* "reward.functions.N.rest" → the function and rest. */
static enum dyt_status set_reward(const struct dyti_job_reader *reader,
                                  const char *key, uint32_t *out_index,
                                  const char **out_path)
{
    const char *number = key + strlen("reward.functions.");
    char *end = NULL;
    unsigned long index = strtoul(number, &end, 10);

    if (end == number || *end != '.' || index >= reader->job.reward_count) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "--set: %s: no such reward function: write "
                         "reward.functions.0.… up to reward.functions.%u.…",
                         key, reader->job.reward_count - 1);
    }
    *out_index = (uint32_t)index;
    *out_path = end + 1;
    return DYT_OK;
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static enum dyt_status set_key(struct dyti_job_reader *reader, const char *key,
                               const char *value)
{
    static const char rewards[] = "reward.functions";
    const struct dyti_place place = {.file = "--set", .loose = true};
    enum dyti_option_scope scope = DYTI_SCOPE_JOB;
    const struct dyti_option *row;
    struct dyti_toml root = {0};
    const char *path = key;
    uint32_t index = 0;
    enum dyt_status st = DYT_OK;

    if (starts(key, "phase.")) {
        scope = DYTI_SCOPE_PHASE;
        st = set_phase(reader, key, &index, &path);
    } else if (starts(key, "reward.functions.")) {
        scope = DYTI_SCOPE_REWARD;
        st = set_reward(reader, key, &index, &path);
    }
    if (st != DYT_OK) {
        return st;
    }
    row = dyti_option_find(scope, path);
    if (row == NULL && strcmp(key, rewards) != 0) {
        return dyti_reader_unknown(reader, scope, index, path, &place);
    }
    if (scope == DYTI_SCOPE_REWARD && strcmp(path, "kind") == 0) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "--set: %s: a kind cannot be changed: set "
                         "reward.functions=[{kind = …}]",
                         key);
    }
    st = set_value(key, value, row, &root);
    if (st == DYT_OK) {
        st = row == NULL ? dyti_reader_rewards(reader, &root.child[0], &place)
                         : dyti_reader_put(reader, scope, index, row,
                                           &root.child[0], &place);
        dyti_toml_fini(&root);
    }
    return st;
}

enum dyt_status dyti_reader_set(struct dyti_job_reader *reader,
                                const char *text)
{
    const char *equals = strchr(text, '=');
    char *key;
    enum dyt_status st;

    if (equals == NULL || equals == text) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "--set: \"%.80s\": write key=value, as steps=100",
                         text);
    }
    key = strndup(text, (size_t)(equals - text));
    if (key == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "--set");
    }
    while (key[0] != '\0' && key[strlen(key) - 1] == ' ') {
        key[strlen(key) - 1] = '\0';
    }
    st = set_key(reader, key, equals + 1 + strspn(equals + 1, " "));
    free(key);
    return st;
}
