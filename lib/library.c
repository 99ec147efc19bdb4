/* The shared library has no code of its own: it is the archives of the rooms
 * (CMakeLists.txt).  A build system wants a source, and the C library that it
 * was built for is worth a check. */
#include <features.h>

#if !defined(__linux__)
#error "libdynatrain.so needs Linux: memfd, futexes, /proc"
#endif
