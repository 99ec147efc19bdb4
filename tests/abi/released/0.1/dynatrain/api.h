/* Export and ABI macros of the C interface. */
#ifndef DYNATRAIN_API_H
#define DYNATRAIN_API_H

#include <stddef.h>

#ifdef __cplusplus
#define DYT_BEGIN_DECLS extern "C" {
#define DYT_END_DECLS   }
#else
#define DYT_BEGIN_DECLS
#define DYT_END_DECLS
#endif

#if defined(__GNUC__)
#define DYT_API __attribute__((visibility("default")))
#else
#define DYT_API
#endif

/* True if `ptr` (an instance of `type` that may come from an older build) is
 * long enough to contain `field` and the field is set. */
#define DYT_HAS(type, ptr, field)                                              \
    ((ptr)->struct_size >= offsetof(type, field) + sizeof((ptr)->field) &&     \
     (ptr)->field != NULL)

#endif /* DYNATRAIN_API_H */
