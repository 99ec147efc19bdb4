// The rest of the calls: devices, copies, launches, errors; and what tests say.
#include "sim.hpp"

#include "include/cuda.h"

#include <cstdio>
#include <cstring>

namespace gpusim
{

simulator &sim = *new simulator(); // threads may use it to the very end
thread_local cudaError_t last_error;

// ---- launches --------------------------------------------------------------

static bool within_limits(const char *name, dim3 grid, dim3 block, size_t bytes)
{
    limits l = limits_of(sim.machine.arch);
    uint64_t threads = uint64_t{block.x} * block.y * block.z;
    uint64_t shared = sim.optin_shared > l.shared ? sim.optin_shared : l.shared;
    bool good = threads > 0 && threads <= l.threads && block.z <= 64 &&
                grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= INT32_MAX &&
                grid.y <= l.grid_y && grid.z <= l.grid_y && bytes <= shared;

    if (!good) {
        note(GPUSIM_LIMITS,
             "%s with a grid of (%u,%u,%u), blocks of (%u,%u,%u) and %zu bytes "
             "of shared memory on sm_%d",
             name, grid.x, grid.y, grid.z, block.x, block.y, block.z, bytes,
             sim.machine.arch);
    }
    return good;
}

// Beside all that the kernel had open.
static void check_opened()
{
    for (uint64_t base : sim.opened) {
        auto found = sim.live.find(base);

        if (found != sim.live.end() &&
            !check_slack(found->first, found->second)) {
            sim.sticky = cudaErrorIllegalAddress;
        }
    }
}

// A kernel that nobody asked for before is loaded by its first launch, which
// may wait for the device: for ever, where work waits for another rank.
static void load_late(const char *name, const void *function)
{
    if (!sim.loaded.insert(function).second) {
        return;
    }
    sim.late_loads++;
    for (const auto &stream : sim.streams) {
        if (stream.meetings > 0 &&
            pthread_equal(stream.owner, pthread_self()) != 0) {
            note(GPUSIM_COLLECTIVE,
                 "%s is loaded by its first launch, while work of NCCL is "
                 "under way",
                 name);
            return;
        }
    }
}

cudaError_t launch(const char *name, const void *function, dim3 grid,
                   dim3 block, size_t shared_bytes, cudaStream_t stream,
                   std::function<void()> body)
{
    guard hold(sim.lock);
    kernel what = {name, grid, block, shared_bytes, std::move(body)};

    GPUSIM_CALL();
    if (stream_of(stream) == nullptr) {
        return result(cudaErrorInvalidResourceHandle);
    }
    if (sim.machine.device_count == 0) {
        return result(cudaErrorNoDevice);
    }
    if (stream != nullptr && stream_of(stream)->device != current_device()) {
        return result(cudaErrorInvalidResourceHandle); // of another device
    }
    if (!within_limits(name, grid, block, shared_bytes)) {
        return result(cudaErrorInvalidConfiguration);
    }
    load_late(name, function);
    enqueue(stream, name, [what] {
        run_kernel(what);
        check_opened();
    });
    return result(cudaSuccess);
}

// ---- copies ----------------------------------------------------------------

static bool usable(const void *ptr, size_t bytes, bool store, const char *what)
{
    gpusim_fault kind = GPUSIM_OUT_OF_BOUNDS;
    const char *wrong =
        in_arena(ptr) ? wrong_with(ptr, bytes, store, &kind) : nullptr;

    if (wrong != nullptr) {
        note_and_stick(kind, cudaErrorIllegalAddress,
                       (std::string(what) + ": " + wrong).c_str());
    }
    return wrong == nullptr;
}

static void copy_now(void *dst, const void *src, size_t bytes)
{
    if (!usable(src, bytes, false, "copy from") ||
        !usable(dst, bytes, true, "copy to")) {
        return;
    }
    if (in_arena(src)) { // what is copied on the device may have no value yet
        touched(src, bytes, false, !in_arena(dst));
    }
    if (in_arena(dst)) {
        touched(dst, bytes, true, false);
        if (in_arena(src)) {
            memmove(
                sim.memory.written +
                    (static_cast<unsigned char *>(dst) - sim.memory.base),
                sim.memory.written +
                    (static_cast<const unsigned char *>(src) - sim.memory.base),
                bytes);
        }
    }
    memmove(dst, src, bytes);
}

static bool sides_match(const void *dst, const void *src, cudaMemcpyKind kind)
{
    bool to = in_arena(dst), from = in_arena(src);

    switch (kind) {
    case cudaMemcpyHostToHost:
        return !to && !from;
    case cudaMemcpyHostToDevice:
        return to && !from;
    case cudaMemcpyDeviceToHost:
        return !to && from;
    case cudaMemcpyDeviceToDevice:
        return to && from;
    default:
        return true;
    }
}

static void set_now(void *dst, int value, size_t bytes)
{
    if (usable(dst, bytes, true, "memset")) {
        touched(dst, bytes, true, false);
        memset(dst, value, bytes);
    }
}

// ---- beginning anew --------------------------------------------------------

static void start()
{
    if (sim.memory.base == nullptr) {
        open_arena();
    }
    sim.streams.clear();
    sim.streams.resize(1);
    sim.streams[0].open = true;
}

// Before main(), so that a program without gpusim_reset() has a machine.
static const bool started = (gpusim_reset(), true);

} // namespace gpusim

using namespace gpusim;

void gpusim_reset(void)
{
    guard hold(sim.lock);

    sim.machine = {1, 12040, 90, 4ull << 30, true, 4, {}, {}};
    for (int i = 0; i < DEVICES; i++) {
        sim.machine.hardware[i] = i;
    }
    sim.order = GPUSIM_LATE;
    sim.seed = 0;
    sim.random = 1;
    memset(sim.expected, 1, sizeof(sim.expected)); // what is found below
    if (sim.close_comms != nullptr) {
        sim.close_comms();
    }
    sim.streams.clear();
    if (sim.memory.base != nullptr) {
        close_all_memory();
    }
    memset(sim.faults, 0, sizeof(sim.faults));
    memset(sim.expected, 0, sizeof(sim.expected));
    sim.unexpected = 0;
    sim.fault_text.clear();
    sim.sticky = last_error = cudaSuccess;
    sim.events.clear();
    sim.host.clear();
    sim.running = nullptr;
    sim.running_id = 0;
    memset(sim.held, 0, sizeof(sim.held));
    memset(sim.peers, 0, sizeof(sim.peers));
    sim.contexts = 0;
    inject_nothing();
    sim.launches = sim.uploads = sim.late_loads = 0;
    sim.loaded.clear();
    sim.optin_shared = 0;
    sim.traffic = {};
    start();
}

bool gpusim_simulates(void)
{
    return true;
}

void gpusim_set_machine(const gpusim_machine *machine)
{
    guard hold(sim.lock);

    sim.machine = *machine;
}

void gpusim_get_machine(gpusim_machine *out_machine)
{
    guard hold(sim.lock);

    *out_machine = sim.machine;
}

void gpusim_set_order(gpusim_order order, uint64_t seed)
{
    guard hold(sim.lock);

    sim.order = order;
    sim.seed = seed;
    sim.random = seed * 2 + 1;
}

uint64_t gpusim_leaks(void)
{
    guard hold(sim.lock);
    uint64_t count;

    run_all();
    count = leaked_memory();
    if (sim.leaked_comms != nullptr) {
        count += sim.leaked_comms();
    }
    for (size_t s = 1; s < sim.streams.size(); s++) {
        if (sim.streams[s].open) {
            note(GPUSIM_LEAK, "stream %zu", s);
            count++;
        }
    }
    if (sim.contexts > 0) {
        note(GPUSIM_LEAK, "contexts, %llu times",
             static_cast<unsigned long long>(sim.contexts));
        count++;
    }
    if (!sim.events.empty()) {
        note(GPUSIM_LEAK, "%zu events", sim.events.size());
        count += sim.events.size();
    }
    return count;
}

uint64_t gpusim_launches(void)
{
    return sim.launches;
}

uint64_t gpusim_late_loads(void)
{
    return sim.late_loads;
}

uint64_t gpusim_uploads(void)
{
    return sim.uploads;
}

uint64_t gpusim_held_bytes(void)
{
    uint64_t sum = 0;

    sweep_held();
    for (uint64_t held : sim.held) {
        sum += held;
    }
    return sum;
}

// ---- the calls -------------------------------------------------------------

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    if (stream_of(stream) == nullptr) {
        return result(cudaErrorInvalidResourceHandle);
    }
    if (!sides_match(dst, src, kind)) {
        return result(cudaErrorInvalidValue);
    }
    sim.uploads += in_arena(dst) && !in_arena(src);
    if (bytes > 0) {
        enqueue(stream, "copy", [=] { copy_now(dst, src, bytes); });
    }
    return result(cudaSuccess);
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes,
                       cudaMemcpyKind kind)
{
    guard hold(sim.lock);
    cudaError_t error = cudaMemcpyAsync(dst, src, bytes, kind, nullptr);

    return error == cudaSuccess ? result(wait_for(nullptr)) : error;
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes,
                            cudaStream_t stream)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    if (stream_of(stream) == nullptr) {
        return result(cudaErrorInvalidResourceHandle);
    }
    if (!in_arena(dst)) {
        return result(cudaErrorInvalidValue);
    }
    enqueue(stream, "memset", [=] { set_now(dst, value, bytes); });
    return result(cudaSuccess);
}

cudaError_t cudaMemset(void *dst, int value, size_t bytes)
{
    return cudaMemsetAsync(dst, value, bytes, nullptr);
}

cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int value)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    if (value < 0 ||
        static_cast<size_t>(value) > limits_of(sim.machine.arch).shared_optin) {
        return result(cudaErrorInvalidValue);
    }
    sim.optin_shared = static_cast<size_t>(value);
    return result(cudaSuccess);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *out, const void *function)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    *out = {sim.machine.arch};
    sim.loaded.insert(function);
    return result(cudaSuccess);
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = sim.sticky != cudaSuccess ? sim.sticky : last_error;

    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return sim.sticky != cudaSuccess ? sim.sticky : last_error;
}

const char *cudaGetErrorName(cudaError_t error)
{
    static const char *const name[] = {"cudaSuccess",
                                       "cudaErrorInvalidValue",
                                       "cudaErrorMemoryAllocation",
                                       "cudaErrorInitializationError",
                                       "cudaErrorInvalidConfiguration",
                                       "cudaErrorInsufficientDriver",
                                       "cudaErrorNoDevice",
                                       "cudaErrorInvalidDevice",
                                       "cudaErrorInvalidResourceHandle",
                                       "cudaErrorNotReady",
                                       "cudaErrorIllegalAddress",
                                       "cudaErrorMisalignedAddress",
                                       "cudaErrorLaunchFailure",
                                       "cudaErrorLaunchOutOfResources",
                                       "cudaErrorPeerAccessAlreadyEnabled",
                                       "cudaErrorPeerAccessUnsupported",
                                       "cudaErrorPeerAccessNotEnabled",
                                       "cudaErrorNotSupported",
                                       "cudaErrorNoKernelImageForDevice",
                                       "cudaErrorUnknown"};

    return error <= cudaErrorUnknown ? name[error] : "?";
}

const char *cudaGetErrorString(cudaError_t error)
{
    return cudaGetErrorName(error);
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
    static const char *const names[] = {"CUDA_SUCCESS",
                                        "CUDA_ERROR_INVALID_VALUE",
                                        "CUDA_ERROR_OUT_OF_MEMORY",
                                        "CUDA_ERROR_NOT_INITIALIZED",
                                        "CUDA_ERROR_NO_DEVICE",
                                        "CUDA_ERROR_INVALID_DEVICE",
                                        "CUDA_ERROR_INVALID_HANDLE",
                                        "CUDA_ERROR_NOT_SUPPORTED",
                                        "CUDA_ERROR_ILLEGAL_STATE",
                                        "CUDA_ERROR_INVALID_CONTEXT",
                                        "CUDA_ERROR_ILLEGAL_ADDRESS",
                                        "CUDA_ERROR_MAP_FAILED",
                                        "CUDA_ERROR_NOT_FOUND",
                                        "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
                                        "CUDA_ERROR_TOO_MANY_PEERS",
                                        "CUDA_ERROR_UNKNOWN"};

    *name = error <= CUDA_ERROR_UNKNOWN ? names[error] : "?";
    return CUDA_SUCCESS;
}
