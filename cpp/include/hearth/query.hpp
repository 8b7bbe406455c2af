// Names with values, as queries, forms and header fields take them; percent-encoding (RFC 3986, 2.3) and forms (WHATWG URL, 5.2).
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace hearth {
inline namespace v1 {

// Names with values, in order; names may be repeated. Made from braces, and from any map or vector of pairs of strings.
class key_values {
public:
    using value_type = std::pair<std::string, std::string>;

    key_values() = default;
    key_values(std::initializer_list<value_type> pairs) : pairs_(pairs) {}
    key_values(std::vector<value_type> pairs) : pairs_(std::move(pairs)) {}

    template <typename Range, typename Pair = typename std::decay_t<Range>::value_type,
        typename = std::enable_if_t<
            !std::is_same_v<std::decay_t<Range>, key_values> &&
            std::is_constructible_v<std::string, decltype(std::declval<Pair>().first)> &&
            std::is_constructible_v<std::string, decltype(std::declval<Pair>().second)>>>
    key_values(const Range &range) {
        for (const auto &[name, value] : range) {
            pairs_.emplace_back(std::string(name), std::string(value));
        }
    }

    void add(std::string name, std::string value) {
        pairs_.emplace_back(std::move(name), std::move(value));
    }
    void add(const key_values &more) {
        pairs_.insert(pairs_.end(), more.pairs_.begin(), more.pairs_.end());
    }

    auto begin() const noexcept { return pairs_.begin(); }
    auto end() const noexcept { return pairs_.end(); }
    std::size_t size() const noexcept { return pairs_.size(); }
    bool empty() const noexcept { return pairs_.empty(); }

private:
    std::vector<value_type> pairs_;
};

namespace detail {

constexpr bool is_unreserved(char c) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

inline void append_encoded(std::string &out, std::string_view text, bool form) {
    constexpr char digits[] = "0123456789ABCDEF";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (is_unreserved(c) && !(form && c == '~')) {
            out.push_back(c);
        } else if (form && c == ' ') {
            out.push_back('+');
        } else if (form && c == '*') {
            out.push_back(c);
        } else {
            out.push_back('%');
            out.push_back(digits[byte >> 4U]);
            out.push_back(digits[byte & 15U]);
        }
    }
}

inline void append_pairs(std::string &out, const key_values &pairs, bool form) {
    bool first = true;
    for (const auto &[name, value] : pairs) {
        if (!first) {
            out.push_back('&');
        }
        first = false;
        append_encoded(out, name, form);
        out.push_back('=');
        append_encoded(out, value, form);
    }
}

} // namespace detail

// Everything but letters, digits and -._~ becomes %XX.
inline std::string percent_encoded(std::string_view text) {
    std::string out;
    detail::append_encoded(out, text, false);
    return out;
}

// The reverse; a % without two hexadecimal digits stays unchanged.
inline std::string percent_decoded(std::string_view text) {
    const auto digit = [](char c) {
        return c >= '0' && c <= '9'   ? c - '0'
               : c >= 'a' && c <= 'f' ? c - 'a' + 10
               : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                      : -1;
    };
    std::string out;
    for (std::size_t at = 0; at < text.size(); ++at) {
        const int high = text[at] == '%' && at + 2 < text.size() ? digit(text[at + 1]) : -1;
        const int low = high >= 0 ? digit(text[at + 2]) : -1;
        if (low >= 0) {
            out.push_back(static_cast<char>(high * 16 + low));
            at += 2;
        } else {
            out.push_back(text[at]);
        }
    }
    return out;
}

// `a=1&b=2`, as application/x-www-form-urlencoded.
inline std::string form_encoded(const key_values &pairs) {
    std::string out;
    detail::append_pairs(out, pairs, true);
    return out;
}

} // namespace v1
} // namespace hearth
