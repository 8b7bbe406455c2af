//! Which paths are WebSockets of the application, and their limits.

use std::num::NonZeroU32;
use std::time::Duration;

use super::origins::OriginRule;

/// The WebSockets of one application.
#[derive(Clone, Debug)]
pub struct WebSocketOptions {
    /// Paths of WebSockets; none: the application handles none.
    pub routes: Vec<WebSocketRoute>,
    /// Pages that may connect.
    pub origins: Vec<OriginRule>,
    /// Limits of connections and messages.
    pub limits: WebSocketLimits,
}

/// A path whose WebSockets the application handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocketRoute {
    /// `/chat`, or `/rooms/*` for every path below `/rooms/`.
    path: String,
    /// The path to which events are sent; `None`: that of the connection.
    handler: Option<String>,
}

/// The error for a text that cannot be a path or a handler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no path: it starts with `/`, is decoded, and `*` stands only at its end, after a `/`"
)]
pub struct InvalidRoute {
    /// The text.
    pub text: String,
}

/// The limits of an application's WebSockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebSocketLimits {
    /// Maximum number of open connections.
    pub connections: usize,
    /// Maximum number of open connections of one client address; an IPv6 /64 is one.
    pub per_client: usize,
    /// Maximum size of a message from a client in bytes.
    pub message: usize,
    /// Maximum number of messages per second and connection, on average; `None` for no limit.
    pub rate: Option<NonZeroU32>,
    /// Maximum size of all messages that wait for one client in bytes.
    pub queue: usize,
    /// How long a client may be silent before it gets a ping; `None` for no pings.
    pub ping_interval: Option<Duration>,
    /// How long the client may take to answer a ping.
    pub pong_timeout: Duration,
    /// How long a connection may have no messages in either direction; `None` for no limit.
    pub idle: Option<Duration>,
    /// Compresses messages of at least this size, with clients that offer it; `None` for no compression.
    pub deflate: Option<usize>,
}

impl Default for WebSocketOptions {
    fn default() -> Self {
        Self {
            routes: Vec::new(),
            origins: vec![OriginRule::Same],
            limits: WebSocketLimits {
                connections: 10_000,
                per_client: 1_000,
                message: 128 << 10,
                rate: None,
                queue: 1 << 20,
                ping_interval: Some(Duration::from_secs(30)),
                pong_timeout: Duration::from_secs(20),
                idle: None,
                deflate: None,
            },
        }
    }
}

impl WebSocketOptions {
    /// Returns the route of a decoded path: an exact one, else the longest prefix.
    pub(crate) fn route(&self, path: &[u8]) -> Option<&WebSocketRoute> {
        let fitting = self.routes.iter().filter(|route| route.fits(path));
        fitting.max_by_key(|route| (!route.path.ends_with('*'), route.path.len()))
    }
}

impl WebSocketRoute {
    /// Returns a route. Without a handler events go to the connection's own path.
    pub fn new(path: &str, handler: Option<&str>) -> Result<Self, InvalidRoute> {
        let prefix = path
            .strip_suffix("/*")
            .map_or(path, |prefix| if prefix.is_empty() { "/" } else { prefix });
        let is_path = |text: &str| {
            text.starts_with('/')
                && !text.contains("//")
                && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"*?#%\\".contains(&byte))
        };
        if !is_path(prefix) {
            return Err(InvalidRoute { text: path.to_owned() });
        }
        if let Some(handler) = handler
            && !is_path(handler)
        {
            return Err(InvalidRoute { text: handler.to_owned() });
        }
        Ok(Self { path: path.to_owned(), handler: handler.map(str::to_owned) })
    }

    /// Returns the path to which events go whose own path is not known: the handler, else the route without its `*`.
    pub fn target(&self) -> &str {
        self.handler.as_deref().unwrap_or_else(|| self.path.trim_end_matches('*'))
    }

    /// Returns the path of a handler other than the connection's own path.
    pub(crate) fn handler(&self) -> Option<&str> {
        self.handler.as_deref()
    }

    fn fits(&self, path: &[u8]) -> bool {
        match self.path.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix.as_bytes()) && path.len() > prefix.len(),
            None => path == self.path.as_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_route_wins() {
        let routes =
            [("/chat", None), ("/rooms/*", Some("/ws.php")), ("/rooms/open/*", Some("/open.php"))];
        let routes = routes.map(|(path, handler)| WebSocketRoute::new(path, handler).unwrap());
        let options = WebSocketOptions { routes: routes.into(), ..WebSocketOptions::default() };
        let found = |path: &str| options.route(path.as_bytes()).map(|route| route.handler());
        assert_eq!(found("/chat"), Some(None));
        assert_eq!(found("/chat/"), None);
        assert_eq!(found("/rooms/1"), Some(Some("/ws.php")));
        assert_eq!(found("/rooms/"), None);
        assert_eq!(found("/rooms/open/1"), Some(Some("/open.php")));
    }

    #[test]
    fn malformed_routes_are_rejected() {
        for path in ["", "chat", "/a*", "/*/b", "/a b", "/a?b", "/%41", "//a"] {
            WebSocketRoute::new(path, None).unwrap_err();
        }
        WebSocketRoute::new("/a", Some("ws.php")).unwrap_err();
        WebSocketRoute::new("/*", None).unwrap();
    }
}
