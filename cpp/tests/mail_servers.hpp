// Mail servers for the tests: one of scripts, and Debian's exim4 where it is installed (crates/capi/tests/c/mail.py).
#pragma once

#include <array>
#include <csignal>
#include <fcntl.h>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include <hearth/smtp.hpp>

#include "support.hpp"

namespace support {

// A process of mail.py. It ends with this.
class mail_servers {
public:
    mail_servers() {
        const auto made =
            std::system(("cd " + folder_ / "." +
                         " && for name in server client; do openssl req -x509 -newkey ec -pkeyopt "
                         "ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=$name -addext "
                         "subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:false "
                         "-keyout $name.key -out $name.pem 2>/dev/null; done")
                            .c_str());
        EXPECT_EQ(made, 0);
        std::array<int, 2> in = {};
        std::array<int, 2> out = {};
        if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0) {
            throw std::runtime_error("no pipe");
        }
        const std::string script =
            std::string(HEARTH_TEST_DIR) + "/../../crates/capi/tests/c/mail.py";
        process_ = ::fork();
        if (process_ == 0) {
            ::dup2(in[0], 0);
            ::dup2(out[1], 1);
            ::execlp(
                "python3", "python3", script.c_str(), "serve", (folder_ / "").c_str(), nullptr);
            ::_exit(127);
        }
        ::close(in[0]);
        ::close(out[1]);
        in_ = in[1];
        std::string line;
        for (char byte = 0; ::read(out[0], &byte, 1) == 1 && byte != '\n';) {
            line.push_back(byte);
        }
        ::close(out[0]);
        std::istringstream words(line);
        for (std::string word; words >> word;) {
            const auto equals = word.find('=');
            ports_[word.substr(0, equals)] = word.substr(equals + 1);
        }
    }
    mail_servers(const mail_servers &) = delete;
    mail_servers &operator=(const mail_servers &) = delete;
    ~mail_servers() {
        ::close(in_);
        ::kill(process_, SIGTERM);
        ::waitpid(process_, nullptr, 0);
    }

    bool has(const std::string &name) const { return ports_.count("mail_" + name) != 0; }
    std::string url(const std::string &name, const std::string &me = "me.test") const {
        const auto scheme = name == "smtps" ? std::string("smtps") : std::string("smtp");
        return scheme + "://127.0.0.1:" + ports_.at("mail_" + name) + "/" + me;
    }
    std::string authority() const { return folder_ / "server.pem"; }
    // The commands that the scripted server got.
    std::string told(const std::string &reply) const {
        return support::contents(folder_ / ("told/" + reply.substr(reply.rfind(' ') + 1)));
    }

private:
    support::folder folder_;
    std::map<std::string, std::string> ports_;
    pid_t process_ = 0;
    int in_ = -1;
};

} // namespace support
