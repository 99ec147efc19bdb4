/* Threads of ours inside somebody else's process: signals are the program's,
 * never ours to take, so every one is blocked in them.  Only what a thread does
 * to itself (a fault) comes to it, and to the program's handler: one that were
 * blocked would end the process without a word. */
#ifndef DYTI_BASE_THREAD_H
#define DYTI_BASE_THREAD_H

#include "base/error.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>

/* Around what starts threads by itself, a library's: they inherit the mask. */
void dyti_signals_block(sigset_t *out_before);
void dyti_signals_restore(const sigset_t *before);

/**
 * Start a thread in which all signals are blocked; the caller's mask is as it
 * was.
 * @param what  names it in the message, "the session's thread"
 * @return DYT_ERR_NOMEM  the system starts none; *out_thread is untouched
 */
enum dyt_status dyti_thread_start(void *(*body)(void *), void *arg,
                                  const char *what, pthread_t *out_thread);

#define DYTI_THREADS_ROOM_MOST 4u
/**
 * Can `count` (at most as many) threads be started now?  For libraries that end
 * the process where they cannot.
 *   what  that needs them, for the message
 * @return DYT_ERR_NOMEM  no
 */
enum dyt_status dyti_threads_room(uint32_t count, const char *what);

#endif /* DYTI_BASE_THREAD_H */
