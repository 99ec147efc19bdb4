// What the files of the simulated NCCL share: communicators, and what was
// called on them.  A communicator's ranks are threads of one process or of
// several; what they say goes through a group of comm/shm in memory that the
// maker of the unique id has a file for.
#ifndef DYT_GPUSIM_NCCL_HPP
#define DYT_GPUSIM_NCCL_HPP

#include "gpusim_nccl.h"
#include "nccl_carry.h"
#include "sim.hpp"

#include "include/nccl.h"

#include <atomic>
#include <memory>
#include <pthread.h>
#include <set>
#include <vector>

namespace gpusim
{

constexpr uint32_t RANKS_MAX = 64;

// A file that another process opens by these.
struct shared_file {
    int pid, fd;
    uint64_t nonce;
};

// Of a rank, in the shared memory.
struct rank_words {
    std::atomic<int> pid;
    std::atomic<uint32_t> arrived, finalized, left;
    // Splits by parity: what this one came with, and its number.
    struct {
        std::atomic<uint32_t> number, made; // made: `child` is there
        int color, key;
        shared_file child;
    } split[2];
    std::atomic<uint64_t> taken[RANKS_MAX]; // messages, by source
};

struct shared_words {
    uint64_t nonce;
    rank_words rank[RANKS_MAX];
};

enum class call_kind : uint32_t {
    receive,
    send,
    broadcast,
    all_gather,
    reduce_scatter,
    all_reduce,
    reduce
};

struct nccl_call {
    call_kind kind;
    const void *in;
    void *out;
    size_t count;
    ncclDataType_t type;
    int peer; // or root
    ncclRedOp_t op;
    cudaStream_t stream;
};

// What goes before the bytes of a message: both ends must mean the same.
struct label {
    call_kind kind;
    uint32_t type, op;
    int32_t root;
    uint64_t count, number; // number: of collectives
};

// A message of a call.
struct part {
    size_t call;
    uint32_t peer;
    bool is_send, posted, landed;
    uint64_t number, ticket; // number: of its pair
    label wanted;
    std::vector<unsigned char> bytes; // label, data, which bytes have a value
};

struct communicator;

// All calls of one group on one stream.
struct batch {
    std::shared_ptr<communicator> comm;
    cudaStream_t stream;
    std::vector<nccl_call> calls;
    std::vector<part> parts;
    bool begun = false;
};

enum class comm_state { arriving, splitting, ready, finalizing, finalized };

struct communicator {
    ncclComm_t handle = nullptr;
    uint32_t rank = 0, size = 0;
    bool blocking = true, aborted = false, has_file = false;
    comm_state state = comm_state::arriving;
    ncclResult_t error = ncclSuccess;
    shared_file file = {};
    shared_words *words = nullptr;
    uint64_t words_bytes = 0;
    void *group = nullptr;
    moment last; // of its work
    uint64_t collectives = 0;
    uint64_t sent[RANKS_MAX] = {}, received[RANKS_MAX] = {};
    std::vector<std::shared_ptr<batch>> pending; // not on a stream yet
    uint32_t patience = 0; // how often it still says "in progress"
    // While it is split, and of one that is made by a split.
    uint32_t splits = 0;
    std::shared_ptr<communicator> parent, child;
    int color = 0, key = 0;
    bool is_splitting = false;
    // Where the caller of a split waits for what it makes, which is filled in
    // when it is made, and a look later than this one is said to be ready.
    ncclComm_t *newcomm = nullptr, made = nullptr;
    uint32_t late = 0;
    pthread_t owner = pthread_self();
    uint32_t under_way = 0;                // launches that have not ended
    std::map<void *, uint64_t> registered; // handle: address
    std::string last_error;
    ~communicator();
};

extern std::map<ncclComm_t, std::shared_ptr<communicator>> &comms;
extern gpusim_nccl_faults &nccl_faults;

// ---- nccl.cc ---------------------------------------------------------------

uint64_t words_bytes_of(uint32_t size);
bool make_file(shared_file *out);
// False: its maker is gone.
bool open_file(communicator &c, const shared_file &file);
// Moves it on where it can be: arriving, splitting, finalizing, queueing.
void step(const std::shared_ptr<communicator> &c);
ncclResult_t fail(communicator *c, ncclResult_t result, const char *form, ...)
    __attribute__((format(printf, 3, 4)));
// The communicator of a handle that may be used now, or NULL after a note.
std::shared_ptr<communicator> usable_comm(ncclComm_t handle, const char *what);
bool is_gone(const communicator &c, uint32_t rank); // died, or aborted
// Ids without a communicator yet.
extern std::map<uint64_t, shared_file> &files;
uintptr_t new_handle();
std::shared_ptr<communicator> add_comm(const ncclConfig_t *config);
void arrive(communicator &c);
// What a split has made goes where its caller waits for it.
void fill_in(communicator &c);
bool in_progress(const communicator &c);
// Of one that blocks: until it is not in progress.
ncclResult_t settle(const std::shared_ptr<communicator> &c);
gpusim_nccl_counts &nccl_counts();

// ---- nccl_calls.cc ---------------------------------------------------------

// One more look at the messages of a batch; true: it has ended.
bool attend(batch &l);
size_t bytes_of(ncclDataType_t type);
bool in_group(); // of this thread

} // namespace gpusim

#endif // DYT_GPUSIM_NCCL_HPP
