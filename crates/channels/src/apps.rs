//! Where applications are looked up.

use std::fmt;
use std::sync::Arc;

use crate::app::App;

/// What an application is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppRef<'a> {
    /// By what clients have in their address.
    Key(&'a str),
    /// By what the HTTP API's paths have.
    Id(&'a str),
}

/// What is known of an application at once.
#[derive(Clone, Debug)]
pub enum Found {
    /// This is it.
    App(Arc<App>),
    /// There is none.
    None,
    /// That has to be asked for: [`Apps::ask`].
    Unknown,
}

/// Nobody can say at the moment whether there is such an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the application cannot be looked up at the moment")]
pub struct Unavailable;

/// What comes of asking; none: there is no such application.
pub type Answered = Result<Option<Arc<App>>, Unavailable>;

/// What is called with the answer, on any thread.
pub type Answer = Box<dyn FnOnce(Answered) + Send>;

/// The applications whose clients may come.
pub trait Apps: fmt::Debug + Send + Sync {
    /// What is known at once. Never waits.
    fn find(&self, app: AppRef<'_>) -> Found;

    /// Asks for what [`Apps::find`] does not know, and answers at once or later; none when there is no such application, or nobody to ask.
    /// Never waits itself.
    fn ask(&self, app: AppRef<'_>, answer: Answer) {
        answer(Ok(match self.find(app) {
            Found::App(app) => Some(app),
            Found::None | Found::Unknown => None,
        }));
    }
}

/// Applications that are all known from the beginning.
#[derive(Clone, Debug, Default)]
pub struct FixedApps(Vec<Arc<App>>);

impl FixedApps {
    /// These.
    pub fn new(apps: impl IntoIterator<Item = App>) -> Self {
        Self(apps.into_iter().map(Arc::new).collect())
    }

    /// All of them.
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
