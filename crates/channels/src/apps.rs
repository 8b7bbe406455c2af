//! Defines how applications are looked up.

use std::fmt;
use std::sync::Arc;

use crate::app::App;

/// A reference to an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppRef<'a> {
    /// The key in a client's address.
    Key(&'a str),
    /// The id in a path of the HTTP API.
    Id(&'a str),
}

/// The immediate result of a look-up.
#[derive(Clone, Debug)]
pub enum Found {
    /// The application is known.
    App(Arc<App>),
    /// The application does not exist.
    None,
    /// The application must be looked up with [`Apps::ask`].
    Unknown,
}

/// The error returned when it cannot be determined whether the application exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the application cannot be looked up at the moment")]
pub struct Unavailable;

/// Result of an asynchronous look-up; `Ok(None)` means that the application does not exist.
pub type Answered = Result<Option<Arc<App>>, Unavailable>;

/// Callback that receives the result, on any thread.
pub type Answer = Box<dyn FnOnce(Answered) + Send>;

/// The set of applications whose clients may connect.
pub trait Apps: fmt::Debug + Send + Sync {
    /// Returns what is known immediately. Never waits.
    fn find(&self, app: AppRef<'_>) -> Found;

    /// Looks up an application that [`Apps::find`] does not know, and calls `answer` now or later. Never waits
    /// itself.
    fn ask(&self, app: AppRef<'_>, answer: Answer) {
        answer(Ok(match self.find(app) {
            Found::App(app) => Some(app),
            Found::None | Found::Unknown => None,
        }));
    }
}

/// A fixed set of applications, all known from the start.
#[derive(Clone, Debug, Default)]
pub struct FixedApps(Vec<Arc<App>>);

impl FixedApps {
    /// Creates the set.
    pub fn new(apps: impl IntoIterator<Item = App>) -> Self {
        Self(apps.into_iter().map(Arc::new).collect())
    }

    /// Returns all applications.
    pub fn all(&self) -> &[Arc<App>] {
        &self.0
    }
}

impl Apps for FixedApps {
    fn find(&self, app: AppRef<'_>) -> Found {
        let found = self.0.iter().find(|candidate| match app {
            AppRef::Key(key) => *candidate.key == *key,
            AppRef::Id(id) => *candidate.id == *id,
        });
        found.map_or(Found::None, |app| Found::App(Arc::clone(app)))
    }
}
