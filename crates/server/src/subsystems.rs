pub(crate) mod connectors;
pub(crate) mod egress;
pub(crate) mod generation_guard;
pub(crate) mod http;
pub(crate) mod processes;
pub(crate) mod realtime;
pub(crate) mod tls;
pub(crate) mod traces;
