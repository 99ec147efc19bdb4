/* Memory of a switch's messages. */
#ifndef DYTI_EXEC_STAGING_H
#define DYTI_EXEC_STAGING_H

#include "exec/switch_internal.h"

struct dyti_staging {
    const struct dyti_memory_ops *memory; /* of the device; NULL: a host */
    unsigned char *at;                    /* [bytes] */
    uint64_t bytes;
    void *own; /* of the host, owned; NULL */
    struct dyti_segment_mem segment;
    bool is_segment;  /* of the device, owned */
    bool is_attached; /* the mover knows it */
};

/* Of the mover that the switch has for messages.
 * DYT_ERR_NOMEM and others: how much, and on which rank */
enum dyt_status dyti_staging_make(const struct dyti_switch *self,
                                  uint64_t bytes, struct dyti_staging *out);
void dyti_staging_free(const struct dyti_switch *self,
                       struct dyti_staging *staging);

#endif /* DYTI_EXEC_STAGING_H */
