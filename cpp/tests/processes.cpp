// Forked children, and processes that run out of descriptors.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "support.hpp"

using namespace hearth;
using scripted::server;

class forks : public support::with_engine {};
class descriptors : public support::with_engine {};

// The sanitizer's allocator does not release its locks at a fork, as glibc's does: if other threads allocate, the child would wait forever.
#if defined(__SANITIZE_ADDRESS__)
#define HEARTH_TEST_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HEARTH_TEST_ADDRESS_SANITIZER 1
#endif
#endif
#ifdef HEARTH_TEST_ADDRESS_SANITIZER
constexpr bool busy_forks = false;
#else
constexpr bool busy_forks = true;
#endif

namespace {

// Runs `work` in a forked child. True: it returned true, in time.
bool in_a_child(const std::function<bool()> &work) {
    const auto child = ::fork();
    if (child == 0) {
        ::alarm(60); // a child that hangs is a test that fails
        ::_exit(work() ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

} // namespace

TEST_F(forks, leave_the_child_an_engine_of_its_own_and_the_parent_its) {
    server origin(support::echo);
    const auto one = request();
    ASSERT_EQ(one->GET(origin.url("/before")).exec().get_code(), 200);
    EXPECT_TRUE(in_a_child([&] {
        const auto same = one->GET(origin.url("/child")).exec().get_body() == "GET /child\n";
        const auto fresh =
            http::create(engine)->GET(origin.url("/new")).launch().get().get_code() == 200;
        return same && fresh;
    }));
    EXPECT_EQ(one->GET(origin.url("/after")).exec().get_body(), "GET /after\n");
    for (const auto &seen : origin.seen()) {
        EXPECT_EQ(seen.connection == 1, seen.target == "/before" || seen.target == "/after")
            << "no connection is shared: " << seen.target;
    }
}

TEST_F(forks, make_what_was_under_way_the_parents_and_the_child_does_not_wait_for_it) {
    std::atomic<bool> go = false;
    server origin([&](auto &client, const auto &asked) {
        support::eventually([&] { return go.load(); });
        support::echo(client, asked);
    });
    const auto one = request();
    std::atomic<int> told = 0;
    one->GET(origin.url()).start([&](const http &) { ++told; });
    ASSERT_TRUE(support::eventually([&] { return origin.requests() == 1; }));
    EXPECT_TRUE(in_a_child([&] {
        const bool lost = one->join().get_code() == code::start_failed && told == 0;
        // A server of the child's own: the parent's does not answer yet.
        server own(support::echo);
        return lost && one->GET(own.url("/child")).exec().get_body() == "GET /child\n";
    }));
    go = true;
    EXPECT_EQ(one->join().get_code(), 200);
    EXPECT_EQ(told, 1);
}

TEST_F(forks, answer_what_is_asked_of_the_parents_requests_in_the_child) {
    std::atomic<bool> go = false;
    server origin([&](auto &client, const auto &asked) {
        support::eventually([&] { return go.load(); });
        support::echo(client, asked);
    });
    // One for each call that may come first.
    std::vector<std::shared_ptr<http>> all;
    for (int i = 0; i < 7; ++i) {
        all.push_back(request());
        all.back()->GET(origin.url()).start();
    }
    const auto promised = request();
    auto future = promised->GET(origin.url()).launch();
    auto unasked = http::create(engine)->GET(origin.url()).launch();
    ASSERT_TRUE(support::eventually([&] { return origin.requests() == 9; }));
    const auto lost = [](const http &one) { return one.get_code() == code::start_failed; };
    EXPECT_TRUE(in_a_child([&] {
        bool good = !all[0]->is_running() && lost(*all[0]);
        good = lost(*all[1]) && good;
        good = all[2]->join_for(std::chrono::milliseconds(0)) && lost(*all[2]) && good;
        good = all[3]->get_error().kind == error_kind::not_running && good;
        good = lost(all[4]->abort()) && good;
        // Futures are answered by the fork itself.
        good = future.get().get_code() == code::start_failed && good;
        good = unasked.get().get_error().kind == error_kind::not_running && good;
        good = !promised->is_running() && good;
        // And each may be used for something else at once.
        server own(support::echo);
        good = all[5]->GET(own.url("/new")).exec().get_body() == "GET /new\n" && good;
        good = all[6]->GET(own.url("/new")).launch().get().get_code() == 200 && good;
        return promised->GET(own.url("/new")).launch().get().get_code() == 200 && good;
    }));
    go = true;
    for (const auto &one : all) {
        EXPECT_EQ(one->join().get_code(), 200);
    }
    EXPECT_EQ(future.get().get_code(), 200);
    EXPECT_EQ(unasked.get().get_code(), 200);
}

TEST_F(forks, leave_no_future_behind_that_nobody_answers) {
    if (!busy_forks) {
        GTEST_SKIP();
    }
    server origin(support::echo);
    std::atomic<bool> end = false;
    std::mutex mutex;
    std::future<response> last; // taken over by the child in its state at the fork
    std::thread busy([&] {
        const auto one = request();
        while (!end) {
            auto future = one->GET(origin.url()).launch();
            {
                const std::lock_guard lock(mutex);
                last = std::move(future);
            }
            one->join();
        }
    });
    for (int turn = 0; turn < 50; ++turn) {
        const std::lock_guard lock(mutex);
        EXPECT_TRUE(in_a_child([&] {
            if (!last.valid()) {
                return true;
            }
            const auto code = last.get().get_code();
            return code == 200 || code == code::start_failed;
        })) << turn;
    }
    end = true;
    busy.join();
}

TEST_F(forks, while_other_threads_make_requests_do_not_lock_the_child_out) {
    if (!busy_forks) {
        GTEST_SKIP();
    }
    server origin(support::echo);
    std::atomic<bool> end = false;
    std::vector<std::thread> busy;
    for (int thread = 0; thread < 3; ++thread) {
        busy.emplace_back([&] {
            while (!end) {
                request()->GET(origin.url()).exec();
            }
        });
    }
    for (int turn = 0; turn < 10; ++turn) {
        EXPECT_TRUE(in_a_child([&] {
            return request()->GET(origin.url()).exec().get_code() == 200;
        })) << turn;
    }
    end = true;
    for (auto &thread : busy) {
        thread.join();
    }
}

TEST_F(descriptors, that_are_used_up_fail_requests_and_come_back) {
    server origin(support::echo);
    // In a child: the limit is a process's.
    EXPECT_TRUE(in_a_child([&] {
        async own;
        own.start();
        if (http::create(own)->GET(origin.url()).exec().get_code() != 200) {
            return false;
        }
        std::vector<int> taken;
        const rlimit few = {128, 128};
        ::setrlimit(RLIMIT_NOFILE, &few);
        for (int fd = ::open("/dev/null", O_RDONLY); fd >= 0; fd = ::open("/dev/null", O_RDONLY)) {
            taken.push_back(fd);
        }
        server *const same = &origin;
        const auto kept = http::create(own)->GET(same->url()).exec().get_code();
        const auto one = http::create(own);
        one->GET("http://127.0.0.2:" + std::to_string(same->port()) + "/")
            .timeout(std::chrono::seconds(30))
            .exec();
        const bool failed =
            static_cast<bool>(one->get_error()) && one->get_error().kind != error_kind::timeout;
        for (const int fd : taken) {
            ::close(fd);
        }
        const auto back = http::create(own)->GET(same->url()).exec().get_code();
        return kept == 200 && failed && back == 200;
    }));
}
