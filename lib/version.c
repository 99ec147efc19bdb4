/* Which version of the library this is, when it runs. */
#include <dynatrain/version.h>

_Static_assert(DYT_VERSION_MINOR < 256 && DYT_VERSION_PATCH < 256,
               "a part of the version takes one byte");

uint32_t dyt_version(void)
{
    return DYT_VERSION;
}

/* The build has it from project(); a test holds it against the numbers. */
const char *dyt_version_text(void)
{
    return DYT_VERSION_TEXT;
}
