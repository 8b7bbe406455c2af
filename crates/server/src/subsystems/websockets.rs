//! WebSockets that applications handle: the way in for messages of their PHP, and the view of operators.
//!
//! Invariants
//! - Each application has its own socket, in the server's folder, with a name that cannot be guessed; only its user, ours and root may connect.
//!   What comes there reaches connections of that application only.
//! - A socket stays for as long as the server runs: processes keep its path over reloads.

mod pushes;

use std::collections::HashMap;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use front_http::{SocketReport, WebSockets};
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use crate::ops::metric::metrics_table;
use crate::ops::problems::{Level, Problems};
use crate::ops::status::Status;
use crate::ops::subsystem::Subsystem;
use crate::system::run_dir::{Made, RunDir};
use crate::system::users::PhpUser;

/// The environment variable by which PHP finds its socket.
pub(crate) const VARIABLE: &str = "HEARTH_SOCKETS";

/// The application and the number of PHP's user.
type Key = (Arc<str>, Option<u32>);

/// The ways in of all applications.
#[derive(Debug)]
pub(crate) struct Pushes {
    sockets: Arc<WebSockets>,
    run_dir: Option<Arc<RunDir>>,
    entrances: Mutex<HashMap<Key, Made>>,
    tasks: Mutex<JoinSet<()>>,
}

impl Pushes {
    /// Returns the ways in for messages to these connections.
    pub(crate) fn new(sockets: Arc<WebSockets>, run_dir: Option<Arc<RunDir>>) -> Self {
        Self { sockets, run_dir, entrances: Mutex::default(), tasks: Mutex::default() }
    }

    /// Returns the socket of an application, which is made at the first call.
    pub(crate) fn entrance(
        &self,
        application: &Arc<str>,
        user: Option<&PhpUser>,
    ) -> io::Result<PathBuf> {
        let mut entrances = self.entrances.lock().expect("no holder panics");
        let number = user.map(|user| user.identity.user);
        let key = (Arc::clone(application), number);
        if let Some(made) = entrances.get(&key) {
            return Ok(made.path().to_owned());
        }
        let run_dir = self.run_dir.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let name = format!("sockets-{:016x}.sock", getrandom::u64()?);
        let path = run_dir.path().join(name);
        let listener = UnixListener::bind(&path)?;
        let made = Made::at(path.clone())?;
        match user {
            Some(user) => user.identity.share(&path, 0o660)?,
            None => std::fs::set_permissions(&path, Permissions::from_mode(0o600))?,
        }
        let sockets = Arc::clone(&self.sockets);
        let served = pushes::serve(listener, sockets, Arc::clone(application), number);
        self.tasks.lock().expect("no holder panics").spawn(served);
        entrances.insert(key, made);
        Ok(path)
    }

    /// Returns the view for operators.
    pub(crate) fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.sockets))
    }
}

/// The connections as operators see them.
#[derive(Debug)]
pub(crate) struct Watch(Arc<WebSockets>);

impl Subsystem for Watch {
    fn status(&self, status: &mut Status) {
        status.websockets = self.0.report();
    }

    fn metrics(&self) {
        for report in self.0.report() {
            let SocketReport { application, open, opened, refused, closed, .. } = &report;
            metrics_table! { &[("application", application.clone())];
                gauge "hearth_websockets" = *open, "WebSockets of the application that are open";
                counter "hearth_websockets_opened_total" = *opened, "WebSockets that were opened";
                counter "hearth_websockets_refused_total" = *refused, "WebSockets that were refused: by their origin, a limit or the application";
                counter "hearth_websockets_closed_total" = *closed, "WebSockets that have ended";
                counter "hearth_websocket_received_total" = report.received, "Messages from clients of WebSockets";
                counter "hearth_websocket_sent_total" = report.sent, "Messages to clients of WebSockets";
                counter "hearth_websocket_failures_total" = report.failed, "Events of WebSockets that the application did not handle";
                counter "hearth_websocket_overflows_total" = report.overflowed, "WebSockets closed because their client did not read";
            }
        }
    }

    fn problems(&self, status: &Status, problems: &mut Problems) {
        for report in &status.websockets {
            let events = report.received + report.opened + report.closed;
            if report.failed > 10 && report.failed > events / 100 {
                let text = format!(
                    "WebSockets of `{}`: {} of {events} events were not handled, because the application failed or no worker was free.",
                    report.application, report.failed
                );
                problems.add(Level::Error, text);
            }
        }
    }
}
