//! The model `fpm`: a php-fpm owned by Hearth, over connections that stay open.
//!
//! Invariants
//! - php-fpm has as many children as the pool has workers, and a child serves one connection at a time. An open
//!   connection therefore owns its child, and knows its process id because the child has reported it.
//! - php-fpm and its children are one process group, which ends as a whole.

mod log;
mod worker;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, getgid, getuid, kill_process_group};
use tokio::process::{Child, Command};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, error, warn};

use self::log::Line;
pub(super) use self::worker::Worker;
use super::Common;
use super::files::{PrivateFile, secret};
use super::process::Process;
use crate::events::Sinks;
use crate::info::WorkerInfo;
use crate::output::{Writer, each_line};
use crate::pauses::pause_after;
use crate::process_stat;
use crate::process_stat::must_see;
use crate::status::{Ending, WorkerEnd};
use crate::{StartError, sys};

/// Maximum length of a Unix socket's path (unix(7)).
const LONGEST_PATH: usize = 107;
/// A running php-fpm.
#[derive(Debug)]
pub(super) struct Fpm {
    common: Arc<Common>,
    socket: PathBuf,
    config: PrivateFile,
    /// The path that a child answers with its status instead of a script. It is secret, because clients must not
    /// reach it.
    status: String,
    /// Number of the next status query.
    question: AtomicU32,
    /// Children that have accepted a connection, by process id.
    children: Mutex<HashMap<u32, KnownChild>>,
    /// php-fpm accepts connections.
    listens: Notify,
    /// php-fpm is stopped and must be replaced.
    replace: Notify,
    /// The pool ends.
    end: CancellationToken,
    /// The last process has ended.
    ended: CancellationToken,
}

/// A child that has accepted a connection.
#[derive(Debug)]
struct KnownChild {
    info: Arc<WorkerInfo>,
    /// The slot whose connection it has accepted last.
    slot: u32,
}

impl Fpm {
    /// Starts php-fpm; it is restarted whenever it ends, until [`Fpm::end`].
    pub(super) async fn start(common: Arc<Common>) -> Result<Arc<Self>, StartError> {
        let socket = common.place("fpm.sock");
        if socket.as_os_str().len() > LONGEST_PATH {
            let why = format!("{} is too long for a socket's path", socket.display());
            return Err(std::io::Error::other(why).into());
        }
        let status = format!("/{}", secret()?);
        let config = PrivateFile::write(
            common.place("fpm.conf"),
            &config(&common, &socket, &status)?,
            &common.options,
        )?;
        let fpm = Arc::new(Self {
            common,
            socket,
            config,
            status,
            question: AtomicU32::new(0),
            children: Mutex::default(),
            listens: Notify::new(),
            replace: Notify::new(),
            end: CancellationToken::new(),
            ended: CancellationToken::new(),
        });
        let master = Master::start(&fpm).await?;
        let common = &fpm.common;
        let supervise = Arc::clone(&fpm).supervise(master).in_current_span();
        common.tasks.spawn_on(supervise, &common.runtime);
        Ok(fpm)
    }

    /// Returns a token that ends php-fpm and its children when it is cancelled.
    pub(super) fn end_token(&self) -> CancellationToken {
        self.end.clone()
    }

    /// Ends php-fpm and its children. Returns when none is left.
    pub(super) async fn end(&self) {
        self.end.cancel();
        self.ended.cancelled().await;
    }

    async fn supervise(self: Arc<Self>, mut master: Master) {
        const FIRST: Duration = Duration::from_millis(20);
        const LONGEST: Duration = Duration::from_secs(5);
        let _ended = self.ended.clone().drop_guard();
        loop {
            let pid = master.process.pid;
            let reason = tokio::select! {
                () = self.end.cancelled() => return master.end().await,
                () = master.process.ended() => {
                    error!(pid, "php-fpm died, and every worker with it; restarting");
                    "php-fpm itself died"
                }
                () = self.replace.notified() => {
                    // A stopped php-fpm may continue later; its children are not replaced until then.
                    if !is_stopped(pid) {
                        continue;
                    }
                    error!(pid, "php-fpm is stopped and replaces no worker; another is started");
                    "php-fpm was stopped"
                }
            };
            self.common.crashes.fetch_add(1, Ordering::Relaxed);
            self.common.ended.push(WorkerEnd::now(pid, 0, Ending::Crashed, reason));
            master.kill().await;
            self.all_ended();
            let mut failures = 0;
            master = loop {
                tokio::select! {
                    () = self.end.cancelled() => return,
                    () = tokio::time::sleep(pause_after(failures, FIRST, LONGEST)) => {}
                }
                match Master::start(&self).await {
                    Ok(master) => break master,
                    Err(cause) => error!(error = %cause, cause = ?cause, "php-fpm does not start"),
                }
                failures += 1;
            };
        }
    }

    /// Called when no child accepted a connection within the boot time.
    pub(super) fn look_at_master(&self) {
        self.replace.notify_one();
    }

    /// Marks all children as ended, because php-fpm is gone.
    fn all_ended(&self) {
        let children = std::mem::take(&mut *self.children.lock().expect("no holder panics"));
        for child in children.into_values() {
            child.info.set_exit(Signal::KILL.as_raw().unsigned_abs());
        }
    }

    fn child(&self, pid: u32) -> Option<Arc<WorkerInfo>> {
        let children = self.children.lock().expect("no holder panics");
        children.get(&pid).map(|child| Arc::clone(&child.info))
    }

    /// Records that a child has accepted the connection of this slot. Returns its record: a new one if it had another
    /// slot's connection before, because that slot may still refer to the old one.
    fn accepted(&self, pid: u32, slot: u32) -> Arc<WorkerInfo> {
        let mut children = self.children.lock().expect("no holder panics");
        let known = children.get(&pid);
        let info = match known.filter(|child| child.slot == slot) {
            Some(child) => Arc::clone(&child.info),
            None => self.common.new_info(slot, pid),
        };
        let old = known.map(|child| &child.info);
        if let Some(old) = old.filter(|old| !Arc::ptr_eq(old, &info)) {
            info.requests.store(old.requests.load(Ordering::Relaxed), Ordering::Relaxed);
            info.resident.store(old.resident.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        info.booted_at.store(self.common.now(), Ordering::Relaxed);
        self.show(slot, &info, old);
        children.insert(pid, KnownChild { info: Arc::clone(&info), slot });
        info
    }

    /// Shows a child's record at its slot in the status, and not where its old one is. That place gets what was shown
    /// here: a child whose client has left may still run, and accepts another slot's connection later.
    fn show(&self, slot: u32, info: &Arc<WorkerInfo>, old: Option<&Arc<WorkerInfo>>) {
        let mut infos = self.common.infos();
        let mut places = infos.iter();
        let from = old.and_then(|old| places.find(|(_, shown)| Arc::ptr_eq(shown, old)));
        let from = from.map(|(from, _)| *from).filter(|from| *from != slot);
        let displaced = infos.insert(slot, Arc::clone(info));
        if let Some(from) = from {
            match displaced.filter(|other| other.exit().is_none()) {
                Some(other) => infos.insert(from, other),
                None => infos.remove(&from),
            };
        }
    }

    /// Calls `with` if the child still belongs to this slot. No other slot gets the child in the meantime.
    fn if_still_of<T>(&self, pid: u32, slot: u32, with: impl FnOnce() -> T) -> Option<T> {
        let children = self.children.lock().expect("no holder panics");
        children.get(&pid).filter(|child| child.slot == slot).map(|_| with())
    }

    /// Handles a line of php-fpm's output.
    fn line(&self, line: &str) {
        match Line::parse(line) {
            Line::Listens => self.listens.notify_waiters(),
            Line::Exited { pid, status } => {
                let known = self.children.lock().expect("no holder panics").remove(&pid);
                if let Some(child) = known {
                    self.common.ended(&child.info, status);
                } else {
                    debug!(worker.pid = pid, "a worker ended before its first request");
                }
            }
            Line::Said { pid, text } => {
                let info = self.child(pid);
                let request = info.as_ref().and_then(|info| info.current_request());
                if let Some(info) = &info {
                    info.remember(text);
                }
                // `NOTICE: PHP message: …` is PHP's error log; everything else was written by the script.
                let (source, text) = match text.split_once(": PHP message: ") {
                    Some((level, text)) if !level.contains(' ') => ("error_log", text),
                    _ => ("stderr", text),
                };
                Writer { pid, request: request.as_ref(), source }.log(text);
            }
            Line::Other { level: "WARNING", text } => warn!(target: "php_fpm", "{text}"),
            Line::Other { level: "ERROR" | "ALERT", text } => error!(target: "php_fpm", "{text}"),
            Line::Other { text, .. } => debug!(target: "php_fpm", "{text}"),
        }
    }
}

/// Returns php-fpm's configuration.
fn config(common: &Common, socket: &Path, status: &str) -> Result<String, StartError> {
    let options = &common.options;
    let path = socket.to_str().filter(|path| !path.contains(['"', '\\', '$', '\n', ',', '=']));
    let path = path.ok_or_else(|| {
        std::io::Error::other(format!(
            "{} cannot stand in php-fpm's configuration",
            socket.display()
        ))
    })?;
    let mut text = format!(
        "[global]\nerror_log = /proc/self/fd/2\nlog_limit = 8192\ndaemonize = no\n\
         [hearth]\nlisten = \"{path}\"\nlisten.mode = 0600\npm = static\npm.max_children = {workers}\n\
         pm.status_path = {status}\nclear_env = no\ncatch_workers_output = yes\n",
        workers = options.workers,
    );
    if getuid().is_root() && options.identity.is_none() {
        writeln!(text, "user = {}\ngroup = {}", getuid().as_raw(), getgid().as_raw())
            .expect("writing to a String cannot fail");
    }
    if let Some(limit) = options.request_timeout {
        // Hearth itself kills a stuck child with an accuracy of milliseconds. This limit is for a child whose
        // connection was closed and whose place another child took, and for a stuck Hearth.
        writeln!(text, "request_terminate_timeout = {}s", limit.as_secs() + 5)
            .expect("writing to a String cannot fail");
    }
    Ok(text)
}

/// Passes a listening socket to php-fpm, as php-fpm does for its own successors (`fpm_sockets_init_main()`,
/// `sapi/fpm/fpm/fpm_sockets.c`). A socket created by php-fpm would be open to its whole group, and any process that
/// can connect may run any script as PHP's user.
fn give_socket(command: &mut Command, socket: &Path) -> std::io::Result<()> {
    // The same backlog as php-fpm's default (`listen.backlog`).
    const BACKLOG: i32 = 511;
    let listener = std::os::unix::net::UnixListener::bind(socket)?;
    std::fs::set_permissions(socket, Permissions::from_mode(0o600))?;
    rustix::net::listen(&listener, BACKLOG)?;
    let mut inherited = socket.as_os_str().to_owned();
    inherited.push("=3");
    command.env("FPM_SOCKETS", inherited);
    sys::pass_descriptor_3(command, listener.into());
    Ok(())
}

/// The process from which php-fpm's children are forked.
#[derive(Debug)]
struct Master {
    child: Child,
    process: Process,
    /// `false` once its end was waited for, because its number may then be reused.
    owned: bool,
}

impl Master {
    /// Returns when it accepts connections.
    async fn start(fpm: &Arc<Fpm>) -> Result<Self, StartError> {
        let common = &fpm.common;
        let program = common.options.program.display().to_string();
        match std::fs::remove_file(&fpm.socket) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let mut command = Command::new(&common.options.program);
        command
            .args(["--nodaemonize", "--allow-to-run-as-root", "--fpm-config"])
            .arg(fpm.config.path())
            .args(common.ini_arguments())
            .current_dir(&common.options.directory)
            // The variable would let it send service manager notifications in the server's name.
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0);
        common.options.environment(&mut command);
        if common.options.identity.is_some() {
            give_socket(&mut command, &fpm.socket)?;
        }
        let listens = fpm.listens.notified();
        tokio::pin!(listens);
        listens.as_mut().enable();
        // SIGTERM, which it passes on to its children; SIGKILL would orphan them.
        let mut child = common
            .spawner
            .spawn(command, Signal::TERM)
            .await
            .map_err(|cause| StartError::Program { program: program.clone(), cause })?;
        let stderr = child.stderr.take();
        let process = Process::open(child.id().unwrap_or(0))?;
        let mut master = Self { child, process, owned: true };
        let tail = Arc::new(WorkerInfo::new(0, u64::MAX, Sinks::default()));
        if let Some(stderr) = stderr {
            let (fpm, tail) = (Arc::clone(fpm), Arc::clone(&tail));
            let lines = async move {
                each_line(stderr, |line| {
                    tail.remember(line);
                    fpm.line(line);
                })
                .await;
            };
            common.tasks.spawn_on(lines.in_current_span(), &common.runtime);
        }
        let limit = common.options.boot_timeout;
        let why = tokio::select! {
            () = listens => {
                must_see(&common.options, master.process.pid)?;
                return Ok(master);
            }
            () = master.process.ended() => String::new(),
            () = common.clock.reached(Some(common.clock.after(limit))) => format!("not ready within {limit:?}"),
        };
        master.kill().await;
        // Its last output may still be in a pipe.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let output = [tail.tail(), why].join("\n").trim().to_owned();
        Err(StartError::Zygote { program, output })
    }

    /// Ends its children and itself.
    async fn end(mut self) {
        const PATIENCE: Duration = Duration::from_secs(2);
        self.process.signal(Signal::TERM);
        if tokio::time::timeout(PATIENCE, self.process.ended()).await.is_err() {
            warn!(pid = self.process.pid, "php-fpm did not end when told, killed");
        }
        self.kill().await;
    }

    /// Kills it and every child that is left.
    async fn kill(&mut self) {
        self.kill_group();
        self.owned = false;
        if let Err(error) = self.child.wait().await {
            warn!(%error, "php-fpm could not be waited for");
        }
    }

    fn kill_group(&self) {
        let group = i32::try_from(self.process.pid).ok().and_then(Pid::from_raw);
        if let Some(group) = group.filter(|_| self.owned)
            && let Err(error) = kill_process_group(group, Signal::KILL)
        {
            debug!(%error, "php-fpm's group had ended already");
        }
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        // Its number is still its own, because it was not waited for.
        self.kill_group();
    }
}

/// Returns whether a process is stopped, by a signal or a debugger (`/proc/PID/stat`, proc(5)).
fn is_stopped(pid: u32) -> bool {
    process_stat::from_state_on(pid).is_some_and(|fields| fields.starts_with(['T', 't']))
}
