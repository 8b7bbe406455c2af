//! The files that an application preloads (`php.preload`), and why not more.

use serde::Serialize;

use crate::ops::metric::metrics_table;

/// The files that an application preloads.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Preloaded {
    /// How many files OPcache has preloaded, by its own count.
    pub files: usize,
    /// How many files requests have included.
    pub learned: usize,
    /// Files that are not preloaded, by reason.
    pub refused: Vec<Refused>,
    /// Why no file is preloaded.
    pub off: Option<String>,
}

/// Files that are not preloaded, for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Refused {
    /// The reason, in words that follow "not preloaded: ".
    pub why: &'static str,
    pub files: usize,
    /// One of these files.
    pub first: String,
}

impl Preloaded {
    /// Nothing is preloaded, for this reason.
    pub(crate) fn off(why: impl Into<String>) -> Self {
        Self { off: Some(why.into()), ..Self::default() }
    }

    /// Describes it in one line.
    pub(crate) fn text(&self) -> String {
        match &self.off {
            Some(why) => format!("`php.preload` is off: {why}"),
            None => format!("{} of {} included files are preloaded", self.files, self.learned),
        }
    }

    pub(crate) fn set_metrics(&self, application: &str) {
        metrics_table! { &[("application", application.to_owned())];
            gauge "hearth_preloaded_files" = self.files, "Files that PHP has preloaded (`php.preload`)";
            gauge "hearth_preload_off" = self.off.is_some(), "1 if `php.preload` is set and nothing is preloaded: /status has the reason";
        }
    }
}
