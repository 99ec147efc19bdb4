/* Sleeping on a word of shared memory.  Implemented by bridge/comm/<name>,
 * handed in by cli/.  Pattern of the sleeper: read the word, find nothing to
 * do, wait with what was read; of the waker: change the word, wake. */
#ifndef DYTI_OPS_WAIT_H
#define DYTI_OPS_WAIT_H

#include <stdatomic.h>
#include <stdint.h>

struct dyti_wait_ops {
    uint32_t struct_size;
    const char *name; /* "futex" */
    /* Returns when woken, after max_ns (> 0), at once if *word != seen, or for
     * no reason: look again.  Works between processes. */
    void (*wait)(_Atomic uint32_t *word, uint32_t seen, int64_t max_ns);
    /* Wake all that sleep on the word. */
    void (*wake)(_Atomic uint32_t *word);
};

#endif /* DYTI_OPS_WAIT_H */
