/* One answer from every rank, or the reason why there is none. */
#include "cli/backends.h"
#include "cli/manager.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEAR_MS    20 /* one wait for words that may not come */
#define HEAR_TIMES 100
#define WORDS_MS   1000 /* for what a rank said before it ended by itself */
#define ORIGIN_NS  2000000000 /* for the words of the rank that failed first */
#define HUNG_NS    3000000000 /* for those of ranks that were woken */

struct dyti_envelope dyti_manager_stamp(struct dyti_manager *m,
                                        enum dyti_message type)
{
    return dyti_control_stamp(m->server, type, m->phase.epoch,
                              m->phase.version);
}

enum dyt_status dyti_manager_tell(struct dyti_manager *m, enum dyt_status st,
                                  struct dyti_buffer *buffer)
{
    enum dyt_status why = DYT_OK;

    st = st != DYT_OK ? st : dyti_control_send_all(m->server, buffer);
    /* Who cannot be reached is gone: its end says more. */
    for (int i = 0; st == DYT_ERR_PEER && why == DYT_OK && i < HEAR_TIMES;
         i++) {
        why = dyti_manager_glance(m, HEAR_MS);
    }
    return why != DYT_OK ? why : st;
}

/* All ranks wake up and know who it was. */
static void wake_all(struct dyti_manager *m, uint32_t rank, enum dyt_status st)
{
    if (m->page != NULL) {
        dyti_control_abort(m->page, dyti_backends_host()->wait, rank, st);
    }
}

/* A worker ended that was not told to. */
static enum dyt_status on_death(struct dyti_manager *m, uint32_t rank)
{
    struct dyti_worker_process *w = &m->worker[rank];
    pid_t pid = w->pid;
    int how = 0;

    if (waitpid(pid, &how, WNOHANG) == pid) {
        w->pid = 0;
    }
    wake_all(m, rank, DYT_ERR_PEER);
    if (WIFSIGNALED(how)) {
        return DYTI_FAIL(DYT_ERR_PEER,
                         "rank %u (process %d) was killed by signal "
                         "%d (%s) while %s",
                         rank, (int)pid, WTERMSIG(how),
                         strsignal(WTERMSIG(how)),
                         dyti_phase_state_name(m->phase.state));
    }
    return DYTI_FAIL(DYT_ERR_PEER,
                     "rank %u (process %d) ended with exit code %d while %s",
                     rank, (int)pid, WEXITSTATUS(how),
                     dyti_phase_state_name(m->phase.state));
}

/* First Ctrl-C: the step is finished and saved.  Second: at once. */
enum dyt_status dyti_manager_on_signal(struct dyti_manager *m)
{
    m->interrupts = dyti_signals_count(&m->signals);
    if (!dyti_signals_at_once(&m->signals)) {
        return DYT_OK;
    }
    wake_all(m, 0, DYT_ERR_CANCELLED);
    return DYTI_FAIL(DYT_ERR_CANCELLED, "stopped on request while %s",
                     dyti_phase_state_name(m->phase.state));
}

/* The error message of a rank that failed by itself, if one comes within a
 * moment. */
static bool hear_own_failure(struct dyti_manager *m, int32_t *out_sender,
                             struct dyti_msg_error *out)
{
    int64_t until = dyti_now_ns() + ORIGIN_NS;

    while (dyti_now_ns() < until) {
        enum dyti_control_event event = DYTI_EVENT_TIMEOUT;
        struct dyti_frame frame = {0};
        size_t index;
        enum dyt_status st = dyti_control_wait(m->server, NULL, 0, HEAR_MS,
                                               &event, &frame, &index);
        bool heard =
            st == DYT_OK && event == DYTI_EVENT_MESSAGE &&
            frame.envelope.type == DYTI_MSG_ERROR &&
            dyti_wire_error_decode(frame.buffer.bytes, frame.buffer.size_bytes,
                                   out) == DYT_OK;

        *out_sender = frame.envelope.sender;
        dyti_frame_fini(&frame);
        if (heard && out->status != DYT_ERR_PEER) {
            return true;
        }
        if (heard) {
            dyti_msg_error_fini(out);
        }
    }
    return false;
}

static enum dyt_status on_error(struct dyti_manager *m,
                                const struct dyti_frame *frame)
{
    struct dyti_msg_error e, own;
    char text[1536];
    int32_t sender = frame->envelope.sender;
    enum dyt_status st = dyti_wire_error_decode(frame->buffer.bytes,
                                                frame->buffer.size_bytes, &e);

    if (st != DYT_OK) {
        return st;
    }
    /* A rank that tells of another's failure may be heard before that one. */
    if (e.status == DYT_ERR_PEER && hear_own_failure(m, &sender, &own)) {
        dyti_msg_error_fini(&e);
        e = own;
    } else {
        sender = frame->envelope.sender;
    }
    st = (enum dyt_status)e.status;
    if (st == DYT_OK || st == DYT_PENDING) {
        st = DYT_ERR_PEER;
    }
    snprintf(text, sizeof(text), "rank %d: %s", sender, e.text);
    wake_all(m, (uint32_t)(e.rank >= 0 ? e.rank : sender), st);
    dyti_msg_error_fini(&e);
    return dyti_error_adopt(st, text);
}

/* Descriptors of one wait: a pidfd per rank, that of signals, the engine's. */
static size_t descriptors(const struct dyti_manager *m, int *fd)
{
    for (uint32_t r = 0; r < m->job->ranks; r++) {
        fd[r] = m->worker[r].pid != 0 ? m->worker[r].pidfd : -1;
    }
    fd[m->job->ranks] = m->signals.fd;
    fd[m->job->ranks + 1u] = m->engine == NULL ? -1 : dyti_engine_fd(m->engine);
    return m->job->ranks + 2u;
}

/* How long to listen for it: who was killed has said nothing. */
static int64_t last_words_ms(const struct dyti_worker_process *w)
{
    siginfo_t how = {0};
    bool by_itself =
        waitid(P_PID, (id_t)w->pid, &how, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        how.si_code == CLD_EXITED;

    return by_itself ? WORDS_MS : HEAR_MS;
}

/* What a dying rank last said explains more than that it is dead. */
static enum dyt_status last_words(struct dyti_manager *m, uint32_t rank)
{
    enum dyti_control_event event = DYTI_EVENT_MESSAGE;
    int64_t ms = last_words_ms(&m->worker[rank]);
    size_t index;

    for (int tries = 0; tries < 64; tries++) {
        struct dyti_frame frame;
        enum dyt_status st =
            dyti_control_wait(m->server, NULL, 0, ms, &event, &frame, &index);

        if (st != DYT_OK || event != DYTI_EVENT_MESSAGE) {
            break;
        }
        st = frame.envelope.type == DYTI_MSG_ERROR ? on_error(m, &frame)
                                                   : DYT_OK;
        dyti_frame_fini(&frame);
        if (st != DYT_OK) {
            waitpid(m->worker[rank].pid, NULL, WNOHANG);
            return st;
        }
    }
    return on_death(m, rank);
}

/* One event.  *out_frame.buffer.bytes is NULL when there is no message. */
static enum dyt_status next_event(struct dyti_manager *m, int64_t ms,
                                  struct dyti_frame *out_frame)
{
    int fd[DYTI_RANKS_MAX + 2];
    size_t count = descriptors(m, fd), index = 0;
    enum dyti_control_event event;
    enum dyt_status st;

    *out_frame = (struct dyti_frame){0};
    st = dyti_control_wait(m->server, fd, count, ms, &event, out_frame, &index);
    if (st != DYT_OK || event == DYTI_EVENT_TIMEOUT) {
        return st;
    }
    if (event == DYTI_EVENT_FD) {
        if (index > m->job->ranks) {
            return DYT_OK; /* whoever waits for the engine asks it */
        }
        return index < m->job->ranks ? last_words(m, (uint32_t)index)
                                     : dyti_manager_on_signal(m);
    }
    if (out_frame->envelope.type == DYTI_MSG_ERROR) {
        st = on_error(m, out_frame);
        dyti_frame_fini(out_frame);
    }
    return st;
}

enum dyt_status dyti_manager_glance(struct dyti_manager *m, int64_t ms)
{
    struct dyti_frame frame;
    enum dyt_status st = next_event(m, ms, &frame);

    dyti_frame_fini(&frame);
    return st;
}

/* The first rank that was not heard, and how many there are. */
static uint32_t silent_rank(const struct dyti_manager *m, const bool *heard,
                            uint32_t *out_count)
{
    uint32_t first = 0;

    *out_count = 0;
    for (uint32_t r = m->job->ranks; r-- > 0;) {
        if (!heard[r]) {
            first = r;
            ++*out_count;
        }
    }
    return first;
}

uint32_t dyti_manager_find_hung(struct dyti_manager *m, const bool *answered)
{
    bool heard[DYTI_RANKS_MAX] = {false};
    int64_t until = dyti_now_ns() + HUNG_NS;
    uint32_t silent, rank;

    if (answered != NULL) {
        memcpy(heard, answered, m->job->ranks * sizeof(heard[0]));
    }
    rank = silent_rank(m, heard, &silent);
    wake_all(m, rank, DYT_ERR_TIMEOUT);
    while (silent > 1 && dyti_now_ns() < until) {
        enum dyti_control_event event = DYTI_EVENT_TIMEOUT;
        struct dyti_frame frame = {0};
        size_t index;
        uint32_t left;

        if (dyti_control_wait(m->server, NULL, 0, 20, &event, &frame, &index) ==
                DYT_OK &&
            event == DYTI_EVENT_MESSAGE &&
            (uint32_t)frame.envelope.sender < m->job->ranks) {
            heard[frame.envelope.sender] = true;
        }
        dyti_frame_fini(&frame);
        left = silent_rank(m, heard, &silent);
        rank = silent > 0 ? left : rank;
    }
    return rank;
}

static enum dyt_status take_answer(struct dyti_manager *m,
                                   const struct dyti_frame *frame,
                                   enum dyti_message type, bool *answered,
                                   uint32_t *missing, dyti_answer_fn answer,
                                   void *arg)
{
    uint32_t rank = (uint32_t)frame->envelope.sender;

    if (frame->envelope.type == DYTI_MSG_HEARTBEAT) {
        struct dyti_msg_heartbeat beat;

        if (dyti_wire_heartbeat_decode(frame->buffer.bytes,
                                       frame->buffer.size_bytes,
                                       &beat) == DYT_OK &&
            rank == 0) {
            dyti_manager_say_progress(m, dyti_phase_state_name(m->phase.state),
                                      beat.done, beat.total);
        }
        return DYT_OK;
    }
    if (frame->envelope.type != (uint32_t)type || answered[rank]) {
        return DYTI_FAIL(DYT_ERR_STATE, "rank %u says %s while %s is awaited",
                         rank, dyti_message_name(frame->envelope.type),
                         dyti_message_name(type));
    }
    answered[rank] = true;
    --*missing;
    return answer != NULL ? answer(arg, rank, frame) : DYT_OK;
}

/* When the rank that has been silent for the longest, of those that are
 * awaited, counts as hung. */
static int64_t first_deadline(const struct dyti_manager *m,
                              const bool *answered, const int64_t *heard_ns,
                              int64_t limit)
{
    int64_t first = INT64_MAX;

    for (uint32_t r = 0; r < m->job->ranks; r++) {
        first = !answered[r] && heard_ns[r] < first ? heard_ns[r] : first;
    }
    return first + limit;
}

enum dyt_status dyti_manager_collect(struct dyti_manager *m,
                                     enum dyti_message type, double seconds,
                                     dyti_answer_fn answer, void *arg)
{
    bool answered[DYTI_RANKS_MAX] = {false};
    int64_t heard_ns[DYTI_RANKS_MAX], limit = dyti_seconds_ns(seconds);
    uint32_t missing = m->job->ranks;

    for (uint32_t r = 0; r < m->job->ranks; r++) {
        heard_ns[r] = dyti_now_ns();
    }
    while (missing > 0) {
        struct dyti_frame frame;
        int64_t until = first_deadline(m, answered, heard_ns, limit);
        int64_t left_ms = (until - dyti_now_ns()) / 1000000;
        enum dyt_status st = next_event(m, left_ms > 0 ? left_ms : 0, &frame);

        if (st == DYT_OK && frame.buffer.bytes != NULL) {
            heard_ns[frame.envelope.sender] = dyti_now_ns();
            st = take_answer(m, &frame, type, answered, &missing, answer, arg);
            dyti_frame_fini(&frame);
        } else if (st == DYT_OK && dyti_now_ns() >= until) {
            uint32_t rank = dyti_manager_find_hung(m, answered);

            st =
                DYTI_FAIL(DYT_ERR_TIMEOUT,
                          "rank %u gave no sign of life for %g s while %s",
                          rank, seconds, dyti_phase_state_name(m->phase.state));
        }
        if (st != DYT_OK) {
            return st;
        }
    }
    return DYT_OK;
}
