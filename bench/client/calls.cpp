// 50,000 GETs, asynchronous, through the C++ face: `calls URL COUNT CONNECTIONS`; prints what calls.c prints.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <sys/resource.h>

#include <hearth/http.hpp>

static double cpu() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static double most_memory() {
    std::ifstream facts("/proc/self/status");
    for (std::string line; std::getline(facts, line);) {
        if (line.rfind("VmHWM:", 0) == 0) {
            return std::strtod(line.c_str() + 6, nullptr) / 1024;
        }
    }
    return 0;
}

int main(int, char **words) {
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
    for (int i = 0; i < count; i++) {
        hearth::http::create(engine)->GET(url).start(
            [&ok](const hearth::http &answer) { ok += answer.get_code() == 200; });
    }
    const std::chrono::duration<double> starting = clock::now() - began;
    engine.stop(60000);
    const std::chrono::duration<double> all = clock::now() - began;
    std::printf("%.4f %.4f %.3f %.3f %.1f %d\n", starting.count(), (all - starting).count(),
        (cpu() - before) / count * 1e6, starting.count() / count * 1e6, most_memory(), ok.load());
    return 0;
}
