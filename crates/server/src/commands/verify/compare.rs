//! Answers of one request in two models, compared part by part, with what differs between two runs of the same model masked.
//!
//! Invariants
//! - What two runs of the reference show alike is compared exactly: a token that they share is masked only inside a volatile place, or
//!   where it stood alone between two of them.
//! - Knows nothing of sockets, files and models.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use bytes::Bytes;

use super::tokens::{Hunk, hunks, tokens};

/// The parts of an answer by name: `status`, `header x-powered-by`, `body`, `session sess_*`, `file storage/app/a.txt`.
pub(super) type Parts = BTreeMap<String, Bytes>;

/// One part of an answer that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// Identifies the place: the same one in answers to the same request has the same number.
    pub(super) place: u64,
    /// The name of the part.
    pub(super) part: String,
    /// The text in the reference; none if it has no such part.
    pub(super) expected: Option<String>,
    /// The text in the other model.
    pub(super) got: Option<String>,
    /// Further places in this part.
    pub(super) more: usize,
}

/// Parts that differ between two runs of the reference, for one request.
#[derive(Clone, Debug, Default)]
pub(super) struct Volatile {
    /// The tokens around volatile places, by part.
    places: HashSet<u64>,
    /// Parts that only one of two runs has.
    parts: BTreeSet<String>,
    /// Parts that have too little in common to be compared.
    incomparable: BTreeSet<String>,
}

impl Volatile {
    /// Learns from two answers to the same request.
    pub(super) fn learn(&mut self, one: &Parts, other: &Parts) {
        for (name, text) in one {
            let Some(second) = other.get(name) else {
                self.parts.insert(name.clone());
                continue;
            };
            if text == second {
                continue;
            }
            if is_binary(text) || is_binary(second) {
                self.incomparable.insert(name.clone());
                continue;
            }
            let tokens = (tokens(text), tokens(second));
            let found = hunks(&tokens.0, &tokens.1);
            let words = |tokens: &[&[u8]]| {
                tokens.iter().filter(|token| token.iter().any(u8::is_ascii_alphanumeric)).count()
            };
            let volatile = |hunk: &Hunk| tokens.0.get(hunk.old.clone()).map_or(0, words);
            let covered: usize = found.iter().map(volatile).sum();
            if covered > FEW && covered * 2 > words(&tokens.0) {
                self.incomparable.insert(name.clone());
            }
            let merged = merged(&found, &tokens.0);
            for range in merged.iter().chain(found.iter().map(|hunk| &hunk.old)) {
                self.places.insert(place(name, &tokens.0, range));
            }
        }
        self.parts.extend(other.keys().filter(|name| !one.contains_key(*name)).cloned());
    }

    /// Returns the names of the parts that cannot be compared.
    pub(super) fn incomparable(&self) -> impl Iterator<Item = &str> {
        self.incomparable.iter().map(String::as_str)
    }

    /// Returns how many places and parts are masked.
    pub(super) fn masked(&self) -> usize {
        self.places.len() + self.parts.len()
    }

    /// Returns where an answer differs from the reference. `second`: the reference of another run.
    pub(super) fn differences(
        &self,
        reference: &Parts,
        second: Option<&Parts>,
        answer: &Parts,
    ) -> Vec<Difference> {
        let mut found = Vec::new();
        let masked = |name: &str| {
            let in_second = second
                .is_none_or(|second| second.contains_key(name) == reference.contains_key(name));
            self.parts.contains(name) || self.incomparable.contains(name) || !in_second
        };
        for (name, text) in reference.iter().filter(|(name, _)| !masked(name)) {
            match answer.get(name) {
                None => found.push(whole(name, Some(text), None)),
                Some(got) if got == text => {}
                Some(got) if is_binary(text) || is_binary(got) => {
                    found.push(whole(name, Some(text), Some(got)));
                }
                Some(got) => {
                    let second = second.and_then(|second| second.get(name));
                    found.extend(self.difference(name, text, second, got));
                }
            }
        }
        for (name, text) in answer.iter().filter(|(name, _)| !masked(name)) {
            if !reference.contains_key(name) {
                found.push(whole(name, None, Some(text)));
            }
        }
        found
    }

    fn difference(
        &self,
        name: &str,
        text: &[u8],
        second: Option<&Bytes>,
        got: &[u8],
    ) -> Option<Difference> {
        let (old, new) = (tokens(text), tokens(got));
        let holes = second.map(|second| {
            let second = tokens(second);
            merged(&hunks(&old, &second), &old)
        });
        let holes = holes.unwrap_or_default();
        let is_masked = |hunk: &Hunk| {
            let inside =
                |hole: &Range<usize>| hole.start <= hunk.old.start && hunk.old.end <= hole.end;
            holes.iter().any(inside) || self.places.contains(&place(name, &old, &hunk.old))
        };
        let all: Vec<Hunk> =
            hunks(&old, &new).into_iter().filter(|hunk| !is_masked(hunk)).collect();
        let first = all.first()?;
        Some(Difference {
            place: place(name, &old, &(first.old.start..first.old.start)),
            part: name.to_owned(),
            expected: Some(excerpt(&old, &first.old)),
            got: Some(excerpt(&new, &first.new)),
            more: all.len() - 1,
        })
    }
}

/// Returns where two answers to the same request differ, with both texts.
pub(super) fn changes(one: &Parts, other: &Parts) -> BTreeMap<u64, Difference> {
    let mut changes = BTreeMap::new();
    for (name, text) in one {
        let Some(second) = other.get(name).filter(|second| *second != text) else { continue };
        if is_binary(text) || is_binary(second) {
            continue;
        }
        let (old, new) = (tokens(text), tokens(second));
        for hunk in hunks(&old, &new) {
            let place = place(name, &old, &hunk.old);
            let (expected, got) = (excerpt(&old, &hunk.old), excerpt(&new, &hunk.new));
            let (part, expected, got) = (name.clone(), Some(expected), Some(got));
            changes.insert(place, Difference { place, part, expected, got, more: 0 });
        }
    }
    changes
}

/// A part with so few volatile words is compared even if most of it is volatile.
const FEW: usize = 40;

/// Joins volatile places with at most three tokens between them, unless white space, a tag or a quote separates them: parts of one word.
fn merged(hunks: &[Hunk], tokens: &[&[u8]]) -> Vec<Range<usize>> {
    const NEAR: usize = 3;
    let separates = |token: &&[u8]| {
        matches!(token.first(), Some(b' ' | b'\t' | b'\r' | b'\n' | b'<' | b'>' | b'"' | b'\''))
    };
    let mut merged: Vec<Range<usize>> = Vec::new();
    for Hunk { old, .. } in hunks {
        match merged.last_mut() {
            Some(last)
                if old.start - last.end <= NEAR
                    && !tokens
                        .get(last.end..old.start)
                        .is_some_and(|between| between.iter().any(separates)) =>
            {
                last.end = old.end;
            }
            _ => merged.push(old.clone()),
        }
    }
    merged
}

/// Identifies a place by its part and two tokens on each side.
fn place(name: &str, tokens: &[&[u8]], range: &Range<usize>) -> u64 {
    const AROUND: usize = 2;
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    tokens.get(range.start.saturating_sub(AROUND)..range.start).hash(&mut hasher);
    tokens.get(range.end..(range.end + AROUND).min(tokens.len())).hash(&mut hasher);
    hasher.finish()
}

fn is_binary(text: &[u8]) -> bool {
    text.contains(&0) || std::str::from_utf8(text).is_err()
}

/// The difference of a part as a whole.
fn whole(name: &str, expected: Option<&Bytes>, got: Option<&Bytes>) -> Difference {
    let mut hasher = DefaultHasher::new();
    (name, expected.is_some(), got.is_some()).hash(&mut hasher);
    let text = |text: &Bytes| {
        if is_binary(text) {
            return format!("{} bytes", text.len());
        }
        let all = tokens(text);
        excerpt(&all, &(0..all.len()))
    };
    Difference {
        place: hasher.finish(),
        part: name.to_owned(),
        expected: expected.map(text),
        got: got.map(text),
        more: 0,
    }
}

/// Returns a place in a text with what stands around it, in one line.
fn excerpt(tokens: &[&[u8]], range: &Range<usize>) -> String {
    const AROUND: usize = 8;
    const LONGEST: usize = 160;
    let start = range.start.saturating_sub(AROUND);
    let end = (range.end + AROUND).min(tokens.len());
    let text = tokens.get(start..end).unwrap_or_default().concat();
    let text = String::from_utf8_lossy(&text);
    let line: Vec<&str> = text.split_whitespace().collect();
    let line = line.join(" ");
    let mut shown: String = line.chars().take(LONGEST).collect();
    if shown.len() < line.len() {
        shown.push('\u{2026}');
    }
    let (before, after) = (start > 0, end < tokens.len());
    format!(
        "{}{shown}{}",
        if before { "\u{2026}" } else { "" },
        if after { "\u{2026}" } else { "" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(all: &[(&str, &str)]) -> Parts {
        all.iter()
            .map(|(name, text)| ((*name).to_owned(), Bytes::copy_from_slice(text.as_bytes())))
            .collect()
    }

    fn body(text: &str) -> Parts {
        parts(&[("body", text)])
    }

    fn found(one: &str, other: &str, answer: &str) -> Vec<(String, String)> {
        let (one, other, answer) = (body(one), body(other), body(answer));
        let mut volatile = Volatile::default();
        volatile.learn(&one, &other);
        let found = volatile.differences(&one, Some(&other), &answer);
        found.into_iter().map(|one| (one.expected.unwrap(), one.got.unwrap())).collect()
    }

    #[test]
    fn clocks_tokens_and_session_ids_are_masked_and_nothing_beside_them() {
        let page = |time: &str, token: &str, name: &str| {
            format!(
                "<p>It is {time}</p><input name=\"_token\" value=\"{token}\"><p>Hello {name}</p>"
            )
        };
        let one = page("2026-11-27T10:59:59+00:00", "abc123", "guest");
        let other = page("2026-11-27T10:59:58+00:00", "ef/gh==", "guest");
        assert_eq!(found(&one, &other, &page("2026-11-27T11:00:00+00:00", "x/y/z", "guest")), []);
        let leak = found(&one, &other, &page("2026-11-27T11:00:00+00:00", "xyz", "ada"));
        assert_eq!(leak.len(), 1);
        assert!(
            leak.first().unwrap().0.contains("Hello guest")
                && leak.first().unwrap().1.contains("Hello ada")
        );
        assert_eq!(found("a b", "a b", "a b"), []);
        assert_eq!(found("a b", "a b", "a c").len(), 1);
        assert_eq!(found("a b", "a b", "a b c").len(), 1);
    }

    #[test]
    fn a_place_once_seen_to_be_volatile_is_masked_when_two_runs_agree_by_chance() {
        let page = |dice: u32, count: u32| body(&format!("dice: {dice}, count: {count};"));
        let mut volatile = Volatile::default();
        volatile.learn(&page(1, 0), &page(6, 0));
        let (one, other) = (page(3, 0), page(3, 0));
        volatile.learn(&one, &other);
        assert_eq!(volatile.differences(&one, Some(&other), &page(5, 0)), []);
        assert_eq!(volatile.differences(&one, Some(&other), &page(5, 1)).len(), 1);
        assert_eq!(volatile.differences(&one, None, &page(5, 0)), []);
    }

    #[test]
    fn parts_that_come_and_go_are_masked_and_new_ones_are_reported() {
        let plain = parts(&[("status", "200")]);
        let with = |name: &str| parts(&[("status", "200"), (name, "1")]);
        let mut volatile = Volatile::default();
        assert_eq!(volatile.differences(&plain, Some(&plain), &with("header x-a")).len(), 1);
        assert_eq!(volatile.differences(&with("header x-a"), None, &plain).len(), 1);
        volatile.learn(&plain, &with("header x-a"));
        assert_eq!(volatile.differences(&plain, Some(&plain), &with("header x-a")), []);
        assert_eq!(volatile.differences(&plain, Some(&plain), &with("header x-b")).len(), 1);
    }

    #[test]
    fn what_has_too_little_in_common_is_not_compared() {
        let noise = |seed: u32| {
            (0..100).map(|number| (number * seed).to_string()).collect::<Vec<_>>().join(" ")
        };
        let mut volatile = Volatile::default();
        volatile.learn(&body(&noise(3)), &body(&noise(7)));
        assert_eq!(volatile.incomparable().collect::<Vec<_>>(), ["body"]);
        assert_eq!(volatile.differences(&body(&noise(3)), None, &body("else")), []);
        let mut binary = Volatile::default();
        binary.learn(&body("\0a"), &body("\0b"));
        assert_eq!(binary.incomparable().count(), 1);
    }
}
