/* Members of a session (session_members.h) whose rows lie on a device: each row
 * has a twin there, the row itself stays as what tests write and look at. */
#ifndef DYT_SESSION_DEVICE_H
#define DYT_SESSION_DEVICE_H

#include "session_members.h"
#include "sim_test.h"

#include "ops/module.h"

#include "device/cuda/memory.h"
#include "device/cuda/table.h"
#include "mover/direct_cuda/direct_cuda.h"

/* A member, and where its rows are. */
struct party {
    struct member *m;
    void *there[MEMBER_ROWS]; /* NULL: on the host */
    bool mixed;               /* every other row stays on the host */
    /* How memory of the device is made, and freed; NULL: by cudaMalloc. */
    void *(*allocate)(size_t bytes);
    void (*release)(void *memory);
    cudaStream_t stream;
    cudaEvent_t event;
};

/* What the module shows (module_program.c), and how often it was opened. */
static int modules_opened;

__attribute__((visibility("default"))) const struct dyti_module *
dyt_program_module(void);

const struct dyti_module *dyt_program_module(void)
{
    static const struct dyti_module module = {.struct_size = sizeof(module),
                                              .abi = DYTI_MODULE_ABI,
                                              .name = "cuda",
                                              .memory = &dyti_memory_cuda,
                                              .kernels = &dyti_kernels_cuda,
                                              .mover = &dyti_mover_direct_cuda,
                                              .error_message =
                                                  dyti_error_message};

    modules_opened++;
    return &module;
}

/* ---- rows ---------------------------------------------------------------- */

static inline size_t row_bytes(const struct member *m, uint32_t r)
{
    return row_elements(&m->row[r]) * element_bytes(&m->row[r]);
}

/* The device of some memory, by the digits of its name. */
static inline struct dyt_device device_of(const void *memory,
                                          cudaStream_t stream)
{
    struct dyt_device device = {.struct_size = sizeof(device),
                                .type = DYT_DEVICE_CUDA,
                                .stream = stream};
    struct dyti_memory_look look = {0};
    const char *at = look.device;
    size_t digits = 0;

    assert_ok(dyti_memory_cuda.look(memory, 1, &look));
    for (at += strcspn(at, "-"); *at != '\0'; at++) {
        int digit = *at >= 'a' ? *at - 'a' + 10 : *at - '0';

        if (*at != '-' && digits < 32) {
            device.uuid[digits / 2] =
                (uint8_t)(device.uuid[digits / 2] * 16 + digit);
            digits++;
        }
    }
    assert_int_equal(32, digits);
    return device;
}

/* What the host has goes to the device, in the member's stream. */
static inline void send_rows(struct party *p)
{
    for (uint32_t r = 0; r < p->m->rows; r++) {
        if (p->there[r] != NULL) {
            assert_cuda(cudaMemcpyAsync(p->there[r], p->m->own[r],
                                        row_bytes(p->m, r),
                                        cudaMemcpyHostToDevice, p->stream));
        }
    }
}

/* Twins on device `ordinal`, which is the thread's afterwards as before. */
static inline void put_on_device(struct party *p, int ordinal)
{
    int before = 0;

    assert_cuda(cudaGetDevice(&before));
    assert_cuda(cudaSetDevice(ordinal));
    assert_cuda(cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking));
    assert_cuda(cudaEventCreateWithFlags(&p->event, cudaEventDisableTiming));
    for (uint32_t r = 0; r < p->m->rows; r++) {
        if (p->mixed && r % 2 == 1) {
            continue;
        }
        p->there[r] = p->allocate != NULL ? p->allocate(row_bytes(p->m, r))
                                          : dyt_sim_alloc(row_bytes(p->m, r));
        p->m->row[r].data = p->there[r];
        p->m->row[r].device = device_of(p->there[r], p->stream);
    }
    send_rows(p); /* values of elements that are of no tensor */
    assert_cuda(cudaStreamSynchronize(p->stream));
    assert_cuda(cudaSetDevice(before));
}

/* Without waiting for it. */
static inline void write_there(struct party *p, uint64_t version)
{
    for (uint32_t r = 0; r < p->m->rows; r++) {
        p->m->row[r].data = p->m->own[r];
    }
    write_version(p->m, version);
    for (uint32_t r = 0; r < p->m->rows; r++) {
        if (p->there[r] != NULL) {
            p->m->row[r].data = p->there[r];
        }
    }
    send_rows(p);
    if (p->event != NULL) {
        assert_cuda(cudaEventRecord(p->event, p->stream));
    }
}

/* Are all elements of this version, and is all else as it was? */
static inline bool holds_there(struct party *p, uint64_t version)
{
    bool ok = true;

    for (uint32_t r = 0; r < p->m->rows && ok; r++) {
        size_t n = row_elements(&p->m->row[r]);
        void *at = p->there[r], *copy = NULL;
        float rest = p->m->padded[r] ? 0.0f : UNTOUCHED;
        struct version_check c = {.version = version,
                                  .data = copy,
                                  .seen = calloc(n + 1u, 1),
                                  .member = p->m};

        if (at != NULL && p->m->join.memory == DYT_MEMORY_MAPPED) {
            assert_ok(dyt_session_row_data(p->m->session, r, &at));
        }
        if (at != NULL) {
            c.data = copy = dyt_sim_get(at, row_bytes(p->m, r));
        }
        if (copy == NULL) {
            ok = row_holds(p->m, r, version);
        } else {
            assert_non_null(c.seen);
            ok = visit_row(p->m, r, check_element, &c);
            for (size_t i = 0; i < n && ok; i++) {
                ok = c.seen[i] || get(&p->m->row[r], copy, i) == rest;
            }
        }
        if (!ok) {
            print_error("row %s is not version %" PRIu64 "\n",
                        p->m->row[r].name, version);
        }
        free(copy);
        free(c.seen);
    }
    return ok;
}

static inline void end_party(struct party *p)
{
    if (p->m == NULL) {
        return;
    }
    dyt_session_leave(p->m->session);
    p->m->session = NULL;
    for (uint32_t r = 0; r < p->m->rows; r++) {
        if (p->there[r] != NULL && p->release != NULL) {
            p->release(p->there[r]);
        } else if (p->there[r] != NULL) {
            assert_cuda(cudaFree(p->there[r]));
        }
    }
    leave(p->m);
    if (p->stream != NULL) {
        assert_cuda(cudaStreamDestroy(p->stream));
        assert_cuda(cudaEventDestroy(p->event));
    }
    memset(p, 0, sizeof(*p));
}

#endif /* DYT_SESSION_DEVICE_H */
