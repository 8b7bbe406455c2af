// Asynchronous GETs through a peer: `peers URL COUNT CONNECTIONS [WAY]`; prints what calls.c prints. Built for one of them:
//
//   WITH_CURLEV      curlev: callbacks on its callback thread, as it comes; `unthreaded`: on the thread of its loop; `init`: makes handles, starts none
//   WITH_CPR         cpr: GetCallback on its pool of threads, as many as there are processors; `pool`: through one ConnectionPool; `one`: with one
//                    thread; `multi`: all in one MultiPerform
//   WITH_ASYNCPP     asyncpp-curl: a coroutine for each call on one executor
//   WITH_CURLCPP     curlcpp: easy handles in one curl_multi, on this thread
//   WITH_CURL_ASIO   curl-multi-asio: AsyncPerform on one io_context, on this thread
//   WITH_LIFT        liblifthttp: start_request() of one client
//
// CONNECTIONS is told to those that can be told: curl-multi-asio and curlcpp by CURLMOPT_MAX_HOST_CONNECTIONS, liblifthttp by CURLMOPT_MAXCONNECTS, which
// bounds only what it keeps. Without a bound the first two open a connection for each call, and fail when files run out.
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
#elif defined(WITH_ASYNCPP)
#include <asyncpp/curl/executor.h>
#include <asyncpp/curl/webclient.h>
#include <coroutine>
#elif defined(WITH_CURLCPP)
#include <curl_easy.h>
#include <curl_multi.h>
#include <memory>
#elif defined(WITH_CURL_ASIO)
#include <curl-multi-asio/Easy.h>
#include <curl-multi-asio/Multi.h>
#include <deque>
#else
#include <lift/lift.hpp>
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

using seconds = std::chrono::duration<double>;

#if defined(WITH_CURLEV)
static void call(
    const std::string &url, int count, long, const std::string &way, seconds &starting) {
    const bool threaded = way != "unthreaded";
    const auto began = std::chrono::steady_clock::now();
    curlev::ASync engine;
    engine.start();
    for (int i = 0; way == "init" && i < count; i++) {
        curlev::HTTP::create(engine)->GET(url);
        finished(200);
    }
    for (int i = done; i < count; i++) {
        curlev::HTTP::create(engine)->GET(url).threaded_callback(threaded).start(
            [](const curlev::HTTP &answer) { finished(answer.get_code()); });
    }
    starting = std::chrono::steady_clock::now() - began;
    engine.stop(60000);
}
#elif defined(WITH_CPR)
static void all_in_one(const std::string &url, int count, seconds &starting) {
    const auto began = std::chrono::steady_clock::now();
    cpr::MultiPerform multi;
    for (int i = 0; i < count; i++) {
        auto session = std::make_shared<cpr::Session>();
        session->SetUrl(cpr::Url{url});
        multi.AddSession(session);
    }
    starting = std::chrono::steady_clock::now() - began;
    for (const auto &answer : multi.Get()) {
        finished(answer.status_code);
    }
}

static void call(
    const std::string &url, int count, long, const std::string &way, seconds &starting) {
    if (way == "multi") {
        return all_in_one(url, count, starting);
    }
    const bool pooled = way == "pool";
    if (way == "one") {
        cpr::async::startup(1, 1);
    }
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
#elif defined(WITH_ASYNCPP)
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

static void call(const std::string &url, int count, long, const std::string &, seconds &starting) {
    const auto began = std::chrono::steady_clock::now();
    asyncpp::curl::executor executor;
    const asyncpp::curl::uri parsed(url);
    for (int i = 0; i < count; i++) {
        one(parsed, executor);
    }
    starting = std::chrono::steady_clock::now() - began;
    wait_for(count);
}
#elif defined(WITH_CURLCPP)
static std::size_t swallow(void *, std::size_t size, std::size_t count, void *) {
    return size * count;
}

static void call(
    const std::string &url, int count, long connections, const std::string &, seconds &starting) {
    const auto began = std::chrono::steady_clock::now();
    curl::curl_multi multi;
    multi.add<CURLMOPT_MAX_HOST_CONNECTIONS>(connections);
    std::vector<std::unique_ptr<curl::curl_easy>> handles;
    handles.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; i++) {
        auto &handle = *handles.emplace_back(std::make_unique<curl::curl_easy>());
        handle.add<CURLOPT_URL>(url.c_str());
        handle.add<CURLOPT_WRITEFUNCTION>(swallow);
        handle.add<CURLOPT_HEADERFUNCTION>(swallow);
        multi.add(handle);
    }
    starting = std::chrono::steady_clock::now() - began;
    while (done < count) {
        multi.perform();
        while (const auto message = multi.get_next_finished()) {
            finished(message->get_code() == CURLE_OK
                         ? message->get_handler()->get_info<CURLINFO_RESPONSE_CODE>().get()
                         : 0);
        }
        curl_multi_poll(multi.get_curl(), nullptr, 0, 100, nullptr);
    }
    for (const auto &handle : handles) {
        multi.remove(*handle);
    }
}
#elif defined(WITH_CURL_ASIO)
static void call(
    const std::string &url, int count, long connections, const std::string &, seconds &starting) {
    const auto began = std::chrono::steady_clock::now();
    asio::io_context context;
    cma::Multi multi(context);
    curl_multi_setopt(multi.GetNativeHandle(), CURLMOPT_MAX_HOST_CONNECTIONS, connections);
    std::deque<cma::Easy> handles;
    std::deque<std::string> bodies;
    for (int i = 0; i < count; i++) {
        auto &handle = handles.emplace_back();
        handle.SetURL(url.c_str());
        handle.SetBuffer(bodies.emplace_back());
        multi.AsyncPerform(handle, [&handle](const asio::error_code &error) {
            long status = 0;
            if (!error) {
                curl_easy_getinfo(handle.GetNativeHandle(), CURLINFO_RESPONSE_CODE, &status);
            }
            finished(status);
        });
    }
    starting = std::chrono::steady_clock::now() - began;
    context.run();
}
#else
static void call(
    const std::string &url, int count, long connections, const std::string &, seconds &starting) {
    const auto began = std::chrono::steady_clock::now();
    lift::client client{{.max_connections = static_cast<uint64_t>(connections)}};
    for (int i = 0; i < count; i++) {
        client.start_request(std::make_unique<lift::request>(url, std::chrono::minutes{5}),
            [](const lift::request_ptr &, const lift::response &answer) {
                finished(answer.status_code() == lift::http::status_code::http_200_ok ? 200 : 0);
            });
    }
    starting = std::chrono::steady_clock::now() - began;
    wait_for(count);
}
#endif

int main(int argc, char **words) {
    const int count = std::atoi(words[2]);
    const double before = cpu();
    const auto began = std::chrono::steady_clock::now();
    seconds starting{};
    call(words[1], count, std::atol(words[3]), argc > 4 ? words[4] : "", starting);
    const seconds all = std::chrono::steady_clock::now() - began;
    print(starting, all, cpu() - before, count, ok.load());
    return 0;
}
