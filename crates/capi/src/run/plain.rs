//! Tries of requests without fields, cookies or a body of their own: most requests. Their fields are those of their settings, which are written
//! once for many requests.

use std::sync::Arc;

use egress::{Plain, SharedFields};
use http::Method;
use http::uri::PathAndQuery;

use super::Way;
use crate::error::{Failure, Kind};
use crate::sys::lock;

impl<'a> Way<'a> {
    /// Returns the try if it is a plain one.
    pub(super) fn plain(&self) -> Result<Option<Plain<'a>>, Failure> {
        let own = !self.headers.is_empty()
            || self.with_body
            || self.jar.is_some()
            || self.digest.is_some()
            || self.redirected.is_some()
            || self.extras.is_some_and(|extras| !extras.removed.is_empty())
            || matches!(self.method, Method::POST | Method::PUT | Method::PATCH);
        let target = self.target()?;
        let Some(route) = self.host.route.as_ref().filter(|route| route.is_to(target.authority()))
        else {
            return Ok(None);
        };
        let Some(fields) = (!own).then(|| self.shared_fields()).transpose()?.flatten() else {
            return Ok(None);
        };
        let path = PathAndQuery::from_maybe_shared(target.shared_path());
        let path = path.map_err(|why| Failure::new(Kind::Url, format!("URL: {why}")))?;
        Ok(Some(Plain { route, method: self.method.clone(), path, fields, limits: self.limits() }))
    }

    /// Returns the fields of a plain try. `None`: they cannot be shared.
    fn shared_fields(&self) -> Result<Option<Arc<SharedFields>>, Failure> {
        let settings = &self.in_flight.spec.settings;
        let mut last = lock(&self.host.fields);
        if let Some((of, fields)) = &*last
            && Arc::ptr_eq(of, settings)
        {
            return Ok(Some(Arc::clone(fields)));
        }
        let Ok(fields) = SharedFields::new(self.fields(Some(0))?) else { return Ok(None) };
        let fields = Arc::new(fields);
        let before = last.replace((Arc::clone(settings), Arc::clone(&fields)));
        drop(last);
        drop(before);
        Ok(Some(fields))
    }
}
