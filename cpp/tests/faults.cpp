// Servers that misbehave. A client must never hang, spin, report a wrong result, or repeat a request that must not be
// repeated.
#include <sys/resource.h>

#include "support.hpp"

using namespace hearth;
using namespace std::chrono_literals;
using scripted::server;
using clock_type = std::chrono::steady_clock;

class time_limits : public support::with_engine {};
class liars : public support::with_engine {};
class connections : public support::with_engine {};
class redirects : public support::with_engine {};
class sizes : public support::with_engine {};
class repeats : public support::with_engine {};

namespace {

std::chrono::milliseconds cpu_time() {
    rusage used = {};
    ::getrusage(RUSAGE_SELF, &used);
    const auto of = [](const timeval &time) {
        return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
    };
    return std::chrono::duration_cast<std::chrono::milliseconds>(
        of(used.ru_utime) + of(used.ru_stime));
}

// A raw answer to each request.
server answering(std::string text) {
    return server([text = std::move(text)](auto &client, const auto &) { client.write(text); });
}
// The same, after which the connection is closed.
server answering_once(std::string text) {
    return server([text = std::move(text)](auto &client, const auto &) {
        client.write(text);
        client.close();
    });
}

} // namespace

TEST_F(time_limits, fire_on_a_server_that_accepts_and_says_nothing) {
    const auto origin = server::raw([](auto &client) { client.wait_for_end(); });
    const auto one = request();
    const auto begun = clock_type::now();
    EXPECT_EQ(one->GET(origin->url()).options("timeout=150").exec().get_code(), code::timed_out);
    const auto took = clock_type::now() - begun;
    EXPECT_EQ(one->get_error().kind, error_kind::timeout);
    EXPECT_GE(took, 150ms);
    EXPECT_LT(took, support::far);
}

TEST_F(time_limits, fire_in_every_combination_on_a_silent_server) {
    const auto origin = server::raw([](auto &client) { client.wait_for_end(); });
    for (const auto connect : {0, 100, 100'000}) {
        for (const auto whole : {0, 120, 100'000}) {
            for (const auto idle : {0, 140, 100'000}) {
                if (whole != 120 && idle != 140) {
                    continue; // nothing would end it: it has its connection
                }
                const auto one = request();
                const auto begun = clock_type::now();
                one->GET(origin->url())
                    .connect_timeout(std::chrono::milliseconds(connect))
                    .timeout(std::chrono::milliseconds(whole))
                    .idle_timeout(std::chrono::milliseconds(idle));
                EXPECT_EQ(one->exec().get_code(), code::timed_out)
                    << connect << " " << whole << " " << idle;
                EXPECT_GE(clock_type::now() - begun, whole == 120 ? 120ms : 140ms)
                    << connect << " " << whole << " " << idle;
            }
        }
    }
}

TEST_F(time_limits, for_the_whole_fire_on_a_server_that_drips_and_those_between_pieces_do_not) {
    server origin([](auto &client, const auto &) {
        client.drip("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n", 8, 1ms);
        client.drip("abcdef", 1, 40ms);
    });
    server endless([](auto &client, const auto &) {
        client.write("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
        client.drip(std::string(100'000, 'x'), 1, 5ms);
    });
    EXPECT_EQ(request()->GET(origin.url()).idle_timeout(20s).exec().get_body(), "abcdef");
    EXPECT_EQ(request()->GET(endless.url()).idle_timeout(20s).timeout(150ms).exec().get_code(),
        code::timed_out);
}

TEST_F(time_limits, between_pieces_fire_when_a_server_stops_in_the_middle) {
    server origin([](auto &client, const auto &) {
        client.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
        client.wait_for_end();
    });
    const auto one = request();
    EXPECT_EQ(one->GET(origin.url()).idle_timeout(3s).exec().get_code(), code::timed_out);
    EXPECT_EQ(one->status(), 200) << "the head had come";
    EXPECT_EQ(one->get_body(), "");
}

TEST_F(time_limits, of_one_request_leave_others_on_the_same_host_alone) {
    server origin([](auto &client, const auto &asked) {
        if (asked.target == "/slow") {
            client.wait_for_end();
        } else {
            support::echo(client, asked);
        }
    });
    const auto slow = request();
    slow->GET(origin.url("/slow")).timeout(100ms).start();
    for (int turn = 0; turn < 20; ++turn) {
        EXPECT_EQ(request()->GET(origin.url()).exec().get_code(), 200);
    }
    EXPECT_EQ(slow->join().get_code(), code::timed_out);
}

TEST_F(time_limits, waiting_costs_no_processor_time) {
    const auto origin = server::raw([](auto &client) { client.wait_for_end(); });
    const auto one = request();
    const auto before = cpu_time();
    one->GET(origin->url()).timeout(500ms).exec();
    // The scripted server looks up every 20 ms; a busy loop would take the 500 ms whole.
    EXPECT_LT(cpu_time() - before, 200ms);
    EXPECT_EQ(one->get_code(), code::timed_out);
}

TEST_F(liars, that_promise_more_than_they_send_are_not_believed) {
    const auto origin = answering_once("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort");
    const auto one = request();
    EXPECT_EQ(one->GET(origin.url()).exec().get_code(), 18) << "CURLE_PARTIAL_FILE";
    EXPECT_EQ(one->get_error().kind, error_kind::reset);
    EXPECT_EQ(one->get_body(), "");
}

TEST_F(liars, that_send_more_than_they_promise_do_not_spoil_the_next_answer) {
    const auto origin = answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nright, and wrong: "
                                  "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
    for (int turn = 0; turn < 3; ++turn) {
        const auto one = request();
        EXPECT_EQ(one->GET(origin.url()).exec().get_code(), 200);
        EXPECT_EQ(one->get_body(), "right");
    }
}

TEST_F(liars, that_say_two_lengths_or_a_length_that_is_none_are_refused) {
    for (const std::string fields :
        {"Content-Length: 5\r\nContent-Length: 6\r\n", "Content-Length: five\r\n",
            "Content-Length: -5\r\n", "Content-Length: 99999999999999999999\r\n"}) {
        const auto origin = answering_once("HTTP/1.1 200 OK\r\n" + fields + "\r\nhello!");
        const auto one = request();
        EXPECT_LT(one->GET(origin.url()).exec().get_code(), 100) << fields;
        EXPECT_TRUE(one->get_error()) << fields;
    }
}

TEST_F(liars, whose_chunks_are_broken_are_not_believed) {
    for (const std::string body :
        {"5\r\nhel", "zz\r\nhello\r\n0\r\n\r\n", "5\r\nhello0\r\n\r\n", "5\r\nhello\r\n"}) {
        const auto origin =
            answering_once("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body);
        const auto one = request();
        EXPECT_LT(one->GET(origin.url()).exec().get_code(), 100) << body;
        EXPECT_EQ(one->get_body(), "") << body;
    }
}

TEST_F(liars, that_speak_no_http_or_nothing_at_all_are_told_apart) {
    const auto rubbish = answering_once("SSH-2.0-OpenSSH_9.2\r\n\r\n");
    const auto nothing = server::raw([](auto &client) {
        client.read_head();
        client.close();
    });
    const auto reset = server::raw([](auto &client) {
        client.read_head();
        client.reset();
    });
    const scripted::dead_port closed;
    const auto one = request();
    one->GET(rubbish.url()).exec();
    EXPECT_EQ(one->get_error().kind, error_kind::protocol);
    EXPECT_EQ(one->GET(nothing->url()).exec().get_code(), code::got_nothing);
    EXPECT_EQ(one->get_error().kind, error_kind::empty);
    EXPECT_EQ(one->GET(reset->url()).exec().get_code(), code::receive_error);
    EXPECT_EQ(one->get_error().kind, error_kind::reset);
    EXPECT_EQ(one->GET(closed.url()).exec().get_code(), code::could_not_connect);
    EXPECT_EQ(one->get_error().kind, error_kind::connect);
    EXPECT_EQ(one->GET("http://nowhere.invalid/").exec().get_code(), code::could_not_resolve);
    EXPECT_EQ(one->get_error().kind, error_kind::resolve);
}

TEST_F(liars, that_reset_in_the_middle_of_a_body_are_told) {
    server origin([](auto &client, const auto &) {
        client.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
        client.sleep(20ms);
        client.reset();
    });
    const auto one = request();
    one->GET(origin.url()).exec();
    EXPECT_EQ(one->get_error().kind, error_kind::reset);
    EXPECT_EQ(one->status(), 200);
}

TEST_F(liars, with_an_encoding_that_is_none_are_told) {
    const auto origin =
        answering("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello");
    const auto one = request();
    EXPECT_EQ(one->GET(origin.url()).exec().get_code(), 61) << "CURLE_BAD_CONTENT_ENCODING";
}

TEST_F(connections, that_were_closed_while_they_were_idle_cost_no_request_its_answer) {
    server origin([](auto &client, const auto &asked) {
        support::echo(client, asked);
        client.close(); // without a word of it in the answer
    });
    for (int turn = 0; turn < 50; ++turn) {
        EXPECT_EQ(request()->GET(origin.url()).exec().get_code(), 200) << turn;
    }
    EXPECT_EQ(origin.requests(), 50U);
}

TEST_F(connections, that_close_under_load_cost_no_idempotent_request_its_answer) {
    std::atomic<unsigned> served = 0;
    server origin([&](auto &client, const auto &asked) {
        support::echo(client, asked);
        if (++served % 7 == 0) {
            client.close();
        }
    });
    std::atomic<int> good = 0;
    for (int at = 0; at < 1000; ++at) {
        request()->GET(origin.url()).maximum_retries(3, 5).start([&](const http &done) {
            good += done.get_code() == 200 ? 1 : 0;
        });
    }
    engine.stop();
    EXPECT_EQ(good, 1000);
}

TEST_F(connections, a_post_on_a_connection_that_dies_under_it_is_never_sent_twice) {
    server origin([](auto &client, const auto &asked) {
        if (asked.method == "POST") {
            client.close();
        } else {
            support::echo(client, asked);
        }
    });
    EXPECT_EQ(request()->GET(origin.url()).exec().get_code(), 200);
    const auto one = request();
    one->POST(origin.url()).maximum_retries(5, 1).set_body("text/plain", "once").exec();
    EXPECT_TRUE(one->get_error());
    EXPECT_EQ(origin.requests(), 2U) << "the GET, and the POST once";
}

TEST_F(connections, are_closed_after_an_answer_that_says_so) {
    const auto origin =
        answering_once("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
    const auto old = answering_once("HTTP/1.0 200 OK\r\n\r\nuntil the end");
    for (int turn = 0; turn < 3; ++turn) {
        EXPECT_EQ(request()->GET(origin.url()).exec().get_body(), "ok");
        EXPECT_EQ(request()->GET(old.url()).exec().get_body(), "until the end");
    }
    EXPECT_EQ(origin.connections(), 3U);
}

TEST_F(redirects, are_not_followed_unless_asked_and_say_where_they_point) {
    server origin(
        [](auto &client, const auto &) { client.answer(302, "", "Location: ../there?x=1\r\n"); });
    const auto one = request();
    EXPECT_EQ(one->GET(origin.url("/a/b")).exec().get_code(), 302);
    EXPECT_EQ(one->get_redirect_url(), origin.url("/there?x=1"));
    EXPECT_EQ(origin.requests(), 1U);
}

TEST_F(redirects, of_each_status_change_the_method_as_they_should) {
    server origin([](auto &client, const auto &asked) {
        if (asked.path() == "/end") {
            support::echo(client, asked);
        } else {
            client.answer(std::stoi(asked.path().substr(1)), "", "Location: /end\r\n");
        }
    });
    const auto follow = [&](std::string_view verb, int status, int mode) {
        const auto one = request();
        one->REQUEST(verb, origin.url("/" + std::to_string(status)))
            .follow_location(static_cast<enum follow>(mode));
        if (verb != "GET") {
            one->set_body("text/plain", "b");
        }
        return one->exec().get_body();
    };
    for (const int status : {301, 302, 303, 307, 308}) {
        EXPECT_EQ(follow("GET", status, 1), "GET /end\n") << status;
        EXPECT_EQ(follow("POST", status, 1), status == 303 ? "GET /end\n" : "POST /end\nb")
            << status;
        EXPECT_EQ(follow("POST", status, 2), status <= 303 ? "GET /end\n" : "POST /end\nb")
            << status;
        EXPECT_EQ(follow("PUT", status, 2), status == 303 ? "GET /end\n" : "PUT /end\nb") << status;
    }
}

TEST_F(redirects, after_303_have_neither_body_nor_its_fields) {
    server origin([](auto &client, const auto &asked) {
        if (asked.method == "POST") {
            client.answer(303, "", "Location: /end\r\n");
        } else {
            support::echo(client, asked);
        }
    });
    request()->POST(origin.url()).options("follow_location=1").set_body("text/plain", "b").exec();
    EXPECT_EQ(origin.seen().at(1).method, "GET");
    EXPECT_EQ(
        origin.seen().at(1).field("Content-Type") + origin.seen().at(1).field("Content-Length"),
        "");
}

TEST_F(redirects, in_circles_end_after_as_many_as_are_allowed) {
    server origin(
        [](auto &client, const auto &) { client.answer(302, "", "Location: /again\r\n"); });
    const auto one = request();
    EXPECT_EQ(one->GET(origin.url()).options("follow_location=1,maxredirs=3").exec().get_code(),
        code::too_many_redirects);
    EXPECT_EQ(one->get_error().kind, error_kind::redirects);
    EXPECT_EQ(origin.requests(), 4U);
}

TEST_F(redirects, to_protocols_that_are_not_safe_are_not_followed) {
    server origin([](auto &client, const auto &asked) {
        client.answer(302, "",
            asked.path() == "/file" ? "Location: file:///etc/passwd\r\n"
                                    : "Location: https://127.0.0.1/\r\n");
    });
    const auto one = request();
    const auto file = one->GET(origin.url("/file")).options("follow_location=1").exec().get_code();
    EXPECT_EQ(file, code::unsupported_protocol);
    EXPECT_EQ(one->get_body(), "");
    EXPECT_EQ(one->GET(origin.url("/https"))
                  .options("follow_location=1")
                  .safe_protocols("http")
                  .exec()
                  .get_code(),
        code::unsupported_protocol);
}

TEST_F(redirects, to_another_origin_take_no_credentials_along) {
    server other(support::echo);
    server origin([&](auto &client, const auto &) {
        client.answer(302, "", "Location: " + other.url() + "\r\n");
    });
    request()
        ->GET(origin.url())
        .options("follow_location=1")
        .basic("joe", "secret")
        .add_headers({{"Cookie", "s=1"}})
        .exec();
    ASSERT_EQ(other.requests(), 1U);
    EXPECT_EQ(other.seen()[0].field("Authorization"), "");
    EXPECT_EQ(other.seen()[0].field("Cookie"), "");
    EXPECT_NE(origin.seen()[0].field("Authorization"), "");
}

TEST_F(redirects, leave_no_fields_of_theirs_in_the_final_answer_and_their_answers_in_the_history) {
    server origin([](auto &client, const auto &asked) {
        if (asked.path() == "/end") {
            client.answer(200, "end", "X-End: 1\r\n");
        } else {
            client.answer(302, "hop body", "X-Hop: 1\r\nLocation: /end\r\n");
        }
    });
    const auto one = request();
    one->GET(origin.url()).options("follow_location=1").keep_history().exec();
    EXPECT_FALSE(one->get_headers().contains("X-Hop"));
    EXPECT_FALSE(one->get_headers().contains("Location"));
    EXPECT_TRUE(one->get_headers().contains("X-End"));
    EXPECT_EQ(one->get_url(), origin.url("/end"));
    const auto hops = one->get_response().history();
    ASSERT_EQ(hops.size(), 1U);
    EXPECT_EQ(hops[0].status(), 302);
    EXPECT_EQ(hops[0].get_headers()["X-Hop"], "1");
    EXPECT_EQ(hops[0].get_url(), origin.url("/"));
    EXPECT_EQ(one->get_timings().redirects, 1U);
}

TEST_F(sizes, over_the_limit_end_with_23_and_no_body_by_what_is_said_and_by_what_comes) {
    const auto said =
        answering("HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n" + std::string(1001, 'x'));
    server chunked([](auto &client, const auto &) {
        client.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for (int chunk = 0; chunk < 101; ++chunk) {
            client.write("a\r\n0123456789\r\n");
        }
        client.write("0\r\n\r\n");
    });
    for (const server *origin : std::initializer_list<const server *>{&said, &chunked}) {
        const auto one = request();
        EXPECT_EQ(one->GET(origin->url()).maximal_response_size(1000).exec().get_code(),
            code::write_error);
        EXPECT_EQ(one->get_error().kind, error_kind::too_large);
        EXPECT_EQ(one->get_body(), "");
        EXPECT_EQ(one->status(), 200);
        EXPECT_EQ(one->GET(origin->url()).maximal_response_size(1010).exec().get_code(), 200);
        EXPECT_GT(one->get_body().size(), 1000U);
    }
}

TEST_F(sizes, are_two_million_bytes_unless_said_otherwise) {
    const auto origin = answering(
        "HTTP/1.1 200 OK\r\nContent-Length: 2000001\r\n\r\n" + std::string(2'000'001, 'x'));
    const auto one = request();
    EXPECT_EQ(one->GET(origin.url()).exec().get_code(), code::write_error);
    EXPECT_EQ(one->GET(origin.url()).maximal_response_size(0).exec().get_body().size(), 2'000'001U);
    EXPECT_EQ(one->GET(origin.url()).exec().get_code(), code::write_error)
        << "the next GET has the default again";
}

TEST_F(sizes, of_heads_have_a_limit_too) {
    server origin([](auto &client, const auto &) {
        client.write("HTTP/1.1 200 OK\r\n");
        while (client.write("X-Padding: " + std::string(1000, 'x') + "\r\n")) {
        }
    });
    const auto one = request();
    one->GET(origin.url()).timeout(std::chrono::seconds(30)).exec();
    EXPECT_NE(one->get_error().kind, error_kind::timeout);
    EXPECT_TRUE(one->get_error());
}

TEST_F(repeats, are_made_after_429_503_and_broken_connections_and_no_more_than_asked) {
    std::atomic<int> served = 0;
    server origin([&](auto &client, const auto &asked) {
        switch (++served) {
        case 1:
            client.answer(429);
            break;
        case 2:
            client.answer(503);
            break;
        case 3:
            client.close();
            break;
        default:
            support::echo(client, asked);
        }
    });
    const auto one = request();
    EXPECT_EQ(one->GET(origin.url()).maximum_retries(3, 1).exec().get_code(), 200);
    EXPECT_GE(one->get_timings().retries, 2U)
        << "that on a connection that had been kept may be the engine's own";
    served = 0;
    EXPECT_EQ(one->GET(origin.url()).maximum_retries(1, 1).exec().get_code(), 503);
    served = 0;
    EXPECT_EQ(one->GET(origin.url()).exec().get_code(), 429)
        << "the number of tries is no other request's";
}

TEST_F(repeats, of_connections_that_cannot_be_made_take_their_pauses) {
    const scripted::dead_port closed;
    const auto one = request();
    const auto begun = clock_type::now();
    EXPECT_EQ(
        one->GET(closed.url()).maximum_retries(3, 40).exec().get_code(), code::could_not_connect);
    EXPECT_GE(clock_type::now() - begun, 120ms);
    EXPECT_EQ(one->get_timings().retries, 3U);
}

TEST_F(repeats, wait_as_long_as_the_origin_asks_for) {
    std::atomic<int> served = 0;
    server origin([&](auto &client, const auto &asked) {
        if (++served == 1) {
            client.answer(503, "", "Retry-After: 1\r\n");
        } else {
            support::echo(client, asked);
        }
    });
    retry_policy policy;
    policy.delay = 1ms;
    const auto begun = clock_type::now();
    EXPECT_EQ(request()->GET(origin.url()).retry(policy).exec().get_code(), 200);
    EXPECT_GE(clock_type::now() - begun, 1s);
}

TEST_F(repeats, that_take_longer_than_the_whole_may_end_with_its_limit) {
    server origin([](auto &client, const auto &) { client.answer(503); });
    const auto one = request();
    one->GET(origin.url()).maximum_retries(1000, 20).timeout(200ms).exec();
    EXPECT_TRUE(one->get_code() == code::timed_out || one->get_code() == 503) << one->get_code();
    EXPECT_LT(origin.requests(), 100U);
}
