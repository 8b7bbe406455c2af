//! Positions in a topic as sets of bits: what the parts of a template can reach.

use super::selector::{Class, Expression};

/// A set of positions between the bytes of a topic.
#[derive(Debug)]
pub(super) enum Reach {
    /// One position: nothing but literals so far.
    One(usize),
    /// One bit for each position.
    Set(Box<[u64]>),
}

/// A topic that templates are matched with. What they share is computed once, when the first one needs it.
#[derive(Debug)]
pub(super) struct Topic<'a> {
    text: &'a str,
    /// The positions before allowed bytes, for each class of characters.
    allowed: Vec<(Class, Box<[u64]>)>,
    /// The positions before each byte that the topic has, in the order of bytes.
    bytes: Option<Vec<(u8, Box<[u64]>)>>,
    steps: usize,
}

impl<'a> Topic<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, allowed: Vec::new(), bytes: None, steps: 0 }
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    /// Counts steps: each is one operation on 64 positions.
    pub(super) fn step(&mut self, steps: usize) {
        self.steps += steps;
    }

    #[cfg(test)]
    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    /// Returns the number of words of a set: there is a position at the end, too.
    fn words(&self) -> usize {
        self.text.len() / 64 + 1
    }

    fn empty(&self) -> Box<[u64]> {
        vec![0; self.words()].into()
    }

    /// Returns whether the end of the topic is reached.
    pub(super) fn is_end(&self, reach: &Reach) -> bool {
        let end = self.text.len();
        match reach {
            Reach::One(at) => *at == end,
            Reach::Set(set) => set[end / 64] >> (end % 64) & 1 == 1,
        }
    }

    /// Goes on behind a literal. Returns `false` if nothing can be reached.
    pub(super) fn literal(&mut self, reach: &mut Reach, literal: &str) -> bool {
        let text = self.text.as_bytes();
        match reach {
            Reach::One(at) => {
                self.steps += 1;
                let goes_on = text[*at..].starts_with(literal.as_bytes());
                *at += literal.len();
                goes_on
            }
            Reach::Set(set) => {
                // Each byte of the literal moves all positions on, so not more bytes count than the topic has.
                literal.bytes().all(|byte| {
                    self.steps += set.len();
                    self.behind(byte, set)
                })
            }
        }
    }

    /// Moves the positions that are before this byte behind it, and removes the others.
    fn behind(&mut self, byte: u8, set: &mut [u64]) -> bool {
        let bytes = self.bytes();
        let Ok(at) = bytes.binary_search_by_key(&byte, |(known, _)| *known) else { return false };
        let (mut carry, mut any) = (0, 0);
        for (word, mask) in set.iter_mut().zip(&bytes[at].1) {
            let found = *word & mask;
            *word = found << 1 | carry;
            carry = found >> 63;
            any |= *word;
        }
        any != 0
    }

    /// Goes on behind an expression, whose values may be undefined: then it expands to nothing.
    pub(super) fn expression(&mut self, reach: &mut Reach, expression: Expression) {
        if let Reach::One(at) = *reach {
            let mut set = self.empty();
            set[at / 64] |= 1 << (at % 64);
            *reach = Reach::Set(set);
        }
        let Reach::Set(set) = reach else { return };
        self.steps += set.len();
        let Some(first) = expression.first else {
            flood(set, self.allowed(expression.class));
            return;
        };
        let mut values = set.clone();
        if self.behind(first, &mut values) {
            self.steps += set.len();
            flood(&mut values, self.allowed(expression.class));
            for (word, value) in set.iter_mut().zip(&values) {
                *word |= value;
            }
        }
    }

    fn bytes(&mut self) -> &[(u8, Box<[u64]>)] {
        if self.bytes.is_none() {
            let mut found = self.text.as_bytes().to_vec();
            found.sort_unstable();
            found.dedup();
            let mut bytes: Vec<_> = found.into_iter().map(|byte| (byte, self.empty())).collect();
            for (at, byte) in self.text.bytes().enumerate() {
                let place = bytes.binary_search_by_key(&byte, |(known, _)| *known);
                let place = place.expect("each byte has a set");
                bytes[place].1[at / 64] |= 1 << (at % 64);
            }
            self.steps += self.text.len();
            self.bytes = Some(bytes);
        }
        self.bytes.as_deref().unwrap_or_default()
    }

    fn allowed(&mut self, class: Class) -> &[u64] {
        let place = self.allowed.iter().position(|(known, _)| *known == class);
        let place = place.unwrap_or_else(|| {
            let mut set = self.empty();
            for (at, one) in self.text.char_indices().filter(|(_, one)| class.has(*one)) {
                for at in at..at + one.len_utf8() {
                    set[at / 64] |= 1 << (at % 64);
                }
            }
            self.steps += self.text.len();
            self.allowed.push((class, set));
            self.allowed.len() - 1
        });
        &self.allowed[place].1
    }
}

/// Adds all positions that are reached by going on over allowed bytes: an addition carries through each run of them
/// (Cameron and others, "Bitwise data parallelism in regular expression matching", 2014).
fn flood(set: &mut [u64], allowed: &[u64]) {
    let mut carry = false;
    for (word, mask) in set.iter_mut().zip(allowed) {
        let (sum, over) = (*word & mask).overflowing_add(*mask);
        let (sum, more) = sum.overflowing_add(u64::from(carry));
        *word |= sum ^ mask;
        carry = over || more;
    }
}
