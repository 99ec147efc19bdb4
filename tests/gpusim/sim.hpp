// What the files of the simulator share.  One object, one lock.
#ifndef DYT_GPUSIM_SIM_HPP
#define DYT_GPUSIM_SIM_HPP

#include "gpusim.h"
#include "include/cuda_runtime.h"

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <set>
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif

namespace gpusim
{

// ---- faults (fault.cc) -----------------------------------------------------

// Count, print unless expected.  `kind` ends nothing by itself.
void note(gpusim_fault kind, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// The same, and the error that every later call returns.
void note_and_stick(gpusim_fault kind, cudaError_t error, const char *text);
// What a call returns: the error that sticks, else this one.
cudaError_t result(cudaError_t error);

// ---- order (stream.cc) -----------------------------------------------------

// How much of each stream: [stream] = operations from its beginning.
using moment = std::vector<uint32_t>;

bool before(const moment &what, const moment &of);
void join(moment &into, const moment &other);

// Which work touched a byte last: stream << 24 | number, 0: nobody.
using work_id = uint32_t;

struct work {
    moment needs; // all of it has run, and its own number
    int device;
    // False: it has begun, and cannot end before others have come; asked again.
    std::function<bool()> run;
    std::string name;
};

struct stream_state {
    std::deque<work> queue;
    uint32_t issued = 0, done = 0;
    uint32_t meetings = 0; // of the queue
    moment now;
    bool open = false, is_blocking = true;
    pthread_t owner = {}; // whose streams a wait for all waits for
    int device = 0;
};

// Queue it; with GPUSIM_EARLY it runs here.
void enqueue(cudaStream_t stream, std::string name, std::function<void()> run);
// The same for work that waits for others (of other processes, too): a wait for
// it lets other threads in meanwhile.  after: moments that it needs besides.
moment enqueue_meeting(cudaStream_t stream, std::string name,
                       const moment &after, std::function<bool()> run);
// Move such work on where it can be, and what it waits for: a device needs
// nobody to ask for it.
void run_meetings();
// Run what `until` needs.
void run_until(const moment &until);
// Wait for all, and the host knows it; but not for work of other threads that
// somebody else must come to.
void run_all();
cudaError_t wait_for(cudaStream_t stream);
stream_state *stream_of(cudaStream_t stream);

// ---- memory (memory.cc) ----------------------------------------------------

struct range {
    uint64_t bytes = 0;
    bool readable = true, is_writable = true;
    bool is_open = false; // its pages
    bool is_pooled = false;
    int kind = 0; // RANGE_*
    uint64_t physical = 0;
    int device = 0;                         // whose memory it is
    uint32_t opened_to = 0, written_by = 0; // bit d: device d, if mapped
    // IPC: whose it is there, and for which device it was opened.
    int owner = 0, opened_for = 0;
    uint64_t owner_offset = 0;
};
// MANAGED: an allocation that the host may touch as well.
enum { RANGE_MALLOC = 1, RANGE_IPC, RANGE_MAPPED, RANGE_MANAGED };

struct reservation {
    uint64_t bytes;
};

// Memory that this process made: it is held as long as anybody has it, which a
// lock of the file tells that all who have it share.
struct held_memory {
    int witness;
    uint64_t bytes;
    int device;
};

struct physical_state {
    int fd = -1;
    uint64_t bytes = 0;
    uint32_t maps = 0;
    int device = 0;
    uint32_t handles = 1;
    bool is_exportable = true;
};

// The span of addresses of the device, and what is known of each byte.
struct arena {
    unsigned char *base = nullptr;    // [ARENA_BYTES], data
    unsigned char *written = nullptr; // [ARENA_BYTES], 1: has a value
    work_id *writer = nullptr, *reader = nullptr; // [ARENA_BYTES / GRAIN]
    int data_fd = -1, written_fd = -1;
    int alive_fd = -1; // a byte for each 256 of data: an allocation begins here
    uint64_t next = 0;
};
// Addresses, which are never used twice; only what is touched takes memory.
constexpr uint64_t ARENA_BYTES = 256ull << 30;
constexpr uint64_t GRAIN = 2; // bytes that have one last writer
constexpr uint64_t GUARD = 64u << 10;
constexpr uint64_t VMM_GRAIN = 2u << 20;
constexpr uint64_t PAGE = 4096;

uint64_t up(uint64_t value, uint64_t to);
void *must(void *at, const char *what);
// The range of a map that holds or precedes an address.
template <class M> auto below(M &ranges, uint64_t address)
{
    auto found = ranges.upper_bound(address);

    return found == ranges.begin() ? ranges.end() : --found;
}

uint64_t offset_of(const void *ptr);
bool in_arena(const void *ptr);
// Addresses for `bytes`, guarded on both sides; 0: none left.
unsigned char *take_addresses(uint64_t bytes, uint64_t alignment);
// What is wrong with [ptr, ptr + bytes): text and kind, or NULL.
const char *wrong_with(const void *ptr, uint64_t bytes, bool store,
                       gpusim_fault *out_kind);
// May the device of the work that runs reach a range?
bool reachable(const range &r);
// Order and values of an access of the work that runs.
void touched(const void *ptr, uint64_t bytes, bool store, bool check_values);
void forget(const void *ptr, uint64_t bytes);
void open_arena();
void poison(const void *ptr, uint64_t bytes, bool on);
cudaError_t release(void *ptr, bool is_ipc);
// An allocation that other processes may ask for (ipc.cc) is there, or gone.
void set_alive(uint64_t base, bool alive);
// 0: no memory left.
uint64_t physical_take(uint64_t bytes, int device, bool is_exportable);
// Count what nobody has any more as given back.
void sweep_held();
void close_all_memory();
uint64_t leaked_memory();
uint64_t leaked_virtual();
void close_virtual();
// Did somebody write beside it?  What is closed is taken as good.
bool check_slack(uint64_t base, const range &r);

// ---- pages (pages.cc) ------------------------------------------------------

unsigned char *pages_of(uint64_t base);
uint64_t pages_bytes(uint64_t base, uint64_t bytes);
// Of a live range, until close_pages().
void open_pages(uint64_t base, range &r);
void close_pages();
// Handle signals, if others do.
void watch_signals();

// While there is one, this thread's accesses to device memory are the device's:
// around all work that runs, and calls that touch memory themselves.
class as_device
{
  public:
    as_device();
    ~as_device();
    as_device(const as_device &) = delete;
    as_device &operator=(const as_device &) = delete;
};

// ---- running (block.cc) ----------------------------------------------------

struct kernel {
    std::string name;
    dim3 grid, block;
    size_t shared_bytes;
    std::function<void()> body;
};
void run_kernel(const kernel &what);
bool in_kernel();
// From a thread of a kernel: end the kernel.
[[noreturn]] void leave_kernel();
const char *where_text();

// ---- sectors (sectors.cc) --------------------------------------------------

struct sector_access {
    const char *file;
    int line;
    uint32_t met;   // how often the warp had met
    uint32_t turn;  // the thread's how-manieth at this place since then
    uint32_t order; // the thread's how-manieth at all
    uint64_t sector;
    bool is_store;
};
void sectors_of_warp(std::vector<sector_access> &log);
void sectors_seen(uint64_t address, size_t bytes, bool is_store);
void sectors_end_kernel();

// ---- devices (device.cc) ---------------------------------------------------

constexpr int DEVICES = GPUSIM_DEVICES;

int current_device(); // of this thread
bool refuses(int device, int peer);
bool has_room(int device, uint64_t bytes);
// Which one of the host's a device is; and back, -1: not seen here.
int hardware_of(int device);
int device_of_hardware(int hardware);

// ---- errors on purpose (inject.cc) -----------------------------------------

// What a call that begins here returns instead; 0: nothing.
struct injected {
    int value;
    template <class E> operator E() const
    {
        return static_cast<E>(value);
    }
};
injected call(const char *name);
// The same for work that begins to run.
cudaError_t injected_into_work();
void inject_nothing();

// At the beginning of a call that can fail.
#define GPUSIM_CALL()                                                          \
    if (gpusim::injected failed_ = gpusim::call(__func__); failed_.value != 0) \
    return failed_

// ---- the one object --------------------------------------------------------

struct limits {
    unsigned threads, grid_y;
    size_t shared, shared_optin;
};
limits limits_of(int arch);

// The lock of everything, which a thread that has it once can lend for a while.
class lendable_mutex
{
  public:
    void lock()
    {
        mutex.lock();
        depth++;
    }
    void unlock()
    {
        depth--;
        mutex.unlock();
    }
    // Let others in; false: not from in here.
    bool lend();
    // In a child of fork(), whose parent had it: the owner is no thread here.
    void renew()
    {
        new (&mutex) std::recursive_mutex;
        depth = 0;
    }

  private:
    std::recursive_mutex mutex;
    unsigned depth = 0;
};

struct simulator {
    lendable_mutex lock;
    gpusim_machine machine;
    gpusim_order order;
    uint64_t seed, random;

    uint64_t faults[GPUSIM_FAULT_COUNT];
    bool expected[GPUSIM_FAULT_COUNT];
    uint64_t unexpected;
    std::string fault_text;
    cudaError_t sticky;

    std::vector<stream_state> streams; // [0] is the default stream
    std::map<cudaEvent_t, moment> events;
    moment host; // what the host has waited for
    const work *running;
    work_id running_id;
    bool noted_order, noted_value, noted_race; // once for each work

    arena memory;
    std::map<uint64_t, range> live, dead; // by address
    // Host memory: address, bytes.
    std::map<uint64_t, uint64_t> pinned, registered;
    std::map<uint64_t, reservation> reserved;
    std::map<uint64_t, physical_state> physical;
    std::vector<held_memory> ledger;
    std::vector<uint64_t> opened; // ranges whose pages are open
    uint32_t device_depth;
    pthread_t device_thread;
    uint64_t next_physical, held[DEVICES];
    uint64_t contexts;            // that are retained
    bool peers[DEVICES][DEVICES]; // [of]: it may reach [to]
    uintptr_t next_event;

    uint64_t launches, uploads, late_loads;
    std::set<const void *> loaded; // kernels
    size_t optin_shared;
    gpusim_traffic traffic;

    // Of communicators (nccl.cc), where a program has them.
    uint64_t (*leaked_comms)();
    void (*close_comms)();
};
extern simulator &sim;
extern thread_local cudaError_t last_error; // of this thread's calls

uint32_t random_below(uint32_t count);
using guard = std::lock_guard<lendable_mutex>;

} // namespace gpusim

#endif // DYT_GPUSIM_SIM_HPP
