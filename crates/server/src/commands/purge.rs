//! `hearth purge`: a running server removes stored answers from its answer cache.

use url::form_urlencoded::Serializer;

use crate::app::target::Target;
use crate::commands::remote::find;
use crate::config::Environment;
use crate::failure::Failure;
use crate::ops::admin::purge::Purged;

/// The answers to remove.
#[derive(Debug)]
pub(crate) struct What {
    pub(crate) tags: Vec<String>,
    pub(crate) urls: Vec<String>,
    pub(crate) all: bool,
}

/// Runs `hearth purge`. Returns the outcome in words.
pub(crate) fn purge(
    target: &Target,
    what: &What,
    environment: &Environment,
) -> Result<String, Failure> {
    let mut query = Serializer::new(String::new());
    query.extend_pairs(what.tags.iter().map(|tag| ("tag", tag)));
    query.extend_pairs(what.urls.iter().map(|url| ("url", url)));
    if what.all {
        query.append_pair("all", "1");
    }
    let path = format!("/cache/purge?{}", query.finish());
    let Purged { removed } = find(target, environment)?.ask("POST", &path)?;
    Ok(format!("{removed} stored answers removed\n"))
}
