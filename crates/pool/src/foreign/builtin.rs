//! The model `builtin`: one `php -S` per worker, over HTTP/1.1.
//!
//! Invariants
//! - Every request runs Hearth's router script, which reads the variables from a header that only Hearth can write.
//! - A connection is used only if its server was alive after it was made: then no other process can have taken the
//!   port.
//! - A response ends with the connection, and is complete unless the server closed it by exiting.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::{Buf, Bytes, BytesMut};
use http::header::{self, HeaderName, HeaderValue};
use http::{StatusCode, Version};
use http1::{parse_response, put_field, put_request_line, put_title_case};
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tracing::{Instrument as _, debug};

use super::answer::Answer;
use super::files::{PrivateFile, secret};
use super::request::Request;
use super::{Common, Pace, both_ways, malformed};
use crate::exchange::{BoxError, Failure};
use crate::info::WorkerInfo;
use crate::output::{Writer, each_line};
use crate::process_stat;
use crate::process_stat::must_see;
use crate::variables::{Sink, reaches_php};

const ROUTER: &str = include_str!("router.php");
/// Maximum size of a request head in bytes: `php_http_parser` rejects 80 KiB.
const MAX_HEAD: usize = 76 * 1024;
/// Number of bytes read at once.
const READ_AHEAD: usize = 16 * 1024;
/// Methods that `php -S` supports (`sapi/cli/php_http_parser.c`). Others are sent as PUT, and the router sets the real
/// one.
const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"];
/// Hop-by-hop fields, and fields that are written separately.
const NOT_FORWARDED: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "hearth-variables",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// State shared by all servers of a pool.
#[derive(Debug)]
pub(super) struct Builtin {
    common: Arc<Common>,
    router: PrivateFile,
    secret: String,
}

impl Builtin {
    pub(super) fn new(common: Arc<Common>) -> std::io::Result<Self> {
        let secret = secret()?;
        let text = ROUTER.replace("{{secret}}", &secret);
        let router = PrivateFile::write(common.place("router.php"), &text, &common.options)?;
        Ok(Self { common, router, secret })
    }
}

/// A running server.
#[derive(Debug)]
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    async fn connect(&mut self) -> Result<TcpStream, BoxError> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        match self.child.try_wait()? {
            None => Ok(stream),
            Some(status) => Err(format!("the server has ended: {status}").into()),
        }
    }
}

/// A place for a server.
#[derive(Debug)]
pub(super) struct Worker {
    builtin: Arc<Builtin>,
    slot: u32,
    server: Option<Server>,
    info: Option<Arc<WorkerInfo>>,
}

impl Worker {
    pub(super) fn new(builtin: Arc<Builtin>, slot: u32) -> Self {
        Self { builtin, slot, server: None, info: None }
    }

    pub(super) fn info(&self) -> Option<&Arc<WorkerInfo>> {
        self.info.as_ref()
    }

    pub(super) fn is_ready(&mut self) -> bool {
        let Some(server) = &mut self.server else { return false };
        match server.child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                self.server = None;
                if let Some(info) = &self.info {
                    self.builtin.common.ended(info, status.into_raw().cast_unsigned());
                }
                false
            }
            Err(error) => {
                debug!(%error, "server cannot be waited for");
                false
            }
        }
    }

    /// Starts a server on a port that the system chooses.
    pub(super) async fn prepare(&mut self) -> Result<(), BoxError> {
        self.kill().await;
        self.start().await?;
        self.probe().await
    }

    async fn start(&mut self) -> Result<(), BoxError> {
        let common = &self.builtin.common;
        let mut command = Command::new(&common.options.program);
        command
            .args(common.ini_arguments())
            .args(["-S", "127.0.0.1:0"])
            .arg("-t")
            .arg(&common.options.directory)
            .arg(self.builtin.router.path())
            .current_dir(&common.options.directory)
            // The variable would make it fork and serve several requests at once.
            .env_remove("PHP_CLI_SERVER_WORKERS")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        common.options.environment(&mut command);
        let mut child = common.spawner.spawn(command, Signal::KILL).await?;
        let pid = child.id().unwrap_or(0);
        let info = common.new_info(self.slot, pid);
        let (tell, started) = oneshot::channel();
        if let Some(stderr) = child.stderr.take() {
            let info = Arc::clone(&info);
            let lines = async move {
                let mut tell = Some(tell);
                each_line(stderr, |line| match listens_on(line) {
                    Some(address) => {
                        if let Some(tell) = tell.take()
                            && tell.send(address).is_err()
                        {
                            debug!("the caller does not wait for the server any more");
                        }
                    }
                    None if is_access_log(line) => {}
                    None => log(&info, line),
                })
                .await;
            };
            common.tasks.spawn_on(lines.in_current_span(), &common.runtime);
        }
        // When listening it prints its address; when it exits it closes its output.
        let Ok(address) = started.await else {
            let status = child.wait().await?;
            let words = info.tail();
            return Err(format!("{words}\nphp -S ended with {status}").trim().into());
        };
        must_see(&self.builtin.common.options, pid)?;
        self.server = Some(Server { child, address });
        self.info = Some(info);
        Ok(())
    }

    /// Sends a probe to the server, and waits until it is free.
    async fn probe(&mut self) -> Result<(), BoxError> {
        let Some(server) = &mut self.server else { return Err("there is no server".into()) };
        let mut stream = server.connect().await?;
        let secret = &self.builtin.secret;
        let mut head = Vec::new();
        put_request_line(&mut head, "GET", "/", Version::HTTP_11);
        put_field(&mut head, "Host", "hearth");
        put_field(&mut head, "Hearth-Variables", secret);
        head.extend_from_slice(b"\r\n");
        stream.write_all(&head).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        let status = parse_response(&answer).map(|answer| answer.head.status);
        if status != Some(StatusCode::NO_CONTENT) {
            let line =
                String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned();
            return Err(format!("the router answered {line:?}").into());
        }
        Ok(())
    }

    pub(super) async fn exchange(
        &mut self,
        request: &mut Request,
        answer: &mut Answer,
    ) -> Result<(), Failure> {
        let mut head = Bytes::from(self.write_head(request)?);
        let Some(server) = &mut self.server else { return Err(Failure::NotSent) };
        let mut stream = server.connect().await.map_err(|_gone| Failure::NotSent)?;
        match stream.try_write(&head) {
            Ok(written) => head.advance(written),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_gone) => return Err(Failure::NotSent),
        }
        let exchanged = {
            let (read, write) = stream.split();
            both_ways(upload(write, head, request), download(read, answer)).await
        };
        drop(stream);
        if let Err(failure) = exchanged {
            return self.died(failure).await;
        }
        if server.child.id().is_none_or(is_ending) {
            return self.died(Failure::Died { pid: 0, how: String::new() }).await;
        }
        answer.end().await.map_err(|why| malformed(&why))
    }

    /// Waits for the end of a server that seems to have died, and reports it.
    async fn died(&mut self, failure: Failure) -> Result<(), Failure> {
        const PATIENCE: Duration = Duration::from_millis(200);
        if let (Failure::Died { how, .. }, Some(server), Some(info)) =
            (&failure, &mut self.server, &self.info)
            && how.is_empty()
            && let Ok(Ok(status)) =
                self.builtin.common.clock.timeout(PATIENCE, server.child.wait()).await
        {
            self.builtin.common.ended(info, status.into_raw().cast_unsigned());
            self.server = None;
        }
        Err(failure)
    }

    pub(super) async fn wait_until_ready(&mut self, whole: bool) -> Result<(), BoxError> {
        if whole {
            return Ok(());
        }
        // Its connection is closed: the script is aborted at its next output, and the server answers the probe when
        // the script has ended.
        self.probe().await
    }

    pub(super) async fn kill(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        if let Err(error) = server.child.start_kill() {
            debug!(%error, "server had ended already");
        }
        match server.child.wait().await {
            Ok(status) => {
                if let Some(info) = &self.info {
                    self.builtin.common.ended(info, status.into_raw().cast_unsigned());
                }
            }
            Err(error) => debug!(%error, "server cannot be waited for"),
        }
    }

    /// Writes the request's head: the client's fields for `getallheaders()`, and the variables for the router.
    fn write_head(&self, request: &Request) -> Result<Vec<u8>, Failure> {
        let parts = &request.parts;
        let method = parts.method.as_str();
        let method = if METHODS.contains(&method) { method } else { "PUT" };
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let mut head = Vec::with_capacity(4096);
        put_request_line(&mut head, method, target, Version::HTTP_11);
        let authority = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
        let host = parts.headers.get(header::HOST).map(HeaderValue::as_bytes).or(authority);
        put_field(&mut head, "Host", host.unwrap_or_default());
        let forwarded =
            |name: &&HeaderName| reaches_php(name) && !NOT_FORWARDED.contains(&name.as_str());
        for name in parts.headers.keys().filter(forwarded) {
            let separator: &[u8] = if name == header::COOKIE { b"; " } else { b", " };
            let values: Vec<&[u8]> =
                parts.headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
            // As `getallheaders()` has names in PHP's other programs.
            let mut spelled = Vec::with_capacity(name.as_str().len());
            put_title_case(&mut spelled, name.as_str());
            put_field(&mut head, &spelled, values.join(separator));
        }
        if let Some(length) = request.content_length() {
            put_field(&mut head, "Content-Length", length.as_bytes());
        }
        let mut variables = Variables(Vec::with_capacity(2048));
        request.write_variables(&mut variables);
        let mut private = self.builtin.secret.clone();
        BASE64.encode_string(&variables.0, &mut private);
        put_field(&mut head, "Hearth-Variables", &private);
        head.extend_from_slice(b"\r\n");
        if head.len() > MAX_HEAD { Err(Failure::TooLarge) } else { Ok(head) }
    }
}

/// Names and values, each followed by a NUL.
struct Variables(Vec<u8>);

impl Sink for Variables {
    fn pair_from(&mut self, name: &[u8], _length: usize, write: impl FnOnce(&mut Vec<u8>)) {
        self.0.extend_from_slice(name);
        self.0.push(0);
        write(&mut self.0);
        self.0.push(0);
    }
}

/// Returns whether a process is exiting or has exited. The kernel shows this before it closes any descriptor:
/// `do_exit()` sets `PF_EXITING` (kernel/exit.c) ahead of `exit_files()`, and `/proc/PID/stat` contains the flags
/// (proc(5)).
fn is_ending(pid: u32) -> bool {
    const PF_EXITING: u32 = 4;
    let flags = || -> Option<u32> {
        // State, parent, group, session, terminal, its group, flags.
        process_stat::from_state_on(pid)?.split(' ').nth(6)?.parse().ok()
    };
    flags().is_none_or(|flags| flags & PF_EXITING != 0)
}

/// Writes the rest of the request as the server reads it. An error is the client's; if the server stops reading, the
/// response reader handles it.
async fn upload(
    mut stream: WriteHalf<'_>,
    mut head: Bytes,
    request: &mut Request,
) -> Result<(), BoxError> {
    if stream.write_all_buf(&mut head).await.is_err() {
        return std::future::pending().await;
    }
    while let Some(piece) = request.body.next().await {
        if stream.write_all_buf(&mut piece?).await.is_err() {
            return std::future::pending().await;
        }
    }
    Ok(())
}

/// Reads the response as the client reads it, up to the end of the connection.
async fn download(mut stream: ReadHalf<'_>, answer: &mut Answer) -> Result<(), Failure> {
    let mut arrived = BytesMut::new();
    let mut pace = Pace::default();
    loop {
        arrived.reserve(READ_AHEAD);
        let read = tokio::select! {
            biased;
            read = stream.read_buf(&mut arrived) => read,
            () = pace.runs_out() => {
                answer.flush().await;
                continue;
            }
        };
        // Reset: the server closed before it had read the whole request. The caller finds out what that means.
        if matches!(read, Ok(0) | Err(_)) {
            return Ok(());
        }
        answer.push(arrived.split().freeze()).map_err(|why| malformed(&why))?;
        if pace.is_stream() {
            answer.flush().await;
        }
    }
}

/// Parses the address in `[Sat Nov 21 03:34:34 2026] PHP 8.2.35 Development Server (http://127.0.0.1:45511) started`.
fn listens_on(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(" Development Server (http://")?;
    rest.strip_suffix(") started")?.parse().ok()
}

/// Returns whether a line is an access log entry such as `[Sat Nov 21 03:34:40 2026] 127.0.0.1:33322 [200]: GET /`,
/// because Hearth has its own access log. (`-q` would suppress PHP's messages too.)
fn is_access_log(line: &str) -> bool {
    line.split_once("] ")
        .is_some_and(|(time, rest)| time.starts_with('[') && rest.starts_with("127.0.0.1:"))
}

/// Logs a line of its stderr without its timestamp: `[Sat Nov 21 03:34:40 2026] PHP Warning:  …`.
fn log(info: &WorkerInfo, line: &str) {
    let text = match line.split_once("] ") {
        Some((time, rest)) if time.starts_with('[') => rest,
        _ => line,
    };
    info.remember(text);
    let request = info.current_request();
    Writer { pid: info.pid(), request: request.as_ref(), source: "error_log" }.log(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ends_is_told_from_one_that_lives() {
        assert!(!is_ending(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        while !is_ending(pid) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(is_ending(pid), "a process that is gone");
    }

    #[test]
    fn what_php_says_of_itself_is_understood() {
        let at = "[Sat Nov 21 03:34:34 2026] ";
        let started = format!("{at}PHP 8.2.35 Development Server (http://127.0.0.1:45511) started");
        assert_eq!(listens_on(&started), Some(SocketAddr::from(([127, 0, 0, 1], 45511))));
        assert!(is_access_log(&format!("{at}127.0.0.1:33322 [200]: GET /")));
        let message = format!("{at}PHP Warning:  something");
        assert!(!is_access_log(&message) && listens_on(&message).is_none());
    }

    #[test]
    fn base64_is_that_of_the_rfc() {
        // RFC 4648 section 10
        let vectors = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
        ];
        for (plain, expected) in vectors {
            assert_eq!(BASE64.encode(plain), expected);
        }
        assert_eq!(BASE64.encode([0xff, 0xfe, 0xfb]), "//77");
    }
}
