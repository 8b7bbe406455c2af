// hearth-get: downloads many URLs at once into a folder and shows the progress.
//
//   hearth-get [-d FOLDER] [-j CONNECTIONS] [-r RETRIES] [-t SECONDS] URL... | -
//
// `-` reads URLs from standard input, one a line. A file appears when it is complete. On a terminal one line shows the
// progress; Otherwise each file gets a line when it ends. Exit status: 0 all are there, 1 some are not, 2 misused.
#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <hearth/http.hpp>

namespace {

struct settings {
    std::string folder = ".";
    unsigned connections = 8;
    unsigned retries = 2;
    unsigned seconds = 0;
    std::vector<std::string> urls;
};

[[noreturn]] void misused(const std::string &why) {
    std::cerr
        << "error: " << why
        << "\nhint: hearth-get [-d FOLDER] [-j CONNECTIONS] [-r RETRIES] [-t SECONDS] URL... | -\n";
    std::exit(2);
}

unsigned number(const char *text) {
    char *end = nullptr;
    const auto value = std::strtoul(text, &end, 10);
    if (*text == '\0' || *text == '-' || *end != '\0' || value > 1'000'000) {
        misused(std::string(text) + " is no number");
    }
    return static_cast<unsigned>(value);
}

settings read(int count, char **words) {
    settings wanted;
    for (int option; (option = ::getopt(count, words, "d:j:r:t:")) != -1;) {
        switch (option) {
        case 'd':
            wanted.folder = optarg;
            break;
        case 'j':
            wanted.connections = number(optarg);
            break;
        case 'r':
            wanted.retries = number(optarg);
            break;
        case 't':
            wanted.seconds = number(optarg);
            break;
        default:
            misused("there is no such option");
        }
    }
    for (int at = optind; at < count; ++at) {
        if (std::string_view(words[at]) != "-") {
            wanted.urls.emplace_back(words[at]);
            continue;
        }
        for (std::string line; std::getline(std::cin, line);) {
            if (!line.empty()) {
                wanted.urls.push_back(line);
            }
        }
    }
    if (wanted.urls.empty() || wanted.connections == 0) {
        misused("nothing to download");
    }
    return wanted;
}

// The last part of the URL's path, as a name that stays in its folder; a second one of that name gets a number.
std::string file_name(std::string_view url, std::set<std::string> &taken) {
    url = url.substr(0, url.find_first_of("?#"));
    const auto scheme = url.find("://");
    const auto path = url.find('/', scheme == std::string_view::npos ? 0 : scheme + 3);
    std::string name(
        path == std::string_view::npos ? std::string_view() : url.substr(url.rfind('/') + 1));
    if (name.empty() || name == "." || name == "..") {
        name = "index";
    }
    std::string free = name;
    for (int more = 2; !taken.insert(free).second; ++more) {
        free = name + "." + std::to_string(more);
    }
    return free;
}

// State of all downloads, shown by the waiting thread.
class board {
public:
    explicit board(std::size_t all) : all_(all), terminal_(::isatty(STDERR_FILENO) != 0) {}

    void moved(std::size_t which, const hearth::progress &now) {
        const std::lock_guard lock(mutex_);
        received_ += now.received - std::min(now.received, before_[which]);
        before_[which] = now.received;
    }

    void ended(const std::string &url, const std::string &name, const hearth::http &done) {
        const std::lock_guard lock(mutex_);
        ++ended_;
        const bool good = done.get_code() >= 200 && done.get_code() < 300;
        failed_ += good ? 0 : 1;
        if (!good || !terminal_) {
            clear();
            const auto why = done.get_error();
            std::fprintf(stderr, "%s %s: %s\n", good ? "ok    " : "failed", url.c_str(),
                good  ? name.c_str()
                : why ? why.message.c_str()
                      : ("status " + std::to_string(done.status())).c_str());
        }
        changed_.notify_all();
    }

    // Shows the progress until all have ended; returns how many have failed.
    std::size_t watch() {
        std::unique_lock lock(mutex_);
        while (ended_ < all_) {
            changed_.wait_for(lock, std::chrono::milliseconds(100));
            show();
        }
        clear();
        std::fprintf(stderr, "%zu of %zu files, %.1f MB\n", ended_ - failed_, all_,
            static_cast<double>(received_) / 1e6);
        return failed_;
    }

private:
    void show() {
        if (terminal_) {
            std::fprintf(stderr, "\r\033[K%zu of %zu files, %.1f MB", ended_, all_,
                static_cast<double>(received_) / 1e6);
        }
    }
    void clear() {
        if (terminal_) {
            std::fputs("\r\033[K", stderr);
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::size_t, std::uint64_t> before_;
    std::uint64_t received_ = 0;
    std::size_t all_;
    std::size_t ended_ = 0;
    std::size_t failed_ = 0;
    bool terminal_;
};

} // namespace

int main(int count, char **words) {
    const auto wanted = read(count, words);

    hearth::async engine;
    engine.connections_per_host(wanted.connections);
    engine.options("follow_location=1,timeout=" + std::to_string(wanted.seconds * 1000));
    if (!engine.start()) {
        std::cerr << "error: no thread is to be had\n";
        return 1;
    }

    board shown(wanted.urls.size());
    std::set<std::string> taken;
    for (std::size_t at = 0; at < wanted.urls.size(); ++at) {
        const auto &url = wanted.urls[at];
        const auto name = file_name(url, taken);
        hearth::retry_policy again;
        again.retries = wanted.retries;
        const auto request = hearth::http::create(engine);
        request->GET(url)
            .download_to(wanted.folder + "/" + name)
            .retry(again)
            .on_progress([&shown, at](const hearth::progress &now) { shown.moved(at, now); })
            .start([&shown, url, name](const hearth::http &done) { shown.ended(url, name, done); });
    }
    return shown.watch() == 0 ? 0 : 1;
}
