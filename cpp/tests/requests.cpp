// What goes out: methods, URLs, fields, bodies, options as texts; and what an answer looks like.
#include <future>
#include <limits>

#include "support.hpp"

using namespace hearth;
using scripted::server;
using support::folder;

class requests : public support::with_engine {};
class bodies : public support::with_engine {};
class answers : public support::with_engine {};
class options_as_text : public support::with_engine {};

TEST_F(requests, the_sample_of_the_readme_works_in_each_of_its_three_forms) {
    server origin(support::echo);
    const auto code = http::create(engine)->GET(origin.url(), {{"id", "42"}}).exec().get_code();
    EXPECT_EQ(code, 200);
    std::promise<std::string> told;
    http::create(engine)->POST(origin.url()).start([&](const http &answer) {
        told.set_value(answer.get_body());
    });
    EXPECT_EQ(told.get_future().get(), "POST /\n");
    const auto answer = http::create(engine)->GET(origin.url()).launch().get();
    EXPECT_EQ(answer.get_body(), "GET /\n");
    // As short as curlev's.
    EXPECT_EQ(answer.code(), 200);
    EXPECT_EQ(answer.body(), "GET /\n");
    EXPECT_EQ(answer.content_type(), answer.headers()["content-type"]);
    EXPECT_EQ(answer.redirect_url(), "");
}

TEST_F(requests, each_verb_is_sent_as_it_is_called_and_one_object_serves_all_of_them) {
    server origin(support::echo);
    const auto one = request();
    EXPECT_EQ(one->GET(origin.url("/a")).exec().get_body(), "GET /a\n");
    EXPECT_EQ(
        one->POST(origin.url("/b")).set_body("text/plain", "x").exec().get_body(), "POST /b\nx");
    EXPECT_EQ(one->GET(origin.url("/c")).exec().get_body(), "GET /c\n")
        << "nothing of the POST is left";
    EXPECT_EQ(
        one->PUT(origin.url("/d")).set_body("text/plain", "y").exec().get_body(), "PUT /d\ny");
    EXPECT_EQ(
        one->PATCH(origin.url("/e")).set_body("text/plain", "z").exec().get_body(), "PATCH /e\nz");
    EXPECT_EQ(one->DELETE(origin.url("/f")).exec().get_body(), "DELETE /f\n");
    EXPECT_EQ(one->OPTIONS(origin.url("/g")).exec().get_body(), "OPTIONS /g\n");
    EXPECT_EQ(one->REQUEST("PROPFIND", origin.url("/h")).exec().get_body(), "PROPFIND /h\n");
    EXPECT_EQ(one->GET(origin.url("/i")).exec().get_body(), "GET /i\n");
    EXPECT_EQ(origin.seen()[2].field("Content-Type"), "");
    // The POST must not be sent twice, and so opens a connection of its own: this origin has not shown yet that it keeps them.
    EXPECT_LE(origin.connections(), 2U);
}

TEST_F(requests, a_head_ends_with_the_head_of_its_answer) {
    server origin([](auto &client, const auto &) {
        client.write("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
    });
    const auto one = request();
    EXPECT_EQ(one->HEAD(origin.url()).exec().get_code(), 200);
    EXPECT_EQ(one->get_headers().at("content-length"), "1000");
    EXPECT_EQ(one->get_body(), "");
    EXPECT_EQ(one->HEAD(origin.url()).exec().get_code(), 200);
    EXPECT_EQ(origin.connections(), 1U);
}

TEST_F(requests, a_query_goes_percent_encoded_behind_that_of_the_url) {
    server origin(support::echo);
    const auto one = request();
    EXPECT_EQ(one->GET(origin.url("/p"), {{"a b", "1&2"}, {"a b", "\xC3\xA9"}}).exec().get_body(),
        "GET /p?a%20b=1%262&a%20b=%C3%A9\n");
    EXPECT_EQ(
        one->GET(origin.url("/p?x=1"), {{"y", "2"}}).add_query({{"z", "3"}}).exec().get_body(),
        "GET /p?x=1&y=2&z=3\n");
    EXPECT_EQ(one->POST(origin.url("/p"), {{"q", "1"}}).set_body("", "b").exec().get_body(),
        "POST /p?q=1\nb");
}

TEST_F(requests, a_user_in_the_url_becomes_basic_authentication_and_leaves_the_url) {
    server origin(support::echo);
    const auto url = "http://joe:p%40ss@127.0.0.1:" + std::to_string(origin.port()) + "/a@b";
    EXPECT_EQ(request()->GET(url).exec().get_body(), "GET /a@b\n");
    EXPECT_EQ(origin.seen()[0].field("Authorization"), "Basic am9lOnBAc3M=");
}

TEST_F(requests, a_user_in_the_url_hides_no_host_that_others_see) {
    using namespace std::string_literals;
    server origin(support::echo);
    const auto at = "127.0.0.1:" + std::to_string(origin.port());
    for (const auto &user : {"trusted.example\\"s, "trusted.example\t"s, "a b"s, "\r\n"s, "\0"s}) {
        const auto one = request();
        EXPECT_EQ(
            one->GET("http://" + user + "@" + at + "/").exec().get_code(), code::url_malformed)
            << user;
    }
    EXPECT_EQ(request()->GET("http:/" + at + "/?u=://a@b").exec().get_body(), "GET /?u=://a@b\n");
    EXPECT_EQ(origin.seen().size(), 1U);
    EXPECT_EQ(origin.seen()[0].field("Authorization"), "");
}

TEST_F(requests, fields_go_out_in_order_and_as_often_as_they_were_added) {
    server origin(support::echo);
    request()
        ->GET(origin.url())
        .add_headers({{"X-Two", "1"}, {"X-One", "2"}})
        .add_headers({{"x-two", "3"}})
        .exec();
    const auto seen = origin.seen().at(0);
    EXPECT_EQ(seen.count("x-two"), 2U);
    EXPECT_EQ(seen.field("X-One"), "2");
}

TEST_F(requests, fields_that_are_set_by_themselves_can_be_removed_and_replaced) {
    server origin(support::echo);
    request()->GET(origin.url()).remove_header("User-Agent").exec();
    request()->GET(origin.url()).user_agent("mine/1").exec();
    EXPECT_EQ(origin.seen().at(0).field("User-Agent"), "");
    EXPECT_EQ(origin.seen().at(1).field("User-Agent"), "mine/1");
}

TEST_F(requests, fields_with_line_ends_or_nul_are_refused_before_anything_is_sent) {
    server origin(support::echo);
    for (const auto &[name, value] :
        std::vector<std::pair<std::string, std::string>>{{"X", "a\r\nY: b"}, {"X", "a\nb"},
            {"X", std::string("a\0b", 3)}, {"X\r\nY", "a"}, {"", "a"}, {"X Y", "a"}}) {
        const auto one = request();
        EXPECT_EQ(one->GET(origin.url()).add_headers({{name, value}}).exec().get_code(),
            code::headers_set);
        EXPECT_EQ(one->get_error().kind, error_kind::bad_request);
        EXPECT_FALSE(one->get_error().message.empty());
    }
    EXPECT_EQ(origin.requests(), 0U);
}

TEST_F(requests, urls_that_are_none_are_refused_and_the_next_request_is_not) {
    server origin(support::echo);
    const auto one = request();
    for (const std::string url : {"", "nonsense", "http://", "http://a b/", "http://x/\r\nY: z",
             "http://[::1/", "http://x:99999/", "/relative"}) {
        EXPECT_EQ(one->GET(url).exec().get_code(), code::url_malformed) << url;
        EXPECT_EQ(one->get_error().kind, error_kind::bad_request) << url;
    }
    for (const auto *method : {"", "GE T", "GET\r\nX:"}) {
        EXPECT_EQ(one->REQUEST(method, origin.url()).exec().get_code(), code::url_set) << method;
    }
    EXPECT_EQ(one->GET("ftp://127.0.0.1/").exec().get_code(), code::unsupported_protocol);
    EXPECT_EQ(one->GET(origin.url()).exec().get_code(), 200);
}

TEST_F(requests, a_scheme_that_is_not_safe_is_refused_as_libcurl_refuses_it) {
    server origin(support::echo);
    const auto one = request();
    EXPECT_EQ(one->GET(origin.url()).safe_protocols("https").exec().get_code(),
        code::unsupported_protocol);
    EXPECT_EQ(one->get_error().kind, error_kind::protocol_refused);
    EXPECT_EQ(origin.requests(), 0U);
    EXPECT_EQ(one->GET(origin.url()).safe_protocols("all").exec().get_code(), 200);
    EXPECT_EQ(one->GET(origin.url()).safe_protocols("http,ftp").exec().get_code(), 200);
    for (const auto *unknown : {"http,htpps", " ", "http://"}) {
        EXPECT_EQ(one->GET(origin.url()).safe_protocols(unknown).exec().get_code(),
            code::safe_protocols_set)
            << unknown;
    }
    one->GET(origin.url()).safe_protocols("htpps").exec();
    EXPECT_EQ(one->get_error().message,
        "safe_protocols: \"htpps\" is no protocol: http, https, smtp, smtps, file are");
}

TEST_F(requests, a_file_is_read_where_the_program_allows_files) {
    const folder made;
    const auto path = made / "a b.txt";
    std::ofstream(path) << "abc123";
    const auto url = "file://" + (made / "a%20b.txt");
    const auto one = request();
    EXPECT_EQ(one->GET(url).exec().get_code(), code::unsupported_protocol);
    EXPECT_EQ(one->GET(url).safe_protocols("file").exec().get_code(), code::success);
    EXPECT_EQ(one->get_body(), "abc123");
    EXPECT_EQ(one->get_response().get_url(), url);
    EXPECT_EQ(one->HEAD(url).safe_protocols("file").exec().get_code(), code::success);
    EXPECT_EQ(one->get_body(), "");
    EXPECT_EQ(one->GET(url).safe_protocols("file").maximal_response_size(5).exec().get_code(),
        code::write_error);
    EXPECT_EQ(one->PUT(url).safe_protocols("file").set_body("", "x").exec().get_code(),
        code::unsupported_protocol);
    for (const auto *none : {"file:///nowhere/at/all", "file:///dev/zero", "file:///"}) {
        EXPECT_EQ(one->GET(none).safe_protocols("file").exec().get_code(), code::file_unreadable)
            << none;
    }
    EXPECT_EQ(
        one->GET("file://other/x").safe_protocols("file").exec().get_code(), code::url_malformed);
    EXPECT_EQ(support::contents(path), "abc123");
}

TEST_F(requests, a_redirect_leads_to_a_file_only_where_files_are_allowed_beside_http) {
    const folder made;
    std::ofstream(made / "secret") << "abc123";
    server origin([&](auto &client, const auto &) {
        client.answer(302, "", "Location: file://" + (made / "secret") + "\r\n");
    });
    const auto one = request();
    EXPECT_EQ(one->GET(origin.url()).options("follow_location=1").exec().get_code(),
        code::unsupported_protocol);
    EXPECT_EQ(one->get_body(), "");
    one->GET(origin.url()).options("follow_location=1").safe_protocols("http,file").exec();
    EXPECT_EQ(one->get_code(), 302);
    EXPECT_EQ(one->get_body(), "abc123");
}

TEST_F(requests, without_a_method_and_url_there_is_nothing_to_start) {
    const auto one = request();
    EXPECT_EQ(one->get_code(), code::success);
    EXPECT_EQ(one->exec().get_code(), code::url_malformed);
}

TEST_F(requests, invalid_utf8_passes_through_where_bytes_are_allowed) {
    server origin(support::echo);
    const auto one = request();
    EXPECT_EQ(one->POST(origin.url()).set_body("text/plain", "\xFF\xFE").exec().get_body(),
        "POST /\n\xFF\xFE");
    EXPECT_EQ(one->GET(origin.url()).add_headers({{"X", "\xFF"}}).exec().get_code(), 200);
    EXPECT_EQ(origin.seen().back().field("X"), "\xFF");
}

TEST_F(bodies, a_form_is_urlencoded) {
    server origin(support::echo);
    EXPECT_EQ(
        request()->POST(origin.url()).set_parameters({{"a", "1 2"}, {"b", "&"}}).exec().get_body(),
        "POST /\na=1+2&b=%26");
    EXPECT_EQ(origin.seen().at(0).field("Content-Type"), "application/x-www-form-urlencoded");
}

TEST_F(bodies, a_post_without_a_body_says_that_it_has_none) {
    server origin(support::echo);
    EXPECT_EQ(request()->POST(origin.url()).exec().get_code(), 200);
    EXPECT_EQ(origin.seen().at(0).field("Content-Length"), "0");
}

TEST_F(bodies, a_mime_document_with_a_file_arrives_whole) {
    server origin(support::echo);
    const folder folder;
    const std::string big(300'000, 'x');
    const auto path = folder.write("photo.jpg", big);
    const auto one = request();
    one->POST(origin.url())
        .set_mime(
            {mime::parameter{"role", "admin"}, mime::file{"picture", path, "image/jpeg", ""}});
    EXPECT_EQ(one->exec().get_code(), 200);
    const auto seen = origin.seen().at(0);
    EXPECT_EQ(seen.field("Content-Length"), std::to_string(seen.body.size()));
    EXPECT_NE(seen.body.find("filename=\"photo.jpg\"\r\nContent-Type: image/jpeg\r\n\r\n" + big),
        std::string::npos);
    EXPECT_EQ(one->start().join().get_code(), 200) << "the same request once more";
    EXPECT_EQ(origin.seen().at(1).body, seen.body);
}

TEST_F(bodies, a_mime_document_with_a_file_that_is_not_there_is_told_before_anything_is_sent) {
    server origin(support::echo);
    EXPECT_EQ(request()
                  ->POST(origin.url())
                  .set_mime({mime::file{"f", "/nowhere", "", ""}})
                  .exec()
                  .get_code(),
        code::mime_set);
    EXPECT_EQ(origin.requests(), 0U);
}

TEST_F(bodies, a_file_is_sent_with_its_length) {
    server origin(support::echo);
    const folder folder;
    const auto path = folder.write("f", "from a file");
    EXPECT_EQ(request()->PUT(origin.url()).set_body_file("text/plain", path).exec().get_body(),
        "PUT /\nfrom a file");
    EXPECT_EQ(
        request()->PUT(origin.url()).set_body_file("text/plain", "/nowhere").exec().get_code(),
        code::body_set);
}

TEST_F(bodies, a_large_body_and_its_echo_arrive_whole) {
    server origin(support::echo);
    std::string big;
    for (int line = 0; big.size() < 8'000'000; ++line) {
        big += std::to_string(line) + "\n";
    }
    const auto one = request();
    one->POST(origin.url()).maximal_response_size(0).set_body("text/plain", big).exec();
    ASSERT_EQ(one->get_code(), 200);
    EXPECT_EQ(one->get_body(), "POST /\n" + big);
    EXPECT_EQ(one->body_view(), one->get_body());
}

TEST_F(bodies, json_goes_and_comes_through_whichever_parser_is_there) {
    server origin([](auto &client, const auto &asked) {
        client.answer(200, asked.body, "Content-Type: application/json\r\n");
    });
    const auto one = request();
#if __has_include(<nlohmann/json.hpp>)
    nlohmann::json there = {{"name", "Alice"}, {"age", 42}};
    nlohmann::json back;
    ASSERT_TRUE(one->REST(origin.url(), "PUT", there, {{"q", "1"}}).exec().get_json(back));
    EXPECT_EQ(back, there);
    nlohmann::json of_response;
    ASSERT_TRUE(request()
                    ->REST(origin.url(), "PUT", there, {{"q", "1"}})
                    .launch()
                    .get()
                    .get_json(of_response));
    EXPECT_EQ(of_response, there);
    EXPECT_EQ(origin.seen().back().method + " " + origin.seen().back().target, "PUT /?q=1");
    EXPECT_EQ(origin.seen().back().field("Content-Type"), "application/json");
    EXPECT_EQ(origin.seen().back().field("Accept"), "application/json");
    EXPECT_FALSE(one->POST(origin.url()).set_body("", "{broken").exec().get_json(back));
    EXPECT_EQ(one->REST(origin.url(), "POST", nlohmann::json("\xFF")).exec().get_body(),
        "\"\xEF\xBF\xBD\"");
#endif
#if __has_include(<rapidjson/document.h>)
    rapidjson::Document document;
    document.Parse("{\"a\":[1,2]}");
    rapidjson::Document returned;
    ASSERT_TRUE(one->REST(origin.url(), "POST", document).exec().get_json(returned));
    EXPECT_EQ(returned["a"][1].GetInt(), 2);
    rapidjson::Document of_answer;
    const auto answer = request()->REST(origin.url(), "POST", document).launch().get();
    ASSERT_TRUE(answer.get_json(of_answer));
    EXPECT_EQ(of_answer["a"][0].GetInt(), 1);
    document["a"][1].SetDouble(std::numeric_limits<double>::infinity());
    const auto before = origin.requests();
    EXPECT_EQ(one->REST(origin.url(), "POST", document).exec().get_code(), code::body_set);
    EXPECT_EQ(origin.requests(), before) << "half a document is none";
    EXPECT_FALSE(one->POST(origin.url()).set_body("", "{broken").exec().get_json(returned));
#endif
    EXPECT_EQ(one->REST(origin.url(), "DELETE").exec().get_code(), 200);
}

TEST_F(answers, fields_that_come_twice_are_both_there_and_found_in_any_case) {
    server origin([](auto &client, const auto &) {
        client.answer(200, "x",
            "Set-Cookie: a=1\r\nContent-Type: text/html; charset=utf-8\r\nSet-Cookie: "
            "b=2\r\nX-Empty:\r\n");
    });
    const auto one = request();
    one->GET(origin.url()).exec();
    const auto fields = one->get_headers();
    EXPECT_EQ(fields.count("set-cookie"), 2U);
    EXPECT_EQ(fields.get_all("SET-COOKIE"), (std::vector<std::string_view>{"a=1", "b=2"}));
    EXPECT_EQ(fields["Set-Cookie"], "a=1");
    EXPECT_EQ(fields.find("x-empty")->second, "");
    EXPECT_TRUE(fields.find("X-None") == fields.end());
    EXPECT_THROW(static_cast<void>(fields.at("X-None")), std::out_of_range);
    EXPECT_EQ(one->get_content_type(), "text/html; charset=utf-8");
    std::size_t seen = 0;
    for (const auto &[name, value] : one->get_headers()) {
        seen += name.size() + value.size() > 0 ? 1 : 0;
    }
    EXPECT_EQ(seen, fields.size());
}

TEST_F(answers, are_values_that_outlive_the_next_request_of_their_object) {
    server origin(support::echo);
    const auto one = request();
    const auto first = one->GET(origin.url("/1")).exec().get_response();
    auto second = one->GET(origin.url("/2")).exec().get_response();
    EXPECT_EQ(first.get_body(), "GET /1\n");
    const auto third = std::move(second);
    EXPECT_EQ(third.get_body(), "GET /2\n");
    EXPECT_EQ(third.get_url(), origin.url("/2"));
    EXPECT_EQ(third.http_version(), 11);
    EXPECT_EQ(third.get_address(), "127.0.0.1:" + std::to_string(origin.port()));
    engine.stop();
    EXPECT_EQ(first.get_headers()["content-type"], "text/plain");
}

TEST_F(answers, of_interim_kinds_are_told_and_do_not_end_the_request) {
    server origin([](auto &client, const auto &) {
        client.write("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n");
        client.answer(200, "x");
    });
    std::string hints;
    const auto one = request();
    one->GET(origin.url())
        .on_interim([&](const response &interim) {
            hints += std::to_string(interim.status()) + interim.get_headers()["link"];
        })
        .exec();
    EXPECT_EQ(one->get_code(), 200);
    EXPECT_EQ(hints, "103</a.css>");
}

TEST_F(answers, over_their_status_say_fetch_and_throw_only_where_there_is_none) {
    server origin([](auto &client, const auto &) { client.answer(404, "gone"); });
    const scripted::dead_port closed;
    EXPECT_EQ(request()->GET(origin.url()).fetch().get_code(), 404);
    std::error_code why;
    EXPECT_EQ(request()->GET(closed.url()).fetch(why).get_code(), code::could_not_connect);
    EXPECT_EQ(why, error_kind::connect);
    try {
        request()->GET(closed.url()).fetch();
        FAIL() << "it throws";
    } catch (const request_error &thrown) {
        EXPECT_EQ(thrown.code(), error_kind::connect);
        EXPECT_EQ(thrown.why().code, code::could_not_connect);
    }
}

TEST_F(options_as_text, are_taken_with_blanks_and_quotes) {
    server origin(support::echo);
    const auto one = request();
    EXPECT_EQ(
        one->GET(origin.url()).options(" follow_location = 1 , timeout=5000 ").exec().get_code(),
        200);
    one->GET(origin.url())
        .authentication("mode=basic, user=joe, secret=\"a,b \\\"c\\\" \\\\\"")
        .exec();
    EXPECT_EQ(one->get_code(), 200);
    EXPECT_EQ(origin.seen().back().field("Authorization"), "Basic am9lOmEsYiAiYyIgXA==");
}

TEST_F(options_as_text, all_that_curlev_knows_are_known) {
    server origin(support::echo);
    const auto one = request();
    EXPECT_EQ(
        one->GET(origin.url())
            .options("accept_compression=1,connect_timeout=1000,cookies=1,follow_location=2,"
                     "insecure=0,maxredirs=3,proxy=,rcpt_allow_fails=0,timeout=30000,verbose=0")
            .exec()
            .get_code(),
        200);
    EXPECT_EQ(
        one->GET(origin.url())
            .certificates("sslcerttype=PEM,sslkeytype=PEM,keypasswd=,engine=,proxy_sslcerttype=PEM")
            .exec()
            .get_code(),
        200);
}

TEST_F(options_as_text, that_are_wrong_have_curlevs_numbers_and_name_what_is_wrong) {
    server origin(support::echo);
    const auto one = request();
    EXPECT_EQ(
        one->GET(origin.url()).options("no_such_key=1").exec().get_code(), code::options_format);
    EXPECT_NE(one->get_error().message.find("no_such_key"), std::string::npos)
        << one->get_error().message;
    EXPECT_EQ(
        one->GET(origin.url()).options("timeout=soon").exec().get_code(), code::options_format);
    EXPECT_EQ(one->GET(origin.url()).options("timeout=-1").exec().get_code(), code::options_format);
    EXPECT_EQ(one->GET(origin.url()).options("timeout").exec().get_code(), code::options_format);
    EXPECT_EQ(
        one->GET(origin.url()).options("maxredirs=x").exec().get_code(), code::options_format);
    EXPECT_EQ(one->GET(origin.url()).options("maxredirs=-5").exec().get_code(), code::options_set);
    EXPECT_EQ(one->GET(origin.url()).basic("joe", std::string(8000001, '*')).exec().get_code(),
        code::options_set);
    EXPECT_EQ(one->GET(origin.url()).authentication("mode=magic").exec().get_code(),
        code::authentication_format);
    EXPECT_EQ(one->GET(origin.url()).authentication("secret=\"open").exec().get_code(),
        code::authentication_format);
    EXPECT_EQ(
        one->GET(origin.url()).certificates("x=1").exec().get_code(), code::certificates_format);
    EXPECT_EQ(one->GET(origin.url()).certificates("engine=pkcs11").exec().get_code(),
        code::certificates_set);
    EXPECT_EQ(one->GET(origin.url()).options("timeout=1000").exec().get_code(), 200);
    EXPECT_EQ(origin.requests(), 1U);
}

TEST_F(options_as_text, of_an_engine_are_the_defaults_of_requests_begun_later) {
    server origin(support::echo);
    const auto before = request();
    before->GET(origin.url());
    EXPECT_TRUE(engine.authentication("mode=bearer,secret=T"));
    EXPECT_FALSE(engine.options("nonsense=1"));
    EXPECT_NE(engine.last_error().find("nonsense"), std::string::npos);
    EXPECT_FALSE(engine.certificates("nonsense=1"));
    before->exec();
    before->GET(origin.url()).exec();
    request()->GET(origin.url()).authentication("mode=none").exec();
    const auto seen = origin.seen();
    EXPECT_EQ(seen.at(0).field("Authorization"), "");
    EXPECT_EQ(seen.at(1).field("Authorization"), "Bearer T");
    EXPECT_EQ(seen.at(2).field("Authorization"), "");
}

TEST_F(options_as_text, have_typed_calls_of_the_same_meaning) {
    server origin(support::echo);
    const auto one = request();
    EXPECT_EQ(one->GET(origin.url())
                  .timeout(std::chrono::seconds(30))
                  .basic("joe", "a,b")
                  .exec()
                  .get_code(),
        200);
    EXPECT_EQ(origin.seen().back().field("Authorization"), "Basic am9lOmEsYg==");
    EXPECT_EQ(one->GET(origin.url()).set_number(HEARTH_FOLLOW_LOCATION, 99).exec().get_code(),
        code::options_set);
    EXPECT_THROW(engine.set_number(HEARTH_FOLLOW_LOCATION, 99), std::invalid_argument);
}
