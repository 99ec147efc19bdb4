/* What members whose group shares no memory say to the first one, and it to
 * them. */
#ifndef DYTI_COMM_NCCL_DESK_H
#define DYTI_COMM_NCCL_DESK_H

#include "comm/nccl/nccl_group.h"

#define DYTI_NCCL_MET_MOST 32u

enum dyti_nccl_op {
    DYTI_NCCL_ASK_OPEN = 1,
    DYTI_NCCL_ASK_MEET,
    DYTI_NCCL_ASK_OFFER,
    DYTI_NCCL_ASK_JOIN,
    DYTI_NCCL_ASK_LACKS,
    DYTI_NCCL_ASK_TAKE,
    DYTI_NCCL_ASK_WITHDRAW,
    DYTI_NCCL_ASK_BYE
};

/* What a member asks; a team's list stands behind it. */
struct dyti_nccl_request {
    uint32_t op, number; /* DYTI_NCCL_ASK_OPEN: how often; DYTI_NCCL_ASK_MEET:
                            which round */
    uint64_t tag;
    uint32_t size; /* of the team's list */
    uint16_t place;
    struct dyti_nccl_offer offer;
};

struct dyti_nccl_met {
    uint64_t other_bytes;
    uint16_t place;
    bool is_wrong;
    unsigned char head[DYTI_P2P_HEAD_BYTES];
};

struct dyti_nccl_reply {
    int32_t status;
    uint32_t who;   /* has not come, or lacks it; size: nobody */
    uint32_t wrong; /* DYTI_NCCL_ASK_MEET: is in another call; size: nobody */
    uint32_t count; /* DYTI_NCCL_ASK_TAKE */
    unsigned char id[NCCL_UNIQUE_ID_BYTES];
    bool is_met[DYTI_GROUP_POSTS];
    struct dyti_nccl_met met[DYTI_NCCL_MET_MOST];
};

/* In which the others close, too, when nothing is wrong with them; and when
 * something may be. */
#define DYTI_NCCL_BYE_NS   5000000000
#define DYTI_NCCL_BRIEF_NS 100000000

/* The reply's status to whoever asks a first member that has closed. */
#define DYTI_NCCL_CLOSED DYT_ERR_CANCELLED

/* desk_ask.c: of a member that asks. */
enum dyt_status dyti_nccl_desk_begin(struct dyti_nccl_group *group,
                                     const struct dyti_group *carrier,
                                     uint64_t bytes);
void dyti_nccl_desk_end(struct dyti_nccl_group *group);

#endif /* DYTI_COMM_NCCL_DESK_H */
