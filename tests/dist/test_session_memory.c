/* Memory of a session: rows stay where they are, versions cost nothing that is
 * kept, descriptors do not grow with tensors, and memory that others cannot
 * have or that may not be written is refused when it is published. */
#include "session_members.h"

#include <fcntl.h>
#include <sys/mman.h>

/* ---- what this process has ----------------------------------------------- */

static size_t mappings(void)
{
    size_t n = 0;
    FILE *maps = fopen("/proc/self/maps", "r");

    assert_non_null(maps);
    for (int c = fgetc(maps); c != EOF; c = fgetc(maps)) {
        n += c == '\n';
    }
    fclose(maps);
    return n;
}

static size_t resident_bytes(void)
{
    unsigned long pages = 0, total;
    FILE *file = fopen("/proc/self/statm", "r");

    assert_non_null(file);
    assert_int_equal(2, fscanf(file, "%lu %lu", &total, &pages));
    fclose(file);
    return pages * 4096u;
}

static struct member *with_tensors(const char *folder, uint32_t role,
                                   uint32_t tensors, int64_t elements)
{
    struct member *m = member_new(folder, role, 0, 0, 1);
    char name[NAME_BYTES];

    for (uint32_t t = 0; t < tensors; t++) {
        snprintf(name, sizeof(name), "layers.%u.weight", t);
        WHOLE(m, name, DYT_F32, elements);
    }
    return m;
}

/* ---- addresses ----------------------------------------------------------- */

/* Whoever recorded an address reads the live weights by it for ever; two sets
 * take turns. */
static void rows_stay_where_they_are(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(session_modes); i++) {
        const char *folder = session_folder();
        struct member *t[1] = {with_tensors(folder, DYT_ROLE_TRAINER, 3, 100)};
        struct member *r[1] = {with_tensors(folder, DYT_ROLE_RECEIVER, 3, 100)};
        uint32_t sets = session_modes[i].commit == DYT_COMMIT_DOUBLE ? 2 : 1;
        void *at[2][3] = {{NULL}};

        r[0]->join.commit = session_modes[i].commit;
        r[0]->join.memory = session_modes[i].memory;
        all_ok(t, 1, enter);
        all_ok(r, 1, enter);
        for (uint64_t v = 1; v <= 50; v++) {
            pass_on(t, 1, r, 1, v);
            for (uint64_t row = 0; row < 3; row++) {
                void **was = &at[v % sets][row], *is = NULL;

                assert_ok(dyt_session_row_data(r[0]->session, row, &is));
                assert_true(*was == NULL || *was == is);
                *was = is;
            }
        }
        assert_true(sets == 1 || at[0][0] != at[1][0]);
        all_leave(t, 1, r, 1);
    }
}

/* ---- growth -------------------------------------------------------------- */

/* As with_tensors(), in lines that are a little longer than their tensors. */
static struct member *with_padded(const char *folder, uint32_t tensors,
                                  int64_t elements)
{
    struct member *m = member_new(folder, DYT_ROLE_RECEIVER, 0, 0, 1);
    char name[NAME_BYTES];

    for (uint32_t t = 0; t < tensors; t++) {
        snprintf(name, sizeof(name), "layers.%u.weight", t);
        member_row(m, name, DYT_F32, 2, SHAPE(16, elements / 16),
                   elements / 16 + 8);
        member_piece(m, name, 2, SHAPE(16, elements / 16), 0, 0, 16, 0);
    }
    return m;
}

static struct member *with_lines(const char *folder, uint32_t tensors,
                                 int64_t elements)
{
    struct member *m = member_new(folder, DYT_ROLE_TRAINER, 0, 0, 1);
    char name[NAME_BYTES];

    for (uint32_t t = 0; t < tensors; t++) {
        snprintf(name, sizeof(name), "layers.%u.weight", t);
        WHOLE(m, name, DYT_F32, 16, elements / 16);
    }
    return m;
}

/* The twenty-fourth version, into rows that are larger than what comes, needs
 * what the fourth needed. */
static void versions_leave_nothing_behind(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(session_modes); i++) {
        const char *folder = session_folder();
        int64_t n = dyt_test_instrumented() ? 1 << 10 : 1 << 16;
        struct member *t[1] = {with_lines(folder, 4, n)};
        struct member *r[1] = {with_padded(folder, 4, n)};
        size_t fds = 0, maps = 0, bytes = 0;
        uint64_t scratch = 0;

        r[0]->join.commit = session_modes[i].commit;
        r[0]->join.memory = session_modes[i].memory;
        all_ok(t, 1, enter);
        all_ok(r, 1, enter);
        for (uint64_t v = 1; v <= 24; v++) {
            pass_on(t, 1, r, 1, v);
            if (v == 4) {
                fds = dyt_open_files();
                maps = mappings();
                bytes = resident_bytes();
                scratch = r[0]->report.scratch_bytes;
            }
        }
        assert_int_equal(fds, dyt_open_files());
        assert_int_equal(scratch, r[0]->report.scratch_bytes);
        if (!dyt_test_instrumented()) {
            /* threads come and go, with stacks and heaps of their own */
            assert_true(mappings() <= maps + 4);
            assert_true(resident_bytes() < bytes + (1u << 20));
        }
        all_leave(t, 1, r, 1);
    }
}

/* As many descriptors for sixty tensors as for one: memory is shared by its
 * pieces, not by the tensor. */
static void descriptors_do_not_grow_with_tensors(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(session_modes); i++) {
        size_t used[2];

        for (int many = 0; many < 2; many++) {
            const char *folder = session_folder();
            uint32_t tensors = many ? MEMBER_ROWS : 1;
            struct member *t[1] = {
                with_tensors(folder, DYT_ROLE_TRAINER, tensors, 9)};
            struct member *r[1] = {
                with_tensors(folder, DYT_ROLE_RECEIVER, tensors, 9)};

            r[0]->join.commit = session_modes[i].commit;
            r[0]->join.memory = session_modes[i].memory;
            all_ok(t, 1, enter);
            all_ok(r, 1, enter);
            pass_on(t, 1, r, 1, 1);
            pass_on(t, 1, r, 1, 2);
            used[many] = dyt_open_files();
            all_leave(t, 1, r, 1);
        }
        assert_int_equal(used[0], used[1]);
    }
}

/* A model of 18,000 small tensors, each with a name and an allocation's place
 * of its own. */
#define TINY      18000u
#define TINY_EACH 16u /* elements */

struct tiny {
    struct dyt_session *session;
    struct dyt_row *row;
    char (*name)[32];
    float *data;
    size_t bytes;
    int fd; /* that all of them lie in; -1: private */
};

static void allocate_tiny(struct tiny *t, uint32_t tensors, bool in_file)
{
    t->fd = in_file ? memfd_create("tiny", MFD_CLOEXEC) : -1;
    t->bytes = (size_t)tensors * TINY_EACH * 2 * sizeof(*t->data);
    assert_int_equal(0, in_file ? ftruncate(t->fd, (off_t)t->bytes) : 0);
    t->data =
        mmap(NULL, t->bytes, PROT_READ | PROT_WRITE,
             in_file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, t->fd, 0);
    t->row = calloc(tensors, sizeof(*t->row));
    t->name = calloc(tensors, sizeof(*t->name));
    assert_true(t->row != NULL && t->name != NULL && t->data != MAP_FAILED);
}

static void join_tiny(struct tiny *t, const char *folder, uint32_t role,
                      uint32_t tensors, bool in_file)
{
    struct dyt_session_params join = {.struct_size = sizeof(join),
                                      .role = role,
                                      .job = "job",
                                      .timeout_ns = 60 * SECOND};
    struct dyt_view view = {.struct_size = sizeof(view),
                            .row_struct_size = sizeof(*t->row),
                            .row_count = tensors};
    char address[160];

    snprintf(address, sizeof(address), "unix:%s/s.sock", folder);
    join.address = address;
    allocate_tiny(t, tensors, in_file);
    for (uint32_t i = 0; i < tensors; i++) {
        snprintf(t->name[i], sizeof(t->name[i]), "experts.%u.weight", i);
        t->row[i] =
            (struct dyt_row){.struct_size = sizeof(t->row[i]),
                             .kind = DYT_PARAM,
                             .dtype = DYT_F32,
                             .name = t->name[i],
                             .ndim = 1,
                             .shape = {TINY_EACH},
                             .data = t->data + i * 2 * TINY_EACH,
                             .fd = t->fd,
                             .fd_offset = i * 2 * TINY_EACH * sizeof(*t->data)};
    }
    view.row = t->row;
    assert_ok(dyt_session_join(&join, &t->session));
    assert_ok(dyt_session_publish(t->session, &view, NULL));
}

static void leave_tiny(struct tiny *t)
{
    dyt_session_leave(t->session);
    free(t->row);
    free(t->name);
    munmap(t->data, t->bytes);
    if (t->fd >= 0) {
        close(t->fd);
    }
}

/* Descriptors in use after two versions of so many tensors. */
static size_t used_by_tiny(uint32_t tensors, bool in_file)
{
    const char *folder = session_folder();
    struct tiny t, r;
    size_t used;

    join_tiny(&t, folder, DYT_ROLE_TRAINER, tensors, in_file);
    join_tiny(&r, folder, DYT_ROLE_RECEIVER, tensors, in_file);
    for (uint64_t v = 1; v <= 2; v++) {
        struct dyt_offer_params o = {.struct_size = sizeof(o), .version = v};
        dyt_ticket *ticket;

        for (uint32_t i = 0; i < tensors * TINY_EACH * 2; i++) {
            t.data[i] = (float)(i + v);
        }
        assert_ok(dyt_session_offer(t.session, &o, &ticket));
        assert_ok(dyt_session_receive(r.session, v, -1, NULL));
        assert_ok(dyt_ticket_wait(ticket, -1));
        dyt_ticket_destroy(ticket);
        for (uint32_t i = 0; i < tensors * TINY_EACH * 2; i++) {
            bool held = i / TINY_EACH % 2 == 0; /* and gaps between them */

            assert_true(r.data[i] == (held ? (float)(i + v) : 0.0f));
        }
    }
    used = dyt_open_files();
    leave_tiny(&r);
    leave_tiny(&t);
    return used;
}

static void eighteen_thousand_tensors_need_the_descriptors_of_one(void **state)
{
    (void)state;
    assert_int_equal(used_by_tiny(1, false), used_by_tiny(TINY, false));
    assert_int_equal(used_by_tiny(1, true), used_by_tiny(TINY, true));
}

/* ---- memory that will not do --------------------------------------------- */

static void all_named(const struct member *m, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        if (strstr(m->text, m->name[i]) == NULL) {
            fail_msg("row %s is not named: %s", m->name[i], m->text);
        }
    }
}

/* Each row by its name, all that one look can find, before anything has moved.
 */
static void memory_that_will_not_do_is_refused_by_name(void **state)
{
    const char *folder = session_folder();
    struct member *t[1] = {with_tensors(folder, DYT_ROLE_TRAINER, 6, 1024)};
    struct member *r[1], *wrong;
    int pipes[2], shorter = memfd_create("short", MFD_CLOEXEC);
    void *sealed =
        mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *gone = (void *)(uintptr_t)4096; /* never mapped */

    (void)state;
    assert_int_equal(0, pipe2(pipes, O_CLOEXEC));
    assert_int_equal(0, ftruncate(shorter, 100));
    assert_true(sealed != MAP_FAILED);
    all_ok(t, 1, enter);
    wrong = with_tensors(folder, DYT_ROLE_RECEIVER, 6, 1024);
    wrong->row[0].data = sealed; /* read-only */
    wrong->row[1].data = gone;
    wrong->row[2].fd = pipes[0]; /* nothing that can be mapped */
    wrong->row[3].fd = shorter;
    assert_status(DYT_ERR_INVALID, enter(wrong));
    all_named(wrong, 0, 4);
    leave(wrong);
    wrong = with_tensors(folder, DYT_ROLE_RECEIVER, 6, 1024);
    wrong->row[1].data = NULL;
    wrong->row[2].device = (struct dyt_device){
        .struct_size = sizeof(struct dyt_device), .type = 77};
    wrong->row[3].device =
        (struct dyt_device){.struct_size = sizeof(struct dyt_device),
                            .type = DYT_DEVICE_CUDA,
                            .uuid = {1}};
    wrong->row[3].fd = shorter; /* a descriptor is of the host's memory */
    assert_status(DYT_ERR_INVALID, enter(wrong));
    all_named(wrong, 1, 3);
    leave(wrong);
    r[0] = with_tensors(folder, DYT_ROLE_RECEIVER, 6, 1024);
    all_ok(r, 1, enter);
    pass_on(t, 1, r, 1, 1);
    all_leave(t, 1, r, 1);
    close(pipes[0]);
    close(pipes[1]);
    close(shorter);
    munmap(sealed, 4096);
}

static void a_device_whose_module_is_missing_is_refused(void **state)
{
    const char *folder = session_folder();
    const char *modules = getenv("DYNATRAIN_MODULES");
    char before[4096];
    struct member *t[1] = {with_tensors(folder, DYT_ROLE_TRAINER, 2, 64)};
    struct member *wrong;

    (void)state;
    all_ok(t, 1, enter);
    wrong = with_tensors(folder, DYT_ROLE_RECEIVER, 2, 64);
    wrong->row[1].device =
        (struct dyt_device){.struct_size = sizeof(struct dyt_device),
                            .type = DYT_DEVICE_CUDA,
                            .uuid = {1}};
    snprintf(before, sizeof(before), "%s", modules != NULL ? modules : "");
    setenv("DYNATRAIN_MODULES", folder, 1);
    assert_status(DYT_ERR_UNSUPPORTED, enter(wrong));
    setenv("DYNATRAIN_MODULES", before, 1);
    assert_non_null(strstr(wrong->text, "libdynatrain-cuda.so"));
    assert_non_null(strstr(wrong->text, "DYNATRAIN_MODULES"));
    leave(wrong);
    leave(t[0]);
}

/* What is to be re-pointed is looked at as what is published is, and published
 * as it was re-pointed. */
static void rows_are_checked_before_they_are_mapped(void **state)
{
    const char *folder = session_folder();
    struct member *t[1] = {with_tensors(folder, DYT_ROLE_TRAINER, 3, 64)};
    struct member *m = with_tensors(folder, DYT_ROLE_RECEIVER, 3, 64);
    struct dyt_row good[3], first;

    (void)state;
    all_ok(t, 1, enter);
    m->join.commit = DYT_COMMIT_DOUBLE;
    m->join.memory = DYT_MEMORY_MAPPED;
    memcpy(good, m->row, sizeof(good));
    assert_ok(dyt_session_join(&m->join, &m->session));
    assert_status(DYT_ERR_INVALID, dyt_session_map(m->session, m->row, 0));
    assert_error_has("no rows");
    m->row[1].data = (void *)(uintptr_t)4096; /* never mapped */
    assert_status(DYT_ERR_INVALID, dyt_session_map(m->session, m->row, 3));
    assert_error_has("row layers.1.weight");
    m->row[1] = good[1];
    m->row[1].name = NULL;
    assert_status(DYT_ERR_INVALID, dyt_session_map(m->session, m->row, 3));
    m->row[1] = good[1];
    m->row[1].dtype = 99;
    assert_status(DYT_ERR_UNSUPPORTED, dyt_session_map(m->session, m->row, 3));
    m->row[1] = good[1];
    m->row[1].shape[0] = -5;
    assert_status(DYT_ERR_INVALID, dyt_session_map(m->session, m->row, 3));
    m->row[1] = good[1];
    m->row[1].data = NULL; /* nothing to be kept */
    assert_ok(dyt_session_map(m->session, m->row, 3));
    assert_status(DYT_ERR_STATE, dyt_session_map(m->session, m->row, 3));
    /* not in the order in which they got their memory */
    first = m->row[0];
    m->row[0] = m->row[2];
    m->row[2] = first;
    assert_status(DYT_ERR_INVALID, member_publish(m));
    assert_error_has("publish the same rows in the same order");
    m->row[2] = m->row[0];
    m->row[0] = first;
    assert_ok(member_publish(m));
    pass_on(t, 1, &m, 1, 1);
    pass_on(t, 1, &m, 1, 2);
    all_leave(t, 1, &m, 1);
}

/* ---- asleep -------------------------------------------------------------- */

/* A buffer that no version brings (it is computed once) is as it was when
 * memory of ours comes back. */
static void buffers_survive_the_sleep(void **state)
{
    (void)state;
    for (size_t i = 0; i < DYT_TEST_COUNT(session_modes); i++) {
        const char *folder = session_folder();
        struct member *t[1] = {with_tensors(folder, DYT_ROLE_TRAINER, 1, 64)};
        struct member *r[1] = {with_tensors(folder, DYT_ROLE_RECEIVER, 1, 64)};
        float *buffer;

        r[0]->join.commit = session_modes[i].commit;
        r[0]->join.memory = session_modes[i].memory;
        ROW(r[0], "rotary_emb.inv_freq", DYT_F32, 16); /* of no tensor */
        r[0]->row[1].flags |= DYT_ROW_OPTIONAL;
        all_ok(t, 1, enter);
        all_ok(r, 1, enter);
        for (uint64_t v = 1; v <= 3; v++) {
            pass_on(t, 1, r, 1, v);
            assert_ok(dyt_session_release(r[0]->session, DYT_TAG_WEIGHTS));
            assert_ok(dyt_session_restore(r[0]->session, DYT_TAG_WEIGHTS));
            buffer = r[0]->row[1].data;
            for (int k = 0; k < 16; k++) {
                assert_true(buffer[k] == UNTOUCHED);
            }
        }
        pass_on(t, 1, r, 1, 4);
        all_leave(t, 1, r, 1);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rows_stay_where_they_are),
    cmocka_unit_test(versions_leave_nothing_behind),
    cmocka_unit_test(descriptors_do_not_grow_with_tensors),
    cmocka_unit_test(eighteen_thousand_tensors_need_the_descriptors_of_one),
    cmocka_unit_test(memory_that_will_not_do_is_refused_by_name),
    cmocka_unit_test(a_device_whose_module_is_missing_is_refused),
    cmocka_unit_test(rows_are_checked_before_they_are_mapped),
    cmocka_unit_test(buffers_survive_the_sleep),
};
DYT_TEST_MAIN(tests)
