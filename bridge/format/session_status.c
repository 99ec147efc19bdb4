#include "format/session_status.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

static const char *text_of(const json_t *group, const char *key)
{
    const char *text = json_string_value(json_object_get(group, key));

    return text != NULL ? text : "-";
}

static void print_replica(const json_t *r, FILE *out)
{
    const json_t *version = json_object_get(r, "version");
    const char *way = text_of(r, "way");
    char number[24] = "-", name[96];

    if (json_is_integer(version)) {
        snprintf(number, sizeof(number), "%" PRId64,
                 (int64_t)json_integer_value(version));
    }
    snprintf(name, sizeof(name), "%s/%" PRId64, text_of(r, "pool"),
             (int64_t)json_integer_value(json_object_get(r, "replica")));
    fprintf(out, "%-16s %8s  %-10s %14" PRId64 "  %s\n", name, number,
            text_of(r, "state"),
            (int64_t)json_integer_value(json_object_get(r, "bytes")),
            text_of(r, "last_error"));
    if (strcmp(way, "direct") == 0) {
        fprintf(out, "%-16s from device to device\n", "");
    } else if (strncmp(way, "by mirrors", 10) == 0) {
        fprintf(out, "%-16s %s\n", "", way);
    }
}

enum dyt_status dyti_session_status_print(const char *text, FILE *out)
{
    json_error_t where;
    json_t *all = json_loads(text, 0, &where);
    const json_t *trainer = json_object_get(all, "trainer");
    const json_t *replica;
    size_t i;

    if (all == NULL) {
        return DYTI_FAIL(DYT_ERR_FORMAT, "the manager's answer: %s",
                         where.text);
    }
    fprintf(out, "job      %s\n", text_of(all, "job"));
    if (json_is_object(trainer)) {
        fprintf(out, "trainer  %s, %" PRId64 " ranks\n",
                text_of(trainer, "state"),
                (int64_t)json_integer_value(json_object_get(trainer, "size")));
    } else {
        fprintf(out, "trainer  none\n");
    }
    fprintf(out, "%-16s %8s  %-10s %14s  %s\n", "replica", "version", "state",
            "bytes", "last error");
    json_array_foreach(json_object_get(all, "replicas"), i, replica)
    {
        print_replica(replica, out);
    }
    replica = json_object_get(all, "replicas_left_out");
    if (json_is_integer(replica)) {
        fprintf(out, "and %" PRId64 " more, which the answer has no room for\n",
                (int64_t)json_integer_value(replica));
    }
    json_decref(all);
    return DYT_OK;
}
