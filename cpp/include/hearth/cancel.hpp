// One word that ends many requests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace hearth {
inline namespace v1 {

namespace detail {

class cancellation {
public:
    // One start of an object, by its number: `abort` lets a later one be.
    class entry {
    public:
        entry(std::weak_ptr<void> object, unsigned start, void (*end)(void *, unsigned))
            : object_(std::move(object)), abort_(end), start_(start) {}

        bool expired() const noexcept { return object_.expired(); }
        bool is_before(const entry &other) const noexcept {
            return object_.owner_before(other.object_);
        }
        void abort() const {
            if (const auto one = object_.lock()) {
                abort_(one.get(), start_);
            }
        }

    private:
        std::weak_ptr<void> object_;
        void (*abort_)(void *, unsigned);
        unsigned start_;
    };

    bool cancelled() const {
        const std::lock_guard lock(mutex_);
        return cancelled_;
    }

    // False: it is too late, cancellation was requested already.
    bool add(entry request) {
        const std::lock_guard lock(mutex_);
        if (cancelled_) {
            return false;
        }
        if (requests_.size() >= room_) {
            forget_ended();
            room_ = std::max<std::size_t>(16, requests_.size() * 2);
        }
        requests_.push_back(std::move(request));
        return true;
    }

    std::vector<entry> cancel() {
        const std::lock_guard lock(mutex_);
        cancelled_ = true;
        return std::exchange(requests_, {});
    }

private:
    // An object's last start is the only one that may still run.
    void forget_ended() {
        const auto before = [](const entry &a, const entry &b) { return a.is_before(b); };
        std::stable_sort(requests_.begin(), requests_.end(), before);
        auto kept = requests_.begin();
        for (auto one = requests_.begin(); one != requests_.end(); ++one) {
            const auto next = std::next(one);
            if (one->expired() || (next != requests_.end() && !before(*one, *next))) {
                continue;
            }
            if (kept != one) {
                *kept = std::move(*one);
            }
            ++kept;
        }
        requests_.erase(kept, requests_.end());
    }

    mutable std::mutex mutex_;
    bool cancelled_ = false;
    std::size_t room_ = 16;
    std::vector<entry> requests_;
};

} // namespace detail

class http;
class smtp;

// What requests and mails are given: cancel_with(). Copies mean the same source.
class cancel_token {
public:
    bool cancelled() const { return state_->cancelled(); }

private:
    friend class cancel_source;
    friend class http;
    friend class smtp;
    explicit cancel_token(std::shared_ptr<detail::cancellation> state) : state_(std::move(state)) {}

    std::shared_ptr<detail::cancellation> state_;
};

// Requests cancellation. Requests with its token end with code::aborted; those started later end at once.
class cancel_source {
public:
    cancel_source() : state_(std::make_shared<detail::cancellation>()) {}

    cancel_token token() const { return cancel_token(state_); }
    bool cancelled() const { return state_->cancelled(); }
    void cancel() {
        for (const auto &one : state_->cancel()) {
            one.abort();
        }
    }

private:
    std::shared_ptr<detail::cancellation> state_;
};

} // namespace v1
} // namespace hearth
