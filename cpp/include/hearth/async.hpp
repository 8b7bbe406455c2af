// The engine: connections, one I/O thread, and one thread for callbacks once a request needs it.
//
// - Several engines may live side by side; each may be used from any thread.
// - Requests keep their engine's state alive: an `async` may be destroyed before them. They then end with code::aborted.
// - A forked child may continue to use the object: it gets a new engine, and the parent's is not affected.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hearth.h>

#include "cookies.hpp"
#include "options.hpp"
#include "response.hpp"

namespace hearth {
inline namespace v1 {

class http;
namespace detail {
template <typename Derived, typename Library>
class life;
} // namespace detail

// Runs between a program's requests and the engine: adds a signature, writes a log, renews a token.
//
// It may be called from several threads at once. An exception ends the request with code::user_callback.
class interceptor {
public:
    enum class verdict {
        deliver, // this is the answer
        again, // make the request again, before the program has seen this answer; at most ten times
    };

    virtual ~interceptor() = default;

    // Before each try, on the thread that starts it. Options, fields and body may still be set.
    virtual void before(http &request) { static_cast<void>(request); }

    // After each try, on the thread of callbacks. `tries` begins with 1.
    virtual verdict after(const http &request, unsigned tries) {
        static_cast<void>(request);
        static_cast<void>(tries);
        return verdict::deliver;
    }
};

namespace detail {

using interceptors = std::vector<std::shared_ptr<interceptor>>;

// The engine behind an async and its requests.
class engine {
public:
    engine() {
        if (hearth_engine_new(&raw_) != HEARTH_OK) {
            throw std::bad_alloc();
        }
    }
    engine(const engine &) = delete;
    engine &operator=(const engine &) = delete;
    ~engine() { hearth_engine_free(raw_); }

    hearth_engine *get() const noexcept { return raw_; }

    bool executor(std::function<bool(std::function<void()>)> execute) {
        using held = std::function<bool(std::function<void()>)>;
        if (!execute) {
            return hearth_engine_set_executor(raw_, nullptr, nullptr, nullptr) == HEARTH_OK;
        }
        auto owned = std::make_unique<held>(std::move(execute));
        const auto status = hearth_engine_set_executor(
            raw_,
            [](void *user, hearth_run run, void *work) noexcept {
                try {
                    return (*static_cast<held *>(user))([run, work] { run(work); }) ? 0 : 1;
                } catch (...) {
                    return 1; // it has not taken it
                }
            },
            [](void *user) { delete static_cast<held *>(user); }, owned.get());
        if (status == HEARTH_OK) {
            static_cast<void>(owned.release()); // the library lets it go
        }
        return status == HEARTH_OK;
    }

    void use() noexcept { uses_.fetch_add(1, std::memory_order_relaxed); }
    // True: that was the last use.
    bool leave() noexcept { return uses_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

    bool threaded() const noexcept { return threaded_.load(std::memory_order_relaxed); }
    void threaded(bool on) noexcept { threaded_.store(on, std::memory_order_relaxed); }

    void add(std::shared_ptr<interceptor> one) {
        const std::lock_guard lock(mutex_);
        auto more = interceptors_ ? std::make_shared<interceptors>(*interceptors_)
                                  : std::make_shared<interceptors>();
        more->push_back(std::move(one));
        interceptors_ = std::move(more);
        any_ = true;
    }
    // Those of this moment; none is a null pointer.
    std::shared_ptr<const interceptors> all() const {
        if (!any_.load(std::memory_order_acquire)) {
            return nullptr;
        }
        const std::lock_guard lock(mutex_);
        return interceptors_;
    }

private:
    hearth_engine *raw_ = nullptr;
    mutable std::mutex mutex_;
    std::shared_ptr<const interceptors> interceptors_;
    std::atomic<bool> any_ = false;
    std::atomic<bool> threaded_ = true;
    std::atomic<std::size_t> uses_ = 1;
};

// One use of an engine. Half as large as a shared_ptr, because tens of thousands of requests may wait.
class engine_use {
public:
    engine_use() : engine_(new engine()) {}
    engine_use(const engine_use &other) noexcept : engine_(other.engine_) { engine_->use(); }
    engine_use &operator=(const engine_use &) = delete;
    ~engine_use() {
        if (engine_->leave()) {
            delete engine_;
        }
    }

    engine *get() const noexcept { return engine_; }
    engine *operator->() const noexcept { return engine_; }

private:
    engine *const engine_;
};

} // namespace detail

// Numbers of one engine. They only grow, but for those marked "now".
struct statistics {
    std::uint64_t started = 0;
    std::uint64_t answered = 0; // with a final status
    std::uint64_t failed = 0;   // without, aborted ones included
    std::uint64_t aborted = 0;
    std::uint64_t active = 0;      // now: started and not completed
    std::uint64_t peak = 0;        // the most of them
    std::uint64_t queued = 0;      // now: waiting for their turn at their host
    std::uint64_t connections = 0; // now: open
    std::uint64_t connects = 0;
    std::uint64_t reused = 0; // tries over a connection that had been there
    std::uint64_t handshakes = 0;
    std::uint64_t handshakes_saved = 0;
    std::uint64_t retries = 0;
    std::uint64_t redirects = 0;
    std::uint64_t bytes_sent = 0;     // of bodies
    std::uint64_t bytes_received = 0; // of bodies, as they came
    std::uint64_t panics = 0; // faults of the library's own; 0 unless there is a bug to report
    std::uint64_t mail_connections = 0; // now: open, to mail servers
    std::uint64_t mail_connects = 0;
    std::uint64_t mail_reused = 0; // messages over a connection that had been there
};

class async : public detail::typed_options<async> {
public:
    async() = default;
    async(const async &) = delete;
    async &operator=(const async &) = delete;
    // stop()
    ~async() { stop(); }

    // Starts the engine if it does not run, also after a stop. False: no thread or descriptor is available. The first request starts it, too.
    bool start() { return hearth_engine_start(engine_->get()) == HEARTH_OK; }

    // Accepts no new requests, waits up to this time for the running ones, then aborts the rest. Returns whether requests were aborted. From
    // inside a callback it cannot wait: it does nothing and returns true.
    bool stop(unsigned timeout_ms = 30000) {
        int forced = 0;
        const auto status = hearth_engine_stop(engine_->get(), timeout_ms, &forced);
        return status != HEARTH_OK || forced != 0;
    }

    // The most requests that were under way at once, and how many are.
    unsigned peak_requests() const { return static_cast<unsigned>(stats().peak); }
    unsigned active_requests() const { return static_cast<unsigned>(stats().active); }
    // Faults of the library's own.
    unsigned protocol_crashed() const { return static_cast<unsigned>(stats().panics); }

    statistics stats() const {
        hearth_statistics raw = {};
        raw.size = sizeof raw;
        hearth_engine_statistics(engine_->get(), &raw);
        statistics out;
        out.started = raw.started;
        out.answered = raw.answered;
        out.failed = raw.failed;
        out.aborted = raw.aborted;
        out.active = raw.active;
        out.peak = raw.peak;
        out.queued = raw.queued;
        out.connections = raw.connections;
        out.connects = raw.connects;
        out.reused = raw.reused;
        out.handshakes = raw.handshakes;
        out.handshakes_saved = raw.handshakes_saved;
        out.retries = raw.retries;
        out.redirects = raw.redirects;
        out.bytes_sent = raw.bytes_sent;
        out.bytes_received = raw.bytes_received;
        out.panics = raw.panics;
        out.mail_connections = raw.mail_connections;
        out.mail_connects = raw.mail_connects;
        out.mail_reused = raw.mail_reused;
        return out;
    }

    // Defaults of the requests that are begun from now on, as `key=value,key="a value"`. False: a key or value is wrong, nothing
    // was changed, and last_error() names it.
    bool options(std::string_view text) {
        return noted(hearth_engine_set_options(engine_->get(), text.data(), text.size()));
    }
    bool authentication(std::string_view text) {
        return noted(hearth_engine_set_authentication(engine_->get(), text.data(), text.size()));
    }
    bool certificates(std::string_view text) {
        return noted(hearth_engine_set_certificates(engine_->get(), text.data(), text.size()));
    }

    // Sets the default of http::threaded_callback() for requests created from now on.
    async &threaded_callback(bool on) {
        engine_->threaded(on);
        return *this;
    }

    // Runs callbacks on the program's own threads instead of the engine's: a thread pool, or the event loop of a GUI. `execute` gets a job
    // and must run it once, on any thread, now or later. If it returns false, it accepts no more jobs, and the engine's own thread makes the
    // callbacks from then on. Only one job runs at once. Returns false if the engine has started already. An empty function selects the
    // engine's thread. A thread that runs jobs must not wait for this engine (join, exec, stop) unless other threads run jobs, too.
    bool executor(std::function<bool(std::function<void()>)> execute) {
        return engine_->executor(std::move(execute));
    }

    // At once to one host over HTTP/1.1, over HTTP/2, and to all hosts; they count from start() on.
    async &connections_per_host(unsigned most) {
        return set_number(HEARTH_CONNECTIONS_PER_HOST, most);
    }
    async &h2_connections_per_host(unsigned most) {
        return set_number(HEARTH_H2_CONNECTIONS_PER_HOST, most);
    }
    async &connections(unsigned most) { return set_number(HEARTH_CONNECTIONS, most); }
    // To one mail server with the same credentials.
    async &mail_connections_per_host(unsigned most) {
        return set_number(HEARTH_MAIL_CONNECTIONS_PER_HOST, most);
    }
    async &requests_per_host(unsigned most) { return set_number(HEARTH_REQUESTS_PER_HOST, most); }
    // Networks never to be called: "10.0.0.0/8 fd00::/8".
    async &deny(std::string_view networks) { return set_text(HEARTH_DENY, networks); }

    // Sets any option of the C header. Throws std::invalid_argument if it is invalid.
    async &set_number(hearth_option option, std::int64_t value) {
        return checked(hearth_engine_set_number(engine_->get(), option, value));
    }
    async &set_text(hearth_option option, std::string_view value) {
        return checked(hearth_engine_set_text(engine_->get(), option, value.data(), value.size()));
    }

    // The jar of requests with cookies=2.
    cookie_jar jar() {
        hearth_jar *raw = nullptr;
        if (hearth_engine_jar(engine_->get(), &raw) != HEARTH_OK) {
            throw std::bad_alloc();
        }
        return cookie_jar(raw);
    }

    // Requests started from now on pass through it, after the existing interceptors.
    async &add_interceptor(std::shared_ptr<interceptor> one) {
        engine_->add(std::move(one));
        return *this;
    }

    // Why the last call of options(), authentication() or certificates() returned false, as a sentence.
    std::string last_error() const {
        const std::lock_guard lock(mutex_);
        return last_error_;
    }

    hearth_engine *native_handle() const noexcept { return engine_->get(); }

private:
    template <typename Derived, typename Library>
    friend class detail::life;

    bool noted(hearth_status status) {
        if (status == HEARTH_OK) {
            return true;
        }
        std::string why = hearth_last_error();
        const std::lock_guard lock(mutex_);
        last_error_ = std::move(why);
        return false;
    }
    async &checked(hearth_status status) {
        if (status != HEARTH_OK) {
            throw std::invalid_argument(hearth_last_error());
        }
        return *this;
    }

    detail::engine_use engine_;
    mutable std::mutex mutex_;
    std::string last_error_;
};

} // namespace v1
} // namespace hearth
