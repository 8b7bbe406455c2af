pub(crate) mod check;
pub(crate) mod emulate;
pub(crate) mod invoke;
pub(crate) mod lambda;
pub(crate) mod top;
