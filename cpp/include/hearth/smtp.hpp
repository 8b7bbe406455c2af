// Mail: one message at a time, as a reusable object: built by a chain of calls, then exec, start, launch, fetch or co_await.
//
// - Held by a std::shared_ptr; while it is running it keeps itself alive. Dropping the pointer detaches it.
// - While it is running, every call except join, abort and get_code is ignored. From inside its own completion callback it may be built and started
//   again.
// - Each start has exactly one completion, but where callbacks begin what is refused without end (http.hpp). What a callback throws becomes
//   code::user_callback.
// - Nothing that is given can break out of its place: an address, a subject or a field with CR, LF or NUL is refused.
// - Who stands in Bcc is in the envelope and nowhere in the message.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <hearth.h>

#include "async.hpp"
#include "cancel.hpp"
#include "detail/life.hpp"
#include "detail/waiting.hpp"
#include "error.hpp"
#include "mime.hpp"
#include "options.hpp"
#include "query.hpp"
#include "response.hpp"

namespace hearth {
inline namespace v1 {

// Whether TLS is begun within a connection of smtp:// (RFC 3207).
enum class starttls : int { never = 0, if_offered = 1, required = 2 };

namespace detail {

// What of hearth.h an smtp is made of.
struct smtp_library {
    using handle = hearth_mail;

    static constexpr const char *name = "mail";
    static constexpr long invalid =
        code::body_set; // of a start that is refused as such: the message cannot be written

    static constexpr auto make = hearth_mail_new;
    static constexpr auto free = hearth_mail_free;
    static constexpr auto reset = hearth_mail_reset;
    static constexpr auto set_options = hearth_mail_set_options;
    static constexpr auto set_authentication = hearth_mail_set_authentication;
    static constexpr auto set_certificates = hearth_mail_set_certificates;
    static constexpr auto set_number = hearth_mail_set_number;
    static constexpr auto set_text = hearth_mail_set_text;
    static constexpr auto start = hearth_mail_start;
    static constexpr auto abort = hearth_mail_abort;
};

} // namespace detail

class smtp : public detail::life<smtp, detail::smtp_library> {
public:
    // `Mary Smith <mary@x.test>`, `"Smith, Mary" <mary@x.test>`, `<mary@x.test>`, `mary@x.test` or `mary@x.test (Mary Smith)`. UTF-8. Read as
    // leniently as curlev reads it: a name may have commas without quotes, and quotes that are in no pairs. What no mail can be sent to is
    // refused by the call that it is given to: code::recipients_set.
    struct address {
        enum class mode { to, cc, bcc };
        using Mode = mode; // as curlev has it

        std::string address_spec; // mary@x.test
        std::string display_name; // Smith, Mary
        mode kind = mode::to;

        address() = default;
        address(std::string_view written, mode how = mode::to) : kind(how) { read(written); }
        address(const char *written, mode how = mode::to) : kind(how) { read(written); }
        address(const std::string &written, mode how = mode::to) : kind(how) { read(written); }
        // A name in whatever letters, and local@domain.
        address(std::string_view name, std::string_view spec, mode how = mode::to)
            : address_spec(spec), display_name(name), kind(how) {}

        // The same as the members, and the two sides of the spec.
        const std::string &name() const noexcept { return display_name; }
        const std::string &spec() const noexcept { return address_spec; }
        std::string local_part() const { return address_spec.substr(0, address_spec.rfind('@')); }
        std::string domain() const {
            const auto at = address_spec.rfind('@');
            return at == std::string::npos ? std::string() : address_spec.substr(at + 1);
        }

        // As a mail has it (RFC 5322): "the \"boss\"" <mary@x.test>
        std::string text() const {
            std::string quoted;
            for (const char c : display_name) {
                quoted.append(c == '"' || c == '\\' ? "\\" : "").push_back(c);
            }
            return quoted.empty() ? get_addr_spec() : "\"" + quoted + "\" " + get_addr_spec();
        }
        // To be shown, as curlev shows it: quotes in the name stay as they are.
        std::string get_name_addr() const {
            return (display_name.empty() ? "" : "\"" + display_name + "\" ") + get_addr_spec();
        }
        std::string get_addr_spec() const { return "<" + address_spec + ">"; }

    private:
        void read(std::string_view written) {
            std::string_view comment;
            written = without_comment(trimmed(written), comment);
            const auto end = written.rfind('>');
            const auto begin =
                end == std::string_view::npos ? end : opening(written.substr(0, end));
            // What is behind it may be anything but another address.
            if (begin == std::string_view::npos ||
                written.find_first_of("@,<", end) != std::string_view::npos) {
                address_spec = written;
                display_name = comment;
                return;
            }
            address_spec = trimmed(written.substr(begin + 1, end - begin - 1));
            display_name = unquoted(trimmed(written.substr(0, begin)));
            if (display_name.empty()) {
                display_name = comment;
            }
        }
        // A comment at the end is taken off, as mail programs wrote names before there were angle brackets.
        static std::string_view without_comment(
            std::string_view written, std::string_view &comment) {
            const auto begin = written.rfind('(');
            if (begin == std::string_view::npos || written.back() != ')' ||
                written.substr(0, begin).find('@') == std::string_view::npos ||
                written.find_first_of(">\"", begin) != std::string_view::npos) {
                return written;
            }
            comment = trimmed(written.substr(begin + 1, written.size() - begin - 2));
            return trimmed(written.substr(0, begin));
        }
        // Where the spec begins: outside of the name's quotes, or at the last bracket if they are in no pairs.
        static std::size_t opening(std::string_view written) {
            bool quoted = false;
            for (std::size_t at = 0; at < written.size(); ++at) {
                if (quoted && written[at] == '\\') {
                    ++at;
                } else if (written[at] == '"') {
                    quoted = !quoted;
                } else if (written[at] == '<' && !quoted) {
                    return at;
                }
            }
            return written.rfind('<');
        }
        static std::string unquoted(std::string_view name) {
            if (name.size() < 2 || name.front() != '"' || name.back() != '"') {
                return std::string(name);
            }
            std::string inside;
            for (std::size_t at = 1; at + 1 < name.size(); ++at) {
                at += name[at] == '\\' && at + 2 < name.size() ? 1 : 0;
                inside.push_back(name[at]);
            }
            return inside;
        }
        static std::string_view trimmed(std::string_view part) {
            while (!part.empty() && (part.front() == ' ' || part.front() == '\t')) {
                part.remove_prefix(1);
            }
            while (!part.empty() && (part.back() == ' ' || part.back() == '\t')) {
                part.remove_suffix(1);
            }
            return part;
        }
    };
    using recipients = std::vector<address>;

    smtp(only_create tag, const detail::engine_use &engine) : life(tag, engine) {}
    smtp(const smtp &) = delete;
    smtp &operator=(const smtp &) = delete;
    ~smtp() = default;

    // ---- what to send. SEND starts again from the engine's current defaults ----

    // smtp://host:port/name or smtps://…; `name` is sent in EHLO. A user and a password in the URL become credentials.
    smtp &SEND(std::string_view url, const address &from) {
        begin_anew(url, from);
        return *this;
    }
    // The address for reports of failed delivery, if it is not the author's; empty: no reports.
    smtp &sender(std::string_view spec) {
        return edit([&] {
            check(hearth_mail_set_sender(handle_, spec.data(), spec.size()), code::recipients_set);
        });
    }
    smtp &to(const address &one) { return add(HEARTH_MAIL_TO, one); }
    smtp &cc(const address &one) { return add(HEARTH_MAIL_CC, one); }
    smtp &bcc(const address &one) { return add(HEARTH_MAIL_BCC, one); }
    smtp &reply_to(const address &one) { return add(HEARTH_MAIL_REPLY_TO, one); }
    // Each depends on its mode.
    smtp &add_recipients(const recipients &all) {
        for (const auto &one : all) {
            add(one.kind == address::mode::cc    ? HEARTH_MAIL_CC
                : one.kind == address::mode::bcc ? HEARTH_MAIL_BCC
                                                 : HEARTH_MAIL_TO,
                one);
        }
        return *this;
    }
    smtp &subject(std::string_view text) {
        return edit([&] {
            check(hearth_mail_set_subject(handle_, text.data(), text.size()), code::headers_set);
        });
    }
    smtp &add_headers(const key_values &fields) {
        return edit([&] {
            for (const auto &[name, value] : fields) {
                check(hearth_mail_add_header(
                          handle_, name.data(), name.size(), value.data(), value.size()),
                    code::headers_set);
            }
        });
    }

    // The message's text: plain, HTML, or both, of which the reader's program shows one.
    smtp &text(std::string_view body) { return alternative("text/plain", body); }
    smtp &html(std::string_view body) { return alternative("text/html", body); }
    // One more form of the same, better than those before.
    smtp &alternative(std::string_view content_type, std::string_view body) {
        return part(HEARTH_MAIL_BODY, content_type, {}, {}, body, {});
    }
    // A part that the HTML shows: <img src="cid:ID">.
    smtp &embed(std::string_view id, std::string_view content_type, std::string_view data,
        std::string_view filename = {}) {
        return part(HEARTH_MAIL_RELATED, content_type, filename, id, data, {});
    }
    smtp &embed_file(std::string_view id, std::string_view content_type, std::string_view path) {
        return file(HEARTH_MAIL_RELATED, content_type, {}, id, path);
    }
    // A file, from memory or read while it is sent. Without a type: application/octet-stream.
    smtp &attach(std::string_view filename, std::string_view content_type, std::string_view data) {
        return part(HEARTH_MAIL_ATTACHMENT, content_type, filename, {}, data, {});
    }
    smtp &attach_file(
        std::string_view path, std::string_view content_type = {}, std::string_view filename = {}) {
        return file(HEARTH_MAIL_ATTACHMENT, content_type, filename, {}, path);
    }

    // curlev's: recipients, subject and parts at once. The first text, or the first alternatives, is the message's text. Further ones are shown
    // behind it, and parts with a file name are attached.
    smtp &set_mime(const recipients &all, std::string_view what, const mime::parts &parts) {
        add_recipients(all).subject(what);
        bool read = false;
        for (const auto &one : parts) {
            std::visit([&](const auto &given) { add_part(given, read); }, one);
        }
        return *this;
    }
    // The whole message, fields included. Line ends become CR LF, Bcc is taken out, Date and Message-ID are put in where they are missing.
    smtp &set_body(const recipients &all, std::string_view raw) {
        return add_recipients(all).edit(
            [&] { check(hearth_mail_set_raw(handle_, raw.data(), raw.size()), code::body_set); });
    }

    // ---- how ----

    // TLS on smtp://. Required: nothing is sent without.
    smtp &tls_within(starttls how) { return set_number(HEARTH_STARTTLS, static_cast<int>(how)); }
    // Passwords and tokens may be shown without TLS.
    smtp &plain_auth(bool allowed = true) { return set_number(HEARTH_PLAIN_AUTH, allowed); }
    // It goes to those recipients that are accepted; else to all or none.
    smtp &allow_fails(bool on = true) { return set_number(HEARTH_RCPT_ALLOW_FAILS, on); }
    // Those that may be used: "PLAIN LOGIN".
    smtp &mechanisms(std::string_view names) { return set_text(HEARTH_AUTH_MECHANISMS, names); }
    smtp &cancel_with(const cancel_token &token) {
        return edit([&] { cancel_ = token.state_; });
    }

    // ---- what came of it ----

    // "550 5.1.1 no such user"
    std::string get_reply() const { return answer_.get_reply(); }
    std::string get_message_id() const { return answer_.get_message_id(); }
    std::vector<recipient> get_recipients() const { return answer_.get_recipients(); }

private:
    friend life;

    smtp &add(int kind, const address &one) {
        return edit([&] {
            const auto text = one.text();
            check(hearth_mail_add_recipient(handle_, kind, text.data(), text.size()),
                code::recipients_set);
        });
    }
    smtp &part(int place, std::string_view content_type, std::string_view filename,
        std::string_view id, std::string_view data, std::string_view path) {
        return edit([&] {
            hearth_part given = {};
            given.size = sizeof given;
            given.place = place;
            given.content_type = content_type.data();
            given.content_type_size = content_type.size();
            given.name = filename.data();
            given.name_size = filename.size();
            given.id = id.data();
            given.id_size = id.size();
            given.data = data.data();
            given.data_size = data.size();
            given.path = path.data();
            given.path_size = path.size();
            check(hearth_mail_add_part(handle_, &given), code::mime_set);
        });
    }
    // To the library a part without a path is one of bytes.
    smtp &file(int place, std::string_view content_type, std::string_view filename,
        std::string_view id, std::string_view path) {
        if (path.empty()) {
            return edit(
                [&] { fail(error_kind::bad_request, code::mime_set, "a file has an empty path"); });
        }
        return part(place, content_type, filename, id, {}, path);
    }
    void add_part(const mime::parameter &one, bool &read) {
        part(std::exchange(read, true) ? HEARTH_MAIL_INLINE : HEARTH_MAIL_BODY, "text/plain", {},
            {}, one.value, {});
    }
    void add_part(const mime::data &one, bool &read) {
        if (one.filename.empty()) {
            part(std::exchange(read, true) ? HEARTH_MAIL_INLINE : HEARTH_MAIL_BODY,
                one.content_type, {}, {}, one.data, {});
        } else {
            attach(one.filename, one.content_type, one.data);
        }
    }
    void add_part(const mime::file &one, bool &) {
        attach_file(one.filedata, one.content_type, one.filename);
    }
    void add_part(const mime::alternatives &all, bool &read) {
        // Further ones would be forms of the first.
        const int place = std::exchange(read, true) ? HEARTH_MAIL_INLINE : HEARTH_MAIL_BODY;
        for (const auto &one : all) {
            std::visit([&](const auto &given) { add_form(given, place); }, one);
        }
    }
    void add_form(const mime::parameter &one, int place) {
        part(place, "text/plain", {}, {}, one.value, {});
    }
    void add_form(const mime::data &one, int place) {
        part(place, one.content_type, one.filename, {}, one.data, {});
    }
    void add_form(const mime::file &one, int place) {
        file(place, one.content_type, one.filename, {}, one.filedata);
    }

    void begin_anew(std::string_view url, const address &from) {
        std::shared_ptr<detail::cancellation> gone;
        look_for_fork();
        const detail::locked lock(this);
        if (!settled()) {
            return;
        }
        gone = std::move(cancel_);
        if (!renew()) {
            return;
        }
        aim(url, [&](std::string_view bare) {
            const auto status = hearth_mail_set_target(handle_, bare.data(), bare.size());
            check(status,
                status == HEARTH_UNSUPPORTED ? code::unsupported_protocol : code::url_malformed);
        });
        const auto author = from.text();
        check(hearth_mail_set_from(handle_, author.data(), author.size()), code::recipients_set);
    }

    // ---- functions that detail::life calls ----

    void gathered() noexcept {}
    bool has_callbacks() const noexcept { return false; }
    std::optional<error> prepare() {
        if (cancel_ && !broken_ && !cancel_->add(this_start())) {
            return error{error_kind::aborted, code::aborted, "it was cancelled before it began"};
        }
        return std::nullopt;
    }
    response outcome(const hearth_response *lent) { return response(lent); }
    bool again() noexcept { return false; }

    std::shared_ptr<detail::cancellation> cancel_;
};

} // namespace v1
} // namespace hearth
