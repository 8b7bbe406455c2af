//! Runs one request to its response: redirects, tries, authentication, cookies.
//!
//! Invariants
//! - Secrets are sent only to the origin that they were meant for, unless the caller permits otherwise.
//! - One try at a time reads a body.

mod fields;
mod plain;
mod progress;
mod tries;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use egress::{Answer, Call, CallError, Interim, Key, Limits, Tap};
use http::header::{AUTHORIZATION, LOCATION};
use http::{HeaderMap, Method, Request, Version};
use tokio::time::Instant;

pub(crate) use self::progress::aborted;
use self::progress::{idle, report_once, report_progress};
use crate::calls::{self, Far, Flow};
use crate::cookies::Jar;
use crate::debug::Watcher;
use crate::digest::{self, Session};
use crate::download;
use crate::error::{Failure, Kind};
use crate::in_flight::InFlight;
use crate::io::{Host, Io};
use crate::peer::Peer;
use crate::progress::Track;
use crate::redirect::{self, Onward};
use crate::request::{Extras, Payload};
use crate::response::{Response, Timings};
use crate::settings::{AuthMode, Cookies, Settings};
use crate::sys::lock;
use crate::target::Target;
use crate::{local_file, upload};

/// The time limit for a connection to become free; the request's own limit may end it earlier.
const TURN: Duration = Duration::from_hours(24);
/// How often an origin may send a challenge: at first, and with a stale nonce.
const CHALLENGES: u32 = 2;
/// Makes a request. `so_far` holds the known part of its response.
pub(crate) async fn run(
    io: &Arc<Io>,
    host: &Arc<Host>,
    in_flight: &Arc<InFlight>,
    so_far: &Mutex<Response>,
) -> Result<(), Failure> {
    #[cfg(test)]
    provoked(in_flight);
    let spec = &in_flight.spec;
    let track = Arc::new(Track::new(spec.settings.idle_timeout.is_some()));
    let extras = spec.extras.as_deref();
    let progress = extras.and_then(|extras| extras.progress);
    let mut way = Way::new(io, host, in_flight, so_far, &track);
    if spec.settings.idle_timeout.is_none() && progress.is_none() {
        // Awaited where it is made: it is some kilobytes, and would be moved.
        return way.go().await;
    }
    let mut far = Far::default();
    let result = tokio::select! {
        biased;
        result = way.go() => result,
        failure = idle(&track, spec.settings.idle_timeout) => Err(failure),
        failure = report_progress(io, in_flight, &track, &mut far) => Err(failure),
    };
    drop(way);
    if result.is_ok() && progress.is_some() {
        report_once(io, in_flight, &track).await?;
    }
    result
}

/// Injects a fault, for tests.
#[cfg(test)]
fn provoked(in_flight: &InFlight) {
    let path = in_flight.spec.target.as_ref().map(Target::path);
    assert_ne!(path, Some("/provoke/a/fault"), "a fault that a test has asked for");
}

/// The state of a running request.
struct Way<'a> {
    io: &'a Arc<Io>,
    host: &'a Arc<Host>,
    in_flight: &'a Arc<InFlight>,
    settings: &'a Settings,
    extras: Option<&'a Extras>,
    so_far: &'a Mutex<Response>,
    track: &'a Arc<Track>,
    /// The target of the last redirect, and its key.
    redirected: Option<(Target, Key)>,
    method: Method,
    headers: HeaderMap,
    with_body: bool,
    /// Whether the target is still the original origin.
    at_home: bool,
    jar: Option<Arc<Jar>>,
    digest: Option<Session>,
    challenged: u32,
    /// How many kept connections turned out to be closed.
    stale: u32,
    /// Whether the running try may read the body.
    reading: Option<Arc<AtomicBool>>,
}

impl Drop for Way<'_> {
    /// Ends reading of the body. If an origin answers before it has read the body, a task still writes: the caller's source is not read
    /// once the request has ended.
    fn drop(&mut self) {
        if let Some(reading) = &self.reading {
            reading.store(false, Relaxed);
        }
    }
}

impl<'a> Way<'a> {
    fn new(
        io: &'a Arc<Io>,
        host: &'a Arc<Host>,
        in_flight: &'a Arc<InFlight>,
        so_far: &'a Mutex<Response>,
        track: &'a Arc<Track>,
    ) -> Self {
        let spec = &in_flight.spec;
        let extras = spec.extras.as_deref();
        let jar = match (extras.and_then(|extras| extras.jar.as_ref()), spec.settings.cookies) {
            (Some(jar), _) => Some(Arc::clone(jar)),
            (None, Cookies::None) => None,
            (None, Cookies::Own) => in_flight.own_jar(),
            (None, Cookies::Engine) => Some(Arc::clone(&io.runtime.jar)),
        };
        let began = Instant::now();
        lock(so_far).timings.queued = began - in_flight.began();
        Self {
            io,
            host,
            in_flight,
            settings: &spec.settings,
            extras,
            so_far,
            track,
            redirected: None,
            method: spec.method().clone(),
            headers: extras.map(|extras| extras.headers.clone()).unwrap_or_default(),
            with_body: extras.is_some_and(|extras| !matches!(extras.body, Payload::None)),
            at_home: true,
            jar,
            digest: None,
            challenged: 0,
            stale: 0,
            reading: None,
        }
    }

    fn so_far(&self) -> MutexGuard<'_, Response> {
        lock(self.so_far)
    }

    fn target(&self) -> Result<&Target, Failure> {
        match &self.redirected {
            Some((target, _)) => Ok(target),
            None => self
                .in_flight
                .spec
                .target
                .as_ref()
                .ok_or_else(|| Failure::new(Kind::Url, "There is no URL")),
        }
    }

    async fn go(&mut self) -> Result<(), Failure> {
        loop {
            if self.target()?.is_file() {
                return Box::pin(self.read_file()).await;
            }
            let began = self.settings.verbose.then(Instant::now);
            let result = self.send().await;
            if let Some(began) = began {
                self.print_outcome(&result, began);
            }
            let answer = match result {
                Ok(answer) => answer,
                Err(failed) => {
                    self.after_failure(failed?).await?;
                    continue;
                }
            };
            let (status, body) = self.note(answer)?;
            if status == 401 && self.challenge() {
                download::skip(body).await;
                self.rewind().await?;
                continue;
            }
            if let Some(delay) = self.retry_after(status) {
                download::skip(body).await;
                self.again(delay).await?;
                continue;
            }
            if redirect::is_redirect(status) && self.redirected(status).await? {
                download::skip(body).await;
                continue;
            }
            let asked = self.asks_for_compression();
            return download::take(
                self.io,
                self.in_flight,
                self.so_far,
                self.track,
                body,
                asked,
                &self.method,
            )
            .await;
        }
    }

    /// Reads a local file in the place of a response. Its status is 0, or that of the redirect that led there, as libcurl has it.
    async fn read_file(&mut self) -> Result<(), Failure> {
        let target = self.target()?.clone();
        let body = local_file::open(&target, &self.method).await;
        if self.settings.verbose {
            let how = body.as_ref().map_or_else(ToString::to_string, |_body| "read".to_owned());
            note(&format!("{} {}: {how}", self.method, target.as_str()));
        }
        self.so_far().target = Some(target);
        let (io, in_flight, method) = (self.io, self.in_flight, &self.method);
        download::take(io, in_flight, self.so_far, self.track, body?, false, method).await
    }

    /// Puts together a call that has something of its own.
    async fn call(&mut self) -> Result<Call, Failure> {
        let upload = match self.extras {
            Some(extras) if self.with_body => {
                let reading = Arc::new(AtomicBool::new(true));
                self.reading = Some(Arc::clone(&reading));
                let body = upload::body(
                    &extras.body,
                    &extras.trailers,
                    self.in_flight,
                    self.track,
                    reading,
                );
                body.await?
            }
            _ => upload::empty(),
        };
        let key = match &self.redirected {
            Some((_, key)) => key.clone(),
            None => self.host.key.clone(),
        };
        let mut request = Request::new(upload.body);
        *request.uri_mut() = self.uri()?;
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = self.fields(upload.length)?;
        *request.method_mut() = self.method.clone();
        Ok(Call { key, request, limits: self.limits(), scope: None })
    }

    fn limits(&self) -> Limits {
        Limits { connect: self.settings.connect_timeout, queue: TURN }
    }

    /// Makes one try. The outer error is one that no other try can repair.
    async fn send(&mut self) -> Result<Answer, Result<CallError, Failure>> {
        let (io, in_flight) = (self.io, self.in_flight);
        let caller_interim = self.extras.and_then(|extras| extras.interim);
        let watcher = Watcher::new(&io.runtime, in_flight, self.track);
        let tap = watcher.as_ref().map(|watcher| watcher as &dyn Tap);
        let mut interim = |(status, headers, _): Interim<'_>| {
            if let Some(interim) = caller_interim {
                pass_interim(io, in_flight, interim, status, headers);
            }
        };
        let ready = match self.plain().map_err(Err)? {
            Some(plain) => io.runtime.egress.ready_plain(plain),
            None => io.runtime.egress.ready(Box::pin(self.call()).await.map_err(Err)?),
        };
        let result = match ready {
            // Awaited where it is made: it is large, and would be moved.
            Ok(mut ready) => ready.run(tap, &mut interim).await,
            Err(error) => Err(error),
        };
        if let (Err(error), Some(watcher)) = (&result, &watcher) {
            watcher.text(&error.message);
        }
        result.map_err(Ok)
    }

    /// Records the response's head.
    fn note(&mut self, answer: Answer) -> Result<(u16, egress::AnswerBody), Failure> {
        let (head, body) = answer.response.into_parts();
        if head.status.is_informational() {
            return Err(Failure::new(Kind::Rubbish, "The origin switched protocols unasked"));
        }
        if let Some(jar) = &self.jar {
            jar.take(self.target()?.as_str(), &head.headers);
        }
        let target = self.target()?.clone();
        let timing = answer.timing;
        let mut so_far = self.so_far();
        so_far.status = head.status.as_u16();
        so_far.version = match head.version {
            Version::HTTP_2 => 20,
            Version::HTTP_10 => 10,
            _ => 11,
        };
        so_far.headers = head.headers;
        so_far.target = Some(target);
        so_far.address = timing.address;
        so_far.peer = answer.secured.map(|secured| Arc::new(Peer::new(secured)));
        so_far.timings = Timings {
            resolved: timing.resolved,
            connected: timing.connected,
            secured: timing.secured,
            first_byte: timing.first_byte,
            reused: timing.reused,
            ..so_far.timings
        };
        Ok((so_far.status, body))
    }

    /// Returns whether the origin asks for Digest and the request can answer.
    fn challenge(&mut self) -> bool {
        let mine = self.settings.auth.mode == AuthMode::Digest
            && (self.at_home || self.settings.unrestricted_auth)
            && !self.headers.contains_key(AUTHORIZATION);
        if !mine || self.challenged >= CHALLENGES {
            return false;
        }
        let whole = self.whole_body().is_some();
        let challenge = digest::challenge(&self.so_far().headers, whole);
        let Some(challenge) = challenge else { return false };
        // A second challenge that is not stale means that the password is wrong.
        if self.challenged > 0 && !challenge.stale {
            return false;
        }
        self.challenged += 1;
        self.digest = Some(Session::new(challenge));
        self.forget_head();
        true
    }

    /// Discards the response so far; keeps it if `history` is set.
    fn forget_head(&self) {
        let mut so_far = self.so_far();
        let timings = so_far.timings;
        let mut history = std::mem::take(&mut so_far.history);
        let past = std::mem::take(&mut *so_far);
        if self.settings.history {
            history.push(Arc::new(past));
        }
        so_far.history = history;
        so_far.timings = Timings {
            queued: timings.queued,
            redirects: timings.redirects,
            retries: timings.retries,
            ..Timings::default()
        };
    }

    /// Follows a redirect. Returns true if the request continues there.
    async fn redirected(&mut self, status: u16) -> Result<bool, Failure> {
        let from = self.target()?.clone();
        let mut foreign = None;
        let next = {
            let mut so_far = self.so_far();
            let Some(location) = so_far.headers.get(LOCATION) else { return Ok(false) };
            let joined = from.join(location.as_bytes());
            if let Ok(next) = &joined {
                so_far.redirect = Some(next.as_str().into());
            } else {
                foreign = from.foreign_scheme(location.as_bytes());
            }
            joined
        };
        let followed = self.so_far().timings.redirects;
        let Some(onward) = redirect::onward(self.settings.follow, status, &self.method, followed)
        else {
            return Ok(false);
        };
        let next = next.map_err(|refused| match foreign {
            Some(scheme) => {
                Failure::new(Kind::Protocol, format!("Protocol \"{scheme}\" not supported"))
            }
            None => Failure::new(Kind::Url, refused.message),
        })?;
        if let Some(most) = self.settings.max_redirects
            && followed >= most
        {
            let what = format!("Maximum ({most}) redirects followed");
            return Err(Failure::new(Kind::TooManyRedirects, what));
        }
        let mut key = self.settings.key(&next)?;
        let home = self.in_flight.spec.target.as_ref();
        self.at_home = home.is_some_and(|home| redirect::same_origin(home, &next));
        let trusted = self.settings.unrestricted_auth;
        if !self.at_home && !trusted {
            key.certificate = None;
        }
        let other = !redirect::same_origin(&from, &next) && !trusted;
        redirect::strip(&mut self.headers, onward, other);
        if onward == Onward::Get {
            if let Some(reading) = self.reading.take() {
                reading.store(false, Relaxed);
            }
            if self.method != Method::HEAD {
                self.method = Method::GET;
            }
            self.with_body = false;
            self.track.again();
        } else {
            self.rewind().await?;
        }
        if other {
            self.digest = None;
            self.challenged = 0;
        }
        self.forget_head();
        if next.is_file() {
            self.so_far().status = status;
        }
        self.so_far().timings.redirects += 1;
        self.io.runtime.numbers.redirects.fetch_add(1, Relaxed);
        self.redirected = Some((next, key));
        Ok(true)
    }

    fn print_outcome(&self, result: &Result<Answer, Result<CallError, Failure>>, began: Instant) {
        let target = self.target().map_or("", Target::as_str);
        let took = began.elapsed().as_micros();
        match result {
            Ok(answer) => {
                let status = answer.response.status().as_u16();
                note(&format!("{} {target}: {status} after {took} us", self.method));
            }
            Err(Ok(error)) => {
                note(&format!("{} {target}: {error} after {took} us", self.method));
            }
            Err(Err(failure)) => note(&format!("{} {target}: {failure}", self.method)),
        }
    }
}

/// Passes an interim response on to the caller.
fn pass_interim(
    io: &Arc<Io>,
    in_flight: &Arc<InFlight>,
    interim: calls::Interim,
    status: http::StatusCode,
    headers: &HeaderMap,
) {
    let response =
        Response { status: status.as_u16(), headers: headers.clone(), ..Response::default() };
    let (response, caller) = (Arc::new(response), Arc::clone(in_flight));
    io.runtime.callbacks.notify(in_flight.spec.threaded, move || {
        if interim.call(caller.request().as_ref(), &response) == Flow::Abort {
            caller.abort();
        }
    });
}

#[expect(clippy::print_stderr, reason = "the option verbose promises it")]
fn note(what: &str) {
    eprintln!("hearth: {what}");
}
