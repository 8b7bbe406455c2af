// A cookie jar (RFC 6265), shared by all requests that are given it.
#pragma once

#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include <hearth.h>

namespace hearth {
inline namespace v1 {

// Copies are handles of the same jar.
class cookie_jar {
public:
    cookie_jar() {
        hearth_jar *raw = nullptr;
        if (hearth_jar_new(&raw) != HEARTH_OK) {
            throw std::bad_alloc();
        }
        raw_ = std::shared_ptr<hearth_jar>(raw, hearth_jar_free);
    }

    // As if `url` had answered with `Set-Cookie: text`. False: that URL may not set it, or it is no cookie.
    bool add(std::string_view url, std::string_view text) {
        return hearth_jar_add(raw_.get(), url.data(), url.size(), text.data(), text.size()) ==
               HEARTH_OK;
    }

    // The value of the field Cookie for `url`: `a=1; b=2`.
    std::string cookies(std::string_view url) const {
        return taken([&](char **text) {
            return hearth_jar_cookies(raw_.get(), url.data(), url.size(), text);
        });
    }

    // All cookies, or those that outlive the session, as a text for `load`.
    std::string save(bool session_too = false) const {
        return taken(
            [&](char **text) { return hearth_jar_save(raw_.get(), session_too ? 1 : 0, text); });
    }

    // Adds what `save` gave. False: it is nothing that `save` gave, and nothing was added.
    bool load(std::string_view text) {
        return hearth_jar_load(raw_.get(), text.data(), text.size()) == HEARTH_OK;
    }

    void clear() noexcept { hearth_jar_clear(raw_.get()); }

    hearth_jar *native_handle() const noexcept { return raw_.get(); }

private:
    friend class async;
    explicit cookie_jar(hearth_jar *own) : raw_(own, hearth_jar_free) {}

    template <typename Call>
    static std::string taken(Call call) {
        char *text = nullptr;
        if (call(&text) != HEARTH_OK || text == nullptr) {
            return {};
        }
        const std::unique_ptr<char, void (*)(char *)> owned(text, hearth_text_free);
        return text;
    }

    std::shared_ptr<hearth_jar> raw_;
};

} // namespace v1
} // namespace hearth
