/* Who is in the job and what they hold, as JSON: docs/session.md has the
 * schema. */
#include "lib/manager_internal.h"

#include "base/json_out.h"

#include <stdlib.h>
#include <string.h>

/* What one member, one group without its members, and the end of the whole take
 * at most: a text of n bytes may be written as 6 n. */
#define MEMBER_BYTES (DYTI_FLEET_NAME_BYTES * 6u + 256u)
#define GROUP_BYTES                                                            \
    ((DYTI_FLEET_TEXT_BYTES + DYTI_FLEET_NAME_BYTES + 400u) * 6u + 1024u)
#define END_BYTES 256u

/* Those that do not fit below `most_bytes` of the whole are counted. */
static void write_members(struct dyti_json *j,
                          const struct dyti_session_manager *m,
                          const struct dyti_fleet_group *g, size_t most_bytes)
{
    uint64_t left_out = 0;

    dyti_json_begin_array(j, "members");
    for (uint32_t r = 0; r < g->size; r++) {
        const struct dyti_fleet_member *d;

        if (g->member[r] == DYTI_FLEET_NONE) {
            continue;
        }
        if (j->bytes + MEMBER_BYTES > most_bytes) {
            left_out++;
            continue;
        }
        d = &m->fleet.member[g->member[r]];
        dyti_json_begin_object(j, NULL);
        dyti_json_u64(j, "rank", r);
        dyti_json_u64(j, "pid", d->place.pid);
        dyti_json_text(j, "host", d->place.host_name);
        dyti_json_bool(j, "published", d->state == DYTI_MEMBER_READY);
        dyti_json_end(j);
    }
    dyti_json_end(j);
    if (left_out > 0) {
        dyti_json_u64(j, "members_left_out", left_out);
    }
}

static void write_group(struct dyti_json *j, const char *key,
                        const struct dyti_session_manager *m,
                        const struct dyti_fleet_group *g, size_t most_bytes)
{
    static const char *const commit[] = {"staged", "double", "in_place"};

    dyti_json_begin_object(j, key);
    if (g->role == DYTI_FLEET_RECEIVER) {
        uint32_t first = g->member[0];

        dyti_json_text(j, "pool", g->pool);
        dyti_json_u64(j, "replica", g->number);
        if (first != DYTI_FLEET_NONE &&
            m->fleet.member[first].place.commit < 3) {
            dyti_json_text(j, "commit",
                           commit[m->fleet.member[first].place.commit]);
        }
        if (g->current) {
            dyti_json_u64(j, "version", g->version);
        } else {
            dyti_json_null(j, "version");
        }
        dyti_json_u64(j, "bytes", g->bytes);
        if (first < m->member_count && m->member[first].way != NULL) {
            dyti_json_text(j, "way", m->member[first].way);
        } else {
            dyti_json_null(j, "way");
        }
    }
    dyti_json_u64(j, "size", g->size);
    dyti_json_text(j, "state", dyti_group_state_name(g->state));
    if (g->why[0] != '\0') {
        dyti_json_text(j, "last_error", g->why);
    } else {
        dyti_json_null(j, "last_error");
    }
    write_members(j, m, g, most_bytes);
    dyti_json_end(j);
}

/* Half is the trainer's at most, and replicas go before their members. */
static void write_replicas(struct dyti_json *j,
                           const struct dyti_session_manager *m,
                           size_t most_bytes)
{
    const struct dyti_fleet *f = &m->fleet;
    uint64_t left_out = 0, groups = 0;

    for (size_t i = 1; i < f->group_count; i++) {
        groups += f->group[i].used;
    }
    dyti_json_begin_array(j, "replicas");
    for (size_t i = 1; i < f->group_count; i++) {
        if (!f->group[i].used) {
            continue;
        }
        groups--; /* that are still to come */
        if (j->bytes + GROUP_BYTES > most_bytes) {
            left_out++;
        } else {
            uint64_t kept = groups * GROUP_BYTES;

            write_group(j, NULL, m, &f->group[i],
                        kept < most_bytes ? most_bytes - kept : 0);
        }
    }
    dyti_json_end(j);
    if (left_out > 0) {
        dyti_json_u64(j, "replicas_left_out", left_out);
    }
}

enum dyt_status dyti_manager_status(struct dyti_session_manager *m,
                                    size_t most_bytes, char **out_json)
{
    const struct dyti_fleet *f = &m->fleet;
    struct dyti_json j;
    char *text = NULL;
    size_t bytes;
    enum dyt_status st;

    dyti_json_init(&j, 2);
    dyti_json_begin_object(&j, NULL);
    dyti_json_text(&j, "schema", "dynatrain-session-1");
    dyti_json_text(&j, "job", m->job);
    if (f->any_version) {
        dyti_json_u64(&j, "offered_version", f->offer.version);
    } else {
        dyti_json_null(&j, "offered_version");
    }
    dyti_json_bool(&j, "offer_open", f->offer.open);
    if (f->group[0].used) {
        write_group(&j, "trainer", m, &f->group[0], most_bytes / 2);
    } else {
        dyti_json_null(&j, "trainer");
    }
    write_replicas(&j, m, most_bytes - END_BYTES);
    dyti_json_end(&j);
    {
        const char *made;

        st = dyti_json_finish(&j, &made, &bytes);
        text = st == DYT_OK ? strndup(made, bytes) : NULL;
    }
    dyti_json_release(&j);
    if (st == DYT_OK && text == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "a status");
    }
    if (st == DYT_OK) {
        *out_json = text;
    }
    return st;
}
