// See hub.h.
#include "comm/gloo/hub.hpp"

#include <deque>
#include <stdexcept>

namespace dyti
{

namespace
{

namespace transport = gloo::transport;

// gloo counts what has ended of a buffer; here each send and each receive is a
// message of its own, and they are waited for in the order of their posting.
class Buffer : public transport::UnboundBuffer
{
  public:
    Buffer(Mesh &mesh, void *buf, size_t bytes)
        : transport::UnboundBuffer(buf, bytes), mesh_(mesh)
    {
    }

    bool waitRecv(int *member, Milliseconds timeout) override
    {
        return wait(received_, member, timeout);
    }

    bool waitSend(int *member, Milliseconds timeout) override
    {
        return wait(sent_, member, timeout);
    }

    void abortWaitRecv() override
    {
    }

    void abortWaitSend() override
    {
    }

    void send(int member, uint64_t slot, size_t offset, size_t bytes) override
    {
        post(sent_, true, member, slot, offset, bytes);
    }

    void recv(int member, uint64_t slot, size_t offset, size_t bytes) override
    {
        post(received_, false, member, slot, offset, bytes);
    }

    void recv(std::vector<int> members, uint64_t slot, size_t offset,
              size_t bytes) override
    {
        if (members.size() != 1) {
            throw std::runtime_error("a receive from any member");
        }
        recv(members[0], slot, offset, bytes);
    }

  private:
    struct Part {
        int member;
        std::unique_ptr<Message> message;
    };

    void post(std::deque<Part> &parts, bool is_send, int member, uint64_t slot,
              size_t offset, size_t bytes)
    {
        if (bytes == kUnspecifiedByteCount) {
            bytes = size - offset;
        }
        parts.push_back(
            {member, std::unique_ptr<Message>(new Message(
                         mesh_, member, is_send,
                         static_cast<char *>(ptr) + offset, bytes, slot))});
    }

    bool wait(std::deque<Part> &parts, int *member, Milliseconds timeout)
    {
        Part part = std::move(parts.at(0));

        parts.pop_front();
        if (timeout == transport::kUnsetTimeout) {
            timeout = mesh_.getTimeout();
        }
        if (!part.message->wait(timeout)) {
            throw std::runtime_error("given up");
        }
        if (member != nullptr) {
            *member = part.member;
        }
        return true;
    }

    Mesh &mesh_;
    std::deque<Part> sent_, received_;
};

class Hub : public transport::Context
{
  public:
    Hub(Mesh &mesh, std::shared_ptr<transport::Context> tcp)
        : transport::Context(tcp->rank, tcp->size), mesh_(mesh),
          tcp_(std::move(tcp))
    {
    }

    std::unique_ptr<transport::Pair> &getPair(int member) override
    {
        return tcp_->getPair(member);
    }

    std::unique_ptr<transport::Pair> &createPair(int member) override
    {
        return tcp_->createPair(member);
    }

    std::unique_ptr<transport::UnboundBuffer> createUnboundBuffer(
        void *buf, size_t bytes) override
    {
        return std::unique_ptr<transport::UnboundBuffer>(
            new Buffer(mesh_, buf, bytes));
    }

  private:
    Mesh &mesh_;
    std::shared_ptr<transport::Context> tcp_;
};

} // namespace

std::shared_ptr<transport::Context> make_hub(
    Mesh &mesh, std::shared_ptr<transport::Context> tcp)
{
    return std::make_shared<Hub>(mesh, std::move(tcp));
}

} // namespace dyti
