// dlopen() and its kin for what is simulated: a library is a name and a list of
// symbols, which tests add, hide and cut down.
#include "gpusim.h"

#include <dlfcn.h>
#undef dlopen
#undef dlsym
#undef dlerror
#undef dlclose

#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace
{

struct library {
    std::map<std::string, void *> symbol;
    bool is_hidden = false;
};

struct loader {
    std::mutex lock;
    std::map<std::string, library> known;
    std::string hidden_symbol;
    std::string error;
    bool has_error = false;
};

loader &all()
{
    static loader *l = new loader();

    return *l;
}

// Whether a name is one that only the simulator may have.
bool is_simulated(const char *name)
{
    return strncmp(name, "libcublas", 9) == 0;
}

} // namespace

void gpusim_library_add(const char *name, const char *symbol, void *function)
{
    std::lock_guard<std::mutex> hold(all().lock);

    all().known[name].symbol[symbol] = function;
}

void gpusim_library_hide(const char *name, bool hidden)
{
    std::lock_guard<std::mutex> hold(all().lock);

    all().known[name].is_hidden = hidden;
}

void gpusim_symbol_hide(const char *symbol)
{
    std::lock_guard<std::mutex> hold(all().lock);

    all().hidden_symbol = symbol == nullptr ? "" : symbol;
}

void *gpusim_dlopen(const char *name, int flags)
{
    std::lock_guard<std::mutex> hold(all().lock);
    auto found = name == nullptr ? all().known.end() : all().known.find(name);

    if (found != all().known.end() && !found->second.is_hidden) {
        return &found->second;
    }
    if (name == nullptr || !is_simulated(name)) {
        return dlopen(name, flags);
    }
    all().error =
        std::string(name) + ": cannot open shared object file (simulated)";
    all().has_error = true;
    return nullptr;
}

void *gpusim_dlsym(void *handle, const char *symbol)
{
    std::lock_guard<std::mutex> hold(all().lock);

    for (auto &entry : all().known) {
        if (&entry.second == handle) {
            auto found = entry.second.symbol.find(symbol);

            return found == entry.second.symbol.end() ||
                           all().hidden_symbol == symbol
                       ? nullptr
                       : found->second;
        }
    }
    return dlsym(handle, symbol);
}

char *gpusim_dlerror(void)
{
    static thread_local std::string said;
    std::lock_guard<std::mutex> hold(all().lock);

    if (!all().has_error) {
        return dlerror();
    }
    said = all().error;
    all().has_error = false;
    return said.data();
}

int gpusim_dlclose(void *handle)
{
    std::lock_guard<std::mutex> hold(all().lock);

    for (auto &entry : all().known) {
        if (&entry.second == handle) {
            return 0;
        }
    }
    return dlclose(handle);
}
