// The header fields of one answer, in their order, with duplicates, looked up without regard to case.
//
// - A view: nothing is copied. A `headers` keeps its answer alive; iterators and string_views live as long as any handle of it.
#pragma once

#include <cstddef>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hearth.h>

namespace hearth {
inline namespace v1 {
namespace detail {

inline std::string_view view(hearth_bytes bytes) noexcept {
    return bytes.data == nullptr ? std::string_view() : std::string_view(bytes.data, bytes.size);
}

constexpr char lower(char c) noexcept {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

constexpr bool same_field(std::string_view a, std::string_view b) noexcept {
    if (a.size() != b.size()) {
        return false;
    }
    for (std::size_t at = 0; at < a.size(); ++at) {
        if (lower(a[at]) != lower(b[at])) {
            return false;
        }
    }
    return true;
}

// One handle of an answer, or none.
class answer {
public:
    answer() = default;
    explicit answer(const hearth_response *lent) noexcept
        : raw_(lent == nullptr ? nullptr : hearth_response_keep(lent)) {}
    answer(const answer &other) noexcept : answer(other.raw_) {}
    answer(answer &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    answer &operator=(answer other) noexcept {
        std::swap(raw_, other.raw_);
        return *this;
    }
    ~answer() {
        if (raw_ != nullptr) {
            hearth_response_free(raw_);
        }
    }

    const hearth_response *get() const noexcept { return raw_; }
    explicit operator bool() const noexcept { return raw_ != nullptr; }

private:
    hearth_response *raw_ = nullptr;
};

} // namespace detail

class headers {
public:
    using value_type = std::pair<std::string_view, std::string_view>;

    class const_iterator {
    public:
        using iterator_category = std::forward_iterator_tag;
        using value_type = headers::value_type;
        using difference_type = std::ptrdiff_t;
        using pointer = const value_type *;
        using reference = const value_type &;

        const_iterator() = default;

        reference operator*() const noexcept { return current_; }
        pointer operator->() const noexcept { return &current_; }
        const_iterator &operator++() noexcept {
            ++at_;
            look();
            return *this;
        }
        const_iterator operator++(int) noexcept {
            auto before = *this;
            ++*this;
            return before;
        }
        friend bool operator==(const const_iterator &a, const const_iterator &b) noexcept {
            return a.answer_ == b.answer_ && a.at_ == b.at_;
        }
        friend bool operator!=(const const_iterator &a, const const_iterator &b) noexcept {
            return !(a == b);
        }

    private:
        friend class headers;
        const_iterator(const hearth_response *answer, bool trailers, std::size_t at) noexcept
            : answer_(answer), at_(at), trailers_(trailers) {
            look();
        }
        void look() noexcept {
            hearth_bytes name = {};
            hearth_bytes value = {};
            const int found = answer_ == nullptr ? 0
                              : trailers_ ? hearth_response_trailer_at(answer_, at_, &name, &value)
                                          : hearth_response_header_at(answer_, at_, &name, &value);
            current_ = found != 0 ? headers::value_type(detail::view(name), detail::view(value))
                                  : headers::value_type();
        }

        const hearth_response *answer_ = nullptr;
        std::size_t at_ = 0;
        bool trailers_ = false;
        headers::value_type current_;
    };
    using iterator = const_iterator;

    headers() = default;
    explicit headers(detail::answer answer, bool trailers = false) noexcept
        : answer_(std::move(answer)), trailers_(trailers) {}

    const_iterator begin() const noexcept { return {answer_.get(), trailers_, 0}; }
    const_iterator end() const noexcept { return {answer_.get(), trailers_, size()}; }
    bool empty() const noexcept { return size() == 0; }
    std::size_t size() const noexcept {
        if (!answer_) {
            return 0;
        }
        return trailers_ ? hearth_response_trailer_count(answer_.get())
                         : hearth_response_header_count(answer_.get());
    }

    // The first field of that name, or end().
    const_iterator find(std::string_view name) const noexcept {
        auto at = begin();
        const auto last = end();
        while (at != last && !detail::same_field(at->first, name)) {
            ++at;
        }
        return at;
    }

    bool contains(std::string_view name) const noexcept { return find(name) != end(); }

    // How many fields have that name.
    std::size_t count(std::string_view name) const noexcept {
        std::size_t found = 0;
        for (const auto &field : *this) {
            found += detail::same_field(field.first, name) ? 1U : 0U;
        }
        return found;
    }

    // The value of the first field of that name, or nothing.
    std::optional<std::string_view> get(std::string_view name) const noexcept {
        const auto found = find(name);
        return found == end() ? std::nullopt : std::optional(found->second);
    }

    // The same; an empty string when there is none.
    std::string operator[](std::string_view name) const {
        return std::string(get(name).value_or(std::string_view()));
    }

    // The same; throws std::out_of_range when there is none.
    std::string at(std::string_view name) const {
        const auto found = get(name);
        if (!found) {
            throw std::out_of_range("no header field " + std::string(name));
        }
        return std::string(*found);
    }

    // The values of all fields of that name, in order.
    std::vector<std::string_view> get_all(std::string_view name) const {
        std::vector<std::string_view> values;
        for (const auto &[found, value] : *this) {
            if (detail::same_field(found, name)) {
                values.push_back(value);
            }
        }
        return values;
    }

private:
    detail::answer answer_;
    bool trailers_ = false;
};

} // namespace v1
} // namespace hearth
