//! How a conversation with a server goes wrong.

use std::io;
use std::time::Duration;

use crate::Reply;

/// Why a session could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// The connection broke.
    #[error("the connection broke at {phase}")]
    Broken {
        /// Where.
        phase: Phase,
        /// How.
        #[source]
        error: io::Error,
    },
    /// The server closed without a reply.
    #[error("the server closed the connection at {phase}")]
    Closed {
        /// Where.
        phase: Phase,
    },
    /// The server sent or accepted nothing for too long.
    #[error("the server was silent at {phase} for {} milliseconds", after.as_millis())]
    Silent {
        /// Where.
        phase: Phase,
        /// For so long.
        after: Duration,
    },
    /// The bytes are not SMTP.
    #[error("what came at {phase} is no SMTP: {what}")]
    Rubbish {
        /// Where.
        phase: Phase,
        /// Why not.
        what: &'static str,
    },
    /// The server rejected it: temporarily (4xx) or permanently (5xx).
    #[error("the server refused at {phase}: {reply}")]
    Refused {
        /// Where.
        phase: Phase,
        /// In its words.
        reply: Reply,
    },
    /// Recipients were refused, and nothing was sent. The reply is the first one's that counts most.
    #[error("a recipient was refused: {reply}")]
    Recipients {
        /// To one of them.
        reply: Reply,
    },
    /// Plain text followed the reply to STARTTLS: an attacker may have injected it.
    #[error("there was something in plain behind the reply to STARTTLS")]
    Injected,
    /// No login mechanism is both offered and allowed.
    #[error("{0}")]
    NoLogin(String),
    /// The server's part of a login is wrong: it does not know the secret.
    #[error("the server does not prove that it knows the secret")]
    Impostor,
    /// The server takes no mail of this size.
    #[error("the message has {size} bytes, the server takes {limit}")]
    TooLarge {
        /// The size of the message.
        size: u64,
        /// The limit of the server.
        limit: u64,
    },
    /// The server lacks an extension that the message needs.
    #[error("the message needs {0}, which the server does not speak")]
    Unsupported(&'static str),
    /// The message could not be read to its end.
    #[error("the message cannot be read")]
    Source(#[source] io::Error),
}

/// The phase of the session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// The first words of the server.
    Greeting,
    /// EHLO, HELO
    Hello,
    /// STARTTLS
    StartTls,
    /// AUTH
    Login,
    /// RSET
    Reset,
    /// MAIL FROM
    Sender,
    /// RCPT TO
    Recipient,
    /// DATA
    Data,
    /// The message itself.
    Message,
    /// After the final dot.
    End,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Greeting => "the greeting",
            Self::Hello => "EHLO",
            Self::StartTls => "STARTTLS",
            Self::Login => "AUTH",
            Self::Reset => "RSET",
            Self::Sender => "MAIL FROM",
            Self::Recipient => "RCPT TO",
            Self::Data => "DATA",
            Self::Message => "the message",
            Self::End => "the end of the message",
        })
    }
}
