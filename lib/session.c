/* Join, publish, leave: what a caller does first and last. */
#include "lib/session_internal.h"

#include "base/thread.h"
#include "lib/handles.h"
#include "lib/link_internal.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define TIMEOUT_NS 60000000000ll

/* ---- parameters ---------------------------------------------------------- */

static bool is_job_name(const char *job)
{
    size_t n = job != NULL ? strlen(job) : 0;

    return n >= 1 && n <= 63 &&
           strspn(job, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                       "0123456789_.-") == n;
}

static uint32_t at_least_one(uint32_t size)
{
    return size == 0 ? 1 : size;
}

static enum dyt_status check_params(const struct dyt_session_params *p)
{
    if (!is_job_name(p->job)) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "job \"%.80s\": give 1 to 63 letters, digits, _ . -",
                         p->job != NULL ? p->job : "");
    }
    if (p->role > DYT_ROLE_RECEIVER || p->commit > DYT_COMMIT_IN_PLACE ||
        p->memory > DYT_MEMORY_MAPPED || p->verify > DYT_VERIFY_OFF ||
        p->policy > DYT_POLICY_QUORUM || p->host_manager > 2) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "role %u, commit %u, memory %u, verify %u, policy %u, "
                         "host_manager %u: one is none of its values",
                         p->role, p->commit, p->memory, p->verify, p->policy,
                         p->host_manager);
    }
    if (p->commit == DYT_COMMIT_DOUBLE && p->memory != DYT_MEMORY_MAPPED) {
        return DYTI_FAIL(DYT_ERR_CONFIG,
                         "commit DOUBLE flips between two segments of ours: it "
                         "needs memory MAPPED (dyt_session_map)");
    }
    if (p->pool != NULL && strlen(p->pool) > 63) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "pool \"%.80s\": at most 63 bytes",
                         p->pool);
    }
    if ((p->expert_count > 0 && p->expert == NULL) ||
        (p->attribute_count > 0 && p->attribute == NULL)) {
        return DYTI_FAIL(DYT_ERR_CONFIG, "experts or attributes are counted, "
                                         "and not given");
    }
    return DYT_OK;
}

static enum dyt_status copy_text(struct dyt_session *s, uint32_t at,
                                 const char **text)
{
    if (*text == NULL) {
        return DYT_OK;
    }
    s->text[at] = strdup(*text);
    *text = s->text[at];
    return s->text[at] != NULL ? DYT_OK : DYTI_FAIL(DYT_ERR_NOMEM, "a session");
}

static enum dyt_status copy_attributes(struct dyt_session *s)
{
    struct dyt_session_params *p = &s->params;

    s->attribute = calloc(p->attribute_count + 1u, sizeof(*s->attribute));
    s->attribute_name =
        calloc(p->attribute_count + 1u, sizeof(*s->attribute_name));
    s->expert = calloc(p->expert_count + 1u, sizeof(*s->expert));
    if (s->attribute == NULL || s->attribute_name == NULL ||
        s->expert == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a session");
    }
    for (uint32_t i = 0; i < p->attribute_count; i++) {
        s->attribute_name[i] = strdup(p->attribute[i].name);
        if (s->attribute_name[i] == NULL) {
            return DYTI_FAIL(DYT_ERR_NOMEM, "a session");
        }
        s->attribute[i] =
            (struct dyt_attribute){s->attribute_name[i], p->attribute[i].value};
    }
    if (p->expert_count > 0) {
        memcpy(s->expert, p->expert, p->expert_count * sizeof(*s->expert));
        p->expert = s->expert;
    }
    p->attribute = s->attribute;
    return DYT_OK;
}

static enum dyt_status copy_params(struct dyt_session *s,
                                   const struct dyt_session_params *from)
{
    struct dyt_session_params *p = &s->params;
    size_t bytes =
        from->struct_size < sizeof(*p) ? from->struct_size : sizeof(*p);
    enum dyt_status st =
        dyti_struct_check("dyt_session_params", from->struct_size,
                          offsetof(struct dyt_session_params, timeout_ns) +
                              sizeof(p->timeout_ns));

    if (st != DYT_OK) {
        return st;
    }
    memcpy(p, from, bytes);
    p->size = at_least_one(p->size);
    p->tp_size = at_least_one(p->tp_size);
    p->pp_size = at_least_one(p->pp_size);
    p->dp_size = at_least_one(p->dp_size);
    p->ep_size = at_least_one(p->ep_size);
    st = check_params(p);
    if (st == DYT_OK && p->pool == NULL) {
        p->pool = "rollout";
    }
    st = st != DYT_OK ? st : copy_text(s, 0, &p->address);
    st = st != DYT_OK ? st : copy_text(s, 1, &p->job);
    st = st != DYT_OK ? st : copy_text(s, 2, &p->pool);
    st = st != DYT_OK ? st : copy_text(s, 3, &p->key);
    st = st != DYT_OK ? st : copy_text(s, 4, &p->manager_key);
    st = st != DYT_OK ? st : copy_attributes(s);
    s->timeout_ns = p->timeout_ns > 0 ? p->timeout_ns : TIMEOUT_NS;
    return st;
}

/* ---- the manager, where this member hosts it ------------------------------
 */

static void *run_manager(void *arg)
{
    struct dyt_session *s = arg;

    (void)dyti_session_manager_run(s->manager);
    return NULL;
}

static enum dyt_status start_manager(struct dyt_session *s)
{
    enum dyt_status st = dyti_thread_start(
        run_manager, s, "the manager's thread", &s->manager_thread);

    s->manager_runs = st == DYT_OK;
    return st;
}

/* By default hosted if nobody listens there. */
static enum dyt_status host_manager(struct dyt_session *s)
{
    struct dyti_manager_params p = {.address = s->params.address,
                                    .job = s->params.job,
                                    .key = s->params.key};
    enum dyt_status st;

    if (s->params.role != DYT_ROLE_TRAINER || s->params.rank != 0 ||
        s->params.host_manager == 2) {
        return DYT_OK;
    }
    st = dyti_session_manager_open(&p, &s->manager);
    if (st == DYT_ERR_BUSY && s->params.host_manager == 0) {
        return DYT_OK;
    }
    return st != DYT_OK ? st : start_manager(s);
}

static void stop_manager(struct dyt_session *s)
{
    if (s->manager == NULL) {
        return;
    }
    if (s->manager_runs) {
        dyti_session_manager_stop(s->manager);
        pthread_join(s->manager_thread, NULL);
    }
    dyti_session_manager_close(s->manager);
    s->manager = NULL;
}

/* ---- join ---------------------------------------------------------------- */

static enum dyt_status say_join(struct dyt_session *s)
{
    const struct dyt_session_params *p = &s->params;
    char host[64] = "";
    union {
        const char *in;
        char *out; /* the encoder only reads */
    } job = {.in = p->job}, pool = {.in = p->pool};
    struct dyti_msg_join m = {.job = job.out,
                              .pool = pool.out,
                              .host_name = host,
                              .role = p->role,
                              .replica = p->replica,
                              .rank = p->rank,
                              .size = p->size,
                              .tp_rank = p->tp_rank,
                              .tp_size = p->tp_size,
                              .pp_rank = p->pp_rank,
                              .pp_size = p->pp_size,
                              .dp_rank = p->dp_rank,
                              .dp_size = p->dp_size,
                              .ep_rank = p->ep_rank,
                              .ep_size = p->ep_size,
                              .commit = p->commit,
                              .mapped = p->memory == DYT_MEMORY_MAPPED,
                              .verify = p->verify,
                              .policy = p->policy,
                              .quorum = p->quorum,
                              .max_version_skew = p->max_version_skew,
                              .host = s->host,
                              .pid = s->pid,
                              .pid_start = s->pid_start,
                              .timeout_ns = s->timeout_ns};
    struct dyti_envelope e = dyti_hub_client_stamp(s->client, DYTI_MSG_JOIN, 0);
    struct dyti_buffer buffer;

    (void)gethostname(host, sizeof(host) - 1);
    return dyti_session_send(s, dyti_wire_join_encode(&e, &m, &buffer),
                             &buffer);
}

static enum dyt_status take_answer(const struct dyti_hub_frame *f)
{
    struct dyti_msg_error error;
    enum dyt_status st;

    if (f->envelope.type == DYTI_MSG_JOINED) {
        return DYT_OK;
    }
    if (f->envelope.type != DYTI_MSG_ERROR) {
        return DYT_PENDING;
    }
    st = dyti_wire_error_decode(f->buffer.bytes, f->buffer.size_bytes, &error);
    if (st == DYT_OK) {
        st = dyti_error_adopt((enum dyt_status)error.status, error.text);
        dyti_msg_error_fini(&error);
    }
    return st;
}

static enum dyt_status await_answer(struct dyt_session *s)
{
    int64_t until = dyti_session_now() + s->timeout_ns;
    enum dyt_status st = DYT_PENDING;

    while (st == DYT_PENDING) {
        struct dyti_hub_frame frame = {0};
        int64_t left = (until - dyti_session_now()) / 1000000;
        bool other;

        if (left <= 0) {
            return DYTI_FAIL(DYT_ERR_TIMEOUT,
                             "nobody answers at %s: is the job's manager "
                             "(a trainer's rank 0, or `dynatrain serve`) up?",
                             s->params.address);
        }
        st = dyti_hub_client_wait(s->client, -1, left, &frame, &other);
        if (st == DYT_OK) {
            st = take_answer(&frame);
        }
        dyti_hub_frame_fini(&frame);
    }
    return st;
}

static enum dyt_status connect_hub(struct dyt_session *s)
{
    struct dyti_hub_client_params hub = {
        .codec = {dyti_wire_envelope, dyti_wire_protocol},
        .key = s->params.key,
        .manager_key = s->params.manager_key};
    enum dyt_status st =
        dyti_address_parse(s->params.address, s->params.job, &hub.address);

    return st != DYT_OK ? st : dyti_hub_client_open(&hub, &s->client);
}

static enum dyt_status make_session(struct dyt_session **out)
{
    struct dyt_session *s = calloc(1, sizeof(*s));
    pthread_condattr_t attr;

    if (s == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a session");
    }
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->wake_fd < 0) {
        free(s);
        return DYTI_FAIL(DYT_ERR_IO, "eventfd: %s", strerror(errno));
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &attr);
    pthread_condattr_destroy(&attr);
    s->host = dyti_host_id();
    *out = s;
    return DYT_OK;
}

enum dyt_status dyt_session_join(const struct dyt_session_params *params,
                                 dyt_session **out_session)
{
    struct dyt_session *s = NULL;
    enum dyt_status st =
        params == NULL || out_session == NULL
            ? DYTI_FAIL(DYT_ERR_INVALID, "dyt_session_join: a NULL argument")
            : make_session(&s);

    if (st != DYT_OK) {
        return st;
    }
    st = copy_params(s, params);
    st = st != DYT_OK ? st : dyti_process_self(&s->pid, &s->pid_start);
    st = st != DYT_OK ? st : host_manager(s);
    st = st != DYT_OK ? st : connect_hub(s);
    st = st != DYT_OK ? st : say_join(s);
    st = st != DYT_OK ? st : await_answer(s);
    st = st != DYT_OK ? st : dyti_session_service_start(s);
    if (st != DYT_OK) {
        char text[DYTI_SESSION_TEXT_BYTES];

        snprintf(text, sizeof(text), "%s", dyti_error_message());
        dyt_session_leave(s);
        return dyti_error_adopt(st, text);
    }
    *out_session = s;
    return DYT_OK;
}

void dyt_session_interrupt(dyt_session *s)
{
    if (s == NULL) {
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->interrupts++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void dyt_session_leave(dyt_session *s)
{
    if (s == NULL) {
        return;
    }
    dyti_session_service_stop(s);
    dyti_session_links_close(s);
    dyti_hub_client_close(s->client);
    stop_manager(s);
    for (struct dyt_ticket *t = s->tickets; t != NULL; t = t->next) {
        t->session = NULL; /* it is done by now, and says so */
    }
    for (uint64_t i = 0; s->staged != NULL && i < s->row_count; i++) {
        free(s->staged[i]);
    }
    free(s->staged);
    free(s->row);
    free(s->has_pieces);
    dyti_mapped_close(s->mapped);
    dyti_memory_view_fini(&s->memory);
    dyti_memory_view_fini(&s->second);
    dyti_model_destroy(s->catalogue);
    for (uint32_t i = 0;
         s->attribute_name != NULL && i < s->params.attribute_count; i++) {
        free(s->attribute_name[i]);
    }
    free(s->attribute_name);
    free(s->attribute);
    free(s->expert);
    for (size_t i = 0; i < sizeof(s->text) / sizeof(s->text[0]); i++) {
        free(s->text[i]);
    }
    close(s->wake_fd);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* ---- publish ------------------------------------------------------------- */

static uint64_t row_bytes(const struct dyt_row *row)
{
    uint64_t n = dyti_dtype_bytes((enum dyti_dtype)row->dtype);

    for (uint32_t d = 0; d < row->ndim; d++) {
        n *= (uint64_t)row->shape[d];
    }
    return n;
}

/* Our copy of the rows, with memory for those that have none. */
static enum dyt_status copy_rows(struct dyt_session *s,
                                 const struct dyt_view *view)
{
    free(s->row);
    free(s->has_pieces);
    for (uint64_t i = 0; s->staged != NULL && i < s->row_count; i++) {
        free(s->staged[i]);
    }
    free(s->staged);
    s->row_count = view->row_count;
    s->row = calloc(view->row_count + 1u, sizeof(*s->row));
    s->has_pieces = calloc(view->row_count + 1u, sizeof(*s->has_pieces));
    s->staged = calloc(view->row_count + 1u, sizeof(*s->staged));
    if (s->row == NULL || s->has_pieces == NULL || s->staged == NULL) {
        s->row_count = 0;
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
            s->row[i].data = s->staged[i];
            s->row[i].fd = -1;
            memset(s->row[i].stride, 0, sizeof(s->row[i].stride));
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

    st = st != DYT_OK ? st : copy_rows(s, view);
    own.row = s->row;
    own.row_count = s->row_count;
    return st != DYT_OK ? st
                        : dyti_view_check_memory(&own, s->params.role ==
                                                           DYT_ROLE_RECEIVER);
}

enum dyt_status dyt_session_publish(dyt_session *s, const struct dyt_view *view,
                                    const struct dyt_rules *rules)
{
    struct dyti_msg_request request = {.what = DYTI_REQUEST_PUBLISH};
    enum dyt_status st = DYT_OK;

    if (s == NULL || view == NULL) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "dyt_session_publish: a NULL argument");
    }
    pthread_mutex_lock(&s->lock);
    if (s->published || s->view != NULL) {
        st = DYTI_FAIL(DYT_ERR_STATE, "this member has published already");
    } else if (s->params.memory == DYT_MEMORY_MAPPED && s->mapped == NULL) {
        st = DYTI_FAIL(DYT_ERR_STATE,
                       "memory MAPPED: call dyt_session_map() before publish");
    } else {
        s->view = view;
        s->rules = rules;
    }
    pthread_mutex_unlock(&s->lock);
    if (st != DYT_OK) {
        return st;
    }
    st = prepare_view(s, view);
    st = st != DYT_OK ? st
                      : dyti_session_call(s, DYTI_CALL_PUBLISH, &request, -1,
                                          NULL, NULL);
    pthread_mutex_lock(&s->lock);
    s->view = NULL;
    s->rules = NULL;
    s->published = st == DYT_OK;
    for (uint64_t i = 0; i < s->row_count; i++) {
        s->row[i].name = NULL; /* borrowed for the call */
        s->row[i].piece = NULL;
        s->row[i].piece_count = 0;
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}
