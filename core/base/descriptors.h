/* File descriptors: how many there may be, and messages of a unix socket that
 * bring some.
 * Threads: any. */
#ifndef DYTI_BASE_DESCRIPTORS_H
#define DYTI_BASE_DESCRIPTORS_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define DYTI_DESCRIPTORS_MOST 253u /* of one message, as the system has it */

/**
 * Can this process open `count` more files now?  For what ends the process
 * where it cannot, and for what is better not begun.
 *   what  that needs them, for the message
 * @return DYT_ERR_IO  no: the message says how many it may have, and how many
 *                     are needed
 */
enum dyt_status dyti_descriptors_room(uint32_t count, const char *what);

/* One message, which does not wait for room.  Descriptors are borrowed.
 * 0, or an errno. */
int dyti_descriptors_send(int socket, const void *text, size_t bytes,
                          const int *fd, uint32_t count);
/**
 * One message, which does not wait for it; cut off at `bytes`.
 *
 * @param flags  MSG_PEEK: it stays, and the descriptors are given again
 * @param fd     [room] those that came, closed on exec, the caller's to close;
 *               what has no room, or may not be opened, is lost.  Room 0: they
 *               cost nothing
 * @return its bytes, or -errno
 */
ssize_t dyti_descriptors_receive(int socket, int flags, void *text,
                                 size_t bytes, int *fd, uint32_t room,
                                 uint32_t *out_count);
void dyti_descriptors_close(int *fd, uint32_t count);

#endif /* DYTI_BASE_DESCRIPTORS_H */
