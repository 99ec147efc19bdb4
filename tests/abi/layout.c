/* Structs as the first release laid them out: fields stay where they are, and
 * structs only grow.  Compiles or not; released/0.1/layout.inc is frozen. */
#include <dynatrain/engine.h>
#include <dynatrain/schedule.h>
#include <dynatrain/session.h>
#include <dynatrain/version.h>

#include <stddef.h>

#define SIZE(type, bytes)                                                      \
    _Static_assert(sizeof(type) >= (bytes), #type " is smaller than "          \
                                                  "released");
#define FIELD(type, field, at)                                                 \
    _Static_assert(offsetof(type, field) == (at), #type "." #field " moved");

#include "released/0.1/layout.inc"

/* Enums in structs are uint32_t; as results they are ints. */
_Static_assert(sizeof(enum dyt_status) == 4, "a status has four bytes");

int main(void)
{
    return 0;
}
