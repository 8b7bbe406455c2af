//! systemd's readiness protocol (`sd_notify(3)`): one datagram per change of state, nothing when nobody asked.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio_util::sync::CancellationToken;

/// Tells the service manager `state`, e.g. `READY=1`. A failure is logged: the server works without a manager.
pub(crate) fn notify(socket: Option<&Path>, state: &str) {
    let Some(path) = socket else { return };
    if let Err(error) = send(path, state) {
        tracing::warn!(socket = %path.display(), %error, "service manager not notified");
    }
}

/// Tells the service manager that a reload has begun; `READY=1` ends it. It wants to know when (`MONOTONIC_USEC`, for `Type=notify-reload`).
pub(crate) fn reloading(socket: Option<&Path>) {
    let now = clock_gettime(ClockId::Monotonic);
    let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
    notify(socket, &format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
}

/// Tells the service manager that the process lives, twice as often as it wants to hear it (`sd_watchdog_enabled(3)`). One whose event loop
/// stands still says nothing.
pub(crate) async fn live(socket: PathBuf, limit: Duration, end: CancellationToken) {
    let mut beat = tokio::time::interval(limit / 2);
    while end.run_until_cancelled(beat.tick()).await.is_some() {
        notify(Some(&socket), "WATCHDOG=1");
    }
}

fn send(path: &Path, state: &str) -> io::Result<()> {
    // A leading @ stands for the NUL of an abstract address.
    let address = match path.as_os_str().as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_arrives_at_the_managers_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        notify(Some(&path), "READY=1");
        let mut buffer = [0; 16];
        let length = manager.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1");
    }

    #[test]
    fn a_manager_that_is_gone_is_no_error_for_us() {
        notify(Some(Path::new("/nonexistent/socket")), "STOPPING=1");
        notify(None, "STOPPING=1");
    }
}
