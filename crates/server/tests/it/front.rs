//! The HTTP front: connections, requests, responses and files.

mod answers;
mod cache;
mod client_certificates;
mod clients;
mod crowds;
mod cut_bodies;
mod dripped_bodies;
mod files;
mod full_disks;
mod http2;
mod http3;
mod proxies;
mod revocation;
mod rules;
mod slow_readers;
pub(crate) mod sockets;
mod superglobals;
mod tls;
mod uploads;
