//! The product through its own face: the program `hearth`, the worker program and real PHP.

mod answers;
mod hearth;
mod superglobals;
mod uploads;
