/* The only C++ of the project: copies the tree of tomlplusplus into the C
 * structs of toml_tree.h.  Nothing is thrown past its border. */
#include <stdexcept>

/* The parser asserts things that hostile text can break ("[=" in 3.3), and in
 * a build with NDEBUG it lets the compiler assume them.  Here every one is a
 * check that throws, except one behind which the parser reports the mistake
 * itself, with its place. */
#undef NDEBUG
static constexpr bool reported_anyway(const char *what)
{
    const char *start = "is_bare_key_character(*cp) || ";

    while (*start != '\0' && *start == *what) {
        start++;
        what++;
    }
    return *start == '\0';
}
static constexpr void check(bool holds, const char *what)
{
    if (!holds && !reported_anyway(what)) {
        throw std::logic_error(what);
    }
}
#define TOML_ASSERT(expr)      check(static_cast<bool>(expr), #expr)
#define TOML_EXCEPTIONS        1
#define TOML_HEADER_ONLY       1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "format/toml_tree.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace
{

void set_error(dyti_toml_error *error, std::string_view text, uint32_t line,
               uint32_t column)
{
    const size_t most = sizeof(error->text) - 1;
    const size_t bytes = std::min(text.size(), most);

    std::memcpy(error->text, text.data(), bytes);
    error->text[bytes] = '\0';
    /* One error is one line. */
    std::replace_if(
        error->text, error->text + bytes,
        [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
    error->line = line;
    error->column = column;
}

char *copy_text(std::string_view text)
{
    char *copy = static_cast<char *>(std::malloc(text.size() + 1));

    if (copy == nullptr) {
        throw std::bad_alloc();
    }
    std::memcpy(copy, text.data(), text.size());
    copy[text.size()] = '\0';
    return copy;
}

bool copy_node(const toml::node &from, dyti_toml *to, dyti_toml_error *error);

void make_children(dyti_toml *to, size_t count)
{
    if (count == 0) {
        return;
    }
    to->child =
        static_cast<dyti_toml *>(std::calloc(count, sizeof(*to->child)));
    if (to->child == nullptr) {
        throw std::bad_alloc();
    }
    to->child_count = static_cast<uint32_t>(count);
}

bool copy_table(const toml::table &from, dyti_toml *to, dyti_toml_error *error)
{
    size_t index = 0;

    make_children(to, from.size());
    for (auto &&[key, value] : from) {
        dyti_toml *child = &to->child[index++];

        if (key.str().find('\0') != std::string_view::npos) {
            set_error(error, "a key holds a NUL", key.source().begin.line,
                      key.source().begin.column);
            return false;
        }
        child->key = copy_text(key.str());
        child->key_line = key.source().begin.line;
        child->key_column = key.source().begin.column;
        if (!copy_node(value, child, error)) {
            return false;
        }
    }
    std::stable_sort(to->child, to->child + to->child_count,
                     [](const dyti_toml &a, const dyti_toml &b) {
                         return a.key_line != b.key_line
                                    ? a.key_line < b.key_line
                                    : a.key_column < b.key_column;
                     });
    return true;
}

bool copy_array(const toml::array &from, dyti_toml *to, dyti_toml_error *error)
{
    size_t index = 0;

    make_children(to, from.size());
    for (auto &&value : from) {
        if (!copy_node(value, &to->child[index++], error)) {
            return false;
        }
    }
    return true;
}

bool copy_node(const toml::node &from, dyti_toml *to, dyti_toml_error *error)
{
    to->line = from.source().begin.line;
    to->column = from.source().begin.column;
    if (const auto *table = from.as_table()) {
        to->type = DYTI_TOML_TABLE;
        return copy_table(*table, to, error);
    }
    if (const auto *array = from.as_array()) {
        to->type = DYTI_TOML_ARRAY;
        return copy_array(*array, to, error);
    }
    if (const auto *text = from.as_string()) {
        to->type = DYTI_TOML_STRING;
        if (text->get().find('\0') != std::string::npos) {
            set_error(error, "a string holds a NUL", to->line, to->column);
            return false;
        }
        to->text = copy_text(text->get());
        to->text_bytes = text->get().size();
    } else if (const auto *integer = from.as_integer()) {
        to->type = DYTI_TOML_INTEGER;
        to->integer = integer->get();
    } else if (const auto *real = from.as_floating_point()) {
        to->type = DYTI_TOML_FLOAT;
        to->real = real->get();
    } else if (const auto *flag = from.as_boolean()) {
        to->type = DYTI_TOML_BOOL;
        to->flag = flag->get();
    } else {
        to->type = DYTI_TOML_DATE;
    }
    return true;
}

} // namespace

extern "C" int dyti_toml_shim_parse(const char *text, size_t text_bytes,
                                    dyti_toml *root, dyti_toml_error *error)
{
    try {
        const toml::table table =
            toml::parse(std::string_view(text, text_bytes));

        return copy_node(table, root, error) ? 0 : -1;
    } catch (const toml::parse_error &mistake) {
        const auto &where = mistake.source().begin;

        set_error(error, mistake.description(), where.line, where.column);
    } catch (const std::bad_alloc &) {
        error->no_memory = true;
    } catch (...) {
        set_error(error, "the parser gave up", 1, 1);
    }
    return -1;
}
