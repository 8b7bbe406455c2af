// The context of the snippets in docs/guide/client-cpp.md.
#pragma once

#include <atomic>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "support.hpp"

#if defined(__cpp_impl_coroutine) && __has_include(<coroutine>)
#include <coroutine>
#define MANUAL_HAS_COROUTINES
struct errand {
    struct promise_type {
        errand get_return_object() noexcept { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() noexcept {}
        void unhandled_exception() noexcept { std::terminate(); }
    };
};
#endif

#define expect(what) EXPECT_TRUE(what)

class manual : public support::with_engine {
protected:
    manual() : server_(answer), origin(server_.url()) {
        // Files that snippets write stay out of the source.
        EXPECT_EQ(::chdir((folder_ / ".").c_str()), 0);
    }
    ~manual() override { EXPECT_EQ(::chdir("/"), 0); }

private:
    static void answer(scripted::connection &client, const scripted::request &asked) {
        const auto path = asked.path();
        if (path == "/json") {
            client.answer(200, asked.body, "Content-Type: application/json\r\n");
        } else if (path == "/events") {
            client.answer(200, "event: tick\ndata: 1\n\n", "Content-Type: text/event-stream\r\n");
        } else if (path == "/slow") {
            client.wait_for_end();
        } else if (path == "/guarded" && asked.field("Authorization") != "Bearer new") {
            client.answer(401);
        } else {
            support::echo(client, asked);
        }
    }

    support::folder folder_;
    scripted::server server_;

protected:
    std::string origin;
};
