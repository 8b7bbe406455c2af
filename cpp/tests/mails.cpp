// Mail: what is built, what comes of it, and that its life is a request's. Faults at each stage are tests of the C face (crates/capi/tests/c/mail.c).
#include "mail_servers.hpp"

using namespace hearth;
using namespace std::chrono_literals;
using support::mail_servers;

namespace {

class mails : public support::with_engine {
protected:
    static void SetUpTestSuite() { servers_ = new mail_servers(); }
    static void TearDownTestSuite() {
        delete servers_;
        servers_ = nullptr;
    }
    void SetUp() override {
        with_engine::SetUp();
        engine.set_text(HEARTH_CAINFO, servers_->authority());
    }

    static const mail_servers &servers() { return *servers_; }
    std::shared_ptr<smtp> mail(const std::string &from = "Ann <ann@x.test>") {
        auto made = smtp::create(engine);
        made->SEND(servers().url("smtp"), from).to("bob@x.test").subject("Hello").text("Hello");
        return made;
    }

private:
    static inline mail_servers *servers_ = nullptr;
};

bool has(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

} // namespace

TEST(addresses, have_parts) {
    const auto parts = [](const smtp::address &one) {
        return one.name() + "|" + one.spec() + "|" + one.local_part() + "|" + one.domain();
    };
    EXPECT_EQ(parts("mary@x.test"), "|mary@x.test|mary|x.test");
    EXPECT_EQ(parts(" <mary@x.test> "), "|mary@x.test|mary|x.test");
    EXPECT_EQ(parts("Mary Smith <mary@x.test>"), "Mary Smith|mary@x.test|mary|x.test");
    EXPECT_EQ(parts(R"("Smith, Mary" <mary@x.test>)"), "Smith, Mary|mary@x.test|mary|x.test");
    EXPECT_EQ(parts(R"("the \"<boss>\"" <mary@x.test>)"), "the \"<boss>\"|mary@x.test|mary|x.test");
    EXPECT_EQ(parts({"the \"<boss>\"", "mary@x.test"}), "the \"<boss>\"|mary@x.test|mary|x.test");
    EXPECT_EQ(parts(R"("a@b"@x.test)"), R"(|"a@b"@x.test|"a@b"|x.test)");
    EXPECT_EQ(parts("mary"), "|mary|mary|");
    EXPECT_EQ(parts(""), "|||");
    const smtp::address given = R"("the \"boss\"" <mary@x.test>)";
    EXPECT_EQ(given.address_spec, "mary@x.test");
    EXPECT_EQ(given.display_name, "the \"boss\"");
    EXPECT_EQ(given.text(), R"("the \"boss\"" <mary@x.test>)");
    EXPECT_EQ(given.get_name_addr(), R"("the "boss"" <mary@x.test>)");
    EXPECT_EQ(given.get_addr_spec(), "<mary@x.test>");
    EXPECT_EQ(smtp::address("a@x.test").get_name_addr(), "<a@x.test>");
}

TEST(addresses, are_read_as_leniently_as_curlev_reads_them) {
    const auto parts = [](const smtp::address &one) {
        return one.display_name + "|" + one.address_spec;
    };
    EXPECT_EQ(parts("Last, First <a@b>"), "Last, First|a@b");
    EXPECT_EQ(parts(R"(Big" Box <a@b> )"), "Big\" Box|a@b");
    EXPECT_EQ(parts(R"( "Giant; "Big" Box" <a@b> )"), "Giant; \"Big\" Box|a@b");
    EXPECT_EQ(parts("Joe <a@b> )"), "Joe|a@b");
    EXPECT_EQ(parts("a@b (Mary Smith)"), "Mary Smith|a@b");
    EXPECT_EQ(parts("Mary <a@b> (at work)"), "Mary|a@b");
    EXPECT_EQ(parts("Mary < a@b >"), "Mary|a@b");
    EXPECT_EQ(
        parts("J\u00f6rg <j\u00f6rg@b\u00fccher.test>"), "J\u00f6rg|j\u00f6rg@b\u00fccher.test");
}

TEST_F(mails, are_sent_with_curlevs_calls) {
    const smtp::recipients all = {smtp::address("Bob <bob@x.test>"),
        smtp::address("cy@x.test", smtp::address::mode::cc),
        smtp::address("secret@x.test", smtp::address::mode::bcc)};
    const auto sent = smtp::create(engine);
    sent->SEND(servers().url("smtp"), smtp::address("Ann \"A\"", "ann@x.test"))
        .options("timeout=20000, rcpt_allow_fails=0")
        .authentication("mode=basic, user=joe, secret=\"secret\"")
        .add_headers({{"X-Test", "1"}})
        .set_mime(all, "Gr\u00fc\u00dfe",
            {mime::alternatives{mime::data{"", "plain", "text/plain", ""},
                 mime::data{"", "<b>html</b>", "text/html", ""}},
                mime::parameter{"", "shown behind it"},
                mime::data{"", "bytes", "application/pdf", "a.pdf"}})
        .exec();
    ASSERT_EQ(sent->get_code(), 250) << sent->get_error().message;
    EXPECT_EQ(sent->get_recipients().size(), 3U);
    EXPECT_TRUE(sent->get_recipients()[2].accepted());
    const auto told = servers().told(sent->get_reply());
    EXPECT_TRUE(has(told, "TLS SCRAM-SHA-256\n")) << told;
    EXPECT_TRUE(has(told, "RCPT TO:<secret@x.test>\nDATA\n"));
    const auto message = told.substr(told.find("\n\n"));
    EXPECT_FALSE(has(message, "secret"));
    EXPECT_TRUE(has(message, "From: \"Ann \\\"A\\\"\" <ann@x.test>\r\n")) << message;
    for (const auto *part :
        {"multipart/mixed", "multipart/alternative", "text/html", "shown behind it",
            "Content-Disposition: inline", "filename=\"a.pdf\"", "X-Test: 1\r\n"}) {
        EXPECT_TRUE(has(message, part)) << part << message;
    }
    EXPECT_TRUE(has(message, "Message-ID: " + sent->get_message_id()));
}

TEST_F(mails, a_whole_message_goes_as_it_is) {
    const auto sent = smtp::create(engine);
    sent->SEND(servers().url("smtps"), "ann@x.test")
        .set_body({"bob@x.test"}, "Subject: x\nBcc: hidden@x.test\n\n.\nbody\n")
        .exec();
    ASSERT_EQ(sent->get_code(), 250) << sent->get_error().message;
    const auto told = servers().told(sent->get_reply());
    EXPECT_TRUE(has(told, "Subject: x\r\n\r\n.\r\nbody\r\n")) << told;
    EXPECT_FALSE(has(told, "hidden@x.test"));
}

TEST_F(mails, what_is_wrong_is_told_by_the_start_and_nothing_is_sent) {
    const auto of = [&](const std::function<void(smtp &)> &build) {
        const auto made = mail();
        build(*made);
        return made->exec().get_code();
    };
    EXPECT_EQ(
        of([](smtp &made) { made.to("a@x.test\r\nRCPT TO:<b@x.test>"); }), code::recipients_set);
    EXPECT_EQ(of([](smtp &made) { made.subject("a\nBcc: b@x.test"); }), code::headers_set);
    EXPECT_EQ(of([](smtp &made) { made.add_headers({{"Bcc", "b@x.test"}}); }), code::headers_set);
    EXPECT_EQ(of([](smtp &made) { made.attach("a", "text", "b"); }), code::mime_set);
    EXPECT_EQ(of([](smtp &made) { made.attach_file("/nowhere/at/all"); }), code::body_set);
    EXPECT_EQ(of([](smtp &made) { made.attach_file(""); }), code::mime_set);
    EXPECT_EQ(of([](smtp &made) { made.embed_file("logo", "image/png", ""); }), code::mime_set);
    const mime::file nowhere = {"", "", "application/pdf", "invoice.pdf"};
    EXPECT_EQ(of([&](smtp &made) { made.set_mime({}, "x", {nowhere}); }), code::mime_set);
    EXPECT_EQ(of([&](smtp &made) { made.set_mime({}, "x", {mime::alternatives{nowhere}}); }),
        code::mime_set);
    EXPECT_EQ(of([](smtp &made) { made.options("starttls=3"); }), code::options_format);
    EXPECT_EQ(of([](smtp &made) { made.SEND("http://127.0.0.1/", "a@x.test"); }),
        code::unsupported_protocol);
    EXPECT_EQ(of([](smtp &made) { made.SEND("smtp://a b/", "a@x.test"); }), code::url_malformed);
    EXPECT_EQ(of([](smtp &made) { made.to("<a@x.test>, <b@x.test>"); }), code::recipients_set);
    EXPECT_EQ(of([](smtp &made) { made.safe_protocols("smtp,smpts"); }), code::safe_protocols_set);
    EXPECT_EQ(
        of([](smtp &made) { made.SEND("smtp://127.0.0.1/", "noone"); }), code::recipients_set);
    EXPECT_EQ(engine.stats().started, 0U);
}

TEST_F(mails, refusals_say_whose_and_for_how_long) {
    const auto refused = mail();
    refused->cc("code-550@x.test").exec();
    EXPECT_EQ(refused->get_code(), code::send_error);
    EXPECT_EQ(refused->get_error().kind, error_kind::refused);
    EXPECT_EQ(refused->get_response().status(), 550);
    EXPECT_EQ(refused->get_response().get_enhanced(), "5.1.1");
    EXPECT_EQ(refused->get_recipients()[1].code, 550);

    const auto later = mail();
    later->cc("code-450@x.test").exec();
    EXPECT_EQ(later->get_error().kind, error_kind::try_later);
    later->SEND(servers().url("smtp"), "ann@x.test")
        .to("bob@x.test")
        .cc("code-450@x.test")
        .allow_fails()
        .text("x")
        .exec();
    EXPECT_EQ(later->get_code(), 250);

    EXPECT_EQ(mail("at-end-drop@x.test")->exec().get_error().kind, error_kind::outcome_unknown);
    const auto login = mail();
    EXPECT_EQ(login->basic("joe", "wrong").exec().get_error().kind, error_kind::login);
    EXPECT_EQ(login->get_code(), code::login_denied);
    const auto unsafe = smtp::create(engine);
    unsafe->SEND(servers().url("bare"), "a@x.test")
        .to("b@x.test")
        .tls_within(starttls::required)
        .text("x")
        .exec();
    EXPECT_EQ(unsafe->get_code(), code::use_ssl_failed);
    std::error_code why;
    mail("at-mail-550@x.test")->fetch(why);
    EXPECT_EQ(why, error_kind::refused);
    EXPECT_THROW(mail("at-mail-550@x.test")->fetch(), request_error);
}

TEST_F(mails, a_user_in_the_url_logs_in) {
    auto url = servers().url("smtps");
    url.insert(url.find("127"), "joe:sec%72et@");
    const auto sent = smtp::create(engine);
    sent->SEND(url, "a@x.test").to("b@x.test").mechanisms("PLAIN").text("x").exec();
    ASSERT_EQ(sent->get_code(), 250) << sent->get_error().message;
    EXPECT_TRUE(has(servers().told(sent->get_reply()), "TLS PLAIN\n"));
}

TEST_F(mails, come_to_an_end_in_every_form) {
    EXPECT_EQ(mail()->launch().get().get_code(), 250);
    std::promise<long> told;
    mail()->start([&](const smtp &done) { told.set_value(done.get_code()); });
    EXPECT_EQ(told.get_future().get(), 250);
    // Started again by its own callback, over the open connection.
    std::promise<bool> reused;
    const auto again = mail();
    again->start([&](const smtp &) {
        again->SEND(servers().url("smtp"), "a@x.test")
            .to("b@x.test")
            .text("x")
            .start([&](const smtp &done) {
                reused.set_value(done.get_code() == 250 && done.get_timings().reused);
            });
    });
    EXPECT_TRUE(reused.get_future().get());
    again->join();
    // A callback may throw, wait for itself, and be told on the I/O thread.
    const auto throwing = mail();
    throwing->threaded_callback(false).start([&](const smtp &) {
        throwing->join();
        throw std::runtime_error("thrown");
    });
    EXPECT_EQ(throwing->join().get_code(), code::user_callback);
    EXPECT_EQ(throwing->get_error().message, "thrown");
}

TEST_F(mails, are_aborted_and_cancelled) {
    const auto silent = mail("at-mail-silent@x.test");
    silent->start();
    EXPECT_EQ(silent->get_code(), code::running);
    silent->subject("ignored");
    EXPECT_FALSE(silent->join_for(20ms));
    EXPECT_EQ(silent->abort().join().get_code(), code::aborted);
    cancel_source source;
    const auto one = mail("at-rcpt-silent@x.test");
    const auto two = request();
    one->cancel_with(source.token()).start();
    source.cancel();
    EXPECT_EQ(one->join().get_code(), code::aborted);
    EXPECT_EQ(two->GET("http://127.0.0.1:1/").cancel_with(source.token()).exec().get_code(),
        code::aborted);
    // Detached, and under way when the engine stops.
    std::atomic<long> code = 0;
    mail("at-data-silent@x.test")->start([&](const smtp &done) { code = done.get_code(); });
    EXPECT_TRUE(engine.stop(1));
    EXPECT_EQ(code, hearth::code::aborted);
    EXPECT_EQ(mail()->exec().get_code(), hearth::code::start_failed);
}

TEST_F(mails, many_at_once_share_few_connections) {
    async own;
    own.set_text(HEARTH_CAINFO, servers().authority());
    own.mail_connections_per_host(3);
    std::atomic<int> good = 0;
    for (int at = 0; at < 200; ++at) {
        const auto one = smtp::create(own);
        one->SEND(servers().url("smtp", "many"), "a@x.test")
            .to("b@x.test")
            .text("x")
            .start([&](const smtp &done) { good += done.get_code() == 250 ? 1 : 0; });
    }
    EXPECT_FALSE(own.stop(60000));
    EXPECT_EQ(good, 200);
}

TEST_F(mails, are_sent_by_the_safe_protocols_alone) {
    const auto made = mail();
    EXPECT_EQ(made->safe_protocols("smtps").exec().get_code(), code::unsupported_protocol);
    EXPECT_EQ(made->get_error().kind, error_kind::protocol_refused);
    const auto good = mail();
    EXPECT_EQ(good->safe_protocols("smtp").exec().get_code(), 250) << good->get_error().message;
}

TEST_F(mails, the_names_and_domains_go_out_as_they_have_to) {
    const auto sent = smtp::create(engine);
    sent->SEND(servers().url("smtp"), "Big\" Box <ann@b\u00fccher.test>")
        .to("Last, First <bob@b\u00fccher.test>")
        .cc("cy@x.test (Cy)")
        .text("x");
    ASSERT_EQ(sent->exec().get_code(), 250) << sent->get_error().message;
    const auto told = servers().told(sent->get_reply());
    for (const auto *part :
        {"MAIL FROM:<ann@xn--bcher-kva.test>", "RCPT TO:<bob@xn--bcher-kva.test>",
            "From: \"Big\\\" Box\" <ann@xn--bcher-kva.test>\r\n",
            "To: =?utf-8?b?TGFzdCwgRmlyc3Q=?= <bob@xn--bcher-kva.test>\r\n",
            "Cc: Cy <cy@x.test>\r\n"}) {
        EXPECT_TRUE(has(told, part)) << part << "\n" << told;
    }
}

TEST_F(mails, a_local_server_may_have_a_certificate_that_it_made_itself) {
    async own;
    own.start();
    const auto send = [&](const std::string &server, const std::function<void(smtp &)> &build) {
        const auto made = smtp::create(own);
        build(made->SEND(servers().url(server), "ann@x.test").to("bob@x.test").text("x"));
        return made->exec().get_response();
    };
    const auto nothing = [](smtp &) {};
    if (servers().has("exim")) {
        EXPECT_EQ(send("exim", nothing).get_code(), 250);
        EXPECT_EQ(send("exim", [](smtp &made) { made.tls_within(starttls::required); }).get_code(),
            code::peer_not_verified);
    }
    const auto taken = send("smtp", nothing);
    EXPECT_EQ(taken.get_code(), 250) << taken.get_error().message;
    EXPECT_TRUE(has(servers().told(taken.get_reply()), "TLS -\n"));
    EXPECT_EQ(send("smtps", nothing).get_code(), code::peer_not_verified);
    // What shows a password goes only where the certificate is verified, or the program says that it may.
    const auto login = [](smtp &made) { made.basic("joe", "secret").mechanisms("PLAIN"); };
    EXPECT_EQ(send("smtp", login).get_error().kind, error_kind::login);
    const auto allowed = [&](smtp &made) {
        login(made);
        made.plain_auth();
    };
    EXPECT_EQ(send("smtp", allowed).get_code(), 250);
    EXPECT_EQ(send("smtp", [](smtp &made) { made.basic("joe", "secret"); }).get_code(), 250);
}

TEST_F(mails, a_real_server_takes_them) {
    if (!servers().has("exim")) {
        GTEST_SKIP() << "exim4 is not installed";
    }
    const auto sent = smtp::create(engine);
    sent->SEND(servers().url("exim"), "Ann <ann@x.test>")
        .tls_within(starttls::required)
        .basic("joe", "secret")
        .to("bob@x.test")
        .subject("Hello")
        .text("plain")
        .html("<img src='cid:logo@x'>")
        .embed("logo@x", "image/png", "png")
        .attach("a.txt", "text/plain", "text")
        .exec();
    EXPECT_EQ(sent->get_code(), 250) << sent->get_error().message;
    sent->SEND(servers().url("exim"), "ann@x.test").to("unknown@x.test").text("x").exec();
    EXPECT_EQ(sent->get_error().kind, error_kind::refused);
    EXPECT_EQ(sent->get_reply(), "550 5.1.1 no such user");
}

#if defined(__cpp_impl_coroutine) && __has_include(<coroutine>)
#include <coroutine>

namespace {
struct task {
    struct promise_type {
        task get_return_object() noexcept { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() noexcept {}
        void unhandled_exception() noexcept { std::terminate(); }
    };
};

task send(std::shared_ptr<smtp> mail, std::promise<long> &code) {
    const auto came = co_await *mail;
    code.set_value(came.get_code());
}
} // namespace

TEST_F(mails, can_be_awaited) {
    std::promise<long> code;
    send(mail(), code);
    EXPECT_EQ(code.get_future().get(), 250);
}
#endif
