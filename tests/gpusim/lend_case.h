/* What the tests of lent memory share: memory as frameworks allocate it, and
 * another process, which is the test's program started anew and does what it is
 * told. */
#ifndef DYT_GPUSIM_LEND_CASE_H
#define DYT_GPUSIM_LEND_CASE_H

#include "sim_test.h"

#include "cases.h"

#include "device/cuda/memory.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define MIB   ((uint64_t)1 << 20)
#define PEER  "lend-peer" /* the word that a peer's program begins with */
#define SLOTS 3u

extern char **environ;

static const struct dyti_memory_ops *const ops = &dyti_memory_cuda;

/* ---- memory as frameworks have it ---------------------------------------- */

struct foreign {
    CUdeviceptr at;
    uint64_t bytes, piece[24];
    uint32_t count; /* pieces; 0: one allocation */
};

static inline const struct dyti_cuda_calls *lend_calls(void)
{
    const struct dyti_cuda_calls *calls = NULL;

    assert_ok(dyti_cuda_calls(&calls));
    return calls;
}

static inline void *foreign_at(const struct foreign *f, uint64_t offset)
{
    return (void *)(uintptr_t)(f->at + offset);
}

static inline struct foreign foreign_allocated(uint64_t bytes)
{
    struct foreign f = {.bytes = bytes};

    assert_int_equal(CUDA_SUCCESS, lend_calls()->cuMemAlloc(&f.at, bytes));
    return f;
}

static inline CUmemAllocationProp foreign_prop(int device, bool gives)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = gives ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                      : CU_MEM_HANDLE_TYPE_NONE,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};

    return prop;
}

/* An expandable segment of these pieces; `gives`, bits: with descriptors. */
static inline struct foreign foreign_mapped(int device, const uint64_t *piece,
                                            uint32_t count, uint32_t gives)
{
    const CUmemAccessDesc access = {foreign_prop(device, true).location,
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const struct dyti_cuda_calls *calls = lend_calls();
    struct foreign f = {.count = count};
    uint64_t at = 0;

    for (uint32_t i = 0; i < count; i++) {
        f.piece[i] = piece[i];
        f.bytes += piece[i];
    }
    assert_int_equal(CUDA_SUCCESS,
                     calls->cuMemAddressReserve(&f.at, f.bytes, 0, 0, 0));
    for (uint32_t i = 0; i < count; at += piece[i++]) {
        CUmemAllocationProp prop = foreign_prop(device, gives >> i & 1u);
        CUmemGenericAllocationHandle memory = 0;

        assert_int_equal(CUDA_SUCCESS,
                         calls->cuMemCreate(&memory, piece[i], &prop, 0));
        assert_int_equal(CUDA_SUCCESS,
                         calls->cuMemMap(f.at + at, piece[i], 0, memory, 0));
        assert_int_equal(CUDA_SUCCESS, calls->cuMemRelease(memory));
    }
    assert_int_equal(CUDA_SUCCESS,
                     calls->cuMemSetAccess(f.at, f.bytes, &access, 1));
    return f;
}

static inline void foreign_free(struct foreign *f)
{
    const struct dyti_cuda_calls *calls = lend_calls();
    CUdeviceptr at = f->at;

    if (f->count == 0) {
        assert_int_equal(CUDA_SUCCESS, calls->cuMemFree(f->at));
        return;
    }
    for (uint32_t i = 0; i < f->count; at += f->piece[i++]) {
        assert_int_equal(CUDA_SUCCESS, calls->cuMemUnmap(at, f->piece[i]));
    }
    assert_int_equal(CUDA_SUCCESS, calls->cuMemAddressFree(f->at, f->bytes));
}

/* Word i is value + i. */
static inline bool words_put(void *at, uint64_t bytes, uint32_t value)
{
    uint32_t *here = malloc(bytes);
    bool good;

    for (uint64_t i = 0; here != NULL && i < bytes / 4; i++) {
        here[i] = value + (uint32_t)i;
    }
    good = here != NULL &&
           cudaMemcpy(at, here, bytes, cudaMemcpyHostToDevice) == cudaSuccess;
    free(here);
    return good;
}

#define ENDS 512u /* words at either end, that grow */

/* By a kernel of the device in use. */
static inline bool words_grow(void *at, uint64_t bytes)
{
    return case_add_one(at, ENDS, NULL) == 0 &&
           case_add_one((uint32_t *)at + bytes / 4 - ENDS, ENDS, NULL) == 0 &&
           cudaDeviceSynchronize() == cudaSuccess;
}

/* As they were put, and have grown so often. */
static inline bool words_are(const void *at, uint64_t bytes, uint32_t value,
                             uint32_t grown)
{
    uint32_t *here = malloc(bytes);
    bool good =
        here != NULL &&
        cudaMemcpy(here, at, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;

    for (uint64_t i = 0; i < bytes / 4 && good; i++) {
        bool is_end = i < ENDS || i >= bytes / 4 - ENDS;

        good = here[i] == value + i + (is_end ? grown : 0);
    }
    free(here);
    return good;
}

/* ---- another process ----------------------------------------------------- */

enum order_what {
    ORDER_BORROW,
    ORDER_PIECE, /* with a descriptor */
    ORDER_ARE,
    ORDER_GROW,
    ORDER_GIVE_BACK,
    ORDER_FILES,   /* answers how many are open */
    ORDER_LEND,    /* be the lender: an allocation of `bytes`, of `value` */
    ORDER_FREE,    /* that allocation */
    ORDER_MACHINE, /* `value` devices, the first one's number `bytes` */
    ORDER_USE,
    ORDER_FAIL /* the `value`-th call of the next order fails */
};

struct order {
    enum order_what what;
    uint32_t slot, value, grown;
    uint64_t bytes;
    struct dyti_memory_loan loan;
};

struct answer {
    enum dyt_status status;
    uint32_t wanted;
    uint64_t number;
    bool has_failed; /* the call that was to */
    struct dyti_memory_loan loan;
    char text[512];
};

struct peer {
    pid_t pid;
    int socket;
};

static inline void peer_start(struct peer *peer)
{
    char word[16];
    char *argv[] = {"test", PEER, word, NULL};
    posix_spawn_file_actions_t actions;
    int pair[2];

    assert_int_equal(
        0, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
    snprintf(word, sizeof(word), "%d", pair[1]);
    posix_spawn_file_actions_init(&actions);
    /* onto itself: inherited */
    posix_spawn_file_actions_adddup2(&actions, pair[1], pair[1]);
    assert_int_equal(0, posix_spawn(&peer->pid, "/proc/self/exe", &actions,
                                    NULL, argv, environ));
    posix_spawn_file_actions_destroy(&actions);
    close(pair[1]);
    peer->socket = pair[0];
}

static inline bool send_order(int socket, const struct order *order, int fd)
{
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec text = {(void *)(uintptr_t)order, sizeof(*order)};
    struct msghdr head = {.msg_iov = &text, .msg_iovlen = 1};

    if (fd >= 0) {
        struct cmsghdr *c = &control.align;

        head.msg_control = &control;
        head.msg_controllen = sizeof(control);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    }
    return sendmsg(socket, &head, MSG_NOSIGNAL) == (ssize_t)sizeof(*order);
}

static inline bool receive_order(int socket, struct order *order, int *fd)
{
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec text = {order, sizeof(*order)};
    struct msghdr head = {.msg_iov = &text,
                          .msg_iovlen = 1,
                          .msg_control = &control,
                          .msg_controllen = sizeof(control)};
    const struct cmsghdr *c;

    *fd = -1;
    if (recvmsg(socket, &head, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*order)) {
        return false;
    }
    c = CMSG_FIRSTHDR(&head);
    if (c != NULL && c->cmsg_type == SCM_RIGHTS) {
        memcpy(fd, CMSG_DATA(c), sizeof(*fd));
    }
    return true;
}

/* What it answers. */
static inline struct answer ask(const struct peer *peer, struct order order,
                                int fd)
{
    struct answer answer = {0};

    assert_true(send_order(peer->socket, &order, fd));
    assert_int_equal(sizeof(answer),
                     recv(peer->socket, &answer, sizeof(answer), 0));
    return answer;
}

#define asked(want, peer, ...)                                                 \
    assert_asked((want), (peer), (struct order){__VA_ARGS__}, -1, __LINE__)

static inline struct answer assert_asked(enum dyt_status want,
                                         const struct peer *peer,
                                         struct order order, int fd, int line)
{
    struct answer answer = ask(peer, order, fd);

    if (answer.status != want) {
        print_error("line %d: the peer says %s: %s\n", line,
                    dyt_status_name(answer.status), answer.text);
        _fail(__FILE__, line);
    }
    return answer;
}

/* It ends, and has left nothing. */
static inline void peer_end(struct peer *peer)
{
    int code = -1;

    close(peer->socket);
    assert_int_equal(peer->pid, waitpid(peer->pid, &code, 0));
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
}

static inline void peer_kill(struct peer *peer)
{
    assert_int_equal(0, kill(peer->pid, SIGKILL));
    assert_int_equal(peer->pid, waitpid(peer->pid, NULL, 0));
    close(peer->socket);
}

/* All pieces of a loan of this process, one after the other. */
static inline void give_pieces(const struct peer *peer, uint32_t slot,
                               const struct dyti_memory_loan *loan)
{
    uint64_t at = 0, bytes = 0;

    for (uint32_t i = 0; i < loan->piece_count; i++, at += bytes) {
        struct answer answer;
        int fd = -1;

        assert_ok(ops->lend_piece(loan, at, &bytes, &fd));
        answer = assert_asked(
            DYT_OK, peer,
            (struct order){.what = ORDER_PIECE, .slot = slot, .bytes = bytes},
            fd, __LINE__);
        close(fd);
        assert_int_equal(loan->piece_count - 1 - i, answer.wanted);
    }
    assert_int_equal(loan->piece_count == 0 ? 0 : loan->span, at);
}

/* ---- being it ------------------------------------------------------------ */

struct peer_state {
    struct dyti_memory_borrowed slot[SLOTS];
    struct foreign own;
};

static inline enum dyt_status status_of(bool good)
{
    return good ? DYT_OK
                : DYTI_FAIL(DYT_ERR_VERIFY, "other words, or no access: %s",
                            gpusim_fault_text());
}

static inline void peer_machine(const struct order *order)
{
    struct gpusim_machine m;

    gpusim_get_machine(&m);
    m.device_count = (int)order->value;
    for (int i = 0; i < (int)order->value; i++) {
        m.hardware[i] = ((int)order->bytes + i) % (int)GPUSIM_DEVICES;
    }
    gpusim_set_machine(&m);
}

static inline enum dyt_status obey(struct peer_state *s,
                                   const struct order *order, int fd,
                                   struct answer *answer)
{
    struct dyti_memory_borrowed *b = &s->slot[order->slot];

    switch (order->what) {
    case ORDER_BORROW:
        return ops->borrow(&order->loan, b);
    case ORDER_PIECE:
        return ops->borrow_piece(b, order->bytes, fd);
    case ORDER_ARE:
        return status_of(
            words_are(b->ptr, b->bytes, order->value, order->grown));
    case ORDER_GROW:
        return status_of(words_grow(b->ptr, b->bytes));
    case ORDER_GIVE_BACK:
        ops->give_back(b);
        return DYT_OK;
    case ORDER_FILES:
        answer->number = dyt_open_files();
        return DYT_OK;
    case ORDER_LEND:
        s->own = foreign_allocated(order->bytes);
        return words_put(foreign_at(&s->own, 0), order->bytes, order->value)
                   ? ops->lend(foreign_at(&s->own, 0), order->bytes,
                               &answer->loan)
                   : DYT_ERR_DEVICE;
    case ORDER_FREE:
        foreign_free(&s->own);
        return DYT_OK;
    case ORDER_MACHINE:
        peer_machine(order);
        return DYT_OK;
    case ORDER_USE:
        return ops->use(order->loan.device);
    default:
        gpusim_fail_call(NULL, order->value, 0);
        return DYT_OK;
    }
}

/* The main() of a peer. */
static inline int be_peer(const char *socket_word)
{
    int socket = (int)strtol(socket_word, NULL, 10), fd = -1;
    struct peer_state s = {0};
    struct order order;
    bool good = ops->use(NULL) == DYT_OK;

    while (good && receive_order(socket, &order, &fd)) {
        struct answer answer = {0};

        answer.status = obey(&s, &order, fd, &answer);
        if (fd >= 0) {
            close(fd);
        }
        if (answer.status != DYT_OK) {
            snprintf(answer.text, sizeof(answer.text), "%s", dyti_error_text());
        }
        answer.wanted = s.slot[order.slot].wanted;
        answer.has_failed = gpusim_has_failed();
        good = send(socket, &answer, sizeof(answer), MSG_NOSIGNAL) ==
               (ssize_t)sizeof(answer);
    }
    return good && gpusim_unexpected() == 0 && gpusim_leaks() == 0 ? 0 : 1;
}

/* As DYT_TEST_MAIN, of a program that may be a peer. */
#define LEND_TEST_MAIN(tests)                                                  \
    int main(int argc, char **argv)                                            \
    {                                                                          \
        if (argc == 3 && strcmp(argv[1], PEER) == 0) {                         \
            return be_peer(argv[2]);                                           \
        }                                                                      \
        return dyt_test_verdict(                                               \
            cmocka_run_group_tests_name(__FILE__, (tests), NULL, NULL));       \
    }

/* "simulated gpu  " and its number */
#define UUID_OF(number) "GPU-73696d75-6c61-7465-6420-6770752020" number

static inline struct dyti_memory_loan lent(const void *at, uint64_t bytes)
{
    struct dyti_memory_loan loan = {0};

    assert_ok(ops->lend(at, bytes, &loan));
    return loan;
}

static inline int lend_setup(void **state)
{
    dyt_sim_setup(state);
    return ops->use(NULL) == DYT_OK ? 0 : -1;
}

#define lend_test(function)                                                    \
    cmocka_unit_test_setup_teardown(function, lend_setup, dyt_sim_teardown)

#endif /* DYT_GPUSIM_LEND_CASE_H */
