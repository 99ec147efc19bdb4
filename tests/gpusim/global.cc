// Accesses of a kernel to global memory by dev_load(), dev_store() and atomics.
#include "run.hpp"

namespace gpusim
{

static bool lies_in(const std::map<uint64_t, uint64_t> &ranges,
                    uint64_t address, size_t bytes)
{
    auto found = ranges.upper_bound(address);

    if (found == ranges.begin()) {
        return false;
    }
    --found;
    return address + bytes <= found->first + found->second;
}

static bool is_pinned(uint64_t address, size_t bytes)
{
    return lies_in(sim.pinned, address, bytes) ||
           lies_in(sim.registered, address, bytes);
}

// How often this thread has been here since its warp met last.
static uint32_t turn_of(fiber *f, const char *file, int line)
{
    if (f->turns_of != f->team->turn) {
        f->turns_of = f->team->turn;
        f->turns.clear();
    }
    for (auto &place : f->turns) {
        if (place.first.first == file && place.first.second == line) {
            return ++place.second;
        }
    }
    f->turns.push_back({{file, line}, 0});
    return 0;
}

static void keep_sectors(uint64_t address, size_t bytes, bool is_store,
                         const char *file, int line)
{
    fiber *f = run.now;
    uint32_t turn = turn_of(f, file, line);
    uint32_t order = f->accesses++;

    sectors_seen(address, bytes, is_store);
    for (uint64_t s = address / 32; s <= (address + bytes - 1) / 32; s++) {
        f->team->log.push_back(
            {file, line, f->team->turn, turn, order, s, is_store});
    }
}

void global(const void *ptr, size_t bytes, size_t alignment, access how,
            const char *file, int line)
{
    auto address = reinterpret_cast<uint64_t>(ptr);
    gpusim_fault kind = GPUSIM_OUT_OF_BOUNDS;
    const char *wrong;

    if (run.now == nullptr) {
        return;
    }
    run.idle = 0;
    if (address % alignment != 0) {
        stop_with(GPUSIM_MISALIGNED, cudaErrorMisalignedAddress,
                  "%s:%d: %zu bytes at an address that is %llu beside them",
                  file, line, bytes,
                  static_cast<unsigned long long>(address % alignment));
    }
    if (is_pinned(address, bytes)) {
        return;
    }
    wrong = wrong_with(ptr, bytes, how != access::load, &kind);
    if (wrong == nullptr && !reachable(below(sim.live, address)->second)) {
        kind = GPUSIM_UNMAPPED;
        wrong = "memory of another device, without access to it";
    }
    if (wrong != nullptr) {
        stop_with(kind, cudaErrorIllegalAddress, "%s:%d: %s", file, line,
                  wrong);
    }
    if (how == access::atomic) {
        return; // of any order
    }
    touched(ptr, bytes, how == access::store, true);
    keep_sectors(address, bytes, how == access::store, file, line);
}

} // namespace gpusim
