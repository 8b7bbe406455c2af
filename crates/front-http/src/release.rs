//! What a release brings along: its applications, which requests are for which, which of those are files, where these lie, and what answers the others. It can
//! be replaced while the front serves.
//!
//! Invariants
//! - A request sees one release from its routing to its answer: never files of one and scripts of another.
//! - It sees one application of it: files, scripts and workers are that one's.
//! - Who replaces a release learns when the last request has let go of it: its application is dropped then.

use std::fmt;
use std::sync::{Arc, RwLock};

use crate::claims::{Claim, Claims, Unclaimed};
use crate::files::FileOptions;
use crate::forwarded::Told;
use crate::front::BindError;
use crate::options::Options;
use crate::request_head;
use crate::route::{self, Router};
use crate::sendfile::Sendfile;

/// One of several applications, as the front sees it.
#[derive(Clone, Debug)]
pub struct Hosted {
    /// For the access log.
    pub name: Arc<str>,
    /// The requests that are for it. No two of a release claim the same.
    pub claims: Vec<Claim>,
    /// Of these only what they say of files, scripts and `Cache-Control` is looked at.
    pub options: Options,
}

/// The files of one application, and what they are not.
pub(crate) struct Part {
    /// Where there are several.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) router: Router,
    pub(crate) files: FileOptions,
    pub(crate) sendfile: Sendfile,
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
        })
    }
}

/// One release as the front sees it, but for what answers.
pub struct Release {
    parts: Box<[Part]>,
    /// None: the only part answers everything.
    claims: Option<Claims>,
}

impl fmt::Debug for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routers = self.parts.iter().map(|part| &part.router);
        f.debug_list().entries(routers).finish()
    }
}

impl Release {
    /// What `options` say of files, scripts and `Cache-Control`; what they say of listeners, limits and certificates belongs to the front for
    /// as long as it lives.
    pub fn new(options: &Options) -> Result<Self, BindError> {
        Ok(Self { parts: [Part::new(None, options)?].into(), claims: None })
    }

    /// Several applications. What answers for each stands at the same place of what [`Switch::to`] gets.
    pub fn of(applications: &[Hosted]) -> Result<Self, BindError> {
        let part = |hosted: &Hosted| Part::new(Some(Arc::clone(&hosted.name)), &hosted.options);
        let claims = applications.iter().zip(0..);
        let claims = claims
            .flat_map(|(hosted, number)| hosted.claims.iter().map(move |claim| (claim, number)));
        Ok(Self {
            parts: applications.iter().map(part).collect::<Result<_, _>>()?,
            claims: Some(Claims::new(claims)),
        })
    }

    /// The number of the application that a request is for. `told`: given if a trusted proxy's host counts.
    pub(crate) fn choose(
        &self,
        told: Option<&Told>,
        parts: &http::request::Parts,
    ) -> Result<usize, Unclaimed> {
        let Some(claims) = &self.claims else { return Ok(0) };
        let host = request_head::host_of(told, &parts.headers).unwrap_or_default();
        // What is no path is refused before anybody is asked whose it is.
        let path = route::clean(parts.uri.path()).map_err(|_refused| Unclaimed::Path)?;
        claims.choose(host, path.as_bytes())
    }

    pub(crate) fn part(&self, number: usize) -> &Part {
        &self.parts[number]
    }
}

/// A release and what answers for it.
pub(crate) struct Current<A> {
    pub(crate) release: Release,
    /// For each part of the release.
    pub(crate) applications: Box<[A]>,
}

/// Which release answers. Cheap to clone: all clones are the same switch.
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
        Self(Arc::new(RwLock::new(Arc::new(Current { release, applications }))))
    }

    /// What the next request sees.
    pub(crate) fn current(&self) -> Arc<Current<A>> {
        Arc::clone(&self.0.read().expect("no holder panics"))
    }

    /// Has every request that comes from now on see this release, and be answered by what stands in `applications` for its part. Those that have
    /// begun keep theirs; the old applications are dropped when the last of them has its answer's head.
    pub fn to(&self, release: Release, applications: impl IntoIterator<Item = A>) {
        let applications: Box<[A]> = applications.into_iter().collect();
        assert_eq!(applications.len(), release.parts.len(), "one answers for each part");
        let current = Arc::new(Current { release, applications });
        let old = std::mem::replace(&mut *self.0.write().expect("no holder panics"), current);
        // Not under the lock: it may be the last.
        drop(old);
    }
}
