//! The product through its own face: the program `hearth`, the worker program and real PHP.
#![expect(
    clippy::disallowed_types,
    reason = "real processes run in real time; std's Instant needs no runtime"
)]
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod adversary;
mod answers;
mod applications;
mod broker;
mod clients;
mod connectors;
mod control;
mod crowds;
mod cut_bodies;
mod databases;
mod drain;
mod dripped_bodies;
mod egress;
mod egress_faults;
mod endurance;
mod fallback;
mod files;
mod foreign;
mod full_disks;
mod hearth;
mod http2;
mod intercepted;
mod isolation;
mod isolation_effects;
mod isolation_suite;
mod kernels;
mod lambda;
mod lambda_emulator;
mod lambda_faults;
mod lambda_functions;
mod lookup;
mod losses;
mod memory;
mod models;
mod operations;
mod pauses;
mod php_user;
mod proxies;
mod published_leaks;
mod randomness;
mod realtime;
mod reload;
mod rotation;
mod sandbox;
mod scaling;
mod slow;
mod slow_readers;
mod sockets;
mod steady;
mod superglobals;
mod tls;
mod top;
mod traces;
mod upgrade;
mod uploads;
mod user;
mod worker_scripts;
