// co_await, where the compiler has it: the program built as C++17 has no test in this file.
#include "support.hpp"

#if defined(__cpp_impl_coroutine) && __has_include(<coroutine>)
#include <coroutine>
#include <future>
#include <memory>
#include <optional>
#include <sys/wait.h>
#include <unistd.h>

using namespace hearth;
using scripted::dead_port;
using scripted::server;

namespace {

// A minimal coroutine: it starts at once, and no caller waits for it.
struct errand {
    struct promise_type {
        errand get_return_object() noexcept { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() noexcept {}
        void unhandled_exception() noexcept { std::terminate(); }
    };
};

// A task that may be given up while it waits.
class task {
public:
    struct promise_type {
        task get_return_object() noexcept {
            return task(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        void return_void() noexcept {}
        void unhandled_exception() noexcept { std::terminate(); }
    };
    explicit task(std::coroutine_handle<promise_type> frame) : frame_(frame) {}
    task(task &&other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
    task &operator=(task &&) = delete;
    ~task() {
        if (frame_) {
            frame_.destroy();
        }
    }

private:
    std::coroutine_handle<promise_type> frame_;
};

task waits_for(std::shared_ptr<http> one, std::atomic<int> &resumed) {
    std::string local(100, 'x');
    const auto answer = co_await *one;
    local += answer.get_body();
    resumed += local.size() >= 100 ? 1 : 0;
}

errand three_in_a_row(async &engine, std::string url, std::promise<std::string> &told) {
    std::string all;
    const auto one = http::create(engine);
    for (int turn = 0; turn < 3; ++turn) {
        const auto answer = co_await one->GET(url + std::to_string(turn));
        all += answer.get_body();
    }
    told.set_value(all);
}

errand one_call(async &engine, std::string url, std::promise<response> &told) {
    told.set_value(co_await http::create(engine)->GET(url));
}

errand one_call_of(std::shared_ptr<http> one, std::string url, std::promise<response> &told) {
    told.set_value(co_await one->GET(url));
}

errand while_running(std::shared_ptr<http> one, std::promise<response> &told) {
    told.set_value(co_await *one);
}

errand two_in_vain(std::shared_ptr<http> one, std::string url, std::promise<long> &told) {
    co_await one->GET(url);
    told.set_value((co_await one->GET(url)).get_code());
}

} // namespace

class coroutines : public support::with_engine {};
class forks : public support::with_engine {}; // processes.cpp has the others

TEST_F(coroutines, await_one_request_after_the_other) {
    server origin(support::echo);
    std::promise<std::string> told;
    three_in_a_row(engine, origin.url(), told);
    EXPECT_EQ(told.get_future().get(), "GET /0\nGET /1\nGET /2\n");
}

TEST_F(forks, let_a_coroutine_that_waited_go_on_in_the_child_once_it_looks) {
    std::atomic<bool> go = false;
    server origin([&](auto &client, const auto &asked) {
        support::eventually([&] { return go.load(); });
        support::echo(client, asked);
    });
    const auto one = request();
    std::promise<response> told;
    auto future = told.get_future();
    one_call_of(one, origin.url(), told);
    ASSERT_TRUE(support::eventually([&] { return origin.requests() == 1; }));
    const auto child = ::fork();
    if (child == 0) {
        ::alarm(60);
        one->join();
        const bool ready = future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
        ::_exit(ready && future.get().get_code() == code::start_failed ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    go = true;
    EXPECT_EQ(future.get().get_code(), 200);
}

TEST_F(coroutines, by_the_hundred_run_side_by_side) {
    server origin(support::echo);
    std::vector<std::promise<response>> all(300);
    for (auto &told : all) {
        one_call(engine, origin.url(), told);
    }
    for (auto &told : all) {
        EXPECT_EQ(told.get_future().get().get_code(), 200);
    }
}

TEST_F(coroutines, whose_first_call_ends_before_they_wait_may_make_the_next) {
    dead_port closed;
    const auto one = request();
    long code = 7;
    for (int turn = 0; turn < 1000 && code == 7; ++turn) {
        std::promise<long> told;
        two_in_vain(one, closed.url(), told);
        code = told.get_future().get();
        one->join();
    }
    EXPECT_EQ(code, 7);
}

TEST_F(coroutines, that_are_destroyed_while_they_wait_end_their_request_and_are_left_alone) {
    const auto origin = server::raw([](auto &client) { client.wait_for_end(); });
    for (const bool threaded : {true, false}) {
        const auto one = request();
        std::atomic<int> resumed = 0;
        {
            one->GET(origin->url()).threaded_callback(threaded);
            const auto waiting = waits_for(one, resumed);
            EXPECT_TRUE(one->is_running());
        }
        EXPECT_EQ(one->join().get_code(), code::aborted);
        EXPECT_EQ(resumed, 0);
    }
}

TEST_F(coroutines, may_be_destroyed_by_a_callback_of_the_request_they_wait_for) {
    server origin([](auto &client, const auto &asked) {
        if (asked.path() == "/whole") {
            support::echo(client, asked);
        } else {
            client.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
            client.wait_for_end();
        }
    });
    const auto one = request();
    std::atomic<int> resumed = 0;
    std::promise<void> ready;
    std::optional<task> waiting;
    one->GET(origin.url()).on_head([&, begun = ready.get_future().share()](const response &) {
        begun.wait();
        waiting.reset();
    });
    waiting.emplace(waits_for(one, resumed));
    ready.set_value();
    EXPECT_EQ(one->join().get_code(), code::aborted);
    EXPECT_EQ(resumed, 0);
    EXPECT_EQ(one->GET(origin.url("/whole")).exec().get_code(), 200);
}

TEST_F(coroutines, that_are_destroyed_end_no_later_start) {
    server origin(support::echo);
    const auto one = request();
    std::atomic<int> resumed = 0;
    for (int turn = 0; turn < 100; ++turn) {
        one->GET(origin.url("/first"));
        auto waiting = std::make_unique<task>(waits_for(one, resumed));
        ASSERT_TRUE(support::eventually([&] { return resumed == turn + 1; }));
        one->join();
        one->GET(origin.url("/second")).start();
        waiting = nullptr;
        EXPECT_EQ(one->join().get_body(), "GET /second\n");
    }
}

TEST_F(coroutines, go_on_at_once_where_nothing_can_be_started) {
    std::promise<response> wrong;
    one_call(engine, "nonsense", wrong);
    EXPECT_EQ(wrong.get_future().get().get_code(), code::url_malformed);
    const auto origin = server::raw([](auto &client) { client.wait_for_end(); });
    const auto one = request();
    one->GET(origin->url()).start();
    std::promise<response> busy;
    while_running(one, busy);
    EXPECT_EQ(busy.get_future().get().get_code(), code::restart_failed);
    one->abort().join();
}
#endif
