// Communicators of the simulated NCCL: made by a unique id or by a split, and
// given back.  One that does not block says "in progress" for as long as it
// takes, and once more, so that who does not ask is found.
#include "nccl.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace gpusim
{

// Threads may use them to the very end.
std::map<ncclComm_t, std::shared_ptr<communicator>> &comms =
    *new std::map<ncclComm_t, std::shared_ptr<communicator>>();
gpusim_nccl_faults &nccl_faults = *new gpusim_nccl_faults();
std::map<uint64_t, shared_file> &files = *new std::map<uint64_t, shared_file>();
static uintptr_t next_handle = 0x4e43;
static bool is_driven;

ncclResult_t fail(communicator *c, ncclResult_t result, const char *form, ...)
{
    char text[400];
    va_list args;

    va_start(args, form);
    vsnprintf(text, sizeof(text), form, args);
    va_end(args);
    note(GPUSIM_COLLECTIVE, "%s", text);
    if (c != nullptr) {
        c->last_error = text;
    }
    return result;
}

// ---- shared memory ---------------------------------------------------------

uint64_t words_bytes_of(uint32_t size)
{
    return up(sizeof(shared_words), PAGE) + gpusim_carry_bytes(size);
}

bool make_file(shared_file *out)
{
    static uint64_t count;
    int fd = memfd_create("gpusim.nccl", MFD_CLOEXEC);
    auto nonce = static_cast<uint64_t>(getpid()) << 32 | ++count;

    if (fd < 0 ||
        ftruncate(fd, static_cast<off_t>(words_bytes_of(RANKS_MAX))) != 0 ||
        pwrite(fd, &nonce, sizeof(nonce), 0) != sizeof(nonce)) {
        close(fd);
        return false;
    }
    *out = {getpid(), fd, nonce};
    return true;
}

bool open_file(communicator &c, const shared_file &file)
{
    uint64_t bytes = words_bytes_of(c.size);
    char path[64];
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", file.pid, file.fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    close(fd);
    if (at == MAP_FAILED) {
        return false;
    }
    c.words = static_cast<shared_words *>(at);
    c.words_bytes = bytes;
    return c.words->nonce == file.nonce;
}

communicator::~communicator()
{
    if (group != nullptr) {
        gpusim_carry_close(group);
    }
    if (words != nullptr) {
        munmap(words, words_bytes);
    }
    if (has_file) {
        close(file.fd);
    }
}

// ---- who is there ----------------------------------------------------------

static bool process_ended(int pid)
{
    int fd;
    bool ended;

    if (pid == 0) {
        return false; // not here yet
    }
    fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (fd < 0) {
        return true;
    }
    struct pollfd look = {fd, POLLIN, 0};

    ended = poll(&look, 1, 0) == 1;
    close(fd);
    return ended;
}

bool is_gone(const communicator &c, uint32_t rank)
{
    return c.words->rank[rank].left != 0 ||
           process_ended(c.words->rank[rank].pid);
}

static bool all(const communicator &c, std::atomic<uint32_t> rank_words::*word)
{
    for (uint32_t r = 0; r < c.size; r++) {
        if ((c.words->rank[r].*word) == 0) {
            return false;
        }
    }
    return true;
}

// ---- states ----------------------------------------------------------------

void arrive(communicator &c)
{
    c.words->rank[c.rank].pid = getpid();
    c.words->rank[c.rank].arrived = 1;
}

static void open_group(communicator &c)
{
    c.group = gpusim_carry_open(reinterpret_cast<unsigned char *>(c.words) +
                                    up(sizeof(shared_words), PAGE),
                                c.rank, c.size);
    if (c.group == nullptr) {
        c.error = ncclSystemError;
    }
    c.patience = 1;
    c.state = comm_state::ready;
}

// The ranks of a split that have this color, by key; false: not all are here.
static bool split_ranks(const communicator &c, std::vector<uint32_t> *out)
{
    const auto *mine = &c.words->rank[c.rank].split[c.splits & 1u];

    for (uint32_t r = 0; r < c.size; r++) {
        const auto *other = &c.words->rank[r].split[c.splits & 1u];

        if (other->number != c.splits) {
            return false;
        }
        if (other->color == mine->color) {
            out->push_back(r);
        }
    }
    std::stable_sort(out->begin(), out->end(), [&](uint32_t a, uint32_t b) {
        return c.words->rank[a].split[c.splits & 1u].key <
               c.words->rank[b].split[c.splits & 1u].key;
    });
    return true;
}

// A communicator that is split, when all have come: the first of each color
// makes the memory of the new one.
static void step_split(communicator &c)
{
    std::vector<uint32_t> ranks;
    communicator *child = c.child.get();
    auto *mine = &c.words->rank[c.rank].split[c.splits & 1u];

    if (!split_ranks(c, &ranks)) {
        return;
    }
    if (child == nullptr) { // of no color
        c.is_splitting = false;
        return;
    }
    child->size = static_cast<uint32_t>(ranks.size());
    child->rank = static_cast<uint32_t>(
        std::find(ranks.begin(), ranks.end(), c.rank) - ranks.begin());
    if (child->rank == 0 && mine->made != c.splits) {
        if (!make_file(&child->file)) {
            child->error = c.error = ncclSystemError;
            return;
        }
        child->has_file = true;
        mine->child = child->file;
        mine->made = c.splits;
    }
    const auto *first = &c.words->rank[ranks[0]].split[c.splits & 1u];

    if (first->made != c.splits) {
        return;
    }
    if (child->words == nullptr) {
        if (!open_file(*child, first->child)) {
            child->error = ncclSystemError;
            return;
        }
        arrive(*child);
        child->state = comm_state::arriving;
    }
    if (all(*child, &rank_words::arrived)) {
        open_group(*child);
        child->parent = nullptr;
        c.child = nullptr;
        c.is_splitting = false;
    }
}

void fill_in(communicator &c)
{
    if (c.newcomm != nullptr) {
        __atomic_store_n(c.newcomm, c.made, __ATOMIC_RELEASE);
        c.newcomm = nullptr;
    }
}

static void queue_pending(const std::shared_ptr<communicator> &c)
{
    for (auto &l : c->pending) {
        c->under_way++;
        c->last = enqueue_meeting(l->stream, "nccl", c->last, [l] {
            bool ended = attend(*l);

            l->comm->under_way -= ended;
            return ended;
        });
    }
    c->pending.clear();
}

void step(const std::shared_ptr<communicator> &c)
{
    switch (c->state) {
    case comm_state::arriving:
        if (c->words != nullptr && c->parent == nullptr &&
            all(*c, &rank_words::arrived)) {
            open_group(*c);
        }
        break;
    case comm_state::splitting:
        break; // its parent does it
    case comm_state::ready:
        if (c->is_splitting) {
            step_split(*c);
        } else if (c->newcomm != nullptr && c->late-- == 0) {
            fill_in(*c);
        } else if (c->patience > 0) {
            c->patience--;
        } else {
            queue_pending(c);
        }
        break;
    case comm_state::finalizing:
        run_meetings();
        if (all(*c, &rank_words::finalized)) {
            c->state = comm_state::finalized;
        }
        break;
    case comm_state::finalized:
        break;
    }
}

bool in_progress(const communicator &c)
{
    return c.error == ncclSuccess &&
           (c.state == comm_state::arriving ||
            c.state == comm_state::splitting ||
            c.state == comm_state::finalizing || c.is_splitting ||
            c.patience > 0 || !c.pending.empty());
}

// A device goes on by itself, and so does a communicator's own thread.
static void drive()
{
    const struct timespec slice = {0, 300000};

    while (true) {
        nanosleep(&slice, nullptr);
        guard hold(sim.lock);

        if (comms.empty()) {
            is_driven = false;
            return;
        }
        auto now = comms;

        for (auto &entry : now) {
            if (entry.second->state != comm_state::finalizing) {
                step(entry.second);
            }
        }
        run_meetings();
    }
}

static void in_child()
{
    is_driven = false; // the thread is the parent's
    comms.clear();
    files.clear();
}

static uint64_t leaked();
static void forget_all();

uintptr_t new_handle()
{
    return next_handle += 16;
}

std::shared_ptr<communicator> add_comm(const ncclConfig_t *config)
{
    static const bool watches =
        (pthread_atfork(nullptr, nullptr, in_child), true);
    auto c = std::make_shared<communicator>();

    (void)watches;
    sim.leaked_comms = leaked;
    sim.close_comms = forget_all;
    c->handle = reinterpret_cast<ncclComm_t>(new_handle());
    c->blocking = config == nullptr || config->blocking != 0;
    comms[c->handle] = c;
    if (!is_driven) {
        is_driven = true;
        std::thread(drive).detach();
    }
    return c;
}

std::shared_ptr<communicator> usable_comm(ncclComm_t handle, const char *what)
{
    auto found = comms.find(handle);

    if (found == comms.end()) {
        fail(nullptr, ncclInvalidArgument,
             "%s on a communicator that was given back or aborted", what);
        return nullptr;
    }
    if (in_progress(*found->second)) {
        fail(found->second.get(), ncclInvalidUsage,
             "%s on a communicator that is still in progress", what);
        return nullptr;
    }
    return found->second;
}

ncclResult_t settle(const std::shared_ptr<communicator> &c)
{
    while (c->blocking && in_progress(*c) && !c->aborted) {
        step(c);
        if (in_progress(*c) && !sim.lock.lend()) {
            return ncclInternalError;
        }
    }
    return c->error != ncclSuccess ? c->error
           : in_progress(*c)       ? ncclInProgress
                                   : ncclSuccess;
}

static uint64_t leaked()
{
    for (const auto &entry : comms) {
        note(GPUSIM_LEAK, "a communicator of %u ranks", entry.second->size);
    }
    return comms.size();
}

static gpusim_nccl_counts counts;

static void forget_all()
{
    for (auto &entry : comms) {
        entry.second->aborted = true;
        entry.second->pending.clear(); // they hold it
        entry.second->parent = entry.second->child = nullptr;
    }
    comms.clear();
    for (auto &entry : files) {
        close(entry.second.fd);
    }
    files.clear();
    nccl_faults = {};
    counts = {};
}

gpusim_nccl_counts &nccl_counts()
{
    return counts;
}

} // namespace gpusim

using namespace gpusim;

void gpusim_nccl_set_faults(const gpusim_nccl_faults *faults)
{
    guard hold(sim.lock);

    nccl_faults = *faults;
}

void gpusim_nccl_get_counts(struct gpusim_nccl_counts *out_counts)
{
    guard hold(sim.lock);

    *out_counts = counts;
    out_counts->live = comms.size();
    out_counts->registered = 0;
    for (const auto &entry : comms) {
        out_counts->registered += entry.second->registered.size();
    }
}
