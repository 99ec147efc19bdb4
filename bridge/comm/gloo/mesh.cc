// See mesh.h.
#include "comm/gloo/mesh.hpp"

#include "comm/gloo/hub.hpp"

#include <gloo/transport/tcp/device.h>

#include <condition_variable>
#include <cstdio>
#include <stdexcept>
#include <thread>

namespace dyti
{

namespace
{

namespace transport = gloo::transport;

constexpr uint64_t tripwire_slot = UINT64_C(0xf) << 60; // no message has it

// While members connect: ends it when one of them gives up.
class Lookout
{
  public:
    Lookout(transport::Context &context, const dyti_gloo_store &store)
        : thread_([this, &context, &store] {
              std::unique_lock<std::mutex> lock(mutex_);

              while (!done_ && !gave_up_) {
                  if (store.given_up(store.arg) != 0) {
                      gave_up_ = true;
                      close_all(context); // which ends connect() as if it had
                  } else {
                      (void)changed_.wait_for(lock, Milliseconds(20));
                  }
              }
          })
    {
    }

    ~Lookout()
    {
        {
            std::lock_guard<std::mutex> lock(mutex_);

            done_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }

    bool gave_up()
    {
        std::lock_guard<std::mutex> lock(mutex_);

        return gave_up_;
    }

  private:
    static void close_all(transport::Context &context)
    {
        for (int i = 0; i < context.size; i++) {
            if (context.getPair(i)) {
                context.getPair(i)->close();
            }
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    bool done_ = false, gave_up_ = false;
    std::thread thread_; // last: it uses the others
};

// What a member leaves for the others, when it is there.
std::vector<char> fetch(const dyti_gloo_store &store, const std::string &key,
                        std::chrono::steady_clock::time_point deadline)
{
    std::vector<char> data(1 << 16);

    for (;;) {
        long bytes =
            store.get(store.arg, key.c_str(), data.data(), data.size());

        if (bytes > 0) {
            data.resize(static_cast<size_t>(bytes));
            return data;
        }
        if (bytes < 0) {
            throw std::runtime_error("another rank failed");
        }
        if (std::chrono::steady_clock::now() > deadline) {
            throw std::runtime_error("the " + key + " is missing");
        }
        std::this_thread::sleep_for(Milliseconds(1));
    }
}

void leave(const dyti_gloo_store &store, const std::string &key,
           const std::vector<char> &data)
{
    if (store.set(store.arg, key.c_str(), data.data(), data.size()) != 0) {
        throw std::runtime_error("no room for the addresses of a member");
    }
}

std::string key_of(const char *what, int member)
{
    return what + std::string(" of member ") + std::to_string(member);
}

} // namespace

void say(char *text, size_t size, const char *what)
{
    (void)std::snprintf(text, size, "%s", what);
}

// ---- messages --------------------------------------------------------------

Message::Message(Mesh &mesh, int peer, bool is_send, void *buf, size_t bytes,
                 uint64_t slot)
    : mesh_(mesh), peer_(peer), is_send_(is_send),
      buffer_(mesh.tcp_->createUnboundBuffer(buf, bytes))
{
    if (is_send) {
        buffer_->send(peer, slot, 0, bytes);
    } else {
        buffer_->recv(peer, slot, 0, bytes);
    }
}

void Message::end_wait()
{
    if (is_send_) {
        buffer_->abortWaitSend();
    } else {
        buffer_->abortWaitRecv();
    }
}

bool Message::wait_once(Milliseconds timeout)
{
    return is_send_ ? buffer_->waitSend(timeout) : buffer_->waitRecv(timeout);
}

void Message::give_up()
{
    std::lock_guard<std::mutex> lock(mesh_.mutex_);

    given_up_ = true;
    end_wait();
}

bool Message::wait(Milliseconds timeout)
{
    struct Waiting { // known to the mesh meanwhile
        Message *message;

        explicit Waiting(Message *one) : message(one)
        {
            std::lock_guard<std::mutex> lock(one->mesh_.mutex_);

            if (one->mesh_.stopped_) {
                throw std::runtime_error("interrupted");
            }
            one->mesh_.waiting_.insert(one);
        }
        ~Waiting()
        {
            std::lock_guard<std::mutex> lock(message->mesh_.mutex_);

            message->mesh_.waiting_.erase(message);
        }
    } waiting(this);

    if (wait_once(timeout)) {
        return true;
    }
    {
        std::lock_guard<std::mutex> lock(mesh_.mutex_);

        if (given_up_) {
            return false;
        }
    }
    // The connection has ended.  What had come before it did is there now, and
    // anything else never comes: gloo closes all connections then.
    return wait_once(Milliseconds(1));
}

// ---- the mesh --------------------------------------------------------------

// As gloo's connectFullMesh(), which cannot be ended.
void Mesh::meet(const dyti_gloo_store &store, Milliseconds timeout)
{
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    std::vector<char> mine;

    for (int i = 0; i < size; i++) {
        if (i != rank) {
            auto one = tcp_->createPair(i)->address().bytes();

            mine.insert(mine.end(), one.begin(), one.end());
        }
    }
    leave(store, key_of("address", rank), mine);
    Lookout lookout(*tcp_, store);

    for (int i = 0; i < size && !lookout.gave_up(); i++) {
        if (i != rank) {
            auto all = fetch(store, key_of("address", i), deadline);

            tcp_->getPair(i)->connect(extractAddress(all, i));
        }
    }
    if (lookout.gave_up()) {
        throw std::runtime_error("another rank failed");
    }
    set_tripwires(); // before anybody may close
    // Nobody waits, with a deadline, for one who is still connecting, nor
    // closes what another has not seen open.
    leave(store, key_of("last connection", rank), {1});
    for (int i = 0; i < size; i++) {
        (void)fetch(store, key_of("last connection", i), deadline);
    }
}

void Mesh::set_tripwires()
{
    nothing_.resize(static_cast<size_t>(size));
    tripwire_.resize(static_cast<size_t>(size));
    for (int i = 0; i < size; i++) {
        auto at = static_cast<size_t>(i);

        if (i != rank) {
            tripwire_[at] = tcp_->createUnboundBuffer(&nothing_[at], 1);
            tripwire_[at]->recv(i, tripwire_slot, 0, 1);
        }
    }
}

void Mesh::connect(const char *address, const dyti_gloo_store &store,
                   Milliseconds timeout)
{
    gloo::transport::tcp::attr attr(address);
    auto device = gloo::transport::tcp::CreateDevice(attr);

    tcp_ = device->createContext(rank, size);
    tcp_->setTimeout(timeout / 5); // a connection has five times that
    meet(store, timeout);
    device_ = device;
    transportContext_ = make_hub(*this, tcp_);
}

// Under the mutex.  An aborted wait ends at once, and says first whether the
// connection has.
bool Mesh::is_lost(int peer)
{
    Buffer &wire = *tripwire_[static_cast<size_t>(peer)];

    try {
        wire.abortWaitRecv();
        (void)wire.waitRecv(forever);
        return false;
    } catch (const std::exception &) {
        return true;
    }
}

void Mesh::finish_lost()
{
    std::lock_guard<std::mutex> lock(mutex_);
    std::set<int> lost, alive;

    for (auto message : waiting_) {
        int peer = message->peer_;

        if (lost.count(peer) == 0 && alive.count(peer) == 0) {
            (is_lost(peer) ? lost : alive).insert(peer);
        }
        if (lost.count(peer) != 0) {
            message->end_wait();
        }
    }
}

void Mesh::interrupt()
{
    char byte = 0;

    {
        std::lock_guard<std::mutex> lock(mutex_);

        stopped_ = true;
        for (auto message : waiting_) {
            message->given_up_ = true;
            message->end_wait();
        }
    }
    // A wait that runs out of time closes all connections.
    (void)tcp_->createUnboundBuffer(&byte, 1)->waitRecv(Milliseconds(1));
}

} // namespace dyti
