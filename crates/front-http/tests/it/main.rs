//! The front through its public face: real sockets, an application of the tests in PHP's place.

mod support;

mod answers;
mod compression;
mod files;
mod http1;
mod http2;
mod limits;
mod proxies;
mod shutdown;
mod tls;
