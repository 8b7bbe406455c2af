// The scripted server: see server.hpp.
#include "server.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cstring>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdexcept>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace scripted {
namespace {

int bound(unsigned short &port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (fd < 0 || ::bind(fd, reinterpret_cast<sockaddr *>(&address), size) != 0 ||
        ::getsockname(fd, reinterpret_cast<sockaddr *>(&address), &size) != 0) {
        throw std::runtime_error("loopback cannot be bound");
    }
    port = ntohs(address.sin_port);
    return fd;
}

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) {
        text.remove_prefix(1);
    }
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) {
        text.remove_suffix(1);
    }
    return text;
}

std::string find(
    const std::vector<std::pair<std::string, std::string>> &fields, std::string_view name) {
    for (const auto &[found, value] : fields) {
        if (found.size() == name.size() &&
            ::strncasecmp(found.data(), name.data(), name.size()) == 0) {
            return value;
        }
    }
    return {};
}

bool readable(int socket, int timeout_ms) {
    pollfd poll = {socket, POLLIN, 0};
    return ::poll(&poll, 1, timeout_ms) > 0;
}

} // namespace

std::string request::field(std::string_view name) const {
    return find(fields, name);
}

std::size_t request::count(std::string_view name) const {
    return static_cast<std::size_t>(
        std::count_if(fields.begin(), fields.end(), [&](const auto &one) {
            return one.first.size() == name.size() &&
                   ::strncasecmp(one.first.data(), name.data(), name.size()) == 0;
        }));
}

bool connection::fill() {
    if (socket_ < 0) {
        return false;
    }
    char buffer[65536];
    const auto got = ::recv(socket_, buffer, sizeof buffer, 0);
    if (got <= 0) {
        return false;
    }
    ahead_.append(buffer, static_cast<std::size_t>(got));
    return true;
}

std::optional<std::string> connection::line() {
    while (true) {
        const auto end = ahead_.find("\r\n");
        if (end != std::string::npos) {
            auto text = ahead_.substr(0, end);
            ahead_.erase(0, end + 2);
            return text;
        }
        if (!fill()) {
            return std::nullopt;
        }
    }
}

std::optional<request> connection::read_head() {
    request one;
    one.connection = number_;
    auto first = line();
    if (!first) {
        return std::nullopt;
    }
    one.head = *first;
    const auto space = first->find(' ');
    const auto second = first->rfind(' ');
    if (space == std::string::npos || second <= space) {
        return std::nullopt;
    }
    one.method = first->substr(0, space);
    one.target = first->substr(space + 1, second - space - 1);
    while (true) {
        auto field = line();
        if (!field) {
            return std::nullopt;
        }
        if (field->empty()) {
            return one;
        }
        one.head += "\r\n" + *field;
        const auto colon = field->find(':');
        one.fields.emplace_back(field->substr(0, colon),
            colon == std::string::npos
                ? std::string()
                : std::string(trimmed(std::string_view(*field).substr(colon + 1))));
    }
}

bool connection::read_body(request &into) {
    if (find(into.fields, "Transfer-Encoding") == "chunked") {
        while (true) {
            const auto head = line();
            if (!head) {
                return false;
            }
            const auto size = std::stoul(*head, nullptr, 16);
            if (size == 0) {
                break;
            }
            while (ahead_.size() < size + 2) {
                if (!fill()) {
                    return false;
                }
            }
            into.body.append(ahead_, 0, size);
            ahead_.erase(0, size + 2);
        }
        while (true) {
            const auto trailer = line();
            if (!trailer) {
                return false;
            }
            if (trailer->empty()) {
                return true;
            }
            const auto colon = trailer->find(':');
            into.trailers.emplace_back(trailer->substr(0, colon),
                std::string(trimmed(std::string_view(*trailer).substr(colon + 1))));
        }
    }
    const auto length = find(into.fields, "Content-Length");
    const std::size_t want = length.empty() ? 0 : std::stoul(length);
    while (ahead_.size() < want) {
        if (!fill()) {
            return false;
        }
    }
    into.body = ahead_.substr(0, want);
    ahead_.erase(0, want);
    return true;
}

std::optional<request> connection::read() {
    auto one = read_head();
    if (!one) {
        return std::nullopt;
    }
    if (one->field("Expect") == "100-continue") {
        write("HTTP/1.1 100 Continue\r\n\r\n");
    }
    if (!read_body(*one)) {
        return std::nullopt;
    }
    owner_.note(*one);
    return one;
}

bool connection::write(std::string_view bytes) {
    while (!bytes.empty()) {
        const auto sent =
            socket_ < 0 ? -1 : ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent <= 0) {
            return false;
        }
        bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
}

bool connection::drip(
    std::string_view bytes, std::size_t at_once, std::chrono::milliseconds pause) {
    while (!bytes.empty()) {
        if (!write(bytes.substr(0, at_once)) || !sleep(pause)) {
            return false;
        }
        bytes.remove_prefix(std::min(at_once, bytes.size()));
    }
    return true;
}

bool connection::answer(int status, std::string_view body, std::string_view fields) {
    std::string text = "HTTP/1.1 " + std::to_string(status) + " Some Reason\r\n";
    text.append(fields);
    text += "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n";
    return write(text.append(body));
}

bool connection::sleep(std::chrono::milliseconds time) {
    std::unique_lock lock(owner_.mutex_);
    return !owner_.ended_.wait_for(lock, time, [&] { return owner_.ending_.load(); });
}

void connection::wait_for_end() {
    char byte;
    while (socket_ >= 0 && !owner_.ending()) {
        if (readable(socket_, 20) && ::recv(socket_, &byte, 1, 0) <= 0) {
            return;
        }
    }
}

void connection::close() {
    if (socket_ >= 0) {
        ::shutdown(socket_, SHUT_RDWR);
        socket_ = -1; // its number is given back by the server
    }
}

void connection::reset() {
    if (socket_ >= 0) {
        const linger at_once = {1, 0};
        ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        socket_ = -1;
    }
}

void connection::relay(unsigned short port) {
    const int other = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    if (::connect(other, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0) {
        if (!ahead_.empty()) {
            ::send(other, ahead_.data(), ahead_.size(), MSG_NOSIGNAL);
        }
        char buffer[16384];
        bool going = true;
        while (going && !owner_.ending()) {
            pollfd both[] = {{socket_, POLLIN, 0}, {other, POLLIN, 0}};
            ::poll(both, 2, 20);
            for (int side = 0; side < 2; ++side) {
                if ((both[side].revents & (POLLIN | POLLHUP)) != 0) {
                    const auto got = ::recv(both[side].fd, buffer, sizeof buffer, 0);
                    going = going && got > 0 &&
                            ::send(both[1 - side].fd, buffer, static_cast<std::size_t>(got),
                                MSG_NOSIGNAL) == got;
                }
            }
        }
    }
    ::close(other);
    close();
}

server::server(handler handle) : server(std::move(handle), std::string()) {}

server::server(handler handle, std::string unix_path)
    : server(raw_handler([handle = std::move(handle)](connection &client) {
          while (client.open()) {
              const auto one = client.read();
              if (!one) {
                  return;
              }
              handle(client, *one);
          }
      }),
          std::move(unix_path)) {}

server::server(raw_handler handle, std::string unix_path) : handle_(std::move(handle)) {
    listen(unix_path);
    accepting_ = std::thread([this] { accept_all(); });
}

server::~server() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
        ended_.notify_all();
        for (const int socket : sockets_) {
            ::shutdown(socket, SHUT_RDWR);
        }
    }
    accepting_.join();
    for (auto &thread : threads_) {
        thread.join();
    }
    ::close(listening_);
}

void server::listen(const std::string &unix_path) {
    if (unix_path.empty()) {
        listening_ = bound(port_);
    } else {
        listening_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_un address = {};
        address.sun_family = AF_UNIX;
        std::strncpy(address.sun_path, unix_path.c_str(), sizeof address.sun_path - 1);
        if (::bind(listening_, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0) {
            throw std::runtime_error("the unix socket cannot be bound");
        }
    }
    if (::listen(listening_, 4096) != 0) {
        throw std::runtime_error("nothing listens");
    }
}

void server::accept_all() {
    while (!ending_) {
        if (!readable(listening_, 20)) {
            continue;
        }
        const int socket = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
        if (socket < 0) {
            continue;
        }
        const int on = 1;
        ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        const unsigned number = ++accepted_;
        const std::lock_guard lock(mutex_);
        if (ending_) {
            ::close(socket);
            return;
        }
        sockets_.push_back(socket);
        threads_.emplace_back([this, socket, number] {
            connection client(*this, socket, number);
            handle_(client);
            const std::lock_guard done(mutex_);
            sockets_.erase(std::find(sockets_.begin(), sockets_.end(), socket));
            ::close(socket);
        });
    }
}

void server::note(const request &one) {
    const std::lock_guard lock(mutex_);
    seen_.push_back(one);
}

std::string server::url(std::string_view path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + std::string(path);
}

std::vector<request> server::seen() const {
    const std::lock_guard lock(mutex_);
    return seen_;
}

std::size_t server::requests() const {
    const std::lock_guard lock(mutex_);
    return seen_.size();
}

dead_port::dead_port() : socket_(bound(port_)) {}
dead_port::~dead_port() {
    ::close(socket_);
}

std::string dead_port::url(std::string_view path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + std::string(path);
}

} // namespace scripted
