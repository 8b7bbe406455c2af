// Bodies that are never wholly in memory: in both directions, with pauses; files; server-sent
// events; progress.
#include "support.hpp"

using namespace hearth;
using namespace std::chrono_literals;
using scripted::dead_port;
using scripted::server;
using support::folder;

class downloads : public support::with_engine {};
class uploads : public support::with_engine {};
class event_streams : public support::with_engine {};

namespace {

std::string numbers(std::size_t size) {
    std::string text;
    for (int line = 0; text.size() < size; ++line) {
        text += std::to_string(line) + "\n";
    }
    return text;
}

} // namespace

TEST_F(downloads, come_piece_by_piece_before_the_answer_is_whole) {
    std::atomic<bool> first_was_seen = false;
    server origin([&](auto &client, const auto &) {
        client.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
        support::eventually([&] { return first_was_seen.load() || !client.open(); });
        client.write("6\r\nsecond\r\n0\r\n\r\n");
    });
    std::string body;
    int status = 0;
    const auto one = request();
    one->GET(origin.url())
        .on_head([&](const response &head) { status = head.status(); })
        .on_body([&](std::string_view piece) {
            EXPECT_EQ(status, 200);
            body += piece;
            first_was_seen = true;
        })
        .exec();
    EXPECT_EQ(body, "firstsecond");
    EXPECT_EQ(one->get_code(), 200);
    EXPECT_EQ(one->get_body(), "") << "nothing was collected";
}

TEST_F(downloads, as_streams_have_no_maximal_size) {
    const auto big = numbers(5'000'000);
    server origin([&](auto &client, const auto &) { client.answer(200, big); });
    std::string body;
    EXPECT_EQ(request()
                  ->GET(origin.url())
                  .on_body([&](std::string_view piece) { body += piece; })
                  .exec()
                  .get_code(),
        200);
    EXPECT_EQ(body, big);
}

TEST_F(downloads, stop_when_a_callback_says_so) {
    server origin([](auto &client, const auto &) { client.answer(200, numbers(1'000'000)); });
    int pieces = 0;
    const auto one = request();
    EXPECT_EQ(one->GET(origin.url())
                  .on_body([&](std::string_view) { return ++pieces < 2; })
                  .exec()
                  .get_code(),
        code::aborted);
    EXPECT_LE(pieces, 2);
    EXPECT_EQ(one->GET(origin.url())
                  .on_head([](const response &) { return flow::stop; })
                  .exec()
                  .get_code(),
        code::aborted);
}

TEST_F(downloads, end_with_what_a_callback_throws) {
    server origin([](auto &client, const auto &) { client.answer(200, "x"); });
    const auto one = request();
    for (const bool threaded : {true, false}) {
        one->GET(origin.url())
            .threaded_callback(threaded)
            .on_body([](std::string_view) { throw std::runtime_error("no room"); })
            .exec();
        EXPECT_EQ(one->get_code(), code::user_callback);
        EXPECT_EQ(one->get_error().message, "no room");
    }
}

TEST_F(downloads, that_pause_hold_the_origin_back_until_they_go_on) {
    const auto big = numbers(20'000'000);
    std::atomic<bool> written = false;
    server origin([&](auto &client, const auto &) {
        client.answer(200, big);
        written = true;
    });
    std::atomic<bool> paused = false;
    std::string body;
    const auto one = request();
    one->GET(origin.url())
        .on_body([&](std::string_view piece) {
            body += piece;
            return paused.exchange(true) ? flow::go_on : flow::pause;
        })
        .start();
    ASSERT_TRUE(support::eventually([&] { return paused.load(); }));
    std::this_thread::sleep_for(100ms);
    EXPECT_FALSE(written) << "no more is read than fits into buffers";
    EXPECT_TRUE(one->is_running());
    one->resume().join();
    EXPECT_EQ(one->get_code(), 200);
    EXPECT_TRUE(body == big);
}

TEST_F(downloads, into_files_are_there_when_they_are_whole_and_never_before) {
    const folder folder;
    const auto big = numbers(3'000'000);
    server origin([&](auto &client, const auto &asked) {
        if (asked.path() == "/whole") {
            client.answer(200, big);
        } else if (asked.path() == "/missing") {
            client.answer(404, "no such thing");
        } else {
            client.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
            client.close();
        }
    });
    const auto path = folder / "file";
    EXPECT_EQ(request()->GET(origin.url("/broken")).download_to(path).exec().get_code(), 18);
    EXPECT_EQ(request()->GET(origin.url("/missing")).download_to(path).exec().get_code(), 404);
    EXPECT_EQ(folder.size(), 0U);
    EXPECT_EQ(request()->GET(origin.url("/whole")).download_to(path).exec().get_code(), 200);
    EXPECT_TRUE(support::contents(path) == big);
    EXPECT_EQ(folder.size(), 1U);
    EXPECT_EQ(request()->GET(origin.url("/broken")).download_to(path).exec().get_code(), 18);
    EXPECT_TRUE(support::contents(path) == big) << "what was there stays";
    const auto one = request();
    one->GET(origin.url("/whole")).download_to(folder / "later/file").exec();
    EXPECT_EQ(one->get_code(), code::write_error);
    ASSERT_EQ(::mkdir((folder / "later").c_str(), 0700), 0);
    EXPECT_EQ(one->exec().get_code(), 200) << "each start tries again";
    EXPECT_TRUE(support::contents(folder / "later/file") == big);
}

TEST_F(downloads, to_the_same_file_do_not_meet_in_it) {
    const folder folder;
    std::atomic<int> begun = 0;
    std::atomic<bool> first_done = false;
    server origin([&](auto &client, const auto &asked) {
        const bool first = asked.path() == "/first";
        const std::string half(first ? 500'000 : 100'000, first ? 'a' : 'b');
        client.write(
            "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(half.size() * 2) + "\r\n\r\n");
        client.write(half);
        support::eventually([&] { return begun == 2 && (first || first_done); });
        client.write(half);
    });
    const auto path = folder / "file";
    const auto download = [&](const char *which) {
        const auto one = request();
        one->GET(origin.url(which))
            .maximal_response_size(0)
            .download_to(path)
            .on_body([&begun, told = false](
                         std::string_view) mutable { begun += std::exchange(told, true) ? 0 : 1; })
            .start();
        return one;
    };
    const auto first = download("/first");
    const auto second = download("/second");
    EXPECT_EQ(first->join().get_code(), 200);
    EXPECT_TRUE(support::contents(path) == std::string(1'000'000, 'a'));
    first_done = true;
    EXPECT_EQ(second->join().get_code(), 200);
    EXPECT_TRUE(support::contents(path) == std::string(200'000, 'b')) << "the last one stays";
    EXPECT_EQ(folder.size(), 1U);
}

TEST_F(downloads, tell_their_progress_up_to_the_end) {
    const auto big = numbers(2'500'000);
    server origin([&](auto &client, const auto &) { client.answer(200, big); });
    std::vector<std::uint64_t> received;
    std::optional<std::uint64_t> total;
    request()
        ->GET(origin.url())
        .maximal_response_size(0)
        .on_progress([&](const progress &now) {
            received.push_back(now.received);
            if (now.to_receive) {
                total = now.to_receive;
            }
        })
        .exec();
    ASSERT_FALSE(received.empty());
    EXPECT_TRUE(std::is_sorted(received.begin(), received.end()));
    EXPECT_EQ(received.back(), big.size());
    EXPECT_EQ(total, big.size());
}

TEST_F(uploads, of_known_and_unknown_length_come_from_wherever_they_like) {
    server origin(support::echo);
    const auto big = numbers(700'000);
    for (const bool known : {true, false}) {
        std::size_t at = 0;
        const auto source = [&](char *buffer, std::size_t room) -> std::optional<std::size_t> {
            const auto count = std::min<std::size_t>({room, big.size() - at, 10'000});
            big.copy(buffer, count, at);
            at += count;
            return count;
        };
        const auto one = request();
        one->POST(origin.url())
            .set_body_source("text/plain", source,
                known ? std::optional<std::uint64_t>(big.size()) : std::nullopt)
            .exec();
        EXPECT_EQ(one->get_code(), 200);
        EXPECT_TRUE(origin.seen().back().body == big);
        EXPECT_EQ(origin.seen().back().field("Transfer-Encoding"), known ? "" : "chunked");
        EXPECT_EQ(
            origin.seen().back().field("Content-Length"), known ? std::to_string(big.size()) : "");
    }
}

TEST_F(uploads, may_have_nothing_for_a_while) {
    server origin(support::echo);
    std::atomic<int> asked = 0;
    const auto one = request();
    one->POST(origin.url())
        .set_body_source("",
            [&](char *buffer, std::size_t) -> std::optional<std::size_t> {
                switch (++asked) {
                case 1:
                    buffer[0] = 'a';
                    return 1;
                case 2:
                    return std::nullopt;
                case 3:
                    buffer[0] = 'b';
                    return 1;
                default:
                    return 0;
                }
            })
        .start();
    ASSERT_TRUE(support::eventually([&] { return asked == 2; }));
    std::this_thread::sleep_for(30ms);
    EXPECT_EQ(asked, 2) << "the callback is not called again and again";
    one->resume().join();
    EXPECT_EQ(one->get_body(), "POST /\nab");
}

TEST_F(uploads, end_with_what_their_source_throws) {
    server origin(support::echo);
    const auto one = request();
    one->POST(origin.url())
        .set_body_source("",
            [](char *, std::size_t) -> std::optional<std::size_t> {
                throw std::runtime_error("disk on fire");
            })
        .exec();
    EXPECT_EQ(one->get_code(), code::user_callback);
    EXPECT_EQ(one->get_error().message, "disk on fire");
    EXPECT_EQ(origin.requests(), 0U) << "no whole request has come";
}

TEST_F(uploads, shorter_than_they_promised_are_no_whole_request) {
    server origin(support::echo);
    int turn = 0;
    const auto one = request();
    one->POST(origin.url())
        .timeout(20s)
        .set_body_source(
            "",
            [&](char *buffer, std::size_t) -> std::optional<std::size_t> {
                buffer[0] = 'x';
                return turn++ == 0 ? 1 : 0;
            },
            100)
        .exec();
    EXPECT_TRUE(one->get_error());
    EXPECT_NE(one->get_error().kind, error_kind::timeout);
    EXPECT_EQ(origin.requests(), 0U);
}

TEST_F(uploads, are_sent_once_more_after_a_redirect_where_they_can_be_had_once_more) {
    server origin([](auto &client, const auto &asked) {
        if (asked.path() == "/end") {
            support::echo(client, asked);
        } else {
            client.answer(307, "", "Location: /end\r\n");
        }
    });
    bool done = false;
    const auto source = [&](char *buffer, std::size_t) -> std::optional<std::size_t> {
        buffer[0] = 'x';
        return std::exchange(done, true) ? 0 : 1;
    };
    const auto one = request();
    one->POST(origin.url())
        .options("follow_location=1")
        .set_body_source("", source, 1,
            [&] {
                done = false;
                return true;
            })
        .exec();
    EXPECT_EQ(one->get_body(), "POST /end\nx");
    done = false;
    one->POST(origin.url()).options("follow_location=1").set_body_source("", source, 1).exec();
    EXPECT_EQ(one->get_error().kind, error_kind::bad_request) << "it is gone, and that is said";
}

namespace {

// Has one byte, once.
struct single {
    std::shared_ptr<bool> done = std::make_shared<bool>(false);

    std::optional<std::size_t> operator()(char *buffer, std::size_t) const {
        buffer[0] = 'x';
        return std::exchange(*done, true) ? 0 : 1;
    }
};

class twice final : public interceptor {
public:
    verdict after(const http &, unsigned tries) override {
        return tries == 1 ? verdict::again : verdict::deliver;
    }
};

} // namespace

TEST_F(uploads, that_can_be_had_once_are_not_sent_once_more_without_what_was_in_them) {
    server origin(support::echo);
    const auto one = request();
    one->POST(origin.url()).set_body_source("", single()).exec();
    EXPECT_EQ(one->get_body(), "POST /\nx");
    EXPECT_EQ(one->exec().get_code(), code::body_set);
    EXPECT_EQ(one->exec().get_code(), code::body_set);
    EXPECT_EQ(origin.requests(), 1U);
    async own;
    own.add_interceptor(std::make_shared<twice>());
    const auto other = http::create(own);
    EXPECT_EQ(
        other->POST(origin.url()).set_body_source("", single()).exec().get_code(), code::body_set);
    EXPECT_EQ(origin.requests(), 2U);
    bool there = false;
    one->POST(origin.url())
        .set_body_source("", single(), std::nullopt, [&] { return there; })
        .exec();
    EXPECT_EQ(one->exec().get_code(), code::body_set);
    there = true;
    EXPECT_EQ(one->exec().get_code(), 200) << "each start asks again";
    // No part of it was read yet: it is complete.
    dead_port closed;
    one->POST(closed.url()).set_body_source("", single()).exec();
    EXPECT_EQ(one->exec().get_code(), 7);
}

TEST_F(uploads, are_what_was_said_last) {
    server origin(support::echo);
    const support::folder folder;
    const auto path = folder.write("a", "file");
    const auto one = request();
    for (int kind = 0; kind < 3; ++kind) {
        int rewound = 0;
        one->POST(origin.url()).set_body_source("", single(), 1, [&] { return ++rewound == 0; });
        EXPECT_EQ(one->exec().get_body(), "POST /\nx");
        if (kind == 0) {
            one->set_body("", "text");
        } else if (kind == 1) {
            one->set_body_view("", "view");
        } else {
            one->set_body_file("", path);
        }
        const auto body = kind == 0 ? "text" : kind == 1 ? "view" : "file";
        EXPECT_EQ(one->exec().get_body(), std::string("POST /\n") + body);
        EXPECT_EQ(one->exec().get_body(), std::string("POST /\n") + body);
        EXPECT_EQ(rewound, 0);
    }
}

TEST_F(uploads, have_trailers_behind_them) {
    server origin(support::echo);
    bool done = false;
    const auto one = request();
    one->POST(origin.url())
        .set_body_source("",
            [&](char *buffer, std::size_t) -> std::optional<std::size_t> {
                buffer[0] = 'x';
                return std::exchange(done, true) ? 0 : 1;
            })
        .add_trailers({{"X-Sum", "42"}})
        .exec();
    ASSERT_EQ(one->get_code(), 200);
    ASSERT_EQ(origin.seen().at(0).trailers.size(), 1U);
    EXPECT_EQ(origin.seen().at(0).trailers[0].second, "42");
}

TEST_F(uploads, wait_for_100_when_asked_and_are_spared_when_the_answer_is_no) {
    server willing(support::echo);
    EXPECT_EQ(request()->PUT(willing.url()).expect_continue().set_body("", "yes").exec().get_body(),
        "PUT /\nyes");
    EXPECT_EQ(willing.seen().at(0).field("Expect"), "100-continue");
    const auto refusing = server::raw([](auto &client) {
        client.read_head();
        client.answer(417, "no", "Connection: close\r\n");
        client.wait_for_end();
    });
    const auto one = request();
    EXPECT_EQ(one->PUT(refusing->url())
                  .expect_continue()
                  .set_body("", std::string(100'000, 'x'))
                  .exec()
                  .get_code(),
        417);
}

TEST_F(downloads, have_trailers_behind_them) {
    server origin([](auto &client, const auto &) {
        client.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: "
                     "X-Sum\r\n\r\n1\r\nx\r\n0\r\nX-Sum: 42\r\n\r\n");
    });
    const auto one = request();
    EXPECT_EQ(one->GET(origin.url()).exec().get_body(), "x");
    EXPECT_EQ(one->get_trailers()["x-sum"], "42");
    EXPECT_FALSE(one->get_headers().contains("x-sum"));
}

TEST_F(event_streams, tell_each_event_as_it_comes) {
    std::atomic<int> told = 0;
    server origin([&](auto &client, const auto &asked) {
        EXPECT_EQ(asked.field("Accept"), "text/event-stream");
        client.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\nid: "
                     "1\ndata: one\n\n");
        support::eventually([&] { return told == 1; });
        client.write("event: tick\ndata: two\n\ndata: never ended");
        client.close();
    });
    std::vector<server_event> events;
    const auto one = request();
    one->GET(origin.url())
        .on_event([&](const server_event &event) {
            events.push_back(event);
            ++told;
        })
        .exec();
    EXPECT_EQ(one->get_code(), 200);
    ASSERT_EQ(events.size(), 2U);
    EXPECT_EQ(events[0].data, "one");
    EXPECT_EQ(events[1].type, "tick");
    EXPECT_EQ(events[1].id, "1");
}

TEST_F(event_streams, without_an_end_of_an_event_end_as_too_large) {
    server origin([&](auto &client, const auto &) {
        client.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: one\n\n");
        client.write(std::string(3'000'000, 'x') + "\n\n");
        client.close();
    });
    int told = 0;
    const auto take = [&](const server_event &) { ++told; };
    const auto one = request();
    one->GET(origin.url()).on_event(take).exec();
    EXPECT_EQ(one->get_code(), code::write_error);
    EXPECT_EQ(one->get_error().kind, error_kind::too_large);
    EXPECT_EQ(one->get_error().message, "an event is longer than 2000000 bytes");
    EXPECT_EQ(told, 1);
    EXPECT_EQ(one->GET(origin.url()).on_event(take, 4'000'000).exec().get_code(), 200);
    EXPECT_EQ(one->GET(origin.url()).on_event(take, 0).exec().get_code(), 200);
}

TEST_F(event_streams, are_not_seen_in_answers_that_are_none) {
    server origin([](auto &client, const auto &) {
        client.answer(200, "data: no\n\n", "Content-Type: text/html\r\n");
    });
    int told = 0;
    EXPECT_EQ(request()
                  ->GET(origin.url())
                  .on_event([&](const server_event &) { ++told; })
                  .exec()
                  .get_code(),
        200);
    EXPECT_EQ(told, 0);
}
