// Another part of the program: a shared library with its own copy of the headers and hidden symbols. Parts may pass requests to each
// other.
#pragma once

#include <hearth/http.hpp>

namespace part {

[[gnu::visibility("default")]] void start(hearth::http &one);
[[gnu::visibility("default")]] std::error_code fetch(hearth::http &one);
[[gnu::visibility("default")]] const void *place_of(const void *object);
[[gnu::visibility("default")]] const void *whereabouts();

} // namespace part
