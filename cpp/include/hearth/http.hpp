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
                judge(hearth_request_add_query(
                          request_, name.data(), name.size(), value.data(), value.size()),
                    code::url_set);
            }
        });
    }

    // Adds fields; the same name may come again. CR, LF and NUL are refused: code::headers_set.
    http &add_headers(const key_values &fields) {
        return edit([&] {
            for (const auto &[name, value] : fields) {
                judge(hearth_request_add_header(
                          request_, name.data(), name.size(), value.data(), value.size()),
                    code::headers_set);
            }
        });
    }
    // Takes fields away, also those that are set by themselves: User-Agent, Accept, Accept-Encoding.
    http &remove_header(std::string_view name) {
        return edit([&] {
            judge(hearth_request_remove_header(request_, name.data(), name.size()),
                code::headers_set);
        });
    }
    // Fields behind a body of unknown length.
    http &add_trailers(const key_values &fields) {
        return edit([&] {
            for (const auto &[name, value] : fields) {
                judge(hearth_request_add_trailer(
                          request_, name.data(), name.size(), value.data(), value.size()),
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
            judge(hearth_request_set_options(request_, text.data(), text.size()),
                code::options_format);
        });
    }
    http &authentication(std::string_view text) {
        return edit([&] {
            judge(hearth_request_set_authentication(request_, text.data(), text.size()),
                code::authentication_format);
        });
    }
    http &certificates(std::string_view text) {
        return edit([&] {
            judge(hearth_request_set_certificates(request_, text.data(), text.size()),
                code::certificates_format);
        });
    }
    // Any option that the C header knows.
    http &set_number(hearth_option option, std::int64_t value) {
        return edit(
            [&] { judge(hearth_request_set_number(request_, option, value), code::options_set); });
    }
    http &set_text(hearth_option option, std::string_view value) {
        return edit([&] {
            judge(hearth_request_set_text(request_, option, value.data(), value.size()),
                code::options_set);
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
            judge(hearth_request_set_jar(request_, jar.native_handle()), code::options_set);
        });
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
            judge(hearth_request_add_header(
                      request_, "Accept", HEARTH_TEXT, "text/event-stream", HEARTH_TEXT),
                code::headers_set);
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
            const auto begun = request_->begin(
                [this, waiting](const http &done) {
                    result_ = done.answer_;
                    if (met_.exchange(true)) {
                        waiting.resume();
                    }
                },
                false);
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
    awaitable operator co_await() {
        return awaitable(shared_from_this());
    }
#endif

    // ---- what came of it ----

    // The HTTP status, or why there is none (namespace code); code::running while it is under way. In its callback it is not.
    // Alone of what follows it may be asked while another thread begins the next request.
    long get_code() const noexcept {
        const std::lock_guard lock(detail::places::of(this).mutex);
        return settled() ? answer_.get_code() : code::running;
    }
    bool is_running() const noexcept {
        return !settled();
    }

    // All of it, as a value that outlives this object's next request.
    const response &get_response() const noexcept {
        return answer_;
    }
    error get_error() const {
        return answer_.get_error();
    }
    int status() const noexcept {
        return answer_.status();
    }
    const std::string &get_body() const {
        return answer_.get_body();
    }
    std::string_view body_view() const noexcept {
        return answer_.body_view();
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
    timings get_timings() const {
        return answer_.get_timings();
    }

    // Fills `document` from the body. False: it is no JSON.
    template <typename Json>
    bool get_json(Json &document) const {
        return json_codec<Json>::read(answer_.body_view(), document);
    }

private:
    enum class state : std::uint8_t {
        idle,
        starting, // before its try is with the engine
        running,
        delivering, // its callback is running, or interceptors
    };

    // ---- whose turn it is ----

    bool mine() const noexcept {
        return owner_.load(std::memory_order_relaxed) == std::this_thread::get_id();
    }
    bool settled() const noexcept {
        const auto now = state_.load(std::memory_order_acquire);
        return now == state::idle || (now == state::delivering && mine());
    }
    // May be built: nobody else has it in hand. In `starting` these are interceptors.
    bool editable() const noexcept {
        return settled() || (state_ == state::starting && mine());
    }

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
        const bool format = number == code::options_format ||
                            number == code::authentication_format ||
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

    void begin_anew(std::string_view method, std::string_view url, const key_values &query);

    void target(std::string_view method, std::string_view url);

    struct span {
        std::size_t begin;
        std::size_t end; // behind the @
    };
    // Where `user:password@` stands in a URL.
    static std::optional<span> user_of(std::string_view url) noexcept;
    void credentials(std::string_view user_and_password);

    void type(std::string_view content_type);

    // The library uses the text where it is.
    void give(std::string body);

    void set_source(std::uint64_t length, body_source source, body_rewind rewind);

    response under_way() const;

    // ---- starting ----

    // False: it is under way already, and `done` is not told of anything.
    bool begin(callback done, bool quick);

    // One try. False: it was not started, and answer_ says why.
    bool attempt();

    bool refused();
    void refuse(error why);

    // Callbacks of the transfer, told to the library only where there are any.
    void prepare(detail::extras &more);

    // Its source at the beginning, for the same request once more.
    bool rewound(detail::extras &more);

    // ---- completing ----

    static error thrown_error(const std::exception_ptr &thrown);

    static void completed(void *user, hearth_request *, const hearth_response *lent);

    void complete(const hearth_response *lent) noexcept;

    response outcome(const hearth_response *lent);

    bool wants_another_try();
    bool attempt_again();

    // Tells who is to be told, then lets go. State is `delivering`, by this thread.
    void deliver() noexcept;

    // Under way in the parent, when this child was forked: here it never ends.
    void lost_by_fork();

    // ---- what the library calls on the way ----

    // Runs a callback of the program; what it throws is kept for the completion.
    template <typename Call>
    hearth_flow guarded(Call call) noexcept;

    static hearth_flow head_came(void *user, hearth_request *, const hearth_response *lent);
    static bool is_event_stream(std::string_view type) noexcept;

    static hearth_flow interim_came(void *user, hearth_request *, const hearth_response *lent);

    static hearth_flow body_came(void *user, hearth_request *, const char *data, std::size_t size);

    static hearth_flow moved_on(void *user, hearth_request *, std::uint64_t sent,
        std::uint64_t to_send, std::uint64_t received, std::uint64_t to_receive);

    static hearth_flow read_source(
        void *user, hearth_request *, char *buffer, std::size_t room, std::size_t *written);
    static int rewind_source(void *user, hearth_request *);

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

} // namespace v1
} // namespace hearth

#include "detail/http_life.hpp"

#ifdef HEARTH_HAS_COROUTINES
#undef HEARTH_HAS_COROUTINES
#endif
