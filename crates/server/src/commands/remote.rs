//! Running servers, as commands reach them: over their control sockets.

mod call;
mod find;
mod running;

pub(crate) use self::find::{Server, find};
pub(crate) use self::running::Running;
