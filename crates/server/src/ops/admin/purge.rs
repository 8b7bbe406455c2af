//! Removes stored answers of the answer cache, by `tag=`, by `url=`, or `all`: `POST /cache/purge` of the admin address and of the
//! control socket.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::{Deserialize, Serialize};
use url::form_urlencoded::parse;

use super::{text, typed};
use crate::failure::Failure;
use crate::ops::state::State;

/// The outcome of a purge.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Purged {
    /// Answers that were removed.
    pub(crate) removed: u64,
}

/// Removes the answers that a query describes. Several tags are removed together. An error has the status for HTTP, what is wrong
/// and what to do.
pub(crate) fn remove(
    query: Option<&str>,
    state: &State,
) -> Result<Purged, (StatusCode, &'static str, &'static str)> {
    let Some(cache) = state.cache() else {
        let hint = "switch `http.cache` on and restart it (docs/guide/cache.md)";
        return Err((StatusCode::NOT_FOUND, "the server has no answer cache", hint));
    };
    let pairs: Vec<_> = parse(query.unwrap_or_default().as_bytes()).collect();
    let named = |wanted: &'static str| {
        pairs.iter().filter(move |(name, _)| name == wanted).map(|(_, value)| &**value)
    };
    let tags: Vec<&str> = named("tag").filter(|tag| !tag.is_empty()).collect();
    let urls: Vec<&str> = named("url").filter(|url| url.contains("//")).collect();
    let all = named("all").next().is_some();
    if tags.is_empty() && urls.is_empty() && !all {
        let hint = "say what to purge: tag=NAME, url=https://host/path, or all";
        return Err((StatusCode::BAD_REQUEST, "nothing was named that can be purged", hint));
    }
    let mut removed = if all { cache.purge_all() } else { 0 };
    if !tags.is_empty() {
        removed += cache.purge_tags(tags.iter().copied());
    }
    removed += urls.iter().map(|url| cache.purge_url(url)).sum::<u64>();
    tracing::info!(removed, tags = tags.len(), urls = urls.len(), all, "stored answers purged");
    Ok(Purged { removed })
}

/// Answers on the admin address.
pub(super) fn answer(query: Option<&str>, state: &State) -> Response<Full<Bytes>> {
    match remove(query, state) {
        Ok(purged) => {
            let text = serde_json::to_string(&purged).expect("it has only plain types");
            typed(StatusCode::OK, "application/json", text + "\n")
        }
        Err((status, wrong, hint)) => text(status, format!("{wrong}: {hint}\n")),
    }
}

/// Returns the failure of a command.
pub(crate) fn failure((_, wrong, hint): (StatusCode, &'static str, &'static str)) -> Failure {
    Failure::failed(wrong, hint)
}
