/* join, joined, order, report, request, answer, status: what is small. */
#include "wire/session.h"

#include "wire/define.h"

#include <stdlib.h>
#include <string.h>

static uint32_t read_u32(struct dyti_reader *r, const char *field)
{
    return (uint32_t)dyti_read_u64(r, field, UINT32_MAX);
}

/* ---- join ---------------------------------------------------------------- */

static void write_join(struct dyti_writer *w, const struct dyti_msg_join *m)
{
    const uint32_t number[] = {m->role,    m->replica, m->rank,
                               m->size,    m->tp_rank, m->tp_size,
                               m->pp_rank, m->pp_size, m->dp_rank,
                               m->dp_size, m->ep_rank, m->ep_size,
                               m->commit,  m->mapped,  m->verify,
                               m->policy,  m->quorum,  m->max_version_skew};

    dyti_write_array(w, 3 + sizeof(number) / sizeof(number[0]) + 5);
    dyti_write_text(w, m->job);
    dyti_write_text(w, m->pool);
    dyti_write_text(w, m->host_name);
    for (size_t i = 0; i < sizeof(number) / sizeof(number[0]); i++) {
        dyti_write_u64(w, number[i]);
    }
    dyti_write_u64(w, m->host);
    dyti_write_u64(w, m->pid);
    dyti_write_u64(w, m->pid_start);
    dyti_write_i64(w, m->timeout_ns);
    dyti_write_text(w, m->no_crossing);
}

static void read_join(struct dyti_reader *r, struct dyti_msg_join *m)
{
    m->job = dyti_read_text(r, "job");
    m->pool = dyti_read_text(r, "pool");
    m->host_name = dyti_read_text(r, "host name");
    m->role = (uint32_t)dyti_read_u64(r, "role", 1);
    m->replica = read_u32(r, "replica");
    m->rank = read_u32(r, "rank");
    m->size = read_u32(r, "size");
    m->tp_rank = read_u32(r, "tp rank");
    m->tp_size = read_u32(r, "tp size");
    m->pp_rank = read_u32(r, "pp rank");
    m->pp_size = read_u32(r, "pp size");
    m->dp_rank = read_u32(r, "dp rank");
    m->dp_size = read_u32(r, "dp size");
    m->ep_rank = read_u32(r, "ep rank");
    m->ep_size = read_u32(r, "ep size");
    m->commit = (uint32_t)dyti_read_u64(r, "commit", DYT_COMMIT_IN_PLACE);
    m->mapped = (uint32_t)dyti_read_u64(r, "memory", 1);
    m->verify = (uint32_t)dyti_read_u64(r, "verify", DYT_VERIFY_OFF);
    m->policy = (uint32_t)dyti_read_u64(r, "policy", DYT_POLICY_QUORUM);
    m->quorum = read_u32(r, "quorum");
    m->max_version_skew = read_u32(r, "version skew");
    m->host = dyti_read_u64(r, "host", UINT64_MAX);
    m->pid = read_u32(r, "pid");
    m->pid_start = dyti_read_u64(r, "start time", UINT64_MAX);
    m->timeout_ns = dyti_read_i64(r, "timeout");
    m->no_crossing = dyti_read_text(r, "crossing");
}

void dyti_msg_join_fini(struct dyti_msg_join *m)
{
    free(m->job);
    free(m->pool);
    free(m->host_name);
    free(m->no_crossing);
    memset(m, 0, sizeof(*m));
}

DYTI_WIRE_DEFINE(join)

/* ---- joined -------------------------------------------------------------- */

static void write_joined(struct dyti_writer *w, const struct dyti_msg_joined *m)
{
    dyti_write_array(w, 4);
    dyti_write_u64(w, m->member);
    dyti_write_u64(w, m->host);
    dyti_write_u64(w, m->pid);
    dyti_write_u64(w, m->pid_start);
}

static void read_joined(struct dyti_reader *r, struct dyti_msg_joined *m)
{
    m->member = (uint32_t)dyti_read_u64(r, "member", INT32_MAX);
    m->host = dyti_read_u64(r, "host", UINT64_MAX);
    m->pid = read_u32(r, "pid");
    m->pid_start = dyti_read_u64(r, "start time", UINT64_MAX);
}

void dyti_msg_joined_fini(struct dyti_msg_joined *m)
{
    memset(m, 0, sizeof(*m));
}

DYTI_WIRE_DEFINE(joined)

/* ---- order, report ------------------------------------------------------- */

static void write_order(struct dyti_writer *w, const struct dyti_msg_order *m)
{
    dyti_write_array(w, 7);
    dyti_write_u64(w, m->what);
    dyti_write_u64(w, m->link);
    dyti_write_u64(w, m->epoch);
    dyti_write_u64(w, m->version);
    dyti_write_u64(w, m->from_sibling);
    dyti_write_u64(w, m->rank);
    dyti_write_i64(w, m->status);
}

static void read_order(struct dyti_reader *r, struct dyti_msg_order *m)
{
    m->what = (uint32_t)dyti_read_u64(r, "order", DYTI_ORDER_COUNT - 1);
    m->link = read_u32(r, "link");
    m->epoch = dyti_read_u64(r, "epoch", UINT64_MAX);
    m->version = dyti_read_u64(r, "version", UINT64_MAX);
    m->from_sibling = (uint32_t)dyti_read_u64(r, "source", 1);
    m->rank = read_u32(r, "rank");
    m->status = dyti_read_i32(r, "status");
}

void dyti_msg_order_fini(struct dyti_msg_order *m)
{
    memset(m, 0, sizeof(*m));
}

DYTI_WIRE_DEFINE(order)

static void write_report(struct dyti_writer *w, const struct dyti_msg_report *m)
{
    dyti_write_array(w, 10);
    dyti_write_u64(w, m->link);
    dyti_write_u64(w, m->epoch);
    dyti_write_i64(w, m->status);
    dyti_write_text(w, m->text);
    dyti_write_bool(w, m->committed);
    dyti_write_bool(w, m->broken);
    dyti_write_u64(w, m->live_set);
    dyti_write_u64(w, m->moved_bytes);
    dyti_write_bool(w, m->direct);
    dyti_write_text(w, m->indirect);
}

static void read_report(struct dyti_reader *r, struct dyti_msg_report *m)
{
    m->link = read_u32(r, "link");
    m->epoch = dyti_read_u64(r, "epoch", UINT64_MAX);
    m->status = dyti_read_i32(r, "status");
    m->text = dyti_read_text(r, "text");
    m->committed = dyti_read_bool(r, "committed");
    m->broken = dyti_read_bool(r, "broken");
    m->live_set = (uint32_t)dyti_read_u64(r, "live set", 1);
    m->moved_bytes = dyti_read_u64(r, "moved bytes", UINT64_MAX);
    m->direct = dyti_read_bool(r, "direct");
    m->indirect = dyti_read_text(r, "indirect");
}

void dyti_msg_report_fini(struct dyti_msg_report *m)
{
    free(m->text);
    free(m->indirect);
    memset(m, 0, sizeof(*m));
}

DYTI_WIRE_DEFINE(report)

/* ---- request, answer ----------------------------------------------------- */

static void write_request(struct dyti_writer *w,
                          const struct dyti_msg_request *m)
{
    dyti_write_array(w, 7);
    dyti_write_u64(w, m->what);
    dyti_write_u64(w, m->version);
    dyti_write_bool(w, m->snapshot);
    dyti_write_bool(w, m->takes);
    dyti_write_i64(w, m->status);
    dyti_write_text(w, m->text);
    dyti_write_bool(w, m->renewed);
}

static void read_request(struct dyti_reader *r, struct dyti_msg_request *m)
{
    m->what = (uint32_t)dyti_read_u64(r, "request", DYTI_REQUEST_COUNT - 1);
    m->version = dyti_read_u64(r, "version", UINT64_MAX);
    m->snapshot = dyti_read_bool(r, "snapshot");
    m->takes = dyti_read_bool(r, "takes");
    m->status = dyti_read_i32(r, "status");
    m->text = dyti_read_text(r, "text");
    m->renewed = dyti_read_bool(r, "renewed");
}

void dyti_msg_request_fini(struct dyti_msg_request *m)
{
    free(m->text);
    memset(m, 0, sizeof(*m));
}

DYTI_WIRE_DEFINE(request)

static void write_answer(struct dyti_writer *w, const struct dyti_msg_answer *m)
{
    dyti_write_array(w, 4);
    dyti_write_u64(w, m->what);
    dyti_write_u64(w, m->version);
    dyti_write_i64(w, m->status);
    dyti_write_text(w, m->text);
}

static void read_answer(struct dyti_reader *r, struct dyti_msg_answer *m)
{
    m->what = (uint32_t)dyti_read_u64(r, "answer", DYTI_ANSWER_COUNT - 1);
    m->version = dyti_read_u64(r, "version", UINT64_MAX);
    m->status = dyti_read_i32(r, "status");
    m->text = dyti_read_text(r, "text");
}

void dyti_msg_answer_fini(struct dyti_msg_answer *m)
{
    free(m->text);
    memset(m, 0, sizeof(*m));
}

DYTI_WIRE_DEFINE(answer)

/* ---- status -------------------------------------------------------------- */

static void write_status(struct dyti_writer *w, const struct dyti_msg_status *m)
{
    dyti_write_array(w, 1);
    dyti_write_text(w, m->json);
}

static void read_status(struct dyti_reader *r, struct dyti_msg_status *m)
{
    m->json = dyti_read_text(r, "JSON");
}

void dyti_msg_status_fini(struct dyti_msg_status *m)
{
    free(m->json);
    memset(m, 0, sizeof(*m));
}

DYTI_WIRE_DEFINE(status)
