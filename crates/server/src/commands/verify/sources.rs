//! The requests to replay: from a crawl, an access log or a HAR file.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use pool::Model;

use super::instance::NotRun;
use super::request::Recorded;
use super::search::Runs;
use super::{Verify, har, log};
use crate::failure::Failure;
use crate::ops::log as output;

/// The source of the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The links of the application, from `/` on.
    Crawl,
    /// `--log`.
    Log(PathBuf),
    /// `--har`.
    Har(PathBuf),
}

/// Returns the distinct requests to replay, and their source in words.
pub(super) async fn requests(
    verify: &Verify,
    runs: &Runs<'_>,
    reference: Model,
    notes: &mut Vec<String>,
) -> Result<(Vec<Recorded>, String), Failure> {
    let (found, source) = match &verify.source {
        Source::Crawl => (crawled(runs, reference, verify.most).await?, "crawl from /".to_owned()),
        Source::Log(path) => {
            let (found, unread) = log::requests(&read(path, "--log")?);
            if unread > 0 {
                notes.push(format!("{unread} lines of the log hold no request that can be sent"));
            }
            (found, format!("log {}", path.display()))
        }
        Source::Har(path) => {
            let (found, others) = har::requests(&read(path, "--har")?).map_err(|error| {
                let what = format!("{} is no HAR file", path.display());
                Failure::caused_by(what, &error, "save one with a browser's developer tools: Network, \u{201c}Save all as HAR\u{201d}")
            })?;
            if others > 0 {
                notes.push(format!(
                    "{others} requests for other hosts than the first one are left out"
                ));
            }
            (found, format!("HAR {}", path.display()))
        }
    };
    let all = found.len();
    let sends_unsafe = verify.with_unsafe || matches!(verify.source, Source::Har(_));
    let allowed: Vec<Recorded> =
        found.into_iter().filter(|request| sends_unsafe || request.is_safe()).collect();
    if allowed.len() < all {
        let left_out = all - allowed.len();
        notes.push(format!("{left_out} requests with other methods than GET, HEAD and OPTIONS are left out: a log has no bodies (`--unsafe` sends them without)"));
    }
    let mut seen = HashSet::new();
    let mut distinct: Vec<Recorded> =
        allowed.into_iter().filter(|request| seen.insert(request.clone())).collect();
    if distinct.is_empty() {
        let what = format!("no request to replay in {source}");
        return Err(Failure::misused(
            what,
            "name a log or HAR file with requests for this application, or leave both out for a crawl",
        ));
    }
    if distinct.len() > verify.most {
        let left_out = distinct.len() - verify.most;
        notes.push(format!("{left_out} further requests are left out (`--max-requests`)"));
        distinct.truncate(verify.most);
    }
    Ok((distinct, source))
}

fn read(path: &Path, flag: &str) -> Result<String, Failure> {
    let bytes = std::fs::read(path).map_err(|error| {
        Failure::caused_by(
            format!("cannot read {}", path.display()),
            &error,
            format!("correct `{flag}`"),
        )
    })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Follows the links of the application from `/` on, breadth first.
async fn crawled(runs: &Runs<'_>, model: Model, most: usize) -> Result<Vec<Recorded>, Failure> {
    let mut instance = match runs.boot(model).await {
        Ok(instance) => instance,
        Err(NotRun::Failed(failure)) => return Err(failure),
        Err(NotRun::Impossible(why)) => {
            return Err(Failure::failed(why, "`hearth check` says more"));
        }
    };
    output::plain("verify: crawl from /");
    let mut targets = vec!["/".to_owned()];
    let mut known: HashSet<String> = targets.iter().cloned().collect();
    let mut next = 0;
    while let Some(target) = targets.get(next) {
        let seen = instance.ask(&Recorded::get(target)).await;
        next += 1;
        for link in seen.links {
            if targets.len() < most && known.insert(link.clone()) {
                targets.push(link);
            }
        }
    }
    instance.end().await;
    Ok(targets.into_iter().map(Recorded::get).collect())
}
