//! The rules of a shared HTTP cache: which answers may be stored, which stored answer may be used, and what must be asked
//! of the application again (RFC 9111, RFC 5861, RFC 9211).
//!
//! ```text
//! request -> request (may the cache take part?) -> key + vary (which stored answer?) -> freshness (may it be used?)
//! answer  -> storing (may it be stored, for how long?) -> tags      unsafe method -> invalidation
//! ```
//!
//! Invariants
//! - Pure functions: no sockets, no files, no clock and no memory of requests. `now` is an argument.
//! - Whatever cannot be read for certain makes an answer less cacheable, never more.
//! - The rules are those of a cache that many users share: an answer for one of them is never stored.

mod directives;
mod freshness;
mod invalidation;
mod key;
mod request;
mod status;
mod storing;
mod tags;
#[cfg(test)]
mod testing;
mod validation;
mod vary;

pub use directives::{Delta, Directives, Scope};
pub use freshness::{Freshness, Standing};
pub use invalidation::{invalidates, other_targets};
pub use key::{Key, Target, application_of, target_of, url_of};
pub use request::{Bypass, CookieFilter, Request};
pub use status::{Forwarded, status_of_hit, status_of_miss};
pub use storing::{Answer, NotStored, Stored, store};
pub use tags::{TagError, tags};
pub use validation::{Conditional, answer_to, describes, if_range_holds, make_conditional, update};
pub use vary::{Rule, VaryError};
