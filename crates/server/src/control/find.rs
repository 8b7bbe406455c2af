//! Finding the running server that a command means, and speaking to it.
//!
//! Invariants
//! - Nothing here is guessed: a command that does not say exactly one server is told which there are, and where.
//! - A server that finishes what it has is found only when no other one is meant.

use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{PidfdFlags, geteuid, pidfd_open};
use serde::de::DeserializeOwned;

use super::{Introduction, SOCKET};
use crate::cli::Target;
use crate::config::{self, Environment};
use crate::detect;
use crate::failure::Failure;
use crate::run_dir::SERVERS;

/// How long a server may take to say who it is.
const INTRODUCTION: Duration = Duration::from_secs(5);
/// Where servers have their folders that a service manager has started.
const SYSTEM: &str = "/run";

/// A running server.
#[derive(Debug)]
pub(super) struct Server {
    socket: PathBuf,
    pub(super) who: Introduction,
}

impl Server {
    /// Where its socket is.
    pub(super) fn run_dir(&self) -> &Path {
        self.socket.parent().unwrap_or_else(|| Path::new("/"))
    }

    /// One call, for as long as it takes. A failure that the server tells of is ours.
    pub(super) fn ask<T: DeserializeOwned>(&self, method: &str, path: &str) -> Result<T, Failure> {
        let (status, body) =
            call(&self.socket, method, path, None).map_err(|error| self.lost(&error))?;
        if status != 200 {
            let failure = serde_json::from_slice::<Failure>(&body);
            return Err(failure.map_or_else(|error| self.lost(&error), Failure::of_server));
        }
        serde_json::from_slice(&body).map_err(|error| self.lost(&error))
    }

    /// What it says of itself, as it says it.
    pub(super) fn status(&self) -> Result<Vec<u8>, Failure> {
        let (_, body) = call(&self.socket, "GET", "/status", Some(INTRODUCTION))
            .map_err(|error| self.lost(&error))?;
        Ok(body)
    }

    fn lost(&self, error: &(dyn std::error::Error + 'static)) -> Failure {
        let message = format!("no answer from the server (process {})", self.who.pid);
        Failure::caused_by(message, error, "its log says what it does")
    }

    /// Its process, which cannot be mistaken for another one from now on. None: it is not to be seen from here, or has ended.
    pub(super) fn process(&self) -> io::Result<Option<Process>> {
        let stream = UnixStream::connect(&self.socket)?;
        // In our own numbers, also where it lives in a namespace of its own.
        let pid = socket_peercred(&stream)?.pid;
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => Ok(Some(Process(process))),
            Err(Errno::SRCH | Errno::NOSYS | Errno::PERM) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Where there is no process to wait for: whether somebody answers still.
    pub(super) fn is_there(&self) -> bool {
        introduce(&self.socket).is_ok_and(|who| who.pid == self.who.pid)
    }

    fn named(&self) -> String {
        let Introduction { pid, target, .. } = &self.who;
        format!("{} (process {pid}, --run-dir {})", target.display(), self.run_dir().display())
    }
}

/// A process that lives, or has lived when it was asked for.
#[derive(Debug)]
pub(super) struct Process(OwnedFd);

impl Process {
    /// Waits for its end, for so long. True: it has ended.
    pub(super) fn has_ended(&self, patience: Duration) -> io::Result<bool> {
        let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
        // Readable once it has ended (pidfd_open(2)).
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&patience)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The server that serves `target`.
pub(super) fn find(target: &Target, environment: &Environment) -> Result<Server, Failure> {
    let wanted = environment.current_dir.join(&target.path);
    let folder = detect::folder_of(&wanted)?;
    let settings =
        config::load(&folder, target.config.as_deref(), target.flags.clone(), environment)?;
    if let Some(run_dir) = &settings.server.run_dir.0 {
        let socket = run_dir.join(SOCKET);
        return introduce(&socket).map(|who| Server { socket: socket.clone(), who }).map_err(
            |error| {
                Failure::caused_by(
                    format!("no server answers at {}", socket.display()),
                    &error,
                    "`server.run_dir` says where it is looked for; start one with `hearth serve`",
                )
            },
        );
    }
    let mut running = running(&environment.temporary_folder());
    let same = |server: &Server| {
        server.who.target == wanted
            || matches!((server.who.target.canonicalize(), wanted.canonicalize()), (Ok(a), Ok(b)) if a == b)
            || detect::folder_of(&server.who.target).is_ok_and(|of_it| of_it == folder)
    };
    let mut found: Vec<Server> = running.extract_if(.., |server| same(server)).collect();
    if found.iter().any(|server| !server.who.draining) {
        found.retain(|server| !server.who.draining);
    }
    let list =
        |servers: &[Server]| servers.iter().map(Server::named).collect::<Vec<_>>().join(", ");
    match found.len() {
        1 => Ok(found.remove(0)),
        0 if running.is_empty() => Err(Failure::failed(
            format!("no server of yours serves {}", wanted.display()),
            "start one with `hearth serve`; one that has a `server.run_dir` is found by `--run-dir`",
        )),
        0 => Err(Failure::failed(
            format!("no server of yours serves {}", wanted.display()),
            format!("name what is served: {}", list(&running)),
        )),
        _ => Err(Failure::failed(
            format!("several servers serve {}", wanted.display()),
            format!("say which one by its `--run-dir`: {}", list(&found)),
        )),
    }
}

/// The servers of our user, or of any for root, that have a run folder of their own making, or one of the service manager's.
fn running(temporary: &Path) -> Vec<Server> {
    let mut servers = Vec::new();
    for (parent, of_a_manager) in [(temporary, false), (Path::new(SYSTEM), true)] {
        let Ok(entries) = std::fs::read_dir(parent) else { continue };
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let rest = name.strip_prefix(SERVERS);
            let may_be_one = if of_a_manager {
                rest.is_some() || name == SERVERS.trim_end_matches('-')
            } else {
                // Killed servers leave theirs behind.
                rest.and_then(|rest| rest.split('-').next()).is_some_and(|pid| {
                    pid.parse::<u32>().is_ok() && Path::new("/proc").join(pid).is_dir()
                })
            };
            if !may_be_one || !may_command(&entry) {
                continue;
            }
            let socket = entry.path().join(SOCKET);
            if let Ok(who) = introduce(&socket) {
                servers.push(Server { socket, who });
            }
        }
    }
    servers
}

/// Anybody can make such a folder; who is in it must be who may command us.
fn may_command(entry: &std::fs::DirEntry) -> bool {
    let ours = geteuid().as_raw();
    let may = |owner: u32| owner == ours || ours == 0;
    entry.metadata().is_ok_and(|entry| entry.is_dir() && may(entry.uid()))
}

fn introduce(socket: &Path) -> io::Result<Introduction> {
    let (_, body) = call(socket, "GET", "/who", Some(INTRODUCTION))?;
    Ok(serde_json::from_slice(&body)?)
}

/// One call; `patience` for none: it takes as long as it takes.
fn call(
    socket: &Path,
    method: &str,
    path: &str,
    patience: Option<Duration>,
) -> io::Result<(u16, Vec<u8>)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(patience)?;
    // HTTP/1.0: no chunks, the body ends with the connection.
    stream.write_all(format!("{method} {path} HTTP/1.0\r\nHost: hearth\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let malformed = || io::Error::other("the answer is no HTTP, or not whole");
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(malformed)?;
    let body = answer.split_off(end + 4);
    let head = String::from_utf8(answer).map_err(io::Error::other)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or_else(malformed)?, body))
}
