// The life of an object that is started and completes repeatedly: shared by http and smtp. A start itself, from begin() to its callback, is in
// life_start.hpp.
//
// - State changes under the lock of the object's place; callbacks of the program run without it.
// - The thread that sets `starting` or `delivering` owns the object, with callback_ and the other members, until it sets another state.
// - self_ is set from a start to its completion, and nowhere else.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <hearth.h>

#include "../async.hpp"
#include "../cancel.hpp"
#include "../error.hpp"
#include "../options.hpp"
#include "../query.hpp"
#include "../response.hpp"
#include "url_login.hpp"
#include "waiting.hpp"

#if defined(__cpp_impl_coroutine) && __has_include(<coroutine>)
#include "awaitable.hpp"
#define HEARTH_HAS_COROUTINES
#endif

namespace hearth {
inline namespace v1 {
namespace detail {

// What few starts have; one pointer, because tens of thousands may wait.
struct of_start {
    std::unique_ptr<pledge> future;          // of launch()
    std::shared_ptr<const interceptors> all; // the engine's, from a start to its completion
    std::uint8_t tries = 0;                  // of an intercepted start
};

// `Derived` is http or smtp, `Library` the functions of hearth.h that are its own. Derived says
//   void gathered()                              a start is sure: what it needs of the engine
//   bool has_callbacks() const                   beside the one of start()
//   std::optional<error> prepare()               before a try; an error ends it
//   response outcome(const hearth_response *)    what the completion is told
//   bool again()                                 after it: true, another try has begun
template <typename Derived, typename Library>
class life : public std::enable_shared_from_this<Derived>, public typed_options<Derived> {
protected:
    struct only_create {};

public:
    using callback = std::function<void(const Derived &)>;

    // A new one on that engine.
    static std::shared_ptr<Derived> create(async &engine) {
        return std::make_shared<Derived>(only_create(), engine.engine_);
    }

    life(const life &) = delete;
    life &operator=(const life &) = delete;

    // ---- how ----

    // Format: `key=value,key="a value"`. If it is invalid: code::options_format or similar, and get_error() names the fault.
    Derived &options(std::string_view text) {
        return edit([&] {
            check(Library::set_options(handle_, text.data(), text.size()), code::options_format);
        });
    }
    Derived &authentication(std::string_view text) {
        return edit([&] {
            check(Library::set_authentication(handle_, text.data(), text.size()),
                code::authentication_format);
        });
    }
    Derived &certificates(std::string_view text) {
        return edit([&] {
            check(Library::set_certificates(handle_, text.data(), text.size()),
                code::certificates_format);
        });
    }
    // Sets any option of the C header.
    Derived &set_number(hearth_option option, std::int64_t value) {
        return edit([&] { check(Library::set_number(handle_, option, value), code::options_set); });
    }
    Derived &set_text(hearth_option option, std::string_view value) {
        return edit([&] {
            check(Library::set_text(handle_, option, value.data(), value.size()),
                option == HEARTH_SAFE_PROTOCOLS ? code::safe_protocols_set : code::options_set);
        });
    }
    // True (the default): callbacks run on the engine's thread for them. False: on its I/O thread, where they must be short.
    Derived &threaded_callback(bool on) {
        return edit([&] { threaded_ = on; });
    }
    // curlev's two numbers: this many more tries, the same delay before each; retry() has the rest.
    Derived &maximum_retries(unsigned retries, unsigned delay_ms = 100) {
        return set_number(HEARTH_MAX_RETRIES, retries)
            .set_number(HEARTH_RETRY_DELAY, delay_ms)
            .set_number(HEARTH_RETRY_MAX_DELAY, delay_ms)
            .set_number(HEARTH_RETRY_JITTER, 0);
    }

    // ---- off ----

    // Starts it; `done` is called when it has ended, and then join() returns.
    Derived &start(callback done = nullptr) {
        begin(std::move(done), false);
        return derived();
    }
    // Waits until it is not under way. From inside a callback that it would wait for, it returns at once.
    Derived &join() {
        look_for_fork();
        auto &place = places::of(this);
        std::unique_lock lock(place.mutex);
        while (state_ != state::idle && !hopeless()) {
            ++place.waiting;
            place.changed.wait(lock);
            --place.waiting;
        }
        return derived();
    }
    // The same, so long at most. True: it is not under way.
    bool join_for(std::chrono::milliseconds limit) {
        look_for_fork();
        auto &place = places::of(this);
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
    Derived &exec() { return start().join(); }

    // Like start(), with a future for the result, which is moved there: this object keeps its code, or its error. If it is running already,
    // the future has code::restart_failed.
    std::future<response> launch() {
        auto own = std::make_unique<pledge>();
        auto future = own->get_future();
        if (!begin(nullptr, true, &own)) {
            own->answer(under_way());
        }
        return future;
    }

    // Like exec(), but returns the response. Throws request_error if there is no answer; an answer may have any status.
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

    // Ends it as soon as possible, with code::aborted. Does nothing if it is not running. For a mail whose whole message was sent, the kind is
    // error_kind::outcome_unknown.
    Derived &abort() {
        look_for_fork();
        const std::lock_guard lock(places::of(this).mutex);
        end();
        return derived();
    }

#ifdef HEARTH_HAS_COROUTINES
    using awaitable = detail::awaitable<Derived>;
    awaitable operator co_await() {
        return awaitable(this->shared_from_this());
    }
#endif

    // ---- what came of it ----

    // The HTTP status, or 250 for an accepted mail, or the reason of the failure (namespace code). code::running while it is running, but not in
    // its callback. Unlike the following functions, it may be called while another thread starts the next request.
    long get_code() const noexcept {
        look_for_fork();
        const std::lock_guard lock(places::of(this).mutex);
        return settled() ? answer_.get_code() : code::running;
    }
    bool is_running() const noexcept {
        look_for_fork();
        return !settled();
    }
    // All of it, as a value that outlives this object's next request.
    const response &get_response() const noexcept {
        look_for_fork();
        return answer_;
    }
    error get_error() const {
        return get_response().get_error();
    }
    timings get_timings() const {
        return get_response().get_timings();
    }

protected:
#ifdef HEARTH_HAS_COROUTINES
    friend awaitable;
#endif
    using handle = typename Library::handle;

    enum class state : std::uint8_t {
        idle,
        starting, // before its try is with the engine
        running,
        delivering, // its callback is running, or interceptors
    };

    life(only_create, const engine_use &engine) : engine_(engine) {}
    ~life() {
        Library::free(handle_);
    }

    Derived &derived() noexcept {
        return static_cast<Derived &>(*this);
    }
    const Derived &derived() const noexcept {
        return static_cast<const Derived &>(*this);
    }

    of_start &few() {
        if (!few_) {
            few_ = std::make_unique<of_start>();
        }
        return *few_;
    }

    // ---- states ----

    bool mine() const noexcept {
        return owner_.load(std::memory_order_relaxed) == thread_number::here();
    }
    bool settled() const noexcept {
        const auto now = state_.load(std::memory_order_acquire);
        return now == state::idle || (now == state::delivering && mine());
    }
    // May be built: no other thread uses it. In `starting` these are interceptors.
    bool editable() const noexcept {
        return settled() || (state_ == state::starting && mine());
    }

    // Waiting here would wait for this very thread.
    bool hopeless() const noexcept {
        const auto &here = whereabouts::here();
        return mine() || (here.engine == engine_.get() && (here.loop || runs_threaded_));
    }

    // ---- ending ----

    // With the lock.
    void end() {
        if (state_ != state::idle) {
            aborted_ = true;
            if (handle_ != nullptr) {
                Library::abort(handle_);
            }
        }
    }

    // This start, for the code that can end it, and none after it.
    cancellation::entry this_start() {
        return {this->weak_from_this(), epoch_,
            [](void *object, unsigned start) { end_start(static_cast<Derived *>(object), start); }};
    }
    static void end_start(Derived *object, unsigned start) {
        life &one = *object;
        one.look_for_fork();
        const std::lock_guard lock(places::of(&one).mutex);
        if (one.epoch_ == start) {
            one.end();
        }
    }

    // Waits until that start, whose callback is at its end, is over. None of the program's code runs in between, so any thread may wait.
    void let_return(unsigned start) {
        auto &place = places::of(this);
        std::unique_lock lock(place.mutex);
        while (state_ == state::delivering && epoch_ == start) {
            ++place.waiting;
            place.changed.wait(lock);
            --place.waiting;
        }
    }

    // ---- building ----

    // Does `change` where the object may be changed; the rest is ignored.
    template <typename Change>
    Derived &edit(Change change) {
        look_for_fork();
        const locked lock(this);
        if (editable() && !broken_ && ready()) {
            change();
        }
        return derived();
    }

    bool ready() {
        if (handle_ == nullptr && Library::make(engine_->get(), &handle_) != HEARTH_OK) {
            fail(error_kind::system, code::start_failed, hearth_last_error());
        }
        return handle_ != nullptr;
    }

    // The start reports the first fault.
    void fail(error_kind kind, long number, std::string message) {
        if (!broken_) {
            broken_ = true;
            answer_ = response(error{kind, number, std::move(message)});
        }
    }
    void check(hearth_status status, long number) {
        if (status == HEARTH_OK) {
            return;
        }
        const bool format = number == code::options_format ||
                            number == code::authentication_format ||
                            number == code::certificates_format;
        if (status == HEARTH_UNSUPPORTED) {
            // A known option that cannot be applied: the text's format is valid, but its value is not.
            fail(error_kind::unsupported, format ? number - 1 : number, hearth_last_error());
        } else {
            fail(error_kind::bad_request, number, hearth_last_error());
        }
    }

    // Resets it to the current defaults. False: there is no handle, and fail() has the reason.
    bool renew() {
        broken_ = false;
        threaded_ = engine_->threaded();
        answer_ = response();
        if (handle_ == nullptr) {
            return ready();
        }
        check(Library::reset(handle_), code::url_set);
        return true;
    }

    // Hands a URL to `target`, without the `user:password@` in it, which become Basic authentication.
    template <typename Target>
    void aim(std::string_view url, Target target) {
        const auto login = login_of(url);
        target(login ? std::string_view(login->url) : url);
        if (login) {
            set_secret(login->user, login->secret);
        }
    }

    response under_way() const {
        return response(error{error_kind::bad_request, code::restart_failed,
            std::string("the ").append(Library::name).append(" is under way already")});
    }

    // ---- starting ----

    // False: it is running already, and `done` is not called. `quick`: the callback is not the program's, and may run on any thread. `future` is
    // taken over and answered. `awaited`: a coroutine waits for `done`, and has the number of this start there.
    bool begin(callback done, bool quick, std::unique_ptr<pledge> *future = nullptr,
        unsigned *awaited = nullptr);

    // Makes one try. False: it was not started, and answer_ has the reason.
    bool attempt();

    void refuse(error why);

    // ---- completing ----

    static void completed(void *user, handle *, const hearth_response *lent);

    void complete(const hearth_response *lent) noexcept;

    // Calls the completion, then releases the object. The state is `delivering`, set by this thread.
    void deliver(bool tells = true) noexcept;

    // A request that was under way in the parent when this child was forked never completes here: the first caller to look completes it.
    void look_for_fork() const noexcept;

    void lost_by_fork() noexcept;

    engine_use engine_;
    handle *handle_ = nullptr;
    std::shared_ptr<Derived> self_; // while it is under way
    callback callback_;
    response answer_;
    std::unique_ptr<of_start> few_;
    std::atomic<std::uint32_t> owner_ = 0; // the thread of `starting` and `delivering`
    std::atomic<unsigned> epoch_ = 0;      // starts
    std::atomic<std::uint16_t> generation_ = 0;
    std::atomic<state> state_ = state::idle;
    std::atomic<bool> aborted_ = false;
    bool broken_ = false; // the request is invalid; answer_ has the reason
    bool threaded_ = true;
    bool runs_threaded_ = false;
    bool resumes_ = false; // callback_ is a coroutine's

private:
    void set_secret(const std::string &user, const std::string &secret) {
        const auto put = [this](hearth_option option, std::string_view value) {
            check(Library::set_text(handle_, option, value.data(), value.size()),
                code::authentication_set);
        };
        put(HEARTH_AUTH_MODE, "basic");
        put(HEARTH_AUTH_USER, user);
        put(HEARTH_AUTH_SECRET, secret);
    }
};

} // namespace detail
} // namespace v1
} // namespace hearth

#ifdef HEARTH_HAS_COROUTINES
#undef HEARTH_HAS_COROUTINES
#endif

#include "life_start.hpp"
