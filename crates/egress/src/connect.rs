//! Opens the connection of a key: look-up, deny-list, connect, proxy, TLS.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustls_pki_types::ServerName;
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::deny::{Network, arrives_at, denied, public};
use crate::dns::{Dns, Unknown};
use crate::errors::code;
use crate::stream::{Socket, Stream};
use crate::tls::{self, Tls};
use crate::{
    CallError, HttpVersions, IpFamily, Key, Proxy, ProxyKind, Reason, Scheme, Secured, eyeballs,
    proxy,
};

/// The parts that opening a connection needs.
#[derive(Debug)]
pub(crate) struct Ways {
    pub(crate) dns: Dns,
    pub(crate) tls: Tls,
    pub(crate) deny: Vec<Network>,
    pub(crate) deny_sockets: Vec<SocketAddr>,
    /// Whether the outcome of TLS handshakes is recorded.
    pub(crate) peers: bool,
}

/// When a connection was opened, and its addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Birth {
    pub(crate) resolved: Instant,
    pub(crate) connected: Instant,
    pub(crate) secured: Option<Instant>,
    /// The peer's address; `None` for a Unix socket.
    pub(crate) address: Option<SocketAddr>,
}

/// A connected socket, past the proxy if there is one.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) socket: Socket,
    pub(crate) resolved: Instant,
    pub(crate) address: Option<SocketAddr>,
}

/// A stream that is ready for HTTP.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) stream: Stream,
    pub(crate) birth: Birth,
    pub(crate) http2: bool,
    /// The outcome of the TLS handshake, if it is recorded.
    pub(crate) secured: Option<Arc<Secured>>,
}

impl Ways {
    /// Connects. `resolving` is true during the look-up of a name, so that a caller that gives up can report it.
    ///
    /// # Cancel safety
    /// Dropping the future closes everything. A look-up continues for the next caller.
    pub(crate) async fn connect(
        &self,
        key: &Key,
        http: HttpVersions,
        resolving: &AtomicBool,
    ) -> Result<Connected, CallError> {
        if let Some(proxy) = &key.proxy
            && proxy.kind.http()
            && key.unix.is_none()
            && (key.scheme, http) == (Scheme::Http, HttpVersions::Http2)
        {
            return Err(CallError::unsupported("The proxy would have to speak HTTP/2"));
        }
        // Without TLS a proxy of HTTP is sent the request itself, in absolute form.
        let reached = self.reach(key, key.scheme == Scheme::Https, resolving).await?;
        self.secure(reached, key, http).await
    }

    /// Connects, through the proxy if there is one. `tunnel`: an HTTP proxy is asked to open a tunnel.
    pub(crate) async fn reach(
        &self,
        key: &Key,
        tunnel: bool,
        resolving: &AtomicBool,
    ) -> Result<Reached, CallError> {
        if let Some(path) = &key.unix {
            let resolved = Instant::now();
            let unix = UnixStream::connect(path).await.map_err(|error| {
                let message = format!("Failed to connect to {}: {error}", path.display());
                let exhausted = exhausted(&error);
                let declined = CallError::declined(Reason::Connect, code::CONNECT, message);
                CallError { exhausted, ..declined }
            })?;
            return Ok(Reached { socket: Socket::unix(unix), resolved, address: None });
        }
        let (host, port) = match (&key.proxy, &key.connect_to) {
            (Some(proxy), _) => (&proxy.host, proxy.port),
            (None, Some((host, port))) => (host, *port),
            (None, None) => (&key.host, key.port),
        };
        let of_proxy = key.proxy.is_some();
        resolving.store(true, Relaxed);
        let place = (host, port);
        let addresses = self.addresses(place, key.family, of_proxy, key.public && !of_proxy).await;
        // The proxy connects to the origin: that is judged as far as it can be seen from here.
        let beyond = match addresses {
            Ok(_) => self.beyond(key).await,
            Err(_) => Ok(None),
        };
        resolving.store(false, Relaxed);
        let (addresses, beyond) = (addresses?, beyond?);
        let resolved = Instant::now();

        let tcp = connect_to_one(&addresses, port, key.interface).await;
        let tcp = tcp.map_err(|error| unconnected(&error, key, host, port, resolved))?;
        let address =
            tcp.peer_addr().map_err(|error| unconnected(&error, key, host, port, resolved))?;
        // Small frames in both directions: waiting for more costs a round trip.
        drop(tcp.set_nodelay(true));
        let mut socket = match &key.proxy {
            Some(proxy) if proxy.kind == ProxyKind::Https => self.secure_proxy(tcp, proxy).await?,
            _ => Socket::new(tcp),
        };
        self.pass_proxy(&mut socket, key, beyond, tunnel).await?;
        Ok(Reached { socket, resolved, address: Some(address) })
    }

    /// Does the TLS handshake with the proxy itself.
    async fn secure_proxy(&self, tcp: TcpStream, proxy: &Proxy) -> Result<Socket, CallError> {
        let name = ServerName::try_from(proxy.host.to_string())
            .map_err(|_name| CallError::unsupported("The proxy's host is no name for TLS"))?;
        let mut of_proxy = Key::plain(0, Scheme::Https, Arc::clone(&proxy.host), proxy.port);
        if let Some(tls) = &proxy.tls {
            of_proxy.trust = tls.trust.clone();
            of_proxy.certificate = tls.certificate.clone();
        }
        let config = self.tls.config(&of_proxy, Some(HttpVersions::Http1)).await?;
        let tls = TlsConnector::from(config).connect(name, tcp).await;
        let tls = tls.map_err(|error| {
            let refused = tls::refused(&error, &proxy.host, proxy.port);
            CallError { reason: Reason::Proxy, ..refused }
        })?;
        Ok(Socket::proxied(tls))
    }

    async fn secure(
        &self,
        reached: Reached,
        key: &Key,
        http: HttpVersions,
    ) -> Result<Connected, CallError> {
        let Reached { socket, resolved, address } = reached;
        let connected = Instant::now();
        match key.scheme {
            Scheme::Http => Ok(Connected {
                stream: Stream::plain(socket),
                birth: Birth { resolved, connected, secured: None, address },
                http2: http == HttpVersions::Http2,
                secured: None,
            }),
            Scheme::Https => {
                let tls = self.handshake(socket, key, Some(http)).await?;
                let http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
                if http == HttpVersions::Http2 && !http2 {
                    return Err(CallError::unsupported("The origin does not speak HTTP/2"));
                }
                let birth = Birth { resolved, connected, secured: Some(Instant::now()), address };
                let secured = self.peers.then(|| Arc::new(Secured::of(tls.get_ref().1)));
                Ok(Connected { stream: Stream::tls(tls), birth, http2, secured })
            }
        }
    }

    /// Does the TLS handshake with the origin. ALPN is omitted if no version of HTTP is given.
    pub(crate) async fn handshake(
        &self,
        socket: Socket,
        key: &Key,
        http: Option<HttpVersions>,
    ) -> Result<TlsStream<Socket>, CallError> {
        let name = ServerName::try_from(key.host.to_string())
            .map_err(|_name| CallError::unsupported("The host is no name for TLS"))?;
        let config = self.tls.config(key, http).await?;
        let tls = TlsConnector::from(config).connect(name, socket.below_tls()).await;
        tls.map_err(|error| tls::refused(&error, &key.host, key.port))
    }

    /// Returns the addresses of a name that the deny-list permits.
    async fn addresses(
        &self,
        (host, port): (&Arc<str>, u16),
        family: IpFamily,
        of_proxy: bool,
        public_only: bool,
    ) -> Result<Vec<IpAddr>, CallError> {
        let found = match self.dns.look_up(host).await {
            Ok(found) => found,
            Err(Unknown::Nowhere) => return Err(CallError::unresolved(host, of_proxy)),
            Err(Unknown::Busy) => return Err(CallError::no_lookup(host)),
        };
        let fits = |address: &&IpAddr| match family {
            IpFamily::Both => true,
            IpFamily::V4 => address.is_ipv4(),
            IpFamily::V6 => address.is_ipv6(),
        };
        let found: Vec<IpAddr> = found.iter().filter(fits).copied().collect();
        if found.is_empty() {
            return Err(CallError::unresolved(host, of_proxy));
        }
        let allowed: Vec<IpAddr> =
            found.into_iter().filter(|ip| self.allowed(*ip, port, public_only)).collect();
        if allowed.is_empty() { Err(CallError::denied(host)) } else { Ok(allowed) }
    }

    /// Returns the origin's address if a proxy needs one. Fails if the address is known and denied.
    async fn beyond(&self, key: &Key) -> Result<Option<IpAddr>, CallError> {
        let Some(proxy) = &key.proxy else { return Ok(None) };
        let (host, port) = beyond_proxy(key);
        match proxy.kind {
            ProxyKind::Socks5 | ProxyKind::Socks4 => {
                let family = match proxy.kind {
                    ProxyKind::Socks4 => IpFamily::V4,
                    _ => key.family,
                };
                let addresses = self.addresses((host, port), family, false, key.public).await?;
                Ok(addresses.first().copied())
            }
            ProxyKind::Http
            | ProxyKind::Https
            | ProxyKind::Socks4Hostname
            | ProxyKind::Socks5Hostname => match host.parse() {
                Ok(address) if !self.allowed(address, port, key.public) => {
                    Err(CallError::denied(host))
                }
                Ok(address) => Ok(Some(address)),
                // The proxy looks it up once more; this keeps out what is plainly inside.
                Err(_) if key.public => {
                    self.addresses((host, port), key.family, false, true).await?;
                    Ok(None)
                }
                Err(_) => Ok(None),
            },
        }
    }

    fn allowed(&self, address: IpAddr, port: u16, public_only: bool) -> bool {
        !denied(&self.deny, address)
            && !arrives_at(&self.deny_sockets, address, port)
            && (!public_only || public(address))
    }

    async fn pass_proxy(
        &self,
        socket: &mut Socket,
        key: &Key,
        address: Option<IpAddr>,
        tunnel: bool,
    ) -> Result<(), CallError> {
        let Some(proxy) = &key.proxy else { return Ok(()) };
        let (host, port) = beyond_proxy(key);
        match proxy.kind {
            ProxyKind::Http | ProxyKind::Https if !tunnel => Ok(()),
            ProxyKind::Http | ProxyKind::Https => proxy::connect(socket, proxy, host, port).await,
            ProxyKind::Socks4 | ProxyKind::Socks4Hostname => {
                proxy::socks4(socket, proxy, host, address, port).await
            }
            ProxyKind::Socks5 | ProxyKind::Socks5Hostname => {
                proxy::socks5(socket, proxy, host, address, port).await
            }
        }
    }
}

/// The destination that a proxy is asked to connect to.
fn beyond_proxy(key: &Key) -> (&Arc<str>, u16) {
    match &key.connect_to {
        Some((host, port)) => (host, *port),
        None => (&key.host, key.port),
    }
}

/// The error of the last attempt. It is never `None`, because there is at least one address.
async fn connect_to_one(
    addresses: &[IpAddr],
    port: u16,
    interface: Option<IpAddr>,
) -> io::Result<TcpStream> {
    let connect = |address: IpAddr| async move {
        let socket = match address {
            IpAddr::V4(_) => TcpSocket::new_v4()?,
            IpAddr::V6(_) => TcpSocket::new_v6()?,
        };
        if let Some(interface) = interface {
            socket.bind(SocketAddr::new(interface, 0))?;
        }
        socket.connect(SocketAddr::new(address, port)).await
    };
    // An address of ours reaches only its own family.
    let fits = |address: &IpAddr| interface.is_none_or(|ours| ours.is_ipv4() == address.is_ipv4());
    let addresses: Vec<IpAddr> = eyeballs::in_turns(addresses).into_iter().filter(fits).collect();
    match eyeballs::race(addresses, connect).await {
        Some(result) => result,
        None => Err(io::ErrorKind::AddrNotAvailable.into()),
    }
}

fn unconnected(error: &io::Error, key: &Key, host: &str, port: u16, since: Instant) -> CallError {
    if let (Some(interface), io::ErrorKind::AddrNotAvailable) = (key.interface, error.kind()) {
        let message =
            format!("bind failed with errno 99: Cannot assign requested address ({interface})");
        return CallError::declined(Reason::Connect, code::INTERFACE, message);
    }
    let of_proxy = key.proxy.is_some();
    let declined = CallError::unconnected(host, port, since.elapsed(), of_proxy);
    CallError { exhausted: exhausted(error), ..declined }
}

/// Returns whether no descriptor was left: EMFILE, ENFILE.
fn exhausted(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::MFILE | Errno::NFILE))
}
