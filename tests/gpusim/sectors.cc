// Sectors touched and needed.  Threads of a warp run one after the other here,
// so what belongs to one instruction is found afterwards: the same place in the
// source, the same how-manieth time since the warp met.
#include "sim.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_set>

namespace gpusim
{

constexpr uint64_t SECTOR = 32;
constexpr size_t CACHED = 64; // sectors of a warp

static std::unordered_set<uint64_t> needed[2];

void sectors_seen(uint64_t address, size_t bytes, bool is_store)
{
    gpusim_traffic *t = &sim.traffic;

    for (uint64_t s = address / SECTOR; s <= (address + bytes - 1) / SECTOR;
         s++) {
        needed[is_store].insert(s);
    }
    (is_store ? t->store_calls : t->load_calls)++;
    if (bytes == 16) {
        (is_store ? t->store_wide : t->load_wide)++;
    }
}

static bool same(const sector_access &a, const sector_access &b)
{
    return a.met == b.met && a.turn == b.turn && a.line == b.line &&
           a.file == b.file && a.is_store == b.is_store;
}

// The sectors of instruction [lo, hi), each once.
static void instruction(const sector_access *lo, const sector_access *hi,
                        std::deque<uint64_t> &cached)
{
    std::vector<uint64_t> distinct;

    for (const auto *a = lo; a < hi; a++) {
        distinct.push_back(a->sector);
    }
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()),
                   distinct.end());
    if (lo->is_store) {
        sim.traffic.store_sectors += distinct.size();
        return;
    }
    for (uint64_t s : distinct) {
        auto found = std::find(cached.begin(), cached.end(), s);

        if (found == cached.end()) {
            sim.traffic.load_sectors++;
        } else {
            cached.erase(found);
        }
        cached.push_back(s);
        if (cached.size() > CACHED) {
            cached.pop_front();
        }
    }
}

void sectors_of_warp(std::vector<sector_access> &log)
{
    std::vector<std::pair<size_t, size_t>> parts; // [lo, hi) of log
    std::deque<uint64_t> cached;

    std::stable_sort(log.begin(), log.end(),
                     [](const sector_access &a, const sector_access &b) {
                         if (a.met != b.met) {
                             return a.met < b.met;
                         }
                         if (a.turn != b.turn) {
                             return a.turn < b.turn;
                         }
                         if (a.line != b.line) {
                             return a.line < b.line;
                         }
                         return a.file != b.file ? a.file < b.file
                                                 : a.is_store < b.is_store;
                     });
    for (size_t lo = 0, hi; lo < log.size(); lo = hi) {
        for (hi = lo + 1; hi < log.size() && same(log[lo], log[hi]); hi++) {
            log[lo].order = std::min(log[lo].order, log[hi].order);
        }
        parts.emplace_back(lo, hi);
    }
    std::stable_sort(
        parts.begin(), parts.end(), [&](const auto &a, const auto &b) {
            const auto &x = log[a.first], &y = log[b.first];

            return x.met != y.met ? x.met < y.met : x.order < y.order;
        });
    for (const auto &part : parts) {
        instruction(log.data() + part.first, log.data() + part.second, cached);
    }
    log.clear();
}

void sectors_end_kernel()
{
    sim.traffic.load_needed += needed[0].size();
    sim.traffic.store_needed += needed[1].size();
    needed[0].clear();
    needed[1].clear();
}

} // namespace gpusim

using namespace gpusim;

void gpusim_traffic_clear(void)
{
    guard hold(sim.lock);

    sim.traffic = {};
}

void gpusim_traffic_get(gpusim_traffic *out_traffic)
{
    guard hold(sim.lock);

    *out_traffic = sim.traffic;
}
