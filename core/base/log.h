/* Leveled log to stderr, one line a call: "level area rank phase key value".
 * DYNATRAIN_LOG=error|warn|info|debug|trace sets the level (default warn),
 * DYNATRAIN_LOG_AREA=control,edm limits the areas.  Lower case, no full stop.
 * Threads: any.  A line is written by one write(2). */
#ifndef DYTI_BASE_LOG_H
#define DYTI_BASE_LOG_H

#include "base/error.h"

#include <stdint.h>

enum dyti_log_level {
    DYTI_LOG_ERROR, /* the run is lost */
    DYTI_LOG_WARN,  /* unexpected, but we go on */
    DYTI_LOG_INFO,  /* once per phase switch */
    DYTI_LOG_DEBUG, /* once per object */
    DYTI_LOG_TRACE  /* once per step */
};

#define DYTI_LOG(level, area, ...)                                             \
    do {                                                                       \
        if (dyti_log_enabled((level), (area))) {                               \
            dyti_log_write((level), (area), __VA_ARGS__);                      \
        }                                                                      \
    } while (0)

/* Every area that a line is of: there is no other. */
#define DYTI_LOG_AREAS "checkpoint,control,edm,engine,score,trace,worker"

/* The first word of a list with commas that is no area, cut to fit; NULL list
 * or 0: there is none. */
int dyti_log_area_unknown(const char *list, char word[64]);

/* Level and areas as DYNATRAIN_LOG / DYNATRAIN_LOG_AREA say; NULL = default.
 * 0: there is no such level, and the default holds. */
int dyti_log_configure(const char *level, const char *areas);

/* Who speaks: shown in every line of this thread.  phase is static text. */
void dyti_log_identity(int32_t rank, const char *phase);
/* The rank given above; -1 before. */
int32_t dyti_log_rank(void);

int dyti_log_enabled(enum dyti_log_level level, const char *area);
void dyti_log_write(enum dyti_log_level level, const char *area,
                    const char *fmt, ...) DYTI_PRINTF(3, 4);

/* Number of warn and error lines so far in this process: a test that logs an
 * unexpected one fails. */
uint64_t dyti_log_complaints(void);

#endif /* DYTI_BASE_LOG_H */
