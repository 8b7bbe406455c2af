// The result of a request: its number, and its answer if there is one.
//
// - A value: cheap to copy and move, and independent of its request.
// - Data are copied from the library only when they are requested. Accessors may be used from several threads at once.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hearth.h>

#include "error.hpp"
#include "headers.hpp"
#include "json.hpp"

namespace hearth {
inline namespace v1 {

// Times of the steps. Zero: not needed, or it did not happen.
struct timings {
    std::chrono::microseconds queued{};     // from start until its turn came
    std::chrono::microseconds resolved{};   // from its turn on: the name
    std::chrono::microseconds connected{};  // the connection
    std::chrono::microseconds secured{};    // TLS
    std::chrono::microseconds first_byte{}; // the head of the answer
    std::chrono::microseconds total{};      // from start to the end
    unsigned redirects = 0;
    unsigned retries = 0;
    bool reused = false; // over a connection that had been there
};

// A mail server's reply to one recipient.
struct recipient {
    std::string address;
    int code = 0; // 250; 4xx: temporary refusal; 5xx: permanent refusal; 0: no reply for this one
    std::string enhanced; // "5.1.1", if there is one
    std::string text;

    bool accepted() const noexcept { return code >= 200 && code < 300; }
};

// A certificate that the other end has shown. Texts are empty where it cannot be read.
struct certificate {
    std::string subject; // "C=DE, CN=a.example.org"
    std::string issuer;
    std::string serial; // in hexadecimal digits
    std::string names;  // "DNS:a.example.org, IP:192.0.2.1"
    std::chrono::system_clock::time_point not_before;
    std::chrono::system_clock::time_point not_after;
    std::string pem;
};

// TLS of the connection to the origin that answered.
struct tls_session {
    int version = 0;                       // 12, 13; 0: there was none
    std::string cipher;                    // "TLS_AES_256_GCM_SHA384"
    std::vector<certificate> certificates; // its own first, then those up to an authority

    explicit operator bool() const noexcept { return version != 0; }
};

namespace detail {

inline error_kind kind_of(hearth_error error) noexcept {
    switch (error) {
    case HEARTH_ERROR_NONE:
        return error_kind::none;
    case HEARTH_ERROR_ABORTED:
    case HEARTH_ERROR_STOPPED:
        return error_kind::aborted;
    case HEARTH_ERROR_TIMEOUT:
    case HEARTH_ERROR_CONNECT_TIMEOUT:
    case HEARTH_ERROR_IDLE_TIMEOUT:
        return error_kind::timeout;
    case HEARTH_ERROR_URL:
    case HEARTH_ERROR_SOURCE:
        return error_kind::bad_request;
    case HEARTH_ERROR_PROTOCOL:
        return error_kind::protocol_refused;
    case HEARTH_ERROR_RESOLVE:
        return error_kind::resolve;
    case HEARTH_ERROR_CONNECT:
        return error_kind::connect;
    case HEARTH_ERROR_DENIED:
        return error_kind::denied;
    case HEARTH_ERROR_PROXY:
        return error_kind::proxy;
    case HEARTH_ERROR_TLS:
        return error_kind::tls;
    case HEARTH_ERROR_CERTIFICATE:
        return error_kind::certificate;
    case HEARTH_ERROR_RESET:
    case HEARTH_ERROR_STREAM:
        return error_kind::reset;
    case HEARTH_ERROR_EMPTY:
        return error_kind::empty;
    case HEARTH_ERROR_RUBBISH:
    case HEARTH_ERROR_DECODING:
        return error_kind::protocol;
    case HEARTH_ERROR_TOO_MANY_REDIRECTS:
        return error_kind::redirects;
    case HEARTH_ERROR_TOO_LARGE:
        return error_kind::too_large;
    case HEARTH_ERROR_SYSTEM:
        return error_kind::system;
    case HEARTH_ERROR_UNSUPPORTED:
        return error_kind::unsupported;
    case HEARTH_ERROR_REFUSED:
        return error_kind::refused;
    case HEARTH_ERROR_LATER:
        return error_kind::try_later;
    case HEARTH_ERROR_LOGIN:
        return error_kind::login;
    case HEARTH_ERROR_UNKNOWN:
        return error_kind::outcome_unknown;
    default:
        return error_kind::internal;
    }
}

// libcurl's number where the library has none that fits.
constexpr long fallback_code(error_kind kind) noexcept {
    switch (kind) {
    case error_kind::none:
        return code::success;
    case error_kind::aborted:
        return code::aborted;
    case error_kind::timeout:
        return code::timed_out;
    case error_kind::bad_request:
        return code::url_malformed;
    case error_kind::protocol_refused:
    case error_kind::unsupported:
        return code::unsupported_protocol;
    case error_kind::too_large:
        return code::write_error;
    case error_kind::redirects:
        return code::too_many_redirects;
    case error_kind::resolve:
        return code::could_not_resolve;
    case error_kind::empty:
        return code::got_nothing;
    case error_kind::certificate:
        return code::peer_not_verified;
    case error_kind::connect:
    case error_kind::denied:
        return code::could_not_connect;
    default:
        return code::receive_error;
    }
}

} // namespace detail

class response {
public:
    response() = default;

    // The response that a completion received.
    explicit response(const hearth_response *lent) : answer_(lent) {
        if (lent == nullptr) {
            return;
        }
        const auto kind = detail::kind_of(hearth_response_error(lent));
        code_ = kind == error_kind::none ? hearth_response_status(lent)
                                         : hearth_response_error_code(lent);
        // For a body that is too large, curlev has 23 and libcurl 63.
        if (kind != error_kind::none && (code_ == 0 || kind == error_kind::too_large)) {
            code_ = detail::fallback_code(kind);
        }
    }

    // A failure in the program itself, with the part of the answer that had arrived.
    explicit response(error why, const hearth_response *lent = nullptr)
        : answer_(lent), code_(why.code), rest_(new rest{std::string(), std::move(why)}) {}

    response(const response &other) : answer_(other.answer_), code_(other.code_) {
        if (const auto *why = other.own()) {
            rest_ = new rest{std::string(), *why};
        }
    }
    response(response &&other) noexcept
        : answer_(std::move(other.answer_)), code_(std::exchange(other.code_, code::success)),
          rest_(other.take_rest()) {}
    response &operator=(const response &other) { return *this = response(other); }
    response &operator=(response &&other) noexcept {
        if (this != &other) {
            answer_ = std::move(other.answer_);
            code_ = std::exchange(other.code_, code::success);
            delete rest_.load(std::memory_order_acquire);
            rest_.store(other.take_rest(), std::memory_order_relaxed);
        }
        return *this;
    }
    ~response() { delete rest_.load(std::memory_order_acquire); }

    // Fills `document` from the body: nlohmann::json, rapidjson::Document, or what has a json_codec. False: it is no JSON.
    template <typename Json>
    bool get_json(Json &document) const {
        return json_codec<Json>::read(body_view(), document);
    }

    // The HTTP status, or why there is none, by curlev's numbers; namespace code names them.
    long get_code() const noexcept { return code_; }

    // The same and what follows in fewer letters, as curlev's future has them.
    long code() const noexcept { return code_; }
    const std::string &body() const { return get_body(); }
    hearth::v1::headers headers() const { return get_headers(); }
    std::string content_type() const { return get_content_type(); }
    std::string redirect_url() const { return get_redirect_url(); }

    // Moves all of it into the result. What stays has the code alone.
    response take() noexcept {
        const auto code = code_;
        response taken(std::move(*this));
        code_ = code;
        return taken;
    }

    // 100 to 599; 0: there is none. With an error after the head it is the head's.
    int status() const noexcept { return answer_ ? hearth_response_status(answer_.get()) : 0; }

    // Status 200 to 299, and no error.
    bool ok() const noexcept { return code_ >= 200 && code_ < 300; }

    // Why there is no answer; its kind is `none` when there is one, whatever its status.
    error get_error() const {
        if (const auto *mine = own()) {
            return *mine;
        }
        error why;
        if (answer_) {
            why.kind = detail::kind_of(hearth_response_error(answer_.get()));
            if (why) {
                why.code = code_;
                why.message = detail::view(hearth_response_error_message(answer_.get()));
            }
        }
        return why;
    }

    // The body, decompressed; empty when there is an error or it went to a callback or a file. Lives as long as this object.
    const std::string &get_body() const {
        if (const auto *there = rest_.load(std::memory_order_acquire)) {
            return there->body;
        }
        auto mine = std::make_unique<rest>(rest{std::string(body_view()), std::nullopt});
        rest *other = nullptr;
        if (rest_.compare_exchange_strong(other, mine.get(), std::memory_order_acq_rel)) {
            return mine.release()->body;
        }
        return other->body;
    }

    // The same without a copy.
    std::string_view body_view() const noexcept {
        if (!answer_ || own() || hearth_response_error(answer_.get()) != HEARTH_ERROR_NONE) {
            return {};
        }
        return detail::view(hearth_response_body(answer_.get()));
    }

    // Of the final answer alone; history() has the others'.
    hearth::v1::headers get_headers() const { return hearth::v1::headers(answer_); }
    hearth::v1::headers get_trailers() const { return hearth::v1::headers(answer_, true); }

    std::string get_content_type() const { return get_headers()["Content-Type"]; }

    // Where the answer points to, absolute, when it is a redirect that was not followed.
    std::string get_redirect_url() const { return text(hearth_response_redirect_url); }

    // The URL that answered in the end.
    std::string get_url() const { return text(hearth_response_url); }

    // "127.0.0.1:443"
    std::string get_address() const { return text(hearth_response_address); }

    // 10, 11, 20; 0: there is none.
    int http_version() const noexcept {
        return answer_ ? hearth_response_version(answer_.get()) : 0;
    }

    timings get_timings() const {
        hearth_timings raw = {};
        raw.size = sizeof raw;
        timings out;
        if (!answer_ || hearth_response_timings(answer_.get(), &raw) != HEARTH_OK) {
            return out;
        }
        const auto micros = [](std::uint64_t value) {
            return std::chrono::microseconds(static_cast<std::int64_t>(value));
        };
        out.queued = micros(raw.queued);
        out.resolved = micros(raw.resolved);
        out.connected = micros(raw.connected);
        out.secured = micros(raw.secured);
        out.first_byte = micros(raw.first_byte);
        out.total = micros(raw.total);
        out.redirects = raw.redirects;
        out.retries = raw.retries;
        out.reused = raw.reused != 0;
        return out;
    }

    // Reads the certificates only when this is called.
    tls_session get_tls() const {
        hearth_tls raw = {};
        raw.size = sizeof raw;
        tls_session out;
        if (!answer_ || hearth_response_tls(answer_.get(), &raw) != HEARTH_OK) {
            return out;
        }
        out.version = raw.version;
        out.cipher = detail::view(raw.cipher);
        for (std::size_t at = 0; at < raw.certificates; ++at) {
            hearth_certificate one = {};
            one.size = sizeof one;
            if (hearth_response_certificate_at(answer_.get(), at, &one) != HEARTH_OK) {
                break;
            }
            const auto time = [](std::int64_t seconds) {
                return std::chrono::system_clock::time_point(std::chrono::seconds(seconds));
            };
            const auto text = [](hearth_bytes bytes) { return std::string(detail::view(bytes)); };
            out.certificates.push_back({text(one.subject), text(one.issuer), text(one.serial),
                text(one.names), time(one.not_before), time(one.not_after), text(one.pem)});
        }
        return out;
    }

    // Of a mail: the words that decided, "550 5.1.1 no such user", their enhanced code, the message's id, and each recipient's answer.
    std::string get_reply() const { return text(hearth_response_reply); }
    std::string get_enhanced() const { return text(hearth_response_enhanced); }
    std::string get_message_id() const { return text(hearth_response_message_id); }
    std::vector<recipient> get_recipients() const {
        std::vector<recipient> all;
        const auto count = answer_ ? hearth_response_recipient_count(answer_.get()) : 0;
        for (std::size_t at = 0; at < count; ++at) {
            hearth_recipient raw = {};
            raw.size = sizeof raw;
            if (hearth_response_recipient_at(answer_.get(), at, &raw) == HEARTH_OK) {
                all.push_back({std::string(detail::view(raw.address)), raw.code,
                    std::string(detail::view(raw.enhanced)), std::string(detail::view(raw.text))});
            }
        }
        return all;
    }

    // With the option history: the answers on the way, oldest first.
    std::vector<response> history() const {
        std::vector<response> hops;
        const auto count = answer_ ? hearth_response_history_count(answer_.get()) : 0;
        hops.reserve(count);
        for (std::size_t at = 0; at < count; ++at) {
            hops.emplace_back(hearth_response_history_at(answer_.get(), at));
        }
        return hops;
    }

private:
    // Parts that are created when they are needed.
    struct rest {
        std::string body;         // a copy of the library's; none where there is an error
        std::optional<error> own; // the program's side of it
    };

    // Moving, unlike the accessors, is the only use at its time: no exchange is needed.
    rest *take_rest() noexcept {
        rest *const taken = rest_.load(std::memory_order_acquire);
        rest_.store(nullptr, std::memory_order_relaxed);
        return taken;
    }

    const error *own() const noexcept {
        const auto *there = rest_.load(std::memory_order_acquire);
        return there != nullptr && there->own ? &*there->own : nullptr;
    }

    std::string text(hearth_bytes (*what)(const hearth_response *)) const {
        return answer_ ? std::string(detail::view(what(answer_.get()))) : std::string();
    }

    detail::answer answer_;
    long code_ = code::success;
    mutable std::atomic<rest *> rest_ = nullptr;
};

} // namespace v1
} // namespace hearth
