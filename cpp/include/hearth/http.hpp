// One HTTP request at a time, as a reusable object: built by a chain of calls, then exec, start, launch, fetch or co_await.
//
// - Kept by a std::shared_ptr; while it is under way it keeps itself alive. Dropping the pointer detaches it.
// - While it is under way every other call but join, abort, resume and get_code is ignored. From inside its own completion callback it
//   may be built and started anew.
// - Each start has exactly one completion, whatever goes wrong. No exception of a callback leaves it: it becomes code::user_callback.
// - Calls may come from several threads. References that accessors hand out hold until it is built or started anew.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#if defined(__cpp_impl_coroutine) && __has_include(<coroutine>)
#include <coroutine>
#define HEARTH_HAS_COROUTINES
#endif

#include <hearth.h>

#include "async.hpp"
#include "cancel.hpp"
#include "cookies.hpp"
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

class http : public std::enable_shared_from_this<http>, public detail::typed_options<http> {
    struct only_create {};

public:
    using callback = std::function<void(const http &)>;

    // A new request on that engine.
    static std::shared_ptr<http> create(async &engine) {
        return std::make_shared<http>(only_create(), engine.engine_);
    }

    http(only_create, std::shared_ptr<detail::engine> engine) : engine_(std::move(engine)) {}
    http(const http &) = delete;
    http &operator=(const http &) = delete;
    ~http() { hearth_request_free(request_); }

    // ---- what to ask for. Each begins anew, with the engine's defaults of this moment; cookies of its own stay ----

    // Any method; `query` goes behind the URL's own. A user and a password in the URL become Basic authentication.
    http &REQUEST(std::string_view method, std::string_view url, const key_values &query = {}) {
        begin_anew(method, url, query);
        return *this;
    }
    http &GET(std::string_view url, const key_values &query = {}) { return REQUEST("GET", url, query); }
    http &HEAD(std::string_view url, const key_values &query = {}) { return REQUEST("HEAD", url, query); }
    http &OPTIONS(std::string_view url, const key_values &query = {}) { return REQUEST("OPTIONS", url, query); }
    http &DELETE(std::string_view url, const key_values &query = {}) { return REQUEST("DELETE", url, query); }
    http &PATCH(std::string_view url, const key_values &query = {}) { return REQUEST("PATCH", url, query); }
    http &POST(std::string_view url, const key_values &query = {}) { return REQUEST("POST", url, query); }
    http &PUT(std::string_view url, const key_values &query = {}) { return REQUEST("PUT", url, query); }

    // A request with JSON: nlohmann::json, rapidjson::Document, or what has a json_codec.
    template <typename Json>
    http &REST(std::string_view url, std::string_view verb, const Json &document, const key_values &query = {}) {
        return REQUEST(verb, url, query)
            .set_body("application/json", json_codec<Json>::write(document))
            .add_headers({{"Accept", "application/json"}});
    }
    http &REST(std::string_view url, std::string_view verb) {
        return REQUEST(verb, url).add_headers({{"Accept", "application/json"}});
    }

    // ---- what goes with it ----

    http &add_query(const key_values &pairs) {
        return edit([&] {
            for (const auto &[name, value] : pairs) {
                judge(hearth_request_add_query(request_, name.data(), name.size(), value.data(), value.size()),
                    code::url_set);
            }
        });
    }

    // Adds fields; the same name may come again. CR, LF and NUL are refused: code::headers_set.
    http &add_headers(const key_values &fields) {
        return edit([&] {
            for (const auto &[name, value] : fields) {
                judge(hearth_request_add_header(request_, name.data(), name.size(), value.data(), value.size()),
                    code::headers_set);
            }
        });
    }
    // Takes fields away, also those that are set by themselves: User-Agent, Accept, Accept-Encoding.
    http &remove_header(std::string_view name) {
        return edit([&] {
            judge(hearth_request_remove_header(request_, name.data(), name.size()), code::headers_set);
        });
    }
    // Fields behind a body of unknown length.
    http &add_trailers(const key_values &fields) {
        return edit([&] {
            for (const auto &[name, value] : fields) {
                judge(hearth_request_add_trailer(request_, name.data(), name.size(), value.data(), value.size()),
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
    // application/x-www-form-urlencoded
    http &set_parameters(const key_values &pairs) {
        return set_body("application/x-www-form-urlencoded", form_encoded(pairs));
    }
    // multipart/form-data. Files are read while they are sent.
    http &set_mime(const mime::parts &parts) {
        return edit([&] {
            auto form = detail::mime_writer::form(parts);
            if (!form) {
                fail(error_kind::bad_request, code::mime_set, "a part's file cannot be read, or its content type is none");
                return;
            }
            type(form->first);
            if (auto text = form->second.take_text()) {
                give(std::move(*text));
                return;
            }
            extra().document = std::move(form->second);
            set_source(extra().document.length(), [more = &extra()](char *buffer, std::size_t room) {
                const auto read = more->document.read(buffer, room);
                if (!read) {
                    throw std::runtime_error("a part's file cannot be read any more, or became shorter");
                }
                return read;
            }, [more = &extra()] {
                more->document.rewind();
                return true;
            });
        });
    }
    // A file, read while it is sent.
    http &set_body_file(std::string_view content_type, std::string_view path) {
        return edit([&] {
            type(content_type);
            judge(hearth_request_set_body_file(request_, path.data(), path.size()), code::body_set);
        });
    }
    // Whatever `source` says; of unknown length it goes in chunks. Without `rewind` it can be had once.
    http &set_body_source(std::string_view content_type, body_source source,
        std::optional<std::uint64_t> length = std::nullopt, body_rewind rewind = nullptr) {
        return edit([&] {
            type(content_type);
            set_source(length.value_or(HEARTH_UNKNOWN), std::move(source), std::move(rewind));
        });
    }

    // ---- how ----

    // `key=value,key="a value"`; wrong: code::options_format and so on, and get_error() names what.
    http &options(std::string_view text) {
        return edit([&] {
            judge(hearth_request_set_options(request_, text.data(), text.size()), code::options_format);
        });
    }
    http &authentication(std::string_view text) {
        return edit([&] {
            judge(hearth_request_set_authentication(request_, text.data(), text.size()), code::authentication_format);
        });
    }
    http &certificates(std::string_view text) {
        return edit([&] {
            judge(hearth_request_set_certificates(request_, text.data(), text.size()), code::certificates_format);
        });
    }
    // Any option that the C header knows.
    http &set_number(hearth_option option, std::int64_t value) {
        return edit([&] { judge(hearth_request_set_number(request_, option, value), code::options_set); });
    }
    http &set_text(hearth_option option, std::string_view value) {
        return edit([&] {
            judge(hearth_request_set_text(request_, option, value.data(), value.size()), code::options_set);
        });
    }

    // True, as it is by itself: callbacks on the engine's thread for them. False: on its I/O thread, where they must be short.
    http &threaded_callback(bool on) {
        return edit([&] { threaded_ = on; });
    }
    // Of the collected body, decompressed. Over it: code::write_error. It is 2,000,000 by itself; 0: without limit.
    http &maximal_response_size(std::size_t bytes) {
        return set_number(HEARTH_MAX_RESPONSE_SIZE, static_cast<std::int64_t>(bytes));
    }
    // curlev's two numbers: this many more tries, the same delay before each; retry() has the rest.
    http &maximum_retries(unsigned retries, unsigned delay_ms = 100) {
        return set_number(HEARTH_MAX_RETRIES, retries)
            .set_number(HEARTH_RETRY_DELAY, delay_ms)
            .set_number(HEARTH_RETRY_MAX_DELAY, delay_ms)
            .set_number(HEARTH_RETRY_JITTER, 0);
    }
    // Bytes `first` to `last`, both included; without `last` to the end.
    http &range(std::uint64_t first, std::optional<std::uint64_t> last = std::nullopt) {
        return set_text(HEARTH_RANGE, std::to_string(first) + "-" + (last ? std::to_string(*last) : std::string()));
    }
    // The last so many bytes.
    http &last_bytes(std::uint64_t count) { return set_text(HEARTH_RANGE, "-" + std::to_string(count)); }

    // Cookies from and to this jar.
    http &cookies(const cookie_jar &jar) {
        return edit([&] { judge(hearth_request_set_jar(request_, jar.native_handle()), code::options_set); });
    }
    // It ends when that source says so.
    http &cancel_with(const cancel_token &token) {
        return edit([&] { extra().cancel = token.state_; });
    }

    // ---- what to be told on the way. Each callback says nothing, or bool (false: stop), or hearth::flow ----

    // The head of the final answer: `const response &`, still without its body.
    template <typename Callback>
    http &on_head(Callback take) {
        return edit([&] { extra().head = detail::flowing<const response &>(std::move(take)); });
    }
    // Interim answers, 103 for one.
    template <typename Callback>
    http &on_interim(Callback take) {
        return edit([&] { extra().interim = detail::flowing<const response &>(std::move(take)); });
    }
    // The body as it comes, decompressed: std::string_view. Nothing is collected then, and no maximal size counts.
    template <typename Callback>
    http &on_body(Callback take) {
        return edit([&] { extra().body = detail::flowing<std::string_view>(std::move(take)); });
    }
    // `const progress &`, at most each 50 ms, and at the end of either way.
    template <typename Callback>
    http &on_progress(Callback take) {
        return edit([&] { extra().moved = detail::flowing<const progress &>(std::move(take)); });
    }
    // Server-sent events, of answers that are such a stream. Without a limit for the whole: set one of options()'s if need be.
    http &on_event(std::function<void(const server_event &)> take) {
        edit([&] {
            extra().event = std::move(take);
            judge(hearth_request_remove_header(request_, "Accept", HEARTH_TEXT), code::headers_set);
            judge(hearth_request_add_header(request_, "Accept", HEARTH_TEXT, "text/event-stream", HEARTH_TEXT), code::headers_set);
        });
        return timeout(std::chrono::milliseconds(0));
    }
    // The body of an answer with a status of 200 to 299 into a file, which is there once it is whole. Else the file is left alone.
    http &download_to(std::string path) {
        return edit([&] { extra().sink = std::make_unique<detail::file_sink>(std::move(path)); });
    }

    // ---- off ----

    // Under way at once; `done` is told when it has ended, and then join() is released.
    http &start(callback done = nullptr) {
        begin(std::move(done), false);
        return *this;
    }
    // Waits until it is not under way. From inside a callback that it would wait for, it returns at once.
    http &join() {
        auto &place = detail::places::of(this);
        std::unique_lock lock(place.mutex);
        while (state_ != state::idle && !hopeless()) {
            if (generation_ != detail::places::generation()) {
                lock.unlock();
                lost_by_fork();
                return *this;
            }
            ++place.waiting;
            place.changed.wait(lock);
            --place.waiting;
        }
        return *this;
    }
    // The same, so long at most. True: it is not under way.
    bool join_for(std::chrono::milliseconds limit) {
        auto &place = detail::places::of(this);
        std::unique_lock lock(place.mutex);
        const auto deadline = std::chrono::steady_clock::now() + limit;
        while (state_ != state::idle && !hopeless()) {
            ++place.waiting;
            const auto status = place.changed.wait_until(lock, deadline);
            --place.waiting;
            if (status == std::cv_status::timeout) {
                break;
            }
        }
        return state_ == state::idle;
    }
    // start() and join()
    http &exec() { return start().join(); }

    // start(), with what comes of it as a future. Under way already: the future has code::restart_failed.
    std::future<response> launch() {
        auto promise = std::make_shared<std::promise<response>>();
        auto future = promise->get_future();
        if (!begin([promise](const http &done) { promise->set_value(done.answer_); }, true)) {
            promise->set_value(under_way());
        }
        return future;
    }

    // exec(), with what came of it. Throws request_error where there is no answer, whatever the status of one.
    response fetch() {
        std::error_code why;
        auto result = fetch(why);
        if (why) {
            throw request_error(result.get_error());
        }
        return result;
    }
    // The same without throwing.
    response fetch(std::error_code &why) {
        auto result = begin(nullptr, true) && !join().is_running() ? get_response() : under_way();
        why = make_error_code(result.get_error().kind);
        return result;
    }

    // Ends it as soon as may be, with code::aborted. Not under way: nothing happens.
    http &abort() {
        const std::lock_guard lock(detail::places::of(this).mutex);
        if (state_ != state::idle) {
            aborted_ = true;
            if (request_ != nullptr) {
                hearth_request_abort(request_);
            }
        }
        return *this;
    }
    // After flow::pause, or a source that had nothing.
    http &resume() {
        const std::lock_guard lock(detail::places::of(this).mutex);
        if (state_ == state::running && request_ != nullptr) {
            hearth_request_resume(request_);
        }
        return *this;
    }

#ifdef HEARTH_HAS_COROUTINES
    // co_await http::create(engine)->GET(url): a response. Goes on where a callback would be called.
    class awaitable {
    public:
        explicit awaitable(std::shared_ptr<http> request) : request_(std::move(request)) {}
        awaitable(const awaitable &) = delete;
        awaitable &operator=(const awaitable &) = delete;
        ~awaitable() = default;

        bool await_ready() const noexcept { return false; }
        bool await_suspend(std::coroutine_handle<> waiting) {
            const auto begun = request_->begin([this, waiting](const http &done) {
                result_ = done.answer_;
                if (met_.exchange(true)) {
                    waiting.resume();
                }
            }, false);
            if (!begun) {
                result_ = request_->under_way();
                return false;
            }
            return !met_.exchange(true);
        }
        response await_resume() noexcept { return std::move(result_); }

    private:
        std::shared_ptr<http> request_;
        response result_;
        // Who comes second, of the end of await_suspend and the completion, goes on.
        std::atomic<bool> met_ = false;
    };
    awaitable operator co_await() { return awaitable(shared_from_this()); }
#endif

    // ---- what came of it ----

    // The HTTP status, or why there is none (namespace code); code::running while it is under way. In its callback it is not.
    long get_code() const noexcept { return settled() ? answer_.get_code() : code::running; }
    bool is_running() const noexcept { return !settled(); }

    // All of it, as a value that outlives this object's next request.
    const response &get_response() const noexcept { return answer_; }
    error get_error() const { return answer_.get_error(); }
    int status() const noexcept { return answer_.status(); }
    const std::string &get_body() const { return answer_.get_body(); }
    std::string_view body_view() const noexcept { return answer_.body_view(); }
    headers get_headers() const { return answer_.get_headers(); }
    headers get_trailers() const { return answer_.get_trailers(); }
    std::string get_content_type() const { return answer_.get_content_type(); }
    std::string get_redirect_url() const { return answer_.get_redirect_url(); }
    std::string get_url() const { return answer_.get_url(); }
    timings get_timings() const { return answer_.get_timings(); }

    // Fills `document` from the body. False: it is no JSON.
    template <typename Json>
    bool get_json(Json &document) const {
        return json_codec<Json>::read(answer_.body_view(), document);
    }

private:
    enum class state : std::uint8_t {
        idle,
        starting,   // before its try is with the engine
        running,
        delivering, // its callback is running, or interceptors
    };

    // ---- whose turn it is ----

    bool mine() const noexcept { return owner_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }
    bool settled() const noexcept {
        const auto now = state_.load(std::memory_order_acquire);
        return now == state::idle || (now == state::delivering && mine());
    }
    // May be built: nobody else has it in hand. In `starting` these are interceptors.
    bool editable() const noexcept { return settled() || (state_ == state::starting && mine()); }

    // Waiting here would wait for this very thread.
    bool hopeless() const noexcept {
        const auto &here = detail::whereabouts::here();
        return mine() || (here.engine == engine_.get() && (here.loop || runs_threaded_));
    }

    // Does `change` where the object may be changed; the rest is ignored.
    template <typename Change>
    http &edit(Change change) {
        const std::lock_guard lock(detail::places::of(this).mutex);
        if (editable() && !broken_ && ready()) {
            change();
        }
        return *this;
    }

    bool ready() {
        if (request_ == nullptr && hearth_request_new(engine_->get(), &request_) != HEARTH_OK) {
            fail(error_kind::system, code::start_failed, hearth_last_error());
        }
        return request_ != nullptr;
    }

    // The first thing that is wrong is what the start will say.
    void fail(error_kind kind, long number, std::string message) {
        if (!broken_) {
            broken_ = true;
            answer_ = response(error{kind, number, std::move(message)});
        }
    }
    void judge(hearth_status status, long number) {
        if (status == HEARTH_OK) {
            return;
        }
        const bool format = number == code::options_format || number == code::authentication_format ||
                            number == code::certificates_format;
        if (status == HEARTH_UNSUPPORTED) {
            // A word that is known and cannot be done: not the text's format is wrong, but its value.
            fail(error_kind::unsupported, format ? number - 1 : number, hearth_last_error());
        } else {
            fail(error_kind::bad_request, number, hearth_last_error());
        }
    }

    detail::extras &extra() {
        if (!extras_) {
            extras_ = std::make_unique<detail::extras>();
        }
        return *extras_;
    }

    // ---- building ----

    void begin_anew(std::string_view method, std::string_view url, const key_values &query) {
        std::unique_ptr<detail::extras> gone; // a program's destructors run without the lock
        const std::lock_guard lock(detail::places::of(this).mutex);
        if (!editable()) {
            return;
        }
        gone = std::move(extras_);
        broken_ = false;
        threaded_ = engine_->threaded();
        answer_ = response();
        if (request_ != nullptr) {
            judge(hearth_request_reset(request_), code::url_set);
        } else if (!ready()) {
            return;
        }
        const auto user = user_of(url);
        if (user) {
            const std::string bare = std::string(url.substr(0, user->begin)).append(url.substr(user->end));
            target(method, bare);
            credentials(url.substr(user->begin, user->end - 1 - user->begin));
        } else {
            target(method, url);
        }
        for (const auto &[name, value] : query) {
            judge(hearth_request_add_query(request_, name.data(), name.size(), value.data(), value.size()), code::url_set);
        }
    }

    void target(std::string_view method, std::string_view url) {
        judge(hearth_request_set_target(request_, method.data(), method.size(), url.data(), url.size()), code::url_set);
    }

    struct span {
        std::size_t begin;
        std::size_t end; // behind the @
    };
    // Where `user:password@` stands in a URL.
    static std::optional<span> user_of(std::string_view url) noexcept {
        const auto slashes = url.find("://");
        if (slashes == std::string_view::npos) {
            return std::nullopt;
        }
        const auto begin = slashes + 3;
        const auto authority = url.substr(begin, url.find_first_of("/?#", begin) - begin);
        const auto at = authority.rfind('@');
        return at == std::string_view::npos ? std::nullopt : std::optional(span{begin, begin + at + 1});
    }
    void credentials(std::string_view user_and_password) {
        const auto colon = user_and_password.find(':');
        const auto user = percent_decoded(user_and_password.substr(0, colon));
        const auto secret = colon == std::string_view::npos
                                ? std::string()
                                : percent_decoded(user_and_password.substr(colon + 1));
        judge(hearth_request_set_text(request_, HEARTH_AUTH_MODE, "basic", HEARTH_TEXT), code::authentication_set);
        judge(hearth_request_set_text(request_, HEARTH_AUTH_USER, user.data(), user.size()), code::authentication_set);
        judge(hearth_request_set_text(request_, HEARTH_AUTH_SECRET, secret.data(), secret.size()), code::authentication_set);
    }

    void type(std::string_view content_type) {
        if (!content_type.empty()) {
            constexpr std::string_view name = "Content-Type";
            judge(hearth_request_remove_header(request_, name.data(), name.size()), code::headers_set);
            judge(hearth_request_add_header(request_, name.data(), name.size(), content_type.data(), content_type.size()), code::headers_set);
        }
    }

    // The library uses the text where it is.
    void give(std::string body) {
        auto owned = std::make_unique<std::string>(std::move(body));
        const auto status = hearth_request_give_body(request_, owned->data(), owned->size(),
            [](void *user, const char *, std::size_t) { delete static_cast<std::string *>(user); }, owned.get());
        if (status == HEARTH_OK) {
            static_cast<void>(owned.release());
        }
        judge(status, code::body_set);
    }

    void set_source(std::uint64_t length, body_source source, body_rewind rewind) {
        auto &more = extra();
        more.source = std::move(source);
        more.rewind = std::move(rewind);
        judge(hearth_request_set_body_source(request_, length, &http::read_source, more.rewind ? &http::rewind_source : nullptr, this),
            code::body_set);
    }

    response under_way() const {
        return response(error{error_kind::bad_request, code::restart_failed, "the request is under way already"});
    }

    // ---- starting ----

    // False: it is under way already, and `done` is not told of anything.
    bool begin(callback done, bool quick) {
        const auto self = shared_from_this(); // a completion on another thread must not be the end of it
        callback gone;
        {
            const std::lock_guard lock(detail::places::of(this).mutex);
            if (!settled()) {
                return false;
            }
            ++epoch_;
            generation_ = detail::places::generation();
            state_ = state::starting;
            owner_ = std::this_thread::get_id();
            aborted_ = false;
            tries_ = 0;
            gone = std::exchange(callback_, std::move(done));
            interceptors_ = engine_->all();
            const bool told = (callback_ && !quick) || interceptors_ || (extras_ && extras_->has_callbacks());
            runs_threaded_ = threaded_ && told;
            self_ = self;
        }
        if (!attempt()) {
            deliver();
        }
        return true;
    }

    // One try. False: it was not started, and answer_ says why.
    bool attempt() {
        ++tries_;
        if (!broken_ && interceptors_) {
            try {
                for (const auto &one : *interceptors_) {
                    one->before(*this);
                }
            } catch (...) {
                refuse(thrown_error(std::current_exception()));
                return false;
            }
        }
        if (extras_) {
            prepare(*extras_);
        }
        if (broken_ || !ready()) {
            return refused();
        }
        hearth_request_set_number(request_, HEARTH_THREADED_CALLBACK, runs_threaded_ ? 1 : 0);
        {
            const std::lock_guard lock(detail::places::of(this).mutex);
            answer_ = response();
            state_ = state::running;
        }
        const auto epoch = epoch_.load();
        const auto status = hearth_request_start(request_, &http::completed, this);
        if (status != HEARTH_OK) {
            const auto kind = status == HEARTH_STATE ? error_kind::not_running
                              : status == HEARTH_INVALID ? error_kind::bad_request : error_kind::system;
            refuse({kind, code::start_failed, hearth_last_error()});
            return false;
        }
        // An abort that came before the library knew of the request.
        const std::lock_guard lock(detail::places::of(this).mutex);
        if (epoch_ == epoch && aborted_ && state_ == state::running) {
            hearth_request_abort(request_);
        }
        return true;
    }

    bool refused() {
        const std::lock_guard lock(detail::places::of(this).mutex);
        state_ = state::delivering;
        return false;
    }
    void refuse(error why) {
        const std::lock_guard lock(detail::places::of(this).mutex);
        answer_ = response(std::move(why));
        state_ = state::delivering;
    }

    // Callbacks of the transfer, told to the library only where there are any.
    void prepare(detail::extras &more) {
        if (broken_ || !ready()) {
            return;
        }
        if (more.cancel && !more.cancel->add(weak_from_this())) {
            fail(error_kind::aborted, code::aborted, "it was cancelled before it began");
            return;
        }
        more.thrown = nullptr;
        more.sink_failed = false;
        more.wanted = true;
        more.events = event_parser();
        if (more.sink && !more.sink->open()) {
            fail(error_kind::system, code::write_error, "the file to download to cannot be written");
            return;
        }
        if (tries_ > 1 && more.rewind) {
            more.rewind();
        }
        const bool streams = more.body || more.event || more.sink;
        hearth_request_on_head(request_, more.head || streams ? &http::head_came : nullptr, this);
        hearth_request_on_interim(request_, more.interim ? &http::interim_came : nullptr, this);
        hearth_request_on_body(request_, streams ? &http::body_came : nullptr, this);
        hearth_request_on_progress(request_, more.moved ? &http::moved_on : nullptr, this);
    }

    // ---- completing ----

    static error thrown_error(const std::exception_ptr &thrown) {
        try {
            std::rethrow_exception(thrown);
        } catch (const std::exception &what) {
            return {error_kind::callback, code::user_callback, what.what()};
        } catch (...) {
            return {error_kind::callback, code::user_callback, "a callback threw what is no std::exception"};
        }
    }

    static void completed(void *user, hearth_request *, const hearth_response *lent) {
        static_cast<http *>(user)->complete(lent);
    }

    void complete(const hearth_response *lent) noexcept {
        static_cast<void>(state_.load(std::memory_order_acquire)); // what attempt() wrote
        const detail::inside_callback inside(engine_.get(), !runs_threaded_);
        auto result = outcome(lent);
        {
            const std::lock_guard lock(detail::places::of(this).mutex);
            answer_ = std::move(result);
            owner_ = std::this_thread::get_id();
            state_ = state::delivering;
        }
        if (!wants_another_try() || !attempt_again()) {
            deliver();
        }
    }

    response outcome(const hearth_response *lent) {
        if (extras_) {
            auto &more = *extras_;
            if (more.thrown) {
                return response(thrown_error(std::exchange(more.thrown, nullptr)), lent);
            }
            const bool good = hearth_response_error(lent) == HEARTH_ERROR_NONE;
            if (more.sink && (more.sink_failed || (good && more.wanted && !more.sink->keep()))) {
                more.sink->drop();
                return response(error{error_kind::system, code::write_error, "the file to download to cannot be written"}, lent);
            }
            if (more.sink) {
                more.sink->drop();
            }
        }
        return response(lent);
    }

    bool wants_another_try() {
        if (!interceptors_) {
            return false;
        }
        try {
            bool again = false;
            for (auto one = interceptors_->rbegin(); one != interceptors_->rend(); ++one) {
                again = (*one)->after(*this, tries_) == interceptor::verdict::again || again;
            }
            return again && tries_ <= 10 && !aborted_;
        } catch (...) {
            answer_ = response(thrown_error(std::current_exception()));
            return false;
        }
    }
    bool attempt_again() {
        {
            const std::lock_guard lock(detail::places::of(this).mutex);
            state_ = state::starting;
        }
        return attempt();
    }

    // Tells who is to be told, then lets go. State is `delivering`, by this thread.
    void deliver() noexcept {
        callback done;
        std::shared_ptr<http> self;
        const auto epoch = epoch_.load();
        {
            const std::lock_guard lock(detail::places::of(this).mutex);
            done = std::exchange(callback_, nullptr);
            self = std::move(self_);
        }
        std::exception_ptr thrown;
        if (done) {
            try {
                done(*this);
            } catch (...) {
                thrown = std::current_exception();
            }
            done = nullptr;
        }
        auto &place = detail::places::of(this);
        const std::lock_guard lock(place.mutex);
        if (epoch_ != epoch) {
            return; // begun anew by its callback
        }
        if (thrown) {
            answer_ = response(thrown_error(thrown));
        }
        owner_ = std::thread::id();
        state_ = state::idle;
        if (place.waiting > 0) {
            place.changed.notify_all();
        }
    }

    // Under way in the parent, when this child was forked: here it never ends.
    void lost_by_fork() {
        std::shared_ptr<http> self;
        callback gone;
        const std::lock_guard lock(detail::places::of(this).mutex);
        self = std::move(self_);
        gone = std::move(callback_);
        ++epoch_;
        answer_ = response(error{error_kind::not_running, code::start_failed, "it was under way when the process forked, and is the parent's"});
        owner_ = std::thread::id();
        state_ = state::idle;
    }

    // ---- what the library calls on the way ----

    // Runs a callback of the program; what it throws is kept for the completion.
    template <typename Call>
    hearth_flow guarded(Call call) noexcept {
        static_cast<void>(state_.load(std::memory_order_acquire)); // what attempt() wrote
        const detail::inside_callback inside(engine_.get(), !runs_threaded_);
        try {
            return static_cast<hearth_flow>(call(*extras_));
        } catch (...) {
            extras_->thrown = std::current_exception();
            return HEARTH_ABORT;
        }
    }

    static hearth_flow head_came(void *user, hearth_request *, const hearth_response *lent) {
        return static_cast<http *>(user)->guarded([&](detail::extras &more) {
            const response head(lent);
            if (more.sink) {
                more.wanted = head.ok();
            } else if (more.event) {
                more.wanted = head.ok() && is_event_stream(head.get_content_type());
            }
            return more.head ? more.head(head) : flow::go_on;
        });
    }
    static bool is_event_stream(std::string_view type) noexcept {
        type = type.substr(0, type.find(';'));
        while (!type.empty() && type.back() == ' ') {
            type.remove_suffix(1);
        }
        return detail::same_field(type, "text/event-stream");
    }

    static hearth_flow interim_came(void *user, hearth_request *, const hearth_response *lent) {
        return static_cast<http *>(user)->guarded([&](detail::extras &more) { return more.interim(response(lent)); });
    }

    static hearth_flow body_came(void *user, hearth_request *, const char *data, std::size_t size) {
        return static_cast<http *>(user)->guarded([&](detail::extras &more) {
            const std::string_view piece(data, size);
            if (more.sink && more.wanted && !more.sink->write(piece)) {
                more.sink_failed = true;
                return flow::stop;
            }
            if (more.event && more.wanted) {
                more.events.feed(piece, more.event);
            }
            return more.body ? more.body(piece) : flow::go_on;
        });
    }

    static hearth_flow moved_on(void *user, hearth_request *, std::uint64_t sent, std::uint64_t to_send,
        std::uint64_t received, std::uint64_t to_receive) {
        return static_cast<http *>(user)->guarded([&](detail::extras &more) {
            progress now;
            now.sent = sent;
            now.received = received;
            if (to_send != HEARTH_UNKNOWN) {
                now.to_send = to_send;
            }
            if (to_receive != HEARTH_UNKNOWN) {
                now.to_receive = to_receive;
            }
            return more.moved(now);
        });
    }

    static hearth_flow read_source(void *user, hearth_request *, char *buffer, std::size_t room, std::size_t *written) {
        *written = 0;
        bool end = false;
        const auto flow = static_cast<http *>(user)->guarded([&](detail::extras &more) {
            const auto filled = more.source(buffer, room);
            if (!filled) {
                return flow::pause;
            }
            if (*filled > room) {
                throw std::length_error("a source wrote more than there was room for");
            }
            *written = *filled;
            end = *filled == 0;
            return flow::go_on;
        });
        return flow == HEARTH_CONTINUE && end ? HEARTH_END : flow;
    }
    static int rewind_source(void *user, hearth_request *) {
        bool done = false;
        const auto flow = static_cast<http *>(user)->guarded([&](detail::extras &more) {
            done = more.rewind();
            return flow::go_on;
        });
        return flow == HEARTH_CONTINUE && done ? 0 : 1;
    }

    std::shared_ptr<detail::engine> engine_;
    hearth_request *request_ = nullptr;
    std::shared_ptr<http> self_; // while it is under way
    callback callback_;
    response answer_;
    std::unique_ptr<detail::extras> extras_;
    std::shared_ptr<const detail::interceptors> interceptors_;
    std::atomic<std::thread::id> owner_ = std::thread::id(); // of `starting` and `delivering`
    std::atomic<unsigned> epoch_ = 0;                        // starts
    unsigned generation_ = 0;
    unsigned tries_ = 0;
    std::atomic<state> state_ = state::idle;
    std::atomic<bool> aborted_ = false;
    bool broken_ = false; // something is wrong with what was built; answer_ says what
    bool threaded_ = true;
    bool runs_threaded_ = false;
};

inline void cancel_source::cancel() {
    for (const auto &one : state_->cancel()) {
        if (const auto request = one.lock()) {
            request->abort();
        }
    }
}

} // namespace v1
} // namespace hearth

#ifdef HEARTH_HAS_COROUTINES
#undef HEARTH_HAS_COROUTINES
#endif
