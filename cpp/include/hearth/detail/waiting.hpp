// Where threads wait for requests to end. A request is small because its mutex and its condition stand here, shared with others.
//
// - No callback of a program runs while one of these locks is held.
// - fork() finds all of them free, and in the child nobody waits any more.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <pthread.h>

namespace hearth {
inline namespace v1 {
namespace detail {

struct place {
    std::mutex mutex;
    std::condition_variable changed;
    unsigned waiting = 0;
};

class places {
public:
    static place &of(const void *object) {
        auto hash = reinterpret_cast<std::uintptr_t>(object) / 64;
        hash ^= hash >> 7U;
        return all().places_[hash % count];
    }

    // Changes in a forked child.
    static unsigned generation() noexcept {
        return all().generation_.load(std::memory_order_relaxed);
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
                    // Those who waited stayed in the parent: a condition that still counts them would wait for them.
                    new (&one.changed) std::condition_variable();
                    one.waiting = 0;
                    one.mutex.unlock();
                }
            });
    }

    // Never destroyed: threads of the library may end after main() has.
    static places &all() {
        static auto *const instance = new places();
        return *instance;
    }

    std::array<place, count> places_;
    std::atomic<unsigned> generation_ = 0;
};

// Whose callback this thread is in.
struct whereabouts {
    const void *engine = nullptr;
    bool loop = false; // on its I/O thread, where nothing can be waited for

    static whereabouts &here() noexcept {
        thread_local whereabouts instance;
        return instance;
    }
};

class inside_callback {
public:
    inside_callback(const void *engine, bool loop) noexcept : before_(whereabouts::here()) {
        whereabouts::here() = {engine, loop};
    }
    inside_callback(const inside_callback &) = delete;
    inside_callback &operator=(const inside_callback &) = delete;
    ~inside_callback() { whereabouts::here() = before_; }

private:
    whereabouts before_;
};

} // namespace detail
} // namespace v1
} // namespace hearth
