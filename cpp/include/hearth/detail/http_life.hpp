// A request's life, as http.hpp declares it: built, started, told on the way, completed. Included by that header alone.
//
// - State changes under the lock of the request's place; callbacks of the program run without it.
// - Whoever sets `starting` or `delivering` owns the object until it sets another: callback_, extras_ and the rest are its own.
// - self_ is set from a start to its completion, and nowhere else.
#pragma once

#include "../http.hpp"

namespace hearth {
inline namespace v1 {

inline void http::begin_anew(
    std::string_view method, std::string_view url, const key_values &query) {
    std::unique_ptr<detail::extras> gone; // a program's destructors run without the lock
    const std::lock_guard lock(detail::places::of(this).mutex);
    if (!editable()) {
        return;
    }
    gone = std::move(extras_);
    broken_ = false;
    threaded_ = engine_->threaded();
    answer_ = response();
    if (request_ != nullptr) {
        judge(hearth_request_reset(request_), code::url_set);
    } else if (!ready()) {
        return;
    }
    const auto user = user_of(url);
    if (user) {
        const std::string bare =
            std::string(url.substr(0, user->begin)).append(url.substr(user->end));
        target(method, bare);
        credentials(url.substr(user->begin, user->end - 1 - user->begin));
    } else {
        target(method, url);
    }
    for (const auto &[name, value] : query) {
        judge(hearth_request_add_query(
                  request_, name.data(), name.size(), value.data(), value.size()),
            code::url_set);
    }
}

inline void http::target(std::string_view method, std::string_view url) {
    judge(hearth_request_set_target(request_, method.data(), method.size(), url.data(), url.size()),
        code::url_set);
}

inline std::optional<http::span> http::user_of(std::string_view url) noexcept {
    const auto slashes = url.find("://");
    if (slashes == std::string_view::npos) {
        return std::nullopt;
    }
    const auto begin = slashes + 3;
    const auto authority = url.substr(begin, url.find_first_of("/?#", begin) - begin);
    const auto at = authority.rfind('@');
    return at == std::string_view::npos ? std::nullopt : std::optional(span{begin, begin + at + 1});
}

inline void http::credentials(std::string_view user_and_password) {
    const auto colon = user_and_password.find(':');
    const auto user = percent_decoded(user_and_password.substr(0, colon));
    const auto secret = colon == std::string_view::npos
                            ? std::string()
                            : percent_decoded(user_and_password.substr(colon + 1));
    judge(hearth_request_set_text(request_, HEARTH_AUTH_MODE, "basic", HEARTH_TEXT),
        code::authentication_set);
    judge(hearth_request_set_text(request_, HEARTH_AUTH_USER, user.data(), user.size()),
        code::authentication_set);
    judge(hearth_request_set_text(request_, HEARTH_AUTH_SECRET, secret.data(), secret.size()),
        code::authentication_set);
}

inline void http::type(std::string_view content_type) {
    if (!content_type.empty()) {
        constexpr std::string_view name = "Content-Type";
        judge(hearth_request_remove_header(request_, name.data(), name.size()), code::headers_set);
        judge(hearth_request_add_header(
                  request_, name.data(), name.size(), content_type.data(), content_type.size()),
            code::headers_set);
    }
}

inline void http::give(std::string body) {
    auto owned = std::make_unique<std::string>(std::move(body));
    const auto status = hearth_request_give_body(
        request_, owned->data(), owned->size(),
        [](void *user, const char *, std::size_t) { delete static_cast<std::string *>(user); },
        owned.get());
    if (status == HEARTH_OK) {
        static_cast<void>(owned.release());
    }
    judge(status, code::body_set);
}

inline void http::set_source(std::uint64_t length, body_source source, body_rewind rewind) {
    auto &more = extra();
    more.source = std::move(source);
    more.rewind = std::move(rewind);
    judge(hearth_request_set_body_source(request_, length, &http::read_source,
              more.rewind ? &http::rewind_source : nullptr, this),
        code::body_set);
}

inline response http::under_way() const {
    return response(
        error{error_kind::bad_request, code::restart_failed, "the request is under way already"});
}

inline bool http::begin(callback done, bool quick) {
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
        tries_ = 0;
        gone = std::exchange(callback_, std::move(done));
        interceptors_ = engine_->all();
        const bool told =
            (callback_ && !quick) || interceptors_ || (extras_ && extras_->has_callbacks());
        runs_threaded_ = threaded_ && told;
        self_ = self;
    }
    if (!attempt()) {
        deliver();
    }
    return true;
}

inline bool http::attempt() {
    ++tries_;
    if (!broken_ && interceptors_) {
        try {
            for (const auto &one : *interceptors_) {
                one->before(*this);
            }
        } catch (...) {
            refuse(thrown_error(std::current_exception()));
            return false;
        }
    }
    if (extras_) {
        prepare(*extras_);
    }
    if (broken_ || !ready()) {
        return refused();
    }
    hearth_request_set_number(request_, HEARTH_THREADED_CALLBACK, runs_threaded_ ? 1 : 0);
    {
        const std::lock_guard lock(detail::places::of(this).mutex);
        answer_ = response();
        owner_ = std::thread::id();
        state_ = state::running;
    }
    const auto epoch = epoch_.load();
    const auto status = hearth_request_start(request_, &http::completed, this);
    if (status != HEARTH_OK) {
        const auto kind = status == HEARTH_STATE     ? error_kind::not_running
                          : status == HEARTH_INVALID ? error_kind::bad_request
                                                     : error_kind::system;
        refuse({kind, code::start_failed, hearth_last_error()});
        return false;
    }
    // An abort that came before the library knew of the request.
    const std::lock_guard lock(detail::places::of(this).mutex);
    if (epoch_ == epoch && aborted_ && state_ == state::running) {
        hearth_request_abort(request_);
    }
    return true;
}

inline bool http::refused() {
    const std::lock_guard lock(detail::places::of(this).mutex);
    state_ = state::delivering;
    return false;
}

inline void http::refuse(error why) {
    const std::lock_guard lock(detail::places::of(this).mutex);
    owner_ = std::this_thread::get_id();
    answer_ = response(std::move(why));
    state_ = state::delivering;
}

inline void http::prepare(detail::extras &more) {
    if (broken_ || !ready()) {
        return;
    }
    if (more.cancel && !more.cancel->add(detail::cancellation::entry(weak_from_this()))) {
        fail(error_kind::aborted, code::aborted, "it was cancelled before it began");
        return;
    }
    more.thrown = nullptr;
    more.sink_failed = false;
    more.wanted = true;
    more.events = event_parser();
    if (more.sink && !more.sink->open()) {
        fail(error_kind::system, code::write_error, "the file to download to cannot be written");
        return;
    }
    if (more.source_used && more.rewind && !rewound(more)) {
        return;
    }
    more.source_used = static_cast<bool>(more.source);
    const bool streams = more.body || more.event || more.sink;
    hearth_request_on_head(request_, more.head || streams ? &http::head_came : nullptr, this);
    hearth_request_on_interim(request_, more.interim ? &http::interim_came : nullptr, this);
    hearth_request_on_body(request_, streams ? &http::body_came : nullptr, this);
    hearth_request_on_progress(request_, more.moved ? &http::moved_on : nullptr, this);
}

inline bool http::rewound(detail::extras &more) {
    try {
        if (more.rewind()) {
            return true;
        }
        fail(error_kind::bad_request, code::body_set, "the body cannot be had once more");
    } catch (...) {
        const auto why = thrown_error(std::current_exception());
        fail(why.kind, why.code, why.message);
    }
    return false;
}

inline error http::thrown_error(const std::exception_ptr &thrown) {
    try {
        std::rethrow_exception(thrown);
    } catch (const std::exception &what) {
        return {error_kind::callback, code::user_callback, what.what()};
    } catch (...) {
        return {error_kind::callback, code::user_callback,
            "a callback threw what is no std::exception"};
    }
}

inline void http::completed(void *user, hearth_request *, const hearth_response *lent) {
    static_cast<http *>(user)->complete(lent);
}

inline void http::complete(const hearth_response *lent) noexcept {
    static_cast<void>(state_.load(std::memory_order_acquire)); // what attempt() wrote
    const detail::inside_callback inside(engine_.get(), !runs_threaded_);
    auto result = outcome(lent);
    {
        const std::lock_guard lock(detail::places::of(this).mutex);
        answer_ = std::move(result);
        owner_ = std::this_thread::get_id();
        state_ = state::delivering;
    }
    if (!wants_another_try() || !attempt_again()) {
        deliver();
    }
}

inline response http::outcome(const hearth_response *lent) {
    if (extras_) {
        auto &more = *extras_;
        if (more.thrown) {
            return response(thrown_error(std::exchange(more.thrown, nullptr)), lent);
        }
        const bool good = hearth_response_error(lent) == HEARTH_ERROR_NONE;
        if (more.sink && (more.sink_failed || (good && more.wanted && !more.sink->keep()))) {
            more.sink->drop();
            return response(error{error_kind::system, code::write_error,
                                "the file to download to cannot be written"},
                lent);
        }
        if (more.sink) {
            more.sink->drop();
        }
    }
    return response(lent);
}

inline bool http::wants_another_try() {
    if (!interceptors_) {
        return false;
    }
    try {
        bool again = false;
        for (auto one = interceptors_->rbegin(); one != interceptors_->rend(); ++one) {
            again = (*one)->after(*this, tries_) == interceptor::verdict::again || again;
        }
        return again && tries_ <= 10 && !aborted_;
    } catch (...) {
        answer_ = response(thrown_error(std::current_exception()));
        return false;
    }
}

inline bool http::attempt_again() {
    {
        const std::lock_guard lock(detail::places::of(this).mutex);
        state_ = state::starting;
    }
    return attempt();
}

inline void http::deliver() noexcept {
    callback done;
    std::shared_ptr<http> self;
    const auto epoch = epoch_.load();
    {
        const std::lock_guard lock(detail::places::of(this).mutex);
        done = std::exchange(callback_, nullptr);
        self = std::move(self_);
    }
    std::exception_ptr thrown;
    if (done) {
        try {
            done(*this);
        } catch (...) {
            thrown = std::current_exception();
        }
        done = nullptr;
    }
    auto &place = detail::places::of(this);
    const std::lock_guard lock(place.mutex);
    if (epoch_ != epoch) {
        return; // begun anew by its callback
    }
    if (thrown) {
        answer_ = response(thrown_error(thrown));
    }
    owner_ = std::thread::id();
    state_ = state::idle;
    if (place.waiting > 0) {
        place.changed.notify_all();
    }
}

inline void http::lost_by_fork() {
    std::shared_ptr<http> self;
    callback gone;
    const std::lock_guard lock(detail::places::of(this).mutex);
    self = std::move(self_);
    gone = std::move(callback_);
    ++epoch_;
    answer_ = response(error{error_kind::not_running, code::start_failed,
        "it was under way when the process forked, and is the parent's"});
    // Its handle is the parent's start as well; the next request has one of its own.
    hearth_request_free(std::exchange(request_, nullptr));
    owner_ = std::thread::id();
    state_ = state::idle;
}

template <typename Call>
inline hearth_flow http::guarded(Call call) noexcept {
    static_cast<void>(state_.load(std::memory_order_acquire)); // what attempt() wrote
    const detail::inside_callback inside(engine_.get(), !runs_threaded_);
    try {
        return static_cast<hearth_flow>(call(*extras_));
    } catch (...) {
        extras_->thrown = std::current_exception();
        return HEARTH_ABORT;
    }
}

inline hearth_flow http::head_came(void *user, hearth_request *, const hearth_response *lent) {
    return static_cast<http *>(user)->guarded([&](detail::extras &more) {
        const response head(lent);
        if (more.sink) {
            more.wanted = head.ok();
        } else if (more.event) {
            more.wanted = head.ok() && is_event_stream(head.get_content_type());
        }
        return more.head ? more.head(head) : flow::go_on;
    });
}

inline bool http::is_event_stream(std::string_view type) noexcept {
    type = type.substr(0, type.find(';'));
    while (!type.empty() && type.back() == ' ') {
        type.remove_suffix(1);
    }
    return detail::same_field(type, "text/event-stream");
}

inline hearth_flow http::interim_came(void *user, hearth_request *, const hearth_response *lent) {
    return static_cast<http *>(user)->guarded(
        [&](detail::extras &more) { return more.interim(response(lent)); });
}

inline hearth_flow http::body_came(
    void *user, hearth_request *, const char *data, std::size_t size) {
    return static_cast<http *>(user)->guarded([&](detail::extras &more) {
        const std::string_view piece(data, size);
        if (more.sink && more.wanted && !more.sink->write(piece)) {
            more.sink_failed = true;
            return flow::stop;
        }
        if (more.event && more.wanted) {
            more.events.feed(piece, more.event);
        }
        return more.body ? more.body(piece) : flow::go_on;
    });
}

inline hearth_flow http::moved_on(void *user, hearth_request *, std::uint64_t sent,
    std::uint64_t to_send, std::uint64_t received, std::uint64_t to_receive) {
    return static_cast<http *>(user)->guarded([&](detail::extras &more) {
        progress now;
        now.sent = sent;
        now.received = received;
        if (to_send != HEARTH_UNKNOWN) {
            now.to_send = to_send;
        }
        if (to_receive != HEARTH_UNKNOWN) {
            now.to_receive = to_receive;
        }
        return more.moved(now);
    });
}

inline hearth_flow http::read_source(
    void *user, hearth_request *, char *buffer, std::size_t room, std::size_t *written) {
    *written = 0;
    bool end = false;
    const auto flow = static_cast<http *>(user)->guarded([&](detail::extras &more) {
        const auto filled = more.source(buffer, room);
        if (!filled) {
            return flow::pause;
        }
        if (*filled > room) {
            throw std::length_error("a source wrote more than there was room for");
        }
        *written = *filled;
        end = *filled == 0;
        return flow::go_on;
    });
    return flow == HEARTH_CONTINUE && end ? HEARTH_END : flow;
}

inline int http::rewind_source(void *user, hearth_request *) {
    bool done = false;
    const auto flow = static_cast<http *>(user)->guarded([&](detail::extras &more) {
        done = more.rewind();
        return flow::go_on;
    });
    return flow == HEARTH_CONTINUE && done ? 0 : 1;
}

} // namespace v1
} // namespace hearth
