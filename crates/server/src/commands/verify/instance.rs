//! The application booted in one model with one worker, behind Hearth's own HTTP front on a loopback port, and a client of it.
//!
//! Invariants
//! - Requests are sent one after the other. The next one is sent when the worker has nothing left to do after the last response.
//! - Nothing of a running server is touched: no broker, no connector, no channels, no supervised process.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use pool::{Model, Pool, StartError};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::compare::Parts;
use super::crawl;
use super::files::{Latest, Watched};
use super::jar::{Jar, comparable};
use super::request::Recorded;
use crate::app::applications::{Planned, Plans};
use crate::app::boot::{OwnFiles, Reason, boot_failure, own_files, pool_options};
use crate::app::target::Target;
use crate::config::{Auto, Environment, Settings};
use crate::failure::{Failure, in_one_line};
use crate::subsystems::generation_guard::GenerationGuard;
use crate::subsystems::http::front::{self, Php};
use crate::system::run_dir::RunDir;

/// The longest wait for one answer, and for the work after it.
const LONGEST: Duration = Duration::from_mins(2);
/// The time that processes have to end.
const GOODBYE: Duration = Duration::from_secs(1);
/// Fields of responses that say nothing about the application: about the connection and its clock, or implied by the body.
const NOT_COMPARED: &[&str] =
    &["connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"];

/// The application, and how it is booted.
#[derive(Debug)]
pub(super) struct Subject<'e> {
    pub(super) target: &'e Target,
    pub(super) settings: Settings,
    pub(super) environment: &'e Environment,
    /// Where PHP's session files are, if it writes any.
    pub(super) sessions: RunDir,
    /// Whether PHP is to write its session files there.
    pub(super) moves_sessions: bool,
    pub(super) ignored: Vec<String>,
    /// The files as they were at the latest look.
    pub(super) latest: Latest,
}

/// Why an application does not run in a model.
#[derive(Debug)]
pub(super) enum NotRun {
    /// This application or machine cannot run the model.
    Impossible(String),
    /// The model should run, and failed.
    Failed(Failure),
}

impl From<Failure> for NotRun {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Subject<'_> {
    /// Plans the application in a model.
    pub(super) fn plan(&self, model: Model) -> Result<Planned, Failure> {
        let mut settings = self.settings.clone();
        settings.php.model = Auto(Some(model));
        if self.moves_sessions {
            let folder = self.sessions.path().display().to_string();
            settings.php.ini.0.push(("session.save_path".to_owned(), folder));
        }
        settings.php.workers = Auto(Some(NonZeroUsize::MIN));
        settings.php.workers_max = None;
        let mut plans = Plans::read(self.target, &settings, self.environment)?.into_vec();
        let first = (!plans.is_empty()).then(|| plans.swap_remove(0));
        first.ok_or_else(|| {
            Failure::misused("there is no application at PATH", "name one: `hearth verify PATH`")
        })
    }

    /// Removes the session files of earlier runs.
    fn forget_sessions(&self) {
        let Ok(entries) = std::fs::read_dir(self.sessions.path()) else { return };
        for entry in entries.filter_map(Result::ok) {
            drop(std::fs::remove_file(entry.path()));
        }
    }
}

/// A booted model.
#[derive(Debug)]
pub(super) struct Instance {
    pool: Pool,
    address: SocketAddr,
    drain: CancellationToken,
    /// The front, and the client's connections.
    tasks: JoinSet<()>,
    sender: Option<SendRequest<Full<Bytes>>>,
    jar: Jar,
    watched: Watched,
    /// Kept while workers may be replaced: they read their files again.
    _own: Option<OwnFiles>,
}

/// An answer: its parts for the comparison, and where its page leads to.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) parts: Parts,
    pub(super) links: Vec<String>,
    /// Whether it is a server error, or none came.
    pub(super) failed: bool,
}

impl Instance {
    /// Boots the application.
    pub(super) async fn start(subject: &Subject<'_>, model: Model) -> Result<Self, NotRun> {
        subject.forget_sessions();
        let planned = subject.plan(model)?;
        let Some(php) = planned.plan.php.as_ref() else {
            return Err(Failure::misused(
                "no PHP runs in it, only files are served",
                "name an application",
            )
            .into());
        };
        if php.model != model {
            let why =
                php.fallback.as_ref().map(|fallback| fallback.why.clone()).unwrap_or_default();
            return Err(NotRun::Impossible(why));
        }
        let own = own_files(&planned.settings, &planned.plan, subject.environment)?;
        let options = pool::Options {
            workers: NonZeroUsize::MIN,
            scaling: None,
            slow: None,
            // What a request leaves would go with the worker.
            max_requests: None,
            ..pool_options(php, &planned.plan, &planned.settings, own.as_ref(), None, None)
        };
        let pool = match Pool::start(options).await {
            Ok(pool) => pool,
            Err(error) => return Err(not_run(&error, model)),
        };
        match Self::before(pool.clone(), &planned, own, subject).await {
            Ok(instance) => Ok(instance),
            Err(failure) => {
                pool.drain(GOODBYE).await;
                Err(failure.into())
            }
        }
    }

    /// Puts the front before a pool.
    async fn before(
        pool: Pool,
        planned: &Planned,
        own: Option<OwnFiles>,
        subject: &Subject<'_>,
    ) -> Result<Self, Failure> {
        let patience = planned.settings.php.boot_timeout;
        if timeout(patience, pool.filled()).await.is_err() {
            let what = format!("no worker was ready within {patience:?} (`php.boot_timeout`)");
            return Err(Failure::failed(what, "`hearth check` says more"));
        }
        let front = front::bind(&planned.settings, None, None, (Vec::new(), false)).await?;
        let address = front.urls().first().and_then(|url| url.split_once("://")?.1.parse().ok());
        let address = address
            .ok_or_else(|| Failure::failed("no address of the front", "please report this"))?;
        let release = crate::app::release::release([planned])?;
        let guard = GenerationGuard::new(CancellationToken::new());
        front.switch().to(release, [Php::new(Some(pool.clone()), guard, None)]);
        let drain = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(front.serve(drain.clone()));
        let folder = &planned.plan.application.folder;
        let watched =
            Watched::new(folder, subject.sessions.path(), &subject.ignored, &subject.latest);
        Ok(Self {
            pool,
            address,
            drain,
            tasks,
            sender: None,
            jar: Jar::default(),
            watched,
            _own: own,
        })
    }

    /// Prepares for another run in the same process: a new client, and the files as they are now.
    pub(super) fn begin(&mut self, subject: &Subject<'_>, forget: bool) {
        if forget {
            subject.forget_sessions();
        }
        self.jar = Jar::default();
        self.watched.look();
    }

    /// Returns the number of watched files.
    pub(super) fn watched_files(&self) -> usize {
        self.watched.count()
    }

    /// Returns what the report notes about the watched files.
    pub(super) fn notes(&self) -> Vec<String> {
        self.watched.notes()
    }

    /// Sends a request, and waits until all that it did is done.
    pub(super) async fn ask(&mut self, request: &Recorded) -> Seen {
        let answer = timeout(LONGEST, self.exchange(request)).await;
        let answer = answer.unwrap_or_else(|_elapsed| Err(format!("no answer within {LONGEST:?}")));
        let idle = timeout(LONGEST, async {
            self.pool.restored().await;
            self.pool.quiet().await;
        });
        let still_runs = idle.await.is_err();
        let mut seen = match answer {
            Ok((head, body)) => self.read(request, &head, body),
            Err(why) => {
                self.sender = None;
                let parts = Parts::from([("answer".to_owned(), why.into())]);
                Seen { parts, failed: true, ..Seen::default() }
            }
        };
        if still_runs {
            seen.parts.insert("work after the answer".to_owned(), "did not end".into());
        }
        self.watched.add_changes(&mut seen.parts);
        seen
    }

    async fn exchange(
        &mut self,
        request: &Recorded,
    ) -> Result<(http::response::Parts, Bytes), String> {
        let said = |error: &(dyn std::error::Error + 'static)| in_one_line(error);
        let message = self.message(request).map_err(|error| said(&error))?;
        let response: Response<Incoming> = self
            .connection()
            .await
            .map_err(|error| said(&error))?
            .send_request(message)
            .await
            .map_err(|error| said(&error))?;
        let (head, body) = response.into_parts();
        let body = body
            .collect()
            .await
            .map_err(|error| format!("the answer breaks off: {}", said(&error)))?;
        Ok((head, body.to_bytes()))
    }

    fn message(&self, recorded: &Recorded) -> Result<Request<Full<Bytes>>, http::Error> {
        let mut request = Request::builder().method(&*recorded.method).uri(&*recorded.target);
        request = request.header("host", recorded.host.as_deref().unwrap_or("localhost"));
        let has = |wanted: &str| recorded.headers.iter().any(|(name, _)| name == wanted);
        if !has("user-agent") {
            request = request.header("user-agent", "hearth (verify)");
        }
        if !has("accept") {
            request = request.header("accept", "text/html, */*;q=0.1");
        }
        for (name, value) in &recorded.headers {
            let current = self.jar.header(name);
            request = request.header(name, current.as_deref().unwrap_or(value));
        }
        if let Some(cookies) = self.jar.cookies(recorded) {
            request = request.header("cookie", cookies);
        }
        request.body(Full::new(self.jar.refreshed(recorded)))
    }

    /// Returns a connection that takes a request.
    async fn connection(&mut self) -> std::io::Result<&mut SendRequest<Full<Bytes>>> {
        let ready = match &mut self.sender {
            Some(sender) => sender.ready().await.is_ok(),
            None => false,
        };
        if !ready {
            let stream = TcpStream::connect(self.address).await?;
            let (sender, connection) =
                handshake(TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
            self.tasks.spawn(async move { drop(connection.await) });
            self.sender = Some(sender);
        }
        Ok(self.sender.as_mut().expect("it was set"))
    }

    fn read(&mut self, request: &Recorded, head: &http::response::Parts, body: Bytes) -> Seen {
        let text =
            |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers: Vec<(String, String)> = head
            .headers
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), text(value)))
            .collect();
        let is_page =
            headers.iter().any(|(name, value)| name == "content-type" && value.contains("html"));
        let page = if is_page { std::str::from_utf8(&body).ok() } else { None };
        let cookies = headers.iter().filter(|(name, _)| name == "set-cookie");
        self.jar.learn(cookies.map(|(_, value)| &**value), page);
        let host = request.host.as_deref().unwrap_or("localhost");
        let url = Url::parse(&format!("http://{host}{}", request.target));
        let links = url.map(|url| crawl::targets(&url, &headers, &body)).unwrap_or_default();
        let mut parts =
            Parts::from([("status".to_owned(), head.status.as_str().to_owned().into())]);
        for (name, value) in headers {
            if NOT_COMPARED.contains(&&*name) {
                continue;
            }
            let (name, value) = match value.split_once('=') {
                Some((cookie, _)) if name == "set-cookie" => {
                    (format!("header set-cookie {cookie}"), comparable(&value))
                }
                _ => (format!("header {name}"), value),
            };
            let all = parts.entry(name).or_default();
            let joined = if all.is_empty() {
                value.into()
            } else {
                [&all[..], b"\n", value.as_bytes()].concat().into()
            };
            *all = joined;
        }
        parts.insert("body".to_owned(), body);
        Seen { parts, links, failed: head.status.is_server_error() }
    }

    /// Ends its processes.
    pub(super) async fn end(mut self) {
        self.drain.cancel();
        self.sender = None;
        self.pool.drain(GOODBYE).await;
        self.tasks.shutdown().await;
    }
}

fn not_run(error: &StartError, model: Model) -> NotRun {
    match error {
        StartError::Boot { output } => {
            let reason = Reason::of(output);
            let what =
                format!("the application does not boot in `{}`: {}", model.name(), reason.line());
            NotRun::Failed(Failure::failed(what, reason.hint))
        }
        StartError::Unfit { .. } | StartError::NoSnapshot { .. } => {
            NotRun::Impossible(in_one_line(error))
        }
        _ => NotRun::Failed(boot_failure(error)),
    }
}
