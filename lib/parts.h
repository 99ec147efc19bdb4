/* Memory views as messages have them (wire/session.h), and back; catalogues
 * likewise. */
#ifndef DYTI_LIB_PARTS_H
#define DYTI_LIB_PARTS_H

#include "lib/link.h"
#include "wire/session.h"

/* A copy. */
enum dyt_status dyti_part_from_memory(const struct dyti_memory_view *memory,
                                      struct dyti_msg_part *out_part);
/* What came from outside is checked against the catalogue.
 * DYT_ERR_FORMAT: names what does not belong there. */
enum dyt_status dyti_part_to_memory(const struct dyti_model *catalogue,
                                    const struct dyti_msg_part *part,
                                    struct dyti_memory_view *out_memory);

enum dyt_status dyti_catalogue_to_message(const struct dyti_model *catalogue,
                                          struct dyti_msg_catalogue *out);
enum dyt_status dyti_catalogue_from_message(
    const struct dyti_msg_catalogue *message, struct dyti_model **out_model);

/* Machine and process numbering: equal where memory can be mapped by pid. */
uint64_t dyti_host_id(void);
/* … of a host that somebody gave a name; NULL: this one. */
uint64_t dyti_host_named(const char *name);
/* This host's numeric address as the manager sees it, or would; the loopback
 * where that is on this host. */
void dyti_host_address(const char *manager, char *out, size_t out_bytes);

#endif /* DYTI_LIB_PARTS_H */
