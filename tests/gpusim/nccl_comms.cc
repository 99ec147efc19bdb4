// NCCL's calls on communicators: making, splitting, giving back, what has gone
// wrong, and buffers that they know.
#include "nccl.hpp"

#include <cstring>

using namespace gpusim;

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    guard hold(sim.lock);
    shared_file file;

    if (nccl_faults.fail_id || !make_file(&file)) {
        return ncclSystemError;
    }
    files[file.nonce] = file;
    memset(id, 0, sizeof(*id));
    memcpy(id->internal, &file, sizeof(file));
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks,
                                    ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    guard hold(sim.lock);
    shared_file file;

    *comm = nullptr;
    if (nranks < 1 || nranks > static_cast<int>(RANKS_MAX) || rank < 0 ||
        rank >= nranks ||
        (config != nullptr && (config->magic != 0xcafebeef ||
                               config->size > sizeof(ncclConfig_t)))) {
        return ncclInvalidArgument;
    }
    nccl_counts().inits++;
    auto c = add_comm(config);

    memcpy(&file, id.internal, sizeof(file));
    c->rank = static_cast<uint32_t>(rank);
    c->size = static_cast<uint32_t>(nranks);
    if (nccl_faults.fail_init || !open_file(*c, file)) {
        c->error = ncclSystemError;
        c->last_error = "whoever made the unique id cannot be reached";
    } else {
        arrive(*c);
    }
    if (files.erase(file.nonce) == 1) {
        c->file = file;
        c->has_file = true;
    }
    *comm = c->handle;
    return settle(c);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
                           ncclComm_t *newcomm, ncclConfig_t *config)
{
    guard hold(sim.lock);
    auto c = usable_comm(comm, "ncclCommSplit");

    *newcomm = nullptr;
    if (c == nullptr || (color < 0 && color != NCCL_SPLIT_NOCOLOR)) {
        return ncclInvalidArgument;
    }
    nccl_counts().splits++;
    c->splits++;
    auto *mine = &c->words->rank[c->rank].split[c->splits & 1u];

    mine->color = color;
    mine->key = key;
    mine->number = c->splits;
    c->is_splitting = true;
    fill_in(*c);
    c->newcomm = newcomm;
    c->made = nullptr;
    c->late = 1;
    if (color != NCCL_SPLIT_NOCOLOR) {
        c->child = add_comm(config);
        c->child->blocking = c->blocking;
        c->child->parent = c;
        c->child->state = comm_state::splitting;
        c->made = c->child->handle;
    }
    ncclResult_t result = settle(c);

    if (c->blocking) {
        fill_in(*c);
    }
    return result;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    guard hold(sim.lock);
    auto found = comms.find(comm);

    if (found == comms.end()) {
        return fail(nullptr, ncclInvalidArgument,
                    "ncclCommGetAsyncError on a communicator that was given "
                    "back or aborted");
    }
    auto c = found->second;

    step(c->parent != nullptr ? c->parent : c);
    *error = c->error != ncclSuccess ? c->error
             : in_progress(*c)       ? ncclInProgress
                                     : ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    guard hold(sim.lock);
    auto c = usable_comm(comm, "ncclCommFinalize");

    if (c == nullptr) {
        return ncclInvalidArgument;
    }
    if (c->state != comm_state::ready) {
        return fail(c.get(), ncclInvalidArgument,
                    "ncclCommFinalize on a communicator that is finalized");
    }
    c->state = comm_state::finalizing;
    c->words->rank[c->rank].finalized = 1;
    return settle(c);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    guard hold(sim.lock);
    auto c = usable_comm(comm, "ncclCommDestroy");

    if (c == nullptr) {
        return ncclInvalidArgument;
    }
    if (c->state != comm_state::finalized) {
        fail(c.get(), ncclInvalidUsage,
             "ncclCommDestroy on a communicator that is not finalized: it "
             "would wait for the others");
    }
    if (!c->registered.empty()) {
        note(GPUSIM_LEAK, "%zu buffers that are registered with NCCL",
             c->registered.size());
    }
    c->aborted = true;
    comms.erase(comm);
    return ncclSuccess;
}

// What it gives back is memory of the device, for which the whole device is
// waited for: work of another communicator that nobody has aborted yet may
// never end.
static void check_others(const communicator &c)
{
    for (const auto &entry : comms) {
        const communicator &other = *entry.second;

        if (&other != &c && pthread_equal(other.owner, c.owner) != 0 &&
            !other.aborted && other.under_way > 0) {
            fail(nullptr, ncclInvalidUsage,
                 "ncclCommAbort while work of another communicator is under "
                 "way: abort them in one group");
        }
    }
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    guard hold(sim.lock);
    auto found = comms.find(comm);

    if (found == comms.end()) {
        return fail(nullptr, ncclInvalidArgument,
                    "ncclCommAbort on a communicator that was given back or "
                    "aborted");
    }
    auto c = found->second;

    if (!in_group()) {
        check_others(*c);
    }
    c->aborted = true; // what is on a stream ends at the next look
    fill_in(*c);       // whoever makes it is waited for
    c->pending.clear();
    if (c->words != nullptr) {
        c->words->rank[c->rank].left = 1;
    }
    if (c->parent != nullptr) {
        c->parent->child = nullptr;
    }
    if (c->child != nullptr) {
        c->child->parent = nullptr;
        c->child->error = ncclRemoteError;
    }
    c->parent = c->child = nullptr;
    comms.erase(found);
    run_meetings();
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const text[] = {"no error",
                                       "unhandled cuda error",
                                       "unhandled system error",
                                       "internal error",
                                       "invalid argument",
                                       "invalid usage",
                                       ("remote process exited or there was a "
                                        "network error"),
                                       "NCCL operation in progress"};

    return result < ncclNumResults ? text[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    guard hold(sim.lock);
    auto found = comms.find(comm);

    return found == comms.end() ? "" : found->second->last_error.c_str();
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size,
                              void **handle)
{
    guard hold(sim.lock);
    auto c = usable_comm(comm, "ncclCommRegister");
    gpusim_fault kind;

    if (c == nullptr || nccl_faults.fail_register) {
        return ncclInvalidUsage;
    }
    if (!in_arena(buff) || wrong_with(buff, size, false, &kind) != nullptr) {
        return fail(c.get(), ncclInvalidArgument,
                    "%zu bytes that are registered are no device memory", size);
    }
    nccl_counts().registers++;
    *handle = reinterpret_cast<void *>(new_handle());
    c->registered[*handle] = reinterpret_cast<uint64_t>(buff);
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    guard hold(sim.lock);
    auto c = usable_comm(comm, "ncclCommDeregister");
    gpusim_fault kind;

    if (c == nullptr || c->registered.count(handle) == 0) {
        return fail(c.get(), ncclInvalidArgument,
                    "a buffer is taken back that is not registered");
    }
    if (wrong_with(reinterpret_cast<void *>(c->registered[handle]), 1, false,
                   &kind) != nullptr) {
        fail(c.get(), ncclInvalidUsage,
             "memory was given back while it was registered");
    }
    c->registered.erase(handle);
    return ncclSuccess;
}
