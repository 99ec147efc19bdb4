/* What is called of NCCL, found in its library: nothing of ours is linked with
 * it.  Threads: any. */
#ifndef DYTI_COMM_NCCL_CALLS_H
#define DYTI_COMM_NCCL_CALLS_H

#include "ops/group.h"

#include <nccl.h>

#define DYTI_NCCL_LIBRARY "libnccl.so.2"
#define DYTI_NCCL_MIN     21800 /* 2.18: ncclCommSplit */

#define DYTI_NCCL_CALLS(X)                                                     \
    X(ncclGetVersion)                                                          \
    X(ncclGetErrorString)                                                      \
    X(ncclGetLastError)                                                        \
    X(ncclGetUniqueId)                                                         \
    X(ncclCommInitRankConfig)                                                  \
    X(ncclCommSplit)                                                           \
    X(ncclCommFinalize)                                                        \
    X(ncclCommDestroy)                                                         \
    X(ncclCommAbort)                                                           \
    X(ncclCommGetAsyncError)                                                   \
    X(ncclGroupStart)                                                          \
    X(ncclGroupEnd)                                                            \
    X(ncclSend)                                                                \
    X(ncclRecv)                                                                \
    X(ncclBroadcast)                                                           \
    X(ncclAllGather)                                                           \
    X(ncclReduceScatter)                                                       \
    X(ncclAllReduce)                                                           \
    X(ncclReduce)

struct dyti_nccl_calls {
#define DYTI_NCCL_MEMBER(f) __typeof__(&(f)) f;
    DYTI_NCCL_CALLS(DYTI_NCCL_MEMBER)
#undef DYTI_NCCL_MEMBER
    /* Since 2.19; NULL where the library has none.  Types are written out: the
     * header may be older. */
    ncclResult_t (*ncclCommRegister)(ncclComm_t comm, void *buff, size_t size,
                                     void **handle);
    ncclResult_t (*ncclCommDeregister)(ncclComm_t comm, void *handle);
};

/* `library` and its calls; it stays open as long as the process.
 * True: *out is whole.  The report says what there is in any case. */
bool dyti_nccl_open(const char *library, struct dyti_nccl_calls *out,
                    struct dyti_group_report *out_report);
/* DYTI_NCCL_LIBRARY, as it is found by the first who asks; a library that is
 * missing is looked for again.
 * @return DYT_ERR_UNSUPPORTED  the state, what is wrong, and the remedy */
enum dyt_status dyti_nccl_calls(const struct dyti_nccl_calls **out_calls);

#endif /* DYTI_COMM_NCCL_CALLS_H */
