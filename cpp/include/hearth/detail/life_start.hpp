// Implementation of life.hpp: one start, from begin() to its callback, and what a fork does to it. Included by that header only.
//
// - A start that began is completed exactly once: by the library, by a refusal, or in a forked child by the first look at the object.
// - The program's callbacks and destructors run without a lock.
#pragma once

#include "life.hpp"

namespace hearth {
inline namespace v1 {
namespace detail {

inline error thrown_error(const std::exception_ptr &thrown) {
    try {
        std::rethrow_exception(thrown);
    } catch (const std::exception &what) {
        return {error_kind::callback, code::user_callback, what.what()};
    } catch (...) {
        return {error_kind::callback, code::user_callback,
            "a callback threw what is no std::exception"};
    }
}

// ---- starting ----

template <typename Derived, typename Library>
bool life<Derived, Library>::begin(
    callback done, bool quick, std::unique_ptr<pledge> *future, unsigned *awaited) {
    look_for_fork();
    // A completion on another thread must not be the end of it.
    const auto self = this->shared_from_this();
    callback gone;
    {
        const std::lock_guard lock(places::of(this).mutex);
        if (!settled()) {
            return false;
        }
        ++epoch_;
        generation_ = places::generation();
        state_ = state::starting;
        owner_ = thread_number::here();
        aborted_ = false;
        gone = std::exchange(callback_, std::move(done));
        derived().gathered();
        runs_threaded_ = threaded_ && ((callback_ && !quick) || derived().has_callbacks());
        self_ = self;
        resumes_ = awaited != nullptr;
        if (awaited != nullptr) {
            *awaited = epoch_;
        }
        if (future != nullptr) {
            few().future = std::move(*future);
            few_->future->join(places::of(this).pledges);
        }
    }
    if (!attempt()) {
        const inside_refusal inside;
        // A coroutine goes on in its own frame.
        deliver(awaited != nullptr || !inside_refusal::too_deep());
    }
    return true;
}

template <typename Derived, typename Library>
bool life<Derived, Library>::attempt() {
    if (auto why = derived().prepare()) {
        refuse(std::move(*why));
        return false;
    }
    if (broken_ || !ready()) {
        const std::lock_guard lock(places::of(this).mutex);
        state_ = state::delivering;
        return false;
    }
    Library::set_number(handle_, HEARTH_THREADED_CALLBACK, runs_threaded_ ? 1 : 0);
    {
        const locked lock(this);
        answer_ = response();
        owner_ = 0;
        generation_ = places::generation(); // an interceptor may have forked
        state_ = state::running;
    }
    const auto epoch = epoch_.load();
    const auto status = Library::start(handle_, &life::completed, this);
    if (status != HEARTH_OK) {
        const bool invalid = status == HEARTH_INVALID;
        const auto kind = status == HEARTH_STATE ? error_kind::not_running
                          : invalid              ? error_kind::bad_request
                                                 : error_kind::system;
        refuse({kind, invalid ? Library::invalid : code::start_failed, hearth_last_error()});
        return false;
    }
    // An abort that came before the library had the request: it has found nothing to abort there, and is seen here.
    if (aborted_) {
        const std::lock_guard lock(places::of(this).mutex);
        if (epoch_ == epoch && aborted_ && state_ == state::running) {
            Library::abort(handle_);
        }
    }
    return true;
}

template <typename Derived, typename Library>
void life<Derived, Library>::refuse(error why) {
    const locked lock(this);
    owner_ = thread_number::here();
    answer_ = response(std::move(why));
    state_ = state::delivering;
}

// ---- completing ----

template <typename Derived, typename Library>
void life<Derived, Library>::completed(void *user, handle *, const hearth_response *lent) {
    static_cast<life *>(user)->complete(lent);
}

template <typename Derived, typename Library>
void life<Derived, Library>::complete(const hearth_response *lent) noexcept {
    static_cast<void>(state_.load(std::memory_order_acquire)); // what attempt() wrote
    const inside_callback inside(engine_.get(), !runs_threaded_);
    auto result = derived().outcome(lent);
    {
        const std::lock_guard lock(places::of(this).mutex);
        answer_ = std::move(result);
        owner_ = thread_number::here();
        state_ = state::delivering;
    }
    if (!derived().again()) {
        deliver();
    }
}

template <typename Derived, typename Library>
void life<Derived, Library>::deliver(bool tells) noexcept {
    callback done;
    std::shared_ptr<Derived> self;
    const auto epoch = epoch_.load();
    {
        const std::lock_guard lock(places::of(this).mutex);
        done = std::exchange(callback_, nullptr);
        self = std::move(self_);
    }
    std::exception_ptr thrown;
    if (done && tells) {
        try {
            done(derived());
        } catch (...) {
            thrown = std::current_exception();
        }
    }
    done = nullptr;
    auto &place = places::of(this);
    const locked lock(this);
    if (epoch_ != epoch) {
        return; // started again by its callback
    }
    if (thrown) {
        answer_ = response(thrown_error(thrown));
    }
    owner_ = 0;
    state_ = state::idle;
    if (few_ && few_->future) {
        // A failure has nothing that is worth moving, and its kind stays with the object.
        few_->future->answer(answer_.get_error() ? answer_ : answer_.take());
        few_->future = nullptr;
    }
    if (place.waiting > 0) {
        place.changed.notify_all();
    }
}

template <typename Derived, typename Library>
void life<Derived, Library>::look_for_fork() const noexcept {
    if (state_ != state::idle && generation_ != places::generation() && !mine()) {
        const_cast<life *>(this)->lost_by_fork();
    }
}

template <typename Derived, typename Library>
void life<Derived, Library>::lost_by_fork() noexcept {
    std::shared_ptr<Derived> self;
    std::unique_ptr<pledge> answered; // by the fork itself
    callback gone;
    bool resumes = false;
    {
        const locked lock(this);
        if (state_ == state::idle || generation_ == places::generation()) {
            return; // another thread was first
        }
        self = std::move(self_);
        gone = std::exchange(callback_, nullptr);
        if (few_) {
            answered = std::move(few_->future);
        }
        resumes = std::exchange(resumes_, false);
        ++epoch_;
        answer_ = response(error_of_fork());
        // Its handle also belongs to the parent's start; the next start gets a new one.
        Library::free(std::exchange(handle_, nullptr));
        owner_ = 0;
        state_ = state::idle;
    }
    if (resumes && gone) {
        // Callbacks are the parent's; a coroutine would never go on.
        try {
            gone(derived());
        } catch (...) { // there is no caller to report to
        }
    }
}

} // namespace detail
} // namespace v1
} // namespace hearth
