/* The elements of a job's two arrays of tables: phases (here or in a file of
 * their own) and reward functions. */
#include "format/file.h"
#include "format/job_options.h"

#include "base/banned.h"

/* ---- phases ------------------------------------------------------------- */

/* `word` as one of the kinds, with messages that name the key. */
static enum dyt_status read_kind(const struct dyti_toml *value,
                                 const char *words, const char *shown,
                                 const struct dyti_place *place,
                                 uint32_t *out_kind)
{
    const struct dyti_option row = {
        .path = "kind", .type = DYTI_OPT_CHOICE, .choices = words};

    return dyti_option_put(&row, out_kind, value, place, shown);
}

/* The table that element `i` must be. */
static enum dyt_status want_table(const struct dyti_toml *item,
                                  const char *shown,
                                  const struct dyti_place *place)
{
    char where[DYTI_PATH_BYTES + 32];

    if (item->type == DYTI_TOML_TABLE) {
        return DYT_OK;
    }
    return DYTI_FAIL(DYT_ERR_CONFIG, "%s: %s: wants tables, not %s",
                     dyti_place_text(place, where, sizeof(where)), shown,
                     dyti_toml_type_name(item->type));
}

static enum dyt_status read_phase_file(struct dyti_job_reader *reader,
                                       uint32_t index,
                                       const struct dyti_toml *config,
                                       const struct dyti_place *place)
{
    struct dyti_toml root = {0};
    struct dyti_place inside = {0};
    char where[DYTI_PATH_BYTES + 32], path[DYTI_PATH_BYTES];
    enum dyt_status st;

    dyti_place_text(place, where, sizeof(where));
    if (config->type != DYTI_TOML_STRING) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s: phase.%s.config: wants a path in quotes, not %s",
                         where, reader->job.phase[index].name,
                         dyti_toml_type_name(config->type));
    }
    st = dyti_job_path(reader->folder, config->text, path);
    if (st == DYT_OK) {
        st = dyti_toml_load(path, &root);
    }
    if (st != DYT_OK) {
        DYTI_NOTE("reading phase.%s.config of %s",
                  reader->job.phase[index].name, where);
        return st;
    }
    inside.file = path;
    st = dyti_reader_table(reader, DYTI_SCOPE_PHASE, index, &root, &inside);
    dyti_toml_fini(&root);
    free(reader->phase_place[index]);
    reader->phase_place[index] = strdup(path);
    if (st == DYT_OK && reader->phase_place[index] == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "reading %s", path);
    }
    return st;
}

static enum dyt_status read_phase(struct dyti_job_reader *reader,
                                  uint32_t index, const struct dyti_toml *item,
                                  const struct dyti_place *file)
{
    struct dyti_job_phase *phase = &reader->job.phase[index];
    const struct dyti_toml *name = dyti_toml_find(item, "name");
    const struct dyti_toml *config = dyti_toml_find(item, "config");
    struct dyti_place place = *file;
    char where[DYTI_PATH_BYTES + 32];
    uint32_t kind = 0;
    enum dyt_status st;

    place.line = item->line;
    place.column = item->column;
    dyti_place_text(&place, where, sizeof(where));
    st = want_table(item, "phase", &place);
    if (st != DYT_OK) {
        return st;
    }
    if (name == NULL) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s: a phase without a name: write name = "
                         "\"rollout\" or name = \"train\"",
                         where);
    }
    st = read_kind(name, DYTI_PHASE_WORDS, "phase.name", &place, &kind);
    if (st != DYT_OK) {
        return st;
    }
    st = dyti_scope_init(DYTI_SCOPE_PHASE, phase);
    if (st != DYT_OK) {
        return st;
    }
    phase->kind = (enum dyti_phase_kind)kind;
    phase->name = strdup(name->text);
    reader->phase_place[index] = strdup(where);
    if (phase->name == NULL || reader->phase_place[index] == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "reading %s", file->file);
    }
    for (uint32_t i = 0; i < index; i++) {
        if (strcmp(reader->job.phase[i].name, phase->name) == 0) {
            return DYTI_FAIL(DYT_ERR_CONFIG,
                             "%s: a second phase named %s: take one out", where,
                             phase->name);
        }
    }
    if (config == NULL) {
        return dyti_reader_table(reader, DYTI_SCOPE_PHASE, index, item, file);
    }
    if (item->child_count != 2) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s: phase %s has both config and settings here: "
                         "move them into %s or take config out",
                         where, phase->name,
                         config->type == DYTI_TOML_STRING ? config->text
                                                          : "the file");
    }
    place.line = config->line;
    place.column = config->column;
    return read_phase_file(reader, index, config, &place);
}

enum dyt_status dyti_reader_phases(struct dyti_job_reader *reader,
                                   const struct dyti_toml *root,
                                   const struct dyti_place *file)
{
    const struct dyti_toml *list = dyti_toml_find(root, "phase");
    enum dyt_status st = DYT_OK;

    if (list == NULL) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s: no phases: write [[phase]] with name = "
                         "\"rollout\" and [[phase]] with name = \"train\"",
                         file->file);
    }
    if (list->type != DYTI_TOML_ARRAY || list->child_count > DYTI_PHASES_MAX) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s:%u:%u: phase: wants a list of tables: write "
                         "[[phase]] with two brackets, at most %u times",
                         file->file, list->key_line, list->key_column,
                         DYTI_PHASES_MAX);
    }
    reader->job.phase = calloc(DYTI_PHASES_MAX, sizeof(*reader->job.phase));
    reader->phase_place = calloc(DYTI_PHASES_MAX, sizeof(char *));
    if (reader->job.phase == NULL || reader->phase_place == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "reading %s", file->file);
    }
    for (uint32_t i = 0; i < list->child_count && st == DYT_OK; i++) {
        reader->job.phase_count = i + 1;
        st = read_phase(reader, i, &list->child[i], file);
    }
    return st;
}

/* ---- rewards ------------------------------------------------------------ */

static void drop_rewards(struct dyti_job_reader *reader)
{
    for (uint32_t i = 0; i < reader->job.reward_count; i++) {
        dyti_scope_fini(DYTI_SCOPE_REWARD, &reader->job.reward[i]);
    }
    for (uint32_t i = 0; i < DYTI_REWARDS_MAX && reader->reward_place != NULL;
         i++) {
        free(reader->reward_place[i]);
    }
    free(reader->job.reward);
    free(reader->reward_place);
    reader->job.reward = NULL;
    reader->reward_place = NULL;
    reader->job.reward_count = 0;
}

static enum dyt_status read_reward(struct dyti_job_reader *reader,
                                   uint32_t index, const struct dyti_toml *item,
                                   const struct dyti_place *file)
{
    struct dyti_job_reward *reward = &reader->job.reward[index];
    const struct dyti_toml *kind = dyti_toml_find(item, "kind");
    struct dyti_place place = *file;
    char where[DYTI_PATH_BYTES + 32], shown[64], list[128];
    enum dyt_status st;

    if (!place.loose) {
        place.line = item->line;
        place.column = item->column;
    }
    dyti_place_text(&place, where, sizeof(where));
    snprintf(shown, sizeof(shown), "reward.functions.%u.kind", index);
    st = want_table(item, "reward.functions", &place);
    if (st == DYT_OK && kind == NULL) {
        st = DYTI_FAIL(DYT_ERR_CONFIG,
                       "%s: a reward function without a kind: write kind = "
                       "one of %s",
                       where,
                       dyti_choice_list(DYTI_REWARD_WORDS, list, sizeof(list)));
    }
    if (st == DYT_OK) {
        st = dyti_scope_init(DYTI_SCOPE_REWARD, reward);
    }
    if (st == DYT_OK) {
        uint32_t word = 0;

        st = read_kind(kind, DYTI_REWARD_WORDS, shown, &place, &word);
        reward->kind = (enum dyti_reward_kind)word;
    }
    if (st != DYT_OK) {
        return st;
    }
    reader->reward_place[index] = strdup(where);
    if (reader->reward_place[index] == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "reading %s", file->file);
    }
    return dyti_reader_table(reader, DYTI_SCOPE_REWARD, index, item, file);
}

enum dyt_status dyti_reader_rewards(struct dyti_job_reader *reader,
                                    const struct dyti_toml *list,
                                    const struct dyti_place *place)
{
    char where[DYTI_PATH_BYTES + 32];
    enum dyt_status st = DYT_OK;

    if (list->type != DYTI_TOML_ARRAY || list->child_count == 0 ||
        list->child_count > DYTI_REWARDS_MAX) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s: reward.functions: wants 1 to %u tables: write "
                         "[[reward.functions]] with two brackets",
                         dyti_place_text(place, where, sizeof(where)),
                         DYTI_REWARDS_MAX);
    }
    drop_rewards(reader);
    reader->job.reward = calloc(list->child_count, sizeof(*reader->job.reward));
    reader->reward_place = calloc(DYTI_REWARDS_MAX, sizeof(char *));
    if (reader->job.reward == NULL || reader->reward_place == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "reading %s", place->file);
    }
    for (uint32_t i = 0; i < list->child_count && st == DYT_OK; i++) {
        reader->job.reward_count = i + 1;
        st = read_reward(reader, i, &list->child[i], place);
    }
    return st;
}

enum dyt_status dyti_reader_reward_table(struct dyti_job_reader *reader,
                                         const struct dyti_toml *root,
                                         const struct dyti_place *file)
{
    const struct dyti_toml *table = dyti_toml_find(root, "reward");
    const struct dyti_toml *list;

    if (table == NULL) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s: no reward: write [[reward.functions]] with kind "
                         "and answer",
                         file->file);
    }
    if (table->type != DYTI_TOML_TABLE) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s:%u:%u: reward: wants [[reward.functions]]",
                         file->file, table->key_line, table->key_column);
    }
    for (uint32_t i = 0; i < table->child_count; i++) {
        const struct dyti_toml *child = &table->child[i];

        if (strcmp(child->key, "functions") != 0) {
            return DYTI_FAIL(DYT_ERR_CONFIG,
                             "%s:%u:%u: unknown key reward.%.80s: did you mean "
                             "reward.functions?",
                             file->file, child->key_line, child->key_column,
                             child->key);
        }
    }
    list = dyti_toml_find(table, "functions");
    if (list == NULL) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "%s:%u:%u: no reward: write [[reward.functions]]",
                         file->file, table->line, table->column);
    }
    return dyti_reader_rewards(reader, list, file);
}
