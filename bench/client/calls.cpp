// 50,000 GETs, asynchronous, through the C++ face: `calls URL COUNT CONNECTIONS [init]`; prints what calls.c prints. `init` starts none.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>

#include <hearth/http.hpp>

#include "measured.hpp"

int main(int argc, char **words) {
    using clock = std::chrono::steady_clock;
    const std::string url = words[1];
    const int count = std::atoi(words[2]);
    std::atomic<int> ok = 0;
    hearth::async engine;
    if (!engine.options("connections_per_host=" + std::string(words[3]) + ",follow_location=2")) {
        return 1;
    }
    const double before = cpu();
    const auto began = clock::now();
    engine.start();
    if (argc > 4 && std::string(words[4]) == "init") {
        for (int i = 0; i < count; i++) {
            hearth::http::create(engine)->GET(url);
        }
        const std::chrono::duration<double> all = clock::now() - began;
        print(all, all, cpu() - before, count, count);
        return 0;
    }
    for (int i = 0; i < count; i++) {
        hearth::http::create(engine)->GET(url).start(
            [&ok](const hearth::http &answer) { ok += answer.get_code() == 200; });
    }
    const std::chrono::duration<double> starting = clock::now() - began;
    engine.stop(60000);
    const std::chrono::duration<double> all = clock::now() - began;
    print(starting, all, cpu() - before, count, ok.load());
    return 0;
}
