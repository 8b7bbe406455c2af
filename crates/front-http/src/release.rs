//! A release: its applications, their claims, files and scripts. It can be replaced while the front serves.
//!
//! Invariants
//! - A request uses one release from its routing to its response: never files of one and scripts of another.
//! - It uses one application of the release: its files, scripts and workers.
//! - A replaced release is dropped, together with its application, when its last request has ended.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use crate::claims::{Claim, Claims, Unclaimed};
use crate::files::FileOptions;
use crate::forwarded::ForwardedInfo;
use crate::front::BindError;
use crate::options::Options;
use crate::request_head;
use crate::route::{self, Router};
use crate::rules::Rules;
use crate::sendfile::Sendfile;
use crate::websocket::WebSocketOptions;

/// One of several applications.
#[derive(Clone, Debug)]
pub struct Hosted {
    /// Name for the access log.
    pub name: Arc<str>,
    /// The requests of the application. No two applications of a release have the same claim.
    pub claims: Vec<Claim>,
    /// Settings, of which only files, scripts and `Cache-Control` are used.
    pub options: Options,
}

/// The files of one application and its routing.
pub(crate) struct Part {
    /// Name of the application, if there are several.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) router: Router,
    pub(crate) files: FileOptions,
    pub(crate) sendfile: Sendfile,
    pub(crate) websockets: WebSocketOptions,
}

impl Part {
    fn new(name: Option<Arc<str>>, options: &Options) -> Result<Self, BindError> {
        Ok(Self {
            name,
            router: Router::new(&options.document_root, &options.routing, options.static_files),
            files: FileOptions::new(options).map_err(|cause| BindError::CacheControl {
                value: options.cache_control.clone().unwrap_or_default(),
                cause,
            })?,
            sendfile: Sendfile::new(&options.sendfile),
            websockets: options.websockets.clone(),
        })
    }
}

/// A release as the front sees it, without the applications that answer.
pub struct Release {
    parts: Box<[Part]>,
    /// The claims; `None` if there is only one application.
    claims: Option<Claims>,
    /// Rules for all requests.
    pub(crate) rules: Option<Arc<Rules>>,
}

impl fmt::Debug for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routers = self.parts.iter().map(|part| &part.router);
        f.debug_list().entries(routers).finish()
    }
}

impl Release {
    /// Creates a release from the settings of files, scripts and `Cache-Control`. Listeners, limits and certificates
    /// belong to the front for its whole life.
    pub fn new(options: &Options) -> Result<Self, BindError> {
        Ok(Self {
            parts: [Part::new(None, options)?].into(),
            claims: None,
            rules: Rules::new(&options.rules)?,
        })
    }

    /// Creates a release of several applications, with the rules of the first one's options. [`Switch::to`] expects
    /// their handlers in the same order.
    pub fn of(applications: &[Hosted]) -> Result<Self, BindError> {
        let part = |hosted: &Hosted| Part::new(Some(Arc::clone(&hosted.name)), &hosted.options);
        let claims = applications.iter().zip(0..);
        let claims = claims
            .flat_map(|(hosted, number)| hosted.claims.iter().map(move |claim| (claim, number)));
        Ok(Self {
            parts: applications.iter().map(part).collect::<Result<_, _>>()?,
            claims: Some(Claims::new(claims)),
            rules: match applications.first() {
                Some(first) => Rules::new(&first.options.rules)?,
                None => None,
            },
        })
    }

    /// Returns the number of a request's application. `forwarded` is given if a trusted proxy's host counts.
    pub(crate) fn choose(
        &self,
        forwarded: Option<&ForwardedInfo>,
        parts: &http::request::Parts,
    ) -> Result<usize, Unclaimed> {
        let Some(claims) = &self.claims else { return Ok(0) };
        let host = request_head::host_of(forwarded, &parts.headers).unwrap_or_default();
        // An invalid path is rejected before claims are compared.
        let path = route::clean(parts.uri.path()).map_err(|_refused| Unclaimed::Path)?;
        claims.choose(host, path.as_bytes())
    }

    pub(crate) fn part(&self, number: usize) -> &Part {
        &self.parts[number]
    }
}

/// A release with the applications that answer.
pub(crate) struct Current<A> {
    /// The release's number: a later release has a larger one.
    pub(crate) number: u64,
    pub(crate) release: Release,
    /// The application of each part of the release.
    pub(crate) applications: Box<[A]>,
}

impl<A> Current<A> {
    fn new(release: Release, applications: Box<[A]>) -> Arc<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { number, release, applications })
    }
}

/// Selects the current release. Clones share the same state.
pub struct Switch<A>(Arc<RwLock<Arc<Current<A>>>>);

impl<A> Clone for Switch<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<A> fmt::Debug for Switch<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Switch")
    }
}

impl<A> Switch<A> {
    pub(crate) fn new(release: Release, application: A) -> Self {
        let applications = [application].into();
        Self(Arc::new(RwLock::new(Current::new(release, applications))))
    }

    /// Returns the current release.
    pub(crate) fn current(&self) -> Arc<Current<A>> {
        Arc::clone(&self.0.read().expect("no holder panics"))
    }

    /// Makes this release current for all further requests; `applications` has one entry for each part. Requests in
    /// progress keep their release; the old applications are dropped when the last of them has its response head.
    pub fn to(&self, release: Release, applications: impl IntoIterator<Item = A>) {
        let applications: Box<[A]> = applications.into_iter().collect();
        assert_eq!(applications.len(), release.parts.len(), "one answers for each part");
        let current = Current::new(release, applications);
        let old = std::mem::replace(&mut *self.0.write().expect("no holder panics"), current);
        // Dropped outside of the lock, because it may be the last reference.
        drop(old);
    }
}
