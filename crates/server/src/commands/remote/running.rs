//! The server that serves an application now: addresses that it uses are no conflict for `hearth check`.

use std::cell::OnceCell;
use std::net::SocketAddr;
use std::path::Path;

use bytes::Bytes;

use super::find::{Server, find};
use crate::app::target::Target;
use crate::config::Environment;

/// The server of an application, found at first use.
#[derive(Debug)]
pub(crate) struct Running<'r> {
    target: &'r Target,
    environment: &'r Environment,
    found: OnceCell<Option<Server>>,
}

impl<'r> Running<'r> {
    /// The one that `hearth reload` with the same words would speak to.
    pub(crate) fn of(target: &'r Target, environment: &'r Environment) -> Self {
        Self { target, environment, found: OnceCell::new() }
    }

    /// Returns the server's process, if it listens on this address.
    pub(crate) fn listens_on(&self, address: SocketAddr) -> Option<u32> {
        self.process(|url| {
            let bound = url.split_once("://")?.1.parse::<SocketAddr>().ok()?;
            // One that is bound to all addresses is in the way of each.
            let any = bound.ip().is_unspecified() || address.ip().is_unspecified();
            Some(bound == address || any && bound.port() == address.port())
        })
    }

    /// Returns the server's process, if it listens at this socket.
    pub(crate) fn listens_at(&self, socket: &Path) -> Option<u32> {
        self.process(|url| Some(Path::new(url.split_once("unix:")?.1) == socket))
    }

    /// Returns its `/status`.
    pub(crate) fn status(&self) -> Option<Bytes> {
        self.server()?.status().ok()
    }

    fn server(&self) -> Option<&Server> {
        self.found.get_or_init(|| find(self.target, self.environment).ok()).as_ref()
    }

    fn process(&self, is_it: impl Fn(&str) -> Option<bool>) -> Option<u32> {
        let who = &self.server()?.who;
        who.listens.iter().any(|url| is_it(url) == Some(true)).then_some(who.pid)
    }
}
