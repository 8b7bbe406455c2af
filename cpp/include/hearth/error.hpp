// Why a request has no answer: one number as curlev has it, and beside it what kind of failure it was, in words.
//
// `get_code()` keeps one number for everything, because programs written for curlev read it. Programs that are new read
// `error()`: its kind is what they can act on, its message what they can show.
#pragma once

#include <string>
#include <system_error>
#include <utility>

namespace hearth {
inline namespace v1 {

// The numbers of `get_code()` that are neither an HTTP status nor a number of libcurl's (curl/curl.h, CURLcode).
namespace code {
inline constexpr long success = 0;
inline constexpr long running = -1;

inline constexpr long protocol_crashed = -10;
inline constexpr long start_failed =
    -11; // the engine is not running, or the process is a fork of the one that started it
inline constexpr long restart_failed = -12;

inline constexpr long authentication_format = -20;
inline constexpr long authentication_set = -21;
inline constexpr long certificates_format = -22;
inline constexpr long certificates_set = -23;
inline constexpr long options_format = -24;
inline constexpr long options_set = -25;
inline constexpr long safe_protocols_set = -26; // a protocol that nothing knows

inline constexpr long user_callback = -30; // a callback that takes part in the transfer threw
inline constexpr long url_set = -31;       // the method or the query
inline constexpr long headers_set = -32;   // CR, LF, NUL, or no field name
inline constexpr long body_set = -33;
inline constexpr long mime_set = -34;
inline constexpr long recipients_set = -35;

// Those of libcurl's that a program is likely to ask for.
inline constexpr long unsupported_protocol = 1;
inline constexpr long url_malformed = 3;
inline constexpr long could_not_resolve_proxy = 5;
inline constexpr long could_not_resolve = 6;
inline constexpr long could_not_connect = 7;
inline constexpr long write_error = 23; // also: the body is larger than it may be
inline constexpr long timed_out = 28;
inline constexpr long file_unreadable = 37; // of file:
inline constexpr long aborted = 42;
inline constexpr long send_error = 55;     // also: a mail server has refused
inline constexpr long use_ssl_failed = 64; // TLS is required, and not to be had
inline constexpr long login_denied = 67;
inline constexpr long too_many_redirects = 47;
inline constexpr long got_nothing = 52;
inline constexpr long receive_error = 56;
inline constexpr long peer_not_verified = 60;
} // namespace code

// What kind of failure it was.
enum class error_kind : int {
    none = 0,
    bad_request,      // it was never sent: URL, header field, option or certificate are wrong
    not_running,      // the engine was not started, was stopped, or belongs to another process
    resolve,          // the name was not found
    connect,          // no address could be connected to
    tls,              // the handshake failed
    certificate,      // the peer's certificate, or its pin, is not to be trusted
    proxy,            // the proxy refused, or could not be reached
    timeout,          // a limit of time passed
    reset,            // the connection broke, or was closed before the end
    empty,            // it was closed without an answer
    protocol,         // what came is no HTTP
    too_large,        // the body, or the head, is larger than it may be
    redirects,        // too many
    protocol_refused, // the URL's scheme, or a redirect's, is not among the safe ones
    aborted,          // abort(), a token, or stop()
    callback,         // a callback of the program ended it
    denied,           // the address is one that must not be called
    unsupported,      // this cannot be done here
    system,           // no descriptor, no thread, no memory
    internal,         // a fault in Hearth
    // of mail
    refused,         // the server said no, for good
    try_later,       // the server said not now
    login,           // credentials were refused, or nothing that is offered is allowed
    outcome_unknown, // the whole message went out and no reply came: it may have been taken
};

inline const char *to_string(error_kind kind) noexcept {
    switch (kind) {
    case error_kind::none:
        return "none";
    case error_kind::bad_request:
        return "bad request";
    case error_kind::not_running:
        return "engine not running";
    case error_kind::resolve:
        return "name not resolved";
    case error_kind::connect:
        return "not connected";
    case error_kind::tls:
        return "TLS failed";
    case error_kind::certificate:
        return "certificate not trusted";
    case error_kind::proxy:
        return "proxy failed";
    case error_kind::timeout:
        return "timed out";
    case error_kind::reset:
        return "connection broke";
    case error_kind::empty:
        return "no answer";
    case error_kind::protocol:
        return "not HTTP";
    case error_kind::too_large:
        return "too large";
    case error_kind::redirects:
        return "too many redirects";
    case error_kind::protocol_refused:
        return "protocol not allowed";
    case error_kind::aborted:
        return "aborted";
    case error_kind::callback:
        return "ended by a callback";
    case error_kind::denied:
        return "address denied";
    case error_kind::unsupported:
        return "unsupported";
    case error_kind::system:
        return "out of system resources";
    case error_kind::internal:
        return "internal error";
    case error_kind::refused:
        return "refused by the server";
    case error_kind::try_later:
        return "refused for now";
    case error_kind::login:
        return "not logged in";
    case error_kind::outcome_unknown:
        return "outcome unknown";
    }
    return "unknown";
}

namespace detail {
class category final : public std::error_category {
public:
    const char *name() const noexcept override { return "hearth"; }
    std::string message(int value) const override {
        return to_string(static_cast<error_kind>(value));
    }
};
} // namespace detail

[[gnu::visibility("default")]] inline const std::error_category &category() noexcept {
    static const detail::category instance;
    return instance;
}

inline std::error_code make_error_code(error_kind kind) noexcept {
    return {static_cast<int>(kind), category()};
}

// Why a request has no answer. `code` is what `get_code()` says.
struct error {
    error_kind kind = error_kind::none;
    long code = code::success;
    std::string message;

    explicit operator bool() const noexcept { return kind != error_kind::none; }
};

// What `fetch()` throws.
class request_error : public std::system_error {
public:
    explicit request_error(error why)
        : std::system_error(make_error_code(why.kind), why.message), why_(std::move(why)) {}

    const error &why() const noexcept { return why_; }

private:
    error why_;
};

} // namespace v1
} // namespace hearth

template <>
struct std::is_error_code_enum<hearth::error_kind> : std::true_type {};
