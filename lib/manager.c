#include "lib/manager_internal.h"

#include "base/array.h"
#include "lib/link_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 1000 /* a look at the clock, at the least */

int64_t dyti_manager_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void dyti_manager_say(struct dyti_session_manager *m, const char *fmt, ...)
{
    char line[1024];
    va_list args;

    if (m->params.say == NULL) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    m->params.say(m->params.say_arg, line);
}

struct dyti_envelope dyti_manager_envelope(struct dyti_session_manager *m,
                                           enum dyti_message type)
{
    return dyti_hub_stamp(m->hub, type, 0);
}

enum dyt_status dyti_manager_send(struct dyti_session_manager *m,
                                  uint32_t member, enum dyt_status st,
                                  struct dyti_buffer *buffer)
{
    if (st != DYT_OK) {
        return st;
    }
    if (member >= m->member_count || !m->member[member].used) {
        dyti_buffer_fini(buffer);
        return DYT_OK;
    }
    st = dyti_hub_send(m->hub, m->member[member].peer, buffer);
    return st == DYT_ERR_PEER ? DYT_OK : st;
}

/* ---- open, close --------------------------------------------------------- */

enum dyt_status dyti_session_manager_open(
    const struct dyti_manager_params *params,
    struct dyti_session_manager **out_manager)
{
    struct dyti_hub_params hub = {
        .codec = {dyti_wire_envelope, dyti_wire_protocol},
        .key = params->key,
        .authorized = params->authorized};
    struct dyti_session_manager *m = calloc(1, sizeof(*m));
    enum dyt_status st;

    if (m == NULL) {
        return DYTI_FAIL(DYT_ERR_NOMEM, "a job's manager");
    }
    m->params = *params;
    m->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    m->host = dyti_host_named(params->host);
    snprintf(m->job, sizeof(m->job), "%s",
             params->job != NULL ? params->job : "");
    st = m->stop_fd < 0
             ? DYTI_FAIL(DYT_ERR_IO, "eventfd: %s", strerror(errno))
             : dyti_address_parse(params->address, params->job, &hub.address);
    st = st != DYT_OK ? st : dyti_process_self(&m->pid, &m->pid_start);
    st = st != DYT_OK ? st : dyti_fleet_init(&m->fleet);
    st = st != DYT_OK ? st : dyti_hub_open(&hub, &m->hub);
    if (st != DYT_OK) {
        dyti_session_manager_close(m);
        return st;
    }
    m->fleet.policy_given = params->policy_given;
    m->fleet.policy = params->policy;
    m->fleet.quorum = params->quorum;
    m->fleet.skew_given = params->max_version_skew > 0;
    m->fleet.max_version_skew = params->max_version_skew;
    *out_manager = m;
    return DYT_OK;
}

void dyti_managed_fini(struct dyti_managed *d)
{
    if (d->pidfd >= 0) {
        close(d->pidfd);
    }
    free(d->no_crossing);
    dyti_msg_rows_fini(&d->rows);
    dyti_msg_part_fini(&d->part[0]);
    dyti_msg_part_fini(&d->part[1]);
    dyti_msg_part_fini(&d->direct[0]);
    dyti_msg_part_fini(&d->direct[1]);
    free(d->indirect);
    free(d->way);
    *d = (struct dyti_managed){.pidfd = -1};
}

void dyti_managed_link_fini(struct dyti_managed_link *link)
{
    for (uint32_t i = 0; link->snapshot != NULL && i < link->source_count;
         i++) {
        dyti_msg_part_fini(&link->snapshot[i]);
    }
    free(link->snapshot);
    free(link->member);
    if (link->control_fd >= 0) {
        close(link->control_fd);
    }
    *link = (struct dyti_managed_link){.control_fd = -1};
}

void dyti_session_manager_close(struct dyti_session_manager *m)
{
    if (m == NULL) {
        return;
    }
    for (size_t i = 0; i < m->link_count; i++) {
        /* nobody waits for a manager that is gone */
        if (m->link[i].used && m->link[i].control_fd >= 0) {
            (void)dyti_link_abort(m->link[i].control_fd,
                                  m->link[i].member_count, 0,
                                  DYT_ERR_CANCELLED);
        }
        dyti_managed_link_fini(&m->link[i]);
    }
    for (size_t i = 0; i < m->member_count; i++) {
        dyti_managed_fini(&m->member[i]);
    }
    dyti_hub_close(m->hub);
    dyti_fleet_fini(&m->fleet);
    dyti_model_destroy(m->catalogue);
    free(m->member);
    free(m->link);
    if (m->stop_fd >= 0) {
        close(m->stop_fd);
    }
    free(m);
}

void dyti_session_manager_stop(struct dyti_session_manager *m)
{
    (void)!write(m->stop_fd, &(uint64_t){1}, sizeof(uint64_t));
}

/* ---- run ----------------------------------------------------------------- */

/* It waits to hear that nothing of it is left here. */
static enum dyt_status part_from(struct dyti_session_manager *m,
                                 uint32_t member)
{
    struct dyti_envelope e = dyti_manager_envelope(m, DYTI_MSG_BYE);
    struct dyti_buffer buffer;

    return dyti_manager_send(m, member, dyti_wire_empty(&e, &buffer), &buffer);
}

enum dyt_status dyti_manager_gone(struct dyti_session_manager *m,
                                  uint32_t member, enum dyt_status status,
                                  const char *text)
{
    struct dyti_fleet_event e = {.kind = DYTI_FLEET_GONE,
                                 .member = member,
                                 .status = status,
                                 .text = text};
    enum dyt_status st = DYT_OK, taken;
    char who[256];

    if (member >= m->member_count || !m->member[member].used) {
        return DYT_OK;
    }
    dyti_fleet_member_text(&m->fleet, member, who, sizeof(who));
    dyti_manager_say(m, "%s %s", who, text != NULL ? text : "left");
    if (status == DYT_OK) {
        st = part_from(m, member);
    }
    dyti_hub_forget(m->hub, m->member[member].peer);
    dyti_managed_fini(&m->member[member]);
    taken = dyti_manager_take(m, &e);
    return st != DYT_OK ? st : taken;
}

enum dyt_status dyti_manager_take(struct dyti_session_manager *m,
                                  const struct dyti_fleet_event *event)
{
    enum dyt_status st = dyti_fleet_take(&m->fleet, event, dyti_manager_now());
    enum dyt_status acted = dyti_manager_act(m);

    return st != DYT_OK ? st : acted;
}

/* Descriptors of one wait: stop, then a pidfd for each member. */
static enum dyt_status descriptors(struct dyti_session_manager *m, int **fd,
                                   size_t *cap)
{
    enum dyt_status st = DYTI_GROW(*fd, *cap, m->member_count + 1);

    if (st != DYT_OK) {
        return st;
    }
    (*fd)[0] = m->stop_fd;
    for (size_t i = 0; i < m->member_count; i++) {
        (*fd)[i + 1] = m->member[i].used ? m->member[i].pidfd : -1;
    }
    return DYT_OK;
}

static int64_t wait_ms(const struct dyti_session_manager *m)
{
    int64_t next = dyti_fleet_next_ns(&m->fleet);
    int64_t left;

    if (next == INT64_MAX) {
        return LOOK_MS;
    }
    left = (next - dyti_manager_now()) / 1000000 + 1;
    return left < 0 ? 0 : left < LOOK_MS ? left : LOOK_MS;
}

/* What a member does wrong is its own trouble: the job goes on. */
static enum dyt_status only_lethal(enum dyt_status st)
{
    return st == DYT_ERR_NOMEM ? st : DYT_OK;
}

enum dyt_status dyti_session_manager_run(struct dyti_session_manager *m)
{
    enum dyt_status st = DYT_OK;
    int *fd = NULL;
    size_t cap = 0;

    while (st == DYT_OK) {
        struct dyti_fleet_event tick = {.kind = DYTI_FLEET_TICK};
        struct dyti_hub_frame frame = {0};
        enum dyti_hub_event event;
        size_t index = 0;

        st = descriptors(m, &fd, &cap);
        st = st != DYT_OK ? st
                          : dyti_hub_wait(m->hub, fd, m->member_count + 1,
                                          wait_ms(m), &event, &frame, &index);
        if (st != DYT_OK) {
            break;
        }
        if (event == DYTI_HUB_FD && index == 0) {
            break;
        }
        if (event == DYTI_HUB_FD) {
            st = dyti_manager_gone(m, (uint32_t)(index - 1), DYT_ERR_PEER,
                                   "died");
        } else if (event == DYTI_HUB_FRAME) {
            st = dyti_manager_frame(m, &frame);
        } else if (dyti_fleet_next_ns(&m->fleet) <= dyti_manager_now()) {
            st = dyti_manager_take(m, &tick);
        }
        st = only_lethal(st);
    }
    free(fd);
    return st;
}
