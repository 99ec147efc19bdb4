/* The ranks of a job as the trainer of a session (dynatrain/session.h): what
 * their rollout layout holds is offered to whoever generates elsewhere.  The
 * region lies in the rank's own segment, so receivers map it and nothing is
 * copied to be offered. */
#ifndef DYTI_CLI_OFFER_H
#define DYTI_CLI_OFFER_H

#include "cli/worker.h"

#include <stddef.h>

/* Where the session of a job listens. */
enum dyt_status dyti_offer_address(const struct dyti_job *job, char *buf,
                                   size_t buf_bytes);

/* Join and publish.  Collective over the members of the rollout layout; DYT_OK
 * and nothing else where the job's ranks generate, or this one holds nothing.
 */
enum dyt_status dyti_offer_open(struct dyti_worker *worker);
void dyti_offer_close(struct dyti_worker *worker);

/* The rollout layout holds `version` now: offer it. */
enum dyt_status dyti_offer_version(struct dyti_worker *worker,
                                   uint64_t version);
/* Nobody reads the rollout layout any more: it may be left. */
enum dyt_status dyti_offer_done(struct dyti_worker *worker);

#endif /* DYTI_CLI_OFFER_H */
