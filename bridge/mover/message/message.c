/* Each message carries a head that says whose it is: the switch, and the number
 * among those of its pair.  What was lost, came twice, or is left over from an
 * earlier switch so has a name, whatever the group does.  Where the group can,
 * payloads go through: made and taken in the memory that it shares.  Where its
 * buffers are a device's, heads lie here and payloads there. */
#include "mover/message/message_internal.h"

#include <stdlib.h>
#include <string.h>

static void free_flights(struct dyti_message *mover)
{
    for (uint32_t i = 0; i < DYTI_GROUP_POSTS; i++) {
        mover->flight[i].open = false;
        mover->flight[i].next =
            (uint16_t)(i + 1 < DYTI_GROUP_POSTS ? i + 2 : 0);
    }
    mover->unused = 1;
    mover->open_count = 0;
    for (uint32_t i = 0; i < DYTI_MESSAGE_FUSED_MAX; i++) {
        mover->fused[i].left = 0;
    }
}

static void message_close(void *self)
{
    struct dyti_message *mover = self;

    if (mover != NULL) {
        free(mover->sent);
        free(mover->received);
        free(mover);
    }
}

static enum dyt_status message_open(const struct dyti_mover_params *params,
                                    void **out_self)
{
    const struct dyti_group *group = params->group;
    struct dyti_message *mover;

    if (group == NULL || group->ops == NULL || group->ops->post == NULL ||
        group->size != params->world_size || group->rank != params->rank) {
        return DYTI_FAIL(DYT_ERR_INVALID,
                         "message mover of rank %u of %u: a group of all ranks "
                         "that can post messages is needed",
                         params->rank, params->world_size);
    }
    mover = calloc(1, sizeof(*mover));
    if (mover != NULL) {
        mover->sent = calloc(params->world_size, sizeof(*mover->sent));
        mover->received = calloc(params->world_size, sizeof(*mover->received));
    }
    if (mover == NULL || mover->sent == NULL || mover->received == NULL) {
        message_close(mover);
        return DYTI_FAIL(DYT_ERR_NOMEM, "message mover of rank %u",
                         params->rank);
    }
    mover->group = *group;
    mover->rank = params->rank;
    mover->world_size = params->world_size;
    mover->is_device = (group->ops->caps & DYTI_GROUP_CAP_DEVICE) != 0;
    free_flights(mover);
    *out_self = mover;
    return DYT_OK;
}

bool dyti_message_through(const void *self)
{
    const struct dyti_message *mover = self;

    return (mover->group.ops->caps & DYTI_GROUP_CAP_THROUGH) != 0;
}

static bool message_queued(const void *self)
{
    const struct dyti_message *mover = self;

    return mover->is_device;
}

bool dyti_message_joint(const void *self)
{
    const struct dyti_message *mover = self;

    return mover->is_device && mover->group.ops->post_joint != NULL;
}

static enum dyt_status message_wait(void *self)
{
    struct dyti_message *mover = self;

    return mover->group.ops->wait(mover->group.self);
}

/* The peers may still send: what comes is dropped when the next switch begins.
 * A device also works while nobody looks, so its group must say that buffers
 * are left alone. */
static void message_cancel(void *self)
{
    struct dyti_message *mover = self;

    if (mover->is_device) {
        mover->group.ops->cancel(mover->group.self);
    }
    free_flights(mover);
}

static void message_begin(void *self, uint64_t epoch)
{
    struct dyti_message *mover = self;

    mover->group.ops->cancel(mover->group.self); /* all of them, as it wants */
    free_flights(mover);
    memset(mover->sent, 0, mover->world_size * sizeof(*mover->sent));
    memset(mover->received, 0, mover->world_size * sizeof(*mover->received));
    mover->epoch = epoch;
}

static void message_attach(void *self, void *base, uint64_t size_bytes)
{
    const struct dyti_message *mover = self;

    if (mover->group.ops->attach != NULL) { /* it goes without as well */
        (void)mover->group.ops->attach(mover->group.self, base, size_bytes);
    }
}

static void message_detach(void *self, void *base)
{
    const struct dyti_message *mover = self;

    if (mover->group.ops->detach != NULL) {
        mover->group.ops->detach(mover->group.self, base);
    }
}

const struct dyti_mover_ops dyti_mover_message = {
    .struct_size = sizeof(struct dyti_mover_ops),
    .name = "message",
    .caps = DYTI_MOVER_CAP_MESSAGE,
    .open = message_open,
    .close = message_close,
    .post = dyti_message_post,
    .poll = dyti_message_poll,
    .cancel = message_cancel,
    .begin = message_begin,
    .wait = message_wait,
    .through = dyti_message_through,
    .queued = message_queued,
    .landed = dyti_message_landed,
    .joint = dyti_message_joint,
    .attach = message_attach,
    .detach = message_detach,
};
