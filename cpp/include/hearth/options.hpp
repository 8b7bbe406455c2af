// The options of engines (defaults) and requests, each as a typed call.
//
// The same options are keys of the texts that `options()` takes: `follow_location=1, timeout=5000, proxy="http://u:a,b@host"`.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include <hearth.h>

namespace hearth {
inline namespace v1 {

// What to do with 301, 302, 303, 307 and 308.
enum class follow : int {
    none = 0,
    as_written = 1,  // every method and body again, but 303 with GET
    as_browsers = 2, // POST becomes GET at 301 and 302, too
    first_only = 3,  // the same, for the first answer alone
};

enum class http_version : int { negotiated = 0, http1 = 11, http2 = 20 };
enum class tls_version : int { tls12 = 12, tls13 = 13 };
enum class ip_family : int { any = 0, v4 = 4, v6 = 6 };

// When and how a failed try is made again. Beyond this nothing is sent twice that may not be (RFC 9110, 9.2.2).
struct retry_policy {
    unsigned retries = 3;
    std::chrono::milliseconds delay{100};       // before the first; doubled each time
    std::chrono::milliseconds max_delay{30000}; // a longer Retry-After ends the trying
    bool jitter = true;                         // between half and all of the delay, by chance
    bool retry_after = true;                    // the origin's Retry-After counts
    bool any_method = false;                    // not only idempotent ones, once something was sent
};

namespace detail {

// The typed calls. `Derived` has set_number(option, int64_t) and set_text(option, string_view), each with `Derived &` for result.
template <typename Derived>
class typed_options {
    using ms = std::chrono::milliseconds;

public:
    // From start to the end, all tries together; 0: without limit.
    Derived &timeout(ms limit) { return number(HEARTH_TIMEOUT, limit.count()); }
    // Look-up, connection, proxy and TLS.
    Derived &connect_timeout(ms limit) { return number(HEARTH_CONNECT_TIMEOUT, limit.count()); }
    // Between two pieces, either way.
    Derived &idle_timeout(ms limit) { return number(HEARTH_IDLE_TIMEOUT, limit.count()); }

    Derived &follow_location(follow how, int most = 5) {
        number(HEARTH_FOLLOW_LOCATION, static_cast<int>(how));
        return number(HEARTH_MAX_REDIRECTS, most);
    }
    Derived &accept_compression(bool on) { return number(HEARTH_ACCEPT_COMPRESSION, on); }
    // True (the default): Content-Encoding and Content-Length of a body that was compressed stay among the fields, as the origin sent them.
    Derived &keep_encoding(bool on = true) { return number(HEARTH_KEEP_ENCODING, on); }
    // The requested encodings of gzip, deflate, br, zstd and identity; by default all except the last.
    Derived &accept_encoding(std::initializer_list<std::string_view> names) {
        std::string joined;
        for (const auto one : names) {
            joined.append(joined.empty() ? "" : ", ").append(one);
        }
        return text(HEARTH_ACCEPT_ENCODING, joined);
    }
    // Bytes of bodies per second; 0: without limit.
    Derived &limit_rate(std::uint64_t receive, std::uint64_t send) {
        number(HEARTH_MAX_RECEIVE_RATE, receive);
        return number(HEARTH_MAX_SEND_RATE, send);
    }
    Derived &version(http_version which) {
        return number(HEARTH_HTTP_VERSION, static_cast<int>(which));
    }
    // The answers on the way are kept: response::history().
    Derived &keep_history(bool on = true) { return number(HEARTH_HISTORY, on); }
    // A body waits for 100, or a second.
    Derived &expect_continue(bool on = true) { return number(HEARTH_EXPECT_CONTINUE, on); }
    Derived &user_agent(std::string_view name) { return text(HEARTH_USER_AGENT, name); }

    Derived &retry(const retry_policy &policy) {
        number(HEARTH_MAX_RETRIES, policy.retries);
        number(HEARTH_RETRY_DELAY, policy.delay.count());
        number(HEARTH_RETRY_MAX_DELAY, policy.max_delay.count());
        number(HEARTH_RETRY_JITTER, policy.jitter);
        number(HEARTH_RETRY_AFTER, policy.retry_after);
        return number(HEARTH_RETRY_ANY_METHOD, policy.any_method);
    }

    // http://, https://, socks4://, socks4a://, socks5://, socks5h://, with user:password@
    Derived &proxy(std::string_view url) { return text(HEARTH_PROXY, url); }
    // Connects there, whatever the URL's host.
    Derived &unix_socket(std::string_view path) { return text(HEARTH_UNIX_SOCKET, path); }
    // "host:port:address"
    Derived &resolve(std::initializer_list<std::string_view> overrides) {
        std::string joined;
        for (const auto one : overrides) {
            joined.append(joined.empty() ? "" : ";").append(one);
        }
        return text(HEARTH_RESOLVE, joined);
    }
    // Local address.
    Derived &interface(std::string_view address) { return text(HEARTH_INTERFACE, address); }
    Derived &family(ip_family which) { return number(HEARTH_IP_FAMILY, static_cast<int>(which)); }
    // False refuses loopback, private, link-local and similar addresses, after look-up: for URLs from untrusted users.
    Derived &private_addresses(bool allowed) { return number(HEARTH_PRIVATE_ADDRESSES, allowed); }
    // Of http, https, smtp, smtps and file; redirects included. By itself "http,https", of a mail "smtp,smtps". With "file" a redirect of a
    // server that is called may name a file of this machine, too.
    Derived &safe_protocols(std::string_view names) { return text(HEARTH_SAFE_PROTOCOLS, names); }

    // No certificate is verified.
    Derived &insecure(bool on = true) { return number(HEARTH_INSECURE, on); }
    Derived &tls(tls_version least, tls_version most = tls_version::tls13) {
        number(HEARTH_TLS_MIN, static_cast<int>(least));
        return number(HEARTH_TLS_MAX, static_cast<int>(most));
    }
    // Allowed cipher suites, joined by ':', by their IANA or OpenSSL names.
    Derived &ciphers(std::string_view names) { return text(HEARTH_CIPHERS, names); }
    // "sha256//BASE64;sha256//…" of the public keys that are believed.
    Derived &pinned_key(std::string_view pins) { return text(HEARTH_PINNED_KEY, pins); }
    // The authorities that are believed: a PEM file, or the PEM itself.
    Derived &ca_file(std::string_view path) { return text(HEARTH_CAINFO, path); }
    Derived &ca_pem(std::string_view pem) { return text(HEARTH_CAPEM, pem); }
    // Our certificate with its chain, and its key; PEM. The password of a key that is encrypted.
    Derived &client_certificate(
        std::string_view certificate, std::string_view key, std::string_view password = {}) {
        text(HEARTH_SSLCERT, certificate);
        text(HEARTH_KEYPASSWD, password);
        return text(HEARTH_SSLKEY, key);
    }

    Derived &basic(std::string_view user, std::string_view password) {
        return credentials("basic", user, password);
    }
    Derived &digest(std::string_view user, std::string_view password) {
        return credentials("digest", user, password);
    }
    Derived &bearer(std::string_view token) { return credentials("bearer", {}, token); }

private:
    template <typename Number>
    Derived &number(hearth_option option, Number value) {
        return static_cast<Derived *>(this)->set_number(option, static_cast<std::int64_t>(value));
    }
    Derived &text(hearth_option option, std::string_view value) {
        return static_cast<Derived *>(this)->set_text(option, value);
    }
    Derived &credentials(std::string_view mode, std::string_view user, std::string_view secret) {
        text(HEARTH_AUTH_MODE, mode);
        text(HEARTH_AUTH_USER, user);
        return text(HEARTH_AUTH_SECRET, secret);
    }
};

} // namespace detail
} // namespace v1
} // namespace hearth
