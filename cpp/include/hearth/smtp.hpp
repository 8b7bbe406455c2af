// Mail: one message at a time, as a reusable object: built by a chain of calls, then exec, start, launch, fetch or co_await.
//
// - Kept by a std::shared_ptr; while it is under way it keeps itself alive. Dropping the pointer detaches it.
// - While it is under way every other call but join, abort and get_code is ignored. From inside its own completion callback it may be
//   built and started anew.
// - Each start has exactly one completion. What a callback throws becomes code::user_callback.
// - Nothing that is given can break out of its place: an address, a subject or a field with CR, LF or NUL is refused.
// - Who stands in Bcc is in the envelope and nowhere in the message.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#if defined(__cpp_impl_coroutine) && __has_include(<coroutine>)
#include <coroutine>
#define HEARTH_HAS_COROUTINES
#endif

#include <hearth.h>

#include "async.hpp"
#include "cancel.hpp"
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

class smtp : public std::enable_shared_from_this<smtp>, public detail::typed_options<smtp> {
    struct only_create {};

public:
    using callback = std::function<void(const smtp &)>;

    // `Mary Smith <mary@x.test>`, `"Smith, Mary" <mary@x.test>` or `mary@x.test`. UTF-8.
    struct address {
        enum class mode { to, cc, bcc };

        std::string text;
        mode kind = mode::to;

        address() = default;
        address(std::string_view written, mode how = mode::to) : text(written), kind(how) {}
        address(const char *written, mode how = mode::to) : text(written), kind(how) {}
        address(const std::string &written, mode how = mode::to) : text(written), kind(how) {}
        // A name in whatever letters, and local@domain.
        address(std::string_view name, std::string_view spec, mode how = mode::to) : kind(how) {
            text = "\"";
            for (const char c : name) {
                if (c == '"' || c == '\\') {
                    text.push_back('\\');
                }
                text.push_back(c);
            }
            text.append("\" <").append(spec).append(">");
        }
    };
    using recipients = std::vector<address>;

    // A new mail on that engine.
    static std::shared_ptr<smtp> create(async &engine) {
        return std::make_shared<smtp>(only_create(), engine.engine_);
    }

    smtp(only_create, std::shared_ptr<detail::engine> engine) : engine_(std::move(engine)) {}
    smtp(const smtp &) = delete;
    smtp &operator=(const smtp &) = delete;
    ~smtp() { hearth_mail_free(mail_); }

    // ---- what to send. SEND begins anew, with the engine's defaults of this moment ----

    // smtp://host:port/name or smtps://…; `name` is who we say we are. A user and a password in the URL become credentials.
    smtp &SEND(std::string_view url, const address &from) {
        begin_anew(url, from);
        return *this;
    }
    // Who is told that it could not be delivered, where that is not the author; empty: nobody.
    smtp &sender(std::string_view spec) {
        return edit([&] {
            judge(hearth_mail_set_sender(mail_, spec.data(), spec.size()), code::recipients_set);
        });
    }
    smtp &to(const address &one) { return add(HEARTH_MAIL_TO, one); }
    smtp &cc(const address &one) { return add(HEARTH_MAIL_CC, one); }
    smtp &bcc(const address &one) { return add(HEARTH_MAIL_BCC, one); }
    smtp &reply_to(const address &one) { return add(HEARTH_MAIL_REPLY_TO, one); }
    // Each as its mode says.
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
            judge(hearth_mail_set_subject(mail_, text.data(), text.size()), code::headers_set);
        });
    }
    smtp &add_headers(const key_values &fields) {
        return edit([&] {
            for (const auto &[name, value] : fields) {
                judge(hearth_mail_add_header(
                          mail_, name.data(), name.size(), value.data(), value.size()),
                    code::headers_set);
            }
        });
    }

    // What is read: as text, as HTML, or both, of which the reader's program shows what it can.
    smtp &text(std::string_view body) { return alternative("text/plain", body); }
    smtp &html(std::string_view body) { return alternative("text/html", body); }
    // One more form of the same, better than those before.
    smtp &alternative(std::string_view content_type, std::string_view body) {
        return part(HEARTH_MAIL_BODY, content_type, {}, {}, body, {});
    }
    // What the HTML shows: <img src="cid:ID">.
    smtp &embed(std::string_view id, std::string_view content_type, std::string_view data,
        std::string_view filename = {}) {
        return part(HEARTH_MAIL_RELATED, content_type, filename, id, data, {});
    }
    smtp &embed_file(std::string_view id, std::string_view content_type, std::string_view path) {
        return part(HEARTH_MAIL_RELATED, content_type, {}, id, {}, path);
    }
    // A file, from memory or read while it is sent. Without a type: application/octet-stream.
    smtp &attach(std::string_view filename, std::string_view content_type, std::string_view data) {
        return part(HEARTH_MAIL_ATTACHMENT, content_type, filename, {}, data, {});
    }
    smtp &attach_file(
        std::string_view path, std::string_view content_type = {}, std::string_view filename = {}) {
        return part(HEARTH_MAIL_ATTACHMENT, content_type, filename, {}, {}, path);
    }

    // curlev's: recipients, subject and parts at once. The first text, or the first alternatives, is what is read; further ones are shown behind
    // it; what has a file name is attached.
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
            [&] { judge(hearth_mail_set_raw(mail_, raw.data(), raw.size()), code::body_set); });
    }

    // ---- how ----

    // `key=value,key="a value"`, as http has it.
    smtp &options(std::string_view text) {
        return edit([&] {
            judge(hearth_mail_set_options(mail_, text.data(), text.size()), code::options_format);
        });
    }
    smtp &authentication(std::string_view text) {
        return edit([&] {
            judge(hearth_mail_set_authentication(mail_, text.data(), text.size()),
                code::authentication_format);
        });
    }
    smtp &certificates(std::string_view text) {
        return edit([&] {
            judge(hearth_mail_set_certificates(mail_, text.data(), text.size()),
                code::certificates_format);
        });
    }
    smtp &set_number(hearth_option option, std::int64_t value) {
        return edit(
            [&] { judge(hearth_mail_set_number(mail_, option, value), code::options_set); });
    }
    smtp &set_text(hearth_option option, std::string_view value) {
        return edit([&] {
            judge(
                hearth_mail_set_text(mail_, option, value.data(), value.size()), code::options_set);
        });
    }
    // TLS on smtp://. Required: nothing is sent without.
    smtp &tls_within(starttls how) { return set_number(HEARTH_STARTTLS, static_cast<int>(how)); }
    // Passwords and tokens may be shown without TLS.
    smtp &plain_auth(bool allowed = true) { return set_number(HEARTH_PLAIN_AUTH, allowed); }
    // It goes to those recipients that are accepted; else to all or none.
    smtp &allow_fails(bool on = true) { return set_number(HEARTH_RCPT_ALLOW_FAILS, on); }
    // Those that may be used: "PLAIN LOGIN".
    smtp &mechanisms(std::string_view names) { return set_text(HEARTH_AUTH_MECHANISMS, names); }
    // As http has them.
    smtp &threaded_callback(bool on) {
        return edit([&] { threaded_ = on; });
    }
    smtp &maximum_retries(unsigned retries, unsigned delay_ms = 100) {
        return set_number(HEARTH_MAX_RETRIES, retries)
            .set_number(HEARTH_RETRY_DELAY, delay_ms)
            .set_number(HEARTH_RETRY_MAX_DELAY, delay_ms)
            .set_number(HEARTH_RETRY_JITTER, 0);
    }
    smtp &cancel_with(const cancel_token &token) {
        return edit([&] { cancel_ = token.state_; });
    }

    // ---- off ----

    // Under way at once; `done` is told when it has ended, and then join() is released.
    smtp &start(callback done = nullptr) {
        begin(std::move(done));
        return *this;
    }
    // Waits until it is not under way. From inside a callback that it would wait for, it returns at once.
    smtp &join() {
        auto &place = detail::places::of(this);
        std::unique_lock lock(place.mutex);
        while (state_ != state::idle && !hopeless()) {
            if (generation_ != detail::places::generation()) {
                lock.unlock();
                lost_by_fork();
                return *this;
            }
            ++place.waiting;
            place.changed.wait(lock);
            --place.waiting;
        }
        return *this;
    }
    // The same, so long at most. True: it is not under way.
    bool join_for(std::chrono::milliseconds limit) {
        auto &place = detail::places::of(this);
        std::unique_lock lock(place.mutex);
        const auto deadline = std::chrono::steady_clock::now() + limit;
        while (state_ != state::idle && !hopeless()) {
            ++place.waiting;
            const auto status = place.changed.wait_until(lock, deadline);
            --place.waiting;
            if (status == std::cv_status::timeout) {
                break;
            }
        }
        return state_ == state::idle;
    }
    // start() and join()
    smtp &exec() { return start().join(); }
    // start(), with what comes of it as a future. Under way already: the future has code::restart_failed.
    std::future<response> launch() {
        auto promise = std::make_shared<std::promise<response>>();
        auto future = promise->get_future();
        if (!begin([promise](const smtp &done) { promise->set_value(done.answer_); })) {
            promise->set_value(under_way());
        }
        return future;
    }
    // exec(), with what came of it. Throws request_error where it was not sent.
    response fetch() {
        std::error_code why;
        auto result = fetch(why);
        if (why) {
            throw request_error(result.get_error());
        }
        return result;
    }
    // The same without throwing.
    response fetch(std::error_code &why) {
        auto result = begin(nullptr) && !join().is_running() ? get_response() : under_way();
        why = make_error_code(result.get_error().kind);
        return result;
    }
    // Ends it as soon as may be, with code::aborted. Once the whole message has gone out its kind is error_kind::outcome_unknown.
    smtp &abort() {
        const std::lock_guard lock(detail::places::of(this).mutex);
        if (state_ != state::idle) {
            aborted_ = true;
            if (mail_ != nullptr) {
                hearth_mail_abort(mail_);
            }
        }
        return *this;
    }

#ifdef HEARTH_HAS_COROUTINES
    // co_await mail->SEND(…): a response. Goes on where a callback would be called.
    class awaitable {
    public:
        explicit awaitable(std::shared_ptr<smtp> mail) : mail_(std::move(mail)) {}
        awaitable(const awaitable &) = delete;
        awaitable &operator=(const awaitable &) = delete;
        ~awaitable() = default;

        bool await_ready() const noexcept { return false; }
        bool await_suspend(std::coroutine_handle<> waiting) {
            const auto begun = mail_->begin([this, waiting](const smtp &done) {
                result_ = done.answer_;
                if (met_.exchange(true)) {
                    waiting.resume();
                }
            });
            if (!begun) {
                result_ = mail_->under_way();
                return false;
            }
            return !met_.exchange(true);
        }
        response await_resume() noexcept { return std::move(result_); }

    private:
        std::shared_ptr<smtp> mail_;
        response result_;
        // Who comes second, of the end of await_suspend and the completion, goes on.
        std::atomic<bool> met_ = false;
    };
    awaitable operator co_await() {
        return awaitable(shared_from_this());
    }
#endif

    // ---- what came of it ----

    // 250, or why it was not sent (namespace code); code::running while it is under way. In its callback it is not.
    long get_code() const noexcept {
        const std::lock_guard lock(detail::places::of(this).mutex);
        return settled() ? answer_.get_code() : code::running;
    }
    bool is_running() const noexcept {
        return !settled();
    }
    const response &get_response() const noexcept {
        return answer_;
    }
    error get_error() const {
        return answer_.get_error();
    }
    // "550 5.1.1 no such user"
    std::string get_reply() const {
        return answer_.get_reply();
    }
    std::string get_message_id() const {
        return answer_.get_message_id();
    }
    std::vector<recipient> get_recipients() const {
        return answer_.get_recipients();
    }
    timings get_timings() const {
        return answer_.get_timings();
    }

private:
    enum class state : std::uint8_t {
        idle,
        starting, // before it is with the engine
        running,
        delivering, // its callback is running
    };

    bool mine() const noexcept {
        return owner_.load(std::memory_order_relaxed) == std::this_thread::get_id();
    }
    bool settled() const noexcept {
        const auto now = state_.load(std::memory_order_acquire);
        return now == state::idle || (now == state::delivering && mine());
    }
    // Waiting here would wait for this very thread.
    bool hopeless() const noexcept {
        const auto &here = detail::whereabouts::here();
        return mine() || (here.engine == engine_.get() && (here.loop || runs_threaded_));
    }

    template <typename Change>
    smtp &edit(Change change) {
        const std::lock_guard lock(detail::places::of(this).mutex);
        if (settled() && !broken_ && ready()) {
            change();
        }
        return *this;
    }
    bool ready() {
        if (mail_ == nullptr && hearth_mail_new(engine_->get(), &mail_) != HEARTH_OK) {
            fail(error_kind::system, code::start_failed, hearth_last_error());
        }
        return mail_ != nullptr;
    }
    // The first thing that is wrong is what the start will say.
    void fail(error_kind kind, long number, std::string message) {
        if (!broken_) {
            broken_ = true;
            answer_ = response(error{kind, number, std::move(message)});
        }
    }
    void judge(hearth_status status, long number) {
        if (status == HEARTH_OK) {
            return;
        }
        const bool format = number == code::options_format ||
                            number == code::authentication_format ||
                            number == code::certificates_format;
        if (status == HEARTH_UNSUPPORTED) {
            fail(error_kind::unsupported, format ? number - 1 : number, hearth_last_error());
        } else {
            fail(error_kind::bad_request, number, hearth_last_error());
        }
    }

    smtp &add(int kind, const address &one) {
        return edit([&] {
            judge(hearth_mail_add_recipient(mail_, kind, one.text.data(), one.text.size()),
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
            judge(hearth_mail_add_part(mail_, &given), code::mime_set);
        });
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
        part(place, one.content_type, one.filename, {}, {}, one.filedata);
    }

    void begin_anew(std::string_view url, const address &from) {
        std::shared_ptr<detail::cancellation> gone;
        const std::lock_guard lock(detail::places::of(this).mutex);
        if (!settled()) {
            return;
        }
        gone = std::move(cancel_);
        broken_ = false;
        threaded_ = engine_->threaded();
        answer_ = response();
        if (mail_ != nullptr) {
            judge(hearth_mail_reset(mail_), code::url_set);
        } else if (!ready()) {
            return;
        }
        std::string bare(url);
        const auto begin = url.find("://");
        const auto authority = begin == std::string_view::npos ? begin : begin + 3;
        if (authority != std::string_view::npos) {
            const auto end = url.find('/', authority);
            const auto at = url.substr(0, end).rfind('@');
            if (at != std::string_view::npos && at >= authority) {
                credentials_of(url.substr(authority, at - authority));
                bare = std::string(url.substr(0, authority)).append(url.substr(at + 1));
            }
        }
        judge(hearth_mail_set_target(mail_, bare.data(), bare.size()), code::url_set);
        judge(
            hearth_mail_set_from(mail_, from.text.data(), from.text.size()), code::recipients_set);
    }
    void credentials_of(std::string_view user_and_password) {
        const auto colon = user_and_password.find(':');
        const auto user = percent_decoded(user_and_password.substr(0, colon));
        const auto secret = colon == std::string_view::npos
                                ? std::string()
                                : percent_decoded(user_and_password.substr(colon + 1));
        judge(hearth_mail_set_text(mail_, HEARTH_AUTH_MODE, "basic", HEARTH_TEXT),
            code::authentication_set);
        judge(hearth_mail_set_text(mail_, HEARTH_AUTH_USER, user.data(), user.size()),
            code::authentication_set);
        judge(hearth_mail_set_text(mail_, HEARTH_AUTH_SECRET, secret.data(), secret.size()),
            code::authentication_set);
    }

    response under_way() const {
        return response(
            error{error_kind::bad_request, code::restart_failed, "the mail is under way already"});
    }

    // False: it is under way already, and `done` is not told of anything.
    bool begin(callback done) {
        const auto self =
            shared_from_this(); // a completion on another thread must not be the end of it
        callback gone;
        {
            const std::lock_guard lock(detail::places::of(this).mutex);
            if (!settled()) {
                return false;
            }
            ++epoch_;
            generation_ = detail::places::generation();
            state_ = state::starting;
            owner_ = std::this_thread::get_id();
            aborted_ = false;
            gone = std::exchange(callback_, std::move(done));
            runs_threaded_ = threaded_ && callback_;
            self_ = self;
        }
        if (!attempt()) {
            deliver();
        }
        return true;
    }

    // False: it was not started, and answer_ says why.
    bool attempt() {
        if (cancel_ && !broken_ && !cancel_->add(detail::cancellation::entry(weak_from_this()))) {
            refuse({error_kind::aborted, code::aborted, "it was cancelled before it began"});
            return false;
        }
        if (broken_ || !ready()) {
            const std::lock_guard lock(detail::places::of(this).mutex);
            state_ = state::delivering;
            return false;
        }
        hearth_mail_set_number(mail_, HEARTH_THREADED_CALLBACK, runs_threaded_ ? 1 : 0);
        {
            const std::lock_guard lock(detail::places::of(this).mutex);
            answer_ = response();
            owner_ = std::thread::id();
            state_ = state::running;
        }
        const auto epoch = epoch_.load();
        const auto status = hearth_mail_start(mail_, &smtp::completed, this);
        if (status != HEARTH_OK) {
            const auto kind = status == HEARTH_STATE     ? error_kind::not_running
                              : status == HEARTH_INVALID ? error_kind::bad_request
                                                         : error_kind::system;
            const auto number = status == HEARTH_INVALID ? code::body_set : code::start_failed;
            refuse({kind, number, hearth_last_error()});
            return false;
        }
        // An abort that came before the library knew of the mail.
        const std::lock_guard lock(detail::places::of(this).mutex);
        if (epoch_ == epoch && aborted_ && state_ == state::running) {
            hearth_mail_abort(mail_);
        }
        return true;
    }

    void refuse(error why) {
        const std::lock_guard lock(detail::places::of(this).mutex);
        owner_ = std::this_thread::get_id();
        answer_ = response(std::move(why));
        state_ = state::delivering;
    }

    static void completed(void *user, hearth_mail *, const hearth_response *lent) {
        static_cast<smtp *>(user)->complete(lent);
    }

    void complete(const hearth_response *lent) noexcept {
        static_cast<void>(state_.load(std::memory_order_acquire)); // what attempt() wrote
        const detail::inside_callback inside(engine_.get(), !runs_threaded_);
        {
            const std::lock_guard lock(detail::places::of(this).mutex);
            answer_ = response(lent);
            owner_ = std::this_thread::get_id();
            state_ = state::delivering;
        }
        deliver();
    }

    // Tells who is to be told, then lets go. State is `delivering`, by this thread.
    void deliver() noexcept {
        callback done;
        std::shared_ptr<smtp> self;
        const auto epoch = epoch_.load();
        {
            const std::lock_guard lock(detail::places::of(this).mutex);
            done = std::exchange(callback_, nullptr);
            self = std::move(self_);
        }
        std::optional<error> thrown;
        if (done) {
            try {
                done(*this);
            } catch (const std::exception &what) {
                thrown = error{error_kind::callback, code::user_callback, what.what()};
            } catch (...) {
                thrown = error{error_kind::callback, code::user_callback,
                    "a callback threw what is no std::exception"};
            }
            done = nullptr;
        }
        auto &place = detail::places::of(this);
        const std::lock_guard lock(place.mutex);
        if (epoch_ != epoch) {
            return; // begun anew by its callback
        }
        if (thrown) {
            answer_ = response(std::move(*thrown));
        }
        owner_ = std::thread::id();
        state_ = state::idle;
        if (place.waiting > 0) {
            place.changed.notify_all();
        }
    }

    // Under way in the parent, when this child was forked: here it never ends.
    void lost_by_fork() {
        std::shared_ptr<smtp> self;
        callback gone;
        const std::lock_guard lock(detail::places::of(this).mutex);
        self = std::move(self_);
        gone = std::move(callback_);
        ++epoch_;
        answer_ = response(error{error_kind::not_running, code::start_failed,
            "it was under way when the process forked, and is the parent's"});
        hearth_mail_free(std::exchange(mail_, nullptr));
        owner_ = std::thread::id();
        state_ = state::idle;
    }

    std::shared_ptr<detail::engine> engine_;
    hearth_mail *mail_ = nullptr;
    std::shared_ptr<smtp> self_; // while it is under way
    callback callback_;
    response answer_;
    std::shared_ptr<detail::cancellation> cancel_;
    std::atomic<std::thread::id> owner_ = std::thread::id(); // of `starting` and `delivering`
    std::atomic<unsigned> epoch_ = 0;                        // starts
    unsigned generation_ = 0;
    std::atomic<state> state_ = state::idle;
    std::atomic<bool> aborted_ = false;
    bool broken_ = false; // something is wrong with what was built; answer_ says what
    bool threaded_ = true;
    bool runs_threaded_ = false;
};

} // namespace v1
} // namespace hearth

#ifdef HEARTH_HAS_COROUTINES
#undef HEARTH_HAS_COROUTINES
#endif
