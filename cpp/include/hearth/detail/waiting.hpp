// Where threads wait for requests to end. A request is small because its mutex and its condition stand here, shared with others.
//
// - No callback of a program runs while one of these locks is held, and no destructor.
// - What there is once stays visible, so that all parts of a program have the same one even where the rest is hidden.
// - fork() finds all of them free, and in the child no thread waits any more: futures of the parent's requests are answered there.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <pthread.h>
#include <utility>

#include "../error.hpp"
#include "../response.hpp"

namespace hearth {
inline namespace v1 {
namespace detail {

inline error error_of_fork() {
    return {error_kind::not_running, code::start_failed,
        "it was under way when the process forked, and is the parent's"};
}

// A future that a thread may wait for. It is answered under the lock of its place, so that no fork comes in between.
class pledge {
public:
    pledge() = default;
    pledge(const pledge &) = delete;
    pledge &operator=(const pledge &) = delete;
    ~pledge() { leave(); }

    std::future<response> get_future() { return promise_.get_future(); }

    void join(pledge *&first) noexcept {
        next_ = first;
        self_ = &first;
        if (next_ != nullptr) {
            next_->self_ = &next_;
        }
        first = this;
    }
    void leave() noexcept {
        if (self_ != nullptr) {
            *self_ = next_;
            if (next_ != nullptr) {
                next_->self_ = self_;
            }
            self_ = nullptr;
        }
    }
    void answer(response with) noexcept {
        leave();
        try {
            promise_.set_value(std::move(with));
        } catch (const std::future_error &) { // it has been answered
        }
    }
    void lose() noexcept {
        try {
            answer(response(error_of_fork()));
        } catch (...) {
            leave();
            promise_.set_exception(std::current_exception());
        }
    }

private:
    std::promise<response> promise_;
    pledge *next_ = nullptr;
    pledge **self_ = nullptr; // where this stands in its list
};

struct place {
    std::mutex mutex;
    std::condition_variable changed;
    unsigned waiting = 0;
    pledge *pledges = nullptr; // of the current start
};

class places {
public:
    static place &of(const void *object) {
        auto hash = reinterpret_cast<std::uintptr_t>(object) / 64;
        hash ^= hash >> 7U;
        return all().places_[hash % count];
    }

    // Changes in a forked child.
    static std::uint16_t generation() noexcept {
        return static_cast<std::uint16_t>(all().generation_.load(std::memory_order_relaxed));
    }

private:
    static constexpr std::size_t count = 32;

    places() {
        pthread_atfork(
            [] {
                for (auto &one : all().places_) {
                    one.mutex.lock();
                }
            },
            [] {
                for (auto &one : all().places_) {
                    one.mutex.unlock();
                }
            },
            [] {
                all().generation_.fetch_add(1, std::memory_order_relaxed);
                for (auto &one : all().places_) {
                    // Waiting threads stayed in the parent: a condition that still counts them would wait for them.
                    new (&one.changed) std::condition_variable();
                    one.waiting = 0;
                    while (one.pledges != nullptr) {
                        one.pledges->lose();
                    }
                    one.mutex.unlock();
                }
            });
    }

    // Never destroyed: threads of the library may end after main() has.
    [[gnu::visibility("default")]] static places &all() {
        static auto *const instance = new places();
        return *instance;
    }

    std::array<place, count> places_;
    std::atomic<unsigned> generation_ = 0;
};

// Objects of the program that are released while a place is locked.
struct leaving {
    leaving() = default;
    leaving(const leaving &) = delete;
    leaving &operator=(const leaving &) = delete;
    virtual ~leaving() = default;

    std::unique_ptr<leaving> next;
};
template <typename Kept>
struct left final : leaving {
    explicit left(Kept given) : kept(std::move(given)) {}

    Kept kept;
};

// Locks an object's place. Objects released in the meantime are destroyed after the lock, because the program's destructors may call the
// object.
class locked {
public:
    explicit locked(const void *object) : lock_(places::of(object).mutex) {}

    // Where this thread has none, it is destroyed at once.
    static void leave(std::unique_ptr<leaving> what) noexcept {
        if (auto *const here = scope::here()) {
            what->next = std::move(here->first);
            here->first = std::move(what);
        }
    }
    template <typename Function>
    static void clear(Function &function) {
        if (function) {
            leave(std::make_unique<left<Function>>(std::exchange(function, nullptr)));
        }
    }

private:
    struct scope {
        scope() noexcept { here() = this; }
        scope(const scope &) = delete;
        scope &operator=(const scope &) = delete;
        ~scope() { here() = nullptr; }

        [[gnu::visibility("default")]] static scope *&here() noexcept {
            thread_local scope *instance = nullptr;
            return instance;
        }

        std::unique_ptr<leaving> first;
    };

    scope scope_; // the lock is gone before it
    std::lock_guard<std::mutex> lock_;
};

// The number of a thread, from 1 on. Half as large as its id.
struct thread_number {
    [[gnu::visibility("default")]] static std::uint32_t here() noexcept {
        static std::atomic<std::uint32_t> last = 0;
        thread_local std::uint32_t number = 0;
        while (number == 0) {
            number = last.fetch_add(1, std::memory_order_relaxed) + 1;
        }
        return number;
    }
};

// Whose callback this thread is in.
struct whereabouts {
    const void *engine = nullptr;
    bool loop = false;     // on its I/O thread, where nothing can be waited for
    unsigned refusals = 0; // callbacks of refused starts that it is in, one inside the other

    [[gnu::visibility("default")]] static whereabouts &here() noexcept {
        thread_local whereabouts instance;
        return instance;
    }
};

class inside_callback {
public:
    inside_callback(const void *engine, bool loop) noexcept : before_(whereabouts::here()) {
        whereabouts::here() = {engine, loop, before_.refusals};
    }
    inside_callback(const inside_callback &) = delete;
    inside_callback &operator=(const inside_callback &) = delete;
    ~inside_callback() { whereabouts::here() = before_; }

private:
    whereabouts before_;
};

// A refused start calls its callback on the stack of the caller of start(). Callbacks that start again in it, because the engine is stopping,
// would run out of stack. So such a chain is limited to this many calls.
class inside_refusal {
public:
    inside_refusal() noexcept { ++whereabouts::here().refusals; }
    inside_refusal(const inside_refusal &) = delete;
    inside_refusal &operator=(const inside_refusal &) = delete;
    ~inside_refusal() { --whereabouts::here().refusals; }

    static bool too_deep() noexcept { return whereabouts::here().refusals > most; }

private:
    static constexpr unsigned most = 32;
};

} // namespace detail
} // namespace v1
} // namespace hearth
