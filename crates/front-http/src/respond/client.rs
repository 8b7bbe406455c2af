//! The client of a request and the host that it named: from the connection, the Host field, or a trusted proxy.

use std::net::SocketAddr;
use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderValue};
use pool::Scheme;

use super::Exchange;
use crate::forwarded::ForwardedInfo;
use crate::request_head;

/// A parsed Host field.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    field: HeaderValue,
    name: Arc<str>,
    port: Option<u16>,
}

/// The client, according to trusted proxies.
pub(super) struct Client {
    pub(super) remote: SocketAddr,
    pub(super) scheme: Scheme,
    pub(super) server_name: Arc<str>,
    pub(super) server_port: u16,
}

impl<A> Exchange<'_, A> {
    /// Returns the client of a request, by the fields of a trusted proxy if there are any.
    pub(super) fn client(&self, headers: &HeaderMap) -> Client {
        let connection = self.connection;
        let secure = self.forwarded.secure.unwrap_or(connection.tls);
        let scheme = if secure { Scheme::Https } else { Scheme::Http };
        let told_host = self.forwarded_host().map(request_head::split_host);
        let (server_name, host_port) = if let Some((name, port)) = told_host {
            (Arc::from(name), port)
        } else {
            let host = self.host(headers);
            (host.name, host.port)
        };
        // Without a proxy the port is the local one; a proxy's port is the stated one, or follows from the host or
        // scheme.
        let server_port = if self.forwarded == ForwardedInfo::default() {
            connection.local.port()
        } else {
            self.forwarded.port.or(host_port).unwrap_or(match scheme {
                Scheme::Https => 443,
                Scheme::Http => 80,
            })
        };
        Client { remote: self.remote, scheme, server_name, server_port }
    }

    /// Returns the host that a trusted proxy names, if it is a valid one.
    pub(super) fn forwarded_host(&self) -> Option<&str> {
        let host = self.forwarded.host.as_deref();
        host.filter(|host| request_head::is_valid_host(host.as_bytes()))
    }

    /// Returns the host of a request, which is parsed once for a connection that keeps it.
    fn host(&self, headers: &HeaderMap) -> Host {
        let connection = self.connection;
        let field = headers.get(header::HOST);
        if let Some(known) = connection.host.get()
            && field.is_some_and(|field| *field == known.field)
        {
            return known.clone();
        }
        let field = field.cloned().unwrap_or_else(|| HeaderValue::from_static(""));
        let (name, port) = request_head::split_host(field.to_str().unwrap_or(""));
        let name = if name.is_empty() {
            Arc::from(request_head::name_of(connection.local.ip()))
        } else {
            Arc::from(name)
        };
        let host = Host { field, name, port };
        connection.host.get_or_init(|| host.clone());
        host
    }
}
