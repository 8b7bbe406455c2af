// Parts that need no engine: encodings, MIME documents, the event parser.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "support.hpp"

using namespace hearth;

namespace {

std::vector<server_event> parsed(std::string_view stream, std::size_t at_once) {
    event_parser parser;
    std::vector<server_event> events;
    while (!stream.empty()) {
        parser.feed(
            stream.substr(0, at_once), [&](const server_event &one) { events.push_back(one); });
        stream.remove_prefix(std::min(at_once, stream.size()));
    }
    return events;
}

std::string all_of(detail::segments &document, std::size_t at_once) {
    std::string text;
    std::string buffer(at_once, '\0');
    while (const auto read = document.read(buffer.data(), at_once)) {
        if (*read == 0) {
            break;
        }
        text.append(buffer, 0, *read);
    }
    return text;
}

} // namespace

TEST(encodings, everything_but_unreserved_characters_is_percent_encoded) {
    EXPECT_EQ(percent_encoded("aZ09-._~"), "aZ09-._~");
    EXPECT_EQ(percent_encoded("a b&c=d/e?f#g%h+i"), "a%20b%26c%3Dd%2Fe%3Ff%23g%25h%2Bi");
    EXPECT_EQ(percent_encoded("\xC3\xA9"), "%C3%A9");
    EXPECT_EQ(percent_encoded(std::string_view("\0\r\n", 3)), "%00%0D%0A");
}

TEST(encodings, what_is_percent_encoded_is_decoded_and_the_rest_stays) {
    EXPECT_EQ(percent_decoded("a%20b%2fc"), "a b/c");
    EXPECT_EQ(percent_decoded("100%"), "100%");
    EXPECT_EQ(percent_decoded("%zz%4"), "%zz%4");
    EXPECT_EQ(percent_decoded("%41"), "A");
}

TEST(encodings, a_form_has_plus_for_a_blank_and_keeps_order_and_doubles) {
    EXPECT_EQ(form_encoded({{"b", "x y"}, {"a", "1&2"}, {"b", ""}}), "b=x+y&a=1%262&b=");
    EXPECT_EQ(form_encoded({}), "");
}

TEST(key_value_pairs, are_made_from_braces_and_from_any_map_or_vector_of_strings) {
    const std::map<std::string, std::string> map = {{"b", "2"}, {"a", "1"}};
    const std::unordered_map<std::string, std::string> hashed = {{"a", "1"}};
    const std::vector<std::pair<const char *, std::string_view>> views = {{"x", "1"}, {"x", "2"}};
    EXPECT_EQ(form_encoded(map), "a=1&b=2");
    EXPECT_EQ(form_encoded(hashed), "a=1");
    EXPECT_EQ(form_encoded(views), "x=1&x=2");
    EXPECT_EQ(form_encoded(std::vector<std::pair<std::string, std::string>>{{"y", "3"}}), "y=3");
}

TEST(mime_documents, have_each_part_between_boundaries_that_the_content_type_names) {
    auto form = detail::mime_writer::form(
        {mime::parameter{"p", "1"}, mime::data{"d", "Hello", "text/plain", "f.txt"}});
    ASSERT_TRUE(form);
    const std::string prefix = "multipart/form-data; boundary=";
    ASSERT_EQ(form->first.compare(0, prefix.size(), prefix), 0);
    const auto edge = form->first.substr(prefix.size());
    EXPECT_EQ(form->second.take_text(),
        "--" + edge + "\r\nContent-Disposition: form-data; name=\"p\"\r\n\r\n1\r\n" + "--" + edge +
            "\r\nContent-Disposition: form-data; name=\"d\"; filename=\"f.txt\"\r\n"
            "Content-Type: text/plain\r\n\r\nHello\r\n--" +
            edge + "--\r\n");
}

TEST(mime_documents, read_files_as_they_are_sent_and_know_their_length_before) {
    const support::folder folder;
    const std::string big(100'000, 'x');
    const auto path = folder.write("big.bin", big);
    auto form =
        detail::mime_writer::form({mime::parameter{"p", "1"}, mime::file{"f", path, "", ""}});
    ASSERT_TRUE(form);
    EXPECT_FALSE(form->second.take_text());
    const auto text = all_of(form->second, 777);
    EXPECT_EQ(text.size(), form->second.length());
    EXPECT_NE(text.find("name=\"f\"; filename=\"big.bin\"\r\nContent-Type: "
                        "application/octet-stream\r\n\r\nxxx"),
        std::string::npos);
    form->second.rewind();
    EXPECT_EQ(all_of(form->second, 1 << 20), text);
}

TEST(mime_documents, say_that_a_file_became_shorter_instead_of_sending_less) {
    const support::folder folder;
    const auto path = folder.write("f", std::string(1000, 'x'));
    auto form = detail::mime_writer::form({mime::file{"f", path, "", ""}});
    ASSERT_TRUE(form);
    ASSERT_EQ(::truncate(path.c_str(), 10), 0);
    std::string buffer(100'000, '\0');
    std::optional<std::size_t> read = 1;
    while (read && *read > 0) {
        read = form->second.read(buffer.data(), buffer.size());
    }
    EXPECT_FALSE(read);
}

TEST(mime_documents, nest_alternatives) {
    auto form = detail::mime_writer::form({mime::alternatives{
        mime::data{"t", "plain", "text/plain", ""}, mime::data{"h", "<b>", "text/html", ""}}});
    ASSERT_TRUE(form);
    const auto text = form->second.take_text().value();
    EXPECT_NE(
        text.find("Content-Type: multipart/alternative; boundary=hearth-"), std::string::npos);
    EXPECT_LT(text.find("plain\r\n"), text.find("<b>\r\n"));
}

TEST(mime_documents, do_not_let_a_name_or_a_type_out_of_its_line) {
    auto form = detail::mime_writer::form({mime::data{"a\"b\r\nX: y", "1", "", "c\"d"}});
    ASSERT_TRUE(form);
    EXPECT_NE(
        form->second.take_text()->find("name=\"a%22b%0D%0AX: y\"; filename=\"c%22d\"\r\n\r\n1"),
        std::string::npos);
    EXPECT_FALSE(detail::mime_writer::form({mime::data{"a", "1", "text/plain\r\nX: y", ""}}));
}

TEST(mime_documents, with_a_file_that_cannot_be_read_are_none) {
    EXPECT_FALSE(detail::mime_writer::form({mime::file{"f", "/nowhere/at/all", "", ""}}));
    EXPECT_FALSE(detail::mime_writer::form({mime::file{"f", "/tmp", "", ""}}));
}

TEST(server_events, are_the_same_in_whatever_pieces_they_come) {
    const std::string stream = "\xEF\xBB\xBF: a comment\ndata: one\n\nevent: "
                               "tick\r\ndata:two\rdata:  three\nid: 7\nretry: 250\n\n"
                               "data\n\nid\nevent: nothing\n\ndata: cut off";
    const auto whole = parsed(stream, stream.size());
    ASSERT_EQ(whole.size(), 3U);
    EXPECT_EQ(whole[0].type, "message");
    EXPECT_EQ(whole[0].data, "one");
    EXPECT_EQ(whole[1].type, "tick");
    EXPECT_EQ(whole[1].data, "two\n three");
    EXPECT_EQ(whole[1].id, "7");
    EXPECT_EQ(whole[1].retry, std::chrono::milliseconds(250));
    EXPECT_EQ(whole[2].data, "");
    EXPECT_EQ(whole[2].id, "7");
    for (std::size_t at_once = 1; at_once < 8; ++at_once) {
        const auto pieces = parsed(stream, at_once);
        ASSERT_EQ(pieces.size(), whole.size()) << at_once;
        for (std::size_t at = 0; at < whole.size(); ++at) {
            EXPECT_EQ(pieces[at].type + pieces[at].data + pieces[at].id,
                whole[at].type + whole[at].data + whole[at].id);
        }
    }
}

TEST(server_events, have_a_largest_size_however_they_are_made_up) {
    for (const std::string_view line : {"data: 1234567890\n", "x", ": 1234567890"}) {
        event_parser parser(1000);
        const auto none = [](const server_event &) { FAIL(); };
        int fed = 0;
        while (fed < 1000 && parser.feed(line, none)) {
            ++fed;
        }
        EXPECT_LE(static_cast<std::size_t>(fed) * line.size(), 1600U);
        EXPECT_FALSE(parser.feed("data: more", none));
    }
    event_parser parser(1000);
    int taken = 0;
    for (int fed = 0; fed < 1000; ++fed) {
        EXPECT_TRUE(parser.feed("data: 1234567890\n\n", [&](const server_event &) { ++taken; }));
    }
    EXPECT_EQ(taken, 1000);
}

TEST(server_events, ignore_a_retry_that_is_no_number_and_an_id_with_a_nul) {
    using namespace std::string_literals;
    const auto stream = "retry: 1x\nid: a\0b\ndata: d\n\nretry: 99999999999999999999\ndata: e\n\n"s;
    for (const auto &event : parsed(stream, 100)) {
        EXPECT_FALSE(event.retry);
        EXPECT_EQ(event.id, "");
    }
}

TEST(errors, are_error_codes_of_a_category_of_their_own) {
    const std::error_code timeout = error_kind::timeout;
    EXPECT_EQ(timeout.message(), "timed out");
    EXPECT_STREQ(timeout.category().name(), "hearth");
    EXPECT_NE(timeout, std::error_code(error_kind::resolve));
    EXPECT_FALSE(std::error_code(error_kind::none));
}

TEST(cancellation, keeps_one_entry_for_each_object_however_often_it_starts) {
    detail::cancellation word;
    const auto none = [](void *, unsigned) {};
    const std::vector<std::shared_ptr<void>> objects = {
        std::make_shared<int>(), std::make_shared<int>(), std::make_shared<int>()};
    for (unsigned start = 0; start < 9'000; ++start) {
        EXPECT_TRUE(word.add({objects[start % objects.size()], start, none}));
    }
    EXPECT_LE(word.cancel().size(), 16U);
}
