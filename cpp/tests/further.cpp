// Features for observing, limiting and moving work: data on the wire, rates, encodings, bodies without a copy, callbacks on the program's executor;
// and callbacks that throw.
#include <condition_variable>
#include <deque>
#include <map>

#include "support.hpp"

using namespace hearth;
using namespace std::chrono_literals;
using scripted::server;
using clock_type = std::chrono::steady_clock;

// A document that is no library's.
namespace further {
struct pair {
    std::string name, value;
};
} // namespace further
template <>
struct hearth::json_codec<further::pair> {
    static std::string write(const further::pair &one) {
        return "{\"" + one.name + "\":\"" + one.value + "\"}";
    }
    static bool read(std::string_view text, further::pair &one) {
        const auto middle = text.find("\":\"");
        if (middle == std::string_view::npos || text.size() < middle + 5) {
            return false;
        }
        one.name = text.substr(2, middle - 2);
        one.value = text.substr(middle + 3, text.size() - middle - 5);
        return true;
    }
};

namespace {

class watching : public support::with_engine {};
class throwing : public support::with_engine {};
class placing : public ::testing::Test {};

// Chunks with pauses, so that progress is reported in between.
void slowly(scripted::connection &client, const scripted::request &) {
    client.write("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: "
                 "text/event-stream\r\nContent-Length: 24\r\n\r\n");
    client.write("data: one\n\n");
    client.sleep(150ms);
    client.write("data: two\n\n..");
}

} // namespace

TEST_F(watching, sees_heads_and_bodies_and_no_secrets_unless_they_are_asked_for) {
    server origin(support::echo);
    for (const bool secrets : {false, true}) {
        for (const bool threaded : {false, true}) {
            std::map<debug, std::string> seen;
            const auto one = request();
            one->POST(origin.url("/p"))
                .set_body("text/plain", "sent")
                .basic("joe", "hidden")
                .threaded_callback(threaded)
                .on_debug([&](debug what, std::string_view bytes) { seen[what] += bytes; }, secrets)
                .exec();
            EXPECT_EQ(one->get_code(), 200);
            EXPECT_EQ(seen[debug::header_out].rfind("POST /p HTTP/1.1\r\nHost: ", 0), 0U);
            EXPECT_EQ(seen[debug::header_out].find("Basic ***\r\n") == std::string::npos, secrets);
            EXPECT_EQ(seen[debug::header_out].find("am9lOmhpZGRlbg") != std::string::npos, secrets);
            EXPECT_EQ(seen[debug::header_in].rfind("HTTP/1.1 200 ", 0), 0U);
            EXPECT_EQ(seen[debug::data_out], "sent");
            EXPECT_EQ(seen[debug::data_in], "POST /p\nsent");
            EXPECT_NE(seen[debug::text].find("127.0.0.1"), std::string::npos);
        }
    }
}

TEST_F(watching, a_rate_is_kept_both_ways) {
    server origin(support::echo);
    const std::string body(20'000, 'r');
    const auto one = request();
    auto begun = clock_type::now();
    one->POST(origin.url()).set_body("text/plain", body).limit_rate(0, 100'000).exec();
    // Never sooner: less one piece of 5,000 bytes, and the 50 ms that late clocks may have.
    EXPECT_GE(clock_type::now() - begun, 99ms);
    EXPECT_EQ(one->get_body(), "POST /\n" + body);
    begun = clock_type::now();
    one->POST(origin.url()).set_body("text/plain", body).limit_rate(100'000, 0).exec();
    EXPECT_GE(clock_type::now() - begun, 99ms);
    EXPECT_EQ(one->get_body(), "POST /\n" + body);
}

TEST_F(watching, encodings_are_asked_for_by_name) {
    server origin(support::echo);
    const auto one = request();
    one->GET(origin.url()).accept_encoding({"br", "gzip"}).exec();
    EXPECT_EQ(one->get_code(), 200);
    EXPECT_EQ(origin.seen().back().field("Accept-Encoding"), "br, gzip");
    EXPECT_EQ(
        one->GET(origin.url()).accept_encoding({"rot13"}).exec().get_code(), code::options_set);
}

TEST_F(watching, a_body_that_is_lent_is_not_copied_and_let_go_with_its_owner) {
    server origin(support::echo);
    const auto one = request();
    auto owner = std::make_shared<std::string>("as it is");
    const std::weak_ptr<std::string> watched = owner;
    one->POST(origin.url()).set_body_view("text/plain", *owner, owner);
    (*owner)[0] = 'A'; // a copy would not see it
    owner.reset();
    EXPECT_FALSE(watched.expired());
    EXPECT_EQ(one->exec().get_body(), "POST /\nAs it is");
    EXPECT_EQ(one->exec().get_body(), "POST /\nAs it is") << "it can be sent again";
    one->GET(origin.url()).exec();
    EXPECT_TRUE(support::eventually([&] { return watched.expired(); }));
    EXPECT_EQ(one->POST(origin.url()).set_body_view("", "a literal").exec().get_body(),
        "POST /\na literal");
#ifdef __cpp_lib_span
    const auto bytes = std::as_bytes(std::span<const char>("span", 4));
    EXPECT_EQ(one->POST(origin.url()).set_body_view("", bytes).exec().get_body(), "POST /\nspan");
#endif
}

TEST_F(watching, a_document_of_ones_own_goes_through_its_codec) {
    server origin([](auto &client, const auto &asked) { client.answer(200, asked.body); });
    const auto one = request();
    one->REST(origin.url(), "POST", further::pair{"a", "b"}).exec();
    EXPECT_EQ(one->get_body(), R"({"a":"b"})");
    further::pair back;
    ASSERT_TRUE(one->get_json(back));
    EXPECT_EQ(back.name + back.value, "ab");
    EXPECT_FALSE(request()->GET(origin.url()).exec().get_json(back));
}

TEST_F(watching, a_user_that_cannot_be_one_is_refused_with_curlevs_number) {
    EXPECT_EQ(
        request()->GET("http://a%0Ab:c@127.0.0.1/").exec().get_code(), code::authentication_set);
}

TEST_F(throwing, in_any_callback_ends_its_own_request_with_its_words) {
    server origin(slowly);
    const auto fails = [](const char *where) { throw std::runtime_error(where); };
    for (const bool threaded : {false, true}) {
        const auto check = [&](const char *where, auto add) {
            const auto one = request();
            one->GET(origin.url()).threaded_callback(threaded);
            add(*one);
            EXPECT_EQ(one->exec().get_code(), code::user_callback) << where;
            EXPECT_EQ(one->get_error().kind, error_kind::callback) << where;
            EXPECT_EQ(one->get_error().message, where);
            EXPECT_EQ(one->get_body(), "") << where;
        };
        check("head", [&](http &one) { one.on_head([&](const response &) { fails("head"); }); });
        check("interim",
            [&](http &one) { one.on_interim([&](const response &) { fails("interim"); }); });
        check("body", [&](http &one) { one.on_body([&](std::string_view) { fails("body"); }); });
        check("event",
            [&](http &one) { one.on_event([&](const server_event &) { fails("event"); }); });
        check("progress",
            [&](http &one) { one.on_progress([&](const progress &) { fails("progress"); }); });
        check("debug",
            [&](http &one) { one.on_debug([&](debug, std::string_view) { fails("debug"); }); });
    }
    EXPECT_EQ(request()->GET(origin.url()).exec().get_code(), 200) << "others know nothing of it";
    EXPECT_EQ(engine.active_requests(), 0U);
}

TEST_F(throwing, in_a_rewind_ends_the_request_whose_body_was_needed_once_more) {
    server origin([](auto &client, const auto &asked) {
        client.answer(asked.path() == "/end" ? 200 : 307, asked.body, "Location: /end\r\n");
    });
    for (const bool threaded : {false, true}) {
        const auto one = request();
        bool given = false;
        one->POST(origin.url())
            .follow_location(follow::as_written)
            .threaded_callback(threaded)
            .set_body_source(
                "text/plain",
                [&](char *buffer, std::size_t) -> std::optional<std::size_t> {
                    buffer[0] = 'x';
                    return std::exchange(given, true) ? 0 : 1;
                },
                std::nullopt, []() -> bool { throw std::runtime_error("no way back"); });
        EXPECT_EQ(one->exec().get_code(), code::user_callback);
        EXPECT_EQ(one->get_error().message, "no way back");
    }
}

TEST_F(placing, callbacks_run_on_the_programs_executor_one_at_a_time) {
    server origin(support::echo);
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> jobs;
    bool ends = false;
    std::thread loop([&] {
        std::unique_lock lock(mutex);
        while (!ends || !jobs.empty()) {
            if (jobs.empty()) {
                changed.wait(lock);
                continue;
            }
            const auto job = std::move(jobs.front());
            jobs.pop_front();
            lock.unlock();
            job();
            lock.lock();
        }
    });
    const auto place = loop.get_id();
    async engine;
    ASSERT_TRUE(engine.executor([&](std::function<void()> job) {
        const std::lock_guard lock(mutex);
        if (ends) {
            return false;
        }
        jobs.push_back(std::move(job));
        changed.notify_one();
        return true;
    }));
    std::atomic<int> done = 0;
    std::atomic<int> on_other_threads = 0;
    std::atomic<int> running = 0;
    std::atomic<int> at_once = 0;
    const auto told = [&](const http &answer) {
        at_once += running++ > 0 ? 1 : 0;
        on_other_threads += std::this_thread::get_id() == place ? 0 : 1;
        done += answer.get_code() == 200 ? 1 : 0;
        --running;
    };
    for (int at = 0; at < 200; ++at) {
        http::create(engine)->GET(origin.url()).start(told);
    }
    const auto streamed = http::create(engine);
    streamed->GET(origin.url())
        .on_body([&](std::string_view) {
            on_other_threads += std::this_thread::get_id() == place ? 0 : 1;
        })
        .start();
    EXPECT_EQ(streamed->join().get_code(), 200);
    EXPECT_FALSE(engine.executor(nullptr)) << "it has begun";
    EXPECT_FALSE(engine.stop());
    EXPECT_EQ(done, 200);
    EXPECT_EQ(on_other_threads, 0);
    EXPECT_EQ(at_once, 0);

    // The loop ends: the engine's own thread goes on.
    {
        const std::lock_guard lock(mutex);
        ends = true;
        changed.notify_one();
    }
    loop.join();
    engine.start();
    for (int at = 0; at < 20; ++at) {
        http::create(engine)->GET(origin.url()).start(told);
    }
    EXPECT_FALSE(engine.stop());
    EXPECT_EQ(done, 220);
    EXPECT_EQ(at_once, 0);
}

TEST_F(placing, an_executor_that_throws_has_not_taken_its_job) {
    server origin(support::echo);
    async engine;
    std::atomic<int> asked = 0;
    ASSERT_TRUE(engine.executor([&](const std::function<void()> &) -> bool {
        ++asked;
        throw std::runtime_error("full");
    }));
    std::atomic<int> done = 0;
    for (int at = 0; at < 5; ++at) {
        http::create(engine)->GET(origin.url()).start([&](const http &) { ++done; });
    }
    EXPECT_FALSE(engine.stop());
    EXPECT_EQ(done, 5);
    EXPECT_EQ(asked, 1);
}
