/* What a member holds, said once; again where it failed or took too long. */
#include "lib/session_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t row_bytes(const struct dyt_row *row)
{
    uint64_t n = dyti_dtype_bytes((enum dyti_dtype)row->dtype);

    for (uint32_t d = 0; d < row->ndim; d++) {
        n *= (uint64_t)row->shape[d];
    }
    return n;
}

void dyti_session_free_rows(struct dyt_session *s)
{
    for (uint64_t i = 0; s->staged != NULL && i < s->row_count; i++) {
        free(s->staged[i]);
    }
    free(s->staged);
    free(s->row);
    free(s->names);
    free(s->has_pieces);
    free(s->pad);
    s->pad = NULL;
    s->pad_count = 0;
    s->staged = NULL;
    s->row = NULL;
    s->names = NULL;
    s->has_pieces = NULL;
    s->row_count = 0;
}

/* Names are the caller's; what goes wrong later is said by them. */
static enum dyt_status keep_names(struct dyt_session *s)
{
    size_t bytes = 1, used = 0;

    for (uint64_t i = 0; i < s->row_count; i++) {
        bytes += strlen(s->row[i].name) + 1;
    }
    s->names = malloc(bytes);
    if (s->names == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "names of %llu rows",
                         (unsigned long long)s->row_count);
    }
    for (uint64_t i = 0; i < s->row_count; i++) {
        bytes = strlen(s->row[i].name) + 1;
        memcpy(s->names + used, s->row[i].name, bytes);
        s->row[i].name = s->names + used;
        used += bytes;
    }
    return DYT_OK;
}

/* Under the lock: our copy of the rows, with memory for those that have none.
 */
static enum dyt_status copy_rows(struct dyt_session *s,
                                 const struct dyt_view *view)
{
    dyti_session_free_rows(s);
    s->row_count = view->row_count;
    s->row = calloc(view->row_count + 1u, sizeof(*s->row));
    s->has_pieces = calloc(view->row_count + 1u, sizeof(*s->has_pieces));
    s->staged = calloc(view->row_count + 1u, sizeof(*s->staged));
    if (s->row == NULL || s->has_pieces == NULL || s->staged == NULL) {
        dyti_session_free_rows(s);
        return DYTI_FAIL(DYT_ERR_NOMEM, "%llu rows",
                         (unsigned long long)view->row_count);
    }
    for (uint64_t i = 0; i < view->row_count; i++) {
        const char *at = (const char *)view->row + i * view->row_struct_size;
        size_t bytes = view->row_struct_size < sizeof(*s->row)
                           ? view->row_struct_size
                           : sizeof(*s->row);

        memcpy(&s->row[i], at, bytes);
        if ((s->row[i].flags & DYT_ROW_STAGED) != 0 && s->row[i].data == NULL) {
            uint64_t need = row_bytes(&s->row[i]);

            s->staged[i] = aligned_alloc(64, (need + 63u) / 64u * 64u + 64u);
            if (s->staged[i] == NULL) {
                return DYTI_FAIL(DYT_ERR_NOMEM, "%llu bytes for row %s",
                                 (unsigned long long)need, s->row[i].name);
            }
            memset(s->staged[i], 0, need); /* padding is zero */
            s->row[i].data = s->staged[i];
            s->row[i].fd = -1;
            memset(s->row[i].stride, 0, sizeof(s->row[i].stride));
        }
    }
    return keep_names(s);
}

/* What is lent holds nothing that could be offered. */
static enum dyt_status check_staged(const struct dyt_session *s)
{
    for (uint64_t i = 0; s->params.role == DYT_ROLE_TRAINER && i < s->row_count;
         i++) {
        if ((s->row[i].flags & DYT_ROW_STAGED) != 0) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "row %s: DYT_ROW_STAGED asks for memory to "
                             "receive into, and a trainer offers what it has: "
                             "give data or fd",
                             s->row[i].name);
        }
    }
    return DYT_OK;
}

/* Those of dyt_session_map(), one for one: a receive writes there. */
static enum dyt_status check_mapped(const struct dyt_session *s)
{
    for (uint64_t i = 0; s->mapped != NULL && i < s->row_count; i++) {
        if (s->row[i].data != dyti_session_mapped_row(s, i, 0)) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "row %llu, %s, is not row %llu of those that "
                             "dyt_session_map() gave memory to: publish the "
                             "same rows in the same order",
                             (unsigned long long)i, s->row[i].name,
                             (unsigned long long)i);
        }
    }
    return DYT_OK;
}

static enum dyt_status prepare_view(struct dyt_session *s,
                                    const struct dyt_view *view)
{
    struct dyt_view own = {.struct_size = sizeof(own),
                           .row_struct_size = sizeof(*s->row)};
    enum dyt_status st = dyti_view_check(view);

    pthread_mutex_lock(&s->lock);
    st = st != DYT_OK ? st : copy_rows(s, view);
    pthread_mutex_unlock(&s->lock);
    st = st != DYT_OK ? st : check_staged(s);
    st = st != DYT_OK ? st : check_mapped(s);
    own.row = s->row;
    own.row_count = s->row_count;
    return st != DYT_OK ? st
                        : dyti_view_check_memory(&own, s->params.role ==
                                                           DYT_ROLE_RECEIVER);
}

enum dyt_status dyti_session_check_alive(const struct dyt_session *s,
                                         bool writes)
{
    struct dyt_view own = {.struct_size = sizeof(own),
                           .row_struct_size = sizeof(*s->row),
                           .row = s->row,
                           .row_count = s->row_count};

    return s->mapped != NULL
               ? DYT_OK
               : dyti_view_check_alive(&own, s->has_pieces, writes);
}

/* Under the lock: the others of its group go on waiting, it may publish again.
 */
static void give_up_publish(struct dyt_session *s, enum dyt_status why)
{
    struct dyti_msg_request r = {.what = DYTI_REQUEST_WITHDRAW, .status = why};

    s->view = NULL; /* what the manager says from now on is not for it */
    dyti_session_tell(s, &r);
}

/* Servers of a draft model that come to the policy's job. */
static enum dyt_status name_draft(const struct dyt_session *s,
                                  enum dyt_status st)
{
    char text[DYTI_SESSION_TEXT_BYTES];
    const char *pool = s->params.pool;

    if (st != DYT_ERR_LAYOUT || s->params.role != DYT_ROLE_RECEIVER ||
        pool == NULL || strncmp(pool, "draft", 5) != 0) {
        return st;
    }
    snprintf(text, sizeof(text), "%s", dyti_error_message());
    return DYTI_FAIL(st,
                     "pool %s does not hold what this job's trainer publishes "
                     "(a draft model's weights are a target of their own: they "
                     "come in a job of their own, another job at another "
                     "address): %s",
                     pool, text);
}

static enum dyt_status publish(struct dyt_session *s,
                               const struct dyt_view *view,
                               const struct dyt_rules *rules)
{
    struct dyti_msg_request request = {.what = DYTI_REQUEST_PUBLISH};
    enum dyt_status st = DYT_OK;

    if (view == NULL) {
        return dyti_null_argument("dyt_session_publish");
    }
    pthread_mutex_lock(&s->lock);
    if (s->published) {
        st = DYTI_FAIL(DYT_ERR_STATE, "this member has published already");
    } else if (s->publishing) {
        st = DYTI_FAIL(DYT_ERR_BUSY, "another thread publishes");
    } else if (s->params.memory == DYT_MEMORY_MAPPED && s->mapped == NULL) {
        st = DYTI_FAIL(DYT_ERR_STATE,
                       "memory MAPPED: call dyt_session_map() before publish");
    } else {
        s->publishing = true;
        s->view = view;
        s->rules = rules;
        s->unfit[0] = '\0';
    }
    pthread_mutex_unlock(&s->lock);
    if (st != DYT_OK) {
        return st;
    }
    st = prepare_view(s, view);
    st = st != DYT_OK ? st
                      : dyti_session_call(s, DYTI_CALL_PUBLISH, &request, -1,
                                          give_up_publish, NULL);
    st = name_draft(s, st);
    pthread_mutex_lock(&s->lock);
    s->publishing = false;
    s->view = NULL;
    s->rules = NULL;
    s->published = st == DYT_OK;
    for (uint64_t i = 0; i < s->row_count; i++) {
        s->row[i].piece = NULL; /* borrowed for the call */
        s->row[i].piece_count = 0;
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

enum dyt_status dyt_session_publish(dyt_session *s, const struct dyt_view *view,
                                    const struct dyt_rules *rules)
{
    enum dyt_status st = dyti_session_enter(s, "dyt_session_publish");

    if (st == DYT_OK) {
        st = publish(s, view, rules);
        dyti_session_exit(s);
    }
    return st;
}
