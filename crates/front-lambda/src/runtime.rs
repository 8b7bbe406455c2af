//! The Runtime API's client and the loop that serves invocations.
