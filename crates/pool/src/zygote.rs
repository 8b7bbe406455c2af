//! The zygote: the process that starts PHP once, boots the application in some models, and forks every worker.
//!
//! Invariants
//! - It is ready when it has sent HELLO: PHP has started, and if the zygote boots the application, that is booted and
//!   warm.
//! - Commands to it arrive complete and in order; its output is parsed as frames only.
//! - The server never waits for the zygote to read: a frame that does not fit its socket is rejected, and its sender
//!   retries later.
//! - It responds to every SPAWN and TRACE, in order: how long it has owed a response shows whether it still runs.
//! - When its socket closes it ends its workers and itself: no PHP process outlives the server.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Stdio;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};
use rustix::process::Signal;
use tokio::process::{Child, Command};
use unix_stream::Stream;
use wire::Sender;

use crate::clock::Clock;
use crate::events::Sinks;
use crate::info::WorkerInfo;
use crate::options::Options;
use crate::php_settings::give_settings;
use crate::process_stat::must_see;
use crate::sandbox::Confinement;
use crate::shared_counters::SharedCounters;
use crate::worker::{Event, FrameReader, Gone};
use crate::{Model, RequestContext, StartError, output, sys, variables};

/// Size of a worker's send buffer; the kernel doubles it, and does not exceed its own limit (`net.core.wmem_max`).
const SEND_BUFFER: usize = 256 * 1024;

/// A running zygote.
#[derive(Debug)]
pub(crate) struct Zygote {
    child: Child,
    socket: Stream,
    reader: FrameReader,
    /// The name of the zygote in log lines; it is not a worker.
    info: Arc<WorkerInfo>,
    pub(crate) php_version: String,
    output: tokio::task::JoinSet<()>,
    /// The zygote runs as another user than the server.
    is_other: bool,
    clock: Arc<Clock>,
    /// SPAWN and TRACE frames without a response yet, the oldest first.
    owed: VecDeque<Owed>,
    /// Time of the zygote's last event, or of the last command sent while it owed nothing; on the pool's clock.
    heard_at: u64,
}

/// A response that the zygote owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owed {
    /// SPAWN of this slot: SPAWNED or FAILED.
    Spawn(u32),
    /// TRACE of this process: STACK.
    Trace(u32),
}

/// The server's ends of a new worker's descriptors.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) frames: Stream,
    /// A duplicate of the same end, to shut it down when the worker has ended.
    pub(crate) hang_up: OwnedFd,
    pub(crate) stdout: tokio::net::unix::pipe::Receiver,
    pub(crate) stderr: tokio::net::unix::pipe::Receiver,
    pub(crate) counters: SharedCounters,
}

impl Zygote {
    /// Exit status (`EX_CONFIG`) of a zygote whose application cannot be forked after booting.
    const UNFIT: i32 = 78;
    /// Exit status of a zygote whose script ended before it accepted a request.
    const ENDED_EARLY: i32 = 255;

    /// Maximum number of unanswered SPAWN frames: their descriptors count against the limit of open files until it
    /// has read them.
    pub(crate) const UNANSWERED: usize = 64;

    /// Starts the program and waits for its HELLO.
    pub(crate) async fn start(options: &Options, clock: Arc<Clock>) -> Result<Self, StartError> {
        let program = options.program.display().to_string();
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = Command::new(&options.program);
        command
            .args(arguments(options))
            .current_dir(&options.directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        give_settings(command.as_std_mut(), &options.ini);
        options.environment(&mut command);
        sys::pass_descriptor_3(&mut command, OwnedFd::from(theirs));
        if let Some(identity) = &options.identity {
            identity.put_on(command.as_std_mut());
        }
        if let Some(confinement) = Confinement::of(options)? {
            sys::confine(&mut command, Arc::new(confinement));
        }
        let spawned = command.spawn();
        drop(command); // and with it our copy of the zygote's end
        let mut child =
            spawned.map_err(|cause| StartError::Program { program: program.clone(), cause })?;

        let info = WorkerInfo::new(0, u64::MAX, Sinks::default());
        let info = Arc::new(info.reporting_to(options));
        info.pid.store(child.id().unwrap_or(0), std::sync::atomic::Ordering::Relaxed);
        let mut output = tokio::task::JoinSet::new();
        if let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) {
            let info = Arc::clone(&info);
            let lines = async move {
                tokio::join!(
                    output::read_lines(&info, stdout, "stdout"),
                    output::read_lines(&info, stderr, "stderr"),
                );
            };
            output.spawn(tracing::Instrument::in_current_span(lines));
        }
        let warm_up = warm_up_frames(options);
        let mut zygote = Self {
            child,
            socket: Stream::new(ours)?,
            reader: FrameReader::new(Sender::Zygote),
            info,
            php_version: String::new(),
            output,
            is_other: options.identity.is_some(),
            owed: VecDeque::new(),
            heard_at: clock.now(),
            clock: Arc::clone(&clock),
        };
        match clock.timeout(options.boot_timeout, zygote.first_word(&warm_up)).await {
            Ok(Ok(Event::Hello { version: wire::VERSION, php_version, .. })) => {
                zygote.php_version = php_version;
                must_see(options, zygote.info.pid())?;
                Ok(zygote)
            }
            Ok(Ok(Event::Hello { version, .. })) => Err(StartError::Zygote {
                program,
                output: format!(
                    "it uses version {version} of the frames, this server version {}: rebuild both",
                    wire::VERSION
                ),
            }),
            other => {
                let why = match other {
                    Err(_elapsed) => format!("not ready within {:?}", options.boot_timeout),
                    Ok(Err(Gone::Malformed(malformed))) => format!("malformed frame: {malformed}"),
                    Ok(Err(Gone::Closed)) => String::new(),
                    Ok(Ok(event)) => format!("{event:?} in place of HELLO"),
                };
                Err(zygote.failed(&why, options, program).await)
            }
        }
    }

    /// Reads its HELLO. The warm-up requests are written concurrently, so that neither side blocks.
    async fn first_word(&mut self, warm_up: &[u8]) -> Result<Event, Gone> {
        let mut rest = warm_up;
        let word = std::future::poll_fn(|cx| {
            while !rest.is_empty() {
                match self.socket.poll_write(rest, cx) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(written)) => rest = rest.get(written..).unwrap_or_default(),
                    // The zygote has gone; the events that it sent before are still to be read.
                    Poll::Ready(Err(_closed)) => rest = &[],
                }
            }
            self.reader.poll_next(&self.socket, &self.info, cx)
        })
        .await?;
        if rest.is_empty() {
            Ok(word)
        } else {
            Err(Gone::Malformed(wire::Malformed::Payload("HELLO before the warm-up was read")))
        }
    }

    /// Returns why it did not send HELLO.
    async fn failed(mut self, why: &str, options: &Options, program: String) -> StartError {
        const PATIENCE: Duration = Duration::from_millis(500);
        let status = if why.is_empty() {
            tokio::time::timeout(PATIENCE, self.child.wait()).await.ok().and_then(Result::ok)
        } else {
            None
        };
        let code = status.and_then(|status| status.code());
        let boots = options.model.boots_in_zygote();
        let output = self.last_words(why).await;
        match code {
            Some(Self::UNFIT) if boots => StartError::Unfit { why: output },
            Some(Self::ENDED_EARLY) if boots => StartError::Boot { output },
            // It still runs, and PHP starts quickly: the application is slow.
            None if boots && !why.is_empty() => StartError::Boot { output },
            _ => StartError::Zygote { program, output },
        }
    }

    /// Returns what it printed before it ended.
    async fn last_words(mut self, why: &str) -> String {
        const PATIENCE: Duration = Duration::from_millis(500);
        let reading = async { while self.output.join_next().await.is_some() {} };
        if tokio::time::timeout(PATIENCE, reading).await.is_err() {
            tracing::debug!("its output is still open");
        }
        let tail = self.info.tail();
        let parts: Vec<&str> =
            [tail.as_str(), why].into_iter().filter(|part| !part.is_empty()).collect();
        if parts.is_empty() { "it printed nothing".to_owned() } else { parts.join("\n") }
    }

    /// Returns the zygote's next event. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Event, Gone> {
        let event =
            std::future::poll_fn(|cx| self.reader.poll_next(&self.socket, &self.info, cx)).await?;
        self.heard_at = self.clock.now();
        let answered = match event {
            Event::Spawned { slot, .. } | Event::Failed { slot, .. } => Owed::Spawn(slot),
            Event::Stack { pid, .. } => Owed::Trace(pid),
            _ => return Ok(event),
        };
        if self.owed.pop_front() == Some(answered) {
            Ok(event)
        } else {
            Err(Gone::Malformed(wire::Malformed::Payload("answer out of turn")))
        }
    }

    /// Returns how many frames wait for their response.
    pub(crate) fn owed(&self) -> usize {
        self.owed.len()
    }

    /// Returns how long it has sent nothing although it owes a response, in time that the server ran.
    pub(crate) fn silence(&self) -> Duration {
        if self.owed.is_empty() { Duration::ZERO } else { self.clock.since(self.heard_at) }
    }

    /// Returns its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.info.pid()
    }

    /// Forks a worker; SPAWNED or FAILED will name `slot`.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`](std::io::ErrorKind::WouldBlock): it has not read enough of the earlier frames, and
    /// nothing was sent. The same applies to [`Zygote::kill`] and [`Zygote::trace`].
    pub(crate) fn spawn(&mut self, slot: u32) -> std::io::Result<Ends> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        // The worker's end blocks: the flag belongs to the end, not to the pair.
        rustix::io::ioctl_fionbio(&theirs, false)?;
        // Most responses then fit, and the worker ends its request without waiting for the server to read.
        rustix::net::sockopt::set_socket_send_buffer_size(&theirs, SEND_BUFFER)?;
        let (stdout, their_stdout) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let (stderr, their_stderr) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        if self.is_other {
            for pipe in [&their_stdout, &their_stderr] {
                rustix::fs::fchmod(pipe, sys::PIPE_MODE)?;
            }
        }
        let mut frame = Vec::new();
        wire::send::spawn(&mut frame, slot);
        let counters = SharedCounters::new()?;
        let hang_up = ours.try_clone()?;
        let descriptors =
            [theirs.as_fd(), their_stdout.as_fd(), their_stderr.as_fd(), counters.file.as_fd()];
        self.send(&frame, &descriptors)?;
        self.current(Owed::Spawn(slot));
        Ok(Ends {
            frames: Stream::new(ours.into())?,
            hang_up,
            stdout: receiver(stdout)?,
            stderr: receiver(stderr)?,
            counters,
        })
    }

    /// Signals a worker; does nothing if it has already ended.
    pub(crate) fn kill(&mut self, pid: u32, signal: Signal) -> std::io::Result<()> {
        let mut frame = Vec::new();
        wire::send::kill(&mut frame, pid, signal.as_raw().unsigned_abs());
        self.send(&frame, &[])
    }

    /// Requests a worker's PHP stack; one [`crate::worker::Event::Stack`] responds.
    pub(crate) fn trace(&mut self, pid: u32) -> std::io::Result<()> {
        let mut frame = Vec::new();
        wire::send::trace(&mut frame, pid);
        self.send(&frame, &[])?;
        self.current(Owed::Trace(pid));
        Ok(())
    }

    /// Makes it owe a response, so that [`Zygote::silence`] shows whether it runs: no worker has this process id.
    pub(crate) fn ping(&mut self) {
        if self.owed.is_empty()
            && let Err(error) = self.trace(NO_WORKER)
        {
            tracing::debug!(%error, "zygote takes no frame");
        }
    }

    fn current(&mut self, owed: Owed) {
        if self.owed.is_empty() {
            self.heard_at = self.clock.now();
        }
        self.owed.push_back(owed);
    }

    /// Writes a frame; the descriptors are sent with its first byte. The kernel accepts a frame this short completely
    /// or not at all (`unix_stream_sendmsg()`, `net/unix/af_unix.c`).
    fn send(&self, frame: &[u8], descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            let fits = ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
            debug_assert!(fits, "the space is for four descriptors");
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = rustix::io::retry_on_intr(|| {
            sendmsg(&self.socket, &[IoSlice::new(frame)], &mut ancillary, flags)
        })?;
        if sent == frame.len() {
            Ok(())
        } else {
            Err(std::io::Error::other("zygote took part of a frame"))
        }
    }

    /// Ends its workers and itself; kills it if it does not end.
    pub(crate) async fn end(mut self, patience: Duration) {
        // After SIGKILL it may still be in an uninterruptible system call, or in a frozen control group: then its end
        // is not awaited.
        const AFTER_KILL: Duration = Duration::from_secs(1);
        drop(self.socket);
        if tokio::time::timeout(patience, self.child.wait()).await.is_ok() {
            return;
        }
        if let Err(error) = self.child.start_kill() {
            tracing::warn!(%error, "zygote could not be killed");
        }
        if tokio::time::timeout(AFTER_KILL, self.child.wait()).await.is_err() {
            tracing::warn!(pid = self.info.pid(), "zygote was killed and has not ended");
        }
    }
}

/// A process id that no worker has.
const NO_WORKER: u32 = 0;

fn receiver(end: OwnedFd) -> std::io::Result<tokio::net::unix::pipe::Receiver> {
    tokio::net::unix::pipe::Receiver::from_owned_fd(end)
}

fn arguments(options: &Options) -> Vec<std::ffi::OsString> {
    let mut arguments: Vec<std::ffi::OsString> =
        vec!["--model".into(), options.model.name().into()];
    if let Some(script) = &options.worker_script {
        arguments.push("--script".into());
        arguments.push(script.into());
    }
    if let Some(entry) = &options.entry {
        arguments.push("--entry".into());
        arguments.push((&entry.document_root).into());
        if let Some(file) = &entry.await_after {
            arguments.push("--await-after".into());
            arguments.push(file.into());
        }
        if entry.learn_classes {
            arguments.push("--learn-classes".into());
        }
    }
    if options.model.boots_in_zygote() && !options.warm_up.is_empty() {
        arguments.push("--warm-up".into());
        arguments.push(options.warm_up.len().to_string().into());
        if options.rehearse {
            arguments.push("--rehearse".into());
        }
    }
    if options.model == Model::Snapshot && options.verify_restores > 0.0 {
        arguments.push("--verify-restores".into());
        arguments.push(options.verify_restores.to_string().into());
    }
    if options.boot_files.is_some() {
        arguments.push("--report-files".into());
    }
    if options.boot_trace.is_some() {
        arguments.push("--trace-boot".into());
    }
    if options.sandbox.is_some() {
        arguments.push("--confine".into());
    }
    arguments
}

/// Returns the warm-up requests of a zygote that boots the application, as frames.
fn warm_up_frames(options: &Options) -> Vec<u8> {
    let mut frames = Vec::new();
    if options.model.boots_in_zygote() {
        for request in &options.warm_up {
            let (mut parts, ()) = request.clone().into_parts();
            let context = parts
                .extensions
                .remove::<RequestContext>()
                .expect("who fills the options puts a RequestContext into every request");
            variables::write_warm_up(&mut frames, &parts, &context)
                .expect("a request without fields of a client's fits a frame");
        }
    }
    frames
}

#[cfg(test)]
mod tests;
