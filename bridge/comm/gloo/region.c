/* The group's region: where members leave their addresses while they open, and
 * how many collectives they have come to. */
#include "comm/gloo/gloo_group.h"

#include "base/checked.h"

#include <string.h>

static uint64_t member_stride(uint32_t size)
{
    return dyti_align_up(sizeof(struct dyti_gloo_member) +
                             (uint64_t)size * DYTI_GLOO_ADDRESS_BYTES +
                             DYTI_GLOO_ADDRESS_BYTES,
                         64);
}

uint64_t dyti_gloo_region_bytes(uint32_t size)
{
    return size * member_stride(size);
}

struct dyti_gloo_member *dyti_gloo_member_at(
    const struct dyti_gloo_group *group, uint32_t member)
{
    return (struct dyti_gloo_member *)(void *)(group->shared +
                                               member *
                                                   member_stride(group->size));
}

int dyti_gloo_store_set(void *arg, const char *key, const void *data,
                        size_t bytes)
{
    const struct dyti_gloo_group *group = arg;
    struct dyti_gloo_member *me = dyti_gloo_member_at(group, group->rank);
    uint32_t count = atomic_load(&me->key_count), offset = 0;
    struct dyti_gloo_key *entry = &me->key[count];

    if (count > 0) {
        offset = me->key[count - 1].offset + me->key[count - 1].bytes;
    }
    if (count == DYTI_GLOO_KEYS || strlen(key) >= sizeof(entry->name) ||
        bytes + offset > member_stride(group->size) - sizeof(*me)) {
        return -1;
    }
    memcpy(entry->name, key, strlen(key) + 1);
    memcpy(me->data + offset, data, bytes);
    entry->offset = offset;
    entry->bytes = (uint32_t)bytes;
    atomic_store(&me->key_count, count + 1);
    if (group->told != NULL) {
        group->told(group->told_arg);
    }
    return 0;
}

long dyti_gloo_store_get(void *arg, const char *key, void *data, size_t room)
{
    const struct dyti_gloo_group *group = arg;
    uint32_t opens = dyti_gloo_member_at(group, group->rank)->opens;

    if (atomic_load(&group->abort->value) != 0) {
        return -1;
    }
    for (uint32_t i = 0; i < group->size; i++) {
        const struct dyti_gloo_member *member = dyti_gloo_member_at(group, i);
        uint32_t count = atomic_load(&member->key_opens) == opens
                             ? atomic_load(&member->key_count)
                             : 0;

        for (uint32_t k = 0; k < count && k < DYTI_GLOO_KEYS; k++) {
            const struct dyti_gloo_key *entry = &member->key[k];

            if (strcmp(entry->name, key) == 0) {
                if (entry->bytes > room) {
                    return -1;
                }
                memcpy(data, member->data + entry->offset, entry->bytes);
                return (long)entry->bytes;
            }
        }
    }
    return 0;
}

int dyti_gloo_store_given_up(void *arg)
{
    const struct dyti_gloo_group *group = arg;

    return atomic_load(&group->abort->value) != 0;
}
