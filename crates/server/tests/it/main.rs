//! The product through its own face: the program `hearth`, the worker program and real PHP.

mod answers;
mod clients;
mod drain;
mod hearth;
mod isolation;
mod losses;
mod steady;
mod superglobals;
mod uploads;
