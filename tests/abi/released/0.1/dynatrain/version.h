/* Which libdynatrain this is. */
#ifndef DYNATRAIN_VERSION_H
#define DYNATRAIN_VERSION_H

#include <dynatrain/api.h>

#include <stdint.h>

DYT_BEGIN_DECLS

/* Of these headers.  The major number goes up when something that was there
 * changes or goes away, the minor when something is added. */
#define DYT_VERSION_MAJOR 0u
#define DYT_VERSION_MINOR 1u
#define DYT_VERSION_PATCH 0u
#define DYT_VERSION_NUMBER(major, minor, patch)                                \
    ((major) << 16 | (minor) << 8 | (patch))
#define DYT_VERSION                                                            \
    DYT_VERSION_NUMBER(DYT_VERSION_MAJOR, DYT_VERSION_MINOR, DYT_VERSION_PATCH)

/** DYT_VERSION of the library that is loaded, which may be newer than the
 *  headers that its caller was built with. */
DYT_API uint32_t dyt_version(void);

/** "0.1.0".  Static. */
DYT_API const char *dyt_version_text(void);

DYT_END_DECLS

#endif /* DYNATRAIN_VERSION_H */
