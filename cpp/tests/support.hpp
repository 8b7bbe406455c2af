// Shared by the tests: an engine for each, and waiting for conditions instead of times.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <iterator>
#include <mutex>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <hearth/http.hpp>

#include "server.hpp"

namespace support {

using namespace std::chrono_literals;

// Long enough for any machine; a test that waits for it has failed.
constexpr auto far = std::chrono::seconds(60);

// A text that one thread writes and another reads. For TSan, the library's sockets between them create no order.
class note {
public:
    void set(std::string text) {
        const std::lock_guard lock(mutex_);
        text_ = std::move(text);
    }
    std::string get() const {
        const std::lock_guard lock(mutex_);
        return text_;
    }

private:
    mutable std::mutex mutex_;
    std::string text_;
};

inline bool eventually(const std::function<bool()> &condition) {
    const auto end = std::chrono::steady_clock::now() + far;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) {
            return false;
        }
        std::this_thread::sleep_for(2ms);
    }
    return true;
}

// A folder that is gone after the test.
class folder {
public:
    folder() {
        std::string name = "/tmp/hearth-cpp-XXXXXX";
        path_ = ::mkdtemp(name.data()) == nullptr ? std::string() : name;
    }
    folder(const folder &) = delete;
    folder &operator=(const folder &) = delete;
    ~folder() {
        if (!path_.empty() && std::system(("rm -rf " + path_).c_str()) != 0) {
            std::perror("rm");
        }
    }
    std::string operator/(const std::string &name) const { return path_ + "/" + name; }

    // How many files there are.
    std::size_t size() const {
        const std::filesystem::directory_iterator all(path_);
        return static_cast<std::size_t>(std::distance(begin(all), end(all)));
    }

    std::string write(const std::string &name, const std::string &text) const {
        std::ofstream(*this / name, std::ios::binary) << text;
        return *this / name;
    }

private:
    std::string path_;
};

inline bool exists(const std::string &path) {
    return ::access(path.c_str(), F_OK) == 0;
}

inline std::string contents(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

// Answers with the request: method, target and body in lines.
inline void echo(scripted::connection &client, const scripted::request &asked) {
    client.answer(
        200, asked.method + " " + asked.target + "\n" + asked.body, "Content-Type: text/plain\r\n");
}

class with_engine : public ::testing::Test {
protected:
    void SetUp() override { ASSERT_TRUE(engine.start()); }

    std::shared_ptr<hearth::http> request() { return hearth::http::create(engine); }

    hearth::async engine;
};

} // namespace support
