// 50,000 GETs, asynchronous, through a peer: `peers URL COUNT CONNECTIONS [pool]`; prints what calls.c prints. Built for one of them:
//
//   WITH_CURLEV    curlev: callbacks on its callback thread, as it comes
//   WITH_CPR       cpr: GetCallback on its pool of threads, as many as there are processors; `pool`: through one ConnectionPool
//   WITH_ASYNCPP   asyncpp-curl: a coroutine for each call on one executor
//
// None of them has a number of connections that could be set: CONNECTIONS is not used.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#if defined(WITH_CURLEV)
#include <curlev/http.hpp>
#elif defined(WITH_CPR)
#include <cpr/cpr.h>
#else
#include <asyncpp/curl/executor.h>
#include <asyncpp/curl/webclient.h>
#include <coroutine>
#endif

#include "measured.hpp"

static std::atomic<int> done = 0, ok = 0;

static void finished(long status) {
    ok += status == 200;
    ++done;
}

// No peer but curlev has a call that waits for all.
[[maybe_unused]] static void wait_for(int count) {
    while (done < count) {
        std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
}

#if defined(WITH_CURLEV)
static void call(const std::string &url, int count, bool, std::chrono::duration<double> &starting) {
    const auto began = std::chrono::steady_clock::now();
    curlev::ASync engine;
    engine.start();
    for (int i = 0; i < count; i++) {
        curlev::HTTP::create(engine)->GET(url).start(
            [](const curlev::HTTP &answer) { finished(answer.get_code()); });
    }
    starting = std::chrono::steady_clock::now() - began;
    engine.stop(60000);
}
#elif defined(WITH_CPR)
static void call(
    const std::string &url, int count, bool pooled, std::chrono::duration<double> &starting) {
    const auto began = std::chrono::steady_clock::now();
    const auto told = [](const cpr::Response &answer) { finished(answer.status_code); };
    const cpr::ConnectionPool pool;
    std::vector<decltype(cpr::GetCallback(told, cpr::Url{url}))> futures;
    futures.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; i++) {
        futures.push_back(pooled ? cpr::GetCallback(told, cpr::Url{url}, pool)
                                 : cpr::GetCallback(told, cpr::Url{url}));
    }
    starting = std::chrono::steady_clock::now() - began;
    wait_for(count);
    cpr::async::cleanup();
}
#else
// A detached coroutine.
struct detached {
    struct promise_type {
        detached get_return_object() noexcept { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() noexcept {}
        void unhandled_exception() noexcept { finished(0); }
    };
};

static detached one(asyncpp::curl::uri url, asyncpp::curl::executor &executor) {
    auto request = asyncpp::curl::http_request::make_get(std::move(url));
    const auto answer =
        co_await request.execute_async(asyncpp::curl::http_response::inline_body{}, executor);
    finished(answer.status_code);
}

static void call(const std::string &url, int count, bool, std::chrono::duration<double> &starting) {
    const auto began = std::chrono::steady_clock::now();
    asyncpp::curl::executor executor;
    const asyncpp::curl::uri parsed(url);
    for (int i = 0; i < count; i++) {
        one(parsed, executor);
    }
    starting = std::chrono::steady_clock::now() - began;
    wait_for(count);
}
#endif

int main(int argc, char **words) {
    const int count = std::atoi(words[2]);
    const double before = cpu();
    const auto began = std::chrono::steady_clock::now();
    std::chrono::duration<double> starting{};
    call(words[1], count, argc > 4 && std::string(words[4]) == "pool", starting);
    const std::chrono::duration<double> all = std::chrono::steady_clock::now() - began;
    print(starting, all, cpu() - before, count, ok.load());
    return 0;
}
