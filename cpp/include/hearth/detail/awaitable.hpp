// A request as something to wait for with co_await. For compilers with coroutines.
//
// - The completion finds its state even if the coroutine is gone.
// - Destroying it while it waits aborts its own start and none after it.
#pragma once

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <memory>
#include <utility>

#include "../response.hpp"

namespace hearth {
inline namespace v1 {
namespace detail {

// co_await http::create(engine)->GET(url): a response. Continues on the thread on which a callback would be called. If it is destroyed while
// it waits, for example with the frame of an abandoned task, it aborts its request and is not resumed. It must not be destroyed by another
// thread while it is being resumed.
template <typename Derived>
class awaitable {
public:
    explicit awaitable(std::shared_ptr<Derived> object) : object_(std::move(object)) {}
    awaitable(const awaitable &) = delete;
    awaitable &operator=(const awaitable &) = delete;
    ~awaitable() {
        if (wait_ && wait_->now.exchange(stage::left) != stage::ended) {
            Derived::end_start(object_.get(), wait_->start);
        }
    }

    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> waiting) {
        // This may be gone as soon as it has begun.
        const auto held = object_;
        const auto own = wait_ = std::make_shared<wait>(waiting);
        own->kept = own;
        const auto begun =
            held->begin([at = own.get()](const Derived &done) { at->end(done.get_response()); },
                false, nullptr, &own->start);
        if (!begun) {
            own->end(held->under_way());
            return false;
        }
        auto before = stage::begun;
        if (own->now.compare_exchange_strong(before, stage::waits) || before == stage::left) {
            return true;
        }
        held->let_return(own->start);
        return false;
    }
    response await_resume() noexcept { return std::move(wait_->result); }

private:
    enum class stage : std::uint8_t { begun, waits, ended, left };

    // State that the completion finds, even if the coroutine is gone. It has a bare pointer, for which a callback needs no memory.
    struct wait {
        explicit wait(std::coroutine_handle<> coroutine) : waiting(coroutine) {}

        void end(response with) {
            const auto until_done = std::move(kept);
            result = std::move(with);
            if (now.exchange(stage::ended) == stage::waits) {
                waiting.resume();
            }
        }

        std::coroutine_handle<> waiting;
        response result;
        unsigned start = 0;
        std::atomic<stage> now = stage::begun;
        std::shared_ptr<wait> kept; // until then
    };

    std::shared_ptr<Derived> object_;
    std::shared_ptr<wait> wait_;
};

} // namespace detail
} // namespace v1
} // namespace hearth
