/* What backends of groups do alike. */
#include "ops/group.h"

enum dyt_status dyti_group_own_messages(const char *name, uint32_t rank,
                                        const struct dyti_p2p *message,
                                        size_t count, dyti_own_copy_fn copy,
                                        void *arg)
{
    enum dyt_status st = DYT_OK;
    size_t in = 0;

    for (size_t out = 0; out < count && st == DYT_OK; out++) {
        if (message[out].peer != rank || !message[out].is_send) {
            continue;
        }
        while (in < count &&
               (message[in].peer != rank || message[in].is_send)) {
            in++;
        }
        if (in == count || message[in].size_bytes != message[out].size_bytes) {
            return DYTI_FAIL(DYT_ERR_INVALID,
                             "group %s: member %u sends itself %llu bytes that "
                             "it does not wait for",
                             name, rank,
                             (unsigned long long)message[out].size_bytes);
        }
        if (message[out].size_bytes > 0) {
            st = copy(arg, message[in].buf, message[out].buf,
                      message[out].size_bytes);
        }
        in++;
    }
    return st;
}
