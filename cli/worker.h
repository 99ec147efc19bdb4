/* A worker process: one rank, which is trainer and rollout in turn.
 *   worker.c         start, the message loop, the end
 *   worker_load.c    memory, weights, roles
 *   worker_phases.c  what each message does
 *   offer.c          the rollout layout offered to an engine elsewhere */
#ifndef DYTI_CLI_WORKER_H
#define DYTI_CLI_WORKER_H

#include "cli/assemble.h"
#include "cli/fault.h"
#include "control/control.h"
#include "edm/world.h"
#include "exec/switch.h"
#include "format/hf_config.h"
#include "wire/wire.h"

#include <dynatrain/session.h>

/* What the manager gives on the command line. */
struct dyti_worker_args {
    uint32_t rank, world_size;
    uint64_t job;
    const char *endpoint;
    int life_fd;    /* read end of the manager's pipe */
    int control_fd; /* control segment */
    enum dyti_page_kind control_pages;
    int segment_fd[DYTI_RANKS_MAX];
    enum dyti_page_kind segment_pages[DYTI_RANKS_MAX];
};

struct dyti_worker {
    struct dyti_worker_args args;
    struct dyti_control_client *client;
    uint64_t epoch, version;

    struct dyti_job job;
    struct dyti_assembly assembly;
    struct dyti_generation_config generation;
    struct dyti_pool *pool;
    struct dyti_kernels kernels;
    struct dyti_world *world;
    struct dyti_tokenizer tokenizer; /* only where stop strings need one */
    struct dyti_rollout *rollout;    /* NULL: not a member */
    struct dyti_trainer *trainer;    /* NULL: not a member */
    struct dyti_switch *to_rollout, *to_train;
    /* Where somebody else's engine generates: cli/offer.h. */
    struct dyt_session *session;
    struct dyt_ticket *ticket; /* of the version that is being read */
    uint64_t offered;          /* the last version, if has_offered */
    bool has_offered;
    double load_seconds;
    double copy_rate;     /* bytes per second */
    uint32_t done, total; /* progress of what runs */
    int64_t last_beat_ns, order_ns, first_token_ns;
    uint64_t kv_bytes; /* of the cache in use at the most, since training */
    struct dyti_faults faults; /* that a test ordered */
};

/* Build everything that the assignment says; fills `worker`. */
enum dyt_status dyti_worker_build(struct dyti_worker *worker,
                                  const struct dyti_msg_assign *assign);
void dyti_worker_fini(struct dyti_worker *worker);

/* Act on one message of the manager and answer it. */
enum dyt_status dyti_worker_act(struct dyti_worker *worker,
                                const struct dyti_frame *frame);

/* A sign of life, at most every now and then; total 0: nothing is counted.
 * Phases call it as they get on, so that a rank that hangs falls silent. */
void dyti_worker_beat(void *worker, uint32_t done, uint32_t total);

/* Send a buffer that an encoder made; `st` is the encoder's answer. */
enum dyt_status dyti_worker_send(struct dyti_worker *worker, enum dyt_status st,
                                 struct dyti_buffer *buffer);
struct dyti_envelope dyti_worker_stamp(struct dyti_worker *worker,
                                       enum dyti_message type);

/* main() of `dynatrain worker`. */
int dyti_worker_main(const struct dyti_worker_args *args);

#endif /* DYTI_CLI_WORKER_H */
