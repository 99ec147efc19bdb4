/* switch, switch done: one transaction. */
#include "wire/define.h"

#include <string.h>

static void write_switch(struct dyti_writer *w, const struct dyti_msg_switch *m)
{
    dyti_write_array(w, 2);
    dyti_write_u64(w, m->epoch);
    dyti_write_u64(w, m->target);
}

static void read_switch(struct dyti_reader *r, struct dyti_msg_switch *m)
{
    m->epoch = dyti_read_u64(r, "epoch", UINT64_MAX);
    m->target = (uint32_t)dyti_read_u64(r, "target", DYTI_TARGET_TRAIN);
}

void dyti_msg_switch_fini(struct dyti_msg_switch *message)
{
    memset(message, 0, sizeof(*message));
}

DYTI_WIRE_DEFINE(switch)

static void write_switch_done(struct dyti_writer *w,
                              const struct dyti_msg_switch_done *m)
{
    dyti_write_array(w, 12);
    dyti_write_u64(w, m->epoch);
    dyti_write_bool(w, m->committed);
    dyti_write_u64(w, m->kept_bytes);
    dyti_write_u64(w, m->moved_bytes);
    dyti_write_u64(w, m->read_bytes);
    dyti_write_u64(w, m->written_bytes);
    dyti_write_u64(w, m->hashed_bytes);
    dyti_write_i64(w, m->prepare_ns);
    dyti_write_i64(w, m->transfer_ns);
    dyti_write_i64(w, m->verify_ns);
    dyti_write_i64(w, m->commit_ns);
    dyti_write_i64(w, m->post_ns);
}

static void read_switch_done(struct dyti_reader *r,
                             struct dyti_msg_switch_done *m)
{
    m->epoch = dyti_read_u64(r, "epoch", UINT64_MAX);
    m->committed = dyti_read_bool(r, "committed");
    m->kept_bytes = dyti_read_u64(r, "kept bytes", UINT64_MAX);
    m->moved_bytes = dyti_read_u64(r, "moved bytes", UINT64_MAX);
    m->read_bytes = dyti_read_u64(r, "read bytes", UINT64_MAX);
    m->written_bytes = dyti_read_u64(r, "written bytes", UINT64_MAX);
    m->hashed_bytes = dyti_read_u64(r, "hashed bytes", UINT64_MAX);
    m->prepare_ns = dyti_read_i64(r, "prepare");
    m->transfer_ns = dyti_read_i64(r, "transfer");
    m->verify_ns = dyti_read_i64(r, "verify");
    m->commit_ns = dyti_read_i64(r, "commit");
    m->post_ns = dyti_read_i64(r, "post-process");
}

void dyti_msg_switch_done_fini(struct dyti_msg_switch_done *message)
{
    memset(message, 0, sizeof(*message));
}

DYTI_WIRE_DEFINE(switch_done)
