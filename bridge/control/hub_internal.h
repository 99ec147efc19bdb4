/* What the files of a hub share: the lock of its path, and who may come in. */
#ifndef DYTI_CONTROL_HUB_INTERNAL_H
#define DYTI_CONTROL_HUB_INTERNAL_H

#include "control/hub.h"
#include "control/socket.h"

#include <sys/types.h>

/* ---- hub_lock.c -----------------------------------------------------------
 */

/* PATH.lock, locked while its hub lives: by the kernel, so that nothing of a
 * crash stays.  A child that was forked, and ran no other program, holds its
 * parent's lock too; it never serves.  So the lock says whose it is, and is
 * taken from children whose parent is dead. */
struct dyti_hub_lock {
    int fd; /* -1: not locked */
    pid_t owner;
    char path[DYTI_ADDRESS_BYTES + 8];
};

/* DYT_ERR_BUSY: names the process that has it. */
enum dyt_status dyti_hub_lock_take(struct dyti_hub_lock *lock,
                                   const char *path);
/* Is it this process's, and not that of a parent? */
bool dyti_hub_lock_is_own(const struct dyti_hub_lock *lock);
void dyti_hub_lock_release(struct dyti_hub_lock *lock);

/* ---- hub_door.c -----------------------------------------------------------
 */

/* tcp: who may come in, by their keys. */
struct dyti_hub_door {
    void *zap;                       /* where ZeroMQ asks; NULL: no door */
    unsigned char (*authorized)[32]; /* public keys */
    size_t authorized_count, authorized_cap;
};

/* The server's side of CURVE; before the socket is bound. */
enum dyt_status dyti_hub_door_open(struct dyti_hub_door *door,
                                   const struct dyti_socket *socket,
                                   const struct dyti_hub_params *params);
/* One question.  Was it refused? */
bool dyti_hub_door_answer(struct dyti_hub_door *door);
void dyti_hub_door_close(struct dyti_hub_door *door);

#endif /* DYTI_CONTROL_HUB_INTERNAL_H */
