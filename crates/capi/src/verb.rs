//! Methods in one byte: tens of thousands of requests may wait.

use http::Method;

/// A method that most requests have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verb {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
}

static ALL: [(Verb, Method); 7] = [
    (Verb::Get, Method::GET),
    (Verb::Head, Method::HEAD),
    (Verb::Post, Method::POST),
    (Verb::Put, Method::PUT),
    (Verb::Patch, Method::PATCH),
    (Verb::Delete, Method::DELETE),
    (Verb::Options, Method::OPTIONS),
];

impl Verb {
    /// Returns the verb of a method. `None`: it is another one.
    pub(crate) fn of(method: &Method) -> Option<Self> {
        ALL.iter().find(|(_, known)| known == method).map(|(verb, _)| *verb)
    }

    /// Returns the method.
    pub(crate) fn method(self) -> &'static Method {
        let found = ALL.iter().find(|(verb, _)| *verb == self);
        found.map_or(&ALL[0].1, |(_, method)| method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verb_is_its_method() {
        for (verb, method) in &ALL {
            assert_eq!(Verb::of(method), Some(*verb));
            assert_eq!(verb.method(), method);
        }
        assert_eq!(Verb::of(&Method::TRACE), None);
    }
}
