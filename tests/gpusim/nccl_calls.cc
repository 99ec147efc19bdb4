// Calls that move data: collected in groups, put on streams when the group
// ends, and carried as messages when their turn has come on every rank.
#include "nccl.hpp"

#include <cstring>

namespace gpusim
{

size_t bytes_of(ncclDataType_t type)
{
    static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

    return bytes[type];
}

// ---- messages of a call ----------------------------------------------------

static const unsigned char *written_of(const void *ptr)
{
    return sim.memory.written +
           (static_cast<const unsigned char *>(ptr) - sim.memory.base);
}

// The bytes of the device from `from`, behind the label, and which of them have
// a value.
static void take(part &p, const void *from, size_t bytes, bool is_summed)
{
    p.bytes.resize(sizeof(label) + 2 * bytes, 1);
    memcpy(p.bytes.data(), &p.wanted, sizeof(label));
    if (bytes == 0) {
        return;
    }
    if (in_arena(from)) {
        touched(from, bytes, false, is_summed);
        memcpy(p.bytes.data() + sizeof(label) + bytes, written_of(from), bytes);
    }
    memcpy(p.bytes.data() + sizeof(label), from, bytes);
}

static void add_part(batch &l, size_t index, int peer, bool is_send,
                     const void *from, size_t bytes)
{
    communicator &c = *l.comm;
    const nccl_call &k = l.calls[index];
    part p = {};

    p.call = index;
    p.peer = static_cast<uint32_t>(peer);
    p.is_send = is_send;
    p.number = ++(is_send ? c.sent : c.received)[peer];
    bool is_message = k.kind <= call_kind::send;

    p.wanted = {is_message ? call_kind::send : k.kind,
                static_cast<uint32_t>(k.type),
                static_cast<uint32_t>(k.op),
                is_message ? 0 : k.peer,
                k.count,
                is_message ? 0 : c.collectives};
    if (is_send) {
        take(p, from, bytes, k.kind >= call_kind::reduce_scatter);
    } else {
        p.bytes.resize(sizeof(label) + 2 * bytes);
    }
    l.parts.push_back(std::move(p));
}

// Who of the others gets what of this rank's, and who sends this one.
static void add_parts(batch &l, size_t index)
{
    communicator &c = *l.comm;
    const nccl_call &k = l.calls[index];
    const auto *in = static_cast<const unsigned char *>(k.in);
    size_t bytes = k.count * bytes_of(k.type);
    auto me = static_cast<int>(c.rank), n = static_cast<int>(c.size);

    if (k.kind <= call_kind::send) {
        add_part(l, index, k.peer, k.kind == call_kind::send, k.in, bytes);
        return;
    }
    c.collectives++;
    for (int r = 0; r < n; r++) {
        bool rooted =
            k.kind == call_kind::broadcast || k.kind == call_kind::reduce;
        bool to = k.kind == call_kind::broadcast ? me == k.peer
                                                 : !rooted || r == k.peer;
        bool from =
            k.kind == call_kind::reduce ? me == k.peer : !rooted || r == k.peer;
        bool cut = k.kind == call_kind::reduce_scatter;

        if (to) { // to itself as well, where there is a result
            add_part(l, index, r, true,
                     cut ? in + static_cast<size_t>(r) * bytes : in, bytes);
        }
        if (from) {
            add_part(l, index, r, false, nullptr, bytes);
        }
    }
}

// ---- results ---------------------------------------------------------------

static bool is_ours(const void *ptr, size_t bytes, bool store)
{
    gpusim_fault kind = GPUSIM_OUT_OF_BOUNDS;

    if (bytes == 0) {
        return true;
    }
    if (in_arena(ptr)) {
        const char *wrong = wrong_with(ptr, bytes, store, &kind);

        if (wrong != nullptr) {
            note_and_stick(kind, cudaErrorIllegalAddress,
                           (std::string("nccl: ") + wrong).c_str());
        }
        return wrong == nullptr;
    }
    auto found = below(sim.pinned, reinterpret_cast<uint64_t>(ptr));

    if (found != sim.pinned.end() && reinterpret_cast<uint64_t>(ptr) + bytes <=
                                         found->first + found->second) {
        return true;
    }
    note(GPUSIM_COLLECTIVE, "%zu bytes at %p are no memory of the device",
         bytes, ptr);
    return false;
}

static void give(void *to, const unsigned char *data, size_t bytes)
{
    if (bytes == 0) {
        return;
    }
    if (in_arena(to)) {
        touched(to, bytes, true, false);
        memcpy(const_cast<unsigned char *>(written_of(to)), data + bytes,
               bytes);
    }
    memcpy(to, data, bytes);
}

template <class T>
static void sum(unsigned char *into, const unsigned char *data, size_t count,
                bool is_max)
{
    for (size_t i = 0; i < count; i++) {
        T a, b;

        memcpy(&a, into + i * sizeof(T), sizeof(T));
        memcpy(&b, data + i * sizeof(T), sizeof(T));
        a = is_max ? (a > b ? a : b) : static_cast<T>(a + b);
        memcpy(into + i * sizeof(T), &a, sizeof(T));
    }
}

static void reduce_into(const nccl_call &k, unsigned char *into,
                        const unsigned char *data)
{
    bool is_max = k.op == ncclMax;

    switch (k.type) {
    case ncclFloat32:
        sum<float>(into, data, k.count, is_max);
        break;
    case ncclFloat64:
        sum<double>(into, data, k.count, is_max);
        break;
    case ncclUint64:
        sum<uint64_t>(into, data, k.count, is_max);
        break;
    default:
        note(GPUSIM_COLLECTIVE,
             "a reduction of type %d, which the simulator "
             "does not know",
             static_cast<int>(k.type));
    }
}

// What has come for one call, into its place.  Sums are taken from the last
// rank to the first: nobody may rely on the order.
static void finish_call(batch &l, size_t index)
{
    const nccl_call &k = l.calls[index];
    size_t bytes = k.count * bytes_of(k.type);
    std::vector<unsigned char> result;

    for (size_t i = l.parts.size(); i-- > 0;) {
        const part &p = l.parts[i];

        if (p.call != index || p.is_send) {
            continue;
        }
        const unsigned char *data = p.bytes.data() + sizeof(label);

        if (k.kind == call_kind::all_gather) {
            give(static_cast<unsigned char *>(k.out) + p.peer * bytes, data,
                 bytes);
        } else if (k.kind < call_kind::reduce_scatter) {
            give(k.out, data, bytes);
        } else if (result.empty()) {
            result.assign(data, data + 2 * bytes);
        } else {
            reduce_into(k, result.data(), data);
        }
    }
    if (!result.empty()) {
        memset(result.data() + bytes, 1, bytes);
        give(k.out, result.data(), bytes);
    }
}

// ---- under way -------------------------------------------------------------

static bool end_badly(batch &l, ncclResult_t error, const std::string &why)
{
    l.comm->error = error;
    l.comm->last_error = why;
    return true; // the stream goes on, as after an abort
}

static bool begin(batch &l)
{
    for (size_t i = 0; i < l.calls.size(); i++) {
        const nccl_call &k = l.calls[i];
        size_t bytes = k.count * bytes_of(k.type);
        size_t in =
            k.kind == call_kind::reduce_scatter ? bytes * l.comm->size : bytes;
        size_t out =
            k.kind == call_kind::all_gather ? bytes * l.comm->size : bytes;
        bool reads =
            k.in != nullptr && (k.kind != call_kind::broadcast ||
                                k.peer == static_cast<int>(l.comm->rank));
        bool writes =
            k.out != nullptr && (k.kind != call_kind::reduce ||
                                 k.peer == static_cast<int>(l.comm->rank));

        if ((reads && !is_ours(k.in, in, false)) ||
            (writes && !is_ours(k.out, out, true))) {
            return false;
        }
        add_parts(l, i);
    }
    return true;
}

// False: the carrier refuses.
static bool post_parts(batch &l)
{
    int posted = 1;

    for (auto &p : l.parts) {
        if (!p.posted && posted == 1) {
            posted =
                gpusim_carry_post(l.comm->group, p.peer, p.is_send,
                                  p.bytes.data(), p.bytes.size(), &p.ticket);
            p.posted = posted == 1;
        }
    }
    return posted >= 0;
}

static bool same(const label &a, const label &b)
{
    return a.kind == b.kind && a.type == b.type && a.op == b.op &&
           a.root == b.root && a.count == b.count && a.number == b.number;
}

// False: it is not what this rank waits for.
static bool land(batch &l, part &p)
{
    label got;

    p.landed = true;
    if (p.is_send) {
        return true;
    }
    memcpy(&got, p.bytes.data(), sizeof(got));
    if (!same(got, p.wanted)) {
        fail(
            l.comm.get(), ncclInternalError,
            "rank %u of %u: call %u of %llu elements (type %u, op %u, root %d, "
            "number %llu) meets call %u of %llu (type %u, op %u, root %d, "
            "number %llu) of rank %u",
            l.comm->rank, l.comm->size, static_cast<unsigned>(p.wanted.kind),
            static_cast<unsigned long long>(p.wanted.count), p.wanted.type,
            p.wanted.op, p.wanted.root,
            static_cast<unsigned long long>(p.wanted.number),
            static_cast<unsigned>(got.kind),
            static_cast<unsigned long long>(got.count), got.type, got.op,
            got.root, static_cast<unsigned long long>(got.number), p.peer);
        return false;
    }
    l.comm->words->rank[l.comm->rank].taken[p.peer] = p.number;
    return true;
}

// A send ends when the other has taken it: nobody may count on room between.
static bool is_over(const batch &l, const part &p)
{
    return p.landed &&
           (!p.is_send ||
            l.comm->words->rank[p.peer].taken[l.comm->rank] >= p.number);
}

bool attend(batch &l)
{
    communicator &c = *l.comm;
    uint64_t ticket[GPUSIM_CARRIED];
    int count;
    bool over = true;

    if (c.aborted || c.error != ncclSuccess) {
        return true;
    }
    if (!l.begun) {
        l.begun = true;
        if (nccl_faults.fail_launch > 0 && --nccl_faults.fail_launch == 0) {
            return end_badly(l, ncclInternalError, "a fault of the test");
        }
        if (!begin(l)) {
            return end_badly(l, ncclUnhandledCudaError, "memory");
        }
    }
    count = post_parts(l) ? gpusim_carry_landed(c.group, ticket) : -1;
    if (count < 0) {
        fail(&c, ncclInternalError, "rank %u of %u: %s", c.rank, c.size,
             gpusim_carry_error());
        return end_badly(l, ncclInternalError, c.last_error);
    }
    for (auto &p : l.parts) {
        for (int i = 0; i < count && p.posted && !p.landed; i++) {
            if (p.ticket == ticket[i] && !land(l, p)) {
                return end_badly(l, ncclInternalError, c.last_error);
            }
        }
        over = over && is_over(l, p);
        if (!over && nccl_faults.tells_deaths && is_gone(c, p.peer)) {
            return end_badly(l, ncclRemoteError, "a rank has gone");
        }
    }
    for (size_t i = 0; over && i < l.calls.size(); i++) {
        finish_call(l, i);
    }
    return over;
}

// ---- groups ----------------------------------------------------------------

struct open_group_state {
    int depth = 0;
    ncclResult_t error = ncclSuccess;
    std::vector<std::pair<std::shared_ptr<communicator>, nccl_call>> calls;
};
static thread_local open_group_state open_now;

bool in_group()
{
    return open_now.depth > 0;
}

// One launch for each communicator and stream, in the order of their first
// calls.
static ncclResult_t launch_all()
{
    std::vector<std::shared_ptr<batch>> launches;
    ncclResult_t result = ncclSuccess;

    for (auto &entry : open_now.calls) {
        std::shared_ptr<batch> l;

        for (auto &other : launches) {
            if (other->comm == entry.first) {
                l = other;
            }
        }
        if (l == nullptr) {
            l = std::make_shared<batch>();
            l->comm = entry.first;
            l->stream = entry.second.stream;
            launches.push_back(l);
        }
        if (l->stream != entry.second.stream) {
            fail(entry.first.get(), ncclInvalidUsage,
                 "two streams in one group: the simulator knows one");
        }
        l->calls.push_back(entry.second);
    }
    open_now.calls.clear();
    for (auto &l : launches) {
        nccl_counts().launches++;
        l->comm->pending.push_back(l);
        l->comm->patience = l->comm->blocking ? 0 : 2;
        if (l->comm->blocking) {
            step(l->comm);
        } else {
            result = ncclInProgress;
        }
    }
    return result;
}

static void count_call(call_kind kind)
{
    gpusim_nccl_counts &n = nccl_counts();
    uint64_t *const count[] = {
        nullptr,        &n.sends,           &n.broadcasts,
        &n.all_gathers, &n.reduce_scatters, &n.all_reduces,
        &n.reduces};

    if (kind != call_kind::receive) {
        ++*count[static_cast<uint32_t>(kind)];
    }
}

static ncclResult_t add_call(ncclComm_t comm, const char *what, nccl_call k)
{
    guard hold(sim.lock);
    auto c = usable_comm(comm, what);
    ncclResult_t result = ncclSuccess;

    if (c == nullptr) {
        result = ncclInvalidArgument;
    } else if (c->error != ncclSuccess) {
        result = fail(c.get(), ncclInvalidUsage, "%s after an error", what);
    } else if (c->state != comm_state::ready) {
        result = fail(c.get(), ncclInvalidUsage,
                      "%s on a communicator that is finalized", what);
    } else if (k.peer < 0 || k.peer >= static_cast<int>(c->size) ||
               stream_of(k.stream) == nullptr) {
        result = fail(c.get(), ncclInvalidArgument, "%s with rank %d of %u",
                      what, k.peer, c->size);
    }
    if (result != ncclSuccess) {
        open_now.error = in_group() ? result : ncclSuccess;
        return result;
    }
    count_call(k.kind);
    open_now.calls.push_back({c, k});
    return open_now.depth > 0 ? ncclSuccess : launch_all();
}

} // namespace gpusim

using namespace gpusim;

ncclResult_t ncclGroupStart(void)
{
    open_now.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    guard hold(sim.lock);

    if (open_now.depth == 0) {
        return fail(nullptr, ncclInvalidUsage, "the end of no group");
    }
    if (--open_now.depth > 0) {
        return ncclSuccess;
    }
    if (open_now.error != ncclSuccess) {
        ncclResult_t error = open_now.error;

        open_now.error = ncclSuccess;
        open_now.calls.clear();
        return error;
    }
    return launch_all();
}

ncclResult_t ncclSend(const void *buff, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream)
{
    return add_call(
        comm, "ncclSend",
        {call_kind::send, buff, nullptr, count, type, peer, ncclSum, stream});
}

ncclResult_t ncclRecv(void *buff, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return add_call(comm, "ncclRecv",
                    {call_kind::receive, nullptr, buff, count, type, peer,
                     ncclSum, stream});
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream)
{
    return add_call(
        comm, "ncclBroadcast",
        {call_kind::broadcast, in, out, count, type, root, ncclSum, stream});
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    return add_call(
        comm, "ncclAllGather",
        {call_kind::all_gather, in, out, count, type, 0, ncclSum, stream});
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count,
                               ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream)
{
    return add_call(
        comm, "ncclReduceScatter",
        {call_kind::reduce_scatter, in, out, count, type, 0, op, stream});
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream)
{
    return add_call(
        comm, "ncclAllReduce",
        {call_kind::all_reduce, in, out, count, type, 0, op, stream});
}

ncclResult_t ncclReduce(const void *in, void *out, size_t count,
                        ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream)
{
    return add_call(
        comm, "ncclReduce",
        {call_kind::reduce, in, out, count, type, root, op, stream});
}
