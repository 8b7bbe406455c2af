// MIME documents: forms with files (multipart/form-data, RFC 7578), and parts with alternatives (RFC 2046, 5.1.4).
//
// - Parts in memory are laid out once; files are read while they are sent, never as a whole.
// - Names cannot break out of their header line. A quote, CR and LF are percent-encoded (WHATWG HTML, multipart/form-data), and
//   a content type with CR, LF or NUL is refused.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <utility>
#include <variant>
#include <vector>

namespace hearth {
inline namespace v1 {
namespace mime {

// A name and its value.
struct parameter {
    std::string name;
    std::string value;
};

// Data in memory as a file. Content type and file name may be left empty.
struct data {
    std::string name;
    std::string data;
    std::string content_type;
    std::string filename;
};

// A file. Without a given name, its name is the last component of its path.
struct file {
    std::string name;
    std::string filedata;
    std::string content_type;
    std::string filename;
};

// The same thing in several forms, the best one last.
using alternative = std::variant<parameter, data, file>;
using alternatives = std::vector<alternative>;

using part = std::variant<parameter, data, file, alternatives>;
using parts = std::vector<part>;

} // namespace mime

namespace detail {

struct close_file {
    void operator()(std::FILE *file) const noexcept { std::fclose(file); }
};
using file_handle = std::unique_ptr<std::FILE, close_file>;

// The length of a regular file that can be read; nothing for anything else.
inline std::optional<std::uint64_t> file_length(const std::string &path) {
    struct ::stat found = {};
    if (::stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) {
        return std::nullopt;
    }
    const file_handle readable(std::fopen(path.c_str(), "rbe"));
    return readable ? std::optional(static_cast<std::uint64_t>(found.st_size)) : std::nullopt;
}

// A body made of text and files, one after the other.
class segments {
public:
    void add(std::string_view text) {
        length_ += text.size();
        if (!pieces_.empty() && !pieces_.back().is_file) {
            pieces_.back().text.append(text);
        } else {
            pieces_.push_back({std::string(text), 0, false});
        }
    }

    // False: it is no regular file, or cannot be read.
    bool add_file(const std::string &path) {
        const auto length = file_length(path);
        if (!length) {
            return false;
        }
        length_ += *length;
        pieces_.push_back({path, *length, true});
        return true;
    }

    std::uint64_t length() const noexcept { return length_; }

    // All of it, when there is no file in it.
    std::optional<std::string> take_text() {
        if (pieces_.empty()) {
            return std::string();
        }
        if (pieces_.size() > 1 || pieces_.front().is_file) {
            return std::nullopt;
        }
        return std::move(pieces_.front().text);
    }

    // Reads the next bytes; 0 at the end; std::nullopt if a file cannot be read any more, or has become shorter.
    std::optional<std::size_t> read(char *out, std::size_t room) {
        while (at_ < pieces_.size()) {
            const auto &now = pieces_[at_];
            const std::uint64_t whole = now.is_file ? now.length : now.text.size();
            const auto want =
                static_cast<std::size_t>(std::min<std::uint64_t>(whole - done_, room));
            if (want == 0) {
                ++at_;
                done_ = 0;
                open_.reset();
                continue;
            }
            if (now.is_file) {
                if (!open_) {
                    open_.reset(std::fopen(now.text.c_str(), "rbe"));
                }
                if (!open_ || std::fread(out, 1, want, open_.get()) != want) {
                    return std::nullopt;
                }
            } else {
                now.text.copy(out, want, static_cast<std::size_t>(done_));
            }
            done_ += want;
            return want;
        }
        return 0;
    }

    void rewind() noexcept {
        at_ = 0;
        done_ = 0;
        open_.reset();
    }

private:
    struct piece {
        std::string text; // or the path
        std::uint64_t length;
        bool is_file;
    };

    std::vector<piece> pieces_;
    std::uint64_t length_ = 0;
    std::size_t at_ = 0;
    std::uint64_t done_ = 0;
    file_handle open_;
};

// 128 random bits: no data contains them by accident.
inline std::string boundary() {
    constexpr char digits[] = "0123456789abcdef";
    std::random_device random;
    std::string out = "hearth-";
    for (int word = 0; word < 4; ++word) {
        auto bits = random();
        for (int digit = 0; digit < 8; ++digit, bits >>= 4U) {
            out.push_back(digits[bits & 15U]);
        }
    }
    return out;
}

inline std::string quoted_name(std::string_view name) {
    std::string out = "\"";
    for (const char c : name) {
        switch (c) {
        case '"':
            out += "%22";
            break;
        case '\r':
            out += "%0D";
            break;
        case '\n':
            out += "%0A";
            break;
        default:
            out.push_back(c);
        }
    }
    return out += '"';
}

inline bool is_field_value(std::string_view text) noexcept {
    return text.find_first_of(std::string_view("\r\n\0", 3)) == std::string_view::npos;
}

// Lays out parts as one document.
class mime_writer {
public:
    // std::nullopt: a file cannot be read, or a content type is invalid.
    static std::optional<std::pair<std::string, segments>> form(const mime::parts &parts) {
        mime_writer writer;
        const auto edge = boundary();
        for (const auto &part : parts) {
            if (!std::visit([&](const auto &one) { return writer.add(edge, one); }, part)) {
                return std::nullopt;
            }
        }
        writer.out_.add("--" + edge + "--\r\n");
        return std::pair("multipart/form-data; boundary=" + edge, std::move(writer.out_));
    }

private:
    bool add(const std::string &edge, const mime::parameter &part) {
        return head(edge, part.name, {}, {}) && body(part.value);
    }
    bool add(const std::string &edge, const mime::data &part) {
        return head(edge, part.name, part.filename, part.content_type) && body(part.data);
    }
    bool add(const std::string &edge, const mime::file &part) {
        auto filename = part.filename;
        if (filename.empty()) {
            filename = part.filedata.substr(part.filedata.find_last_of('/') + 1);
        }
        const auto &type =
            part.content_type.empty() ? "application/octet-stream" : part.content_type;
        if (!head(edge, part.name, filename, type) || !out_.add_file(part.filedata)) {
            return false;
        }
        out_.add("\r\n");
        return true;
    }
    bool add(const std::string &edge, const mime::alternatives &parts) {
        const auto inner = boundary();
        out_.add("--" + edge + "\r\nContent-Type: multipart/alternative; boundary=" + inner +
                 "\r\n\r\n");
        for (const auto &part : parts) {
            if (!std::visit([&](const auto &one) { return add(inner, one); }, part)) {
                return false;
            }
        }
        out_.add("--" + inner + "--\r\n\r\n");
        return true;
    }

    bool head(const std::string &edge, std::string_view name, std::string_view filename,
        std::string_view content_type) {
        if (!is_field_value(content_type)) {
            return false;
        }
        std::string text =
            "--" + edge + "\r\nContent-Disposition: form-data; name=" + quoted_name(name);
        if (!filename.empty()) {
            text += "; filename=" + quoted_name(filename);
        }
        text += "\r\n";
        if (!content_type.empty()) {
            text.append("Content-Type: ").append(content_type).append("\r\n");
        }
        out_.add(text += "\r\n");
        return true;
    }
    bool body(std::string_view text) {
        out_.add(text);
        out_.add("\r\n");
        return true;
    }

    segments out_;
};

} // namespace detail
} // namespace v1
} // namespace hearth
