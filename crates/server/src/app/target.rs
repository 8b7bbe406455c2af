//! The target on the command line: an application, and the flags about it.

use std::path::PathBuf;

use crate::config::Raw;

/// An application and the flags about it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The path as given.
    pub path: PathBuf,
    /// `--config`.
    pub config: Option<PathBuf>,
    /// Values by setting.
    pub flags: Vec<(&'static str, Raw)>,
}

/// The target of `hearth lambda`, and the flags about it.
#[derive(Debug)]
pub(crate) struct LambdaTarget {
    /// The path as given.
    pub path: Option<PathBuf>,
    /// `--config`.
    pub config: Option<PathBuf>,
    /// Values by setting.
    pub flags: Vec<(&'static str, Raw)>,
}
