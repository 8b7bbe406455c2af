//! `hearth top`: the figures of a running server in a terminal, once a second: by its control socket, or at an admin address.
//!
//! Invariants
//! - The terminal is put back as it was, whether a key, a signal or an error ends it.
//! - Nothing that comes from the server reaches the terminal but printable text: paths and reasons are what clients and scripts chose.
//! - Without a terminal, or with `--once`, it prints one screen and ends: no colours, no control sequences.

mod admin;
mod figures;
mod screen;
mod terminal;

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;

pub(crate) use self::figures::Figures;
pub(crate) use self::screen::{Screen, Sort};
use self::terminal::Terminal;
use crate::app::target::Target;
use crate::commands::remote;
use crate::config::{self, Environment, Token};
use crate::failure::Failure;
use crate::system::async_runtime;

/// The admin address by default: the one of every guide.
const USUAL: &str = "127.0.0.1:9180";
/// The interval between status requests.
const BEAT: Duration = Duration::from_secs(1);
/// The width of a printed screen, in columns.
const PRINTED: usize = 120;

/// `hearth top`.
#[derive(Debug)]
pub(crate) struct Top {
    /// The admin address, or the path of an application whose server is asked by its control socket.
    pub server: Option<String>,
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--once`.
    pub once: bool,
    /// `--sort`.
    pub sort: Sort,
}

/// The server that is asked.
#[derive(Debug)]
enum Server {
    /// The server is reached by its control socket, as its own user.
    Control(Box<remote::Server>),
    /// At its admin address.
    Admin { address: String, token: Option<Token> },
}

/// Shows what the server does, until `q`.
pub(crate) fn run(top: &Top, environment: &Environment) -> Result<(), Failure> {
    let (server, figures) = server(top, environment)?;
    let screen = Screen { sort: top.sort, colour: environment.colour_stdout() };
    if top.once || !environment.stdout_is_terminal || !io::stdin().is_terminal() {
        let screen = Screen { colour: false, ..screen };
        let text = screen.printed(&figures, PRINTED).join("\n") + "\n";
        drop(io::stdout().write_all(text.as_bytes()));
        return Ok(());
    }
    let runtime = async_runtime::start(NonZeroUsize::MIN)?;
    runtime.block_on(live(&server, figures, screen))
}

/// Returns the server that the command means, with its first figures. Errors are printed before the terminal changes its mode.
fn server(top: &Top, environment: &Environment) -> Result<(Server, Figures), Failure> {
    let settings =
        config::load(&environment.current_dir, top.config.as_deref(), Vec::new(), environment)?;
    let here = |path: &str| {
        let (path, config) = (PathBuf::from(path), top.config.clone());
        let server = remote::find(&Target { path, config, flags: Vec::new() }, environment)?;
        asked(Server::Control(Box::new(server)))
    };
    let token = settings.admin.token;
    let at = |address: String| asked(Server::Admin { address, token });
    let set = settings.admin.listen.map(|address| reachable(address).to_string());
    match (&top.server, set) {
        (Some(path), _) if Path::new(path).exists() => here(path),
        (Some(address), _) => at(address.clone()),
        (None, Some(address)) => at(address),
        // The server of this folder, else one with the usual admin address.
        (None, None) => {
            here(".").or_else(|failure| at(USUAL.to_owned()).map_err(|_nothing_there| failure))
        }
    }
}

fn asked(server: Server) -> Result<(Server, Figures), Failure> {
    let figures = server.ask()?;
    Ok((server, figures))
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
        match self {
            Self::Control(server) => figures_of(&server.status()?),
            Self::Admin { address, token } => admin::ask(address, token.as_ref()),
        }
    }
}

/// Reads a `/status`.
pub(crate) fn figures_of(body: &[u8]) -> Result<Figures, Failure> {
    serde_json::from_slice(body).map_err(|error| {
        let hint =
            "the server is of another version: ask it with its own `hearth`, or with `--json`";
        Failure::caused_by("what the server says of itself is not to be understood", &error, hint)
    })
}
