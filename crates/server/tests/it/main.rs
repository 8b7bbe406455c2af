//! The product through its own face: the program `hearth`, the worker program and real PHP.

mod answers;
mod clients;
mod drain;
mod files;
mod hearth;
mod isolation;
mod losses;
mod operations;
mod steady;
mod superglobals;
mod uploads;
mod worker_scripts;
