//! `[websockets]`: paths whose WebSockets the application handles.

use std::path::Path;

use front_http::{OriginRule, WebSocketLimits, WebSocketOptions, WebSocketRoute};

use super::value::{Raw, Value, Wrong};

/// The paths, each with its handler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Routes(pub Vec<WebSocketRoute>);

impl Value for Routes {
    const PLACEHOLDER: &str = "PATH";
    const REPEATS: bool = true;
    const EXPECTED: &str = "a path such as `/chat`, or `/rooms/*` for those below it, `=` and the path of its handler if that is another; several as a list or a table, or \
         separated by commas";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let split = |text: &str| match text.split_once('=') {
            Some((path, handler)) => (path.trim().to_owned(), handler.trim().to_owned()),
            None => (text.trim().to_owned(), String::new()),
        };
        let pairs: Vec<(String, String)> = match raw {
            Raw::Table(pairs) => pairs.clone(),
            Raw::Text(text) => text.split(',').map(split).collect(),
            Raw::List(items) => items.iter().map(|item| split(item)).collect(),
        };
        let route = |(path, handler): (String, String)| {
            let handler = Some(handler).filter(|handler| !handler.is_empty());
            WebSocketRoute::new(&path, handler.as_deref())
                .map_err(|error| Wrong::quoted(&error.text))
        };
        let pairs = pairs.into_iter().filter(|(path, _)| !path.is_empty());
        pairs.map(route).collect::<Result<_, _>>().map(Self)
    }
}

impl Value for OriginRule {
    const PLACEHOLDER: &str = "ORIGIN";
    const EXPECTED: &str = "`same`, `*`, or an origin such as `https://app.example.com`";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        text.parse().map_err(|_no_origin| Wrong::quoted(text))
    }
}

impl super::keys::Websockets {
    /// Returns the options of the front.
    pub(crate) fn options(&self) -> WebSocketOptions {
        let bytes = |size: pool::ByteSize| usize::try_from(size.0).unwrap_or(usize::MAX);
        WebSocketOptions {
            routes: self.routes.0.clone(),
            origins: self.origins.clone(),
            limits: WebSocketLimits {
                connections: self.connection_limit.get(),
                per_client: self.connections_per_client.get(),
                message: bytes(self.message_limit),
                rate: self.message_rate.map(|rate| {
                    u32::try_from(rate.get())
                        .ok()
                        .and_then(std::num::NonZeroU32::new)
                        .unwrap_or(std::num::NonZeroU32::MAX)
                }),
                queue: bytes(self.queue),
                ping_interval: Some(self.ping_interval).filter(|interval| !interval.is_zero()),
                pong_timeout: self.pong_timeout,
                idle: self.idle_timeout,
                deflate: self.deflate.map(bytes),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(raw: &Raw) -> Result<Routes, Wrong> {
        Routes::parse(raw, Path::new("/"))
    }

    #[test]
    fn routes_are_a_list_a_text_or_a_table() {
        let expected = vec![
            WebSocketRoute::new("/chat", None).unwrap(),
            WebSocketRoute::new("/rooms/*", Some("/ws.php")).unwrap(),
        ];
        let pairs = [("/chat", ""), ("/rooms/*", "/ws.php")];
        let pairs = pairs.map(|(path, handler)| (path.to_owned(), handler.to_owned()));
        for raw in [
            Raw::Text("/chat, /rooms/* = /ws.php".into()),
            Raw::List(vec!["/chat".into(), "/rooms/*=/ws.php".into()]),
            Raw::Table(pairs.into()),
        ] {
            assert_eq!(routes(&raw).unwrap().0, expected, "{raw:?}");
        }
        assert_eq!(routes(&Raw::Text(String::new())).unwrap(), Routes::default());
        assert_eq!(routes(&Raw::Text("/chat=ws.php".into())), Err(Wrong::quoted("ws.php")));
    }
}
