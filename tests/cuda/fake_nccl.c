/* A library in NCCL's place that has the fault which the build names:
 * FAKE_STATE is one of the words below.  It connects nobody. */
#define WHOLE    0
#define OLD      1 /* 2.17.1 */
#define ANCIENT  2 /* 2.7.8, of the time when versions had four digits */
#define NEXT     3 /* 3.0.0 */
#define MISSING  4 /* no ncclCommSplit */
#define NO_WORDS 5 /* it does not say its version */
#define PLAIN    6 /* 2.18.3: buffers cannot be registered */

int ncclGetVersion(int *version);

int ncclGetVersion(int *version)
{
    static const int number[] = {22809, 21701, 2708, 30000, 22809, 0, 21803};

    *version = number[FAKE_STATE];
    return FAKE_STATE == NO_WORDS ? 3 : 0;
}

#define NOTHING(f)                                                             \
    void f(void);                                                              \
    void f(void)                                                               \
    {                                                                          \
    }
NOTHING(ncclGetErrorString)
NOTHING(ncclGetLastError)
NOTHING(ncclGetUniqueId)
NOTHING(ncclCommInitRankConfig)
#if FAKE_STATE != MISSING
NOTHING(ncclCommSplit)
#endif
NOTHING(ncclCommFinalize)
NOTHING(ncclCommDestroy)
NOTHING(ncclCommAbort)
NOTHING(ncclCommGetAsyncError)
NOTHING(ncclGroupStart)
NOTHING(ncclGroupEnd)
NOTHING(ncclSend)
NOTHING(ncclRecv)
NOTHING(ncclBroadcast)
NOTHING(ncclAllGather)
NOTHING(ncclReduceScatter)
NOTHING(ncclAllReduce)
NOTHING(ncclReduce)
#if FAKE_STATE != PLAIN
NOTHING(ncclCommRegister)
NOTHING(ncclCommDeregister)
#endif
