// gloo behind C.  A message is an unbound buffer; gloo can only wait for one,
// so that each peer and direction has a thread that waits for its messages in
// the order in which they were posted, and says when they have ended.
#include "comm/gloo/shim.h"

#include <gloo/allgatherv.h>
#include <gloo/alltoallv.h>
#include <gloo/broadcast.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace
{

using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds forever = std::chrono::hours(1000);
constexpr uint64_t dummy_slot = UINT64_C(0xf) << 60;

class Store : public gloo::rendezvous::Store
{
  public:
    Store(const dyti_gloo_store &table, int64_t timeout_ms)
        : table_(table),
          deadline_(std::chrono::steady_clock::now() + Milliseconds(timeout_ms))
    {
    }

    void set(const std::string &key, const std::vector<char> &data) override
    {
        if (table_.set(table_.arg, key.c_str(), data.data(), data.size()) !=
            0) {
            throw std::runtime_error("no room for the addresses of a member");
        }
    }

    std::vector<char> get(const std::string &key) override
    {
        std::vector<char> data(1 << 16);

        for (;;) {
            long bytes =
                table_.get(table_.arg, key.c_str(), data.data(), data.size());

            if (bytes > 0) {
                data.resize(static_cast<size_t>(bytes));
                return data;
            }
            if (bytes < 0) {
                throw std::runtime_error("another rank failed");
            }
            if (std::chrono::steady_clock::now() > deadline_) {
                throw std::runtime_error("member " + key + " is missing");
            }
            std::this_thread::sleep_for(Milliseconds(1));
        }
    }

    void wait(const std::vector<std::string> &keys) override
    {
        for (const auto &key : keys) {
            (void)get(key);
        }
    }

    void wait(const std::vector<std::string> &keys,
              const Milliseconds &) override
    {
        wait(keys);
    }

  private:
    dyti_gloo_store table_;
    std::chrono::steady_clock::time_point deadline_;
};

void say(char *text, size_t size, const char *what)
{
    (void)std::snprintf(text, size, "%s", what);
}

/* Run a call, turn what it throws into a result. */
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

} // namespace

struct dyti_gloo_message {
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
    bool is_send = false;
    bool dropped = false; // nobody asks for it any more: the lane frees it
    std::atomic<int> state{DYTI_GLOO_PENDING};
    std::string what;
};

namespace
{

struct Lane {
    std::deque<dyti_gloo_message *> queue;
    dyti_gloo_message *waiting = nullptr;
    std::condition_variable more;
    std::thread thread;
};

} // namespace

struct dyti_gloo {
    std::shared_ptr<gloo::rendezvous::Context> context;
    Milliseconds timeout{0};
    std::mutex mutex; // of everything below
    std::condition_variable bell;
    uint64_t ended = 0;
    bool closing = false;
    std::map<uint32_t, std::unique_ptr<Lane>> lane; // peer * 2 + is_send

    void wait_for(dyti_gloo_message *post)
    {
        try {
            bool done = post->is_send ? post->buffer->waitSend(forever)
                                      : post->buffer->waitRecv(forever);

            if (!done) {
                post->what = "given up";
            }
            post->state = done ? DYTI_GLOO_OK : DYTI_GLOO_BROKEN;
        } catch (const std::exception &e) {
            post->what = e.what();
            post->state = DYTI_GLOO_BROKEN;
        }
    }

    void run(Lane *here)
    {
        std::unique_lock<std::mutex> lock(mutex);

        while (!closing || !here->queue.empty()) {
            dyti_gloo_message *post;

            if (here->queue.empty()) {
                here->more.wait(lock);
                continue;
            }
            post = here->queue.front();
            here->queue.pop_front();
            if (!post->dropped) {
                here->waiting = post;
                lock.unlock();
                wait_for(post);
                lock.lock();
                here->waiting = nullptr;
            }
            if (post->dropped) {
                delete post;
            }
            ended++;
            bell.notify_all();
        }
    }

    Lane *lane_of(uint32_t peer, bool is_send)
    {
        auto &place = lane[peer * 2 + (is_send ? 1 : 0)];

        if (!place) {
            place.reset(new Lane);
            Lane *fresh = place.get();
            fresh->thread = std::thread([this, fresh] { run(fresh); });
        }
        return place.get();
    }
};

dyti_gloo_result dyti_gloo_open(const dyti_gloo_params *params, dyti_gloo **out,
                                char *text, size_t text_size)
{
    return guarded(text, text_size, [&] {
        gloo::transport::tcp::attr attr(params->address);
        auto device = gloo::transport::tcp::CreateDevice(attr);
        std::unique_ptr<dyti_gloo> self(new dyti_gloo);
        Store store(params->store, params->open_timeout_ms);

        self->context = std::make_shared<gloo::rendezvous::Context>(
            static_cast<int>(params->rank), static_cast<int>(params->size));
        self->context->setTimeout(Milliseconds(params->open_timeout_ms));
        self->context->connectFullMesh(store, device);
        self->timeout =
            params->timeout_ms > 0 ? Milliseconds(params->timeout_ms) : forever;
        self->context->setTimeout(self->timeout);
        *out = self.release();
    });
}

void dyti_gloo_close(dyti_gloo *self)
{
    if (self == nullptr) {
        return;
    }
    {
        std::lock_guard<std::mutex> lock(self->mutex);

        self->closing = true;
        for (auto &entry : self->lane) {
            for (auto post : entry.second->queue) {
                post->dropped = true;
            }
            if (entry.second->waiting != nullptr) {
                entry.second->waiting->dropped = true;
                entry.second->waiting->buffer->abortWaitSend();
                entry.second->waiting->buffer->abortWaitRecv();
            }
            entry.second->more.notify_all();
        }
    }
    for (auto &entry : self->lane) {
        entry.second->thread.join();
    }
    try {
        delete self;
    } catch (...) {
    }
}

dyti_gloo_result dyti_gloo_all_gather(dyti_gloo *self, const void *in,
                                      void *out, const uint64_t *counts_bytes,
                                      char *text, size_t text_size)
{
    return guarded(text, text_size, [&] {
        size_t n = static_cast<size_t>(self->context->size);
        size_t me = static_cast<size_t>(self->context->rank), before = 0;
        std::vector<size_t> counts(counts_bytes, counts_bytes + n);
        gloo::AllgathervOptions options(self->context);

        for (size_t i = 0; i < me; i++) {
            before += counts[i];
        }
        // gloo copies the input itself, which must not be the same memory.
        if (counts[me] > 0 && static_cast<char *>(out) + before != in) {
            std::memcpy(static_cast<char *>(out) + before, in, counts[me]);
        }
        options.setOutput(static_cast<char *>(out), counts);
        options.setTimeout(self->timeout);
        gloo::allgatherv(options);
    });
}

dyti_gloo_result dyti_gloo_broadcast(dyti_gloo *self, void *buf, uint64_t bytes,
                                     uint32_t root, char *text,
                                     size_t text_size)
{
    return guarded(text, text_size, [&] {
        gloo::BroadcastOptions options(self->context);

        options.setOutput(static_cast<char *>(buf), bytes);
        options.setRoot(static_cast<int>(root));
        options.setTimeout(self->timeout);
        gloo::broadcast(options);
    });
}

dyti_gloo_result dyti_gloo_all_to_all(dyti_gloo *self, const void *in,
                                      const uint64_t *send_bytes, void *out,
                                      const uint64_t *recv_bytes, char *text,
                                      size_t text_size)
{
    return guarded(text, text_size, [&] {
        size_t n = static_cast<size_t>(self->context->size);
        gloo::AlltoallvOptions options(self->context);

        options.setInput(static_cast<char *>(const_cast<void *>(in)),
                         std::vector<int64_t>(send_bytes, send_bytes + n));
        options.setOutput(static_cast<char *>(out),
                          std::vector<int64_t>(recv_bytes, recv_bytes + n));
        options.setTimeout(self->timeout);
        gloo::alltoallv(options);
    });
}

// A wait that runs out of time breaks all connections of a context, and with
// them every other wait: gloo's one way to interrupt it.
void dyti_gloo_interrupt(dyti_gloo *self)
{
    char text[64];

    (void)guarded(text, sizeof(text), [&] {
        char byte = 0;
        int me = self->context->rank;
        auto buffer = self->context->createUnboundBuffer(&byte, 1);

        buffer->recv(me == 0 ? 1 : 0, dummy_slot, 0, 1);
        (void)buffer->waitRecv(Milliseconds(1));
    });
}

dyti_gloo_result dyti_gloo_post(dyti_gloo *self, uint32_t peer, int is_send,
                                void *buf, uint64_t bytes, uint64_t slot,
                                dyti_gloo_message **out, char *text,
                                size_t text_size)
{
    return guarded(text, text_size, [&] {
        std::unique_ptr<dyti_gloo_message> post(new dyti_gloo_message);
        std::lock_guard<std::mutex> lock(self->mutex);
        Lane *here = self->lane_of(peer, is_send != 0);

        post->is_send = is_send != 0;
        post->buffer = self->context->createUnboundBuffer(buf, bytes);
        if (post->is_send) {
            post->buffer->send(static_cast<int>(peer), slot, 0, bytes);
        } else {
            post->buffer->recv(static_cast<int>(peer), slot, 0, bytes);
        }
        here->queue.push_back(post.get());
        here->more.notify_all();
        *out = post.release();
    });
}

dyti_gloo_result dyti_gloo_poll(dyti_gloo *self, dyti_gloo_message *post,
                                char *text, size_t text_size)
{
    int state = post->state;

    if (state == DYTI_GLOO_PENDING) {
        return DYTI_GLOO_PENDING;
    }
    {
        // The lane is done with it once it has counted it.
        std::lock_guard<std::mutex> lock(self->mutex);
        auto &place = self->lane;

        for (auto &entry : place) {
            if (entry.second->waiting == post) {
                return DYTI_GLOO_PENDING;
            }
        }
    }
    if (state == DYTI_GLOO_BROKEN) {
        say(text, text_size, post->what.c_str());
    }
    delete post;
    return static_cast<dyti_gloo_result>(state);
}

uint64_t dyti_gloo_wait(dyti_gloo *self, uint64_t seen, int64_t max_ms)
{
    std::unique_lock<std::mutex> lock(self->mutex);

    (void)self->bell.wait_for(lock, Milliseconds(max_ms),
                              [&] { return self->ended != seen; });
    return self->ended;
}

uint64_t dyti_gloo_ended(dyti_gloo *self)
{
    std::lock_guard<std::mutex> lock(self->mutex);

    return self->ended;
}

void dyti_gloo_drop(dyti_gloo *self, dyti_gloo_message *post)
{
    std::lock_guard<std::mutex> lock(self->mutex);

    for (auto &entry : self->lane) {
        Lane &here = *entry.second;

        if (here.waiting == post) {
            post->dropped = true;
            post->buffer->abortWaitSend();
            post->buffer->abortWaitRecv();
            return;
        }
        for (auto queued : here.queue) {
            if (queued == post) {
                post->dropped = true;
                return;
            }
        }
    }
    delete post; // it has ended
}
