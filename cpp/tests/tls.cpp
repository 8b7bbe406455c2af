// TLS and HTTP/2, with Node as origin: trusted authorities, client certificates, versions.
#include <array>
#include <fcntl.h>
#include <future>
#include <sys/wait.h>

#include "support.hpp"

using namespace hearth;
using namespace std::chrono_literals;
using support::folder;

namespace {

// Certificates created for this run by openssl: an authority, a server's for localhost, a client's, and one of an
// unknown authority.
class certificates {
public:
    static const certificates &made() {
        static const certificates instance;
        return instance;
    }
    std::string operator/(const std::string &name) const { return folder_ / name; }

    // sha256//… of the server's public key, in curl's format.
    std::string pin() const {
        const auto command = "openssl x509 -in " + folder_ / "server.pem" +
                             " -pubkey -noout | openssl pkey -pubin -outform DER | "
                             "openssl dgst -sha256 -binary | openssl enc -base64 > " +
                             folder_ / "pin";
        EXPECT_EQ(std::system(command.c_str()), 0);
        auto text = support::contents(folder_ / "pin");
        return "sha256//" + text.substr(0, text.find('\n'));
    }

private:
    certificates() {
        const std::string script =
            "set -e; cd " + folder_ / "." +
            "; exec 2>log; "
            "authority() { openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "
            "-keyout $1.key -out $1.pem -days 2 -subj /CN=$1; }; "
            "authority ca; authority stranger; "
            "leaf() { openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "
            "$1.key -out $1.csr -subj /CN=$1; "
            "printf \"$2\" > $1.ext; openssl x509 -req -in $1.csr -CA ca.pem -CAkey ca.key "
            "-CAcreateserial -out $1.pem -days 2 -extfile $1.ext; }; "
            "leaf server 'subjectAltName=DNS:localhost,IP:127.0.0.1\\n'; leaf client "
            "'extendedKeyUsage=clientAuth\\n'; "
            "openssl x509 -in client.pem -outform DER -out client.der; openssl pkcs8 -topk8 "
            "-nocrypt -in client.key -outform DER -out client.key.der; openssl pkcs8 -topk8 -in "
            "client.key -passout \"pass:open, sesame\" -out client.key.locked";
        EXPECT_EQ(std::system(("sh -c '" + quoted(script) + "'").c_str()), 0)
            << support::contents(folder_ / "log");
    }
    static std::string quoted(const std::string &text) {
        std::string out;
        for (const char c : text) {
            out += c == '\'' ? std::string("'\\''") : std::string(1, c);
        }
        return out;
    }

    folder folder_;
};

// Node with origin.js.
class tls_origin {
public:
    explicit tls_origin(const char *mode = "") {
        std::array<int, 2> in = {};
        std::array<int, 2> out = {};
        if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0) {
            throw std::runtime_error("no pipe");
        }
        const std::string script = std::string(HEARTH_TEST_DIR) + "/origin.js";
        const std::string folder = certificates::made() / ".";
        child_ = ::fork();
        if (child_ == 0) {
            ::dup2(in[0], 0);
            ::dup2(out[1], 1);
            ::execlp("node", "node", script.c_str(), folder.c_str(), mode, nullptr);
            ::_exit(127);
        }
        ::close(in[0]);
        ::close(out[1]);
        stdin_ = in[1];
        char byte;
        while (::read(out[0], &byte, 1) == 1 && byte != '\n') {
            port_ += byte;
        }
        ::close(out[0]);
    }
    tls_origin(const tls_origin &) = delete;
    tls_origin &operator=(const tls_origin &) = delete;
    ~tls_origin() {
        ::close(stdin_);
        ::waitpid(child_, nullptr, 0);
    }

    std::string url(const std::string &path = "/") const {
        return "https://localhost:" + port_ + path;
    }
    std::string by_address() const { return "https://127.0.0.1:" + port_ + "/"; }
    unsigned short port() const { return static_cast<unsigned short>(std::stoi(port_)); }

private:
    pid_t child_ = -1;
    int stdin_ = -1;
    std::string port_;
};

} // namespace

class tls : public support::with_engine {
protected:
    static void SetUpTestSuite() { origin = std::make_unique<tls_origin>(); }
    static void TearDownTestSuite() { origin.reset(); }
    static std::string ca() { return certificates::made() / "ca.pem"; }

    static std::unique_ptr<tls_origin> origin;
};
std::unique_ptr<tls_origin> tls::origin;

TEST_F(tls, believes_nobody_whose_authority_it_does_not_know) {
    const auto one = request();
    EXPECT_EQ(one->GET(origin->url()).exec().get_code(), code::peer_not_verified);
    EXPECT_EQ(one->get_error().kind, error_kind::certificate);
    one->GET(origin->url()).ca_file(certificates::made() / "stranger.pem").exec();
    EXPECT_EQ(one->get_error().kind, error_kind::certificate);
}

TEST_F(tls, believes_an_authority_from_a_file_a_folder_and_memory) {
    const auto one = request();
    EXPECT_EQ(one->GET(origin->url()).certificates("cainfo=" + ca()).exec().get_code(), 200)
        << one->get_error().message;
    EXPECT_EQ(one->GET(origin->url()).ca_pem(support::contents(ca())).exec().get_code(), 200)
        << one->get_error().message;
    EXPECT_EQ(one->GET(origin->by_address()).ca_file(ca()).exec().get_code(), 200)
        << one->get_error().message;
    const folder only;
    only.write("our.pem", support::contents(ca()));
    EXPECT_EQ(one->GET(origin->url()).certificates("capath=" + only / "").exec().get_code(), 200)
        << one->get_error().message;
    one->GET(origin->url()).exec();
    EXPECT_EQ(one->get_error().kind, error_kind::certificate)
        << "the next request has the default again, over no connection of another trust";
}

TEST_F(tls, compares_names) {
    const auto one = request();
    const auto port = std::to_string(origin->port());
    one->GET("https://other.test:" + port + "/")
        .resolve({"other.test:" + port + ":127.0.0.1"})
        .ca_file(ca())
        .exec();
    EXPECT_EQ(one->get_error().kind, error_kind::certificate);
}

TEST_F(tls, believes_everybody_only_when_it_is_told_to) {
    EXPECT_EQ(request()->GET(origin->url()).options("insecure=1").exec().get_code(), 200);
    EXPECT_EQ(request()->GET(origin->url()).exec().get_error().kind, error_kind::certificate);
}

TEST_F(tls, believes_only_the_pinned_key_where_there_is_one) {
    const auto one = request();
    EXPECT_EQ(one->GET(origin->url())
                  .ca_file(ca())
                  .pinned_key(certificates::made().pin())
                  .exec()
                  .get_code(),
        200)
        << one->get_error().message;
    one->GET(origin->url())
        .ca_file(ca())
        .pinned_key("sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
        .exec();
    EXPECT_EQ(one->get_error().kind, error_kind::certificate);
}

TEST_F(tls, shows_its_own_certificate_in_pem_and_der) {
    const tls_origin mutual("mutual");
    const auto &made = certificates::made();
    const auto one = request();
    one->GET(mutual.url()).ca_file(ca()).exec();
    EXPECT_TRUE(one->get_error()) << "without one it is not let in";
    one->GET(mutual.url())
        .ca_file(ca())
        .client_certificate(made / "client.pem", made / "client.key")
        .exec();
    EXPECT_EQ(one->get_headers()["X-Client"], "client") << one->get_error().message;
    one->GET(mutual.url())
        .certificates("cainfo=" + ca() + ",sslcert=" + made / "client.der" +
                      ",sslcerttype=DER,sslkey=" + made / "client.key.der" + ",sslkeytype=DER")
        .exec();
    EXPECT_EQ(one->get_headers()["X-Client"], "client") << one->get_error().message;
    one->GET(mutual.url())
        .ca_file(ca())
        .client_certificate(made / "client.pem", made / "client.key.locked", "open, sesame")
        .exec();
    EXPECT_EQ(one->get_headers()["X-Client"], "client") << one->get_error().message;
    one->GET(mutual.url())
        .ca_file(ca())
        .client_certificate(made / "client.pem", made / "client.key.locked", "wrong")
        .exec();
    EXPECT_EQ(one->get_code(), 58) << one->get_error().message;
}

TEST_F(tls, negotiates_http2_and_speaks_http1_where_that_is_wanted) {
    engine.certificates("cainfo=" + ca());
    const auto one = request();
    EXPECT_EQ(one->GET(origin->url()).exec().get_headers()["x-version"], "2.0");
    EXPECT_EQ(one->get_response().http_version(), 20);
    EXPECT_EQ(one->get_headers().count("Set-Cookie"), 2U);
    EXPECT_EQ(
        one->GET(origin->url()).version(http_version::http1).exec().get_headers()["x-version"],
        "1.1");
    EXPECT_EQ(one->get_response().http_version(), 11);
    EXPECT_EQ(one->POST(origin->url("/p"))
                  .set_body("text/plain", std::string(100'000, 'x'))
                  .exec()
                  .get_body(),
        "POST /p\n" + std::string(100'000, 'x'));
}

TEST_F(tls, speaks_the_versions_it_may) {
    engine.certificates("cainfo=" + ca());
    const auto one = request();
    EXPECT_EQ(
        one->GET(origin->url()).tls(tls_version::tls13).exec().get_headers()["x-tls"], "TLSv1.3");
    EXPECT_EQ(one->GET(origin->url())
                  .tls(tls_version::tls12, tls_version::tls12)
                  .exec()
                  .get_headers()["x-tls"],
        "TLSv1.2");
}

TEST_F(tls, says_afterwards_who_the_other_end_was) {
    engine.certificates("cainfo=" + ca());
    for (const auto version : {http_version::http1, http_version::http2}) {
        const auto one = request();
        const auto session = one->GET(origin->url()).version(version).exec().get_tls();
        ASSERT_TRUE(session) << one->get_error().message;
        EXPECT_EQ(session.version, 13);
        EXPECT_EQ(session.cipher.rfind("TLS_", 0), 0U) << session.cipher;
        ASSERT_GE(session.certificates.size(), 1U); // OpenSSL may add its own
        const auto &shown = session.certificates.front();
        EXPECT_EQ(shown.subject, "CN=server");
        EXPECT_EQ(shown.issuer, "CN=ca");
        EXPECT_EQ(shown.names, "DNS:localhost, IP:127.0.0.1");
        EXPECT_EQ(shown.pem, support::contents(certificates::made() / "server.pem"));
        EXPECT_LT(shown.not_before, std::chrono::system_clock::now() + std::chrono::seconds(1));
        EXPECT_GT(shown.not_after, std::chrono::system_clock::now());
        EXPECT_EQ(one->exec().get_tls().certificates.size(), session.certificates.size())
            << "a kept connection has the same";
    }
    EXPECT_FALSE(request()->GET("http://127.0.0.1:1/").exec().get_tls());
}

TEST_F(tls, shows_the_wire_of_http2_as_text) {
    engine.certificates("cainfo=" + ca());
    std::string out, in, text;
    const auto one = request();
    one->GET(origin->url("/p"))
        .bearer("secret")
        .on_debug([&](debug what, std::string_view bytes) {
            (what == debug::header_out ? out : what == debug::header_in ? in : text) += bytes;
        })
        .exec();
    EXPECT_EQ(out.rfind("GET /p HTTP/2\r\nhost: localhost:", 0), 0U) << out;
    EXPECT_NE(out.find("\r\nauthorization: Bearer ***\r\n"), std::string::npos) << out;
    EXPECT_EQ(in.rfind("HTTP/2 200\r\n", 0), 0U) << in;
    EXPECT_NE(in.find("\r\nset-cookie: ***\r\n"), std::string::npos) << in;
    EXPECT_NE(text.find("TLS 1.3, TLS_"), std::string::npos) << text;
    EXPECT_NE(text.find("subject CN=server; issuer CN=ca"), std::string::npos) << text;
}

TEST_F(tls, speaks_the_ciphers_it_may) {
    engine.certificates("cainfo=" + ca());
    const auto one = request();
    one->GET(origin->url()).ciphers("TLS_CHACHA20_POLY1305_SHA256").exec();
    EXPECT_EQ(one->get_tls().cipher, "TLS_CHACHA20_POLY1305_SHA256") << one->get_error().message;
    one->GET(origin->url())
        .ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        .tls(tls_version::tls12, tls_version::tls12)
        .exec();
    EXPECT_EQ(one->get_tls().cipher, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256");
    EXPECT_EQ(one->GET(origin->url()).ciphers("RC4-MD5").exec().get_code(), code::options_set);
}

TEST_F(tls, limits_of_time_fire_over_http2_and_leave_the_connection_to_others) {
    engine.certificates("cainfo=" + ca());
    const auto good = request();
    ASSERT_EQ(good->GET(origin->url()).exec().get_response().http_version(), 20);
    struct {
        const char *path;
        int status;
        std::chrono::milliseconds limit; // "/half" has to send its head within it
    } const cases[] = {{"/silent", 0, 120ms}, {"/half", 200, 3s}};
    for (const auto &[path, status, limit] : cases) {
        for (const bool whole : {true, false}) {
            const auto one = request();
            one->GET(origin->url(path));
            whole ? one->timeout(limit) : one->idle_timeout(limit);
            const auto begun = std::chrono::steady_clock::now();
            EXPECT_EQ(one->exec().get_code(), code::timed_out) << path;
            EXPECT_GE(std::chrono::steady_clock::now() - begun, limit) << path;
            EXPECT_EQ(one->get_error().kind, error_kind::timeout);
            EXPECT_EQ(one->status(), status);
        }
    }
    EXPECT_EQ(good->GET(origin->url()).exec().get_code(), 200);
    EXPECT_EQ(engine.stats().connects, 1U) << "only streams were reset";
}

TEST_F(tls, aborts_end_streams_of_http2_at_each_stage) {
    engine.certificates("cainfo=" + ca());
    std::atomic<int> heads = 0;
    for (const char *path : {"/silent", "/half"}) {
        const auto one = request();
        one->GET(origin->url(path)).on_head([&](const response &) { ++heads; }).start();
        ASSERT_TRUE(support::eventually([&] {
            return path == std::string("/half") ? heads == 1 : engine.stats().connects == 1;
        }));
        EXPECT_EQ(one->abort().join().get_code(), code::aborted);
    }
    EXPECT_EQ(request()->GET(origin->url()).exec().get_code(), 200);
}

TEST_F(tls, carries_a_burst_over_few_connections) {
    engine.certificates("cainfo=" + ca());
    std::vector<std::future<response>> all;
    for (int at = 0; at < 200; ++at) {
        all.push_back(request()->GET(origin->url()).launch());
    }
    for (auto &one : all) {
        EXPECT_EQ(one.get().get_code(), 200);
    }
    EXPECT_LE(engine.stats().connects, 6U);
    EXPECT_GE(engine.stats().handshakes_saved, 194U);
}

TEST_F(tls, goes_through_the_tunnel_of_a_proxy) {
    support::note asked;
    const auto proxy = scripted::server::raw([&](auto &client) {
        const auto connect = client.read_head();
        if (connect) {
            asked.set(connect->method + " " + connect->target + " " +
                      connect->field("Proxy-Authorization"));
            client.write("HTTP/1.1 200 Connection established\r\n\r\n");
            client.relay(origin->port());
        }
    });
    const auto one = request();
    one->GET(origin->url())
        .ca_file(ca())
        .proxy("http://joe:secret@127.0.0.1:" + std::to_string(proxy->port()))
        .exec();
    EXPECT_EQ(one->get_code(), 200) << one->get_error().message;
    EXPECT_EQ(asked.get(),
        "CONNECT localhost:" + std::to_string(origin->port()) + " Basic am9lOnNlY3JldA==");
}
