pub(crate) mod generation;
pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod reload;
pub(crate) mod server;
pub(crate) mod sockets;
pub(crate) mod upgrade;
pub(crate) mod watch;
