/* Network namespaces around a switch, each with a cable to it that is held to
 * a rate, in and out: a host's, or that of one of its ranks.  They have no
 * name: they and their cables are gone with the last process that is in them or
 * holds them, however it ends. */
#ifndef DYT_BENCH_CABLES_H
#define DYT_BENCH_CABLES_H

#include <stdbool.h>
#include <stdint.h>

#define CABLES_MAX 8u

struct cables {
    int fabric, end[CABLES_MAX]; /* namespaces; -1: none */
    uint32_t count;
    uint32_t mbit_per_s; /* of each cable, each direction */
};

/* false: it cannot be done here (no root, no ip or tc); says what failed. */
bool cables_lay(struct cables *cables, uint32_t count, uint32_t mbit_per_s);
/* Put this process at an end. */
bool cables_enter(const struct cables *cables, uint32_t end);
/* What an end is reached at; `room` of 16 and more. */
void cables_address(uint32_t end, char *out, uint32_t room);
void cables_close(struct cables *cables);

#endif /* DYT_BENCH_CABLES_H */
