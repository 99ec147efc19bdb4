/* Messages between the manager and its workers, as structs and as msgpack.
 * Answers "what may be said?"; bridge/control carries it, cli/ acts on it.
 *
 * A message is two msgpack arrays in one frame: the envelope, then the payload
 * of its type.  Fields are positional; a decoder accepts longer arrays than it
 * knows (a newer sender) and refuses shorter ones.  Every decoder takes bytes
 * from outside: whatever they are, it answers DYT_OK or DYT_ERR_FORMAT with a
 * text that names message and field, and gives nothing half-filled.
 *
 * Encoded buffers are owned by the caller: give back with dyti_buffer_fini.
 * Decoded structs own their arrays: give back with their _fini.
 */
#ifndef DYTI_WIRE_WIRE_H
#define DYTI_WIRE_WIRE_H

#include "base/error.h"
#include "data/data.h"
#include "data/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- payloads ----------------------------------------------------------- */

struct dyti_msg_hello {
    int64_t pid;
};

struct dyti_msg_assign {
    char *job_text;  /* dyti_job_text of the resolved job */
    char *model_dir; /* Hugging Face directory */
    char *resume;    /* checkpoint directory, "" for a fresh start */
    uint32_t threads;
};

struct dyti_msg_ready {
    char *isa;
    char *pages;             /* page kind of the rank's segment */
    uint64_t segment_bytes;  /* mapped */
    uint64_t param_elements; /* of the catalogue */
    double load_seconds;
    double copy_rate; /* memcpy, bytes per second, all ranks at once; 0: none */
};

struct dyti_msg_heartbeat {
    uint32_t done, total; /* of what runs; total 0: idle */
};

enum dyti_target { DYTI_TARGET_ROLLOUT, DYTI_TARGET_TRAIN };

struct dyti_msg_switch {
    uint64_t epoch;
    uint32_t target; /* enum dyti_target */
};

struct dyti_msg_switch_done {
    uint64_t epoch;
    bool committed;
    uint64_t kept_bytes, moved_bytes; /* destination dtypes */
    uint64_t read_bytes, written_bytes, hashed_bytes;
    int64_t prepare_ns, transfer_ns, verify_ns, commit_ns, post_ns;
};

struct dyti_msg_generate {
    uint64_t step;
    bool greedy; /* evaluation: temperature 0 */
    uint32_t samples_per_prompt;
    struct dyti_prompt *prompt; /* [prompt_count] */
    uint32_t prompt_count;
};

struct dyti_msg_samples {
    uint64_t step;
    struct dyti_sample *sample; /* [sample_count] */
    uint32_t sample_count;
    uint64_t passes, sampled, prefill_rows;
    int64_t generate_ns, first_token_ns; /* from the order's arrival */
};

struct dyti_msg_train {
    uint64_t step;
    struct dyti_batch batch;
};

/* Numbers by name, so that a new metric needs no new message. */
struct dyti_msg_metrics {
    uint64_t step;
    char **name;   /* [count] */
    double *value; /* [count] */
    uint32_t count;
};

struct dyti_msg_checkpoint {
    char *path; /* temporary directory, prepared by the manager */
    uint64_t step;
};

struct dyti_msg_error {
    int32_t status;
    int32_t rank; /* whose failure it is: a peer's, or the sender's own */
    char *text;
};

/* ---- encode: envelope + payload -> one frame ---------------------------- */

enum dyt_status dyti_wire_empty(const struct dyti_envelope *envelope,
                                struct dyti_buffer *out);
#define DYTI_WIRE_PAIR(name)                                                   \
    enum dyt_status dyti_wire_##name##_encode(                                 \
        const struct dyti_envelope *envelope,                                  \
        const struct dyti_msg_##name *message, struct dyti_buffer *out);       \
    enum dyt_status dyti_wire_##name##_decode(                                 \
        const void *bytes, size_t size_bytes, struct dyti_msg_##name *out);    \
    void dyti_msg_##name##_fini(struct dyti_msg_##name *message)

DYTI_WIRE_PAIR(hello);
DYTI_WIRE_PAIR(assign);
DYTI_WIRE_PAIR(ready);
DYTI_WIRE_PAIR(heartbeat);
DYTI_WIRE_PAIR(switch);
DYTI_WIRE_PAIR(switch_done);
DYTI_WIRE_PAIR(generate);
DYTI_WIRE_PAIR(samples);
DYTI_WIRE_PAIR(train);
DYTI_WIRE_PAIR(metrics);
DYTI_WIRE_PAIR(checkpoint);
DYTI_WIRE_PAIR(error);

/* The envelope alone; the payload of its type is decoded by its own function
 * from the same bytes.  Refuses another protocol (both numbers named), an
 * unknown type, trailing bytes after the payload. */
enum dyt_status dyti_wire_envelope(const void *bytes, size_t size_bytes,
                                   struct dyti_envelope *out);
/* Its protocol number alone, whichever it is. */
enum dyt_status dyti_wire_protocol(const void *bytes, size_t size_bytes,
                                   uint32_t *out_protocol);

#endif /* DYTI_WIRE_WIRE_H */
