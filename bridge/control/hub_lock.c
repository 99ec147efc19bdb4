/* The lock of a hub's path: who has it, and when it may be taken over. */
#include "control/hub_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* What stands in a lock: its process, in which numbering of processes. */
struct note {
    long pid; /* 0: nothing readable */
    uint64_t numbering;
};

/* The inode of this process's numbering; 0: not known. */
static uint64_t numbering(void)
{
    struct stat info;

    return stat("/proc/self/ns/pid", &info) == 0 ? (uint64_t)info.st_ino : 0;
}

static struct note read_note(int fd)
{
    char text[64] = "";
    ssize_t got = pread(fd, text, sizeof(text) - 1, 0);
    struct note note = {0};

    text[got > 0 ? (size_t)got : 0] = '\0';
    if (sscanf(text, "%ld %" SCNu64, &note.pid, &note.numbering) < 1) {
        note.pid = 0;
    }
    return note;
}

static enum dyt_status write_note(const struct dyti_hub_lock *lock)
{
    char text[64];
    int length = snprintf(text, sizeof(text), "%ld %" PRIu64, (long)lock->owner,
                          numbering());

    if (ftruncate(lock->fd, 0) != 0 ||
        pwrite(lock->fd, text, (size_t)length, 0) != length) {
        return DYTI_FAIL(DYT_ERR_IO, "%s: %s", lock->path, strerror(errno));
    }
    return DYT_OK;
}

/* Held by children alone: what cannot be told is taken for alive. */
static bool is_of_the_dead(const struct note *note)
{
    return note->pid > 0 && note->numbering != 0 &&
           note->numbering == numbering() && kill((pid_t)note->pid, 0) != 0 &&
           errno == ESRCH;
}

/* The file that is open is still the one of that name. */
static bool is_at(int fd, const char *path)
{
    struct stat mine, there;

    return fstat(fd, &mine) == 0 && stat(path, &there) == 0 &&
           mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
}

/* The file of that name is taken away if it is still that of the dead: one
 * process at a time does so, by a lock of the folder, or one could take away
 * what another has just made. */
static enum dyt_status take_away(const char *path)
{
    char folder[DYTI_ADDRESS_BYTES + 8];
    enum dyt_status st = DYT_OK;
    int turn, fd;

    snprintf(folder, sizeof(folder), "%s", path);
    if (strrchr(folder, '/') != NULL) {
        strrchr(folder, '/')[1] = '\0';
    } else {
        memcpy(folder, ".", 2);
    }
    turn = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fd = turn < 0 || flock(turn, LOCK_EX) != 0
             ? -1
             : open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        struct note note = read_note(fd);

        if (is_of_the_dead(&note) && unlink(path) != 0) {
            st = DYTI_FAIL(DYT_ERR_IO, "%s: %s", path, strerror(errno));
        }
        close(fd);
    } else if (turn < 0 || errno != ENOENT) {
        st = DYTI_FAIL(DYT_ERR_IO, "%s: %s", turn < 0 ? folder : path,
                       strerror(errno));
    }
    if (turn >= 0) {
        close(turn);
    }
    return st;
}

/* Is the lock somebody's?  DYT_PENDING: not any more, look again. */
static enum dyt_status look_at_owner(int fd, const char *path)
{
    struct note note = read_note(fd);
    enum dyt_status st;

    if (is_of_the_dead(&note)) {
        st = take_away(path);
        return st == DYT_OK ? DYT_PENDING : st;
    }
    return note.pid > 0 ? DYTI_FAIL(DYT_ERR_BUSY, "pid %ld serves %.*s already",
                                    note.pid,
                                    (int)(strlen(path) - strlen(".lock")), path)
                        : DYTI_FAIL(DYT_ERR_BUSY,
                                    "%s is locked by another process", path);
}

enum dyt_status dyti_hub_lock_take(struct dyti_hub_lock *lock, const char *path)
{
    enum dyt_status st = DYT_PENDING;

    snprintf(lock->path, sizeof(lock->path), "%s.lock", path);
    lock->owner = getpid();
    while (st == DYT_PENDING) {
        int fd = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

        if (fd < 0) {
            return DYTI_FAIL(DYT_ERR_IO, "%s: %s", lock->path, strerror(errno));
        }
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            st = look_at_owner(fd, lock->path);
            close(fd);
        } else if (is_at(fd, lock->path)) {
            lock->fd = fd;
            st = write_note(lock);
        } else { /* it was taken away between our open and our lock */
            close(fd);
        }
    }
    return st;
}

bool dyti_hub_lock_is_own(const struct dyti_hub_lock *lock)
{
    return lock->fd >= 0 && lock->owner == getpid();
}

void dyti_hub_lock_release(struct dyti_hub_lock *lock)
{
    if (lock->fd < 0) {
        return;
    }
    if (dyti_hub_lock_is_own(lock)) {
        unlink(lock->path); /* while it is locked: nobody else's */
    }
    close(lock->fd);
    lock->fd = -1;
}
