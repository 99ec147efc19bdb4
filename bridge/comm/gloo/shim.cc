// gloo behind C: each call of shim.h, with what it throws turned into a result.
#include "comm/gloo/lanes.hpp"

#include <gloo/allgatherv.h>
#include <gloo/alltoallv.h>
#include <gloo/broadcast.h>

#include <cstring>

using dyti::guarded;
using dyti::Milliseconds;

struct dyti_gloo {
    std::shared_ptr<dyti::Mesh> mesh;
    std::unique_ptr<dyti::Lanes> lanes;
    Milliseconds timeout{0};
};

dyti_gloo_result dyti_gloo_open(const dyti_gloo_params *params, dyti_gloo **out,
                                char *text, size_t text_size)
{
    return guarded(text, text_size, [&] {
        std::unique_ptr<dyti_gloo> self(new dyti_gloo);

        self->mesh = std::make_shared<dyti::Mesh>(
            static_cast<int>(params->rank), static_cast<int>(params->size));
        self->mesh->connect(params->address, params->store,
                            Milliseconds(params->open_timeout_ms));
        self->lanes.reset(new dyti::Lanes(self->mesh));
        self->timeout = params->timeout_ms > 0
                            ? Milliseconds(params->timeout_ms)
                            : dyti::forever;
        self->mesh->setTimeout(self->timeout);
        *out = self.release();
    });
}

void dyti_gloo_close(dyti_gloo *self)
{
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
        size_t n = static_cast<size_t>(self->mesh->size);
        size_t me = static_cast<size_t>(self->mesh->rank), before = 0;
        std::vector<size_t> counts(counts_bytes, counts_bytes + n);
        gloo::AllgathervOptions options(self->mesh);

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
        gloo::BroadcastOptions options(self->mesh);

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
        size_t n = static_cast<size_t>(self->mesh->size);
        gloo::AlltoallvOptions options(self->mesh);

        options.setInput(static_cast<char *>(const_cast<void *>(in)),
                         std::vector<int64_t>(send_bytes, send_bytes + n));
        options.setOutput(static_cast<char *>(out),
                          std::vector<int64_t>(recv_bytes, recv_bytes + n));
        options.setTimeout(self->timeout);
        gloo::alltoallv(options);
    });
}

void dyti_gloo_interrupt(dyti_gloo *self)
{
    char text[64];

    (void)guarded(text, sizeof(text), [&] { self->mesh->interrupt(); });
}

void dyti_gloo_finish_lost(dyti_gloo *self)
{
    char text[64];

    (void)guarded(text, sizeof(text), [&] { self->mesh->finish_lost(); });
}

dyti_gloo_result dyti_gloo_post(dyti_gloo *self, uint32_t peer, int is_send,
                                void *buf, uint64_t bytes, uint64_t slot,
                                dyti_gloo_message **out, char *text,
                                size_t text_size)
{
    return guarded(text, text_size, [&] {
        *out = self->lanes->post(peer, is_send != 0, buf, bytes, slot);
    });
}

dyti_gloo_result dyti_gloo_poll(dyti_gloo *self, dyti_gloo_message *post,
                                char *text, size_t text_size)
{
    std::string what;
    dyti_gloo_result result = self->lanes->poll(post, &what);

    if (result == DYTI_GLOO_BROKEN) {
        dyti::say(text, text_size, what.c_str());
    }
    return result;
}

uint64_t dyti_gloo_wait(dyti_gloo *self, uint64_t seen, int64_t max_ms)
{
    return self->lanes->wait(seen, Milliseconds(max_ms));
}

uint64_t dyti_gloo_ended(dyti_gloo *self)
{
    return self->lanes->ended();
}

void dyti_gloo_drop(dyti_gloo *self, dyti_gloo_message *post)
{
    self->lanes->drop(post);
}
