/* Dense bytes by the messages of a group, for ranks that cannot map each
 * other's memory.  The table is the contract (ops/mover.h). */
#ifndef DYTI_MOVER_MESSAGE_H
#define DYTI_MOVER_MESSAGE_H

#include "ops/mover.h"

extern const struct dyti_mover_ops dyti_mover_message;

#endif /* DYTI_MOVER_MESSAGE_H */
