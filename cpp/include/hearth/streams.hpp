// Bodies that are not held in memory: sources, sinks, events, progress.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unistd.h>
#include <utility>

#include <hearth.h>

#include "cancel.hpp"
#include "mime.hpp"
#include "response.hpp"
#include "sse.hpp"

namespace hearth {
inline namespace v1 {

// Result of a callback during a transfer.
enum class flow : int {
    go_on = HEARTH_CONTINUE,
    pause =
        HEARTH_PAUSE, // no more data until http::resume(); the data of this call count as accepted
    stop = HEARTH_ABORT, // the request ends with code::aborted
};

// Progress. A total is missing if the other side has not sent it.
struct progress {
    std::uint64_t sent = 0;
    std::optional<std::uint64_t> to_send;
    std::uint64_t received = 0;
    std::optional<std::uint64_t> to_receive;
};

// Kinds of data on the wire; http::on_debug().
enum class debug : int {
    text = HEARTH_DEBUG_TEXT,             // a message of the library: the connection, TLS, failures
    header_in = HEARTH_DEBUG_HEADER_IN,   // a head as it came
    header_out = HEARTH_DEBUG_HEADER_OUT, // a sent head, at each try
    data_in = HEARTH_DEBUG_DATA_IN,       // a piece of the answer's body, still compressed
    data_out = HEARTH_DEBUG_DATA_OUT,     // a piece of the request's body
};

// Fills up to `room` bytes and returns how many. 0: the end. std::nullopt: no data now; it is called again after http::resume(). An
// exception ends the request with code::user_callback.
using body_source = std::function<std::optional<std::size_t>(char *buffer, std::size_t room)>;
// Puts a source back to its beginning: another try, a redirect, Digest. False: it cannot be had again.
using body_rewind = std::function<bool()>;

namespace detail {

// Turns a callback that returns void, bool (false: stop) or flow into one that returns flow.
template <typename Argument, typename Callback>
std::function<flow(Argument)> flowing(Callback &&callback) {
    using result = std::invoke_result_t<Callback &, Argument>;
    if constexpr (std::is_same_v<result, flow>) {
        return std::forward<Callback>(callback);
    } else if constexpr (std::is_same_v<result, bool>) {
        return [callback = std::forward<Callback>(callback)](Argument argument) mutable {
            return callback(argument) ? flow::go_on : flow::stop;
        };
    } else {
        static_assert(std::is_void_v<result>, "a callback says nothing, bool or hearth::flow");
        return [callback = std::forward<Callback>(callback)](Argument argument) mutable {
            callback(argument);
            return flow::go_on;
        };
    }
}

// A download to a file. Until it is complete, the data are beside the file under a unique name, because others may download to the same
// file.
class file_sink {
public:
    explicit file_sink(std::string path) : path_(std::move(path)) {}
    file_sink(const file_sink &) = delete;
    file_sink &operator=(const file_sink &) = delete;
    ~file_sink() { drop(); }

    bool open() {
        drop();
        std::array<unsigned char, 8> chance = {};
        if (::getentropy(chance.data(), chance.size()) != 0) {
            return false;
        }
        constexpr std::string_view digits = "0123456789abcdef";
        beside_ = path_ + ".";
        for (const auto byte : chance) {
            beside_ += digits[byte >> 4U];
            beside_ += digits[byte & 15U];
        }
        beside_ += ".part";
        file_.reset(std::fopen(beside_.c_str(), "wbxe"));
        return file_ != nullptr;
    }
    bool write(std::string_view data) {
        return file_ && std::fwrite(data.data(), 1, data.size(), file_.get()) == data.size();
    }
    // Puts the whole file in its place.
    bool keep() {
        if (!file_) {
            return false;
        }
        if (std::fclose(file_.release()) == 0 && std::rename(beside_.c_str(), path_.c_str()) == 0) {
            return true;
        }
        std::remove(beside_.c_str());
        return false;
    }
    void drop() {
        if (file_) {
            file_.reset();
            std::remove(beside_.c_str());
        }
    }

private:
    std::string path_;
    std::string beside_;
    file_handle file_;
};

// State that only some requests have. Not used from outside while the request is running.
struct extras {
    std::function<flow(const response &)> head;
    std::function<flow(const response &)> interim;
    std::function<flow(std::string_view)> body;
    std::function<flow(const progress &)> moved;
    std::function<void(debug, std::string_view)> wire;
    bool secrets = false; // shown to it
    std::function<void(const server_event &)> event;
    event_parser events;
    std::size_t largest_event = event_parser::usual_size;
    std::unique_ptr<file_sink> sink;
    body_source source;
    body_rewind rewind;
    segments document;
    std::shared_ptr<cancellation> cancel;

    // Of the answer that is coming.
    bool wanted = true; // its body is the requested one: a file's, an event stream's
    std::exception_ptr thrown;
    bool sink_failed = false;
    bool event_too_large = false;
    bool source_used = false;

    bool has_callbacks() const noexcept {
        return head || interim || body || moved || wire || event || source || sink;
    }
};

} // namespace detail
} // namespace v1
} // namespace hearth
