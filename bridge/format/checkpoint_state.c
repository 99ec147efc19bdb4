/* state.json: everything that is no tensor. */
#include "format/checkpoint_dir.h"

#include "format/json_file.h"

#include "base/banned.h"

#include <math.h>

void dyti_checkpoint_state_fini(struct dyti_checkpoint_state *state)
{
    free(state->job);
    free(state->reward);
    memset(state, 0, sizeof(*state));
}

/* The numbers: one table for both directions.  64 bits go as text, as JSON
 * readers elsewhere keep 53. */
static const struct {
    const char *key;
    size_t offset;
} numbers[] = {
    {"step", offsetof(struct dyti_checkpoint_state, step)},
    {"version", offsetof(struct dyti_checkpoint_state, version)},
    {"updates", offsetof(struct dyti_checkpoint_state, updates)},
    {"seed", offsetof(struct dyti_checkpoint_state, seed)},
    {"data_epoch", offsetof(struct dyti_checkpoint_state, data_epoch)},
    {"data_position", offsetof(struct dyti_checkpoint_state, data_position)},
    {"data_fingerprint",
     offsetof(struct dyti_checkpoint_state, data_fingerprint)},
    {"next_prompt", offsetof(struct dyti_checkpoint_state, next_prompt)},
    {"overlong_prompts",
     offsetof(struct dyti_checkpoint_state, overlong_prompts)},
    {"model_fingerprint",
     offsetof(struct dyti_checkpoint_state, model_fingerprint)},
    {"layout_fingerprint",
     offsetof(struct dyti_checkpoint_state, layout_fingerprint)},
};
#define NUMBER_COUNT (sizeof(numbers) / sizeof(numbers[0]))

static enum dyt_status put_numbers(json_t *json,
                                   const struct dyti_checkpoint_state *state)
{
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < NUMBER_COUNT && st == DYT_OK; i++) {
        char text[32];
        uint64_t value;

        memcpy(&value, (const char *)state + numbers[i].offset, sizeof(value));
        snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
        st = dyti_json_put(json, numbers[i].key, json_string(text));
    }
    return st;
}

static enum dyt_status put_reward(json_t *json,
                                  const struct dyti_checkpoint_state *state)
{
    json_t *list = json_array();

    for (size_t i = 0; list != NULL && i < state->reward_count; i++) {
        double value = state->reward[i];

        if (json_array_append_new(list, isfinite(value) ? json_real(value)
                                                        : json_null()) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return dyti_json_put(json, "reward", list);
}

static enum dyt_status put_rest(json_t *json,
                                const struct dyti_checkpoint_state *state)
{
    enum dyt_status st = put_reward(json, state);

    if (st == DYT_OK) {
        st = dyti_json_put(json, "job",
                           state->job != NULL ? json_string(state->job)
                                              : json_null());
    }
    if (st == DYT_OK) {
        st = dyti_json_put(json, "score",
                           isfinite(state->score) ? json_real(state->score)
                                                  : json_null());
    }
    if (st == DYT_OK) {
        st = dyti_json_put(json, "isa", json_string(state->isa));
    }
    if (st == DYT_OK) {
        st = dyti_json_put(json, "layout", json_string(state->layout));
    }
    return st;
}

enum dyt_status dyti_checkpoint_state_write(
    const char *path, const struct dyti_checkpoint_state *state)
{
    char file[DYTI_PATH_BYTES];
    json_t *json = json_object();
    enum dyt_status st = dyti_path_join(file, path, DYTI_CHECKPOINT_STATE);

    if (st == DYT_OK && json == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "%s", file);
    }
    if (st == DYT_OK) {
        st = put_numbers(json, state);
    }
    if (st == DYT_OK) {
        st = put_rest(json, state);
    }
    if (st == DYT_OK) {
        st = dyti_json_save(file, json);
    }
    json_decref(json);
    return st;
}

/* ---- reading ------------------------------------------------------------ */

static enum dyt_status read_number(const struct dyti_json_at *at,
                                   const char *key, uint64_t *out)
{
    const char *text = NULL;
    char *end = NULL;
    enum dyt_status st = dyti_json_text_or(at, key, "", &text);

    if (st != DYT_OK) {
        return st;
    }
    *out = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0') {
        return DYTI_FAIL(DYT_ERR_FORMAT, "%s: %s must be a number as text",
                         at->file, key);
    }
    return DYT_OK;
}

static enum dyt_status read_fixed(const struct dyti_json_at *at,
                                  const char *key, char *to, size_t bytes)
{
    const char *text = NULL;
    enum dyt_status st = dyti_json_text_or(at, key, "", &text);

    if (st == DYT_OK) {
        snprintf(to, bytes, "%s", text);
    }
    return st;
}

static enum dyt_status read_reward(const struct dyti_json_at *at,
                                   const json_t *list,
                                   struct dyti_checkpoint_state *state)
{
    size_t count = json_array_size(list);

    state->reward = calloc(count + 1, sizeof(*state->reward));
    if (state->reward == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s", at->file);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(list, i);

        if (!json_is_number(value) && !json_is_null(value)) {
            return DYTI_FAIL(DYT_ERR_FORMAT, "%s: reward[%zu] is not a number",
                             at->file, i);
        }
        state->reward[i] =
            json_is_number(value) ? json_number_value(value) : NAN;
    }
    state->reward_count = count;
    return DYT_OK;
}

static enum dyt_status read_owned(const struct dyti_json_at *at,
                                  struct dyti_checkpoint_state *state)
{
    const json_t *list = NULL;
    const char *job = NULL;
    enum dyt_status st = dyti_json_text_or(at, "job", NULL, &job);

    if (st == DYT_OK) {
        st = dyti_json_array_or_null(at, "reward", &list);
    }
    if (st == DYT_OK && job != NULL) {
        state->job = strdup(job);
        st = state->job != NULL ? DYT_OK
                                : DYTI_FAIL(DYT_ERR_NOMEM, "%s", at->file);
    }
    return st == DYT_OK ? read_reward(at, list, state) : st;
}

static enum dyt_status read_all(const struct dyti_json_at *at,
                                struct dyti_checkpoint_state *state)
{
    enum dyt_status st = DYT_OK;

    for (size_t i = 0; i < NUMBER_COUNT && st == DYT_OK; i++) {
        uint64_t value = 0;

        st = read_number(at, numbers[i].key, &value);
        memcpy((char *)state + numbers[i].offset, &value, sizeof(value));
    }
    if (st == DYT_OK) {
        st = dyti_json_real_or(at, "score", NAN, &state->score);
    }
    if (st == DYT_OK) {
        st = read_fixed(at, "isa", state->isa, sizeof(state->isa));
    }
    if (st == DYT_OK) {
        st = read_fixed(at, "layout", state->layout, sizeof(state->layout));
    }
    return st == DYT_OK ? read_owned(at, state) : st;
}

enum dyt_status dyti_checkpoint_read_state(
    const char *path, struct dyti_checkpoint_state *out_state)
{
    struct dyti_checkpoint_state state = {0};
    char file[DYTI_PATH_BYTES];
    struct dyti_json_at at = {file, "", NULL};
    json_t *json = NULL;
    enum dyt_status st = dyti_path_join(file, path, DYTI_CHECKPOINT_STATE);

    if (st == DYT_OK) {
        st = dyti_json_load(file, &json);
    }
    if (st == DYT_OK) {
        at.object = json;
        st = read_all(&at, &state);
    }
    json_decref(json);
    if (st != DYT_OK) {
        dyti_checkpoint_state_fini(&state);
        return st;
    }
    *out_state = state;
    return DYT_OK;
}
