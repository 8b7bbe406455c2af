pub(crate) mod admin;
pub(crate) mod control;
pub(crate) mod dashboard;
pub(crate) mod log;
pub(crate) mod notify;
pub(crate) mod state;
