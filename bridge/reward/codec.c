/* JSON lines to and from a reward command. */
#include "reward/codec.h"

#include "base/banned.h"

#include <jansson.h>
#include <math.h>

#define VALUES_MAX 256u /* components or metrics of one reply */

/* ---- request ------------------------------------------------------------ */

static json_t *ids_json(const struct dyti_reward_item *item)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < item->id_count; i++) {
        if (json_array_append_new(list, json_integer(item->ids[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static enum dyt_status add_item(json_t *batch,
                                const struct dyti_reward_item *item)
{
    json_t *own, *row;

    own = json_pack("{s:I, s:I, s:s, s:s, s:o, s:s, s:I, s:I}", "id",
                    (json_int_t)item->id, "group", (json_int_t)item->group,
                    "prompt", item->prompt, "completion", item->completion,
                    "completion_ids", ids_json(item), "finish_reason",
                    item->finish_reason, "version", (json_int_t)item->version,
                    "step", (json_int_t)item->step);
    row = json_loads(item->row_json, 0, NULL);
    if (own == NULL || !json_is_object(row) ||
        json_object_update_missing(own, row) != 0 ||
        json_array_append(batch, own) != 0) {
        json_decref(own);
        json_decref(row);
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "sample %llu of group %llu cannot be told to the "
                         "command: its texts or its row are not UTF-8 JSON",
                         (unsigned long long)item->id,
                         (unsigned long long)item->group);
    }
    json_decref(own);
    json_decref(row);
    return DYT_OK;
}

enum dyt_status dyti_reward_request(const struct dyti_reward_item *item,
                                    size_t count, char **out_text,
                                    size_t *out_bytes)
{
    json_t *batch = json_array();
    char *text = NULL;
    enum dyt_status st = DYT_OK;

    if (batch == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a batch of %zu for the command",
                         count);
    }
    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        st = add_item(batch, &item[i]);
    }
    if (st == DYT_OK) {
        text = json_dumps(batch, JSON_COMPACT);
        if (text == NULL) {
            st = DYTI_FAIL(DYT_ERR_NOMEM, "a batch of %zu for the command",
                           count);
        }
    }
    json_decref(batch);
    if (st == DYT_OK) {
        *out_bytes = strlen(text) + 1;
        text[*out_bytes - 1] = '\n'; /* in place of the NUL */
        *out_text = text;
    }
    return st;
}

/* ---- answer ------------------------------------------------------------- */

static enum dyt_status read_values(const json_t *object, const char *what,
                                   size_t id, struct dyti_reward_value **out,
                                   uint32_t *out_count)
{
    size_t count = json_object_size(object);
    struct dyti_reward_value *value;
    const char *key;
    json_t *item;

    if (object == NULL || json_is_null(object)) {
        return DYT_OK;
    }
    if (!json_is_object(object) || count > VALUES_MAX) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "id %zu: %s is no object of at most %u numbers", id,
                         what, VALUES_MAX);
    }
    value = calloc(count + 1, sizeof(*value));
    if (value == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%s of id %zu", what, id);
    }
    *out = value; /* the reply's from here on */
    json_object_foreach((json_t *)(uintptr_t)object, key, item)
    {
        if (!json_is_number(item) || key[0] == '\0') {
            return DYTI_FAIL(DYT_ERR_FORMAT, "id %zu: %s.%.60s is no number",
                             id, what, key);
        }
        value[*out_count].name = strdup(key);
        if (value[*out_count].name == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "%s of id %zu", what, id);
        }
        value[(*out_count)++].value = json_number_value(item);
    }
    return DYT_OK;
}

/* One {id, reward, …}; `seen` marks ids that have had theirs. */
static enum dyt_status read_reply(const json_t *item, size_t count, bool *seen,
                                  struct dyti_reward_reply *reply)
{
    const json_t *id_json = json_object_get(item, "id");
    const json_t *reward = json_object_get(item, "reward");
    size_t id = (size_t)json_integer_value(id_json);
    enum dyt_status st;

    if (!json_is_object(item) || !json_is_integer(id_json) || id >= count) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "an entry without an id from 0 to %zu",
                         count - 1);
    }
    if (seen[id]) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "id %zu is answered twice", id);
    }
    if (reward == NULL || (!json_is_number(reward) && !json_is_null(reward))) {
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "id %zu: reward is missing, or no number or null", id);
    }
    seen[id] = true;
    reply[id].dropped = json_is_null(reward);
    reply[id].reward = json_number_value(reward);
    st = read_values(json_object_get(item, "components"), "components", id,
                     &reply[id].component, &reply[id].component_count);
    if (st == DYT_OK) {
        st = read_values(json_object_get(item, "metrics"), "metrics", id,
                         &reply[id].metric, &reply[id].metric_count);
    }
    return st;
}

/* The start of a text, fit for a message. */
static const char *shown(const char *text, size_t bytes, char buf[61])
{
    size_t used = 0;

    for (; used < 60 && used < bytes; used++) {
        unsigned char c = (unsigned char)text[used];

        buf[used] = c < 0x20 || c > 0x7e ? '.' : (char)c;
    }
    buf[used] = '\0';
    return buf;
}

static enum dyt_status read_list(const json_t *list, size_t count,
                                 struct dyti_reward_reply *reply)
{
    bool *seen = calloc(count + 1, sizeof(*seen));
    size_t index;
    json_t *item;
    enum dyt_status st = DYT_OK;

    if (seen == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%zu replies", count);
    }
    json_array_foreach(list, index, item)
    {
        st = read_reply(item, count, seen, reply);
        if (st != DYT_OK) {
            break;
        }
    }
    for (size_t i = 0; i < count && st == DYT_OK; i++) {
        if (!seen[i]) {
            st = DYTI_FAIL(DYT_ERR_FORMAT, "id %zu is not answered", i);
        }
    }
    free(seen);
    return st;
}

enum dyt_status dyti_reward_answer(const char *text, size_t text_bytes,
                                   size_t count,
                                   struct dyti_reward_reply *reply)
{
    json_t *list = json_loadb(text, text_bytes, JSON_REJECT_DUPLICATES, NULL);
    char start[61];
    enum dyt_status st;

    if (!json_is_array(list)) {
        json_decref(list);
        return DYTI_FAIL(DYT_ERR_FORMAT,
                         "the answer is no JSON list of {id, reward}: \"%s\"",
                         shown(text, text_bytes, start));
    }
    memset(reply, 0, count * sizeof(*reply));
    st = read_list(list, count, reply);
    json_decref(list);
    for (size_t i = 0; i < count && st != DYT_OK; i++) {
        dyti_reward_reply_fini(&reply[i]);
    }
    return st;
}
