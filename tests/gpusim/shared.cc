// Shared memory of a block: each byte knows who wrote and read it since the
// last barrier.
#include "run.hpp"

namespace gpusim
{

static size_t shared_grow(block *b, size_t bytes, size_t alignment)
{
    size_t at = (b->shared.size() + alignment - 1) / alignment * alignment;

    if (at + bytes > limits_of(sim.machine.arch).shared &&
        at + bytes > sim.optin_shared) {
        stop_with(GPUSIM_LIMITS, cudaErrorLaunchOutOfResources,
                  "%zu bytes of shared memory", at + bytes);
    }
    b->shared.resize(at + bytes, 0xA5);
    b->known.resize(at + bytes);
    return at;
}

size_t shared_static(const void *key, size_t bytes, size_t alignment)
{
    block *b = run.now->home;
    auto found = b->arrays.find(key);

    if (found == b->arrays.end()) {
        found = b->arrays.emplace(key, shared_grow(b, bytes, alignment)).first;
    }
    return found->second;
}

size_t shared_dynamic(size_t *out_bytes)
{
    *out_bytes = run.what->shared_bytes;
    return 0;
}

static void race(const char *what, size_t offset, uint32_t other)
{
    if (!sim.noted_race) {
        sim.noted_race = true;
        note(GPUSIM_SHARED_RACE,
             "%sbyte %zu is %s thread %s%d, and no barrier "
             "is between",
             where_text(), offset, what, other == MANY ? "s, " : "",
             static_cast<int>(other) - 1);
    }
}

static bool ordered(uint32_t thread, uint32_t epoch, uint32_t turn)
{
    const fiber *f = run.now;

    if (thread == 0 || thread == f->linear + 1 || epoch < f->home->epoch) {
        return true;
    }
    return thread != MANY && (thread - 1) / 32 == f->linear / 32 &&
           turn < f->team->turn;
}

static void shared_look(size_t offset, access how)
{
    const fiber *f = run.now;
    shared_byte *b = &f->home->known[offset];
    bool both_atomic = b->is_atomic && how == access::atomic;

    if (!both_atomic && !ordered(b->writer, b->writer_epoch, b->writer_turn)) {
        race("written by", offset, b->writer);
    }
    if (how == access::load) {
        bool alone = ordered(b->reader, b->reader_epoch, b->reader_turn);

        b->reader = alone ? f->linear + 1 : MANY;
        b->reader_epoch = f->home->epoch;
        b->reader_turn = f->team->turn;
    } else {
        if (!ordered(b->reader, b->reader_epoch, b->reader_turn)) {
            race("read by", offset, b->reader);
        }
        b->writer = f->linear + 1;
        b->writer_epoch = f->home->epoch;
        b->writer_turn = f->team->turn;
        b->is_atomic = how == access::atomic;
    }
    if (how != access::store && !b->has_value && !sim.noted_value) {
        sim.noted_value = true;
        note(GPUSIM_UNINITIALISED, "%sshared byte %zu", where_text(), offset);
    }
    b->has_value = true;
}

unsigned char *shared_bytes(size_t offset, size_t bytes, size_t alignment,
                            access how)
{
    block *b = run.now->home;

    if (offset > b->shared.size() || b->shared.size() - offset < bytes) {
        stop_with(GPUSIM_SHARED_BOUNDS, cudaErrorIllegalAddress,
                  "an index behind the end of a shared array");
    }
    if (offset % alignment != 0) {
        stop_with(GPUSIM_MISALIGNED, cudaErrorMisalignedAddress,
                  "shared byte %zu", offset);
    }
    for (size_t i = 0; i < bytes; i++) {
        shared_look(offset + i, how);
    }
    return b->shared.data() + offset;
}

} // namespace gpusim
