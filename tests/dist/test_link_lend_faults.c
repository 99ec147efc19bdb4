/* Descriptors on their way between processes, of which some go away, come
 * uninvited, or never answer. */
#include "lend_scene.h"

#include <dirent.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

/* ---- who goes away ------------------------------------------------------- */

static void a_killed_lender_ends_it(void **state)
{
    (void)state;
    for (uint64_t at = 0; at < 40; at += 13) {
        struct scene s = one_asks(40);

        s.want[2] = 1u << 4;
        s.deed = DEED_DIES;
        s.at = at;
        s.status[0] = s.status[2] = DYT_ERR_PEER;
        play(DYT_RANKS_PROCESSES, 3, &s);
    }
}

static void an_abort_ends_it(void **state)
{
    struct scene s = one_asks(200);

    (void)state;
    s.deed = DEED_ABORTS;
    s.at = 20;
    s.status[0] = s.status[1] = DYT_ERR_PEER;
    s.text[0] = s.text[1] = "member 1 ended it";
    play(DYT_RANKS_PROCESSES, 2, &s);
}

/* ---- those who come uninvited -------------------------------------------- */

/* Is it a socket of this process? */
static bool is_ours(unsigned long inode)
{
    DIR *folder = opendir("/proc/self/fd");
    const struct dirent *entry;
    char want[64], have[64];
    bool found = false;

    snprintf(want, sizeof(want), "socket:[%lu]", inode);
    while (!found && folder != NULL && (entry = readdir(folder)) != NULL) {
        ssize_t length =
            readlinkat(dirfd(folder), entry->d_name, have, sizeof(have) - 1);

        have[length > 0 ? length : 0] = '\0';
        found = strcmp(want, have) == 0;
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return found;
}

/* Names that this process listens on now; others' are other runs'. */
static uint32_t names(uint64_t *out, uint32_t room)
{
    FILE *file = fopen("/proc/net/unix", "re");
    char line[256];
    uint32_t count = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        const char *at = strstr(line, "@dynatrain-lend-");
        unsigned long inode = 0;

        if (at != NULL && count < room &&
            sscanf(line, "%*s %*s %*s %*s %*s %*s %lu", &inode) == 1 &&
            is_ours(inode)) {
            out[count++] = strtoull(at + strlen("@dynatrain-lend-"), NULL, 16);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return count;
}

/* Of a rank of this process. */
static pid_t other_user;

/* Of another user: whoever listens hangs up.  Ends its process. */
static void be_other_user(const struct scene *s, const uint64_t *name,
                          uint32_t count)
{
    char byte;
    uint32_t gone = 0;

    /* No listener lives on in it, nor it after its parent. */
    if (close_range(STDERR_FILENO + 1, ~0u, 0) != 0 ||
        setresuid(65534, 65534, 65534) != 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
        _exit(1);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = -1, to = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        int text = snprintf(address.sun_path + 1, 64, "dynatrain-lend-%016llx",
                            (unsigned long long)name[i]);

        /* Nor does it listen to us. */
        gone += dyti_lend_connect(name[i], &fd) == DYT_ERR_PEER;
        if (connect(to, (struct sockaddr *)&address,
                    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1u +
                                (size_t)text)) != 0 ||
            recv(to, &byte, 1, 0) <= 0) {
            gone++;
        }
    }
    atomic_store(&s->shared->call_ok, count > 0 && gone == 2 * count ? 1u : 2u);
    _exit(0);
}

static void send_other_user(const struct scene *s)
{
    uint64_t name[64];
    uint32_t count = names(name, 64);

    other_user = fork();
    if (other_user == 0) {
        be_other_user(s, name, count);
    }
}

/* A rank that awaits who came of it: by now nobody listens any more, so that it
 * ends, and has said what it met. */
static void disturbed_body(struct dyt_rank *me)
{
    lend_body(me);
    if (other_user > 0) {
        (void)waitpid(other_user, NULL, 0);
    }
}

/* Rubbish, a request of nobody, and a line that is dropped. */
static void disturb(const struct scene *s)
{
    static const char rubbish[] = "who is there?";
    uint64_t name[64];
    uint32_t count = names(name, 64);

    for (uint32_t i = 0; i < count; i++) {
        struct dyti_lend_request wrong = {.rank = 99};
        int fd = -1;

        if (dyti_lend_connect(name[i], &fd) == DYT_OK) {
            (void)send(fd, rubbish, sizeof(rubbish), MSG_NOSIGNAL);
            (void)close(fd);
        }
        if (dyti_lend_connect(name[i], &fd) == DYT_OK) {
            (void)dyti_lend_send_request(fd, &wrong);
            (void)close(fd);
        }
        if (dyti_lend_connect(name[i], &fd) == DYT_OK) {
            (void)close(fd);
        }
    }
    atomic_store(&s->shared->call_ok, count > 0 ? 1u : 2u);
}

static void strangers_change_nothing(void **state)
{
    struct scene s = one_asks(100);

    (void)state;
    s.deed = DEED_CALLS;
    s.call = disturb;
    s.at = 3;
    play(DYT_RANKS_PROCESSES, 2, &s);
    if (geteuid() == 0) {
        s = one_asks(100);
        s.deed = DEED_CALLS;
        s.call = send_other_user;
        s.at = 3;
        play_as(DYT_RANKS_PROCESSES, 2, disturbed_body, &s);
    }
}

/* ---- who never answers --------------------------------------------------- */

/* Rank 1 meets the others and listens, but never lends. */
static void silent_body(struct dyt_rank *me)
{
    const struct scene *s = me->arg;
    uint64_t line[2] = {0}, lines[4], counts[2] = {sizeof(line), sizeof(line)};
    struct dyti_group all;
    int fd = -1;

    if (me->rank == 0) {
        lend_body(me);
        atomic_store(&s->shared->is_over, 1);
        return;
    }
    rank_ok(me, open_group(me, &all));
    rank_ok(me, dyti_lend_listen(&fd, &line[0]));
    rank_ok(me, dyti_group_shm.all_gather(all.self, line, lines, counts));
    if (s->deed == DEED_ABORTS) {
        atomic_store(&s->shared->abort.value,
                     dyti_abort_pack(1, DYT_ERR_CANCELLED));
    }
    while (atomic_load(&s->shared->is_over) == 0) {
        sched_yield();
    }
    close(fd);
    dyti_group_shm.close(all.self);
}

static void a_silent_lender_is_named(void **state)
{
    (void)state;
    for (int aborts = 0; aborts < 2; aborts++) {
        struct scene s = one_asks(3);

        s.deed = aborts ? DEED_ABORTS : DEED_NONE;
        s.timeout_ns = aborts ? PATIENCE_NS : 50000000;
        s.status[0] = aborts ? DYT_ERR_PEER : DYT_ERR_TIMEOUT;
        s.text[0] = aborts ? "member 1 ended it" : "of member 1 for 50 ms";
        play_as(DYT_RANKS_PROCESSES, 2, silent_body, &s);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_killed_lender_ends_it),
    cmocka_unit_test(an_abort_ends_it),
    cmocka_unit_test(strangers_change_nothing),
    cmocka_unit_test(a_silent_lender_is_named),
};
DYT_TEST_MAIN(tests)
