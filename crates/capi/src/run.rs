//! Runs one request to its response: redirects, tries, authentication, cookies.
//!
//! Invariants
//! - Secrets are sent only to the origin that they were meant for, unless the caller permits otherwise.
//! - One try at a time reads a body.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use egress::{Answer, Call, CallError, Fate, Interim, Key, Limits, Tap};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, COOKIE, EXPECT, LOCATION, RANGE,
    TRAILER, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use tokio::time::Instant;

use crate::calls::{Far, Flow};
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
use crate::target::Target;
use crate::{local_file, retry, upload};

/// The time limit for a connection to become free; the request's own limit may end it earlier.
const TURN: Duration = Duration::from_hours(24);
/// How often an origin may send a challenge: at first, and with a stale nonce.
const CHALLENGES: u32 = 2;
/// The shortest interval between two reports of progress.
const TELL: Duration = Duration::from_millis(50);
/// The value of Accept-Encoding if the response may be compressed.
static ENCODINGS: HeaderValue = HeaderValue::from_static("gzip, deflate, br, zstd");
const ANYTHING: HeaderValue = HeaderValue::from_static("*/*");

/// Makes a request. `so_far` holds what is known of its response at each moment.
pub(crate) async fn run(
    io: &Arc<Io>,
    host: &Arc<Host>,
    in_flight: &Arc<InFlight>,
    so_far: &Mutex<Response>,
) -> Result<(), Failure> {
    #[cfg(test)]
    provoked(in_flight);
    let track = Arc::new(Track::new());
    let spec = &in_flight.spec;
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
        failure = tell(io, in_flight, &track, &mut far) => Err(failure),
    };
    drop(way);
    if result.is_ok() && progress.is_some() {
        tell_once(io, in_flight, &track).await?;
    }
    result
}

/// Injects a fault, for tests.
#[cfg(test)]
fn provoked(in_flight: &InFlight) {
    let path = in_flight.spec.target.as_ref().map(Target::path);
    assert_ne!(path, Some("/provoke/a/fault"), "a fault that a test has asked for");
}

async fn idle(track: &Track, limit: Option<Duration>) -> Failure {
    let Some(limit) = limit else { return std::future::pending().await };
    track.idle(limit).await;
    let what = format!("Nothing came or went for {} milliseconds", limit.as_millis());
    Failure::new(Kind::IdleTimeout, what)
}

/// Reports progress while bytes move. Returns when the caller cancels.
async fn tell(
    io: &Arc<Io>,
    in_flight: &Arc<InFlight>,
    track: &Arc<Track>,
    told: &mut Far,
) -> Failure {
    if in_flight.spec.extras.as_ref().is_none_or(|extras| extras.progress.is_none()) {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(TELL).await;
        let far = track.far();
        if far != *told {
            *told = far;
            if let Err(failure) = tell_once(io, in_flight, track).await {
                return failure;
            }
        }
    }
}

async fn tell_once(
    io: &Arc<Io>,
    in_flight: &Arc<InFlight>,
    track: &Arc<Track>,
) -> Result<(), Failure> {
    let Some(progress) = in_flight.spec.extras.as_ref().and_then(|extras| extras.progress) else {
        return Ok(());
    };
    let (caller, far) = (Arc::clone(in_flight), track.far());
    let threaded = in_flight.spec.threaded;
    let _held = track.hold();
    let said = io
        .runtime
        .callbacks
        .ask(threaded, move || progress.call(caller.request.as_ref(), far))
        .await;
    if said == Some(Flow::Abort) { Err(aborted(in_flight)) } else { Ok(()) }
}

/// The error of a callback that has cancelled.
pub(crate) fn aborted(in_flight: &InFlight) -> Failure {
    in_flight.abort();
    Failure::new(Kind::Aborted, "The request was aborted")
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
        so_far.lock().unwrap_or_else(PoisonError::into_inner).timings.queued =
            began - in_flight.began;
        Self {
            io,
            host,
            in_flight,
            settings: &spec.settings,
            extras,
            so_far,
            track,
            redirected: None,
            method: spec.method.clone(),
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
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner)
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
                return self.read_file().await;
            }
            let began = Instant::now();
            let result = self.send().await;
            if self.settings.verbose {
                self.say(&result, began);
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

    /// Makes one try. The outer error is one that no other try can repair.
    async fn send(&mut self) -> Result<Answer, Result<CallError, Failure>> {
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
                body.await.map_err(Err)?
            }
            _ => upload::empty(),
        };
        let key = match &self.redirected {
            Some((_, key)) => key.clone(),
            None => self.host.key.clone(),
        };
        let mut request = Request::new(upload.body);
        *request.uri_mut() = self.uri().map_err(Err)?;
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = self.fields(upload.length).map_err(Err)?;
        *request.method_mut() = self.method.clone();
        let limits = Limits { connect: self.settings.connect_timeout, queue: TURN };
        let (io, in_flight) = (self.io, self.in_flight);
        let interim = self.extras.and_then(|extras| extras.interim);
        let watcher = Watcher::new(&io.runtime, in_flight, self.track);
        let called = io.runtime.egress.call_tapped(
            Call { key, request, limits, scope: None },
            watcher.as_ref().map(|watcher| watcher as &dyn Tap),
            |(status, headers, _): Interim<'_>| {
                let Some(interim) = interim else { return };
                let response = Response {
                    status: status.as_u16(),
                    headers: headers.clone(),
                    ..Response::default()
                };
                let (response, caller) = (Arc::new(response), Arc::clone(in_flight));
                io.runtime.callbacks.tell(in_flight.spec.threaded, move || {
                    if interim.call(caller.request.as_ref(), &response) == Flow::Abort {
                        caller.abort();
                    }
                });
            },
        );
        let result = called.await;
        if let (Err(error), Some(watcher)) = (&result, &watcher) {
            watcher.say(&error.message);
        }
        result.map_err(Ok)
    }

    fn uri(&self) -> Result<Uri, Failure> {
        let target = self.target()?;
        Uri::try_from(target.as_str()).map_err(|why| Failure::new(Kind::Url, format!("URL: {why}")))
    }

    fn asks_for_compression(&self) -> bool {
        self.settings.accept_compression
            && self.settings.range.is_none()
            && !self.headers.contains_key(ACCEPT_ENCODING)
            && !self.headers.contains_key(RANGE)
            && !self.removed(&ACCEPT_ENCODING)
    }

    /// Whether the caller has removed this default field.
    fn removed(&self, name: &HeaderName) -> bool {
        self.extras.is_some_and(|extras| extras.removed.contains(name))
    }

    /// The fields of a request: the library's, then the caller's.
    fn fields(&self, length: Option<u64>) -> Result<HeaderMap, Failure> {
        let mut fields = HeaderMap::with_capacity(self.headers.len() + 6);
        let mut default = |name: HeaderName, value: Option<HeaderValue>| {
            if let Some(value) = value
                && !self.headers.contains_key(&name)
                && !self.removed(&name)
            {
                fields.insert(name, value);
            }
        };
        default(USER_AGENT, self.settings.user_agent.clone());
        default(ACCEPT, Some(ANYTHING));
        let encodings = self.settings.encodings.as_ref().unwrap_or(&ENCODINGS);
        default(ACCEPT_ENCODING, self.asks_for_compression().then(|| encodings.clone()));
        default(RANGE, self.settings.range.clone());
        if self.at_home || self.settings.unrestricted_auth {
            default(AUTHORIZATION, self.authorization()?);
        }
        for (name, value) in &self.headers {
            fields.append(name.clone(), value.clone());
        }
        if let Some(jar) = &self.jar
            && let Some(cookies) = jar.field(self.target()?.as_str())
        {
            let both = match fields.get(COOKIE) {
                Some(own) => {
                    HeaderValue::from_bytes(&[own.as_bytes(), b"; ", cookies.as_bytes()].concat())
                }
                None => Ok(cookies),
            };
            if let Ok(both) = both {
                fields.insert(COOKIE, both);
            }
        }
        if self.with_body {
            if let Some(length) = length {
                fields.insert(CONTENT_LENGTH, HeaderValue::from(length));
            }
            if self.settings.expect_continue {
                fields.insert(EXPECT, HeaderValue::from_static("100-continue"));
            }
            if let Some(extras) = self.extras.filter(|extras| !extras.trailers.is_empty()) {
                let names: Vec<_> = extras.trailers.keys().map(HeaderName::as_str).collect();
                if let Ok(names) = HeaderValue::try_from(names.join(", ")) {
                    fields.insert(TRAILER, names);
                }
            }
        } else if matches!(self.method, Method::POST | Method::PUT | Method::PATCH) {
            fields.insert(CONTENT_LENGTH, HeaderValue::from(0));
        }
        Ok(fields)
    }

    /// The request's body, if it is in memory.
    fn whole_body(&self) -> Option<&[u8]> {
        match self.extras.filter(|_| self.with_body).map(|extras| &extras.body) {
            None | Some(Payload::None) => Some(&[]),
            Some(Payload::Bytes(bytes)) => Some(bytes),
            Some(Payload::File(_) | Payload::Source(_)) => None,
        }
    }

    fn authorization(&self) -> Result<Option<HeaderValue>, Failure> {
        let auth = &self.settings.auth;
        let field = match auth.mode {
            AuthMode::None => return Ok(None),
            AuthMode::Basic => {
                format!("Basic {}", STANDARD.encode(format!("{}:{}", auth.user, auth.secret)))
            }
            AuthMode::Bearer => format!("Bearer {}", auth.secret),
            AuthMode::Digest => {
                let Some(session) = &self.digest else { return Ok(None) };
                let path = self.target()?.path();
                let body = self.whole_body();
                return Ok(session.answer(
                    &auth.user,
                    &auth.secret,
                    self.method.as_str(),
                    path,
                    body,
                ));
            }
        };
        let mut field = HeaderValue::try_from(field).map_err(|_bytes| {
            Failure::new(Kind::Unsupported, "The secret is no value of a field")
        })?;
        field.set_sensitive(true);
        Ok(Some(field))
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

    /// Whether the origin asks for Digest and the request can answer.
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
        // A second one that is not stale says that the password is wrong.
        if self.challenged > 0 && !challenge.stale {
            return false;
        }
        self.challenged += 1;
        self.digest = Some(Session::new(challenge));
        self.forget_head();
        true
    }

    /// Discards what is known of a response; keeps it if `history` is set.
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

    fn tries(&self) -> u32 {
        self.so_far().timings.retries
    }

    async fn after_failure(&mut self, error: CallError) -> Result<(), Failure> {
        let sent = error.fate == Fate::Failed;
        let kept = error.kept;
        let mut failure = Failure::from(error);
        if let Some(why) = self.track.failure() {
            failure = Failure::new(Kind::Source, format!("The body cannot be read: {why}"));
        }
        if self.stale < retry::STALE && retry::was_stale(kept, failure.kind, &self.method) {
            self.stale += 1;
            return self.rewind().await.map_err(|_gone| failure);
        }
        match retry::after_failure(
            &self.settings.retry,
            self.tries(),
            failure.kind,
            sent,
            &self.method,
        ) {
            Some(delay) => self.again(delay).await.map_err(|_gone| failure),
            None => Err(failure),
        }
    }

    fn retry_after(&self, status: u16) -> Option<Duration> {
        let so_far = self.so_far();
        let tries = so_far.timings.retries;
        retry::after_answer(&self.settings.retry, tries, status, &so_far.headers, &self.method)
    }

    async fn again(&mut self, delay: Duration) -> Result<(), Failure> {
        self.rewind().await?;
        self.forget_head();
        self.so_far().timings.retries += 1;
        self.io.runtime.numbers.retries.fetch_add(1, Relaxed);
        let _held = self.track.hold();
        tokio::time::sleep(delay).await;
        Ok(())
    }

    /// Rewinds the body.
    async fn rewind(&mut self) -> Result<(), Failure> {
        if let Some(reading) = self.reading.take() {
            reading.store(false, Relaxed);
        }
        let begun = self.track.begun();
        self.track.again();
        if !self.with_body || !begun {
            return Ok(());
        }
        let Some(Payload::Source(source)) = self.extras.map(|extras| &extras.body) else {
            return Ok(());
        };
        let (source, caller) = (*source, Arc::clone(self.in_flight));
        let threaded = self.in_flight.spec.threaded;
        let _held = self.track.hold();
        let can = self
            .io
            .runtime
            .callbacks
            .ask(threaded, move || source.rewind(caller.request.as_ref()))
            .await;
        if can == Some(true) {
            return Ok(());
        }
        Err(Failure {
            code: 65,
            ..Failure::new(Kind::Source, "necessary data rewind wasn't possible")
        })
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

    fn say(&self, result: &Result<Answer, Result<CallError, Failure>>, began: Instant) {
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

#[expect(clippy::print_stderr, reason = "the option verbose promises it")]
fn note(what: &str) {
    eprintln!("hearth: {what}");
}
