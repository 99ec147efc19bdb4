// A user's program in C++17: the public headers and nothing else.
#include <dynatrain/api.h>
#include <dynatrain/box.h>
#include <dynatrain/status.h>
#include <dynatrain/version.h>

#include <string>

int main()
{
    dyt_box a{1, {0}, {4}}, b{1, {1}, {3}}, both{};
    std::uint64_t count = 0;

    if (dyt_box_intersect(&a, &b, &both) != DYT_OK ||
        dyt_box_count(&both, &count) != DYT_OK || count != 2) {
        return 1;
    }
    return std::string(dyt_status_name(DYT_ERR_IO)) == "DYT_ERR_IO" ? 0 : 1;
}
