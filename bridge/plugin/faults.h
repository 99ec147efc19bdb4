/* All that is wrong at once: the first ten faults in words, the rest as a
 * number. */
#ifndef DYTI_PLUGIN_FAULTS_H
#define DYTI_PLUGIN_FAULTS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DYTI_FAULTS_SHOWN 10u
#define DYTI_FAULTS_BYTES                                                      \
    1800u /* an error's text has room for a little more                        \
           */

struct dyti_found {
    char text[DYTI_FAULTS_BYTES];
    size_t used;
    uint32_t count, shown;
    enum dyt_status status; /* of the first */
};

/* Note a fault.  `status` counts for the first one only. */
void dyti_found_add(struct dyti_found *found, enum dyt_status status,
                    const char *fmt, ...) DYTI_PRINTF(3, 4);

/* Whether the words of one more would still be shown: near misses and the like
 * need not be looked for otherwise. */
static inline bool dyti_found_shows(const struct dyti_found *found)
{
    return found->count < DYTI_FAULTS_SHOWN;
}

/* DYT_OK without faults, otherwise the first one's status with all texts;
 * `remark` (or NULL) goes behind them. */
enum dyt_status dyti_found_finish(const struct dyti_found *found,
                                  const char *remark);

/* "[3, 576]" of a shape. */
struct dyti_shape_words {
    char text[DYTI_FAULTS_SHOWN * 22];
};
struct dyti_shape_words dyti_shape_words(uint32_t ndim, const int64_t *shape);

#endif /* DYTI_PLUGIN_FAULTS_H */
