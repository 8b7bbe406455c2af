//! Finds the running server that a command means, and calls it.
//!
//! Invariants
//! - Nothing here is guessed: a command that does not name exactly one server lists the servers and their folders.
//! - A server that drains is found only when no other one matches.
//! - Other users' processes neither delay root for long, nor are they taken for a server of root's.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, geteuid, pidfd_open};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::call::{Bounds, Place};
use crate::app::detect;
use crate::app::target::Target;
use crate::config::{self, Environment};
use crate::failure::Failure;
use crate::ops::control::{Introduction, SOCKET};
use crate::ops::format::harmless;
use crate::system::run_dir::SERVERS;

/// The time limit of a server's introduction.
const INTRODUCTION: Duration = Duration::from_secs(5);
/// The longest introduction: the longest path there is, each byte as `\u0001`.
const LONGEST_INTRODUCTION: usize = 64 << 10;
/// The longest answer: more than `/status` of thousands of workers.
const LONGEST: usize = 16 << 20;
/// The folder in which a service manager makes the run folders of servers.
const SYSTEM: &str = "/run";

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    place: Place,
    pub(crate) who: Introduction,
    /// The server is our own, or the service manager's: its introduction is believed.
    is_believed: bool,
}

impl Server {
    /// Returns the server's run folder.
    pub(crate) fn run_dir(&self) -> &Path {
        self.place.socket.parent().unwrap_or_else(|| Path::new("/"))
    }

    /// Makes one call without a time limit. A failure that the server reports becomes ours.
    pub(crate) fn ask<T: DeserializeOwned>(&self, method: &str, path: &str) -> Result<T, Failure> {
        let bounds = Bounds { until: None, bytes: LONGEST };
        let (status, body) =
            self.place.call(method, path, bounds).map_err(|error| self.lost(&error))?;
        if status != 200 {
            let failure = serde_json::from_slice::<Failure>(&body);
            return Err(failure.map_or_else(|error| self.lost(&error), Failure::of_server));
        }
        serde_json::from_slice(&body).map_err(|error| self.lost(&error))
    }

    /// Returns the server's status as it was sent.
    pub(crate) fn status(&self) -> Result<Bytes, Failure> {
        let bounds = Bounds { until: Some(Instant::now() + INTRODUCTION), bytes: LONGEST };
        let (_, body) =
            self.place.call("GET", "/status", bounds).map_err(|error| self.lost(&error))?;
        Ok(body)
    }

    fn lost(&self, error: &(dyn std::error::Error + 'static)) -> Failure {
        let message = format!("no answer from the server (process {})", self.who.pid);
        Failure::caused_by(message, error, "its log says what it does")
    }

    /// Returns a handle of the server's process, which no other process can be mistaken for. `None`: it is not visible from here, or has
    /// ended.
    pub(crate) fn process(&self) -> io::Result<Option<Process>> {
        let bounds = Bounds { until: Some(Instant::now() + INTRODUCTION), bytes: 0 };
        // In our own numbers, also where it lives in a namespace of its own.
        let (_, peer) = self.place.connect(bounds)?;
        match pidfd_open(peer.pid, PidfdFlags::empty()) {
            Ok(process) => Ok(Some(Process(process))),
            Err(Errno::SRCH | Errno::NOSYS | Errno::PERM) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether the server still answers, if there is no process to wait for.
    pub(crate) fn is_there(&self) -> bool {
        introduce(&self.place, Instant::now() + INTRODUCTION)
            .is_ok_and(|who| who.pid == self.who.pid)
    }

    fn named(&self) -> String {
        let Introduction { pid, target, .. } = &self.who;
        let run_dir = self.run_dir().display();
        let text = format!("{} (process {pid}, --run-dir {run_dir})", target.display());
        text.chars().map(harmless).collect()
    }
}

/// A process that lives, or has lived when it was asked for.
#[derive(Debug)]
pub(crate) struct Process(OwnedFd);

impl Process {
    /// Waits for its end, for so long. True: it has ended.
    pub(crate) fn has_ended(&self, patience: Duration) -> io::Result<bool> {
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
pub(crate) fn find(target: &Target, environment: &Environment) -> Result<Server, Failure> {
    let wanted = environment.current_dir.join(&target.path);
    let folder = detect::folder_of(&wanted)?;
    let settings =
        config::load(&folder, target.config.as_deref(), target.flags.clone(), environment)?;
    if let Some(run_dir) = &settings.server.run_dir.0 {
        let socket = run_dir.join(SOCKET);
        // As a server has it (`run_dir`): another user's folder has another user's socket, whatever it is called.
        let owner = std::fs::metadata(run_dir).map(|folder| folder.uid()).ok();
        let place = Place { socket, owner };
        return match introduce(&place, Instant::now() + INTRODUCTION) {
            Ok(who) => Ok(Server { place, who, is_believed: true }),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(Failure::caused_by(
                    format!("cannot ask the server at {}", place.socket.display()),
                    &error,
                    "only its own user and root may use it: `sudo hearth …`, or `sudo -u NAME hearth …`",
                ))
            }
            Err(error) => Err(Failure::caused_by(
                format!("no server answers at {}", place.socket.display()),
                &error,
                "`server.run_dir` says where it is looked for; start one with `hearth serve`",
            )),
        };
    }
    let mut running = running(&environment.temporary_folder());
    let same = |server: &Server| {
        server.who.target == wanted
            || matches!((server.who.target.canonicalize(), wanted.canonicalize()), (Ok(a), Ok(b)) if a == b)
            || detect::folder_of(&server.who.target).is_ok_and(|of_it| of_it == folder)
    };
    let mut found: Vec<Server> = running.extract_if(.., |server| same(server)).collect();
    if found.iter().any(|server| server.is_believed) {
        found.retain(|server| server.is_believed);
    }
    if found.iter().any(|server| !server.who.draining) {
        found.retain(|server| !server.who.draining);
    }
    let list =
        |servers: &[Server]| servers.iter().map(Server::named).collect::<Vec<_>>().join(", ");
    match found.len() {
        1 => Ok(found.remove(0)),
        0 if running.is_empty() => Err(Failure::failed(
            format!("no server of this user serves {}", wanted.display()),
            "start one with `hearth serve`; one that has a `server.run_dir` is found by `--run-dir`",
        )),
        0 => Err(Failure::failed(
            format!("no server of this user serves {}", wanted.display()),
            format!("name one of the running servers: {}", list(&running)),
        )),
        _ => Err(Failure::failed(
            format!("several servers serve {}", wanted.display()),
            format!("say which one by its `--run-dir`: {}", list(&found)),
        )),
    }
}

/// The servers of our user, or of any for root, that have a run folder of their own making, or one of the service manager's.
fn running(temporary: &Path) -> Vec<Server> {
    let ours = geteuid().as_raw();
    let mut places = places(temporary);
    // Each owner's together: they share what a stranger may cost us.
    places.sort_by_key(|(place, _)| place.owner);
    let mut patience = None;
    let mut servers = Vec::new();
    for (place, of_a_manager) in places {
        let is_ours = place.owner == Some(ours);
        let until = match patience {
            Some((owner, until)) if owner == place.owner && !is_ours => until,
            _ => Instant::now() + INTRODUCTION,
        };
        patience = Some((place.owner, until));
        if let Ok(who) = introduce(&place, until) {
            servers.push(Server { place, who, is_believed: is_ours || of_a_manager });
        }
    }
    servers
}

/// Lists the folders where servers may be; true: the service manager made the folder.
fn places(temporary: &Path) -> Vec<(Place, bool)> {
    let mut places = Vec::new();
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
            if may_be_one && let Some(owner) = owner_we_may_command(&entry) {
                let socket = entry.path().join(SOCKET);
                places.push((Place { socket, owner: Some(owner) }, of_a_manager));
            }
        }
    }
    places
}

/// Returns the owner of a run folder, if we may command its processes. Any user can make a folder of this name.
fn owner_we_may_command(entry: &std::fs::DirEntry) -> Option<u32> {
    let ours = geteuid().as_raw();
    let entry = entry.metadata().ok().filter(std::fs::Metadata::is_dir)?;
    Some(entry.uid()).filter(|owner| *owner == ours || ours == 0)
}

fn introduce(place: &Place, until: Instant) -> io::Result<Introduction> {
    let bounds = Bounds { until: Some(until), bytes: LONGEST_INTRODUCTION };
    let (_, body) = place.call("GET", "/who", bounds)?;
    Ok(serde_json::from_slice(&body)?)
}
