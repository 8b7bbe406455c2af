// Implementation of http.hpp: building a request, callbacks during the transfer, its result. Included by that
// header only.
//
// - The owner of the object (detail/life.hpp) owns extras_ and few_, too.
// - An exception of a callback during the transfer is kept for the completion.
#pragma once

#include "../http.hpp"

namespace hearth {
inline namespace v1 {

inline void http::begin_anew(
    std::string_view method, std::string_view url, const key_values &query) {
    look_for_fork();
    std::unique_ptr<detail::extras> gone; // a program's destructors run without the lock
    const detail::locked lock(this);
    if (!editable()) {
        return;
    }
    gone = std::move(extras_);
    if (!renew()) {
        return;
    }
    aim(url, [&](std::string_view bare) {
        const auto status = hearth_request_set_target(
            handle_, method.data(), method.size(), bare.data(), bare.size());
        if (status != HEARTH_OK) {
            constexpr std::string_view token =
                "!#$%&'*+-.^_`|~0123456789"
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
            const bool known =
                !method.empty() && method.find_first_not_of(token) == std::string_view::npos;
            check(status, known ? code::url_malformed : code::url_set);
        }
    });
    for (const auto &[name, value] : query) {
        check(
            hearth_request_add_query(handle_, name.data(), name.size(), value.data(), value.size()),
            code::url_set);
    }
}

inline void http::type(std::string_view content_type) {
    if (!content_type.empty()) {
        constexpr std::string_view name = "Content-Type";
        check(hearth_request_remove_header(handle_, name.data(), name.size()), code::headers_set);
        check(hearth_request_add_header(
                  handle_, name.data(), name.size(), content_type.data(), content_type.size()),
            code::headers_set);
    }
}

inline void http::no_source() {
    if (extras_) {
        detail::locked::clear(extras_->source);
        detail::locked::clear(extras_->rewind);
        extras_->source_used = false;
    }
}

inline void http::give(std::string body) {
    no_source();
    auto owned = std::make_unique<std::string>(std::move(body));
    const auto status = hearth_request_give_body(
        handle_, owned->data(), owned->size(),
        [](void *user, const char *, std::size_t) { delete static_cast<std::string *>(user); },
        owned.get());
    if (status == HEARTH_OK) {
        static_cast<void>(owned.release());
    }
    check(status, code::body_set);
}

inline void http::lend(std::string_view body, std::shared_ptr<const void> owner) {
    using held = detail::left<std::shared_ptr<const void>>;
    no_source();
    auto kept = std::make_unique<held>(std::move(owner));
    const auto status = hearth_request_give_body(
        handle_, body.data(), body.size(),
        [](void *user, const char *, std::size_t) {
            detail::locked::leave(std::unique_ptr<detail::leaving>(static_cast<held *>(user)));
        },
        kept.get());
    if (status == HEARTH_OK) {
        static_cast<void>(kept.release());
    } else {
        detail::locked::leave(std::move(kept));
    }
    check(status, code::body_set);
}

inline void http::set_source(std::uint64_t length, body_source source, body_rewind rewind) {
    no_source();
    auto &more = extra();
    more.source = std::move(source);
    more.rewind = std::move(rewind);
    check(hearth_request_set_body_source(handle_, length, &http::read_source,
              more.rewind ? &http::rewind_source : nullptr, this),
        code::body_set);
}

inline void http::gathered() {
    if (auto all = engine_->all()) {
        few().all = std::move(all);
        few_->tries = 0;
    } else if (few_) {
        few_->all = nullptr;
    }
}

inline bool http::has_callbacks() const noexcept {
    return intercepted() || (extras_ && extras_->has_callbacks());
}

inline std::optional<error> http::prepare() {
    if (intercepted()) {
        ++few_->tries;
    }
    if (!broken_ && intercepted()) {
        try {
            for (const auto &one : *few_->all) {
                one->before(*this);
            }
        } catch (...) {
            return detail::thrown_error(std::current_exception());
        }
    }
    return extras_ && !broken_ && ready() ? prepare(*extras_) : std::nullopt;
}

inline std::optional<error> http::prepare(detail::extras &more) {
    if (more.cancel && !more.cancel->add(this_start())) {
        return error{error_kind::aborted, code::aborted, "it was cancelled before it began"};
    }
    more.thrown = nullptr;
    more.sink_failed = false;
    more.event_too_large = false;
    more.wanted = true;
    more.events = event_parser(more.largest_event);
    if (more.source_used) {
        if (auto why = rewound(more)) {
            return why;
        }
        more.source_used = false;
    }
    if (more.sink && !more.sink->open()) {
        return error{
            error_kind::system, code::write_error, "the file to download to cannot be written"};
    }
    const bool streams = more.body || more.event || more.sink;
    hearth_request_on_head(handle_, more.head || streams ? &http::head_came : nullptr, this);
    hearth_request_on_interim(handle_, more.interim ? &http::interim_came : nullptr, this);
    hearth_request_on_body(handle_, streams ? &http::body_came : nullptr, this);
    hearth_request_on_progress(handle_, more.moved ? &http::moved_on : nullptr, this);
    hearth_request_on_debug(
        handle_, more.wire ? &http::wire_seen : nullptr, more.secrets ? 1 : 0, this);
    return std::nullopt;
}

inline std::optional<error> http::rewound(detail::extras &more) {
    try {
        if (more.rewind && more.rewind()) {
            return std::nullopt;
        }
        return error{error_kind::bad_request, code::body_set, "the body cannot be had once more"};
    } catch (...) {
        return detail::thrown_error(std::current_exception());
    }
}

inline response http::outcome(const hearth_response *lent) {
    if (extras_) {
        auto &more = *extras_;
        if (more.thrown) {
            return response(detail::thrown_error(std::exchange(more.thrown, nullptr)), lent);
        }
        if (more.event_too_large) {
            return response(
                error{error_kind::too_large, code::write_error,
                    "an event is longer than " + std::to_string(more.largest_event) + " bytes"},
                lent);
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
    if (!intercepted()) {
        return false;
    }
    try {
        bool again = false;
        const auto kept = few_->all;
        const auto &all = *kept;
        for (auto one = all.rbegin(); one != all.rend(); ++one) {
            again = (*one)->after(*this, few_->tries) == interceptor::verdict::again || again;
        }
        return again && few_->tries <= 10 && !aborted_;
    } catch (...) {
        answer_ = response(detail::thrown_error(std::current_exception()));
        return false;
    }
}

inline bool http::again() {
    if (!wants_another_try()) {
        return false;
    }
    {
        const std::lock_guard lock(detail::places::of(this).mutex);
        state_ = state::starting;
    }
    return attempt();
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
        if (more.event && more.wanted && !more.events.feed(piece, more.event)) {
            more.event_too_large = true;
            return flow::stop;
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

inline void http::wire_seen(
    void *user, hearth_request *lent, hearth_debug what, const char *data, std::size_t size) {
    const auto flow = static_cast<http *>(user)->guarded([&](detail::extras &more) {
        more.wire(static_cast<debug>(what), std::string_view(data, size));
        return flow::go_on;
    });
    if (flow == HEARTH_ABORT) {
        hearth_request_abort(lent); // it has thrown
    }
}

inline hearth_flow http::read_source(
    void *user, hearth_request *, char *buffer, std::size_t room, std::size_t *written) {
    *written = 0;
    bool end = false;
    const auto flow = static_cast<http *>(user)->guarded([&](detail::extras &more) {
        more.source_used = true;
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
