//! The product through its own face: the program `hearth`, the worker program and real PHP.

mod hearth;
mod superglobals;
