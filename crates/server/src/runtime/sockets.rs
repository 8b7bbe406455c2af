//! Listening sockets that this server has not bound itself: a service manager has passed them (`sd_listen_fds(3)`), or the previous server
//! has handed them over.
//!
//! Invariants
//! - Passed sockets are checked before anything is started: if one is not a listening stream socket, the server refuses to start.
//! - Children inherit neither the sockets nor the variables that name them.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixListener;

use front_http::{BindError, Given};
use rustix::io::FdFlags;
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};

use crate::config::{Address, Environment, Settings, TAKE_OVER};
use crate::failure::Failure;
use crate::ops::admin;
use crate::ops::log;
use crate::ops::upgrades::AdminSocket;
use crate::runtime::upgrade::Predecessor;
use crate::subsystems::http::front;
use crate::system::sys;

/// The variables of the protocol.
const VARIABLES: &[&str] = &["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];
/// The first passed descriptor: `SD_LISTEN_FDS_START`.
const FIRST: RawFd = 3;
/// The name (`FileDescriptorName=`) of the one for the admin address.
const ADMIN: &str = "admin";

/// The listening sockets that this process did not bind itself.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    /// The sockets of the HTTP front.
    pub http: Vec<Given>,
    /// The socket of the admin address.
    pub admin: Option<AdminSocket>,
    /// A service manager has passed them: those of the front replace `http.listen`. Otherwise the previous server has passed them.
    pub activated: bool,
}

impl Sockets {
    /// Returns the sockets that this process was given, and the previous server, if any. Call it once, before anything is
    /// opened or a thread is started.
    pub(crate) fn get(environment: &Environment) -> Result<(Self, Option<Predecessor>), Failure> {
        let passed = Self::passed(environment)?;
        let Some(socket) = environment.take_over() else { return Ok((passed, None)) };
        // Neither PHP nor our own successor may inherit it.
        sys::forget(&[TAKE_OVER]);
        let (predecessor, handed_over) = Predecessor::meet(socket)?;
        Ok((handed_over, Some(predecessor)))
    }

    /// Binds the configured addresses that were not passed, for a process that is about to drop root.
    pub(crate) fn bind(&mut self, settings: &Settings) -> Result<(), Failure> {
        if !self.activated {
            for listen in &settings.http.listen {
                // Files of unix sockets are made by the process that removes them.
                let Address::Tcp(address) = listen.address else { continue };
                if self.listens(address) {
                    continue;
                }
                let refused = |address: String, cause| {
                    front::not_bound(&BindError::Listen { address, cause }, settings)
                };
                let http3 = settings.http.http3.0 && settings.speaks_tls(listen);
                if http3 && address.port() == 0 {
                    Given::add_free_pair(&mut self.http, address)
                        .map_err(|cause| refused(address.to_string(), cause))?;
                    continue;
                }
                let tcp = Given::bind(address);
                self.http.push(tcp.map_err(|cause| refused(address.to_string(), cause))?);
                if http3 {
                    let udp = Given::bind_quic(address);
                    self.http.push(udp.map_err(|cause| refused(format!("udp {address}"), cause))?);
                }
            }
        }
        if let (None, Some(address)) = (&self.admin, settings.admin.listen) {
            let bound = TcpListener::bind(address);
            let listener = bound.map_err(|error| admin::not_bound(address, &error))?;
            self.admin = Some(AdminSocket { listener, passed: false });
        }
        Ok(())
    }

    /// Returns whether a socket for this address is there already.
    fn listens(&self, address: SocketAddr) -> bool {
        let wanted = front_http::Address::Tcp(address.to_string());
        self.http
            .iter()
            .any(|given| given.address().is_ok_and(|bound| bound.as_ref() == Some(&wanted)))
    }

    /// Binds the only address, or the next free port: one of `further`. The settings then name that one.
    pub(crate) fn bind_next_free(
        &mut self,
        settings: &mut Settings,
        further: u16,
    ) -> Result<(), Failure> {
        let [listen] = &mut settings.http.listen[..] else { return Ok(()) };
        let Address::Tcp(wanted) = listen.address else { return Ok(()) };
        // The previous server has already found a port.
        if let Some(Given::Tcp(listener)) = self.http.first() {
            if let Ok(address) = listener.local_addr() {
                listen.address = Address::Tcp(address);
            }
            return Ok(());
        }
        let last = wanted.port().saturating_add(further);
        for port in wanted.port()..=last {
            let address = SocketAddr::new(wanted.ip(), port);
            match Given::bind(address) {
                Ok(given) => {
                    if port != wanted.port() {
                        log::line(&format!("port {} is in use, {port} is free", wanted.port()));
                    }
                    listen.address = Address::Tcp(address);
                    self.http.push(given);
                    return Ok(());
                }
                Err(cause) if cause.kind() == ErrorKind::AddrInUse && port < last => {}
                Err(cause) => {
                    let error = BindError::Listen { address: address.to_string(), cause };
                    return Err(front::not_bound(&error, settings));
                }
            }
        }
        Ok(())
    }

    /// Returns the sockets that a service manager has passed to this process.
    fn passed(environment: &Environment) -> Result<Self, Failure> {
        let names = environment.passed_sockets();
        let last = FIRST + RawFd::try_from(names.len()).unwrap_or(0);
        let taken = sys::passed(FIRST..last);
        sys::forget(VARIABLES);
        let mut sockets = Self::default();
        if taken.len() < names.len() {
            return Err(Failure::misused(
                format!(
                    "LISTEN_FDS promises {} sockets, and {} are open",
                    names.len(),
                    taken.len()
                ),
                "pass them as descriptors 3 and up, see sd_listen_fds(3)",
            ));
        }
        for ((number, descriptor), name) in taken.into_iter().zip(names) {
            let refuse = |what: &str| {
                Failure::misused(
                    format!("descriptor {number} (`{name}`), which LISTEN_FDS passes, is {what}"),
                    "pass listening stream sockets: `ListenStream=` and `Accept=no` in systemd's socket unit",
                )
            };
            let not_ours = |_cause| refuse("not to be taken");
            rustix::io::fcntl_setfd(&descriptor, FdFlags::CLOEXEC).map_err(not_ours)?;
            // Files are the service manager's.
            let given = given(descriptor, false).map_err(refuse)?;
            if name != ADMIN {
                sockets.http.push(given);
                sockets.activated = true;
            } else if let (Given::Tcp(listener), None) = (given, &sockets.admin) {
                sockets.admin = Some(AdminSocket { listener, passed: true });
            } else {
                return Err(refuse("not the one TCP socket that the admin address may have"));
            }
        }
        Ok(sockets)
    }
}

/// A socket that the front can accept from; else what it is. `takes_file_away`: that of a unix socket goes with us.
pub(crate) fn given(descriptor: OwnedFd, takes_file_away: bool) -> Result<Given, &'static str> {
    if socket_type(&descriptor) != Ok(SocketType::STREAM) {
        return Err("no stream socket");
    }
    if socket_acceptconn(&descriptor) != Ok(true) {
        return Err("not listening");
    }
    match socket_domain(&descriptor) {
        Ok(AddressFamily::INET | AddressFamily::INET6) => {
            Ok(Given::Tcp(TcpListener::from(descriptor)))
        }
        Ok(AddressFamily::UNIX) => {
            Ok(Given::Unix { listener: UnixListener::from(descriptor), takes_file_away })
        }
        _ => Err("neither TCP nor a unix socket"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn only_listening_stream_sockets_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        let listening = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = std::net::TcpStream::connect(listening.local_addr().unwrap()).unwrap();
        let unix = UnixListener::bind(folder.path().join("socket")).unwrap();
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(given(OwnedFd::from(listening), false), Ok(Given::Tcp(_))));
        assert!(matches!(
            given(OwnedFd::from(unix), false),
            Ok(Given::Unix { takes_file_away: false, .. })
        ));
        assert_eq!(given(OwnedFd::from(connected), false).unwrap_err(), "not listening");
        assert_eq!(given(OwnedFd::from(datagrams), false).unwrap_err(), "no stream socket");
        assert_eq!(given(OwnedFd::from(file), false).unwrap_err(), "no stream socket");
    }
}
