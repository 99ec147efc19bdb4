/* What SGLang is told about weights.  Its workers load our plugin by themselves
 * (python/dynatrain/sglang.py); updates that name its format come to it, with
 * words for it in the place of tensors. */
#ifndef SGLANG_H
#define SGLANG_H

#include <stdbool.h>
#include <stdint.h>

#define SGLANG_FORMAT  "dynatrain.sglang.load"
#define SGLANG_VERSION "dynatrain.version"
#define SGLANG_INIT    "dynatrain.init:" /* and a JSON object of options */

/* The mode of /pause_generation for an enum dyt_engine_in_flight; NULL: no
 * pause, as an update waits for the requests that run, and those that come
 * wait for it. */
const char *sglang_pause_mode(uint32_t in_flight);

/* The body of /update_weights_from_tensor: [(name, LongTensor([number]))] for
 * each of the server's workers.  flush: drop keys and values of old weights.
 * The caller frees it; NULL: out of memory. */
char *sglang_update_body(uint32_t workers, const char *name, int64_t number,
                         bool flush);

#endif /* SGLANG_H */
