//! Sends one mail: a kept or a new connection, STARTTLS, the login, retries.
//!
//! Invariants
//! - A message is sent again only if it was certainly not accepted: never after its end was sent without a reply.
//! - Two mails share a connection only if server, TLS and credentials are the same.
//! - A kept connection that turns out to be closed does not count as a try.

use std::net::IpAddr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egress::{Dialed, Key, Scheme, Trust};
use mail::{
    Credentials, Envelope, Phase, Reply, Secret, Sender, Session, Times, Trouble, Upgraded,
};
use tokio::time::Instant;

use crate::error::{Failure, Kind};
use crate::in_flight::InFlight;
use crate::io::{Host, Io};
use crate::request::Mail;
use crate::response::{Receipt, Response, Timings};
use crate::retry;
use crate::settings::{AuthMode, Settings, StartTls};
use crate::stats::Open;
use crate::sys::lock;
use crate::target::Target;

/// The properties of a connection to a mail server beyond a [`Key`].
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct MailServerKey {
    /// Whether TLS starts with the connection.
    tls: bool,
    start_tls: StartTls,
    credentials: Option<Credentials>,
    /// The name in EHLO; empty: the default.
    name: String,
}

/// A mail server with its kept connections.
#[derive(Debug)]
pub(crate) struct MailServer {
    how: MailServerKey,
    idle: Mutex<Vec<Kept>>,
}

/// A kept connection, ready for its next message.
#[derive(Debug)]
struct Kept {
    until: Instant,
    line: Line,
}

/// A connection.
#[derive(Debug)]
struct Line {
    session: Session<Dialed>,
    open: Open,
}

/// How often kept connections are checked.
const SWEEP: Duration = Duration::from_secs(1);
/// `CURLE_REMOTE_ACCESS_DENIED`, `CURLE_USE_SSL_FAILED`, `CURLE_WEIRD_SERVER_REPLY`
const DENIED: u8 = 9;
const NO_TLS: u8 = 64;
const WEIRD: u8 = 8;

impl Settings {
    /// The properties that a connection to this mail server needs.
    pub(crate) fn mail_key(&self, target: &Target) -> (Key, MailServerKey) {
        let (host, port) = target.host_port();
        let key = self.key_of(Scheme::Http, true, host, port.unwrap_or_default());
        let kind = match self.auth.mode {
            AuthMode::None => None,
            AuthMode::Basic => Some(Secret::Password),
            AuthMode::Digest => Some(Secret::Hidden),
            AuthMode::Bearer => Some(Secret::Token),
        };
        let credentials = kind.map(|kind| Credentials {
            user: self.auth.user.clone(),
            secret: self.auth.secret.clone(),
            kind,
            allowed: self.mail.mechanisms.clone(),
            in_plain: self.mail.plain_auth,
        });
        let how = MailServerKey {
            tls: target.scheme() == "smtps",
            start_tls: self.mail.start_tls,
            credentials,
            name: target.path().trim_start_matches('/').to_owned(),
        };
        (key, how)
    }
}

impl MailServer {
    pub(crate) fn new(how: MailServerKey) -> Self {
        Self { how, idle: Mutex::default() }
    }

    /// Takes a kept connection, the last used first, and drops those that have closed.
    fn take(&self) -> Option<Line> {
        loop {
            let Kept { mut line, .. } = lock(&self.idle).pop()?;
            if line.session.is_quiet() {
                return Some(line);
            }
        }
    }

    fn keep(&self, io: &Arc<Io>, idle: Duration, line: Line) {
        lock(&self.idle).push(Kept { until: Instant::now() + idle, line });
        if !io.sweeping.swap(true, SeqCst) {
            let this = Arc::clone(io);
            io.tasks.spawn(async move { sweep(&this).await });
        }
    }

    /// Closes expired connections. Returns whether some are left.
    async fn look(&self, now: Instant) -> bool {
        let (gone, left) = {
            let mut idle = lock(&self.idle);
            let (left, gone): (Vec<_>, Vec<_>) =
                idle.drain(..).partition(|kept: &Kept| kept.until > now);
            *idle = left.into_iter().filter_map(quiet).collect();
            (gone, !idle.is_empty())
        };
        for Kept { line: Line { session, open }, .. } in gone {
            session.quit().await;
            drop(open);
        }
        left
    }

    /// Sends QUIT on all of them.
    pub(crate) async fn close(&self) {
        let all = std::mem::take(&mut *lock(&self.idle));
        for Kept { line: Line { session, open }, .. } in all {
            session.quit().await;
            drop(open);
        }
    }
}

fn quiet(mut kept: Kept) -> Option<Kept> {
    kept.line.session.is_quiet().then_some(kept)
}

/// Closes expired connections for as long as there are any.
async fn sweep(io: &Arc<Io>) {
    while io.closing.run_until_cancelled(tokio::time::sleep(SWEEP)).await.is_some() {
        let mut left = false;
        for host in io.all() {
            if let Some(server) = &host.mail_server {
                left |= server.look(Instant::now()).await;
            }
        }
        if !left {
            io.sweeping.store(false, SeqCst);
            return;
        }
    }
}

/// Receives the progress of the session.
struct Witness<'a> {
    io: &'a Io,
    so_far: &'a Mutex<Response>,
}

impl Witness<'_> {
    fn note(&self, note: impl FnOnce(&mut Receipt)) {
        note(lock(self.so_far).receipt.get_or_insert_default());
    }
}

impl mail::Witness for Witness<'_> {
    fn recipient(&self, at: usize, reply: &Reply) {
        self.note(|receipt| {
            if let Some((_, said)) = receipt.recipients.get_mut(at) {
                *said = Some(reply.clone());
            }
        });
    }

    fn final_dot(&self) {
        self.note(|receipt| receipt.uncertain = true);
    }

    fn sent(&self, bytes: usize) {
        self.io.runtime.numbers.sent.fetch_add(bytes as u64, Relaxed);
    }
}

/// Sends a mail. `so_far` holds the known part of the response.
pub(crate) async fn run(
    io: &Arc<Io>,
    host: &Arc<Host>,
    server: &MailServer,
    mail: &Mail,
    in_flight: &Arc<InFlight>,
    so_far: &Mutex<Response>,
) -> Result<(), Failure> {
    let settings = &in_flight.spec.settings;
    lock(so_far).timings.queued = in_flight.began().elapsed();
    lock(so_far).target.clone_from(&in_flight.spec.target);
    let way = Way { io, host, server, settings, mail, so_far };
    loop {
        let began = Instant::now();
        let result = way.send().await;
        if settings.verbose {
            way.print_outcome(&result, began);
        }
        let Err(failure) = result else { return Ok(()) };
        let (tries, uncertain) = {
            let so_far = lock(so_far);
            let uncertain = so_far.receipt.as_ref().is_some_and(|receipt| receipt.uncertain);
            (so_far.timings.retries, uncertain)
        };
        // It may have been taken: once more would be twice. And a server with which TLS cannot begin is no other a moment later.
        if uncertain || (failure.kind == Kind::Tls && matches!(failure.code, NO_TLS | WEIRD)) {
            return Err(failure);
        }
        let Some(delay) = retry::after_mail(&settings.retry, tries, failure.kind) else {
            return Err(failure);
        };
        {
            let mut so_far = lock(so_far);
            so_far.timings =
                Timings { queued: so_far.timings.queued, retries: tries + 1, ..Timings::default() };
        }
        io.runtime.numbers.retries.fetch_add(1, Relaxed);
        tokio::time::sleep(delay).await;
    }
}

struct Way<'a> {
    io: &'a Arc<Io>,
    host: &'a Host,
    server: &'a MailServer,
    settings: &'a Settings,
    mail: &'a Mail,
    so_far: &'a Mutex<Response>,
}

impl Way<'_> {
    /// Makes one try. A kept connection that turns out to be closed does not count.
    async fn send(&self) -> Result<(), Failure> {
        let none = || Failure::new(Kind::Internal, "the mail was not written");
        let message = self.mail.message.as_ref().ok_or_else(none)?;
        let envelope = self.envelope(message);
        let witness = Witness { io: self.io, so_far: self.so_far };
        loop {
            let receipt = Receipt {
                message_id: message.id().to_owned(),
                recipients: envelope.recipients.iter().map(|one| (one.clone(), None)).collect(),
                ..Receipt::default()
            };
            {
                let mut so_far = lock(self.so_far);
                so_far.receipt = Some(Box::new(receipt));
                so_far.status = 0;
            }
            let kept = self.server.take();
            let reused = kept.is_some();
            let Line { mut session, open } = if let Some(mut line) = kept {
                line.session.set_times(self.times());
                self.io.runtime.numbers.mail.reused.fetch_add(1, Relaxed);
                line
            } else {
                let session = self.connect().await?;
                Line { session, open: Open::new(&self.io.runtime.numbers) }
            };
            {
                let mut so_far = lock(self.so_far);
                so_far.timings.reused = reused;
                so_far.address = session.stream().birth.address;
            }
            let result = session.send(&envelope, message.reader(), &witness, reused).await;
            if session.is_settled() && !self.io.closing.is_cancelled() {
                self.server.keep(self.io, self.settings.engine.idle, Line { session, open });
            }
            match result {
                Ok(reply) => {
                    self.decided(&reply);
                    return Ok(());
                }
                Err(trouble) if reused && was_stale(&trouble) => {}
                Err(trouble) => {
                    if let Trouble::Refused { reply, .. } | Trouble::Recipients { reply } = &trouble
                    {
                        self.decided(reply);
                    }
                    return Err(failure(trouble));
                }
            }
        }
    }

    /// Records the server's reply.
    fn decided(&self, reply: &Reply) {
        let mut so_far = lock(self.so_far);
        so_far.status = reply.code;
        let receipt = so_far.receipt.get_or_insert_default();
        receipt.uncertain = false;
        receipt.reply = Some((reply.clone(), reply.to_string()));
    }

    fn envelope(&self, message: &mail::Message) -> Envelope {
        let draft = &self.mail.draft;
        let from = match (&draft.sender, &draft.from) {
            (Sender::Other(address), _) | (Sender::Author, Some(address)) => address.spec(),
            (Sender::Null, _) | (Sender::Author, None) => String::new(),
        };
        Envelope {
            from,
            recipients: draft.recipients.iter().map(|one| one.address.spec()).collect(),
            size: message.size(),
            eight_bit: message.is_eight_bit(),
            international: message.is_international(),
            allow_fails: self.settings.mail.allow_fails,
            dsn: self.settings.mail.dsn.clone(),
        }
    }

    fn times(&self) -> Times {
        self.settings.idle_timeout.map_or_else(Times::default, Times::all)
    }

    /// Opens a connection that is ready for a message.
    async fn connect(&self) -> Result<Session<Dialed>, Failure> {
        let limit = self.settings.connect_timeout;
        let begun = async {
            match self.begin(limit, &self.host.key).await {
                Err(failure) if failure.kind == Kind::Certificate && self.is_local() => {
                    let key = Key { trust: Trust::Anyone, ..self.host.key.clone() };
                    self.begin(limit, &key).await
                }
                begun => begun,
            }
        };
        match tokio::time::timeout(limit, begun).await {
            Ok(result) => result,
            Err(_late) => {
                let what =
                    format!("The server was not ready within {} milliseconds", limit.as_millis());
                Err(Failure::new(Kind::ConnectTimeout, what))
            }
        }
    }

    /// Whether TLS without a verified certificate is no worse than the plain text that would go otherwise: the server is on this machine, and
    /// nothing says which certificate it has to have, nor that there has to be one.
    fn is_local(&self) -> bool {
        let key = &self.host.key;
        let address = lock(self.so_far).address;
        self.server.how.start_tls == StartTls::Offered
            && !self.server.how.tls
            && matches!(key.trust, Trust::System)
            && key.pins.is_empty()
            && key.proxy.is_none()
            && address.is_some_and(|address| address.ip().to_canonical().is_loopback())
    }

    async fn begin(&self, limit: Duration, key: &Key) -> Result<Session<Dialed>, Failure> {
        let engine = &self.io.runtime.egress;
        let began = Instant::now();
        let how = &self.server.how;
        let dialed = engine.dial(key, how.tls, limit).await?;
        {
            let mut so_far = lock(self.so_far);
            so_far.address = dialed.birth.address;
            so_far.timings.resolved = dialed.birth.resolved;
            so_far.timings.connected = dialed.birth.connected;
            so_far.timings.secured = dialed.birth.secured;
        }
        let name = if how.name.is_empty() { own_name(&dialed) } else { how.name.clone() };
        let required = !how.tls && how.start_tls == StartTls::Required;
        let mut session = Session::new(dialed, self.times());
        session.greet().await.map_err(failure)?;
        lock(self.so_far).timings.first_byte = began.elapsed();
        session.hello(&name, !required).await.map_err(failure)?;
        if !how.tls && how.start_tls != StartTls::Never && session.can().start_tls {
            match session.start_tls().await.map_err(failure)? {
                Upgraded::Ready(dialed) => {
                    let dialed = engine.secure(dialed, key, limit).await?;
                    lock(self.so_far).timings.secured = began.elapsed();
                    // Capabilities announced without TLS are discarded (RFC 3207, 4.2).
                    session = Session::new(dialed, self.times());
                    session.hello(&name, true).await.map_err(failure)?;
                }
                Upgraded::Refused(back, _) if !required => session = back,
                Upgraded::Refused(_, reply) => return Err(unsafe_server(&reply.to_string())),
            }
        } else if required {
            return Err(unsafe_server("the server does not offer STARTTLS"));
        }
        if let Some(credentials) = &how.credentials {
            // Without a verified certificate a password is as much in the open as in plain text, unless the caller has said otherwise.
            let verified = !matches!(key.trust, Trust::Anyone) || self.settings.insecure;
            let protected = session.stream().is_secure() && verified;
            let logged_in = session.log_in(credentials, protected).await;
            if let Err(Trouble::Refused { reply, .. }) = &logged_in {
                self.decided(reply);
            }
            logged_in.map_err(failure)?;
        }
        Ok(session)
    }

    #[expect(clippy::print_stderr, reason = "the option verbose promises it")]
    fn print_outcome(&self, result: &Result<(), Failure>, began: Instant) {
        let took = began.elapsed().as_micros();
        let (host, port) = (&self.host.key.host, self.host.key.port);
        match result {
            Ok(()) => {
                let status = lock(self.so_far).status;
                eprintln!("hearth: mail to {host}:{port}: {status} after {took} us");
            }
            Err(failure) => eprintln!("hearth: mail to {host}:{port}: {failure} after {took} us"),
        }
    }
}

/// Returns whether the connection had closed before the server answered anything of this mail.
fn was_stale(trouble: &Trouble) -> bool {
    let early = |phase: &Phase| {
        matches!(phase, Phase::Reset | Phase::Sender | Phase::Recipient | Phase::Data)
    };
    match trouble {
        Trouble::Broken { phase, .. } | Trouble::Closed { phase } => early(phase),
        Trouble::Refused { phase: Phase::Reset, .. } => true,
        Trouble::Refused { phase, reply } => reply.is_goodbye() && early(phase),
        _ => false,
    }
}

fn unsafe_server(why: &str) -> Failure {
    Failure { code: NO_TLS, ..Failure::new(Kind::Tls, format!("TLS is required: {why}")) }
}

/// Why a mail was not sent, for programs.
#[expect(clippy::needless_pass_by_value, reason = "`map_err` gives it away")]
fn failure(trouble: Trouble) -> Failure {
    let message = match &trouble {
        Trouble::Broken { error, .. } | Trouble::Source(error) => format!("{trouble}: {error}"),
        _ => trouble.to_string(),
    };
    let kind = match &trouble {
        Trouble::Broken { .. } => Kind::Reset,
        Trouble::Closed { .. } => Kind::Empty,
        Trouble::Silent { .. } => Kind::IdleTimeout,
        Trouble::Rubbish { .. } => Kind::Rubbish,
        Trouble::Refused { reply, .. } | Trouble::Recipients { reply } if reply.is_transient() => {
            Kind::Later
        }
        Trouble::Refused { phase: Phase::Login, .. } | Trouble::NoLogin(_) | Trouble::Impostor => {
            Kind::Login
        }
        Trouble::Refused { .. } | Trouble::Recipients { .. } => Kind::Refused,
        Trouble::Injected => Kind::Tls,
        Trouble::TooLarge { .. } => Kind::TooLarge,
        Trouble::Unsupported(_) => Kind::Unsupported,
        Trouble::Source(_) => Kind::Source,
        _ => Kind::Internal,
    };
    let failure = Failure::new(kind, message);
    let code = match &trouble {
        Trouble::Refused { phase: Phase::Greeting | Phase::Hello, .. } => DENIED,
        Trouble::Refused { phase: Phase::Login, .. } => 67,
        Trouble::Injected => WEIRD,
        _ => failure.code,
    };
    Failure { code, ..failure }
}

/// The name in EHLO: the machine's name if it is fully qualified, else the address (RFC 5321, 4.1.3).
fn own_name(dialed: &Dialed) -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let whole = name.trim_matches('.').contains('.') && name.chars().all(fits);
    match dialed.local_address().map(|address| address.ip().to_canonical()) {
        _ if whole => name.to_owned(),
        Some(IpAddr::V4(address)) => format!("[{address}]"),
        Some(IpAddr::V6(address)) => format!("[IPv6:{address}]"),
        None => "localhost".to_owned(),
    }
}
