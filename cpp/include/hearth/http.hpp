// One HTTP request at a time, as a reusable object: built by a chain of calls, then exec, start, launch, fetch or co_await.
//
// - Held by a std::shared_ptr; while it is running it keeps itself alive. Dropping the pointer detaches it.
// - While it is running, every call except join, abort, resume and get_code is ignored. From inside its own completion callback it may be built
//   and started again.
// - Each start has exactly one completion, whatever fails. The only exception: a callback that starts a refused request again and again is not
//   called any more after 32 such starts. No exception of a callback leaves it: it becomes code::user_callback.
// - Calls may come from several threads. References that accessors return are valid until it is built or started again.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#if __has_include(<span>)
#include <span>
#endif

#include <hearth.h>

#include "async.hpp"
#include "cancel.hpp"
#include "cookies.hpp"
#include "detail/life.hpp"
#include "detail/waiting.hpp"
#include "error.hpp"
#include "json.hpp"
#include "mime.hpp"
#include "options.hpp"
#include "query.hpp"
#include "response.hpp"
#include "streams.hpp"

namespace hearth {
inline namespace v1 {

namespace detail {

// What of hearth.h an http is made of.
struct http_library {
    using handle = hearth_request;

    static constexpr const char *name = "request";
    static constexpr long invalid = code::url_malformed; // of a start without a URL

    static constexpr auto make = hearth_request_new;
    static constexpr auto free = hearth_request_free;
    static constexpr auto reset = hearth_request_reset;
    static constexpr auto set_options = hearth_request_set_options;
    static constexpr auto set_authentication = hearth_request_set_authentication;
    static constexpr auto set_certificates = hearth_request_set_certificates;
    static constexpr auto set_number = hearth_request_set_number;
    static constexpr auto set_text = hearth_request_set_text;
    static constexpr auto start = hearth_request_start;
    static constexpr auto abort = hearth_request_abort;
};

} // namespace detail

class http : public detail::life<http, detail::http_library> {
public:
    http(only_create tag, const detail::engine_use &engine) : life(tag, engine) {}
    http(const http &) = delete;
    http &operator=(const http &) = delete;
    ~http() = default;

    // ---- what to ask for. Each starts again from the engine's current defaults; the request's own cookies stay ----

    // Any method; `query` goes behind the URL's own. A user and a password in the URL become Basic authentication.
    http &REQUEST(std::string_view method, std::string_view url, const key_values &query = {}) {
        begin_anew(method, url, query);
        return *this;
    }
    http &GET(std::string_view url, const key_values &query = {}) {
        return REQUEST("GET", url, query);
    }
    http &HEAD(std::string_view url, const key_values &query = {}) {
        return REQUEST("HEAD", url, query);
    }
    http &OPTIONS(std::string_view url, const key_values &query = {}) {
        return REQUEST("OPTIONS", url, query);
    }
    http &DELETE(std::string_view url, const key_values &query = {}) {
        return REQUEST("DELETE", url, query);
    }
    http &PATCH(std::string_view url, const key_values &query = {}) {
        return REQUEST("PATCH", url, query);
    }
    http &POST(std::string_view url, const key_values &query = {}) {
        return REQUEST("POST", url, query);
    }
    http &PUT(std::string_view url, const key_values &query = {}) {
        return REQUEST("PUT", url, query);
    }

    // A request with JSON: nlohmann::json, rapidjson::Document, or what has a json_codec.
    template <typename Json>
    http &REST(std::string_view url, std::string_view verb, const Json &document,
        const key_values &query = {}) {
        std::optional<std::string> text = json_codec<Json>::write(document);
        REQUEST(verb, url, query);
        if (!text) {
            return edit([&] {
                fail(error_kind::bad_request, code::body_set,
                    "the document cannot be written as JSON");
            });
        }
        return set_body("application/json", std::move(*text))
            .add_headers({{"Accept", "application/json"}});
    }
    http &REST(std::string_view url, std::string_view verb) {
        return REQUEST(verb, url).add_headers({{"Accept", "application/json"}});
    }

    // ---- what goes with it ----

    http &add_query(const key_values &pairs) {
        return edit([&] {
            for (const auto &[name, value] : pairs) {
                check(hearth_request_add_query(
                          handle_, name.data(), name.size(), value.data(), value.size()),
                    code::url_set);
            }
        });
    }

    // Adds fields; the same name may come again. CR, LF and NUL are refused: code::headers_set.
    http &add_headers(const key_values &fields) {
        return edit([&] {
            for (const auto &[name, value] : fields) {
                check(hearth_request_add_header(
                          handle_, name.data(), name.size(), value.data(), value.size()),
                    code::headers_set);
            }
        });
    }
    // Removes fields, including the default ones: User-Agent, Accept, Accept-Encoding.
    http &remove_header(std::string_view name) {
        return edit([&] {
            check(
                hearth_request_remove_header(handle_, name.data(), name.size()), code::headers_set);
        });
    }
    // Fields behind a body of unknown length.
    http &add_trailers(const key_values &fields) {
        return edit([&] {
            for (const auto &[name, value] : fields) {
                check(hearth_request_add_trailer(
                          handle_, name.data(), name.size(), value.data(), value.size()),
                    code::headers_set);
            }
        });
    }

    // The body, in one of these ways; each replaces the one before. An empty content type sets none.
    http &set_body(std::string_view content_type, std::string body) {
        return edit([&] {
            type(content_type);
            give(std::move(body));
        });
    }
    // Sets the body without a copy, for shared bodies. `owner` keeps the memory unchanged. It is released, on any thread, when neither this
    // object (until its next verb) nor a connection reads it any more. Without an owner the memory must outlive this object and its engine.
    http &set_body_view(std::string_view content_type, std::string_view body,
        std::shared_ptr<const void> owner = nullptr) {
        return edit([&] {
            type(content_type);
            lend(body, std::move(owner));
        });
    }
#ifdef __cpp_lib_span
    http &set_body_view(std::string_view content_type, std::span<const std::byte> body,
        std::shared_ptr<const void> owner = nullptr) {
        return set_body_view(content_type,
            std::string_view(reinterpret_cast<const char *>(body.data()), body.size()),
            std::move(owner));
    }
#endif
    // application/x-www-form-urlencoded
    http &set_parameters(const key_values &pairs) {
        return set_body("application/x-www-form-urlencoded", form_encoded(pairs));
    }
    // multipart/form-data. Files are read while they are sent.
    http &set_mime(const mime::parts &parts) {
        return edit([&] {
            auto form = detail::mime_writer::form(parts);
            if (!form) {
                fail(error_kind::bad_request, code::mime_set,
                    "a part's file cannot be read, or its content type is none");
                return;
            }
            type(form->first);
            if (auto text = form->second.take_text()) {
                give(std::move(*text));
                return;
            }
            extra().document = std::move(form->second);
            set_source(
                extra().document.length(),
                [more = &extra()](char *buffer, std::size_t room) {
                    const auto read = more->document.read(buffer, room);
                    if (!read) {
                        throw std::runtime_error(
                            "a part's file cannot be read any more, or became shorter");
                    }
                    return read;
                },
                [more = &extra()] {
                    more->document.rewind();
                    return true;
                });
        });
    }
    // A file, read while it is sent.
    http &set_body_file(std::string_view content_type, std::string_view path) {
        return edit([&] {
            type(content_type);
            no_source();
            check(hearth_request_set_body_file(handle_, path.data(), path.size()), code::body_set);
        });
    }
    // A body from `source`; without a length it is sent in chunks. Without `rewind` it can be sent once: a request that would send it again,
    // such as another start, ends with code::body_set.
    http &set_body_source(std::string_view content_type, body_source source,
        std::optional<std::uint64_t> length = std::nullopt, body_rewind rewind = nullptr) {
        return edit([&] {
            type(content_type);
            set_source(length.value_or(HEARTH_UNKNOWN), std::move(source), std::move(rewind));
        });
    }

    // ---- how ----

    // Maximum size of the collected body, decompressed. If it is exceeded: code::write_error. The default is 2,000,000; 0: without limit.
    http &maximal_response_size(std::size_t bytes) {
        return set_number(HEARTH_MAX_RESPONSE_SIZE, static_cast<std::int64_t>(bytes));
    }
    // Bytes `first` to `last`, both included; without `last` to the end.
    http &range(std::uint64_t first, std::optional<std::uint64_t> last = std::nullopt) {
        return set_text(HEARTH_RANGE,
            std::to_string(first) + "-" + (last ? std::to_string(*last) : std::string()));
    }
    // The last so many bytes.
    http &last_bytes(std::uint64_t count) {
        return set_text(HEARTH_RANGE, "-" + std::to_string(count));
    }

    // Cookies from and to this jar.
    http &cookies(const cookie_jar &jar) {
        return edit([&] {
            check(hearth_request_set_jar(handle_, jar.native_handle()), code::options_set);
        });
    }
    // Ends the request when that source requests it.
    http &cancel_with(const cancel_token &token) {
        return edit([&] { extra().cancel = token.state_; });
    }

    // ---- callbacks during the transfer. Each returns void, bool (false: stop), or hearth::flow ----

    // The head of the final answer: `const response &`, still without its body.
    template <typename Callback>
    http &on_head(Callback take) {
        auto other = detail::flowing<const response &>(std::move(take));
        return edit([&] { extra().head.swap(other); });
    }
    // Interim answers, 103 for one.
    template <typename Callback>
    http &on_interim(Callback take) {
        auto other = detail::flowing<const response &>(std::move(take));
        return edit([&] { extra().interim.swap(other); });
    }
    // The body in pieces as it arrives, decompressed: std::string_view. The body is not collected then, and has no maximum size.
    template <typename Callback>
    http &on_body(Callback take) {
        auto other = detail::flowing<std::string_view>(std::move(take));
        return edit([&] { extra().body.swap(other); });
    }
    // `const progress &`, at most each 50 ms, and at the end of either way.
    template <typename Callback>
    http &on_progress(Callback take) {
        auto other = detail::flowing<const progress &>(std::move(take));
        return edit([&] { extra().moved.swap(other); });
    }
    // Data on the wire: `hearth::debug` and std::string_view. Without `secrets`, values of Authorization, Cookie, Set-Cookie and similar fields
    // are shown as ***. URLs and bodies are shown unchanged.
    http &on_debug(std::function<void(debug, std::string_view)> take, bool secrets = false) {
        return edit([&] {
            extra().wire.swap(take);
            extra().secrets = secrets;
        });
    }
    // Server-sent events, of answers that are such a stream. Without a limit for the whole: set one of options()'s if need be. One that is
    // larger than `largest` bytes ends the request as a body does that is too large; 0: without limit.
    http &on_event(std::function<void(const server_event &)> take,
        std::size_t largest = event_parser::usual_size) {
        edit([&] {
            extra().event.swap(take);
            extra().largest_event = largest;
            check(hearth_request_remove_header(handle_, "Accept", HEARTH_TEXT), code::headers_set);
            check(hearth_request_add_header(
                      handle_, "Accept", HEARTH_TEXT, "text/event-stream", HEARTH_TEXT),
                code::headers_set);
        });
        return timeout(std::chrono::milliseconds(0));
    }
    // Writes the body of an answer with a status of 200 to 299 to a file, which appears when it is complete. Otherwise the file is not changed.
    // Until then the data are beside it, in path.<16 digits>.part.
    http &download_to(std::string path) {
        return edit([&] { extra().sink = std::make_unique<detail::file_sink>(std::move(path)); });
    }

    // ---- off ----

    // After flow::pause, or a source that had nothing.
    http &resume() {
        look_for_fork();
        const std::lock_guard lock(detail::places::of(this).mutex);
        if (state_ == state::running && handle_ != nullptr) {
            hearth_request_resume(handle_);
        }
        return *this;
    }

    // ---- what came of it ----

    int status() const noexcept {
        return answer_.status();
    }
    const std::string &get_body() const {
        return answer_.get_body();
    }
    std::string_view body_view() const noexcept {
        return answer_.body_view();
    }
    tls_session get_tls() const {
        return answer_.get_tls();
    }
    headers get_headers() const {
        return answer_.get_headers();
    }
    headers get_trailers() const {
        return answer_.get_trailers();
    }
    std::string get_content_type() const {
        return answer_.get_content_type();
    }
    std::string get_redirect_url() const {
        return answer_.get_redirect_url();
    }
    std::string get_url() const {
        return answer_.get_url();
    }
    // Fills `document` from the body. False: it is no JSON.
    template <typename Json>
    bool get_json(Json &document) const {
        return json_codec<Json>::read(answer_.body_view(), document);
    }

private:
    friend life;

    detail::extras &extra() {
        if (!extras_) {
            extras_ = std::make_unique<detail::extras>();
        }
        return *extras_;
    }

    // ---- building ----

    void begin_anew(std::string_view method, std::string_view url, const key_values &query);

    void target(std::string_view method, std::string_view url);

    void type(std::string_view content_type);

    // The body is another from now on.
    void no_source();

    // The library uses the text where it is.
    void give(std::string body);

    // The same for an object with another owner.
    void lend(std::string_view body, std::shared_ptr<const void> owner);

    void set_source(std::uint64_t length, body_source source, body_rewind rewind);

    // ---- functions that detail::life calls ----

    void gathered();
    bool has_callbacks() const noexcept;
    std::optional<error> prepare();
    response outcome(const hearth_response *lent);
    bool again();

    // Callbacks of the transfer, passed to the library only if they are set.
    std::optional<error> prepare(detail::extras &more);

    // Its source at the beginning, for the same request once more.
    std::optional<error> rewound(detail::extras &more);

    bool intercepted() const noexcept {
        return few_ && few_->all;
    }
    bool wants_another_try();

    // ---- what the library calls on the way ----

    // Runs a callback of the program; its exception is kept for the completion.
    template <typename Call>
    hearth_flow guarded(Call call) noexcept;

    static hearth_flow head_came(void *user, hearth_request *, const hearth_response *lent);
    static bool is_event_stream(std::string_view type) noexcept;

    static hearth_flow interim_came(void *user, hearth_request *, const hearth_response *lent);

    static hearth_flow body_came(void *user, hearth_request *, const char *data, std::size_t size);

    static hearth_flow moved_on(void *user, hearth_request *, std::uint64_t sent,
        std::uint64_t to_send, std::uint64_t received, std::uint64_t to_receive);

    static void wire_seen(
        void *user, hearth_request *, hearth_debug what, const char *data, std::size_t size);

    static hearth_flow read_source(
        void *user, hearth_request *, char *buffer, std::size_t room, std::size_t *written);
    static int rewind_source(void *user, hearth_request *);

    std::unique_ptr<detail::extras> extras_;
};

} // namespace v1
} // namespace hearth

#include "detail/http_life.hpp"
