#include "cli/worker.h"

#include "base/env.h"
#include "base/log.h"
#include "base/trace.h"
#include "cli/backends.h"
#include "cli/exit.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* The manager holds the other end of this pipe: its end, however it comes, is
 * ours.  A thread watches, because the main thread may be deep in a wait. */
static void *watch_life(void *arg)
{
    int fd = *(int *)arg;
    char byte;

    while (read(fd, &byte, 1) < 0 && errno == EINTR) {
    }
    _exit(DYTI_EXIT_RUN);
}

static enum dyt_status start_watch(struct dyti_worker *w)
{
    pthread_attr_t attr;
    pthread_t thread;
    int failed;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    failed = pthread_create(&thread, &attr, watch_life, &w->args.life_fd);
    pthread_attr_destroy(&attr);
    return failed ? DYTI_FAIL(DYT_ERR_NOMEM, "cannot start the life watch: %s",
                              strerror(failed))
                  : DYT_OK;
}

/* Whose failure this thread's last error is: a peer's if the abort word says
 * so, else our own. */
static int32_t blamed(const struct dyti_worker *w)
{
    uint64_t value;

    if (w->world == NULL) {
        return (int32_t)w->args.rank;
    }
    value = atomic_load(&dyti_world_control(w->world)->abort.value);
    return value != 0 ? (int32_t)(value >> 32) - 1 : (int32_t)w->args.rank;
}

static void report_failure(struct dyti_worker *w, enum dyt_status st)
{
    struct dyti_msg_error m = {.status = st, .rank = blamed(w)};
    struct dyti_envelope e = dyti_worker_stamp(w, DYTI_MSG_ERROR);
    struct dyti_buffer buffer;

    m.text = strdup(dyti_error_message());
    if (dyti_worker_send(w, dyti_wire_error_encode(&e, &m, &buffer), &buffer) !=
        DYT_OK) {
        DYTI_LOG(DYTI_LOG_ERROR, "worker", "cannot report: %s", m.text);
    }
    dyti_msg_error_fini(&m);
    if (w->world != NULL) { /* nobody waits for us in vain */
        dyti_control_abort(dyti_world_control(w->world),
                           dyti_backends_host()->wait, w->args.rank, st);
    }
}

static enum dyt_status say_hello(struct dyti_worker *w)
{
    struct dyti_msg_hello m = {.pid = getpid()};
    struct dyti_envelope e = dyti_worker_stamp(w, DYTI_MSG_HELLO);
    struct dyti_buffer buffer;

    return dyti_worker_send(w, dyti_wire_hello_encode(&e, &m, &buffer),
                            &buffer);
}

static enum dyt_status say_ready(struct dyti_worker *w)
{
    const struct dyti_kernel_ops *k = w->kernels.ops;
    struct dyti_msg_ready m = {
        .isa = strdup(k->isa(w->kernels.self)),
        .pages =
            strdup(dyti_page_kind_name(w->args.segment_pages[w->args.rank])),
        .segment_bytes = w->assembly.map[w->args.rank].total_bytes,
        .param_elements = dyti_model_elements(w->assembly.model),
        .load_seconds = w->load_seconds,
        .copy_rate = w->copy_rate};
    struct dyti_envelope e = dyti_worker_stamp(w, DYTI_MSG_READY);
    struct dyti_buffer buffer;
    enum dyt_status st =
        m.isa != NULL && m.pages != NULL
            ? dyti_worker_send(w, dyti_wire_ready_encode(&e, &m, &buffer),
                               &buffer)
            : DYTI_FAIL(DYT_ERR_NOMEM, "a ready message");

    dyti_msg_ready_fini(&m);
    return st;
}

static enum dyt_status take_assignment(struct dyti_worker *w)
{
    struct dyti_frame frame;
    struct dyti_msg_assign assign;
    enum dyt_status st = dyti_control_client_receive(w->client, -1, &frame);

    if (st != DYT_OK) {
        return st;
    }
    if (frame.envelope.type == DYTI_MSG_BYE) {
        st = DYT_ERR_CANCELLED;
    } else if (frame.envelope.type != DYTI_MSG_ASSIGN) {
        st = DYTI_FAIL(DYT_ERR_STATE, "%s before assign",
                       dyti_message_name(frame.envelope.type));
    } else {
        st = dyti_wire_assign_decode(frame.buffer.bytes,
                                     frame.buffer.size_bytes, &assign);
        if (st == DYT_OK) {
            st = dyti_worker_build(w, &assign);
            dyti_msg_assign_fini(&assign);
        }
    }
    dyti_frame_fini(&frame);
    return st != DYT_OK ? st : say_ready(w);
}

/* Until "bye".  A failure ends the worker: what a failed phase left behind is
 * not fit to go on with, and the manager decides what happens next. */
static enum dyt_status serve(struct dyti_worker *w)
{
    for (;;) {
        struct dyti_frame frame;
        enum dyt_status st = dyti_control_client_receive(w->client, -1, &frame);

        if (st != DYT_OK) {
            return st;
        }
        if (frame.envelope.type == DYTI_MSG_BYE) {
            dyti_frame_fini(&frame);
            return DYT_OK;
        }
        st = dyti_worker_act(w, &frame);
        dyti_frame_fini(&frame);
        if (st != DYT_OK) {
            return st;
        }
    }
}

int dyti_worker_main(const struct dyti_worker_args *args)
{
    struct dyti_worker w = {.args = *args};
    enum dyt_status st;

    /* The manager decides what a Ctrl-C means. */
    signal(SIGINT, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_NAME, "dynatrain-rank", 0, 0, 0);
    /* A stopped process cannot see the end of a pipe; the watch of the pipe is
     * what counts for managers that died before this line. */
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    dyti_log_configure(dyti_env_text(DYTI_ENV_LOG),
                       dyti_env_text(DYTI_ENV_LOG_AREA));
    dyti_log_identity((int32_t)args->rank, "start");

    st = dyti_faults_read(&w.faults, (int32_t)args->rank);
    st = st != DYT_OK ? st
                      : dyti_trace_start(dyti_env_text(DYTI_ENV_TRACE), false);
    st = st != DYT_OK ? st : start_watch(&w);
    st = st != DYT_OK
             ? st
             : dyti_control_client_open(args->endpoint, args->job, args->rank,
                                        dyti_wire_envelope, &w.client);
    if (st == DYT_OK) {
        st = dyti_faults_at(&w.faults, "hello");
        st = st != DYT_OK ? st : say_hello(&w);
        st = st != DYT_OK ? st : take_assignment(&w);
        st = st != DYT_OK ? st : serve(&w);
        if (st != DYT_OK && st != DYT_ERR_CANCELLED) {
            report_failure(&w, st);
        }
    }
    if (st != DYT_OK && w.client == NULL) { /* the manager sees us end */
        DYTI_LOG(DYTI_LOG_ERROR, "worker", "%s", dyti_error_message());
    }
    dyti_worker_fini(&w);
    dyti_trace_stop();
    return dyti_exit_code(st);
}
