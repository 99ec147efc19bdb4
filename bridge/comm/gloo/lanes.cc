// See lanes.h.
#include "comm/gloo/lanes.hpp"

#include <algorithm>

namespace dyti
{

namespace
{

// Until the message has ended, its connection has, or it is dropped.
dyti_gloo_result wait_for(dyti_gloo_message *post)
{
    try {
        if (post->message.wait(forever)) {
            return DYTI_GLOO_OK;
        }
        post->what = "given up";
    } catch (const std::exception &e) {
        post->what = e.what();
    }
    return DYTI_GLOO_BROKEN;
}

} // namespace

Lanes::~Lanes()
{
    {
        std::lock_guard<std::mutex> lock(mutex_);

        closing_ = true;
        for (auto &entry : lane_) {
            Lane &here = *entry.second;

            for (auto post : here.queue) {
                delete post;
            }
            here.queue.clear();
            if (here.waiting != nullptr) {
                here.waiting->message.give_up();
            }
            here.more.notify_all();
        }
    }
    for (auto &entry : lane_) {
        entry.second->thread.join();
    }
}

void Lanes::run(Lane *here)
{
    std::unique_lock<std::mutex> lock(mutex_);

    while (!closing_) {
        if (here->queue.empty()) {
            here->more.wait(lock);
            continue;
        }
        dyti_gloo_message *post = here->queue.front();
        dyti_gloo_result state;

        here->queue.pop_front();
        here->waiting = post;
        lock.unlock();
        state = wait_for(post);
        lock.lock();
        here->waiting = nullptr;
        post->state = state;
        ended_++;
        bell_.notify_all();
    }
}

Lanes::Lane *Lanes::lane_of(uint32_t peer, bool is_send)
{
    auto &place = lane_[peer * 2 + (is_send ? 1 : 0)];

    if (!place) {
        place.reset(new Lane);
        Lane *fresh = place.get();
        fresh->thread = std::thread([this, fresh] { run(fresh); });
    }
    return place.get();
}

dyti_gloo_message *Lanes::post(uint32_t peer, bool is_send, void *buf,
                               uint64_t bytes, uint64_t slot)
{
    std::lock_guard<std::mutex> lock(mutex_);
    Lane *here = lane_of(peer, is_send);
    std::unique_ptr<dyti_gloo_message> post(new dyti_gloo_message(
        *mesh_, static_cast<int>(peer), is_send, buf, bytes, slot));

    here->queue.push_back(post.get());
    here->more.notify_all();
    return post.release();
}

dyti_gloo_result Lanes::poll(dyti_gloo_message *post, std::string *what)
{
    dyti_gloo_result state;

    {
        std::lock_guard<std::mutex> lock(mutex_);

        state = post->state;
    }
    if (state != DYTI_GLOO_PENDING) {
        *what = post->what;
        delete post;
    }
    return state;
}

uint64_t Lanes::wait(uint64_t seen, Milliseconds most)
{
    std::unique_lock<std::mutex> lock(mutex_);

    if (!bell_.wait_for(lock, most, [&] { return ended_ != seen; })) {
        lock.unlock();
        mesh_->finish_lost(); // what gloo has left to wait
        lock.lock();
    }
    return ended_;
}

uint64_t Lanes::ended()
{
    std::lock_guard<std::mutex> lock(mutex_);

    return ended_;
}

void Lanes::drop(dyti_gloo_message *post)
{
    std::unique_lock<std::mutex> lock(mutex_);

    for (auto &entry : lane_) {
        Lane &here = *entry.second;
        auto queued = std::find(here.queue.begin(), here.queue.end(), post);

        if (queued != here.queue.end()) {
            here.queue.erase(queued);
            break;
        }
        if (here.waiting == post) {
            post->message.give_up();
            bell_.wait(lock, [&] { return here.waiting != post; });
            break;
        }
    }
    lock.unlock();
    delete post; // gloo's destructor waits for who is touching it
}

} // namespace dyti
