//! `POST /cache/purge`: removes stored answers of the answer cache, by `tag=`, by `url=`, or `all`.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::{Deserialize, Serialize};
use url::form_urlencoded::parse;

use super::{text, typed};
use crate::ops::state::State;

/// The outcome of a purge.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Purged {
    /// Answers that were removed.
    pub(crate) removed: u64,
}

/// Answers a purge that the query describes. Several tags are removed together.
pub(crate) fn answer(query: Option<&str>, state: &State) -> Response<Full<Bytes>> {
    let Some(cache) = state.cache() else {
        let told = "there is no answer cache here: see `http.cache` and docs/guide/cache.md\n";
        return text(StatusCode::NOT_FOUND, told.into());
    };
    let pairs: Vec<_> = parse(query.unwrap_or_default().as_bytes()).collect();
    let named = |wanted: &str| {
        let wanted = wanted.to_owned();
        pairs.iter().filter(move |(name, _)| *name == wanted).map(|(_, value)| &**value)
    };
    let tags: Vec<&str> = named("tag").filter(|tag| !tag.is_empty()).collect();
    let urls: Vec<&str> = named("url").filter(|url| url.contains("//")).collect();
    let all = named("all").next().is_some();
    if tags.is_empty() && urls.is_empty() && !all {
        let told = "say what to purge: ?tag=NAME, ?url=https://host/path, or ?all\n";
        return text(StatusCode::BAD_REQUEST, told.into());
    }
    let mut removed = 0;
    if all {
        removed += cache.purge_all();
    }
    if !tags.is_empty() {
        removed += cache.purge_tags(tags.iter().copied());
    }
    removed += urls.iter().map(|url| cache.purge_url(url)).sum::<u64>();
    tracing::info!(removed, tags = tags.len(), urls = urls.len(), all, "stored answers purged");
    let text = serde_json::to_string(&Purged { removed }).expect("it has only plain types");
    typed(StatusCode::OK, "application/json", text + "\n")
}
