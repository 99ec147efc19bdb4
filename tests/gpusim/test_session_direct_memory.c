/* A trainer and a server in processes of their own, each with memory of one of
 * the kinds that frameworks have: allocations, expandable segments with rows
 * across their pieces, stream-ordered pools.  What can be had goes direct, by
 * whoever can have it; the rest by mirrors, and it is said why. */
#include "lend_case.h"
#include "session_scene.h"

#include "lib/session_device.h"

#include <sys/prctl.h>
#include <sys/wait.h>

/* ---- kinds --------------------------------------------------------------- */

static struct foreign segment[MEMBER_ROWS];
static uint32_t segments;

/* Half of it on either side of a border. */
static void *from_pieces(size_t bytes)
{
    static const uint64_t piece[] = {2 * MIB, 2 * MIB};
    struct foreign *f = &segment[segments++];

    *f = foreign_mapped(0, piece, 2, 3);
    return foreign_at(f, 2 * MIB - bytes / 512 * 256);
}

static void to_pieces(void *memory)
{
    for (uint32_t i = 0; i < segments; i++) {
        struct foreign *f = &segment[i];

        if (f->count > 0 && (uintptr_t)memory >= f->at &&
            (uintptr_t)memory < f->at + f->bytes) {
            foreign_free(f);
            f->count = 0;
        }
    }
}

static void *from_pool(size_t bytes)
{
    void *memory = NULL;

    assert_cuda(cudaMallocAsync(&memory, bytes, NULL));
    assert_cuda(cudaDeviceSynchronize());
    return memory;
}

static void to_pool(void *memory)
{
    assert_cuda(cudaFree(memory));
}

static const struct kind {
    const char *name;
    void *(*allocate)(size_t bytes);
    void (*release)(void *memory);
} kinds[] = {{"allocations", NULL, NULL},
             {"pieces", from_pieces, to_pieces},
             {"a pool", from_pool, to_pool}};

#define POOL 2u

/* ---- a pair of processes ------------------------------------------------- */

struct pair {
    struct scene s;
    const struct mode *mode;
    uint32_t from, to; /* kinds of the trainer's, of the server's memory */
    int server[2];     /* a pipe that the server holds open as long as it is */
};

/* The trainer hosts the manager, from which the server still hears of the last
 * version when its ticket is done: it goes when the server has. */
static void await_the_server(struct pair *p)
{
    char byte;

    close(p->server[1]);
    (void)!read(p->server[0], &byte, 1);
}

#define must(cond)                                                             \
    do {                                                                       \
        if (!(cond)) {                                                         \
            print_error("%s:%d: %s to %s, %s: not %s: %s\n", __FILE__,         \
                        __LINE__, kinds[p->from].name, kinds[p->to].name,      \
                        p->mode->name, #cond, dyt_error_text());               \
            return 1;                                                          \
        }                                                                      \
    } while (0)

static int be_the_trainer(struct pair *p)
{
    struct party *t = &p->s.trainer[0];

    t->allocate = kinds[p->from].allocate;
    t->release = kinds[p->from].release;
    put_on_device(t, 0);
    must(enter(t->m) == DYT_OK);
    for (t->m->version = 1; t->m->version <= LATEST; t->m->version++) {
        write_there(t, t->m->version);
        must(offer_as_is(t->m) == DYT_OK && end_offer(t->m) == DYT_OK);
    }
    await_the_server(p);
    end_party(t);
    return gpusim_unexpected() == 0 && gpusim_leaks() == 0 ? 0 : 1;
}

static int be_the_server(struct pair *p)
{
    struct party *r = &p->s.receiver[0];
    bool direct = p->from != POOL || p->mode->commit == DYT_COMMIT_STAGED;

    r->allocate = kinds[p->to].allocate;
    r->release = kinds[p->to].release;
    put_on_device(r, 0);
    must(enter(r->m) == DYT_OK);
    for (r->m->version = 1; r->m->version <= LATEST; r->m->version++) {
        must(receive(r->m) == DYT_OK && holds_there(r, r->m->version));
        if (r->m->version == 1) {
            must(is_way(&p->s, direct ? "direct\""
                                      : "by mirrors: member 0: it belongs to "
                                        "a stream-ordered pool"));
        }
        must((dyti_session_mirror_bytes(r->m->session) == 0) == direct);
    }
    end_party(r);
    return gpusim_unexpected() == 0 && gpusim_leaks() == 0 ? 0 : 1;
}

static pid_t start(struct pair *p, int (*body)(struct pair *p))
{
    pid_t child;

    (void)fflush(NULL);
    child = fork(); /* before anybody has started a device */
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(body(p));
    }
    assert_true(child > 0);
    return child;
}

static void play(const struct mode *mode, uint32_t from, uint32_t to)
{
    struct pair p = {.mode = mode, .from = from, .to = to};
    pid_t child[2];
    int status[2] = {-1, -1};

    p.s = with_members(1, 1);
    set_mode(&p.s, mode, DYT_VERIFY_FULL);
    p.s.trainer[0].m->join.timeout_ns = 10 * SECOND;
    p.s.receiver[0].m->join.timeout_ns = 10 * SECOND;
    assert_int_equal(0, pipe2(p.server, O_CLOEXEC));
    child[0] = start(&p, be_the_trainer);
    child[1] = start(&p, be_the_server);
    close(p.server[0]);
    close(p.server[1]);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(child[i], waitpid(child[i], &status[i], 0));
    }
    leave(p.s.trainer[0].m);
    leave(p.s.receiver[0].m);
    if (status[0] != 0 || status[1] != 0) {
        fail_msg("%s to %s, %s: %d and %d", kinds[from].name, kinds[to].name,
                 mode->name, status[0], status[1]);
    }
}

static void every_kind_goes_as_it_can(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < DYT_TEST_COUNT(modes); n++) {
        for (uint32_t from = 0; from < DYT_TEST_COUNT(kinds); from++) {
            play(&modes[n], from, (from + n) % 3);
        }
    }
}

static const struct CMUnitTest tests[] = {
    sim_test(every_kind_goes_as_it_can),
};
DYT_TEST_MAIN(tests)
