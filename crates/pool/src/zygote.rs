//! The zygote: the process that starts PHP once, boots the application in some models, and forks every worker.
//!
//! Invariants
//! - It is ready when it has said HELLO: PHP has started, and where the zygote boots the application, that is booted and warm.
//! - What it is told arrives whole and in order; what it says is read as frames and nothing else.
//! - Who writes to it reads meanwhile: it answers each frame before it reads the next, and neither side waits for the other.
//! - When its socket closes it ends its workers and itself: no PHP outlives the server.

use std::io::{ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};
use tokio::io::{AsyncWrite, Interest};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use wire::Sender;

use crate::info::WorkerInfo;
use crate::options::Options;
use crate::sandbox::Confinement;
use crate::supervisor::must_see;
use crate::worker::{Board, Event, FrameReader, Gone};
use crate::{RequestContext, StartError, output, sys, variables};

/// A running zygote.
#[derive(Debug)]
pub(crate) struct Zygote {
    child: Child,
    socket: UnixStream,
    reader: FrameReader,
    /// For its own log lines; not a worker.
    info: Arc<WorkerInfo>,
    pub(crate) php_version: String,
    output: tokio::task::JoinSet<()>,
    /// It runs as another user.
    is_other: bool,
}

/// The server's ends of a new worker's descriptors.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) frames: UnixStream,
    /// The same end again, for whoever learns that the worker has ended.
    pub(crate) hang_up: OwnedFd,
    pub(crate) stdout: tokio::net::unix::pipe::Receiver,
    pub(crate) stderr: tokio::net::unix::pipe::Receiver,
    pub(crate) board: Board,
}

impl Zygote {
    /// Exit status (`EX_CONFIG`) of a zygote whose application cannot be forked once it has booted.
    const UNFIT: i32 = 78;
    /// Exit status of a zygote whose script ended before it took a request.
    const ENDED_EARLY: i32 = 255;

    /// Starts the program and waits for its HELLO.
    pub(crate) async fn start(options: &Options) -> Result<Self, StartError> {
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
        options.environment(&mut command);
        sys::give_descriptor_3(&mut command, OwnedFd::from(theirs));
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

        let info = Arc::new(WorkerInfo::new(0, u64::MAX, None));
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
            socket: UnixStream::from_std(ours)?,
            reader: FrameReader::new(Sender::Zygote),
            info,
            php_version: String::new(),
            output,
            is_other: options.identity.is_some(),
        };
        match tokio::time::timeout(options.boot_timeout, zygote.first_word(&warm_up)).await {
            Ok(Ok(Event::Hello { version: wire::VERSION, php_version, .. })) => {
                zygote.php_version = php_version;
                must_see(options, zygote.info.pid())?;
                Ok(zygote)
            }
            Ok(Ok(Event::Hello { version, .. })) => Err(StartError::Zygote {
                program,
                output: format!(
                    "it speaks version {version} of the frames, this server version {}: build both anew",
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

    /// Its HELLO, as it should be. What it is to warm up with is written meanwhile: neither side waits for the other.
    async fn first_word(&mut self, warm_up: &[u8]) -> Result<Event, Gone> {
        let mut rest = warm_up;
        let word = std::future::poll_fn(|cx| {
            while !rest.is_empty() {
                match Pin::new(&mut self.socket).poll_write(cx, rest) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(written)) => rest = rest.get(written..).unwrap_or_default(),
                    // It has gone: what it said before that is still to be read.
                    Poll::Ready(Err(_closed)) => rest = &[],
                }
            }
            self.reader.poll_next(&mut self.socket, &self.info, cx)
        })
        .await?;
        if rest.is_empty() {
            Ok(word)
        } else {
            Err(Gone::Malformed(wire::Malformed::Payload("HELLO before the warm-up was read")))
        }
    }

    /// Why it did not come to its HELLO.
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
            // It runs, and PHP starts in no time: it is the application that takes so long.
            None if boots && !why.is_empty() => StartError::Boot { output },
            _ => StartError::Zygote { program, output },
        }
    }

    /// What it printed before it ended.
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

    /// The next thing the zygote says. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Event, Gone> {
        std::future::poll_fn(|cx| self.reader.poll_next(&mut self.socket, &self.info, cx)).await
    }

    /// Has a worker forked; SPAWNED or FAILED will name `slot`.
    pub(crate) async fn spawn(&mut self, slot: u32) -> std::io::Result<Ends> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        // The worker's end blocks: the flag belongs to the end, not to the pair.
        rustix::io::ioctl_fionbio(&theirs, false)?;
        let (stdout, their_stdout) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let (stderr, their_stderr) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        if self.is_other {
            for pipe in [&their_stdout, &their_stderr] {
                rustix::fs::fchmod(pipe, sys::PIPE_MODE)?;
            }
        }
        let mut frame = Vec::new();
        wire::send::spawn(&mut frame, slot);
        let board = Board::new()?;
        let hang_up = ours.try_clone()?;
        let descriptors =
            [theirs.as_fd(), their_stdout.as_fd(), their_stderr.as_fd(), board.file.as_fd()];
        self.send(&frame, &descriptors).await?;
        Ok(Ends {
            frames: UnixStream::from_std(ours.into())?,
            hang_up,
            stdout: receiver(stdout)?,
            stderr: receiver(stderr)?,
            board,
        })
    }

    /// Signals a worker; nothing happens when it has ended already.
    pub(crate) async fn kill(&mut self, pid: u32, signal: i32) -> std::io::Result<()> {
        let mut frame = Vec::new();
        wire::send::kill(&mut frame, pid, signal.unsigned_abs());
        self.send(&frame, &[]).await
    }

    /// Asks where a worker's PHP code is; one [`crate::worker::Event::Stack`] answers.
    pub(crate) async fn trace(&mut self, pid: u32) -> std::io::Result<()> {
        let mut frame = Vec::new();
        wire::send::trace(&mut frame, pid);
        self.send(&frame, &[]).await
    }

    /// Writes a frame; the descriptors travel with its first byte. What the zygote says meanwhile is kept for [`Zygote::next`].
    async fn send(
        &mut self,
        frame: &[u8],
        mut descriptors: &[BorrowedFd<'_>],
    ) -> std::io::Result<()> {
        let mut rest = frame;
        std::future::poll_fn(|cx| {
            while !rest.is_empty() {
                if self.socket.poll_write_ready(cx)?.is_pending() {
                    match ready!(self.reader.poll_read(&mut self.socket, cx))? {
                        0 => return Poll::Ready(Err(ErrorKind::BrokenPipe.into())),
                        _ => continue,
                    }
                }
                let write = || send_some(&self.socket, rest, descriptors);
                match self.socket.try_io(Interest::WRITABLE, write) {
                    Ok(sent) => {
                        rest = rest.get(sent..).unwrap_or_default();
                        descriptors = &[];
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Has it end its workers and itself; kills it when it does not.
    pub(crate) async fn end(mut self, patience: Duration) {
        drop(self.socket);
        if tokio::time::timeout(patience, self.child.wait()).await.is_err()
            && let Err(error) = self.child.kill().await
        {
            tracing::warn!(%error, "zygote could not be killed");
        }
    }
}

/// Writes as much as there is room for.
fn send_some(
    socket: &UnixStream,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> std::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        let fits = ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        debug_assert!(fits, "the space is for four descriptors");
    }
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?)
}

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
    if options.model.boots_in_zygote() && !options.warm_up.is_empty() {
        arguments.push("--warm-up".into());
        arguments.push(options.warm_up.len().to_string().into());
        if options.rehearse {
            arguments.push("--rehearse".into());
        }
    }
    if options.sandbox.is_some() {
        arguments.push("--confine".into());
    }
    for (name, value) in &options.ini {
        arguments.push("--ini".into());
        arguments.push(format!("{name}={value}").into());
    }
    arguments
}

/// What a zygote that boots the application answers for itself first, as frames.
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
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::Model;

    fn options() -> Options {
        let patience = Duration::from_secs(30);
        Options {
            program: testkit::fake_worker(),
            model: Model::Request,
            warm_up: Vec::new(),
            rehearse: false,
            sandbox: None,
            worker_script: None,
            directory: "/".into(),
            run_dir: std::env::temp_dir(),
            ini: Vec::new(),
            env: Vec::new(),
            hidden: Vec::new(),
            identity: None,
            workers: NonZeroUsize::MIN,
            scaling: None,
            backlog: 0,
            backlog_timeout: patience,
            backlog_target: None,
            request_timeout: None,
            boot_timeout: patience,
            max_requests: None,
            memory_limit: None,
            slow: None,
            events: None,
        }
    }

    /// More frames than the socket has room for, and for their answers, before one of these is read.
    #[tokio::test]
    async fn a_zygote_that_is_asked_much_at_once_answers_all_of_it() {
        const FRAMES: u32 = 3_000;
        const LIMIT: Duration = Duration::from_mins(1);
        let mut zygote = Zygote::start(&options()).await.unwrap();
        let asking = async {
            for frame in 1..=FRAMES {
                // A worker whose socket is closed ends by itself.
                if frame % 50 == 0 {
                    drop(zygote.spawn(frame).await.unwrap());
                } else {
                    zygote.trace(frame).await.unwrap();
                }
            }
        };
        tokio::time::timeout(LIMIT, asking).await.expect("both wait for the other");
        let hearing = async {
            for frame in 1..=FRAMES {
                let answer = loop {
                    match zygote.next().await.unwrap() {
                        Event::Exited { .. } => {}
                        other => break other,
                    }
                };
                match answer {
                    Event::Spawned { slot, .. } if frame % 50 == 0 => assert_eq!(slot, frame),
                    Event::Stack { pid, .. } => assert_eq!(pid, frame),
                    other => panic!("{other:?} for frame {frame}"),
                }
            }
        };
        tokio::time::timeout(LIMIT, hearing).await.expect("every frame is answered");
        zygote.end(LIMIT).await;
    }
}
