/* A member's link: made, opened, ended.  What runs in it: session_run.c. */
#include "lib/session_device.h"

#include "base/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum dyt_status dyti_session_link_at(struct dyt_session *s, uint32_t number,
                                     struct dyti_session_link **out)
{
    size_t old = s->link_count;
    enum dyt_status st;

    pthread_mutex_lock(&s->lock); /* callers look through them */
    st = DYTI_GROW(s->link, s->link_cap, (size_t)number + 1);
    if (st == DYT_OK && number >= old) {
        memset(&s->link[old], 0, (number + 1u - old) * sizeof(s->link[0]));
        s->link_count = (size_t)number + 1;
    }
    pthread_mutex_unlock(&s->lock);
    if (st == DYT_OK && s->link[number] == NULL) {
        struct dyti_session_link *k = calloc(1, sizeof(*k));

        if (k == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "a link");
        }
        k->session = s;
        k->control_fd = -1;
        s->link[number] = k;
    }
    if (st == DYT_OK) {
        *out = s->link[number];
    }
    return st;
}

/* ---- the end of a link --------------------------------------------------- */

void dyti_session_join_hand(struct dyti_session_link *k)
{
    if (!k->works) {
        return;
    }
    (void)pthread_join(k->hand, NULL);
    k->works = false;
    if (k->open.member_count > 0) {
        dyti_msg_link_fini(&k->open);
    }
}

static void call_hand_back(struct dyti_session_link *k)
{
    if (k->works) {
        dyti_session_call_off(k->session, k, k->rank, DYT_ERR_CANCELLED);
    }
    dyti_session_join_hand(k);
}

void dyti_session_link_fini(struct dyt_session *s, struct dyti_session_link *k)
{
    call_hand_back(k);
    if (s->last == k->link) {
        s->last = NULL;
    }
    dyti_link_close(k->link);
    dyti_session_hosts_end(k);
    for (uint32_t i = 0; i < k->member_count; i++) {
        if (k->memory != NULL) {
            dyti_memory_view_fini(&k->memory[i]);
        }
        if (k->second != NULL) {
            dyti_memory_view_fini(&k->second[i]);
        }
    }
    dyti_session_end_direct(k);
    free(k->memory);
    free(k->second);
    k->link = NULL;
    k->memory = k->second = NULL;
    k->member_count = 0;
}

void dyti_session_links_close(struct dyt_session *s)
{
    struct dyti_session_link **link;
    struct dyti_snapshot *whole;
    size_t count;

    pthread_mutex_lock(&s->lock); /* callers look through them */
    whole = s->whole;
    s->whole = NULL;
    link = s->link;
    count = s->link_count;
    s->link = NULL;
    s->link_count = s->link_cap = 0;
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; i < count; i++) {
        if (link[i] != NULL) {
            dyti_session_link_fini(s, link[i]);
            dyti_snapshot_close(link[i]->snapshot);
            free(link[i]);
        }
    }
    free(link);
    dyti_snapshot_close(whole);
}

/* ---- open ---------------------------------------------------------------- */

/* The others as they told; this member as it knows itself. */
static enum dyt_status fill_memory(struct dyt_session *s,
                                   const struct dyti_msg_link *m,
                                   struct dyti_session_link *k)
{
    uint32_t n = m->member_count;
    bool two = m->set_count == 2;
    enum dyt_status st = DYT_OK;

    k->member_count = n;
    k->memory = calloc(n, sizeof(*k->memory));
    k->second = two ? calloc(n, sizeof(*k->second)) : NULL;
    if (k->memory == NULL || (two && k->second == NULL)) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a link of %u members", n);
    }
    for (uint32_t i = 0; i < n && st == DYT_OK; i++) {
        st = dyti_part_to_memory(s->catalogue, &m->part[i], &k->memory[i]);
        if (st == DYT_OK && two && i >= m->source_count) {
            st = dyti_part_to_memory(s->catalogue, &m->part[n + i],
                                     &k->second[i]);
        }
    }
    return st;
}

void dyti_session_lend_rows(const struct dyti_memory_view *own,
                            struct dyti_memory_view *copy)
{
    uint32_t shards = own->view.shard_count;

    if (own->shard_row == NULL || copy->view.shard_count != shards) {
        return;
    }
    copy->shard_row = calloc(shards + 1u, sizeof(*copy->shard_row));
    copy->row_as = calloc(own->row_count + 1u, sizeof(*copy->row_as));
    if (copy->shard_row == NULL || copy->row_as == NULL) {
        free(copy->shard_row);
        free(copy->row_as);
        copy->shard_row = copy->row_as = NULL;
        return;
    }
    memcpy(copy->shard_row, own->shard_row, shards * sizeof(*copy->shard_row));
    memcpy(copy->row_as, own->row_as, own->row_count * sizeof(*copy->row_as));
    copy->row_count = own->row_count;
}

enum dyt_status dyti_session_link_open(struct dyt_session *s,
                                       struct dyti_session_link *k)
{
    const struct dyti_msg_link *m = &k->open;
    struct dyti_link_params p = {.struct_size = sizeof(p),
                                 .rank = m->rank,
                                 .member_count = m->member_count,
                                 .source_count = m->source_count,
                                 .catalogue = s->catalogue,
                                 .commit = (enum dyt_commit_mode)m->commit,
                                 .verify = (enum dyt_verify)m->verify,
                                 .kinds = m->kinds,
                                 .cap_bytes = dyti_session_cap(s),
                                 .timeout_ns = m->timeout_ns,
                                 .live_set = m->live_set,
                                 .control_fd = -1};
    enum dyt_status st = fill_memory(s, m, k);

    st = st != DYT_OK ? st : dyti_session_hosts_await(s, k);
    if (st != DYT_OK) {
        return st;
    }
    p.control = k->control;
    p.apart = k->apart.module != NULL ? &k->apart : NULL;
    dyti_session_lend_rows(&s->memory, &k->memory[m->rank]);
    if (k->second != NULL && m->rank >= m->source_count) {
        dyti_session_lend_rows(&s->second, &k->second[m->rank]);
    }
    p.memory = k->memory;
    p.second = k->second;
    st = dyti_session_open_direct(s, k, &p);
    st = st != DYT_OK ? st : dyti_link_open(&p, &k->link);
    k->report.direct = st == DYT_OK && dyti_link_is_direct(k->link);
    snprintf(k->indirect, sizeof(k->indirect), "%s",
             st != DYT_OK ? ""
             : m->indirect != NULL && m->indirect[0] != '\0'
                 ? m->indirect
                 : dyti_link_why_not(k->link));
#ifdef DYT_TEST_HOOKS
    if (st == DYT_OK) {
        dyti_session_watch_faults(k->link);
    }
#endif
    return st;
}
