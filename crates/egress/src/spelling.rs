//! Field names as their sender wrote them. `http` knows them in lower case only; this keeps the sender's spelling when they are passed on.

use bytes::Bytes;

/// The head of a request as its caller wrote it: an extension of the request. Its names keep this spelling.
#[derive(Clone, Debug)]
pub(crate) struct Spelled(pub(crate) Bytes);

/// Finds names in a head, in the order in which a map made of that head lists them.
#[derive(Debug)]
pub(crate) struct Spelling<'a> {
    fields: &'a [u8],
    /// The position after the first field of the last name.
    first: usize,
    /// The position after the last field that was found.
    next: usize,
}

impl<'a> Spelling<'a> {
    /// Searches a head, its first line included.
    pub(crate) fn of(head: &'a [u8]) -> Self {
        let begin = head.iter().position(|byte| *byte == b'\n').map_or(head.len(), |at| at + 1);
        Self { fields: head.get(begin..).unwrap_or_default(), first: 0, next: 0 }
    }

    /// Returns the spelling of the next field with this name; `again`: the same name was searched last. `None`: there is no other.
    pub(crate) fn next(&mut self, name: &str, again: bool) -> Option<&'a [u8]> {
        let from = if again { self.next } else { self.first };
        // Fields stand where a map has them, but for those that somebody has put in or moved.
        let found = self.find(name, from, self.fields.len());
        let found = found.or_else(|| if again { None } else { self.find(name, 0, from) });
        let (written, behind) = found?;
        self.next = behind;
        if !again {
            self.first = behind;
        }
        Some(written)
    }

    fn find(&self, name: &str, from: usize, to: usize) -> Option<(&'a [u8], usize)> {
        let mut at = from;
        while at < to {
            let rest = self.fields.get(at..)?;
            let line =
                rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1);
            at += line;
            if rest.get(name.len()) == Some(&b':')
                && let Some(written) = rest.get(..name.len())
                && written.eq_ignore_ascii_case(name.as_bytes())
            {
                return Some((written, at));
            }
        }
        None
    }
}

/// The spelling of a name without one: each word capitalised.
pub(crate) fn put_title_case(out: &mut Vec<u8>, name: &str) {
    let mut begins = true;
    out.extend(name.bytes().map(|byte| {
        let byte = if begins { byte.to_ascii_uppercase() } else { byte };
        begins = byte == b'-';
        byte
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_as_a_map_lists_them() {
        let head = b"GET / HTTP/1.1\r\nA: 1\r\nbB: 2\r\na: 3\r\nBb: 4\r\nC:\r\nBB: 5\r\n\r\n";
        let mut spelling = Spelling::of(head);
        let mut next =
            |name, again| spelling.next(name, again).map(|name| str::from_utf8(name).unwrap());
        assert_eq!([next("a", false), next("a", true)], [Some("A"), Some("a")]);
        assert_eq!(next("a", true), None);
        assert_eq!(next("x", false), None);
        assert_eq!(
            [next("bb", false), next("bb", true), next("bb", true)],
            [Some("bB"), Some("Bb"), Some("BB")]
        );
        assert_eq!(next("c", false), Some("C"));
        // Moved to the end.
        assert_eq!(next("a", false), Some("A"));
        assert_eq!(Spelling::of(b"").next("a", false), None);
    }

    #[test]
    fn what_nobody_spelled_gets_capitals() {
        let mut out = Vec::new();
        put_title_case(&mut out, "x-forwarded--for");
        assert_eq!(out, b"X-Forwarded--For");
    }
}
