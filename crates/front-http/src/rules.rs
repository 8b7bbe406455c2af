//! Rules of the operator for requests, before any application sees them, and for the fields of answers.
//!
//! Invariants
//! - A server without rules tests one pointer per request.
//! - Rules belong to a release: a reload replaces them.
//! - A path is compared as the router decodes it, and under each name by which a script may see it: no spelling
//!   bypasses a rule. For passwords and rates the rules of all its names count, because a client chooses the names.

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
use crate::claims::{Claim, Claims};

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
        /// The fault in it.
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
/// [`Claims`] compare without the first slash.
pub(crate) fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    const SCRIPT: &[u8] = b".php";
    let is_script = |window: &[u8]| window.eq_ignore_ascii_case(SCRIPT);
    let ends = path.windows(SCRIPT.len()).enumerate().filter(move |(_, window)| is_script(window));
    let rests = ends.filter_map(|(at, _)| path.get(at + SCRIPT.len()..));
    std::iter::once(path).chain(rests.filter(|rest| !rest.is_empty()))
}

/// Returns what the front controller sees of a cleaned path that begins with its name, as in `/index.php/admin`.
pub(crate) fn seen_by<'p>(front_controller: Option<&str>, path: &'p [u8]) -> Option<&'p [u8]> {
    path.strip_prefix(front_controller?.as_bytes()).filter(|rest| !rest.is_empty())
}

/// Returns whether a cleaned path is behind the front controller's name for every front controller: a slash follows it.
pub(crate) fn is_behind(front_controller: Option<&str>, path: &[u8]) -> bool {
    seen_by(front_controller, path).is_some_and(|rest| rest.starts_with(b"/"))
}

/// Returns the numbers of the rules that count for a path, each once: the most specific one for each of its names.
/// `scope` returns the scope of a rule that counts.
///
/// If the path is `behind` the front controller's name, the front controller sees the rest only. The rule for the path
/// itself then does not count if it is wider than another one.
fn numbers_for<'c>(
    claims: &Claims,
    host: &str,
    path: &[u8],
    behind: bool,
    scope: impl Fn(usize) -> Option<&'c Claim>,
) -> Vec<usize> {
    let mut names = names(path).map(|name| {
        let number = claims.choose(host, name).ok()?;
        Some((number, scope(number)?))
    });
    let own = names.next().flatten();
    let mut counting: Vec<(usize, &Claim)> = Vec::new();
    for (number, scope) in names.flatten() {
        if !counting.iter().any(|(known, _)| *known == number) {
            counting.push((number, scope));
        }
    }
    if let Some((number, scope)) = own
        && !counting.iter().any(|(known, other)| *known == number || behind && scope.covers(other))
    {
        counting.push((number, scope));
    }
    counting.into_iter().map(|(number, _)| number).collect()
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

    #[test]
    fn a_front_controller_sees_what_follows_its_name() {
        let seen = |path: &'static str| seen_by(Some("/index.php"), path.as_bytes());
        assert_eq!(seen("/index.php/a"), Some(&b"/a"[..]));
        assert_eq!(seen("/index.phpa"), Some(&b"a"[..]));
        assert!(is_behind(Some("/index.php"), b"/index.php/a"));
        assert!(!is_behind(Some("/index.php"), b"/index.phpa"));
        for path in ["/index.php", "/a", "/a.php/b", "/a/index.php/b", "/INDEX.php/a"] {
            assert_eq!(seen(path), None, "{path}");
        }
        assert_eq!(seen_by(None, b"/index.php/a"), None);
    }
}
