/* Worker processes: started with posix_spawn, watched through pidfds, and gone
 * when the run is over, however it ends. */
#include "cli/backends.h"
#include "cli/manager.h"

#include "base/descriptors.h"
#include "base/log.h"
#include "edm/world.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define HELLO_SECONDS 60.0
#define BYE_MS        5000

extern char **environ;

/* ---- memory that workers inherit ----------------------------------------- */

static enum dyt_status make_control(struct dyti_manager *m)
{
    const struct dyti_backends *b = dyti_backends_host();
    const struct dyti_layout *layout[DYTI_ARENA_SLOT_COUNT];
    uint64_t bytes;
    int fd;
    enum dyt_status st;

    for (int s = 0; s < DYTI_ARENA_SLOT_COUNT; s++) {
        layout[s] = m->assembly.layout[s];
    }
    st = dyti_world_control_bytes(layout, m->job->ranks, b->group, &bytes);
    st = st != DYT_OK
             ? st
             : b->memory->create("dynatrain-control", DYTI_PAGES_4K, &fd);
    if (st != DYT_OK) {
        return st;
    }
    m->control_mem = (struct dyti_segment_mem){.handle = fd, .bytes = bytes};
    st = b->memory->resize(fd, DYTI_PAGES_4K, bytes, NULL, 0);
    st = st != DYT_OK
             ? st
             : b->memory->map(fd, DYTI_PAGES_4K, bytes, &m->control_mem);
    return st != DYT_OK ? st
                        : dyti_control_open(m->control_mem.base, m->job->ranks,
                                            &m->page);
}

/* Segments are made here so that all workers inherit all of them; each gives
 * its own its size, and the manager maps none. */
static enum dyt_status make_segments(struct dyti_manager *m)
{
    const struct dyti_memory_ops *memory = dyti_backends_host()->memory;
    uint64_t sum = 0;
    enum dyti_page_kind pages;

    for (uint32_t r = 0; r < m->job->ranks; r++) {
        sum += m->assembly.map[r].total_bytes;
    }
    pages = memory->probe(sum);
    for (uint32_t r = 0; r < m->job->ranks; r++) {
        char name[32];
        enum dyt_status st;

        snprintf(name, sizeof(name), "dynatrain-rank-%u", r);
        st = memory->create(name, pages, &m->worker[r].segment_fd);
        if (st != DYT_OK) {
            DYTI_NOTE("making the memory segment of rank %u", r);
            return st;
        }
        m->worker[r].pages = pages;
    }
    return DYT_OK;
}

/* ---- spawn --------------------------------------------------------------- */

#define ARG_BYTES 64

struct command {
    char text[9 + DYTI_RANKS_MAX][ARG_BYTES];
    char endpoint[DYTI_ENDPOINT_BYTES];
    char *argv[16 + DYTI_RANKS_MAX];
    int argc;
};

static void add(struct command *c, char *word)
{
    c->argv[c->argc++] = word;
    c->argv[c->argc] = NULL;
}

/* dynatrain worker RANK WORLD JOB ENDPOINT LIFE CONTROL:PAGES SEGMENT:PAGES… */
static void build_command(struct dyti_manager *m, uint32_t rank, int life_read,
                          struct command *c)
{
    static char program[] = "dynatrain", role[] = "worker";
    int n = 0;

    memset(c, 0, sizeof(*c));
    snprintf(c->text[n++], ARG_BYTES, "%u", rank);
    snprintf(c->text[n++], ARG_BYTES, "%u", m->job->ranks);
    snprintf(c->text[n++], ARG_BYTES, "%016" PRIx64, m->job_id);
    snprintf(c->text[n++], ARG_BYTES, "%d", life_read);
    snprintf(c->text[n++], ARG_BYTES, "%d:%d", m->control_mem.handle,
             (int)DYTI_PAGES_4K);
    for (uint32_t r = 0; r < m->job->ranks; r++) {
        snprintf(c->text[n++], ARG_BYTES, "%d:%d", m->worker[r].segment_fd,
                 (int)m->worker[r].pages);
    }
    snprintf(c->endpoint, sizeof(c->endpoint), "%s", m->endpoint);
    add(c, program);
    add(c, role);
    add(c, c->endpoint);
    for (int i = 0; i < n; i++) {
        add(c, c->text[i]);
    }
}

static int open_pidfd(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    if (fd >= 0) {
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    return fd;
}

static enum dyt_status spawn_one(struct dyti_manager *m, uint32_t rank,
                                 int life_read)
{
    struct command command;
    posix_spawnattr_t attr;
    sigset_t none;
    pid_t pid;
    int failed;

    build_command(m, rank, life_read, &command);
    sigemptyset(&none);
    posix_spawnattr_init(&attr);
    /* A group of its own: a Ctrl-C of the terminal is for the manager. */
    posix_spawnattr_setflags(&attr,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setpgroup(&attr, 0);
    failed =
        posix_spawn(&pid, "/proc/self/exe", NULL, &attr, command.argv, environ);
    posix_spawnattr_destroy(&attr);
    if (failed) {
        return DYTI_FAIL(DYT_ERR_IO, "cannot start the worker of rank %u: %s",
                         rank, strerror(failed));
    }
    m->worker[rank].pid = pid;
    m->worker[rank].pidfd = open_pidfd(pid);
    if (m->worker[rank].pidfd < 0) {
        return DYTI_FAIL(DYT_ERR_IO, "cannot watch the worker of rank %u: %s",
                         rank, strerror(errno));
    }
    return DYT_OK;
}

static enum dyt_status spawn_all(struct dyti_manager *m)
{
    int life[2];
    enum dyt_status st = DYT_OK;

    if (pipe2(life, O_CLOEXEC) != 0) {
        return DYTI_FAIL(DYT_ERR_IO, "pipe: %s", strerror(errno));
    }
    fcntl(life[0], F_SETFD, 0); /* this end is theirs */
    m->life_write = life[1];
    for (uint32_t r = 0; st == DYT_OK && r < m->job->ranks; r++) {
        st = spawn_one(m, r, life[0]);
    }
    close(life[0]);
    /* Workers have them; nobody else is to inherit them. */
    fcntl(m->control_mem.handle, F_SETFD, FD_CLOEXEC);
    for (uint32_t r = 0; r < m->job->ranks; r++) {
        fcntl(m->worker[r].segment_fd, F_SETFD, FD_CLOEXEC);
    }
    return st != DYT_OK ? st : dyti_faults_at(&m->faults, "spawned");
}

/* ---- assign -------------------------------------------------------------- */

static enum dyt_status on_hello(void *arg, uint32_t rank,
                                const struct dyti_frame *frame)
{
    struct dyti_manager *m = arg;

    (void)frame;
    m->worker[rank].said_hello = true;
    return DYT_OK;
}

static enum dyt_status on_ready(void *arg, uint32_t rank,
                                const struct dyti_frame *frame)
{
    struct dyti_manager *m = arg;
    struct dyti_msg_ready ready;
    enum dyt_status st = dyti_wire_ready_decode(
        frame->buffer.bytes, frame->buffer.size_bytes, &ready);

    if (st != DYT_OK) {
        return st;
    }
    m->worker[rank].copy_rate = ready.copy_rate;
    if (rank == 0) {
        snprintf(m->isa, sizeof(m->isa), "%s", ready.isa);
        snprintf(m->pages, sizeof(m->pages), "%s", ready.pages);
    }
    dyti_msg_ready_fini(&ready);
    if (rank == 0 && m->resumed_isa[0] != '\0' &&
        strcmp(m->resumed_isa, m->isa) != 0) {
        fprintf(stderr,
                "dynatrain run: the checkpoint was made with %s, this machine "
                "uses %s: equal up to rounding, not bit for bit\n",
                m->resumed_isa, m->isa);
    }
    return DYT_OK;
}

static uint32_t threads_per_rank(const struct dyti_job *job)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t each = cores > 0 ? (uint32_t)cores / job->ranks : 1;

    return job->devices.threads > 0 ? job->devices.threads
                                    : (each > 0 ? each : 1);
}

static enum dyt_status assign(struct dyti_manager *m, const char *resume)
{
    struct dyti_msg_assign a = {.threads = threads_per_rank(m->job)};
    struct dyti_envelope e = dyti_manager_stamp(m, DYTI_MSG_ASSIGN);
    struct dyti_buffer buffer;
    enum dyt_status st = dyti_job_text(m->job, NULL, &m->job_text);

    if (st != DYT_OK) {
        return st;
    }
    a.job_text = strdup(m->job_text);
    a.model_dir = strdup(m->model_dir);
    a.resume = strdup(resume != NULL ? resume : "");
    st =
        dyti_manager_tell(m, dyti_wire_assign_encode(&e, &a, &buffer), &buffer);
    dyti_msg_assign_fini(&a);
    return st;
}

/* The channel (7, and who connects), memory of all ranks and the common one, a
 * pipe, who has died; and a file that is copied while all this is open.  Asked
 * before: where a worker that connects finds no room, libzmq ends the process.
 */
static enum dyt_status check_room(const struct dyti_manager *m)
{
    uint32_t ranks = m->job->ranks;
    char what[64];

    snprintf(what, sizeof(what), "a run of %u ranks", ranks);
    return dyti_descriptors_room(7 + 1 + 1 + 2 + 3 * ranks, what);
}

enum dyt_status dyti_manager_start(struct dyti_manager *m, const char *resume)
{
    double limit = m->job->phase[0].deadline;
    enum dyt_status st = dyti_control_random(&m->job_id);

    st = st != DYT_OK ? st : check_room(m);
    if (st != DYT_OK) {
        return st;
    }
    dyti_control_endpoint(m->job_id, m->endpoint);
    st = dyti_control_server_open(m->endpoint, m->job_id, m->job->ranks,
                                  dyti_wire_envelope, &m->server);
    st = st != DYT_OK ? st : make_control(m);
    st = st != DYT_OK ? st : make_segments(m);
    st = st != DYT_OK ? st : spawn_all(m);
    st = st != DYT_OK ? st
                      : dyti_manager_collect(m, DYTI_MSG_HELLO, HELLO_SECONDS,
                                             on_hello, m);
    st = st != DYT_OK ? st : assign(m, resume);
    st = st != DYT_OK
             ? st
             : dyti_manager_collect(m, DYTI_MSG_READY, limit, on_ready, m);
    if (st != DYT_OK) {
        DYTI_NOTE("starting %u workers", m->job->ranks);
        return st;
    }
    return dyti_phase_take(&m->phase, DYTI_EVENT_LOADED, 0);
}

/* ---- stop ---------------------------------------------------------------- */

static void reap(struct dyti_worker_process *w, int64_t wait_ms)
{
    struct pollfd p = {.fd = w->pidfd, .events = POLLIN};

    if (w->pid == 0) {
        return;
    }
    if (w->pidfd < 0 || poll(&p, 1, (int)wait_ms) <= 0) {
        kill(w->pid, SIGKILL);
    }
    while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    w->pid = 0;
}

void dyti_manager_stop(struct dyti_manager *m, bool now)
{
    int64_t until = dyti_now_ns() / 1000000 + (now ? 0 : BYE_MS);

    if (m->server != NULL && !now) {
        struct dyti_envelope e = dyti_manager_stamp(m, DYTI_MSG_BYE);
        struct dyti_buffer buffer;

        if (dyti_manager_tell(m, dyti_wire_empty(&e, &buffer), &buffer) !=
            DYT_OK) {
            until = 0; /* somebody is gone already: the rest need not wait */
        }
    }
    for (uint32_t r = 0; r < m->job->ranks; r++) {
        int64_t left = until - dyti_now_ns() / 1000000;

        reap(&m->worker[r], left > 0 ? left : 0);
        if (m->worker[r].pidfd >= 0) {
            close(m->worker[r].pidfd);
            m->worker[r].pidfd = -1;
        }
        if (m->worker[r].segment_fd >= 0) {
            dyti_backends_host()->memory->close(m->worker[r].segment_fd);
            m->worker[r].segment_fd = -1;
        }
    }
    if (m->life_write >= 0) {
        close(m->life_write);
        m->life_write = -1;
    }
    dyti_control_server_close(m->server);
    m->server = NULL;
    if (m->control_mem.base != NULL) {
        dyti_backends_host()->memory->unmap(&m->control_mem);
        m->page = NULL;
    }
    if (m->control_mem.handle >= 0) {
        dyti_backends_host()->memory->close(m->control_mem.handle);
        m->control_mem.handle = -1;
    }
}
