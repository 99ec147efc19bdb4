/* Join, interrupt, leave: what a caller does first and last. */
#include "lib/session_device.h"

#include "base/thread.h"
#include "lib/handles.h"
#include "lib/link_internal.h"
#include "lib/module.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

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
                                    .host = s->params.host,
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

/* A module is only looked for where the job may be of one host, and opened
 * where the parameters say that it may not: one of another version is found
 * before anything moves, and who needs none has none in its process. */
static void try_crossing(struct dyt_session *s)
{
    const struct dyti_module *module;
    bool may_cross =
        s->params.host != NULL || strncmp(s->params.address, "tcp:", 4) == 0;

    if (!dyti_module_exists("gloo")) {
        snprintf(s->no_crossing, sizeof(s->no_crossing),
                 "it has no libdynatrain-gloo.so, which carries them: install "
                 "it beside libdynatrain.so (a build with libgloo-dev, "
                 "-DDYT_GLOO=on)");
    } else if (may_cross && dyti_module_open("gloo", &module) != DYT_OK) {
        snprintf(s->no_crossing, sizeof(s->no_crossing), "%s",
                 dyti_error_message());
    }
}

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
                              .no_crossing = s->no_crossing,
                              .pid = s->pid,
                              .pid_start = s->pid_start,
                              .timeout_ns = s->timeout_ns};
    struct dyti_envelope e = dyti_hub_client_stamp(s->client, DYTI_MSG_JOIN, 0);
    struct dyti_buffer buffer;

    try_crossing(s);
    if (p->host != NULL) {
        snprintf(host, sizeof(host), "%.63s", p->host);
    } else {
        (void)gethostname(host, sizeof(host) - 1);
    }
    return dyti_session_send(s, dyti_wire_join_encode(&e, &m, &buffer),
                             &buffer);
}

/* A manager that dies is seen by its pidfd: its connections may live on in
 * children that it forked. */
static void watch_manager(struct dyt_session *s, const struct dyti_hub_frame *f)
{
    struct epoll_event readable = {.events = EPOLLIN};
    struct dyti_msg_joined joined;
    uint64_t start;

    if (dyti_wire_joined_decode(f->buffer.bytes, f->buffer.size_bytes,
                                &joined) != DYT_OK ||
        joined.host != s->host || joined.pid == s->pid || joined.pid == 0) {
        return;
    }
    s->manager_fd = (int)syscall(SYS_pidfd_open, joined.pid, 0);
    if (s->manager_fd >= 0 &&
        (dyti_process_start(joined.pid, &start) != DYT_OK ||
         start != joined.pid_start ||
         epoll_ctl(s->watch_fd, EPOLL_CTL_ADD, s->manager_fd, &readable) !=
             0)) {
        close(s->manager_fd); /* the connection tells alone */
        s->manager_fd = -1;
    }
}

static enum dyt_status take_answer(struct dyt_session *s,
                                   const struct dyti_hub_frame *f)
{
    struct dyti_msg_error error;
    enum dyt_status st;

    if (f->envelope.type == DYTI_MSG_JOINED) {
        watch_manager(s, f);
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
            st = take_answer(s, &frame);
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

static void close_descriptors(struct dyt_session *s)
{
    const int fd[] = {s->wake_fd, s->watch_fd, s->manager_fd};

    for (size_t i = 0; i < sizeof(fd) / sizeof(fd[0]); i++) {
        if (fd[i] >= 0) {
            close(fd[i]);
        }
    }
}

static enum dyt_status make_session(struct dyt_session **out)
{
    struct epoll_event readable = {.events = EPOLLIN};
    struct dyt_session *s = calloc(1, sizeof(*s));
    pthread_condattr_t attr;

    if (s == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a session");
    }
    s->manager_fd = -1;
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->watch_fd = epoll_create1(EPOLL_CLOEXEC);
    if (s->wake_fd < 0 || s->watch_fd < 0 ||
        epoll_ctl(s->watch_fd, EPOLL_CTL_ADD, s->wake_fd, &readable) != 0) {
        enum dyt_status st = DYTI_FAIL(
            DYT_ERR_IO, "a session's descriptors: %s", strerror(errno));

        close_descriptors(s);
        free(s);
        return st;
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->take_lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &attr);
    pthread_condattr_destroy(&attr);
    *out = s;
    return DYT_OK;
}

enum dyt_status dyt_session_join(const struct dyt_session_params *params,
                                 dyt_session **out_session)
{
    struct dyt_session *s = NULL;
    enum dyt_status st = params == NULL || out_session == NULL
                             ? dyti_null_argument("dyt_session_join")
                             : make_session(&s);

    if (st != DYT_OK) {
        return st;
    }
    s->pid = (uint32_t)getpid();
    st = dyti_session_copy_params(s, params);
    st = st != DYT_OK ? st : dyti_process_self(&s->pid, &s->pid_start);
    s->host = dyti_host_named(s->params.host);
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
    if (s == NULL || s->pid != (uint32_t)getpid()) {
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->interrupts++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void dyti_session_end(struct dyt_session *s)
{
    dyti_session_service_stop(s);
    dyti_session_await_callers(s);
    dyti_session_links_close(s);
    dyti_hub_client_close(s->client);
    stop_manager(s);
    for (struct dyt_ticket *t = s->tickets; t != NULL; t = t->next) {
        t->session = NULL; /* it is done by now, and says so */
    }
    dyti_seal_close(s->seal);
    dyti_session_free_rows(s);
    dyti_mapped_close(s->mapped);
    dyti_session_close_mirror(s);
    dyti_memory_view_fini(&s->memory);
    dyti_memory_view_fini(&s->second);
    dyti_memory_view_fini(&s->there);
    dyti_memory_view_fini(&s->there_second);
    dyti_model_destroy(s->catalogue);
    dyti_session_free_params(s);
    close_descriptors(s);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->take_lock);
    free(s);
}
