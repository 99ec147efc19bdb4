/* A sample that somebody else's engine hands over: is it one that was asked
 * for, whole and of the version that is served, and a copy of it. */
#ifndef DYTI_CLI_ENGINE_SAMPLE_H
#define DYTI_CLI_ENGINE_SAMPLE_H

#include "cli/engine.h"

/**
 * @param seen        [prompts * samples of each of the order]: which have come
 * @param out_seen    Its own of these, for the caller to set.
 * @param out_sample  The caller's on DYT_OK; end with dyti_sample_fini().
 *
 * @return DYT_ERR_FORMAT  what cannot be, in words
 * @return DYT_ERR_STATE   of another version
 */
enum dyt_status dyti_engine_sample(const struct dyti_engine_generate *order,
                                   const struct dyt_engine_sample *from,
                                   bool *seen, bool **out_seen,
                                   struct dyti_sample *out_sample);

#endif /* DYTI_CLI_ENGINE_SAMPLE_H */
