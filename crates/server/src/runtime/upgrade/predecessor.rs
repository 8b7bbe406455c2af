//! The successor's side: it receives the sockets of the previous server, and reports when it is ready.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::time::Duration;

use front_http::{Given, GivenQuic};
use pool::Model;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use super::message::{self, Described, GO, Offered, Role, SuccessorMessage, VERSION};
use crate::config::MAIN;
use crate::failure::Failure;
use crate::ops::upgrades::AdminSocket;
use crate::runtime::generation::Running;
use crate::runtime::sockets::{self, Sockets};

/// The time limit for what the other side can answer at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// The previous server, which this one replaces.
#[derive(Debug)]
pub(crate) struct Predecessor {
    stream: UnixStream,
    pid: u32,
    running: BTreeMap<String, Running>,
}

impl Predecessor {
    /// Asks it for its sockets.
    pub(crate) fn meet(socket: &Path) -> Result<(Self, Sockets), Failure> {
        let failure = |error: io::Error| {
            Failure::caused_by(
                format!("no sockets to be had at {}", socket.display()),
                &error,
                "use `hearth upgrade`, which starts the program that takes over",
            )
        };
        let stream = UnixStream::connect(socket).map_err(failure)?;
        let ask = || -> io::Result<(Offered, Vec<OwnedFd>)> {
            stream.set_read_timeout(Some(PATIENCE))?;
            let owner = socket_peercred(&stream)?.uid;
            if owner != geteuid() && !owner.is_root() {
                return Err(io::Error::other("who offers them is another user"));
            }
            let (line, descriptors) = message::receive(&stream)?;
            let offered: Offered = serde_json::from_slice(&line)?;
            if offered.version != VERSION || offered.sockets.len() != descriptors.len() {
                return Err(io::Error::other(
                    "the running server is of a version that cannot hand over to this one",
                ));
            }
            Ok((offered, descriptors))
        };
        let (offered, descriptors) = ask().map_err(failure)?;
        let mut taken = Sockets { activated: offered.activated, ..Sockets::default() };
        let mut quic = None;
        for (one, descriptor) in offered.sockets.iter().zip(descriptors) {
            let Described { role, takes_file_away, passed, processes } = one;
            match role {
                Role::Quic => {
                    quic = Some((UdpSocket::from(descriptor), processes.clone()));
                    continue;
                }
                Role::Relay => {
                    let Some((socket, processes)) = quic.take() else {
                        return Err(failure(io::Error::other("a relay has no socket before it")));
                    };
                    let relay = Some((UnixDatagram::from(descriptor), processes));
                    taken.http.push(Given::Quic(GivenQuic { socket, relay }));
                    continue;
                }
                Role::Http | Role::Admin => {}
            }
            let given = sockets::given(descriptor, *takes_file_away)
                .map_err(|what| failure(io::Error::other(format!("one of them is {what}"))))?;
            match (role, given) {
                (Role::Http, given) => taken.http.push(given),
                (Role::Admin, Given::Tcp(listener)) => {
                    taken.admin = Some(AdminSocket { listener, passed: *passed });
                }
                (Role::Admin | Role::Quic | Role::Relay, _) => {
                    return Err(failure(io::Error::other("the admin's is no TCP socket")));
                }
            }
        }
        let mut workers = offered.workers_of;
        // A server with a single application sends no names.
        if let (true, Some(wanted)) = (workers.is_empty(), offered.workers) {
            workers.insert(MAIN.to_owned(), wanted);
        }
        let model = |name: &str| Model::named(offered.models_of.get(name)?);
        let running = |(name, workers): (String, usize)| {
            let model = model(&name);
            let running = Running { workers, model, entries: Vec::new(), listing: None };
            (name, running)
        };
        let running = workers.into_iter().map(running).collect();
        Ok((Self { stream, pid: offered.pid, running }, taken))
    }

    /// Returns the process id of the previous server.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns what runs PHP there, by application.
    pub(crate) fn running(&self) -> &BTreeMap<String, Running> {
        &self.running
    }

    /// Reports that this process is ready, and waits until the previous server has handed over. Blocks, for a while at most.
    pub(crate) fn ready(&self) -> Result<(), Failure> {
        let word = SuccessorMessage::Ready { version: env!("CARGO_PKG_VERSION").to_owned() };
        let ask = || -> io::Result<()> {
            (&self.stream).write_all(&message::line(&word))?;
            let mut answer = Vec::new();
            (&self.stream).take(GO.len() as u64).read_to_end(&mut answer)?;
            // A server that has died sends nothing, and can be replaced too.
            if answer.is_empty() || answer == GO {
                Ok(())
            } else {
                Err(io::ErrorKind::InvalidData.into())
            }
        };
        ask().or_else(|error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Ok(()),
            _ => Err(Failure::caused_by(
                format!("the running server (process {}) does not let go", self.pid),
                &error,
                "its log says why",
            )),
        })
    }

    /// Reports that every socket is in its place: the other side may remove its own.
    pub(crate) fn taken(&self) {
        drop(self.stream.shutdown(std::net::Shutdown::Both));
    }

    /// Reports that the upgrade failed, and why. After the hand-over the message is lost.
    pub(crate) fn failed(&self, failure: &Failure) {
        drop((&self.stream).write_all(&message::line(&SuccessorMessage::Failed(failure.clone()))));
    }
}
