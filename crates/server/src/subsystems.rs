pub(crate) mod clients;
pub(crate) mod connectors;
pub(crate) mod descriptors;
pub(crate) mod egress;
pub(crate) mod front;
pub(crate) mod realtime;
pub(crate) mod tls;
pub(crate) mod traces;
