//! systemd's readiness protocol (`sd_notify(3)`): one datagram per change of state, nothing without a service manager.
//!
//! Invariant: a manager that does not read delays the sender of a state, for a while, and nothing else.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// The time that a service manager that does not read may delay the sender: less than a successor waits for its answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sends the service manager `state`, e.g. `READY=1`. A failure is logged: the server works without a manager.
pub(crate) async fn notify(socket: Option<&Path>, state: &str) {
    let Some(path) = socket else { return };
    let told = async {
        // Connected: only then the socket becomes writable when the manager's queue has room again.
        let manager = tokio::net::UnixDatagram::from_std(connected(path)?)?;
        manager.send(state.as_bytes()).await
    };
    let told = timeout(PATIENCE, told).await.unwrap_or_else(|late| Err(late.into()));
    log(path, told);
}

/// Notifies the service manager that a reload has begun; `READY=1` ends it. `MONOTONIC_USEC` is required by `Type=notify-reload`.
pub(crate) async fn reloading(socket: Option<&Path>) {
    let now = clock_gettime(ClockId::Monotonic);
    let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
    notify(socket, &format!("RELOADING=1\nMONOTONIC_USEC={microseconds}")).await;
}

/// Notifies the service manager that the process lives, twice in each watchdog interval (`sd_watchdog_enabled(3)`). A process whose event
/// loop is stuck sends nothing.
pub(crate) async fn live(socket: PathBuf, limit: Duration, end: CancellationToken) {
    let mut beat = tokio::time::interval(limit / 2);
    while end.run_until_cancelled(beat.tick()).await.is_some() {
        match connected(&socket).and_then(|manager| manager.send(b"WATCHDOG=1")) {
            // It has those before this one still to read.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            told => log(&socket, told),
        }
    }
}

fn log(socket: &Path, told: io::Result<usize>) {
    if let Err(error) = told {
        tracing::warn!(socket = %socket.display(), %error, "service manager not notified");
    }
}

/// A socket that does not block.
fn connected(path: &Path) -> io::Result<UnixDatagram> {
    // A leading @ stands for the NUL of an abstract address.
    let address = match path.as_os_str().as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn the_state_reaches_the_service_manager() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        notify(Some(&path), "READY=1").await;
        let mut buffer = [0; 16];
        let length = manager.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1");
    }

    #[tokio::test]
    async fn an_absent_service_manager_is_no_error() {
        notify(Some(Path::new("/nonexistent/socket")), "STOPPING=1").await;
        notify(None, "STOPPING=1").await;
    }

    #[tokio::test]
    async fn a_stalled_service_manager_blocks_only_its_notifier() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_nonblocking(true).unwrap();
        let other = connected(&path).unwrap();
        while other.send(b"x").is_ok() {}

        let mut tasks = JoinSet::new();
        let told = path.clone();
        tasks.spawn(async move { notify(Some(&told), "READY=1").await });
        let end = CancellationToken::new();
        tasks.spawn(live(path, Duration::from_millis(2), end.clone()));
        // Both repeatedly find the queue full, and continue.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut buffer = [0; 16];
        while manager.recv(&mut buffer).is_ok() {
            assert_eq!(buffer[0], b'x', "a beat that does not fit is left out");
        }
        let manager = tokio::net::UnixDatagram::from_std(manager).unwrap();
        let (mut ready, mut lives) = (false, false);
        while !(ready && lives) {
            let length = manager.recv(&mut buffer).await.unwrap();
            ready |= &buffer[..length] == b"READY=1";
            lives |= &buffer[..length] == b"WATCHDOG=1";
        }
        end.cancel();
        while tasks.join_next().await.is_some() {}
    }
}
