// Connections of a group, and waits over them that always end.
//
// gloo 0.5 leaves three things open that are put right here.  A wait of a
// collective cannot be ended from outside.  A connection that ends in the
// middle of a message tells those whose messages have not begun, and leaves the
// one half way to wait for ever.  And nothing ends the making of connections
// but five times its deadline.  So every message has a buffer of its own, each
// wait for one is known to the mesh, and each connection has a tripwire: a
// receive that nobody sends to, which is told when the connection ends.
#ifndef DYTI_COMM_GLOO_MESH_H
#define DYTI_COMM_GLOO_MESH_H

#include "comm/gloo/shim.h"

#include <gloo/rendezvous/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <vector>

namespace dyti
{

using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds forever = std::chrono::hours(1000);

class Mesh;

// One message, of a collective or not.  Destroyed, its memory is not touched
// any more.
class Message
{
  public:
    Message(Mesh &mesh, int peer, bool is_send, void *buf, size_t bytes,
            uint64_t slot); // on its way; throws where the peer is lost

    // True when it is done, false when it was given up; throws after
    // `timeout`, when the peer is lost, or after an interruption.
    bool wait(Milliseconds timeout);
    void give_up(); // from any thread

  private:
    friend class Mesh;

    void end_wait();
    bool wait_once(Milliseconds timeout);

    Mesh &mesh_;
    const int peer_;
    const bool is_send_;
    bool given_up_ = false; // under the mesh's mutex
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
};

class Mesh : public gloo::rendezvous::Context
{
  public:
    using gloo::rendezvous::Context::Context;

    // Throws where a member is missing after `timeout` or has given up.
    void connect(const char *address, const dyti_gloo_store &store,
                 Milliseconds timeout);
    // Waits for lost connections end.  From any thread.
    void finish_lost();
    // Every wait ends, and every connection.  From any thread.
    void interrupt();

  private:
    friend class Message;
    using Buffer = gloo::transport::UnboundBuffer;

    void meet(const dyti_gloo_store &store, Milliseconds timeout);
    void set_tripwires();
    bool is_lost(int peer);

    std::shared_ptr<gloo::transport::Context> tcp_;
    std::vector<char> nothing_;                     // what tripwires receive
    std::vector<std::unique_ptr<Buffer>> tripwire_; // of each member
    std::mutex mutex_;                              // of what is below
    bool stopped_ = false;
    std::set<Message *> waiting_;
};

void say(char *text, size_t size, const char *what);

// Run a call, turn what it throws into a result.
template <typename Call>
dyti_gloo_result guarded(char *text, size_t size, Call call)
{
    try {
        call();
        return DYTI_GLOO_OK;
    } catch (const std::bad_alloc &) {
        say(text, size, "out of memory");
        return DYTI_GLOO_NOMEM;
    } catch (const std::exception &e) {
        say(text, size, e.what());
    } catch (...) {
        say(text, size, "an unknown exception");
    }
    return DYTI_GLOO_BROKEN;
}

} // namespace dyti

#endif // DYTI_COMM_GLOO_MESH_H
