// How a request ends: exec, start, launch, join, abort; callbacks that misbehave; engines that stop.
#include <atomic>
#include <future>
#include <set>

#include "part.hpp"
#include "support.hpp"

using namespace hearth;
using namespace std::chrono_literals;
using scripted::server;

class completions : public support::with_engine {};
class callbacks : public support::with_engine {};
class aborts : public support::with_engine {};
class engines : public support::with_engine {};

namespace {

// Answers after it was released.
class gate {
public:
    void open() {
        const std::lock_guard lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }
    // False: it stayed shut.
    bool pass() {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, support::far, [&] { return open_; });
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool open_ = false;
};

void silent(scripted::connection &client, const scripted::request &) {
    client.wait_for_end();
}

} // namespace

TEST_F(completions, while_a_request_is_under_way_other_calls_are_ignored) {
    gate held;
    server origin([&](auto &client, const auto &asked) {
        held.pass();
        support::echo(client, asked);
    });
    const auto one = request();
    one->GET(origin.url("/first")).start();
    EXPECT_EQ(one->get_code(), code::running);
    EXPECT_TRUE(one->is_running());
    one->GET(origin.url("/second"))
        .options("nonsense=1")
        .add_headers({{"X", "1"}})
        .set_body("", "b")
        .start([](const http &) { ADD_FAILURE(); });
    EXPECT_EQ(one->launch().get().get_code(), code::restart_failed);
    EXPECT_FALSE(one->join_for(1ms));
    held.open();
    EXPECT_EQ(one->join().get_body(), "GET /first\n");
    EXPECT_EQ(one->get_code(), 200);
    EXPECT_EQ(origin.requests(), 1U);
}

TEST_F(completions, the_same_request_can_be_made_again_without_building_it_anew) {
    server origin(support::echo);
    const auto one = request();
    one->POST(origin.url("/p")).set_body("text/plain", "x");
    for (int turn = 0; turn < 3; ++turn) {
        EXPECT_EQ(one->exec().get_body(), "POST /p\nx");
    }
    EXPECT_EQ(origin.requests(), 3U);
}

TEST_F(completions, join_is_released_after_the_callback_has_returned) {
    server origin(support::echo);
    std::atomic<bool> returned = false;
    const auto one = request();
    one->GET(origin.url()).start([&](const http &done) {
        EXPECT_EQ(done.get_code(), 200);
        EXPECT_FALSE(done.is_running());
        std::this_thread::sleep_for(50ms);
        returned = true;
    });
    one->join();
    EXPECT_TRUE(returned);
    EXPECT_TRUE(one->join_for(0ms));
}

TEST_F(completions, many_threads_may_wait_for_one_request) {
    gate held;
    server origin([&](auto &client, const auto &asked) {
        held.pass();
        support::echo(client, asked);
    });
    const auto one = request();
    one->GET(origin.url()).start();
    std::vector<std::thread> waiting;
    for (int thread = 0; thread < 8; ++thread) {
        waiting.emplace_back([&] { EXPECT_EQ(one->join().get_code(), 200); });
    }
    held.open();
    for (auto &thread : waiting) {
        thread.join();
    }
}

TEST_F(completions, a_detached_request_goes_on_and_tells_its_callback) {
    gate held;
    server origin([&](auto &client, const auto &asked) {
        held.pass();
        support::echo(client, asked);
    });
    std::promise<long> told;
    std::weak_ptr<http> watched;
    {
        const auto one = request();
        watched = one;
        one->GET(origin.url()).start([&](const http &done) { told.set_value(done.get_code()); });
    }
    EXPECT_FALSE(watched.expired());
    held.open();
    EXPECT_EQ(told.get_future().get(), 200);
    EXPECT_TRUE(support::eventually([&] { return watched.expired(); })) << "nothing is left of it";
}

TEST_F(completions, a_failure_before_the_start_is_told_to_the_callback_and_the_future_too) {
    long told = 0;
    request()->GET("nonsense").start([&](const http &done) { told = done.get_code(); });
    EXPECT_EQ(told, code::url_malformed);
    EXPECT_EQ(request()->GET("nonsense").launch().get().get_code(), code::url_malformed);
}

TEST_F(completions, a_future_takes_the_response_and_the_object_keeps_its_code) {
    server origin(
        [](auto &client, const auto &) { client.answer(201, "a body", "X-Field: 1\r\n"); });
    const auto one = request();
    const auto answer = one->GET(origin.url()).launch().get();
    EXPECT_EQ(answer.code(), 201);
    EXPECT_EQ(answer.body(), "a body");
    EXPECT_EQ(answer.headers()["x-field"], "1");
    EXPECT_EQ(one->get_code(), 201);
    EXPECT_EQ(one->get_body(), "");
    EXPECT_EQ(one->get_headers()["x-field"], "");
    EXPECT_FALSE(one->get_error());
    // A failure stays, too.
    EXPECT_TRUE(one->GET("http://127.0.0.1:1/").launch().get().get_error());
    EXPECT_TRUE(one->get_error());
    // The next request of the same object has a response of its own.
    EXPECT_EQ(one->GET(origin.url()).exec().get_body(), "a body");
}

TEST_F(completions, one_object_may_be_used_by_many_threads_at_once) {
    server origin(support::echo);
    const auto one = request();
    std::vector<std::thread> threads;
    std::atomic<int> good = 0;
    for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&] {
            for (int turn = 0; turn < 50; ++turn) {
                one->GET(origin.url()).add_headers({{"X", "1"}}).start().join();
                // Another thread may have started it again by now.
                const auto seen = one->get_code();
                good += seen == 200 || seen == code::running || seen == code::success ? 1 : 0;
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(one->join().get_code(), 200);
    EXPECT_EQ(good, 200);
}

TEST_F(completions, are_seen_by_every_part_of_a_program) {
    gate held;
    server origin([&](auto &client, const auto &asked) {
        held.pass();
        support::echo(client, asked);
    });
    scripted::dead_port closed;
    const auto one = request();
    EXPECT_EQ(part::place_of(one.get()), &detail::places::of(one.get()));
    EXPECT_EQ(part::whereabouts(), &detail::whereabouts::here());
    one->GET(closed.url());
    EXPECT_EQ(part::fetch(*one), error_kind::connect);
    one->GET(origin.url());
    part::start(*one);
    std::thread later([&] {
        std::this_thread::sleep_for(30ms);
        held.open();
    });
    EXPECT_TRUE(one->join_for(support::far));
    later.join();
    EXPECT_EQ(one->get_code(), 200);
}

TEST_F(callbacks, are_on_one_thread_that_is_not_the_callers_and_may_be_on_another_of_the_engine) {
    server origin(support::echo);
    const auto caller = std::this_thread::get_id();
    std::set<std::thread::id> threaded;
    std::set<std::thread::id> unthreaded;
    for (int turn = 0; turn < 5; ++turn) {
        request()
            ->GET(origin.url())
            .start([&](const http &) { threaded.insert(std::this_thread::get_id()); })
            .join();
        request()
            ->GET(origin.url())
            .threaded_callback(false)
            .start([&](const http &) { unthreaded.insert(std::this_thread::get_id()); })
            .join();
    }
    ASSERT_EQ(threaded.size(), 1U);
    ASSERT_EQ(unthreaded.size(), 1U);
    EXPECT_NE(*threaded.begin(), *unthreaded.begin());
    EXPECT_EQ(threaded.count(caller) + unthreaded.count(caller), 0U);
}

TEST_F(callbacks, that_throw_end_their_own_request_and_no_other) {
    server origin(support::echo);
    for (const bool threaded : {true, false}) {
        const auto one = request();
        one->GET(origin.url())
            .threaded_callback(threaded)
            .start([](const http &) { throw std::runtime_error("what I say"); })
            .join();
        EXPECT_EQ(one->get_code(), code::user_callback);
        EXPECT_EQ(one->get_error().kind, error_kind::callback);
        EXPECT_EQ(one->get_error().message, "what I say");
        one->GET(origin.url())
            .threaded_callback(threaded)
            .start([](const http &) { throw 42; })
            .join();
        EXPECT_EQ(one->get_code(), code::user_callback);
        EXPECT_EQ(one->GET(origin.url()).exec().get_code(), 200);
    }
    EXPECT_EQ(engine.protocol_crashed(), 0U);
}

TEST_F(callbacks, that_block_hold_up_other_callbacks_but_no_transfer) {
    server origin(support::echo);
    gate held;
    const auto blocked = request();
    blocked->GET(origin.url()).start([&](const http &) { EXPECT_TRUE(held.pass()); });
    EXPECT_EQ(request()->GET(origin.url()).exec().get_code(), 200);
    EXPECT_EQ(request()->GET(origin.url()).launch().get().get_code(), 200);
    held.open();
    blocked->join();
}

TEST_F(callbacks, may_start_their_own_object_anew) {
    server origin(support::echo);
    const auto one = request();
    std::atomic<int> turns = 0;
    std::string targets;
    std::function<void(const http &)> again = [&](const http &done) {
        targets += done.get_body();
        if (++turns < 4) {
            one->GET(origin.url("/" + std::to_string(turns.load()))).start(again);
        }
    };
    one->GET(origin.url("/0")).start(again);
    one->join();
    EXPECT_EQ(turns, 4) << "join waits until nothing is under way";
    EXPECT_EQ(targets, "GET /0\nGET /1\nGET /2\nGET /3\n");
}

TEST_F(callbacks, that_begin_anew_whatever_they_are_told_end_with_the_engine) {
    server origin(support::echo);
    for (const bool another : {false, true}) {
        async own;
        std::atomic<unsigned> answered = 0;
        std::atomic<unsigned> refused = 0;
        const auto first = http::create(own);
        std::function<void(const http &)> again = [&](const http &done) {
            answered += done.get_code() == 200 ? 1 : 0;
            refused += done.get_code() == code::start_failed ? 1 : 0;
            const auto next = another ? http::create(own) : first;
            next->GET(origin.url()).start(again);
        };
        first->GET(origin.url()).start(again);
        EXPECT_TRUE(support::eventually([&] { return answered > 0; }));
        own.stop();
        first->join();
        EXPECT_GT(refused, 0U);
        if (!another) {
            EXPECT_EQ(first->get_code(), code::start_failed);
        }
        refused = 0;
        first->GET(origin.url()).start(again);
        EXPECT_GT(refused, 0U) << "each such chain gets its own completion";
    }
}

TEST_F(callbacks, that_give_up_after_some_refused_starts_are_told_of_each) {
    int tries = 0;
    const auto one = request();
    std::function<void(const http &)> again = [&](const http &) {
        if (++tries < 10) {
            one->start(again);
        }
    };
    one->GET("nonsense").start(again);
    EXPECT_EQ(tries, 10);
    EXPECT_EQ(one->get_code(), code::url_malformed);
}

TEST_F(callbacks, may_make_a_request_and_wait_for_it) {
    server origin(support::echo);
    std::promise<std::string> told;
    request()->GET(origin.url("/outer")).start([&](const http &) {
        told.set_value(request()->GET(origin.url("/inner")).exec().get_body());
    });
    EXPECT_EQ(told.get_future().get(), "GET /inner\n");
}

TEST_F(callbacks, that_would_wait_for_themselves_do_not_wait) {
    server origin(support::echo);
    for (const bool threaded : {true, false}) {
        const auto one = request();
        const auto other = request();
        one->GET(origin.url()).threaded_callback(threaded).start([&](const http &) {
            one->join();
            other->GET(origin.url()).threaded_callback(threaded).start([](const http &) {});
            other->join();
            EXPECT_TRUE(engine.stop()) << "nothing can be waited for in here";
        });
        EXPECT_EQ(one->join().get_code(), 200);
        EXPECT_EQ(other->join().get_code(), 200);
    }
}

TEST_F(callbacks, may_destroy_their_object) {
    server origin(support::echo);
    for (const bool threaded : {true, false}) {
        auto one = request();
        std::weak_ptr<http> watched = one;
        std::promise<void> gone;
        auto &request = *one;
        request.GET(origin.url()).threaded_callback(threaded).start([&](const http &done) {
            one.reset();
            EXPECT_EQ(done.get_code(), 200) << "it is there as long as its callback";
            gone.set_value();
        });
        gone.get_future().get();
        EXPECT_TRUE(support::eventually([&] { return watched.expired(); }));
    }
}

TEST_F(callbacks, that_hold_their_own_object_leave_nothing_behind) {
    server origin(support::echo);
    std::weak_ptr<http> watched;
    {
        const auto one = request();
        watched = one;
        one->GET(origin.url()).start([one](const http &) {});
    }
    EXPECT_TRUE(support::eventually([&] { return watched.expired(); }));
}

TEST_F(callbacks, may_destroy_the_engine) {
    server origin(support::echo);
    for (const bool threaded : {true, false}) {
        auto own = std::make_unique<async>();
        own->start();
        std::promise<void> gone;
        http::create(*own)->GET(origin.url()).threaded_callback(threaded).start([&](const http &) {
            own.reset();
            gone.set_value();
        });
        gone.get_future().get();
    }
    EXPECT_EQ(request()->GET(origin.url()).exec().get_code(), 200)
        << "other engines know nothing of it";
}

TEST_F(aborts, end_a_request_with_42_whatever_it_is_waiting_for) {
    std::atomic<int> stage = 0;
    const auto quiet = server::raw([&](auto &client) { client.wait_for_end(); });
    server half([&](auto &client, const auto &) {
        client.write("HTTP/1.1 200 OK\r\nContent-Le");
        ++stage;
        client.wait_for_end();
    });
    server body([&](auto &client, const auto &) {
        client.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
        ++stage;
        client.wait_for_end();
    });
    for (const auto *origin : {quiet.get(), &half, &body}) {
        const auto one = request();
        one->GET(origin->url()).start();
        ASSERT_TRUE(support::eventually(
            [&] { return origin == quiet.get() ? quiet->connections() == 1 : stage > 0; }));
        one->abort().join();
        EXPECT_EQ(one->get_code(), code::aborted);
        EXPECT_EQ(one->get_error().kind, error_kind::aborted);
        EXPECT_EQ(one->get_body(), "");
        stage = 0;
    }
    EXPECT_EQ(engine.active_requests(), 0U);
}

TEST_F(aborts, before_at_and_after_the_end_do_no_harm) {
    server origin(support::echo);
    const auto one = request();
    one->abort();
    for (int turn = 0; turn < 200; ++turn) {
        one->GET(origin.url()).start();
        if (turn % 3 != 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(turn * 5));
        }
        one->abort().join();
        EXPECT_TRUE(one->get_code() == 200 || one->get_code() == code::aborted) << one->get_code();
        one->abort();
    }
    EXPECT_EQ(one->GET(origin.url()).exec().get_code(), 200);
}

TEST_F(aborts, come_from_one_word_for_many_requests) {
    server origin(silent);
    cancel_source source;
    std::vector<std::shared_ptr<http>> all;
    for (int at = 0; at < 50; ++at) {
        all.push_back(request());
        all.back()->GET(origin.url()).cancel_with(source.token()).start();
    }
    EXPECT_FALSE(source.cancelled());
    source.cancel();
    for (const auto &one : all) {
        EXPECT_EQ(one->join().get_code(), code::aborted);
    }
    const auto late = request();
    EXPECT_EQ(late->GET(origin.url()).cancel_with(source.token()).exec().get_code(), code::aborted)
        << "and those that come too late";
    server other(support::echo);
    late->GET(other.url()).cancel_with(source.token()).exec();
    cancel_source fresh;
    EXPECT_EQ(late->cancel_with(fresh.token()).exec().get_code(), 200) << "nothing of it stays";
}

TEST_F(aborts, of_a_word_end_what_was_given_it_and_nothing_later) {
    gate held;
    server origin([&](auto &client, const auto &asked) {
        if (asked.target == "/held") {
            held.pass();
        }
        support::echo(client, asked);
    });
    cancel_source source;
    const auto one = request();
    EXPECT_EQ(one->GET(origin.url()).cancel_with(source.token()).exec().get_code(), 200);
    one->GET(origin.url("/held")).start();
    source.cancel();
    held.open();
    EXPECT_EQ(one->join().get_code(), 200);
}

namespace {

// Calls its request when it is released, as a program's own destructor may.
std::shared_ptr<const void> asking(const http &one, std::atomic<int> &gone) {
    return std::shared_ptr<const void>(&gone, [&one, &gone](const void *) {
        EXPECT_NE(one.get_code(), code::running);
        ++gone;
    });
}

} // namespace

TEST_F(callbacks, and_what_is_lent_may_ask_their_request_when_they_are_let_go) {
    std::atomic<int> gone = 0;
    const auto one = request();
    one->POST("http://127.0.0.1:1/");
    const auto lent = [&] { return asking(*one, gone); };
    for (int turn = 0; turn < 2; ++turn) {
        one->on_head([kept = lent()](const response &) {});
        one->on_interim([kept = lent()](const response &) {});
        one->on_body([kept = lent()](std::string_view) {});
        one->on_progress([kept = lent()](const progress &) {});
        one->on_debug([kept = lent()](debug, std::string_view) {});
        one->on_event([kept = lent()](const server_event &) {});
        one->set_body_source(
            "", [kept = lent()](char *, std::size_t) { return std::size_t(0); }, 0,
            [kept = lent()] { return true; });
        EXPECT_EQ(gone, turn * 8);
    }
    one->set_body_view("", "a", lent());
    EXPECT_EQ(gone, 10);
    one->set_body_view("", "b", lent());
    EXPECT_EQ(gone, 11);
    one->set_body("", "c");
    EXPECT_EQ(gone, 12);
    one->set_body_view("", "d", lent());
    one->GET("http://127.0.0.1:1/");
    EXPECT_EQ(gone, 19);
    // The request and the engine's thread release the sent body: either may be the last.
    one->POST("http://127.0.0.1:1/").set_body_view("", "e", lent()).exec();
    one->GET("http://127.0.0.1:1/");
    EXPECT_TRUE(support::eventually([&] { return gone == 20; }));
}

TEST_F(engines, wait_for_requests_when_they_stop_and_say_whether_they_forced_anything) {
    gate held;
    server slow([&](auto &client, const auto &asked) {
        held.pass();
        support::echo(client, asked);
    });
    const auto one = request();
    one->GET(slow.url()).start();
    ASSERT_TRUE(support::eventually([&] { return slow.requests() == 1; }));
    std::thread later([&] {
        std::this_thread::sleep_for(30ms);
        held.open();
    });
    EXPECT_FALSE(engine.stop());
    later.join();
    EXPECT_EQ(one->get_code(), 200);
    EXPECT_FALSE(engine.stop()) << "once more is no harm";
    EXPECT_EQ(one->GET(slow.url()).exec().get_code(), code::start_failed);
    EXPECT_EQ(one->get_error().kind, error_kind::not_running);
    ASSERT_TRUE(engine.start());
    EXPECT_EQ(one->GET(slow.url()).exec().get_code(), 200) << "and it can be started again";
}

TEST_F(engines, abort_what_is_left_when_their_time_to_stop_is_over) {
    server origin(silent);
    std::vector<std::shared_ptr<http>> all;
    for (int at = 0; at < 20; ++at) {
        all.push_back(request());
        all.back()->GET(origin.url()).start();
    }
    EXPECT_TRUE(engine.stop(10));
    for (const auto &one : all) {
        EXPECT_EQ(one->join().get_code(), code::aborted);
    }
}

TEST_F(engines, stop_with_thousands_in_flight_and_each_is_told_once) {
    server origin(silent);
    constexpr int count = 5000;
    std::atomic<int> told = 0;
    std::atomic<int> aborted = 0;
    for (int at = 0; at < count; ++at) {
        request()->GET(origin.url()).start([&](const http &done) {
            ++told;
            aborted += done.get_code() == code::aborted ? 1 : 0;
        });
    }
    EXPECT_EQ(engine.active_requests(), static_cast<unsigned>(count));
    EXPECT_TRUE(engine.stop(0));
    EXPECT_EQ(told, count);
    EXPECT_EQ(aborted, count);
    EXPECT_EQ(engine.active_requests(), 0U);
    EXPECT_EQ(engine.peak_requests(), static_cast<unsigned>(count));
}

TEST_F(engines, that_go_before_their_requests_end_them) {
    server origin(silent);
    std::shared_ptr<http> one;
    {
        async own;
        one = http::create(own);
        one->GET(origin.url()).start();
        own.stop(0);
    }
    EXPECT_EQ(one->join().get_code(), code::aborted);
    EXPECT_EQ(one->GET(origin.url()).exec().get_code(), code::start_failed);
}

TEST_F(engines, start_by_themselves_at_the_first_request) {
    server origin(support::echo);
    async own;
    EXPECT_EQ(http::create(own)->GET(origin.url()).exec().get_code(), 200);
}

TEST_F(engines, live_side_by_side_and_count_their_own) {
    server origin(support::echo);
    async other;
    ASSERT_TRUE(other.start());
    ASSERT_TRUE(other.start()) << "twice is as once";
    for (int turn = 0; turn < 3; ++turn) {
        http::create(other)->GET(origin.url()).exec();
    }
    request()->GET(origin.url()).exec();
    EXPECT_EQ(other.stats().started, 3U);
    EXPECT_EQ(other.stats().answered, 3U);
    EXPECT_EQ(other.stats().connects, 1U);
    EXPECT_EQ(other.stats().reused, 2U);
    EXPECT_EQ(engine.stats().started, 1U);
    EXPECT_EQ(engine.peak_requests(), 1U);
}

TEST_F(engines, open_no_more_connections_to_a_host_than_they_may) {
    std::atomic<int> open = 0;
    std::atomic<int> most = 0;
    server origin([&](auto &client, const auto &asked) {
        const int now = ++open;
        int before = most;
        while (before < now && !most.compare_exchange_weak(before, now)) {
        }
        client.sleep(2ms);
        --open;
        support::echo(client, asked);
    });
    async own;
    own.connections_per_host(3);
    ASSERT_TRUE(own.start());
    std::vector<std::future<response>> all;
    for (int at = 0; at < 60; ++at) {
        all.push_back(http::create(own)->GET(origin.url()).launch());
    }
    for (auto &one : all) {
        EXPECT_EQ(one.get().get_code(), 200);
    }
    EXPECT_LE(most, 3);
    EXPECT_LE(origin.connections(), 3U);
}

TEST_F(engines, serve_ten_thousand_requests_of_many_threads) {
    server origin(support::echo);
    std::atomic<int> good = 0;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&] {
            for (int turn = 0; turn < 2500; ++turn) {
                request()->GET(origin.url()).start([&](const http &done) {
                    good += done.get_code() == 200 ? 1 : 0;
                });
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    EXPECT_FALSE(engine.stop());
    EXPECT_EQ(good, 10'000);
    EXPECT_LE(origin.connections(), 20U);
}
