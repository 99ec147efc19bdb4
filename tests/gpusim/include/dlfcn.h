/* Libraries as the simulator has them: those of a GPU's are its own, and tests
 * say which are there (gpusim.h).  All others are the system's. */
#ifndef DYT_GPUSIM_DLFCN_H
#define DYT_GPUSIM_DLFCN_H

#include_next <dlfcn.h>

#ifdef __cplusplus
extern "C" {
#endif

void *gpusim_dlopen(const char *name, int flags);
void *gpusim_dlsym(void *library, const char *symbol);
char *gpusim_dlerror(void);
int gpusim_dlclose(void *library);

#ifdef __cplusplus
}
#endif

#define dlopen  gpusim_dlopen
#define dlsym   gpusim_dlsym
#define dlerror gpusim_dlerror
#define dlclose gpusim_dlclose

#endif /* DYT_GPUSIM_DLFCN_H */
