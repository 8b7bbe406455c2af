//! What a release of the application brings along: which requests are files, where those lie, its certificate, and what answers the
//! others. It can be replaced while the front serves.
//!
//! Invariants
//! - A request sees one release from its routing to its answer: never files of one and scripts of another.
//! - Who replaces a release learns when the last request has let go of it: its application is dropped then.

use std::fmt;
use std::sync::{Arc, RwLock};

use tokio_rustls::TlsAcceptor;

use crate::files::FileOptions;
use crate::front::BindError;
use crate::options::Options;
use crate::route::Router;
use crate::sendfile::Sendfile;
use crate::tls;

/// One release as the front sees it, but for the application that answers.
pub struct Release {
    pub(crate) router: Router,
    pub(crate) files: FileOptions,
    pub(crate) sendfile: Sendfile,
    pub(crate) tls: Option<TlsAcceptor>,
}

impl fmt::Debug for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Release").field("router", &self.router).finish_non_exhaustive()
    }
}

impl Release {
    /// What `options` say of files, scripts, `Cache-Control` and the certificate, which is read; what they say of listeners and limits
    /// belongs to the front for as long as it lives.
    pub fn new(options: &Options) -> Result<Self, BindError> {
        Ok(Self {
            router: Router::new(&options.document_root, &options.routing, options.static_files),
            files: FileOptions::new(options).map_err(|cause| BindError::CacheControl {
                value: options.cache_control.clone().unwrap_or_default(),
                cause,
            })?,
            sendfile: Sendfile::new(&options.sendfile),
            tls: options.tls.as_ref().map(tls::acceptor).transpose()?,
        })
    }
}

/// A release and what answers for it.
pub(crate) struct Current<A> {
    pub(crate) release: Release,
    pub(crate) application: A,
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
        Self(Arc::new(RwLock::new(Arc::new(Current { release, application }))))
    }

    /// What the next request sees.
    pub(crate) fn current(&self) -> Arc<Current<A>> {
        Arc::clone(&self.0.read().expect("no holder panics"))
    }

    /// Has every request that comes from now on, and every TLS handshake, see this release. Those that have begun keep theirs; the old
    /// application is dropped when the last of them has its answer's head.
    pub fn to(&self, release: Release, application: A) {
        let current = Arc::new(Current { release, application });
        let old = std::mem::replace(&mut *self.0.write().expect("no holder panics"), current);
        // Not under the lock: it may be the last.
        drop(old);
    }
}
