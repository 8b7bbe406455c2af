//! The model `fpm`: a php-fpm owned by Hearth, over connections that stay open.
//!
//! Invariants
//! - php-fpm has as many children as the pool has workers, and a child serves one connection at a time. An open
//!   connection therefore owns its child, and knows its process id because the child has reported it.
//! - A connection carries a request only if its child has read all that was written before: then the last script has
//!   ended.
//! - php-fpm and its children are one process group, which ends as a whole.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use rustix::process::{Pid, Signal, getgid, getuid, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{ReadHalf, WriteHalf};
use tokio::process::{Child, Command};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, error, trace, warn};

use super::answer::Answer;
use super::fastcgi::{self, Record, RequestWriter};
use super::process::Process;
use super::request::Request;
use super::{Common, PrivateFile, both_ways, malformed, secret};
use crate::events::Sinks;
use crate::exchange::{BoxError, Failure};
use crate::info::WorkerInfo;
use crate::output::{Writer, each_line};
use crate::process_stat;
use crate::process_stat::must_see;
use crate::status::{Ending, WorkerEnd};
use crate::variables::Sink;
use crate::{StartError, sys};

/// Maximum length of a Unix socket's path (unix(7)).
const LONGEST_PATH: usize = 107;
/// Number of bytes read at once.
const READ_AHEAD: usize = 16 * 1024;

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
    children: Mutex<HashMap<u32, Arc<WorkerInfo>>>,
    /// php-fpm accepts connections.
    listens: Notify,
    /// php-fpm is stopped and must be replaced.
    replace: Notify,
    /// The pool ends.
    end: CancellationToken,
    /// The last process has ended.
    ended: CancellationToken,
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
            let mut pause = Duration::from_millis(20);
            master = loop {
                tokio::select! {
                    () = self.end.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
                match Master::start(&self).await {
                    Ok(master) => break master,
                    Err(cause) => error!(error = %cause, cause = ?cause, "php-fpm does not start"),
                }
                pause = (pause * 2).min(LONGEST);
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
        for info in children.into_values() {
            info.set_exit(Signal::KILL.as_raw().unsigned_abs());
        }
    }

    fn child(&self, pid: u32) -> Option<Arc<WorkerInfo>> {
        self.children.lock().expect("no holder panics").get(&pid).map(Arc::clone)
    }

    /// Handles a line of php-fpm's output.
    fn line(&self, line: &str) {
        match Line::parse(line) {
            Line::Listens => self.listens.notify_waiters(),
            Line::Exited { pid, status } => {
                let known = self.children.lock().expect("no holder panics").remove(&pid);
                if let Some(info) = known {
                    self.common.ended(&info, status);
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

/// A parsed line of php-fpm's log.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Listens,
    /// A child has ended with this wait status.
    Exited {
        pid: u32,
        status: u32,
    },
    /// A child has written to its stdout or stderr.
    Said {
        pid: u32,
        text: &'a str,
    },
    Other {
        level: &'a str,
        text: &'a str,
    },
}

impl<'a> Line<'a> {
    /// Parses lines such as `[21-Nov-2026 03:34:44] WARNING: [pool hearth] child 9528 exited on signal 11 (SIGSEGV)
    /// after 1.761347 seconds from start`.
    fn parse(line: &'a str) -> Self {
        let text = match line.split_once("] ") {
            Some((time, rest)) if time.starts_with('[') => rest,
            _ => line,
        };
        let (level, text) = text.split_once(": ").unwrap_or(("", text));
        if text == "ready to handle connections" {
            return Self::Listens;
        }
        let child = text.strip_prefix("[pool hearth] child ").and_then(|rest| rest.split_once(' '));
        let child = child.and_then(|(pid, what)| Some((pid.parse().ok()?, what)));
        Self::of_child(child).unwrap_or(Self::Other { level, text })
    }

    fn of_child(child: Option<(u32, &'a str)>) -> Option<Self> {
        let (pid, what) = child?;
        let number = |text: &str| -> Option<u32> { text.split(' ').next()?.parse().ok() };
        if let Some(signal) = what.strip_prefix("exited on signal ") {
            return Some(Self::Exited { pid, status: number(signal)? });
        }
        if let Some(code) = what.strip_prefix("exited with code ") {
            return Some(Self::Exited { pid, status: (number(code)? & 0xff) << 8 });
        }
        let (_stream, text) = what.strip_prefix("said into ")?.split_once(": \"")?;
        let text = text.strip_suffix(", pipe is closed").unwrap_or(text);
        Some(Self::Said { pid, text: text.strip_suffix('"').unwrap_or(text) })
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

/// A connection to a child.
#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    arrived: BytesMut,
    /// An exchange has started and was not completed.
    broken: bool,
}

/// A place for a connection, with its current or last child.
#[derive(Debug)]
pub(super) struct Worker {
    fpm: Arc<Fpm>,
    slot: u32,
    connection: Option<Connection>,
    child: Option<(Process, Arc<WorkerInfo>)>,
}

impl Worker {
    pub(super) fn new(fpm: Arc<Fpm>, slot: u32) -> Self {
        Self { fpm, slot, connection: None, child: None }
    }

    pub(super) fn info(&self) -> Option<&Arc<WorkerInfo>> {
        self.child.as_ref().map(|(_, info)| info)
    }

    /// Calls [`Fpm::look_at_master`].
    pub(super) fn unanswered(&self) {
        self.fpm.look_at_master();
    }

    pub(super) fn is_ready(&self) -> bool {
        let alive = self.info().is_some_and(|info| info.exit().is_none());
        let connected = self
            .connection
            .as_ref()
            .is_some_and(|connection| !connection.broken && is_silent(&connection.stream));
        alive && connected
    }

    /// Connects and asks which child has accepted the connection; waits until one is free.
    pub(super) async fn prepare(&mut self) -> Result<(), BoxError> {
        self.connection = None;
        let fpm = &self.fpm;
        let mut connection = Connection {
            stream: UnixStream::connect(&fpm.socket).await?,
            arrived: BytesMut::new(),
            broken: false,
        };
        let question = fpm.question.fetch_add(1, Ordering::Relaxed);
        let query = format!("full&{question}");
        let uri = format!("{}?{query}", fpm.status);
        let mut head = Vec::new();
        let mut writer = RequestWriter::new(&mut head);
        writer.pair(b"REQUEST_METHOD", b"GET");
        writer.pair(b"SCRIPT_NAME", fpm.status.as_bytes());
        writer.pair(b"SCRIPT_FILENAME", fpm.status.as_bytes());
        writer.pair(b"QUERY_STRING", query.as_bytes());
        writer.pair(b"REQUEST_URI", uri.as_bytes());
        writer.finish().map_err(|fastcgi::TooLarge| "too large")?;
        head.extend_from_slice(&fastcgi::stdin_header(0));
        connection.stream.write_all(&head).await?;
        let mut page = Vec::new();
        loop {
            match fastcgi::decode(&mut connection.arrived)? {
                Some(Record::Stdout(data)) => page.extend_from_slice(&data),
                Some(Record::Stderr(_)) => {}
                Some(Record::End { .. }) => break,
                None => {
                    if connection.stream.read_buf(&mut connection.arrived).await? == 0 {
                        return Err("php-fpm closed its connection".into());
                    }
                }
            }
        }
        let pid = pid_of(&page, &uri).ok_or_else(|| {
            format!("php-fpm's status names no process: {}", String::from_utf8_lossy(&page))
        })?;
        // It is alive: it waits for this connection's next request.
        let process = Process::open(pid)?;
        let known = fpm.child(pid);
        let info = known.unwrap_or_else(|| fpm.common.new_info(self.slot, pid));
        fpm.children.lock().expect("no holder panics").insert(pid, Arc::clone(&info));
        self.child = Some((process, info));
        self.connection = Some(connection);
        Ok(())
    }

    pub(super) async fn exchange(
        &mut self,
        request: &mut Request,
        answer: &mut Answer,
    ) -> Result<(), Failure> {
        let Some(connection) = &mut self.connection else { return Err(Failure::NotSent) };
        let mut head = Vec::with_capacity(2048);
        let mut writer = RequestWriter::new(&mut head);
        request.write_variables(&mut writer);
        writer.finish().map_err(|fastcgi::TooLarge| Failure::TooLarge)?;
        if request.length.is_none() {
            head.extend_from_slice(&fastcgi::stdin_header(0));
        }
        let mut head = Bytes::from(head);
        // The socket is empty, so some of it is sent at once or the child is gone.
        match connection.stream.try_write(&head) {
            Ok(written) => head.advance(written),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_gone) => return Err(Failure::NotSent),
        }
        connection.broken = true;
        let (read, write) = connection.stream.split();
        let upload = upload(write, head, request);
        let download = download(read, &mut connection.arrived, answer);
        let ((), uploaded) = both_ways(upload, download).await?;
        // A script that ended its response early may have left some of the body unread; the connection is then
        // unusable.
        connection.broken = !uploaded;
        Ok(())
    }

    /// Waits until the child waits for the next request: `fastcgi_finish_request()` lets scripts continue after their
    /// response.
    pub(super) async fn wait_until_ready(&mut self, whole: bool) -> Result<(), BoxError> {
        let Some(connection) = self.connection.as_mut().filter(|it| whole && !it.broken) else {
            // After closing, the script is aborted at its next output. After reconnecting, the child (or its
            // successor) accepts when the script has ended.
            return self.prepare().await;
        };
        // Only a child that waits for a request skips an empty STDIN record. Once it is read, the script has ended.
        connection.stream.try_write(&fastcgi::stdin_header(0))?;
        until_read(&connection.stream).await
    }

    pub(super) fn kill(&mut self) {
        if let Some((process, info)) = &self.child
            && info.exit().is_none()
        {
            process.kill();
        }
        // Closed last: a child whose connection is closed accepts another one, possibly that of another slot.
        self.connection = None;
    }
}

/// Returns whether a process is stopped, by a signal or a debugger (`/proc/PID/stat`, proc(5)).
fn is_stopped(pid: u32) -> bool {
    process_stat::from_state_on(pid).is_some_and(|fields| fields.starts_with(['T', 't']))
}

/// Waits until the peer has read all bytes written to `stream`. Fails when the peer has closed it.
///
/// No timer is involved: the kernel reports a Unix socket as writable each time its peer has taken a message
/// (`sock_wfree()`, net/core/sock.c), and tokio waits for that edge. The kernel calls while it still counts one byte of
/// the message, so a count of one means that the message is read. A waiting message counts several hundred.
async fn until_read(stream: &UnixStream) -> Result<(), BoxError> {
    const BEING_READ: i32 = 1;
    let read = || {
        if sys::unread(stream)? <= BEING_READ {
            Ok(())
        } else if is_silent(stream) {
            Err(std::io::ErrorKind::WouldBlock.into())
        } else {
            Err(std::io::Error::other("php-fpm closed its connection"))
        }
    };
    Ok(stream.async_io(Interest::WRITABLE, read).await?)
}

/// Returns whether nothing has arrived, not even an end.
fn is_silent(stream: &UnixStream) -> bool {
    let read = stream.try_read(&mut [0]);
    matches!(read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Returns the process that answers the status query `uri`, from php-fpm's full status as text.
fn pid_of(page: &[u8], uri: &str) -> Option<u32> {
    let page = String::from_utf8_lossy(page);
    let mut pid = None;
    for line in page.lines() {
        match line.split_once(':').map(|(name, value)| (name, value.trim())) {
            Some(("pid", number)) => pid = number.parse().ok(),
            Some(("request URI", current)) if current == uri => return pid,
            _ => {}
        }
    }
    None
}

/// Writes the rest of the request as the child reads it. An error is the client's; if the child stops reading, the
/// response reader handles it.
async fn upload(
    mut stream: WriteHalf<'_>,
    mut head: Bytes,
    request: &mut Request,
) -> Result<(), BoxError> {
    if stream.write_all_buf(&mut head).await.is_err() {
        return std::future::pending().await;
    }
    if request.length.is_none() {
        return Ok(());
    }
    while let Some(piece) = request.body.next().await {
        let mut piece = piece?;
        while !piece.is_empty() {
            let part = piece.split_to(piece.len().min(fastcgi::MAX_CONTENT));
            let header = fastcgi::stdin_header(part.len());
            if stream.write_all_buf(&mut Buf::chain(&header[..], part)).await.is_err() {
                return std::future::pending().await;
            }
        }
    }
    if stream.write_all(&fastcgi::stdin_header(0)).await.is_err() {
        return std::future::pending().await;
    }
    Ok(())
}

/// Reads the response as the client reads it.
async fn download(
    mut stream: ReadHalf<'_>,
    arrived: &mut BytesMut,
    answer: &mut Answer,
) -> Result<(), Failure> {
    loop {
        match fastcgi::decode(arrived).map_err(|why| malformed(&why))? {
            Some(Record::Stdout(data)) => answer.push(data).map_err(|why| malformed(&why))?,
            // PHP's messages. They also appear on its stderr, with everything else that scripts write there, so these
            // are dropped.
            Some(Record::Stderr(data)) => trace!("STDERR: {}", String::from_utf8_lossy(&data)),
            Some(Record::End { protocol: 0, .. }) => {
                return answer.end().await.map_err(|why| malformed(&why));
            }
            Some(Record::End { protocol, .. }) => {
                return Err(malformed(&format_args!("request refused with {protocol}")));
            }
            None => {
                answer.flush().await;
                arrived.reserve(READ_AHEAD);
                match stream.read_buf(arrived).await {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => return Err(Failure::Died { pid: 0, how: String::new() }),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_php_fpm_says_is_understood() {
        let parse = |line| Line::parse(line);
        let at = "[21-Nov-2026 03:34:44] ";
        assert_eq!(parse("[x] NOTICE: ready to handle connections"), Line::Listens);
        let line = format!(
            "{at}WARNING: [pool hearth] child 9528 exited on signal 11 (SIGSEGV) after 1.76 seconds from start"
        );
        assert_eq!(parse(&line), Line::Exited { pid: 9528, status: 11 });
        let line = format!(
            "{at}WARNING: [pool hearth] child 9 exited with code 255 after 0.1 seconds from start"
        );
        assert_eq!(parse(&line), Line::Exited { pid: 9, status: 255 << 8 });
        let line = format!(
            "{at}WARNING: [pool hearth] child 7 said into stderr: \"NOTICE: PHP message: it's \"so\"\""
        );
        assert_eq!(parse(&line), Line::Said { pid: 7, text: "NOTICE: PHP message: it's \"so\"" });
        let line = format!("{at}NOTICE: [pool hearth] child 9674 started");
        assert_eq!(
            parse(&line),
            Line::Other { level: "NOTICE", text: "[pool hearth] child 9674 started" }
        );
        assert_eq!(parse("odd"), Line::Other { level: "", text: "odd" });
    }

    #[tokio::test]
    async fn what_is_written_is_waited_for_until_the_peer_has_read_it() {
        let (ours, peer) = UnixStream::pair().expect("a pair of sockets");
        until_read(&ours).await.expect("nothing is unread");
        for round in 0..1_000 {
            for _ in 0..3 {
                ours.try_write(&[0; 8]).expect("there is room");
            }
            let waits = until_read(&ours);
            let reads = async {
                tokio::task::yield_now().await;
                let mut bytes = [0; 8];
                for _ in 0..3 {
                    peer.readable().await.expect("it is open");
                    let read = peer.try_read(&mut bytes).expect("a message is there");
                    assert_eq!(read, 8, "round {round}");
                    if round % 2 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            };
            let (read, ()) = tokio::join!(waits, reads);
            read.expect("it is open");
            assert!(sys::unread(&ours).expect("a socket") == 0, "round {round}");
        }
    }

    #[tokio::test]
    async fn a_peer_that_closes_ends_the_wait() {
        let (ours, peer) = UnixStream::pair().expect("a pair of sockets");
        ours.try_write(b"never read").expect("there is room");
        let closes = async {
            tokio::task::yield_now().await;
            drop(peer);
        };
        let (waited, ()) = tokio::join!(until_read(&ours), closes);
        // A closed socket drops what it has not read: either way the next request finds it closed.
        assert!(waited.is_ok() || waited.is_err_and(|error| error.to_string().contains("closed")));
        ours.readable().await.expect("an end can be read");
        assert!(!is_silent(&ours));
    }

    #[test]
    fn a_child_is_found_by_the_question_it_answers() {
        let page = b"pool: hearth\n\n***\npid:  12\nrequest URI:   /x?full&1\n\n***\npid: 13\nrequest URI: /x?full&2\n";
        assert_eq!(pid_of(page, "/x?full&2"), Some(13));
        assert_eq!(pid_of(page, "/x?full&3"), None);
    }
}
