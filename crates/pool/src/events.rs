//! Events that PHP publishes (`hearth_publish()`): where they go is the business of whoever gave the pool a sink.

use std::fmt;
use std::sync::Arc;

use tracing::warn;

use crate::info::WorkerInfo;

/// One event, its form checked by nobody but the worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedEvent<'a> {
    /// To which channels: at least one.
    pub channels: Vec<&'a str>,
    /// The event's name.
    pub name: &'a str,
    /// Its data, as clients get it.
    pub data: &'a str,
    /// The id of the socket that is not to get it.
    pub except: Option<&'a str>,
}

/// Takes the events that PHP publishes.
pub trait EventSink: fmt::Debug + Send + Sync {
    /// Hands an event on and never waits. An error is logged with the id of the request: PHP has gone on.
    fn publish(&self, event: &PublishedEvent<'_>) -> Result<(), Refused>;
}

/// Why an event that a worker has let through goes nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Where a pool's events go, if anywhere.
pub(crate) type Sink = Option<Arc<dyn EventSink>>;

/// Hands a PUBLISH frame to the sink.
pub(crate) fn publish(info: &WorkerInfo, publication: &wire::Publication<'_>) {
    let outcome = match &info.sink {
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
