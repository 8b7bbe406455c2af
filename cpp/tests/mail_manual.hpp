// The context of the snippets in docs/guide/client-mail.md.
#pragma once

#include "mail_servers.hpp"
#include "manual.hpp"

class mail_manual : public support::with_engine {
protected:
    mail_manual() {
        EXPECT_EQ(::chdir((folder_ / ".").c_str()), 0);
        folder_.write("report.pdf", "a report");
        folder_.write("server.pem", support::contents(servers_.authority()));
        server = servers_.url("smtp");
    }
    ~mail_manual() override { EXPECT_EQ(::chdir("/"), 0); }
    void SetUp() override {
        with_engine::SetUp();
        engine.set_text(HEARTH_CAINFO, "server.pem");
    }

private:
    support::folder folder_;
    support::mail_servers servers_;

protected:
    std::string server;
};
