/* Keys of a job over tcp, for tests: where `dynatrain keys` puts them, and an
 * address that nobody listens at. */
#ifndef SESSION_KEYS_H
#define SESSION_KEYS_H

#include "dyt_test.h"

#include <arpa/inet.h>
#include <sys/random.h>
#include <sys/socket.h>

/* One folder's: the manager's pair, and another one's. */
struct session_keys {
    char folder[300];
    char manager[340], manager_public[340]; /* "manager" */
    char other[340];                        /* secret; of the name given */
};

/* Names alone: whoever needs them makes them. */
static inline struct session_keys session_keys(const char *folder,
                                               const char *other)
{
    struct session_keys k;

    snprintf(k.folder, sizeof(k.folder), "%s", folder);
    snprintf(k.manager, sizeof(k.manager), "%s/manager.secret", k.folder);
    snprintf(k.manager_public, sizeof(k.manager_public), "%s/manager.public",
             k.folder);
    snprintf(k.other, sizeof(k.other), "%s/%s.secret", k.folder, other);
    return k;
}

/* Of the ports that the kernel gives to nobody by itself, so that nothing on a
 * busy machine takes it before it is used. */
static inline void session_free_address(char address[64])
{
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint16_t port = 0;

    for (int tries = 0; port == 0 && tries < 1000; tries++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        uint16_t drawn = 0;

        assert_int_equal(sizeof(drawn), getrandom(&drawn, sizeof(drawn), 0));
        drawn = (uint16_t)(10000u + drawn % 20000u);
        in.sin_port = htons(drawn);
        if (bind(fd, (struct sockaddr *)&in, sizeof(in)) == 0) {
            port = drawn;
        }
        close(fd);
    }
    assert_true(port != 0);
    snprintf(address, 64, "tcp:127.0.0.1:%u", port);
}

#endif /* SESSION_KEYS_H */
