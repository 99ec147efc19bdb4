// The transport as gloo's collectives see it: their buffers are made of
// messages (mesh.h), so that their waits end as well.
#ifndef DYTI_COMM_GLOO_HUB_H
#define DYTI_COMM_GLOO_HUB_H

#include "comm/gloo/mesh.hpp"

namespace dyti
{

// Lives no longer than the mesh.
std::shared_ptr<gloo::transport::Context> make_hub(
    Mesh &mesh, std::shared_ptr<gloo::transport::Context> tcp);

} // namespace dyti

#endif // DYTI_COMM_GLOO_HUB_H
