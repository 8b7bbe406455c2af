//! Support for tests: scripted peers (origins, an ACME authority), real peers, a network delay, and clients that show every byte.

mod acme;
mod certificates;
mod credulous;
mod databases;
mod delay_proxy;
mod http1;
mod origin;
mod pgbouncer;
mod php_fpm;
mod process;
mod programs;
mod runtime_api;

pub use acme::{AcmeAuthority, AcmeFault, AcmeSetup};
pub use certificates::{Certificate, Certificates, certificates};
pub use credulous::{Shown, credulous};
pub use databases::{DATABASE_PASSWORD, Database, DatabaseKind};
pub use delay_proxy::{DelayProxy, Distance};
pub use http1::{Answer, Client, head};
pub use origin::{
    After, Body, Connection, Fields, Greeting, Handshake, Origin, Reply, Seen, Setup, Step, Turn,
    pattern, routes,
};
pub use pgbouncer::PgBouncer;
pub use php_fpm::PhpFpm;
pub use process::{Log, ProcessFacts, Running, eventually};
pub use programs::{copy_program, fake_worker, php_worker, write_program};
pub use runtime_api::{Act, LambdaEvent, Posted, RuntimeApi};
