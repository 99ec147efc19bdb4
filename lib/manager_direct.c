/* Links whose bytes may go from device to device: what members are told for it,
 * and what is known of how they went. */
#include "lib/manager_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAY_BYTES 400u

static const char *text_of(const char *text)
{
    return text != NULL ? text : "";
}

/* NULL: all members' rows lie on devices of this host; "": no member's do. */
static const char *why_not(const struct dyti_session_manager *m,
                           const struct dyti_managed_link *l, uint32_t *out_of)
{
    const char *why = NULL;
    bool any = false;

    for (uint32_t i = 0; i < l->member_count; i++) {
        const struct dyti_managed *d = &m->member[l->member[i]];

        any = any || d->direct_count > 0 || text_of(d->indirect)[0] != '\0';
        if (why == NULL && d->direct_count == 0) {
            why = text_of(d->indirect)[0] != '\0' ? d->indirect
                                                  : "its rows lie on the host";
            *out_of = i;
        }
        if (why == NULL && i < l->source_count &&
            l->snapshot[i].shard != NULL) {
            why = "it offers a snapshot";
            *out_of = i;
        }
    }
    return any ? why : "";
}

static enum dyt_status say_why(struct dyti_msg_link *msg, uint32_t member,
                               const char *why)
{
    char text[WAY_BYTES];

    snprintf(text, sizeof(text), "member %u: %s", member, why);
    msg->indirect = strdup(why[0] == '\0' ? "" : text);
    return msg->indirect != NULL ? DYT_OK : DYTI_FAIL(DYT_ERR_NOMEM, "a link");
}

enum dyt_status dyti_manager_fill_direct(const struct dyti_session_manager *m,
                                         const struct dyti_managed_link *l,
                                         struct dyti_msg_link *msg)
{
    uint32_t of = 0;
    const char *why = why_not(m, l, &of);

    if (why == NULL && msg->apart) {
        why = "members are on several hosts";
    }
    if (why != NULL) {
        return say_why(msg, of, why);
    }
    msg->direct = calloc(msg->part_count + 1u, sizeof(*msg->direct));
    if (msg->direct == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%u memory views", msg->part_count);
    }
    msg->direct_count = msg->part_count;
    for (uint32_t i = 0; i < l->member_count; i++) {
        const struct dyti_managed *d = &m->member[l->member[i]];
        bool is_source = i < l->source_count;

        /* a sibling is read in the set that it serves */
        msg->direct[i] = is_source && d->direct_count > 1
                             ? d->direct[d->live_set]
                             : d->direct[0];
        if (msg->set_count == 2 && !is_source && d->direct_count > 1) {
            msg->direct[l->member_count + i] = d->direct[1];
        }
    }
    return DYT_OK;
}

void dyti_manager_free_direct(struct dyti_msg_link *msg)
{
    free(msg->direct); /* what is in it is borrowed */
    free(msg->indirect);
}

void dyti_manager_note_way(struct dyti_managed *member,
                           const struct dyti_msg_report *report)
{
    char text[WAY_BYTES];

    if (report->direct) {
        snprintf(text, sizeof(text), "direct");
    } else if (report->indirect[0] != '\0') {
        snprintf(text, sizeof(text), "by mirrors: %s", report->indirect);
    } else {
        snprintf(text, sizeof(text), "host");
    }
    free(member->way);
    member->way = strdup(text);
}
