// The output of calls.cpp and peers.cpp, in the format of calls.c: seconds to start all calls and for the rest; processor time and start time
// of each call in microseconds; peak memory in MiB; and the number of answers with 200.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <sys/resource.h>

inline double cpu() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

inline double most_memory() {
    std::ifstream facts("/proc/self/status");
    for (std::string line; std::getline(facts, line);) {
        if (line.rfind("VmHWM:", 0) == 0) {
            return std::strtod(line.c_str() + 6, nullptr) / 1024;
        }
    }
    return 0;
}

inline void print(std::chrono::duration<double> starting, std::chrono::duration<double> all,
    double used, int count, int ok) {
    std::printf("%.4f %.4f %.3f %.3f %.1f %d\n", starting.count(), (all - starting).count(),
        used / count * 1e6, starting.count() / count * 1e6, most_memory(), ok);
}
