/* Rows on devices that go from device to device: what links are told of them,
 * and in what order their work is done.
 *
 *   offer    the devices' queues follow its event; nobody waits
 *   run      a source's hand waits until its device has done that; a receiver's
 *            hand until nobody uses the old weights any more.  Bytes move by
 * the link's own queues, and have arrived before the vote
 *
 * All of it in threads of ours: a caller's device stays what it is. */
#include "lib/session_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what there is --------------------------------------------------------
 */

static enum dyt_status second_there(struct dyt_session *s,
                                    const struct dyt_view *view,
                                    const struct dyti_row_pieces *pieces)
{
    struct dyt_row *row = NULL;
    struct dyt_view other;
    enum dyt_status st = dyti_session_rows_of_second(s, view, &row, &other);

    st = st != DYT_OK ? st
                      : dyti_memory_view_build_there(s->catalogue, &other,
                                                     pieces, &s->there_second);
    free(row);
    return st;
}

enum dyt_status dyti_session_view_there(struct dyt_session *s,
                                        const struct dyt_view *view,
                                        const struct dyti_row_pieces *pieces)
{
    enum dyt_status st;

    dyti_memory_view_fini(&s->there);
    dyti_memory_view_fini(&s->there_second);
    s->indirect[0] = '\0';
    if (s->devices == NULL) {
        return DYT_OK;
    }
    st = dyti_memory_view_build_there(s->catalogue, view, pieces, &s->there);
    if (st == DYT_OK && s->sets != NULL &&
        s->params.commit == DYT_COMMIT_DOUBLE) {
        st = second_there(s, view, pieces);
    }
    if (st != DYT_OK && st != DYT_ERR_NOMEM) { /* then by mirrors */
        snprintf(s->indirect, sizeof(s->indirect), "%s", dyti_error_message());
        dyti_memory_view_fini(&s->there);
        dyti_memory_view_fini(&s->there_second);
        st = DYT_OK;
    }
    return st;
}

/* ---- a link opens ---------------------------------------------------------
 */

static enum dyt_status fill_views(struct dyt_session *s,
                                  const struct dyti_msg_link *m,
                                  struct dyti_session_link *k)
{
    uint32_t n = m->member_count;
    bool two = m->set_count == 2;
    enum dyt_status st = DYT_OK;

    k->there = calloc(n, sizeof(*k->there));
    k->there_second = two ? calloc(n, sizeof(*k->there_second)) : NULL;
    if (k->there == NULL || (two && k->there_second == NULL)) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a link of %u members", n);
    }
    for (uint32_t i = 0; i < n && st == DYT_OK; i++) {
        st = dyti_part_to_memory(s->catalogue, &m->direct[i], &k->there[i]);
        if (st == DYT_OK && two && i >= m->source_count) {
            st = dyti_part_to_memory(s->catalogue, &m->direct[n + i],
                                     &k->there_second[i]);
        }
    }
    return st;
}

/* By way of the host after all. */
static enum dyt_status by_memory(void *arg, const char *why,
                                 uint64_t *cap_bytes)
{
    struct dyti_session_link *k = arg;
    enum dyt_status st;

    pthread_mutex_lock(&k->session->take_lock);
    st = dyti_session_wake_mirrors(k->session);
    pthread_mutex_unlock(&k->session->take_lock);
    *cap_bytes = dyti_session_cap(k->session);
    if (st != DYT_OK && why[0] != '\0') {
        DYTI_NOTE("going by mirrors (%s)", why);
    }
    return st;
}

enum dyt_status dyti_session_open_direct(struct dyt_session *s,
                                         struct dyti_session_link *k,
                                         struct dyti_link_params *p)
{
    const struct dyti_msg_link *m = &k->open;
    enum dyt_status st;

    p->by_memory = by_memory;
    p->by_memory_arg = k;
    if (m->direct_count == 0) {
        return DYT_OK;
    }
    st = fill_views(s, m, k);
    if (st != DYT_OK) {
        return st;
    }
    dyti_session_lend_rows(&s->there, &k->there[m->rank]);
    if (k->there_second != NULL && m->rank >= m->source_count) {
        dyti_session_lend_rows(&s->there_second, &k->there_second[m->rank]);
    }
    k->direct = (struct dyti_link_direct){.memory = k->there,
                                          .second = k->there_second};
    if (s->devices == NULL || s->devices->count == 0) {
        k->direct.why = "its rows lie on the host";
    } else {
        k->direct.module = s->devices->module;
        k->direct.device = dyti_device_uuid(&s->devices->device[0]);
    }
    p->direct = &k->direct;
    return DYT_OK;
}

void dyti_session_end_direct(struct dyti_session_link *k)
{
    for (uint32_t i = 0; i < k->member_count; i++) {
        if (k->there != NULL) {
            dyti_memory_view_fini(&k->there[i]);
        }
        if (k->there_second != NULL) {
            dyti_memory_view_fini(&k->there_second[i]);
        }
    }
    free(k->there);
    free(k->there_second);
    k->there = k->there_second = NULL;
}

/* ---- a run ----------------------------------------------------------------
 */

/* A sibling's rows are those of the set that it serves. */
static uint32_t set_of(struct dyt_session *s)
{
    uint32_t set;

    pthread_mutex_lock(&s->lock);
    set = s->live_set;
    pthread_mutex_unlock(&s->lock);
    return set;
}

enum dyt_status dyti_session_ready_source(struct dyt_session *s,
                                          struct dyti_session_link *k)
{
    if (s->mirror == NULL) {
        return DYT_OK;
    }
    return dyti_link_is_direct(k->link)
               ? dyti_session_ready_mirror(s)
               : dyti_session_take_mirror(s, set_of(s), k->order.version);
}

enum dyt_status dyti_session_ready_receiver(struct dyt_session *s,
                                            struct dyti_session_link *k)
{
    enum dyt_status st = DYT_OK;

    if (s->mirror == NULL) {
        return DYT_OK;
    }
    pthread_mutex_lock(&s->take_lock); /* what they hold is over */
    s->taken[0].any = s->taken[1].any = false;
    pthread_mutex_unlock(&s->take_lock);
    if (dyti_link_is_direct(k->link)) {
        st = dyti_mirror_follow(s->mirror, dyti_session_event(s));
    }
    return st != DYT_OK ? st : dyti_session_ready_mirror(s);
}

enum dyt_status dyti_session_commit_there(struct dyt_session *s,
                                          struct dyti_session_link *k)
{
    uint32_t set = dyti_link_live_set(k->link);
    struct dyti_mirror *mirror =
        set == 1 && s->second_mirror != NULL ? s->second_mirror : s->mirror;

    if (mirror == NULL) {
        return DYT_OK;
    }
    return dyti_link_is_direct(k->link)
               ? dyti_mirror_clear_pads(mirror)
               : dyti_session_give_mirror(s, set, k->order.version);
}

/* Asked when an offer begins: links that are open are of earlier ones, and
 * nobody may free what is offered. */
bool dyti_session_is_renewed(struct dyt_session *s)
{
    bool renewed;

    pthread_mutex_lock(&s->lock);
    renewed = s->slept;
    s->slept = false;
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; i < s->link_count && !renewed; i++) {
        const struct dyti_session_link *k = s->link[i];

        renewed = k != NULL && k->link != NULL && !k->works &&
                  k->rank < k->source_count && dyti_link_is_direct(k->link) &&
                  dyti_link_check_lent(k->link) != DYT_OK;
    }
    return renewed;
}
