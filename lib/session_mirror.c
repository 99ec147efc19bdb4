/* Rows on devices: what a session does with their mirror (lib/mirror.h).  By
 * the service and by hands, so that a caller's thread keeps its device. */
#include "lib/session_internal.h"

#include <stdio.h>

enum dyt_status dyti_session_open_devices(struct dyt_session *s,
                                          const struct dyt_view *view)
{
    dyti_session_close_mirror(s);
    return dyti_devices_open(view, &s->devices);
}

enum dyt_status dyti_session_look_at_devices(struct dyt_session *s,
                                             const struct dyt_view *view,
                                             enum dyt_status st)
{
    struct dyti_found found = {.count = 0};
    char words[DYTI_SESSION_TEXT_BYTES];

    if (s->devices == NULL) {
        return st;
    }
    snprintf(words, sizeof(words), "%s", dyti_error_message());
    dyti_devices_look_at(s->devices, view, &found);
    if (st == DYT_OK) {
        return dyti_found_finish(&found, NULL);
    }
    return found.count == 0 ? dyti_error_adopt(st, words)
                            : DYTI_FAIL(st, "%s; %s", words, found.text);
}

enum dyt_status dyti_session_mirror_rows(struct dyt_session *s,
                                         const struct dyti_place *place,
                                         struct dyt_view *view,
                                         struct dyti_row_pieces *pieces)
{
    bool target = s->params.role == DYT_ROLE_RECEIVER;
    struct dyti_row_pieces here = {0};
    struct dyt_view mirrored = *view;
    enum dyt_status st;

    if (s->devices == NULL) {
        return DYT_OK;
    }
    st = dyti_mirror_open(s->devices, view, pieces, s->params.cap_bytes,
                          &s->mirror);
    if (st == DYT_OK) {
        mirrored.row = dyti_mirror_rows(s->mirror);
        mirrored.row_struct_size = (uint32_t)sizeof(*mirrored.row);
        st = dyti_rules_apply(s->catalogue, &mirrored, s->rules, place, &here);
    }
    st = st != DYT_OK ? st
                      : dyti_mirror_bind(s->mirror, s->catalogue, view, pieces,
                                         &here, target);
    if (st != DYT_OK) {
        dyti_row_pieces_fini(&here);
        return st;
    }
    dyti_row_pieces_fini(pieces);
    *pieces = here;
    *view = mirrored;
    return DYT_OK;
}

void dyti_session_close_mirror(struct dyt_session *s)
{
    dyti_mirror_close(s->mirror);
    dyti_devices_close(s->devices);
    s->mirror = NULL;
    s->devices = NULL;
}

bool dyti_session_is_all_mirror(const struct dyt_session *s)
{
    return s->mirror != NULL && dyti_mirror_has_all(s->mirror);
}

uint64_t dyti_session_cap(const struct dyt_session *s)
{
    uint64_t cap = s->params.cap_bytes;
    uint64_t held = s->mirror != NULL ? dyti_mirror_bytes(s->mirror) : 0;

    return cap == 0 ? 0 : cap > held ? cap - held : 1;
}

/* Under no lock: it is the call's own. */
static void *event_of(struct dyt_session *s)
{
    void *event;

    pthread_mutex_lock(&s->lock);
    event = s->event;
    pthread_mutex_unlock(&s->lock);
    return event;
}

enum dyt_status dyti_session_take_mirror(struct dyt_session *s)
{
    return s->mirror == NULL ? DYT_OK
                             : dyti_mirror_take(s->mirror, event_of(s));
}

enum dyt_status dyti_session_ready_mirror(struct dyt_session *s)
{
    return s->mirror == NULL ? DYT_OK : dyti_mirror_ready(s->mirror);
}

enum dyt_status dyti_session_give_mirror(struct dyt_session *s)
{
    return s->mirror == NULL ? DYT_OK
                             : dyti_mirror_give(s->mirror, event_of(s));
}

enum dyt_status dyti_session_check_event(const struct dyt_session *s,
                                         const void *event)
{
    return event == NULL || s->mirror != NULL
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                           "an event of a device, and no row lies on one");
}
