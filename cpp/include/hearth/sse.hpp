// Server-sent events: the parser of WHATWG HTML, 9.2.6. Bytes in, in any pieces; events out.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace hearth {
inline namespace v1 {

// One dispatched event.
struct server_event {
    std::string type = "message";
    std::string data;
    std::string id; // the last one that was sent, with this event or before
    std::optional<std::chrono::milliseconds> retry; // the last one that was sent
};

class event_parser {
public:
    static constexpr std::size_t usual_size = 2'000'000;

    // `largest`: maximum size of an incomplete event. 0: without limit.
    explicit event_parser(std::size_t largest = usual_size) noexcept : largest_(largest) {}

    // Takes more of the stream, and hands each event that is complete to `take(const server_event &)`. False: an event is larger than it may
    // be; there is nothing more to be had of the stream.
    template <typename Take>
    bool feed(std::string_view more, Take &&take) {
        for (const char c : more) {
            const bool lone_feed = c == '\n' && after_return_;
            after_return_ = c == '\r';
            if (lone_feed) {
                continue;
            }
            if (c == '\r' || c == '\n') {
                end_of_line(take);
                line_.clear();
            } else if (largest_ != 0 && line_.size() + data_.size() >= largest_) {
                return false;
            } else {
                line_.push_back(c);
            }
        }
        return true;
    }

    // The value of Last-Event-ID for a reconnecting client.
    const std::string &last_id() const noexcept { return id_; }

private:
    template <typename Take>
    void end_of_line(Take &take) {
        if (first_) {
            first_ = false;
            if (line_.compare(0, 3, "\xEF\xBB\xBF") == 0) {
                line_.erase(0, 3);
            }
        }
        if (line_.empty()) {
            dispatch(take);
            return;
        }
        const std::string_view line = line_;
        const auto colon = line.find(':');
        const auto name = line.substr(0, colon);
        auto value = colon == std::string_view::npos ? std::string_view() : line.substr(colon + 1);
        if (!value.empty() && value.front() == ' ') {
            value.remove_prefix(1);
        }
        if (name == "data") {
            data_.append(value).push_back('\n');
            has_data_ = true;
        } else if (name == "event") {
            type_ = value;
        } else if (name == "id") {
            if (value.find('\0') == std::string_view::npos) {
                id_ = value;
            }
        } else if (name == "retry") {
            read_retry(value);
        }
    }

    template <typename Take>
    void dispatch(Take &take) {
        if (has_data_) {
            data_.pop_back();
            server_event event;
            if (!type_.empty()) {
                event.type = std::move(type_);
            }
            event.data = std::move(data_);
            event.id = id_;
            event.retry = retry_;
            take(std::as_const(event));
        }
        has_data_ = false;
        data_.clear();
        type_.clear();
    }

    // Digits alone, and a day at most: more is a mistake, and would overflow a clock.
    void read_retry(std::string_view digits) {
        constexpr long most = 86'400'000;
        long value = 0;
        for (const char c : digits) {
            if (c < '0' || c > '9' || value > most) {
                return;
            }
            value = value * 10 + (c - '0');
        }
        if (!digits.empty() && value <= most) {
            retry_ = std::chrono::milliseconds(value);
        }
    }

    std::size_t largest_;
    std::string line_;
    std::string data_;
    std::string type_;
    std::string id_;
    std::optional<std::chrono::milliseconds> retry_;
    bool has_data_ = false;
    bool after_return_ = false;
    bool first_ = true;
};

} // namespace v1
} // namespace hearth
