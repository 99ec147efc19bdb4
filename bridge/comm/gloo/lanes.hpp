// Messages under way.  gloo can only wait for a buffer, so that each peer and
// direction has a lane: a thread that waits for its messages in the order in
// which they were posted, and says when they have ended.
#ifndef DYTI_COMM_GLOO_LANES_H
#define DYTI_COMM_GLOO_LANES_H

#include "comm/gloo/mesh.hpp"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>

struct dyti_gloo_message {
    dyti::Message message;
    dyti_gloo_result state = DYTI_GLOO_PENDING;
    std::string what; // why it is broken

    dyti_gloo_message(dyti::Mesh &mesh, int peer, bool is_send, void *buf,
                      size_t bytes, uint64_t slot)
        : message(mesh, peer, is_send, buf, bytes, slot)
    {
    }
};

namespace dyti
{

class Lanes
{
  public:
    explicit Lanes(std::shared_ptr<Mesh> mesh) : mesh_(std::move(mesh))
    {
    }
    ~Lanes(); // drops what is under way

    // The message is the caller's until it is dropped or polled to its end.
    dyti_gloo_message *post(uint32_t peer, bool is_send, void *buf,
                            uint64_t bytes, uint64_t slot);
    dyti_gloo_result poll(dyti_gloo_message *post, std::string *what);
    uint64_t wait(uint64_t seen, Milliseconds most);
    uint64_t ended();
    // Its memory is not touched any more.
    void drop(dyti_gloo_message *post);

  private:
    struct Lane {
        std::deque<dyti_gloo_message *> queue;
        dyti_gloo_message *waiting = nullptr;
        std::condition_variable more;
        std::thread thread;
    };

    Lane *lane_of(uint32_t peer, bool is_send);
    void run(Lane *here);

    std::shared_ptr<Mesh> mesh_;
    std::mutex mutex_; // of everything below
    std::condition_variable bell_;
    uint64_t ended_ = 0;
    bool closing_ = false;
    std::map<uint32_t, std::unique_ptr<Lane>> lane_; // peer * 2 + is_send
};

} // namespace dyti

#endif // DYTI_COMM_GLOO_LANES_H
