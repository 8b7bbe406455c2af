// A loopback server whose bytes the test controls: faults that clients meet, on demand.
//
// - It listens on a port of its own (0) before its constructor returns; its destructor ends its connections and threads.
// - One thread per connection, so a handler may block, drip or stay silent as long as it likes: `sleep` and `wait` end with the server.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace scripted {

// A request as it came.
struct request {
    std::string method;
    std::string target;
    std::string head; // all of it, without the empty line
    std::vector<std::pair<std::string, std::string>> fields;
    std::string body;
    std::vector<std::pair<std::string, std::string>> trailers;
    unsigned connection = 0; // counted from 1

    // The first field of that name; empty when there is none.
    std::string field(std::string_view name) const;
    std::size_t count(std::string_view name) const;
    // Without the query.
    std::string path() const { return target.substr(0, target.find('?')); }
};

class server;

class connection {
public:
    connection(server &owner, int socket, unsigned number)
        : owner_(owner), socket_(socket), number_(number) {}

    // The next request; nothing when the client has gone. Says 100 where one is expected.
    std::optional<request> read();
    // The head of the next request; its body is read by read_body, or not at all.
    std::optional<request> read_head();
    bool read_body(request &into);

    // Writes all of it. False: the client has gone.
    bool write(std::string_view bytes);
    // So many bytes at a time.
    bool drip(std::string_view bytes, std::size_t at_once, std::chrono::milliseconds pause);
    // A whole answer, with Content-Length added.
    bool answer(int status, std::string_view body = {}, std::string_view fields = {});
    // Waits. False: the server ends.
    bool sleep(std::chrono::milliseconds time);
    // Until the client has gone or the server ends.
    void wait_for_end();
    // After it the client finds the connection closed, or reset.
    void close();
    void reset();
    bool open() const { return socket_ >= 0; }
    int socket() const { return socket_; }
    unsigned number() const { return number_; }
    // Copies bytes in both directions between this connection and another server's, until one ends, like a proxy's tunnel.
    void relay(unsigned short port);

private:
    bool fill();
    std::optional<std::string> line();

    server &owner_;
    int socket_;
    unsigned number_;
    std::string ahead_;
};

class server {
public:
    using handler = std::function<void(connection &, const request &)>;
    using raw_handler = std::function<void(connection &)>;

    // Calls `handle` for each request, over kept connections.
    explicit server(handler handle);
    // Calls `handle` once for each connection.
    static std::unique_ptr<server> raw(raw_handler handle) {
        return std::unique_ptr<server>(new server(std::move(handle), std::string()));
    }
    // On a unix socket.
    server(handler handle, std::string unix_path);
    server(const server &) = delete;
    server &operator=(const server &) = delete;
    ~server();

    unsigned short port() const { return port_; }
    std::string url(std::string_view path = "/") const;
    // Requests that `read` has read, in order.
    std::vector<request> seen() const;
    std::size_t requests() const;
    unsigned connections() const { return accepted_; }
    // Takes no more connections: they stay unanswered by the kernel's backlog alone.
    bool ending() const { return ending_; }

private:
    friend class connection;
    server(raw_handler handle, std::string unix_path);
    void listen(const std::string &unix_path);
    void accept_all();
    void note(const request &one);

    raw_handler handle_;
    int listening_ = -1;
    unsigned short port_ = 0;
    std::atomic<unsigned> accepted_ = 0;
    std::atomic<bool> ending_ = false;
    mutable std::mutex mutex_;
    std::condition_variable ended_;
    std::vector<request> seen_;
    std::vector<int> sockets_;
    std::list<std::thread> threads_;
    std::thread accepting_;
};

// A port of loopback without a listener; it stays bound, so that no other process gets it.
class dead_port {
public:
    dead_port();
    dead_port(const dead_port &) = delete;
    dead_port &operator=(const dead_port &) = delete;
    ~dead_port();
    unsigned short port() const { return port_; }
    std::string url(std::string_view path = "/") const;

private:
    unsigned short port_ = 0;
    int socket_;
};

} // namespace scripted
