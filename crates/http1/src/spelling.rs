//! Field names as their sender spelled them. `http` keeps names in lower case; a head that is passed on keeps its sender's spelling.

/// Finds names in a head, in the order in which a `HeaderMap` made of that head iterates over them.
#[derive(Debug)]
pub struct Spelling<'a> {
    fields: &'a [u8],
    /// The position after the first field of the last requested name.
    first: usize,
    /// The position after the last found field.
    next: usize,
}

impl<'a> Spelling<'a> {
    /// Starts with a head, its first line included.
    pub fn of(head: &'a [u8]) -> Self {
        let begin = head.iter().position(|byte| *byte == b'\n').map_or(head.len(), |at| at + 1);
        Self { fields: head.get(begin..).unwrap_or_default(), first: 0, next: 0 }
    }

    /// Returns the spelling of the next field with this name, `None` if there is no other. `again`: the previous call had the same name.
    pub fn next(&mut self, name: &str, again: bool) -> Option<&'a [u8]> {
        let from = if again { self.next } else { self.first };
        // Fields stand where the map has them, except those that were inserted or moved.
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

/// Appends a name with a capital at each word's start: `X-Forwarded-For`.
pub fn put_title_case(out: &mut Vec<u8>, name: &str) {
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
    fn names_are_found_in_the_order_of_a_map() {
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
    fn a_name_without_a_spelling_gets_capitals() {
        let mut out = Vec::new();
        put_title_case(&mut out, "x-forwarded--for");
        assert_eq!(out, b"X-Forwarded--For");
    }
}
