/* hello, assign, ready, heartbeat, checkpoint, error: the life of a worker. */
#include "wire/define.h"

#include <stdlib.h>
#include <string.h>

/* ---- hello --------------------------------------------------------------- */

static void write_hello(struct dyti_writer *w, const struct dyti_msg_hello *m)
{
    dyti_write_array(w, 1);
    dyti_write_i64(w, m->pid);
}

static void read_hello(struct dyti_reader *r, struct dyti_msg_hello *m)
{
    m->pid = dyti_read_i64(r, "pid");
}

void dyti_msg_hello_fini(struct dyti_msg_hello *message)
{
    memset(message, 0, sizeof(*message));
}

DYTI_WIRE_DEFINE(hello)

/* ---- assign -------------------------------------------------------------- */

static void write_assign(struct dyti_writer *w, const struct dyti_msg_assign *m)
{
    dyti_write_array(w, 4);
    dyti_write_text(w, m->job_text);
    dyti_write_text(w, m->model_dir);
    dyti_write_text(w, m->resume);
    dyti_write_u64(w, m->threads);
}

static void read_assign(struct dyti_reader *r, struct dyti_msg_assign *m)
{
    m->job_text = dyti_read_text(r, "job text");
    m->model_dir = dyti_read_text(r, "model directory");
    m->resume = dyti_read_text(r, "checkpoint");
    m->threads = (uint32_t)dyti_read_u64(r, "threads", 4096);
}

void dyti_msg_assign_fini(struct dyti_msg_assign *message)
{
    free(message->job_text);
    free(message->model_dir);
    free(message->resume);
    memset(message, 0, sizeof(*message));
}

DYTI_WIRE_DEFINE(assign)

/* ---- ready --------------------------------------------------------------- */

static void write_ready(struct dyti_writer *w, const struct dyti_msg_ready *m)
{
    dyti_write_array(w, 6);
    dyti_write_text(w, m->isa);
    dyti_write_text(w, m->pages);
    dyti_write_u64(w, m->segment_bytes);
    dyti_write_u64(w, m->param_elements);
    dyti_write_double(w, m->load_seconds);
    dyti_write_double(w, m->copy_rate);
}

static void read_ready(struct dyti_reader *r, struct dyti_msg_ready *m)
{
    m->isa = dyti_read_text(r, "instruction set");
    m->pages = dyti_read_text(r, "page kind");
    m->segment_bytes = dyti_read_u64(r, "segment bytes", UINT64_MAX);
    m->param_elements = dyti_read_u64(r, "elements", UINT64_MAX);
    m->load_seconds = dyti_read_double(r, "load seconds");
    m->copy_rate = dyti_read_double(r, "copy rate");
}

void dyti_msg_ready_fini(struct dyti_msg_ready *message)
{
    free(message->isa);
    free(message->pages);
    memset(message, 0, sizeof(*message));
}

DYTI_WIRE_DEFINE(ready)

/* ---- heartbeat ----------------------------------------------------------- */

static void write_heartbeat(struct dyti_writer *w,
                            const struct dyti_msg_heartbeat *m)
{
    dyti_write_array(w, 2);
    dyti_write_u64(w, m->done);
    dyti_write_u64(w, m->total);
}

static void read_heartbeat(struct dyti_reader *r, struct dyti_msg_heartbeat *m)
{
    m->done = (uint32_t)dyti_read_u64(r, "done", UINT32_MAX);
    m->total = (uint32_t)dyti_read_u64(r, "total", UINT32_MAX);
}

void dyti_msg_heartbeat_fini(struct dyti_msg_heartbeat *message)
{
    memset(message, 0, sizeof(*message));
}

DYTI_WIRE_DEFINE(heartbeat)

/* ---- checkpoint ---------------------------------------------------------- */

static void write_checkpoint(struct dyti_writer *w,
                             const struct dyti_msg_checkpoint *m)
{
    dyti_write_array(w, 2);
    dyti_write_text(w, m->path);
    dyti_write_u64(w, m->step);
}

static void read_checkpoint(struct dyti_reader *r,
                            struct dyti_msg_checkpoint *m)
{
    m->path = dyti_read_text(r, "path");
    m->step = dyti_read_u64(r, "step", UINT64_MAX);
}

void dyti_msg_checkpoint_fini(struct dyti_msg_checkpoint *message)
{
    free(message->path);
    memset(message, 0, sizeof(*message));
}

DYTI_WIRE_DEFINE(checkpoint)

/* ---- error --------------------------------------------------------------- */

static void write_error(struct dyti_writer *w, const struct dyti_msg_error *m)
{
    dyti_write_array(w, 3);
    dyti_write_i64(w, m->status);
    dyti_write_i64(w, m->rank);
    dyti_write_text(w, m->text);
}

static void read_error(struct dyti_reader *r, struct dyti_msg_error *m)
{
    m->status = dyti_read_i32(r, "status");
    m->rank = dyti_read_i32(r, "rank");
    m->text = dyti_read_text(r, "text");
}

void dyti_msg_error_fini(struct dyti_msg_error *message)
{
    free(message->text);
    memset(message, 0, sizeof(*message));
}

DYTI_WIRE_DEFINE(error)
