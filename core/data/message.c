#include "data/message.h"

#include <stdlib.h>

static const char *const names[DYTI_MSG_COUNT] = {
    [DYTI_MSG_HELLO] = "hello",
    [DYTI_MSG_ASSIGN] = "assign",
    [DYTI_MSG_READY] = "ready",
    [DYTI_MSG_HEARTBEAT] = "heartbeat",
    [DYTI_MSG_PAUSE] = "pause",
    [DYTI_MSG_PAUSED] = "paused",
    [DYTI_MSG_SWITCH] = "switch",
    [DYTI_MSG_SWITCH_READY] = "switch ready",
    [DYTI_MSG_SWITCH_DONE] = "switch done",
    [DYTI_MSG_GENERATE] = "generate",
    [DYTI_MSG_SAMPLES] = "samples",
    [DYTI_MSG_TRAIN] = "train",
    [DYTI_MSG_METRICS] = "metrics",
    [DYTI_MSG_CHECKPOINT] = "checkpoint",
    [DYTI_MSG_CHECKPOINT_DONE] = "checkpoint done",
    [DYTI_MSG_ERROR] = "error",
    [DYTI_MSG_BYE] = "bye",
    [DYTI_MSG_JOIN] = "join",
    [DYTI_MSG_JOINED] = "joined",
    [DYTI_MSG_ROWS] = "rows",
    [DYTI_MSG_CATALOGUE] = "catalogue",
    [DYTI_MSG_MEMORY] = "memory",
    [DYTI_MSG_READERS] = "readers",
    [DYTI_MSG_LINK] = "link",
    [DYTI_MSG_ORDER] = "order",
    [DYTI_MSG_REPORT] = "report",
    [DYTI_MSG_REQUEST] = "request",
    [DYTI_MSG_ANSWER] = "answer",
    [DYTI_MSG_STATUS] = "status",
    [DYTI_MSG_MEET] = "meet",
};

const char *dyti_message_name(enum dyti_message type)
{
    return (uint32_t)type < DYTI_MSG_COUNT && names[type] != NULL ? names[type]
                                                                  : "unknown";
}

void dyti_buffer_fini(struct dyti_buffer *buffer)
{
    free(buffer->bytes);
    *buffer = (struct dyti_buffer){0};
}
