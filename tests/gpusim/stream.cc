// Streams and events.  Work knows by a moment what must have run before it, in
// every stream; between that and what is waited for, the simulator is free, and
// chooses what is worst: as late, as early, or as shuffled as it may be.
#include "sim.hpp"

#include <algorithm>
#include <ctime>

namespace gpusim
{

static uint32_t at(const moment &c, size_t stream)
{
    return stream < c.size() ? c[stream] : 0;
}

bool before(const moment &what, const moment &of)
{
    for (size_t s = 0; s < what.size(); s++) {
        if (what[s] > at(of, s)) {
            return false;
        }
    }
    return true;
}

void join(moment &into, const moment &other)
{
    into.resize(std::max(into.size(), other.size()));
    for (size_t s = 0; s < other.size(); s++) {
        into[s] = std::max(into[s], other[s]);
    }
}

uint32_t random_below(uint32_t count)
{
    sim.random = sim.random * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>((sim.random >> 33) % count);
}

// ---- running ---------------------------------------------------------------

// False: it cannot end yet, or what it needs cannot.
static bool run_next(size_t stream)
{
    const moment needs = sim.streams[stream].queue.front().needs;
    uint32_t number = sim.streams[stream].done + 1;
    bool ended = true;

    for (size_t other = 0; other < needs.size(); other++) {
        while (other != stream && sim.streams[other].done < needs[other]) {
            if (!run_next(other)) {
                return false;
            }
        }
    }
    work &now = sim.streams[stream].queue.front();

    sim.running = &now;
    sim.running_id = static_cast<work_id>(stream) << 24 | number;
    sim.noted_order = sim.noted_value = sim.noted_race = false;
    if (sim.sticky == cudaSuccess) {
        sim.sticky = injected_into_work();
    }
    if (sim.sticky == cudaSuccess) {
        as_device here;

        ended = now.run();
    }
    sim.running = nullptr;
    sim.running_id = 0;
    if (ended) {
        sim.streams[stream].queue.pop_front();
        sim.streams[stream].done = number;
    }
    return ended;
}

bool lendable_mutex::lend()
{
    const struct timespec slice = {0, 20000};

    if (depth != 1) {
        return false;
    }
    unlock();
    nanosleep(&slice, nullptr);
    lock();
    return true;
}

// With GPUSIM_SHUFFLED: some work that nobody asked for.
static void run_some()
{
    for (uint32_t left = random_below(3); left > 0; left--) {
        size_t stream = random_below(static_cast<uint32_t>(sim.streams.size()));

        if (!sim.streams[stream].queue.empty()) {
            (void)run_next(stream);
        }
    }
}

void run_until(const moment &until)
{
    for (size_t s = until.size(); s-- > 0;) {
        while (sim.streams[s].done < until[s]) {
            if (sim.order == GPUSIM_SHUFFLED) {
                run_some();
            }
            if (sim.streams[s].done < until[s] && !run_next(s) &&
                !sim.lock.lend()) {
                return; // the caller of the caller waits
            }
        }
    }
}

// What can be run without anybody else; the streams as far as that goes.
static void run_alone(moment &until)
{
    for (size_t s = until.size(); s-- > 0;) {
        while (sim.streams[s].done < until[s]) {
            if (!run_next(s)) {
                until[s] = sim.streams[s].done;
                break;
            }
        }
    }
}

void run_all()
{
    for (size_t s = 0; s < sim.streams.size(); s++) {
        moment now = sim.streams[s].now;

        run_alone(now);
        if (sim.streams[s].owner == pthread_self()) {
            now = sim.streams[s].now;
            run_until(now);
        }
        join(sim.host, now);
    }
}

void run_meetings()
{
    for (size_t s = 0; s < sim.streams.size(); s++) {
        while (sim.streams[s].meetings > 0 && run_next(s)) {
        }
    }
}

// ---- queueing --------------------------------------------------------------

static size_t index_of(cudaStream_t stream)
{
    return reinterpret_cast<size_t>(stream);
}

stream_state *stream_of(cudaStream_t stream)
{
    size_t index = index_of(stream);

    return index < sim.streams.size() && sim.streams[index].open
               ? &sim.streams[index]
               : nullptr;
}

// The default stream waits for all blocking ones, and they for it.
static void join_default(size_t index, moment &needs)
{
    if (index == 0) {
        for (const auto &stream : sim.streams) {
            if (stream.is_blocking) {
                join(needs, stream.now);
            }
        }
    } else if (sim.streams[index].is_blocking) {
        join(needs, sim.streams[0].now);
    }
}

static void put(cudaStream_t stream, std::string name,
                std::function<bool()> run)
{
    size_t index = index_of(stream);
    stream_state *s = &sim.streams[index];

    join(s->now, sim.host);
    join_default(index, s->now);
    s->now.resize(std::max(s->now.size(), index + 1));
    s->now[index] = ++s->issued;
    s->queue.push_back({s->now, index == 0 ? current_device() : s->device,
                        std::move(run), std::move(name)});
    if (sim.order == GPUSIM_EARLY) {
        moment now = s->now;

        run_alone(now);
    } else if (sim.order == GPUSIM_SHUFFLED) {
        run_some();
    }
}

void enqueue(cudaStream_t stream, std::string name, std::function<void()> run)
{
    put(stream, std::move(name), [run] {
        run();
        return true;
    });
}

moment enqueue_meeting(cudaStream_t stream, std::string name,
                       const moment &after, std::function<bool()> run)
{
    size_t index = index_of(stream);

    join(sim.streams[index].now, after);
    sim.streams[index].meetings++;
    put(stream, std::move(name), [=] {
        bool ended = run();

        sim.streams[index].meetings -= ended;
        return ended;
    });
    return sim.streams[index].now;
}

cudaError_t wait_for(cudaStream_t stream)
{
    moment now = sim.streams[index_of(stream)].now;

    if (index_of(stream) == 0) {
        join_default(0, now);
    }
    run_until(now);
    join(sim.host, now);
    return sim.sticky;
}

} // namespace gpusim

// ---- the calls -------------------------------------------------------------

using namespace gpusim;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    guard hold(sim.lock);
    size_t index = 1;

    GPUSIM_CALL();
    while (index < sim.streams.size() && sim.streams[index].open) {
        index++;
    }
    if (index == 255) {
        return result(cudaErrorMemoryAllocation);
    }
    if (index == sim.streams.size()) {
        sim.streams.emplace_back();
    }
    sim.streams[index].open = true;
    sim.streams[index].owner = pthread_self();
    sim.streams[index].device = current_device();
    sim.streams[index].is_blocking = (flags & cudaStreamNonBlocking) == 0;
    *stream = reinterpret_cast<cudaStream_t>(index);
    return result(cudaSuccess);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    guard hold(sim.lock);
    stream_state *s = stream_of(stream);

    GPUSIM_CALL();
    if (s == nullptr || index_of(stream) == 0) {
        return result(cudaErrorInvalidResourceHandle);
    }
    run_until(moment(s->now)); // its work goes on; here it has ended
    sim.streams[index_of(stream)].open = false;
    return result(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    return result(stream_of(stream) == nullptr ? cudaErrorInvalidResourceHandle
                                               : wait_for(stream));
}

cudaError_t cudaDeviceSynchronize(void)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    run_all();
    return result(cudaSuccess);
}

// Asking moves things on: who asks for ever gets an answer.
static cudaError_t query(const moment &now)
{
    for (size_t s = 0; s < now.size(); s++) {
        if (sim.streams[s].done < now[s]) {
            if (sim.order != GPUSIM_SHUFFLED || random_below(2) == 0) {
                (void)run_next(s);
            }
            return result(cudaErrorNotReady);
        }
    }
    join(sim.host, now);
    return result(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    guard hold(sim.lock);
    stream_state *s = stream_of(stream);

    GPUSIM_CALL();
    return s == nullptr ? result(cudaErrorInvalidResourceHandle)
                        : query(moment(s->now));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned)
{
    guard hold(sim.lock);
    stream_state *s = stream_of(stream);
    auto found = sim.events.find(event);

    GPUSIM_CALL();
    if (s == nullptr || found == sim.events.end()) {
        return result(cudaErrorInvalidResourceHandle);
    }
    join(s->now, found->second);
    return result(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    *event = reinterpret_cast<cudaEvent_t>(++sim.next_event);
    sim.events[*event] = {};
    return result(cudaSuccess);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    guard hold(sim.lock);

    GPUSIM_CALL();
    return result(sim.events.erase(event) == 1
                      ? cudaSuccess
                      : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    guard hold(sim.lock);
    stream_state *s = stream_of(stream);
    auto found = sim.events.find(event);

    GPUSIM_CALL();
    if (s == nullptr || found == sim.events.end()) {
        return result(cudaErrorInvalidResourceHandle);
    }
    found->second = s->now;
    return result(cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    guard hold(sim.lock);
    auto found = sim.events.find(event);

    GPUSIM_CALL();
    if (found == sim.events.end()) {
        return result(cudaErrorInvalidResourceHandle);
    }
    run_until(moment(found->second));
    join(sim.host, found->second);
    return result(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    guard hold(sim.lock);
    auto found = sim.events.find(event);

    GPUSIM_CALL();
    return found == sim.events.end() ? result(cudaErrorInvalidResourceHandle)
                                     : query(moment(found->second));
}
