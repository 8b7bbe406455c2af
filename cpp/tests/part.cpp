#include "part.hpp"

void part::start(hearth::http &one) {
    one.start();
}

std::error_code part::fetch(hearth::http &one) {
    std::error_code why;
    one.fetch(why);
    return why;
}

const void *part::place_of(const void *object) {
    return &hearth::detail::places::of(object);
}

const void *part::whereabouts() {
    return &hearth::detail::whereabouts::here();
}
