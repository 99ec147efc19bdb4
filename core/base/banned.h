/* Functions that have no safe use here: naming one fails to compile.  Included
 * by the build in front of every source of ours. */
#ifndef DYTI_BASE_BANNED_H
#define DYTI_BASE_BANNED_H

#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC poison strcpy strcat sprintf vsprintf strtok gets atoi atol atof
#undef alloca
#pragma GCC poison alloca

#endif /* DYTI_BASE_BANNED_H */
