//! Events that PHP publishes (`hearth_publish()`), which go to the sink given to the pool.

use std::fmt;
use std::sync::Arc;

use tracing::warn;

use crate::info::WorkerInfo;

/// One event, validated only by the worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedEvent<'a> {
    /// Names of the channels: at least one.
    pub channels: Vec<&'a str>,
    /// Name of the event.
    pub name: &'a str,
    /// Data, as clients receive it.
    pub data: &'a str,
    /// Id of the socket that does not receive it.
    pub except: Option<&'a str>,
}

/// A receiver of the events that PHP publishes.
pub trait EventSink: fmt::Debug + Send + Sync {
    /// Passes an event on and never waits. An error is logged with the id of the request, because PHP has continued.
    fn publish(&self, event: &PublishedEvent<'_>) -> Result<(), Refused>;
}

/// The reason why an event that the worker accepted was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// A receiver of the tags whose stored answers PHP purges (`hearth_purge()`).
pub trait PurgeSink: fmt::Debug + Send + Sync {
    /// Removes stored answers with these tags. It never waits.
    fn purge(&self, tags: &[&str]);
}

/// The sinks of what a pool's PHP sends beside answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sinks {
    pub(crate) events: Option<Arc<dyn EventSink>>,
    pub(crate) purges: Option<Arc<dyn PurgeSink>>,
}

/// Passes the tags of a purge to the sink. Without an answer cache there is none, and nothing to remove.
pub(crate) fn purge(info: &WorkerInfo, tags: wire::Channels<'_>) {
    let Some(sink) = &info.sinks.purges else { return };
    let tags: Vec<&str> = tags.filter_map(|tag| std::str::from_utf8(tag).ok()).collect();
    sink.purge(&tags);
}

/// Passes a PUBLISH frame to the sink.
pub(crate) fn publish(info: &WorkerInfo, publication: &wire::Publication<'_>) {
    let outcome = match &info.sinks.events {
        Some(sink) => read(publication).and_then(|event| sink.publish(&event)),
        None => Err(Refused("realtime is off".to_owned())),
    };
    if let Err(reason) = outcome {
        let request = info.current_request();
        let id = request.as_ref().map(|id| &*id.0);
        warn!(worker.pid = info.pid(), request.id = id, %reason, "event not published");
    }
}

fn read<'a>(publication: &wire::Publication<'a>) -> Result<PublishedEvent<'a>, Refused> {
    let text = |bytes: &'a [u8]| {
        std::str::from_utf8(bytes).map_err(|_other| Refused("it is not UTF-8".to_owned()))
    };
    Ok(PublishedEvent {
        channels: publication.channels.clone().map(text).collect::<Result<_, _>>()?,
        name: text(publication.event)?,
        data: text(publication.data)?,
        except: Some(text(publication.except)?).filter(|except| !except.is_empty()),
    })
}
