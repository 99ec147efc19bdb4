/* A member of a session for tests: a trainer's rank, or a small server that
 * answers requests while versions come.  Everything through the public headers,
 * but for the formula of the content hash.
 *
 *   session_member trainer ADDRESS JOB RANK SIZE
 *   session_member host    ADDRESS JOB RANK SIZE    (a trainer that serves)
 *   session_member server  ADDRESS JOB REPLICA RANK SIZE MODE
 *
 * Each may be followed by KEY MANAGER_KEY HOST TIMEOUT_MS, for jobs over tcp.
 *
 * MODE: staged, in_place, double or mapped (both in memory of ours, the latter
 * in place).  Says "ready" when it has published, then takes lines from its
 * input and answers each with one line:
 *
 *   trainer  offer V          write version V, offer it, wait for the ticket:
 *                             "offered V" and later "done V STATUS"
 *            fork             a child that does nothing: "forked PID"
 *   server   update V MS      "updated STATUS VERSION TEXT", where it came from
 *                             or what is wrong
 *            ask ID           "answer ID VERSION whole LO HI HASH" from the
 * weights as they are, HASH: the content hash of rows LO … HI of all tensors;
 * "answer ID VERSION mixed" where an element is not of that version;
 * "answer ID 0 STATUS" where the weights may not be used
 *            hash             "answer 0 VERSION whole LO HI HASH": HASH as the
 * library says it, between updates
 *   both     quit
 *
 * A server answers requests in a thread of its own, between pause and resume of
 * an update none. */
#include "session_values.h"

#include <dynatrain/session.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static float *weight[TENSORS]; /* [rows of this member][COLS] */
static int64_t row_lo, row_hi;

static pthread_rwlock_t in_use = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t out = PTHREAD_MUTEX_INITIALIZER;
static dyt_session *session;

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    pthread_mutex_lock(&out);
    vprintf(fmt, args);
    putchar('\n');
    fflush(stdout);
    pthread_mutex_unlock(&out);
    va_end(args);
}

static int die(const char *what)
{
    say("failed: %s: %s", what, dyt_error_text());
    return 1;
}

/* ---- weights ------------------------------------------------------------- */

static void write_version(uint64_t version)
{
    for (uint32_t t = 0; t < TENSORS; t++) {
        for (int64_t r = row_lo; r < row_hi; r++) {
            for (int64_t c = 0; c < COLS; c++) {
                weight[t][(r - row_lo) * COLS + c] = value_of(version, t, r, c);
            }
        }
    }
}

/* "whole", or what is not of this version; and the content hash of it all. */
static void look(float *const *base, uint64_t version, char text[160],
                 uint64_t *out_hash)
{
    uint64_t wrong = 0, other = 0;

    *out_hash = 0;
    snprintf(text, 160, "whole");
    for (uint32_t t = 0; t < TENSORS; t++) {
        for (int64_t r = row_lo; r < row_hi; r++) {
            for (int64_t c = 0; c < COLS; c++) {
                float is = base[t][(r - row_lo) * COLS + c];

                *out_hash += content_of_element(t, r, c, is);
                wrong += is != value_of(version, t, r, c);
                other += is == value_of(version + 1, t, r, c);
            }
        }
    }
    if (wrong > 0) {
        snprintf(text, 160,
                 "mixed: %" PRIu64 " of %" PRIu64
                 " elements are wrong, %" PRIu64 " are of the next version",
                 wrong, (uint64_t)TENSORS * (uint64_t)(row_hi - row_lo) * COLS,
                 other);
    }
}

/* Rows lo … hi of every tensor, as a cut of its axis 0. */
static int allocate(uint32_t rank, uint32_t size)
{
    row_lo = (int64_t)rank * ROWS / size;
    row_hi = (int64_t)(rank + 1) * ROWS / size;
    for (uint32_t t = 0; t < TENSORS; t++) {
        weight[t] = calloc((size_t)(row_hi - row_lo) * COLS, sizeof(float));
        if (weight[t] == NULL) {
            return 0;
        }
    }
    return 1;
}

static char names[TENSORS][32];
static struct dyt_row row[TENSORS];
static struct dyt_piece piece[TENSORS];

static struct dyt_view describe(void)
{
    for (uint32_t t = 0; t < TENSORS; t++) {
        snprintf(names[t], sizeof(names[t]), "layers.%u.weight", t);
        piece[t] = (struct dyt_piece){.struct_size = sizeof(piece[t]),
                                      .tensor = names[t],
                                      .box = {2, {row_lo, 0}, {row_hi, COLS}}};
        row[t] = (struct dyt_row){.struct_size = sizeof(row[t]),
                                  .kind = DYT_PARAM,
                                  .dtype = DYT_F32,
                                  .name = names[t],
                                  .ndim = 2,
                                  .shape = {row_hi - row_lo, COLS},
                                  .global_shape = {ROWS, COLS},
                                  .data = weight[t],
                                  .fd = -1,
                                  .piece = &piece[t],
                                  .piece_count = 1,
                                  .piece_struct_size = sizeof(piece[t])};
    }
    return (struct dyt_view){.struct_size = sizeof(struct dyt_view),
                             .row_struct_size = sizeof(row[0]),
                             .row = row,
                             .row_count = TENSORS};
}

/* ---- trainer ------------------------------------------------------------- */

static int offer(uint64_t version)
{
    struct dyt_offer_params params = {.struct_size = sizeof(params),
                                      .version = version};
    dyt_ticket *ticket;
    enum dyt_status st;

    write_version(version);
    st = dyt_session_offer(session, &params, &ticket);
    if (st != DYT_OK) {
        say("done %" PRIu64 " %s", version, dyt_status_name(st));
        return 0;
    }
    say("offered %" PRIu64, version);
    st = dyt_ticket_wait(ticket, -1);
    dyt_ticket_destroy(ticket);
    say("done %" PRIu64 " %s", version, dyt_status_name(st));
    return 0;
}

/* It leaves its parent's session, as a destructor might, and stays. */
static void fork_child(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        dyt_session_leave(session);
        for (;;) {
            pause();
        }
    }
    say("forked %d", (int)pid);
}

/* KEY MANAGER_KEY HOST TIMEOUT_MS, where they are given. */
static void read_net(struct dyt_session_params *join, char **arg, int count)
{
    if (count == 4) {
        join->key = arg[0];
        join->manager_key = arg[1];
        join->host = arg[2];
        join->timeout_ns = strtoll(arg[3], NULL, 10) * 1000000;
    }
}

static int trainer(char **arg, int count, uint32_t host_manager)
{
    struct dyt_session_params join = {
        .struct_size = sizeof(join),
        .role = DYT_ROLE_TRAINER,
        .address = arg[0],
        .job = arg[1],
        .rank = (uint32_t)strtoul(arg[2], NULL, 10),
        .size = (uint32_t)strtoul(arg[3], NULL, 10),
        .host_manager = host_manager,
        .timeout_ns = 20000000000};
    struct dyt_view view;
    char line[128];

    read_net(&join, arg + 4, count - 4);
    if (!allocate(join.rank, join.size)) {
        return 1;
    }
    view = describe();
    if (dyt_session_join(&join, &session) != DYT_OK) {
        return die("join");
    }
    if (dyt_session_publish(session, &view, NULL) != DYT_OK) {
        return die("publish");
    }
    say("ready");
    while (fgets(line, sizeof(line), stdin) != NULL) {
        if (strncmp(line, "offer ", 6) == 0) {
            offer(strtoull(line + 6, NULL, 10));
        } else if (strncmp(line, "fork", 4) == 0) {
            fork_child();
        } else if (strncmp(line, "quit", 4) == 0) {
            break;
        }
    }
    dyt_session_leave(session);
    return 0;
}

/* ---- server -------------------------------------------------------------- */

static enum dyt_status pause_requests(void *arg)
{
    (void)arg;
    pthread_rwlock_wrlock(&in_use);
    return DYT_OK;
}

static enum dyt_status resume_requests(void *arg)
{
    (void)arg;
    pthread_rwlock_unlock(&in_use);
    return DYT_OK;
}

static void answer(uint64_t id, int mapped)
{
    float *base[TENSORS];
    uint64_t version = 0, hash = 0;
    char what[160] = "";
    enum dyt_status st;

    pthread_rwlock_rdlock(&in_use);
    memcpy(base, weight, sizeof(base));
    st = dyt_session_valid(session, &version);
    for (uint32_t t = 0; t < TENSORS && st == DYT_OK && mapped; t++) {
        void *data = NULL;

        st = dyt_session_row_data(session, t, &data);
        base[t] = data;
    }
    if (st != DYT_OK) {
        say("answer %" PRIu64 " 0 %s", id, dyt_status_name(st));
    } else {
        look(base, version, what, &hash);
        say("answer %" PRIu64 " %" PRIu64 " %s %" PRId64 " %" PRId64
            " %016" PRIx64,
            id, version, what, row_lo, row_hi, hash);
    }
    pthread_rwlock_unlock(&in_use);
}

/* What the library says that the rows hold; nothing may be updated meanwhile.
 */
static void answer_hash(void)
{
    uint64_t version = 0, hash = 0;
    enum dyt_status st = dyt_session_valid(session, &version);

    for (uint32_t t = 0; t < TENSORS && st == DYT_OK; t++) {
        uint64_t of_row = 0;

        st = dyt_session_row_hash(session, t, &of_row);
        hash += of_row;
    }
    say("answer 0 %" PRIu64 " %s %" PRId64 " %" PRId64 " %016" PRIx64, version,
        st == DYT_OK ? "whole" : dyt_error_text(), row_lo, row_hi, hash);
}

struct update {
    uint64_t version;
    int64_t deadline_ns;
};

static void *update(void *arg)
{
    struct update *u = arg;
    struct dyt_switch_report report = {.struct_size = sizeof(report)};
    enum dyt_status st =
        dyt_session_receive(session, u->version, u->deadline_ns, &report);

    say("updated %s %" PRIu64 " %s", dyt_status_name(st),
        st == DYT_OK ? report.version : 0,
        st != DYT_OK         ? dyt_error_text()
        : report.source == 1 ? "from a sibling"
                             : "from the trainer");
    free(u);
    return NULL;
}

/* In a thread of its own, so that requests go on. */
static int start_update(const char *line)
{
    struct update *u = calloc(1, sizeof(*u));
    pthread_t thread;
    int64_t ms;

    if (u == NULL ||
        sscanf(line, "update %" SCNu64 " %" SCNd64, &u->version, &ms) != 2) {
        free(u);
        return 0;
    }
    u->deadline_ns = ms * 1000000;
    if (pthread_create(&thread, NULL, update, u) != 0) {
        free(u);
        return 0;
    }
    pthread_detach(thread);
    return 1;
}

static int server(char **arg, int count)
{
    const char *mode = arg[5];
    int twice = strcmp(mode, "double") == 0;
    int mapped = twice || strcmp(mode, "mapped") == 0;
    struct dyt_session_params join = {
        .struct_size = sizeof(join),
        .role = DYT_ROLE_RECEIVER,
        .address = arg[0],
        .job = arg[1],
        .replica = (uint32_t)strtoul(arg[2], NULL, 10),
        .rank = (uint32_t)strtoul(arg[3], NULL, 10),
        .size = (uint32_t)strtoul(arg[4], NULL, 10),
        .tp_rank = (uint32_t)strtoul(arg[3], NULL, 10),
        .tp_size = (uint32_t)strtoul(arg[4], NULL, 10),
        .commit = twice                         ? DYT_COMMIT_DOUBLE
                  : strcmp(mode, "staged") == 0 ? DYT_COMMIT_STAGED
                                                : DYT_COMMIT_IN_PLACE,
        .memory = mapped ? DYT_MEMORY_MAPPED : DYT_MEMORY_OWN,
        .verify = DYT_VERIFY_FULL,
        .timeout_ns = 20000000000};
    struct dyt_session_hooks hooks = {.struct_size = sizeof(hooks),
                                      .pause = pause_requests,
                                      .resume = resume_requests};
    struct dyt_view view;
    char line[128];

    read_net(&join, arg + 6, count - 6);
    if (!allocate(join.rank, join.size)) {
        return 1;
    }
    view = describe();
    if (dyt_session_join(&join, &session) != DYT_OK) {
        return die("join");
    }
    if (dyt_session_set_hooks(session, &hooks) != DYT_OK) {
        return die("hooks");
    }
    if (mapped && dyt_session_map(session, row, TENSORS) != DYT_OK) {
        return die("map");
    }
    if (dyt_session_publish(session, &view, NULL) != DYT_OK) {
        return die("publish");
    }
    say("ready");
    while (fgets(line, sizeof(line), stdin) != NULL) {
        if (strncmp(line, "ask ", 4) == 0) {
            answer(strtoull(line + 4, NULL, 10), mapped);
        } else if (strncmp(line, "hash", 4) == 0) {
            answer_hash();
        } else if (strncmp(line, "update ", 7) == 0) {
            start_update(line);
        } else if (strncmp(line, "quit", 4) == 0) {
            break;
        }
    }
    dyt_session_leave(session);
    return 0;
}

int main(int argc, char **argv)
{
    int count = argc - 2;

    if ((count == 4 || count == 8) && strcmp(argv[1], "trainer") == 0) {
        return trainer(argv + 2, count, 2); /* the test serves */
    }
    if (count == 4 && strcmp(argv[1], "host") == 0) {
        return trainer(argv + 2, count, 1);
    }
    if ((count == 6 || count == 10) && strcmp(argv[1], "server") == 0) {
        return server(argv + 2, count);
    }
    fprintf(stderr, "usage: session_member trainer|host|server ...\n");
    return 2;
}
