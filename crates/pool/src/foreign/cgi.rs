//! The model `cgi`: one `php-cgi` per request (RFC 3875), the slowest and most isolated model.
//!
//! Invariants
//! - php-cgi never gets an argument, because a query string without `=` would be among them (RFC 3875 section 4.4;
//!   CVE-2012-1823). Settings are passed as an ini file.
//! - A variable of the server's own environment never passes for one of the request.
//! - A process ends with its request: answered, or killed when the client disconnects or the time is over.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tracing::debug;

use super::answer::Answer;
use super::files::PrivateFile;
use super::request::Request;
use super::{Common, Pace, both_ways, malformed};
use crate::clock::Clock;
use crate::events::Sinks;
use crate::exchange::{BoxError, Failure};
use crate::info::WorkerInfo;
use crate::output::{Writer, each_line};
use crate::status::{Ending, WorkerEnd};
use crate::variables::Sink;

/// Exit status after a fatal error (`php_error_cb()`, main/main.c).
const FATAL_STATUS: i32 = 255;
/// Number of bytes read at once.
const READ_AHEAD: usize = 16 * 1024;
/// Variables that are removed from the server's environment, besides all that begin with `HTTP_`, because they could
/// pass for those of a request. The last would let PHP send service manager notifications in the server's name.
const NOT_INHERITED: &[&str] = &[
    "AUTH_TYPE",
    "CONTENT_LENGTH",
    "CONTENT_TYPE",
    "HTTPS",
    "ORIG_PATH_INFO",
    "ORIG_PATH_TRANSLATED",
    "ORIG_SCRIPT_FILENAME",
    "ORIG_SCRIPT_NAME",
    "PATH_INFO",
    "PATH_TRANSLATED",
    "REMOTE_HOST",
    "REMOTE_IDENT",
    "REMOTE_USER",
    "NOTIFY_SOCKET",
];
/// Variable with the folders of ini files (php.net, "Scan directories"); an empty part is PHP's compiled-in one.
const INI_FOLDERS: &str = "PHP_INI_SCAN_DIR";

/// State shared by all workers of a pool.
#[derive(Debug)]
pub(super) struct Cgi {
    common: Arc<Common>,
    /// The settings as an ini file, and the value of [`INI_FOLDERS`]; `None` without settings.
    ini: Option<(IniFolder, OsString)>,
    not_inherited: Vec<OsString>,
}

/// A folder with one file.
#[derive(Debug)]
struct IniFolder {
    file: PrivateFile,
    folder: PathBuf,
}

impl Drop for IniFolder {
    fn drop(&mut self) {
        for gone in [std::fs::remove_file(self.file.path()), std::fs::remove_dir(&self.folder)] {
            if let Err(error) = gone {
                debug!(path = %self.folder.display(), %error, "folder not removed");
            }
        }
    }
}

impl Cgi {
    pub(super) fn new(common: Arc<Common>) -> std::io::Result<Self> {
        let inherited: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let of_request = inherited.iter().filter(|(name, _)| name.as_bytes().starts_with(b"HTTP_"));
        let not_inherited = NOT_INHERITED
            .iter()
            .map(Into::into)
            .chain(of_request.map(|(name, _)| name.clone()))
            .collect();
        let options = &common.options;
        let ini = if options.ini.is_empty() {
            None
        } else {
            let mut lines = String::new();
            for (name, value) in &options.ini {
                if name.contains('\n') || value.contains('\n') {
                    return Err(std::io::Error::other(format!(
                        "the setting {name:?} has several lines"
                    )));
                }
                lines.extend([name, "=", value, "\n"]);
            }
            let folder = common.place("ini");
            std::fs::create_dir_all(&folder)?;
            if let Some(identity) = &options.identity {
                identity.share(&folder, 0o750)?;
            }
            let file = PrivateFile::write(folder.join("hearth.ini"), &lines, options)?;
            let given = options.env.iter().find(|(name, _)| name == INI_FOLDERS);
            let mut folders = match given {
                Some((_, value)) => value.into(),
                None => inherited
                    .into_iter()
                    .find(|(name, _)| name == INI_FOLDERS)
                    .map(|(_, value)| value)
                    .unwrap_or_default(),
            };
            folders.push(":");
            folders.push(&folder);
            Some((IniFolder { file, folder }, folders))
        };
        Ok(Self { common, ini, not_inherited })
    }
}

/// A place for a process.
#[derive(Debug)]
pub(super) struct Worker {
    cgi: Arc<Cgi>,
    slot: u32,
    child: Option<Child>,
    /// The record of the current process, or of the next one.
    info: Arc<WorkerInfo>,
    ready: bool,
}

impl Worker {
    pub(super) fn new(cgi: Arc<Cgi>, slot: u32) -> Self {
        Self { cgi, slot, child: None, info: Self::new_info(slot), ready: false }
    }

    fn new_info(slot: u32) -> Arc<WorkerInfo> {
        Arc::new(WorkerInfo::new(slot, u64::MAX, Sinks::default()))
    }

    pub(super) fn info(&self) -> &Arc<WorkerInfo> {
        &self.info
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready
    }

    /// Makes a new record, because each request starts its own process.
    pub(super) fn prepare(&mut self) {
        let served = self.info.requests.load(Ordering::Relaxed);
        self.info = Self::new_info(self.slot);
        self.info.requests.store(served, Ordering::Relaxed);
        self.ready = true;
    }

    pub(super) async fn exchange(
        &mut self,
        request: &mut Request,
        answer: &mut Answer,
    ) -> Result<(), Failure> {
        let cannot_start = |cause: &dyn std::fmt::Display| Failure::Died {
            pid: 0,
            how: format!("php-cgi cannot be started: {cause}"),
        };
        let command = self.command(request);
        let mut child = self
            .cgi
            .common
            .spawner
            .spawn(command, Signal::KILL)
            .await
            .map_err(|cause| cannot_start(&cause))?;
        self.info.pid.store(child.id().unwrap_or(0), Ordering::Relaxed);
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(cannot_start(&"it has no pipes"));
        };
        let (pid, id) = (self.info.pid(), request.context.id.clone());
        let lines = each_line(stderr, move |line| {
            Writer { pid, request: Some(&id), source: "stderr" }.log(line);
        });
        let common = &self.cgi.common;
        common.tasks.spawn_on(lines, &common.runtime);
        let child = self.child.insert(child);
        let (status, _) =
            both_ways(upload(stdin, request), download(stdout, child, answer, &common.clock))
                .await?;
        self.child = None;
        self.info.pid.store(0, Ordering::Relaxed);
        // A status other than 0 means an error that PHP has already answered.
        if status.signal().is_some() {
            let how = crate::info::describe_exit(status.into_raw().cast_unsigned());
            common.crashes.fetch_add(1, Ordering::Relaxed);
            common.ended.push(WorkerEnd::now(pid, 0, Ending::Crashed, &how));
            tracing::error!(
                worker.pid = pid,
                request.id = &*request.context.id.0,
                how,
                "worker died"
            );
            return Err(Failure::Died { pid, how });
        }
        if status.code() == Some(FATAL_STATUS)
            && let Some(observer) = &request.context.observer
        {
            observer.failed();
        }
        answer.end().await.map_err(|why| malformed(&why))
    }

    /// Ends the process, if one runs, and the use of its record.
    pub(super) async fn kill(&mut self) {
        self.ready = false;
        let Some(mut child) = self.child.take() else { return };
        if let Err(error) = child.kill().await {
            debug!(%error, "php-cgi had ended already");
        }
        self.info.pid.store(0, Ordering::Relaxed);
    }

    fn command(&self, request: &Request) -> Command {
        let options = &self.cgi.common.options;
        let mut command = Command::new(&options.program);
        for name in &self.cgi.not_inherited {
            command.env_remove(name);
        }
        options.environment(&mut command);
        if let Some((_, folders)) = &self.cgi.ini {
            command.env(INI_FOLDERS, folders);
        }
        let mut variables = Environment(&mut command);
        request.write_variables(&mut variables);
        command
            .current_dir(&options.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        command
    }
}

/// Passes variables as those of a process.
struct Environment<'a>(&'a mut Command);

impl Sink for Environment<'_> {
    fn pair_from(&mut self, name: &[u8], length: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let mut value = Vec::with_capacity(length);
        write(&mut value);
        self.0.env(OsString::from_vec(name.to_vec()), OsString::from_vec(value));
    }
}

/// Writes the body as the script reads it. An error is the client's; if the script stops reading, the response reader
/// handles it.
async fn upload(mut stdin: ChildStdin, request: &mut Request) -> Result<(), BoxError> {
    while let Some(piece) = request.body.next().await {
        if stdin.write_all(&piece?).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// Reads the response as the client reads it, up to the end of the process.
async fn download(
    mut stdout: ChildStdout,
    child: &mut Child,
    answer: &mut Answer,
    clock: &Clock,
) -> Result<ExitStatus, Failure> {
    // How long output may still arrive from a process that the script left running.
    const LEFTOVERS: Duration = Duration::from_millis(100);
    let mut arrived = BytesMut::new();
    let mut ended = None;
    let mut pace = Pace::default();
    loop {
        arrived.reserve(READ_AHEAD);
        let read = tokio::select! {
            biased;
            read = stdout.read_buf(&mut arrived) => read.unwrap_or(0),
            status = child.wait(), if ended.is_none() => {
                ended = status.ok();
                continue;
            }
            () = clock.reached(Some(clock.after(LEFTOVERS))), if ended.is_some() => 0,
            () = pace.runs_out() => {
                answer.flush().await;
                continue;
            }
        };
        if read == 0 {
            break;
        }
        answer.push(arrived.split().freeze()).map_err(|why| malformed(&why))?;
        if pace.is_stream() {
            answer.flush().await;
        }
    }
    match ended {
        Some(status) => Ok(status),
        None => child.wait().await.map_err(|error| malformed(&error)),
    }
}
