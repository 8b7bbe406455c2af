// The `user:password@` of a URL, which becomes Basic authentication.
//
// - A URL that other parsers would read differently has none: it is passed on unchanged and refused, because they would see another host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "../query.hpp"

namespace hearth {
inline namespace v1 {
namespace detail {

struct url_login {
    std::string url; // without it
    std::string user;
    std::string secret;
};

inline std::optional<url_login> login_of(std::string_view url) {
    if (url.find('@') == std::string_view::npos) {
        return std::nullopt; // most URLs
    }
    const auto delimiter = [url](std::size_t from) {
        const auto ends = [](char c) { return c == '/' || c == '?' || c == '#'; };
        const auto at = std::find_if(url.begin() + from, url.end(), ends);
        return static_cast<std::size_t>(at - url.begin());
    };
    const auto slash = delimiter(0);
    const bool absolute = slash < url.size() && slash > 0 && url.compare(slash - 1, 3, "://") == 0;
    const auto begin = absolute ? slash + 2 : url.size();
    const auto authority = url.substr(begin, delimiter(begin) - begin);
    const auto at = authority.rfind('@');
    const auto login = authority.substr(0, at);
    const auto ambiguous = [](char c) {
        return static_cast<unsigned char>(c) <= ' ' || c == '\x7f' || c == '\\';
    };
    if (at == std::string_view::npos || std::any_of(login.begin(), login.end(), ambiguous)) {
        return std::nullopt;
    }
    const auto colon = login.find(':');
    const auto secret =
        colon == std::string_view::npos ? std::string_view() : login.substr(colon + 1);
    return url_login{std::string(url.substr(0, begin)).append(url.substr(begin + at + 1)),
        percent_decoded(login.substr(0, colon)), percent_decoded(secret)};
}

} // namespace detail
} // namespace v1
} // namespace hearth
