// What curlev has not: proxies of each kind, Digest, cookies in jars, ranges, unix sockets, overrides, interceptors, timings.
#include <sys/socket.h>

#include "support.hpp"

using namespace hearth;
using namespace std::chrono_literals;
using scripted::server;
using support::folder;

class authentications : public support::with_engine {};
class cookies : public support::with_engine {};
class proxies : public support::with_engine {};
class ways : public support::with_engine {};
class interceptors : public support::with_engine {};

TEST_F(authentications, digest_answers_the_challenge_and_goes_on_without_a_new_one) {
    server origin([](auto &client, const auto &asked) {
        const auto given = asked.field("Authorization");
        if (given.find("response=") == std::string::npos) {
            client.answer(401, "",
                "WWW-Authenticate: Digest realm=\"r\", nonce=\"n1\", qop=\"auth\", "
                "algorithm=SHA-256\r\n");
        } else {
            client.answer(200, given);
        }
    });
    const auto one = request();
    EXPECT_EQ(one->POST(origin.url("/dir?q=1"))
                  .digest("Mufasa", "Circle, of \"Life\"")
                  .set_body("text/plain", "b")
                  .exec()
                  .get_code(),
        200);
    const auto &given = one->get_body();
    for (const std::string part : {"username=\"Mufasa\"", "realm=\"r\"", "nonce=\"n1\"",
             "uri=\"/dir?q=1\"", "qop=auth", "nc=00000001", "algorithm=SHA-256"}) {
        EXPECT_NE(given.find(part), std::string::npos) << part << " in " << given;
    }
    EXPECT_EQ(origin.seen().back().body, "b");
}

TEST_F(authentications, digest_that_is_refused_ends_with_401_and_not_in_a_circle) {
    server origin([](auto &client, const auto &) {
        client.answer(
            401, "", "WWW-Authenticate: Digest realm=\"r\", nonce=\"n\", qop=\"auth\"\r\n");
    });
    EXPECT_EQ(request()
                  ->GET(origin.url())
                  .authentication("mode=digest,user=u,secret=wrong")
                  .exec()
                  .get_code(),
        401);
    EXPECT_LE(origin.requests(), 3U);
}

TEST_F(authentications, bearer_and_basic_go_with_the_first_request) {
    server origin(support::echo);
    request()->GET(origin.url()).bearer("token").exec();
    request()
        ->GET(origin.url())
        .authentication("mode=basic,user=Aladdin,secret=open sesame")
        .exec();
    EXPECT_EQ(origin.seen().at(0).field("Authorization"), "Bearer token");
    EXPECT_EQ(origin.seen().at(1).field("Authorization"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
}

TEST_F(cookies, of_an_object_stay_with_it_and_are_no_other_objects) {
    server origin([](auto &client, const auto &asked) {
        client.answer(200, asked.field("Cookie"),
            asked.path() == "/set" ? "Set-Cookie: a=1\r\nSet-Cookie: b=2; Path=/set\r\n" : "");
    });
    const auto one = request();
    one->GET(origin.url("/set")).options("cookies=1").exec();
    EXPECT_EQ(one->GET(origin.url("/get")).options("cookies=1").exec().get_body(), "a=1");
    EXPECT_EQ(one->GET(origin.url("/get")).exec().get_body(), "") << "only where they are wanted";
    EXPECT_EQ(request()->GET(origin.url("/get")).options("cookies=1").exec().get_body(), "");
}

TEST_F(cookies, of_a_jar_are_shared_saved_and_loaded) {
    server origin([](auto &client, const auto &asked) {
        client.answer(200, asked.field("Cookie"),
            asked.path() == "/set" ? "Set-Cookie: a=1; Max-Age=1000; Path=/\r\n" : "");
    });
    const cookie_jar jar;
    request()->GET(origin.url("/set")).cookies(jar).exec();
    EXPECT_EQ(request()->GET(origin.url("/get")).cookies(jar).exec().get_body(), "a=1");
    EXPECT_EQ(jar.cookies(origin.url()), "a=1");
    cookie_jar other;
    EXPECT_TRUE(other.load(jar.save()));
    EXPECT_EQ(other.cookies(origin.url()), "a=1");
    EXPECT_TRUE(other.add(origin.url(), "c=3"));
    EXPECT_EQ(request()->GET(origin.url("/get")).cookies(other).exec().get_body().size(),
        std::string("a=1; c=3").size());
    EXPECT_EQ(jar.cookies(origin.url()), "a=1") << "each its own";
    other.clear();
    EXPECT_EQ(other.cookies(origin.url()), "");
    EXPECT_FALSE(other.load("no jar"));
}

TEST_F(cookies, of_the_engines_jar_are_for_all_who_ask_for_it) {
    server origin([](auto &client, const auto &asked) {
        client.answer(200, asked.field("Cookie"), "Set-Cookie: s=1\r\n");
    });
    engine.options("cookies=2");
    request()->GET(origin.url()).exec();
    EXPECT_EQ(request()->GET(origin.url()).exec().get_body(), "s=1");
    EXPECT_EQ(engine.jar().cookies(origin.url()), "s=1");
}

TEST_F(proxies, for_http_are_asked_for_the_whole_url_with_their_own_credentials) {
    server proxy([](auto &client, const auto &asked) {
        client.answer(200, asked.target + " " + asked.field("Proxy-Authorization"));
    });
    const auto one = request();
    one->GET("http://origin.test/p?q=1")
        .proxy("http://user:p%2Css@127.0.0.1:" + std::to_string(proxy.port()));
    EXPECT_EQ(one->exec().get_body(), "http://origin.test/p?q=1 Basic dXNlcjpwLHNz");
    one->GET("http://origin.test/")
        .options("proxy=\"http://127.0.0.1:" + std::to_string(proxy.port()) + "\"");
    EXPECT_EQ(one->exec().get_body(), "http://origin.test/ ");
}

TEST_F(proxies, that_refuse_or_are_not_there_are_told_apart) {
    server proxy([](auto &client, const auto &) { client.answer(407, "who are you"); });
    const scripted::dead_port closed;
    const auto one = request();
    EXPECT_EQ(one->GET("http://origin.test/").proxy(proxy.url()).exec().get_code(), 407);
    one->GET("https://origin.test/").proxy(proxy.url()).exec();
    EXPECT_EQ(one->get_error().kind, error_kind::proxy);
    one->GET("http://origin.test/").proxy(closed.url()).exec();
    EXPECT_TRUE(one->get_error());
    EXPECT_EQ(
        one->GET("http://origin.test/").proxy("nonsense://x").exec().get_code(), code::options_set);
}

TEST_F(proxies, of_socks_carry_a_request_with_and_without_a_password) {
    server origin(support::echo);
    // RFC 1928 and 1929, as far as a test needs them.
    support::note user;
    const auto socks = server::raw([&](auto &client) {
        const auto read = [&](std::size_t size) {
            std::string bytes(size, '\0');
            std::size_t have = 0;
            while (have < size) {
                const auto got = ::recv(client.socket(), bytes.data() + have, size - have, 0);
                if (got <= 0) {
                    return std::string();
                }
                have += static_cast<std::size_t>(got);
            }
            return bytes;
        };
        const auto hello = read(2);
        if (hello.size() < 2 || hello[0] != 5) {
            return;
        }
        const auto methods = read(static_cast<unsigned char>(hello[1]));
        if (methods.find('\x02') != std::string::npos) {
            client.write(std::string_view("\5\2", 2));
            read(1);
            const auto name = read(static_cast<unsigned char>(read(1)[0]));
            const auto secret = read(static_cast<unsigned char>(read(1)[0]));
            user.set(name + "/" + secret);
            client.write(std::string_view("\1\0", 2));
        } else {
            client.write(std::string_view("\5\0", 2));
        }
        const auto head = read(4);
        if (head[3] == 1) {
            read(6);
        } else {
            read(static_cast<unsigned char>(read(1)[0]) + 2U);
        }
        client.write(std::string_view("\5\0\0\1\0\0\0\0\0\0", 10));
        client.relay(origin.port());
    });
    const auto at = "127.0.0.1:" + std::to_string(socks->port());
    EXPECT_EQ(
        request()->GET(origin.url("/a")).proxy("socks5://" + at).exec().get_body(), "GET /a\n");
    EXPECT_EQ(request()
                  ->GET("http://named.test:" + std::to_string(origin.port()) + "/b")
                  .proxy("socks5h://joe:secret@" + at)
                  .exec()
                  .get_body(),
        "GET /b\n");
    EXPECT_EQ(user.get(), "joe/secret");
}

TEST_F(ways, to_a_unix_socket_are_taken_whatever_the_urls_host) {
    const folder folder;
    server origin(support::echo, folder / "socket");
    const auto one = request();
    EXPECT_EQ(one->GET("http://docker.test/info").unix_socket(folder / "socket").exec().get_body(),
        "GET /info\n");
    EXPECT_EQ(origin.seen().at(0).field("Host"), "docker.test");
    EXPECT_TRUE(one->GET("http://docker.test/").unix_socket(folder / "none").exec().get_error());
}

TEST_F(ways, that_are_overridden_need_no_name_service) {
    server origin(support::echo);
    const auto port = std::to_string(origin.port());
    EXPECT_EQ(request()
                  ->GET("http://nowhere.invalid:" + port + "/x")
                  .resolve({"nowhere.invalid:" + port + ":127.0.0.1"})
                  .exec()
                  .get_body(),
        "GET /x\n");
    EXPECT_EQ(origin.seen().at(0).field("Host"), "nowhere.invalid:" + port);
}

TEST_F(ways, to_private_addresses_can_be_refused_also_after_a_look_up_and_a_redirect) {
    server origin(support::echo);
    const auto one = request();
    const auto port = std::to_string(origin.port());
    for (const auto &url : {origin.url(), "http://localhost:" + port + "/",
             "http://127.1:" + port + "/", "http://[::ffff:127.0.0.1]:" + port + "/"}) {
        one->GET(url).private_addresses(false).exec();
        EXPECT_EQ(one->get_error().kind, error_kind::denied)
            << url << " " << one->get_error().message;
    }
    EXPECT_EQ(origin.requests(), 0U);
    async own;
    own.deny("127.0.0.0/8");
    own.start();
    const auto denied = http::create(own);
    EXPECT_EQ(denied->GET(origin.url()).exec().get_error().kind, error_kind::denied);
}

TEST_F(ways, have_an_interface_and_an_ip_family) {
    server origin(support::echo);
    EXPECT_EQ(
        request()->GET(origin.url()).interface("127.0.0.1").family(ip_family::v4).exec().get_code(),
        200);
    EXPECT_TRUE(request()->GET(origin.url()).family(ip_family::v6).exec().get_error());
}

TEST_F(ways, tell_how_long_each_part_of_them_took) {
    server origin([](auto &client, const auto &asked) {
        client.sleep(30ms);
        support::echo(client, asked);
    });
    const auto one = request();
    one->GET(origin.url()).exec();
    const auto first = one->get_timings();
    EXPECT_FALSE(first.reused);
    EXPECT_GE(first.first_byte, 30ms);
    EXPECT_GE(first.total, first.first_byte);
    EXPECT_LT(first.total, support::far);
    one->GET(origin.url()).exec();
    EXPECT_TRUE(one->get_timings().reused);
    EXPECT_EQ(one->get_timings().connected.count(), 0);
}

TEST_F(ways, to_parts_of_a_document_are_ranges) {
    const std::string text = "0123456789";
    server origin([&](auto &client, const auto &asked) {
        client.answer(206, asked.field("Range"), "Content-Range: bytes 0-1/10\r\n");
    });
    EXPECT_EQ(request()->GET(origin.url()).range(2, 5).exec().get_body(), "bytes=2-5");
    EXPECT_EQ(request()->GET(origin.url()).range(7).exec().get_body(), "bytes=7-");
    EXPECT_EQ(request()->GET(origin.url()).last_bytes(3).exec().get_body(), "bytes=-3");
    EXPECT_EQ(request()->GET(origin.url()).options("range=0-1").exec().get_code(), 206);
}

TEST_F(ways, ask_for_compression_and_undo_it) {
    // gzip of "hello hello hello hello\n"
    static constexpr unsigned char packed[] = {0x1f, 0x8b, 0x08, 0, 0, 0, 0, 0, 0x02, 0x03, 0xcb,
        0x48, 0xcd, 0xc9, 0xc9, 0x57, 0xc8, 0x40, 0x27, 0xb9, 0, 0, 0x88, 0x59, 0x0b, 0x18, 0, 0,
        0};
    server origin([&](auto &client, const auto &asked) {
        if (asked.field("Accept-Encoding").find("gzip") == std::string::npos) {
            client.answer(200, "plain");
        } else {
            client.answer(200,
                std::string_view(reinterpret_cast<const char *>(packed), sizeof packed),
                "Content-Encoding: gzip\r\n");
        }
    });
    EXPECT_EQ(request()->GET(origin.url()).accept_compression(false).exec().get_body(), "plain");
    EXPECT_EQ(request()->GET(origin.url()).exec().get_body(), "hello hello hello hello\n");
    const auto bare = request()->GET(origin.url()).keep_encoding(false).launch().get();
    EXPECT_EQ(bare.get_headers()["content-encoding"], "");
    const auto kept = request()->GET(origin.url()).launch().get();
    EXPECT_EQ(kept.get_headers()["content-encoding"], "gzip");
    EXPECT_EQ(kept.get_body(), "hello hello hello hello\n");
}

namespace {

class renewing final : public interceptor {
public:
    std::atomic<int> renewed = 0;

    void before(http &request) override {
        request.bearer("token" + std::to_string(renewed.load()));
    }
    verdict after(const http &request, unsigned tries) override {
        if (request.get_code() == 401 && tries == 1) {
            ++renewed;
            return verdict::again;
        }
        return verdict::deliver;
    }
};

class throwing final : public interceptor {
public:
    explicit throwing(bool early) : early_(early) {}
    void before(http &) override {
        if (early_) {
            throw std::runtime_error("before");
        }
    }
    verdict after(const http &, unsigned) override { throw std::runtime_error("after"); }

private:
    bool early_;
};

class stubborn final : public interceptor {
public:
    verdict after(const http &, unsigned) override { return verdict::again; }
};

class noting final : public interceptor {
public:
    noting(std::string name, std::string &log) : name_(std::move(name)), log_(log) {}
    void before(http &) override { log_ += "<" + name_; }
    verdict after(const http &, unsigned) override {
        log_ += name_ + ">";
        return verdict::deliver;
    }

private:
    std::string name_;
    std::string &log_;
};

} // namespace

TEST_F(interceptors, may_change_a_request_and_have_it_made_again) {
    server origin([](auto &client, const auto &asked) {
        if (asked.field("Authorization") == "Bearer token0") {
            client.answer(401);
        } else {
            support::echo(client, asked);
        }
    });
    const auto renewer = std::make_shared<renewing>();
    engine.add_interceptor(renewer);
    std::atomic<int> told = 0;
    const auto one = request();
    one->POST(origin.url()).set_body("text/plain", "b").start([&](const http &) { ++told; }).join();
    EXPECT_EQ(one->get_body(), "POST /\nb");
    EXPECT_EQ(told, 1);
    EXPECT_EQ(renewer->renewed, 1);
    EXPECT_EQ(request()->GET(origin.url()).exec().get_code(), 200);
    EXPECT_EQ(origin.requests(), 3U);
}

TEST_F(interceptors, stand_around_each_other_like_shells) {
    server origin(support::echo);
    std::string log;
    engine.add_interceptor(std::make_shared<noting>("a", log))
        .add_interceptor(std::make_shared<noting>("b", log));
    request()->GET(origin.url()).exec();
    EXPECT_EQ(log, "<a<bb>a>");
}

TEST_F(interceptors, that_throw_or_never_have_enough_end_the_request) {
    server origin(support::echo);
    for (const bool early : {true, false}) {
        async own;
        own.add_interceptor(std::make_shared<throwing>(early));
        const auto one = http::create(own);
        EXPECT_EQ(one->GET(origin.url()).exec().get_code(), code::user_callback);
        EXPECT_EQ(one->get_error().message, early ? "before" : "after");
    }
    const auto before = origin.requests();
    async own;
    own.add_interceptor(std::make_shared<stubborn>());
    EXPECT_EQ(http::create(own)->GET(origin.url()).exec().get_code(), 200);
    EXPECT_EQ(origin.requests() - before, 11U);
}
