//! Events that PHP publishes by `hearth_publish()`: from the pool into the registry.

use std::sync::Arc;

use channels::{App, Author, ChannelName, Channels, Publication, hub, json};
use pool::{EventSink, PublishedEvent, Refused};

/// The environment variable by which PHP learns that it may publish, and the limits.
pub(crate) const VARIABLE: &str = "HEARTH_REALTIME";

/// Publishes to one application.
#[derive(Debug)]
pub(crate) struct Publisher {
    app: Arc<App>,
    channels: Channels,
}

impl Publisher {
    pub(crate) fn new(app: Arc<App>, channels: Channels) -> Self {
        Self { app, channels }
    }

    /// The value of [`VARIABLE`], as native/ext/publish.c reads it.
    pub(crate) fn limits(&self) -> String {
        let limits = &self.app.limits;
        format!(
            "{} {} {} {}",
            limits.channels_per_event, limits.channel_name, limits.event_name, limits.data
        )
    }
}

impl EventSink for Publisher {
    fn publish(&self, event: &PublishedEvent<'_>) -> Result<(), Refused> {
        let limits = &self.app.limits;
        if event.channels.len() > limits.channels_per_event
            || event.name.chars().count() > limits.event_name
            || event.data.len() > limits.data
        {
            return Err(Refused("it breaks a limit of the application".to_owned()));
        }
        let names = event.channels.iter().map(|name| ChannelName::new(name, limits.channel_name));
        let names: Vec<ChannelName> =
            names.collect::<Result<_, _>>().map_err(|error| Refused(error.to_string()))?;
        // An id that no socket can have excludes no socket.
        let except = event.except.and_then(|id| id.parse().ok());
        let data = json::quoted(event.data);
        let author = Author::Server { except };
        let publications: Vec<_> = names
            .iter()
            .map(|channel| Publication { channel, event: event.name, data: &data, author })
            .collect();
        let published = self.channels.registry().publish_all(&self.app, &publications, hub::now());
        // PHP does not wait until the event is stored.
        published
            .map(|_ticket| ())
            .map_err(|(channel, why)| Refused(format!("{}: {why}", channel.as_str())))
    }
}
