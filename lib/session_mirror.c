/* Rows on devices: what a session does with their mirror (lib/mirror.h).  By
 * the service and by hands, so that a caller's thread keeps its device. */
#include "lib/session_device.h"

#include "base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void close_mirrors(struct dyt_session *s)
{
    dyti_mirror_close(s->mirror);
    dyti_mirror_close(s->second_mirror);
    s->mirror = s->second_mirror = NULL;
    s->taken[0].any = s->taken[1].any = false;
}

enum dyt_status dyti_session_open_devices(struct dyt_session *s,
                                          const struct dyt_view *view)
{
    close_mirrors(s);
    if (s->sets != NULL) {
        return DYT_OK; /* opened when they were mapped */
    }
    dyti_devices_close(s->devices);
    s->devices = NULL;
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

enum dyt_status dyti_session_copy_rows(const struct dyt_view *view,
                                       struct dyt_row **out_row,
                                       struct dyt_view *out_view)
{
    struct dyt_row *row = calloc(view->row_count + 1u, sizeof(*row));

    if (row == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "%llu rows",
                         (unsigned long long)view->row_count);
    }
    memcpy(row, view->row, view->row_count * sizeof(*row));
    *out_row = row;
    *out_view = (struct dyt_view){.struct_size = sizeof(*out_view),
                                  .row_struct_size = sizeof(*row),
                                  .row = row,
                                  .row_count = view->row_count};
    return DYT_OK;
}

enum dyt_status dyti_session_rows_of_second(const struct dyt_session *s,
                                            const struct dyt_view *view,
                                            struct dyt_row **out_row,
                                            struct dyt_view *out_view)
{
    enum dyt_status st = dyti_session_copy_rows(view, out_row, out_view);

    for (uint64_t i = 0; st == DYT_OK && i < view->row_count; i++) {
        void *data = dyti_device_sets_row(s->sets, i, 1);

        if (data != NULL) {
            (*out_row)[i].data = data;
        }
    }
    return st;
}

static enum dyt_status mirror_second(struct dyt_session *s,
                                     const struct dyt_view *view,
                                     const struct dyti_row_pieces *there,
                                     const struct dyti_row_pieces *here)
{
    struct dyt_row *row = NULL;
    struct dyt_view other;
    enum dyt_status st = dyti_session_rows_of_second(s, view, &row, &other);

    st = st != DYT_OK
             ? st
             : dyti_mirror_open(s->devices, &other, there, &s->second_mirror);
    st = st != DYT_OK ? st
                      : dyti_mirror_bind(s->second_mirror, s->catalogue, &other,
                                         there, here, true);
    free(row);
    return st;
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
    st = dyti_mirror_open(s->devices, view, pieces, &s->mirror);
    if (st == DYT_OK) {
        mirrored.row = dyti_mirror_rows(s->mirror);
        mirrored.row_struct_size = (uint32_t)sizeof(*mirrored.row);
        st = dyti_rules_apply(s->catalogue, &mirrored, s->rules, place, &here);
    }
    st = st != DYT_OK ? st
                      : dyti_mirror_bind(s->mirror, s->catalogue, view, pieces,
                                         &here, target);
    if (st == DYT_OK && s->sets != NULL &&
        s->params.commit == DYT_COMMIT_DOUBLE) {
        st = mirror_second(s, view, pieces, &here);
    }
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
    close_mirrors(s);
    dyti_device_sets_close(s->sets);
    dyti_devices_close(s->devices);
    s->sets = NULL;
    s->devices = NULL;
}

uint64_t dyti_session_mirror_bytes(const struct dyt_session *s)
{
    return (s->mirror != NULL ? dyti_mirror_bytes(s->mirror) : 0) +
           (s->second_mirror != NULL ? dyti_mirror_bytes(s->second_mirror) : 0);
}

bool dyti_session_is_all_mirror(const struct dyt_session *s)
{
    return s->mirror != NULL && dyti_mirror_has_all(s->mirror);
}

uint64_t dyti_session_cap(const struct dyt_session *s)
{
    uint64_t cap = s->params.cap_bytes;
    uint64_t held = dyti_session_mirror_bytes(s);

    return cap == 0 ? 0 : cap > held ? cap - held : 1;
}

/* Under no lock: it is the call's own. */
void *dyti_session_event(struct dyt_session *s)
{
    void *event;

    pthread_mutex_lock(&s->lock);
    event = s->event;
    pthread_mutex_unlock(&s->lock);
    return event;
}

static struct dyti_mirror *mirror_of(const struct dyt_session *s, uint32_t set)
{
    return set == 1 && s->second_mirror != NULL ? s->second_mirror : s->mirror;
}

enum dyt_status dyti_session_follow_offer(struct dyt_session *s,
                                          uint64_t version, bool seals)
{
    bool full = s->params.verify == DYT_VERIFY_FULL;
    enum dyt_status st;

    if (s->mirror == NULL) {
        return DYT_OK;
    }
    st = dyti_mirror_follow(s->mirror, dyti_session_event(s));
    return st == DYT_OK && seals && s->params.verify != DYT_VERIFY_OFF
               ? dyti_mirror_seal(s->mirror, full, version)
               : st;
}

enum dyt_status dyti_session_wake_mirrors(struct dyt_session *s)
{
    enum dyt_status st = s->mirror == NULL
                             ? DYT_OK
                             : dyti_mirror_wake(s->mirror, s->params.cap_bytes);

    return st != DYT_OK || s->second_mirror == NULL
               ? st
               : dyti_mirror_wake(s->second_mirror, dyti_session_cap(s));
}

/* Several hands may want it at once: the first one takes it. */
enum dyt_status dyti_session_take_mirror(struct dyt_session *s, uint32_t set,
                                         uint64_t version)
{
    struct dyti_mirror *mirror = mirror_of(s, set);
    uint32_t at = mirror == s->second_mirror && mirror != NULL;
    enum dyt_status st;

    if (mirror == NULL) {
        return DYT_OK;
    }
    pthread_mutex_lock(&s->take_lock);
    st = dyti_session_wake_mirrors(s);
    if (st == DYT_OK &&
        (!s->taken[at].any || s->taken[at].version != version)) {
        s->taken[at].any = false;
        st = dyti_mirror_take(mirror);
        s->taken[at].any = st == DYT_OK;
        s->taken[at].version = version;
    }
    pthread_mutex_unlock(&s->take_lock);
    return st;
}

enum dyt_status dyti_session_ready_mirror(struct dyt_session *s)
{
    enum dyt_status st =
        s->mirror == NULL ? DYT_OK : dyti_mirror_ready(s->mirror);

    return st != DYT_OK || s->second_mirror == NULL
               ? st
               : dyti_mirror_ready(s->second_mirror);
}

enum dyt_status dyti_session_give_mirror(struct dyt_session *s, uint32_t set,
                                         uint64_t version)
{
    struct dyti_mirror *mirror = mirror_of(s, set);
    uint32_t at = mirror == s->second_mirror && mirror != NULL;
    enum dyt_status st = mirror == NULL
                             ? DYT_OK
                             : dyti_mirror_give(mirror, dyti_session_event(s));

    if (mirror != NULL && st == DYT_OK) {
        pthread_mutex_lock(&s->take_lock);
        s->taken[at].any = true;
        s->taken[at].version = version;
        pthread_mutex_unlock(&s->take_lock);
    }
    return st;
}

enum dyt_status dyti_session_check_event(const struct dyt_session *s,
                                         const void *event)
{
    return event == NULL || s->mirror != NULL
               ? DYT_OK
               : DYTI_FAIL(DYT_ERR_UNSUPPORTED,
                           "an event of a device, and no row lies on one");
}

/* ---- mapped ----------------------------------------------------------------
 */

/* What is done in a thread of ours for a caller that waits. */
struct errand {
    struct dyt_session *s;
    struct dyt_row *row;
    uint64_t row_count;
    bool release;
    enum dyt_status st;
    char text[DYTI_SESSION_TEXT_BYTES];
};

static enum dyt_status run_errand(void *(*body)(void *arg), struct errand *e)
{
    pthread_t thread;
    enum dyt_status st =
        dyti_thread_start(body, e, "a thread for a device", &thread);

    if (st != DYT_OK) {
        return st;
    }
    (void)pthread_join(thread, NULL);
    return e->st == DYT_OK ? DYT_OK : dyti_error_adopt(e->st, e->text);
}

static void *end_errand(struct errand *e, enum dyt_status st)
{
    e->st = st;
    snprintf(e->text, sizeof(e->text), "%s", dyti_error_message());
    return NULL;
}

static void *map_rows(void *arg)
{
    struct errand *e = arg;
    struct dyt_session *s = e->s;
    struct dyt_view view = {.struct_size = sizeof(view),
                            .row_struct_size = sizeof(*e->row),
                            .row = e->row,
                            .row_count = e->row_count};
    uint32_t sets = s->params.commit == DYT_COMMIT_DOUBLE ? 2 : 1;
    enum dyt_status st = dyti_devices_open(&view, &s->devices);

    if (st == DYT_OK && s->devices != NULL) {
        st = dyti_device_sets_open(s->devices, e->row, e->row_count, sets,
                                   &s->sets);
    }
    return end_errand(e, st);
}

enum dyt_status dyti_session_map_devices(struct dyt_session *s,
                                         struct dyt_row *row,
                                         uint64_t row_count)
{
    struct errand e = {.s = s, .row = row, .row_count = row_count};
    bool any = false;

    for (uint64_t i = 0; i < row_count; i++) {
        any = any || dyti_row_is_on_device(&row[i]);
    }
    return any ? run_errand(map_rows, &e) : DYT_OK;
}

static void *sleep_rows(void *arg)
{
    struct errand *e = arg;
    struct dyt_session *s = e->s;
    uint64_t count = s->published ? s->row_count : 0;

    return end_errand(
        e, e->release
               ? dyti_device_sets_release(s->sets, s->has_pieces, count)
               : dyti_device_sets_restore(s->sets, s->has_pieces, count));
}

enum dyt_status dyti_session_sleep_devices(struct dyt_session *s, bool release)
{
    struct errand e = {.s = s, .release = release};

    return s->sets == NULL ? DYT_OK : run_errand(sleep_rows, &e);
}

void *dyti_session_mapped_row(const struct dyt_session *s, uint64_t row,
                              uint32_t set)
{
    void *there =
        s->sets == NULL ? NULL : dyti_device_sets_row(s->sets, row, set);

    return there != NULL ? there : dyti_mapped_row(s->mapped, row, set);
}
