/* Links whose members are on several hosts, or on another than the manager's:
 * who shares which control segment, and how members find each other before they
 * are connected.  What each leaves for the others goes by way of the manager,
 * while the hand opens the link. */
#include "lib/session_internal.h"

#include "lib/module.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD_BYTES 64u /* of a part of a region, written last */

static enum dyt_status send_meet(struct dyt_session *s,
                                 const struct dyti_session_link *k,
                                 enum dyti_meet what, const void *bytes,
                                 uint32_t byte_count)
{
    struct dyti_envelope e = dyti_hub_client_stamp(s->client, DYTI_MSG_MEET, 0);
    struct dyti_msg_meet m = {
        .link = k->open.link, .rank = k->open.rank, .what = what};
    struct dyti_buffer buffer;
    enum dyt_status st;

    m.bytes = malloc(byte_count + 1u);
    if (m.bytes == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a message");
    }
    memcpy(m.bytes, bytes, byte_count);
    m.byte_count = byte_count;
    st = dyti_session_send(s, dyti_wire_meet_encode(&e, &m, &buffer), &buffer);
    free(m.bytes);
    return st;
}

/* ---- the control segment ------------------------------------------------- */

static void set_control(struct dyt_session *s, struct dyti_session_link *k,
                        void *control)
{
    pthread_mutex_lock(&s->lock);
    k->control = control;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* A segment that process `pid` of this host has made. */
static enum dyt_status open_other(struct dyt_session *s,
                                  struct dyti_session_link *k, uint32_t pid,
                                  int32_t number)
{
    char path[64];
    void *control = NULL;
    int fd;
    enum dyt_status st;

    snprintf(path, sizeof(path), "/proc/%u/fd/%d", pid, number);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return DYTI_FAIL(DYT_ERR_IO,
                         "the control segment %s: %s (another user or "
                         "container? then give each its own host name)",
                         path, strerror(errno));
    }
    st = dyti_link_control_map(fd, k->control_members, &control);
    close(fd);
    if (st == DYT_OK) {
        set_control(s, k, control);
    }
    return st;
}

/* For this one and those of its host. */
static enum dyt_status make_control(struct dyt_session *s,
                                    struct dyti_session_link *k)
{
    void *control = NULL;
    enum dyt_status st =
        dyti_link_control_make(k->control_members, &k->control_fd);

    st = st != DYT_OK ? st
                      : dyti_link_control_map(k->control_fd, k->control_members,
                                              &control);
    if (st == DYT_OK) {
        set_control(s, k, control);
    }
    return st;
}

static bool has_control(struct dyt_session *s, void *arg)
{
    const struct dyti_session_link *k = arg;

    return k->control != NULL || k->called_off || s->ending;
}

enum dyt_status dyti_session_hosts_await(struct dyt_session *s,
                                         struct dyti_session_link *k)
{
    int64_t until = dyti_session_now() + s->timeout_ns;
    enum dyt_status st = DYT_OK;

    pthread_mutex_lock(&s->lock);
    if (dyti_session_wait(s, until, false, has_control, k) != DYT_OK) {
        st = DYTI_FAIL(DYT_ERR_TIMEOUT,
                       "the first member of this host made no control segment");
    } else if (k->control == NULL) {
        st = DYTI_FAIL(DYT_ERR_PEER, "another member of the link has failed");
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

void dyti_session_call_off(struct dyt_session *s, struct dyti_session_link *k,
                           uint32_t rank, enum dyt_status status)
{
    void *control;

    pthread_mutex_lock(&s->lock);
    k->called_off = true;
    control = k->control;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (control != NULL) {
        (void)dyti_link_abort_at(control, k->control_members, rank, status);
    }
}

/* ---- the group's region -------------------------------------------------- */

/* From a thread of the group's. */
static void region_changed(void *arg)
{
    struct dyti_session_link *k = arg;

    atomic_store(&k->told, true);
    dyti_session_wake(k->session);
}

static enum dyt_status open_apart(struct dyt_session *s,
                                  struct dyti_session_link *k)
{
    const struct dyti_module *module = NULL;
    enum dyt_status st = dyti_module_open("gloo", &module);

    if (st != DYT_OK) {
        DYTI_NOTE("a link to another host");
        return st;
    }
    if (s->params.host_address == NULL && s->host_address[0] == '\0') {
        dyti_host_address(s->params.address, s->host_address,
                          sizeof(s->host_address));
    }
    k->apart = (struct dyti_link_apart){
        .island = k->island,
        .module = module,
        .shared_bytes = module->group->region_bytes(k->control_members),
        .changed = region_changed,
        .changed_arg = k,
        .address = s->params.host_address != NULL ? s->params.host_address
                                                  : s->host_address};
    k->apart.shared = calloc(1, k->apart.shared_bytes + 1u);
    return k->apart.shared != NULL ? DYT_OK
                                   : DYTI_FAIL(DYT_ERR_NOMEM, "a group");
}

static uint64_t part_bytes(const struct dyti_session_link *k)
{
    return k->apart.shared_bytes / k->control_members;
}

enum dyt_status dyti_session_hosts_tell(struct dyt_session *s,
                                        struct dyti_session_link *k)
{
    uint64_t bytes;

    if (k->apart.module == NULL || k->open.member_count == 0 ||
        !atomic_exchange(&k->told, false)) {
        return DYT_OK;
    }
    bytes = part_bytes(k);
    return send_meet(s, k, DYTI_MEET_REGION,
                     (const char *)k->apart.shared + k->rank * bytes,
                     (uint32_t)bytes);
}

/* The head, which counts what is behind it, last. */
static void take_region(struct dyti_session_link *k,
                        const struct dyti_msg_meet *m)
{
    uint64_t bytes = part_bytes(k);
    unsigned char *at;

    if (k->apart.module == NULL || m->byte_count != bytes ||
        bytes < HEAD_BYTES) {
        return;
    }
    at = (unsigned char *)k->apart.shared + m->rank * bytes;
    memcpy(at + HEAD_BYTES, m->bytes + HEAD_BYTES, bytes - HEAD_BYTES);
    atomic_thread_fence(memory_order_release);
    memcpy(at, m->bytes, HEAD_BYTES);
}

/* ---- begin, meet, end ---------------------------------------------------- */

enum dyt_status dyti_session_hosts_begin(struct dyt_session *s,
                                         struct dyti_session_link *k,
                                         const struct dyti_msg_link *m)
{
    uint32_t mine = m->island[m->rank];
    enum dyt_status st = DYT_OK;

    k->control_members = m->member_count;
    k->called_off = false;
    atomic_store(&k->told, false);
    k->open = *m; /* for what is sent; the caller still owns it */
    k->island = malloc(m->member_count * sizeof(*k->island));
    if (k->island == NULL) {
        st = DYTI_FAIL(DYT_ERR_NOMEM, "a link");
        goto out;
    }
    memcpy(k->island, m->island, m->member_count * sizeof(*k->island));
    if (mine == m->manager_island) {
        st = open_other(s, k, m->pid, m->control_fd);
    } else if (mine == m->rank) {
        int32_t number;

        st = make_control(s, k);
        number = k->control_fd;
        st = st != DYT_OK
                 ? st
                 : send_meet(s, k, DYTI_MEET_CONTROL, &number, sizeof(number));
    }
    if (st == DYT_OK && m->apart) {
        st = open_apart(s, k);
    }
out:
    memset(&k->open, 0, sizeof(k->open));
    return st;
}

/* Late ones are harmless. */
enum dyt_status dyti_session_on_meet(struct dyt_session *s,
                                     const struct dyti_hub_frame *f)
{
    struct dyti_session_link *k;
    struct dyti_msg_meet m;
    enum dyt_status st =
        dyti_wire_meet_decode(f->buffer.bytes, f->buffer.size_bytes, &m);

    if (st != DYT_OK) {
        return st;
    }
    k = m.link < s->link_count ? s->link[m.link] : NULL;
    if (k != NULL && k->works && m.rank < k->open.member_count &&
        m.rank != k->rank) {
        if (m.what == DYTI_MEET_REGION) {
            take_region(k, &m);
        } else if (k->control == NULL && k->island[k->rank] == m.rank &&
                   m.byte_count == sizeof(int32_t)) {
            int32_t number;

            memcpy(&number, m.bytes, sizeof(number));
            if (open_other(s, k, k->open.part[m.rank].pid, number) != DYT_OK) {
                dyti_session_call_off(s, k, k->rank, DYT_ERR_IO);
            }
        }
    }
    dyti_msg_meet_fini(&m);
    return DYT_OK;
}

void dyti_session_hosts_end(struct dyti_session_link *k)
{
    dyti_link_control_unmap(k->control, k->control_members);
    k->control = NULL;
    if (k->control_fd >= 0) {
        close(k->control_fd);
        k->control_fd = -1;
    }
    free(k->apart.shared);
    free(k->island);
    k->apart = (struct dyti_link_apart){0};
    k->island = NULL;
}
