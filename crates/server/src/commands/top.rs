//! `hearth top`: the admin address's figures in a terminal, once a second.
//!
//! Invariants
//! - The terminal is put back as it was, whether a key, a signal or an error ends it.
//! - Nothing that comes from the server reaches the terminal but printable text: paths and reasons are what clients and scripts chose.
//! - Without a terminal, or with `--once`, it prints one screen and ends: no colours, no control sequences.

mod figures;
mod screen;
mod terminal;

use std::io::{self, IsTerminal, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use http::Version;
use http1::{parse_response, put_field, put_request_line};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;

pub(crate) use self::figures::Figures;
pub(crate) use self::screen::{Screen, Sort, harmless};
use self::terminal::Terminal;
use crate::config::{self, Environment, Token};
use crate::failure::Failure;

/// The admin address by default: the one of every guide.
const USUAL: &str = "127.0.0.1:9180";
/// The time limit of one status request.
const PATIENCE: Duration = Duration::from_secs(3);
/// The interval between status requests.
const BEAT: Duration = Duration::from_secs(1);
/// The width of a printed screen, in columns.
const PRINTED: usize = 120;
/// The largest answer in bytes; a longer one is no status.
const LARGEST: u64 = 16 << 20;

/// `hearth top`.
#[derive(Debug)]
pub(crate) struct Top {
    /// The admin address.
    pub address: Option<String>,
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--once`.
    pub once: bool,
    /// `--sort`.
    pub sort: Sort,
}

/// The server that is asked.
#[derive(Debug)]
struct Server {
    address: String,
    token: Option<Token>,
}

/// Shows what the server does, until `q`.
pub(crate) fn run(top: &Top, environment: &Environment) -> Result<(), Failure> {
    let settings =
        config::load(&environment.current_dir, top.config.as_deref(), Vec::new(), environment)?;
    let named = top.address.clone();
    let set = || settings.admin.listen.map(|address| reachable(address).to_string());
    let address = named.or_else(set).unwrap_or_else(|| USUAL.to_owned());
    let server = Server { address, token: settings.admin.token };
    // Errors are printed before the terminal changes its mode.
    let figures = server.ask()?;
    let screen = Screen { sort: top.sort, colour: environment.colour_stdout() };
    if top.once || !environment.stdout_is_terminal || !io::stdin().is_terminal() {
        let screen = Screen { colour: false, ..screen };
        let text = screen.lines(&figures, PRINTED, usize::MAX).join("\n") + "\n";
        drop(io::stdout().write_all(text.as_bytes()));
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| no_terminal(&error))?;
    runtime.block_on(live(&server, figures, screen))
}

/// A server that listens everywhere is here, too.
fn reachable(address: SocketAddr) -> SocketAddr {
    let mut address = address;
    if address.ip().is_unspecified() {
        address.set_ip([127, 0, 0, 1].into());
    }
    address
}

fn no_terminal(error: &io::Error) -> Failure {
    Failure::caused_by("cannot use the terminal", error, "`hearth top --once` needs none")
}

async fn live(server: &Server, figures: Figures, mut screen: Screen) -> Result<(), Failure> {
    let listen = |kind| signal(kind).map_err(|error| no_terminal(&error));
    let (mut resized, mut terminated, mut hung_up) = (
        listen(SignalKind::window_change())?,
        listen(SignalKind::terminate())?,
        listen(SignalKind::hangup())?,
    );
    let mut terminal = Terminal::open().map_err(|error| no_terminal(&error))?;
    let mut beat = tokio::time::interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut figures: Result<Figures, Failure> = Ok(figures);
    loop {
        let (width, height) = terminal.size();
        let lines = match &figures {
            Ok(figures) => screen.lines(figures, width, height),
            Err(failure) => screen.lost(&failure.message(), width),
        };
        terminal.draw(&lines).map_err(|error| no_terminal(&error))?;
        tokio::select! {
            _ = beat.tick() => figures = server.ask(),
            Some(()) = resized.recv() => {}
            Some(()) = terminated.recv() => return Ok(()),
            Some(()) = hung_up.recv() => return Ok(()),
            key = terminal.key() => match key {
                // Ctrl-C is a key in raw mode; without the end of input the user could not quit.
                None | Some(b'q' | b'Q' | 0x03 | 0x04) => return Ok(()),
                Some(key) => screen.sort = Sort::of_key(key).unwrap_or(screen.sort),
            },
        }
    }
}

impl Server {
    fn ask(&self) -> Result<Figures, Failure> {
        let address = &self.address;
        let hint = "start it with `--admin 127.0.0.1:9180`, or give its address: `hearth top ADDR`";
        let received = self.call().map_err(|error| {
            Failure::caused_by(format!("no server answers at {address}"), &error, hint)
        })?;
        let answer = parse_response(&received);
        let status = answer.as_ref().map_or(0, |answer| answer.head.status.as_u16());
        let body = answer.map(|answer| answer.body).unwrap_or_default();
        match status {
            200 => serde_json::from_slice(&body).map_err(|error| {
                let what = format!("what answers at {address} is no Hearth, or another version");
                Failure::caused_by(what, &error, hint)
            }),
            401 => Err(Failure::failed(
                format!("the server at {address} wants a token"),
                "set HEARTH_ADMIN_TOKEN to its `admin.token`",
            )),
            status => Err(Failure::failed(
                format!("what answers at {address} is no Hearth's admin address (status {status})"),
                hint,
            )),
        }
    }

    /// Makes one HTTP/1.0 call: the answer ends with its connection.
    fn call(&self) -> io::Result<Vec<u8>> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in self.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => return self.converse(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn converse(&self, mut stream: TcpStream) -> io::Result<Vec<u8>> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut head = Vec::new();
        put_request_line(&mut head, "GET", "/status", Version::HTTP_10);
        put_field(&mut head, "Host", &self.address);
        if let Some(token) = &self.token {
            put_field(&mut head, "Authorization", format!("Bearer {}", token.expose()));
        }
        head.extend_from_slice(b"\r\n");
        stream.write_all(&head)?;
        let mut received = Vec::new();
        stream.take(LARGEST).read_to_end(&mut received)?;
        Ok(received)
    }
}
