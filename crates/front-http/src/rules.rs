//! Rules of the operator for requests, before any application sees them, and for the fields of answers.
//!
//! Invariants
//! - A server without rules tests one pointer per request.
//! - Rules belong to a release: a reload replaces them.
//! - A path is compared as the router decodes it, and under each name by which a front controller would see it: no
//!   spelling bypasses a rule.

mod basic_auth;
#[cfg(any(test, fuzzing))]
mod fuzz;
mod header;
mod rate_limit;
mod redirect;

pub use self::basic_auth::PasswordRule;
pub(crate) use self::basic_auth::{Asking, BasicAuth, Denied};
#[cfg(fuzzing)]
pub(crate) use self::fuzz::fuzz;
pub(crate) use self::header::{Chosen, Fields};
pub use self::header::{FieldRule, NoFieldRule};
pub use self::rate_limit::{NoRateLimit, RateLimit};
pub(crate) use self::rate_limit::{RateBuckets, RateLimits};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) use self::redirect::{Address, Redirects};
pub use self::redirect::{NoRedirect, Redirect};
use crate::claims::Claim;

/// The rules as they were set.
#[derive(Clone, Debug, Default)]
pub struct RuleOptions {
    /// Most requests per client address that go to the application; more get 429. Trusted proxies that name no client
    /// are exempt.
    pub rate_limits: Vec<RateLimit>,
    /// Requests that need a user and a password.
    pub basic_auth: Vec<PasswordRule>,
    /// Redirects by host and path.
    pub redirects: Vec<Redirect>,
    /// Changes to fields of answers.
    pub headers: Vec<FieldRule>,
}

/// Reasons why rules cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// Only one of them could apply.
    #[error("`{setting}` has two rules for {scope}")]
    Twice {
        /// The setting.
        setting: &'static str,
        /// The requests of both rules.
        scope: Claim,
    },
    /// A file of users cannot be read.
    #[error("cannot read the users in {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// A file of users has a line that cannot be used.
    #[error("line {line} of {} {reason}", path.display())]
    Passwords {
        /// The file.
        path: PathBuf,
        /// The number of the line.
        line: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A redirect leads to itself, possibly through others.
    #[error("the redirect of {from} to `{to}` comes back to itself")]
    Loop {
        /// The requests.
        from: Claim,
        /// The target.
        to: String,
    },
    /// The system has no random numbers.
    #[error("the system has no random numbers")]
    Random,
}

/// The rules of a release.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) rate_limits: Option<RateLimits>,
    pub(crate) basic_auth: Option<BasicAuth>,
    pub(crate) redirects: Option<Redirects>,
    pub(crate) fields: Option<Fields>,
}

impl Rules {
    /// Returns the rules, or `None` if there are none.
    pub(crate) fn new(options: &RuleOptions) -> Result<Option<Arc<Self>>, RuleError> {
        let rate_limits = some(&options.rate_limits).map(RateLimits::new).transpose()?;
        let basic_auth = some(&options.basic_auth).map(BasicAuth::new).transpose()?;
        let redirects = some(&options.redirects).map(Redirects::new).transpose()?;
        let fields = some(&options.headers).map(Fields::new);
        let any = rate_limits.is_some()
            || basic_auth.is_some()
            || redirects.is_some()
            || fields.is_some();
        Ok(any.then(|| Arc::new(Self { rate_limits, basic_auth, redirects, fields })))
    }
}

fn some<T>(rules: &[T]) -> Option<&[T]> {
    Some(rules).filter(|rules| !rules.is_empty())
}

/// Rejects two rules with the same scope.
fn each_once<'c>(
    setting: &'static str,
    scopes: impl Iterator<Item = &'c Claim>,
) -> Result<(), RuleError> {
    let mut known = std::collections::HashSet::new();
    let mut scopes = scopes;
    match scopes.find(|scope| !known.insert(*scope)) {
        Some(scope) => Err(RuleError::Twice { setting, scope: scope.clone() }),
        None => Ok(()),
    }
}

/// Returns the names of a cleaned path: itself, and what follows each `.php` in it, which is the path that a front
/// controller sees. What follows without a slash has none here either: Symfony sees `/admin` in `/index.phpadmin`, and
/// [`Claims`](crate::claims::Claims) compare without the first slash.
pub(crate) fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    const SCRIPT: &[u8] = b".php";
    let is_script = |window: &[u8]| window.eq_ignore_ascii_case(SCRIPT);
    let ends = path.windows(SCRIPT.len()).enumerate().filter(move |(_, window)| is_script(window));
    let rests = ends.filter_map(|(at, _)| path.get(at + SCRIPT.len()..));
    std::iter::once(path).chain(rests.filter(|rest| !rest.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_behind_a_script_is_another_name() {
        let named = |path: &'static str| names(path.as_bytes()).collect::<Vec<_>>();
        assert_eq!(named("/a"), [b"/a"]);
        assert_eq!(named("/index.PHP/a"), [&b"/index.PHP/a"[..], b"/a"]);
        assert_eq!(named("/index.phpa/b"), [&b"/index.phpa/b"[..], b"a/b"]);
        assert_eq!(named("/a.php/b.php/c").len(), 3);
        assert_eq!(named("/a.php"), [b"/a.php"]);
    }
}
