//! Texts as tokens, and where two texts differ.
//!
//! Knows nothing of requests.

use std::ops::Range;

/// The most edits that are looked for; texts that differ more differ as a whole between their common ends.
const MOST_EDITS: usize = 600;

/// A place where two texts differ: these tokens of the one, those of the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hunk {
    pub(super) old: Range<usize>,
    pub(super) new: Range<usize>,
}

/// Splits a text into words, runs of white space, and single other characters. Times, dates, numbers and base64 are mostly one word.
pub(super) fn tokens(text: &[u8]) -> Vec<&[u8]> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.first() {
        let class = class(*first);
        let same = |byte: &u8| class != Class::Other && self::class(*byte) == class;
        let length = rest.iter().skip(1).take_while(|byte| same(byte)).count() + 1;
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after;
    }
    tokens
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Word,
    White,
    Other,
}

fn class(byte: u8) -> Class {
    match byte {
        b'0'..=b'9'
        | b'A'..=b'Z'
        | b'a'..=b'z'
        | b'_'
        | b'.'
        | b':'
        | b'-'
        | b'+'
        | b'%'
        | 0x80.. => Class::Word,
        b' ' | b'\t' | b'\r' | b'\n' => Class::White,
        _ => Class::Other,
    }
}

/// Returns where two sequences of tokens differ, in order: Myers' greedy algorithm between their common ends.
pub(super) fn hunks(old: &[&[u8]], new: &[&[u8]]) -> Vec<Hunk> {
    let start = old.iter().zip(new).take_while(|(one, other)| one == other).count();
    let old_rest = old.get(start..).unwrap_or_default();
    let new_rest = new.get(start..).unwrap_or_default();
    let same = old_rest.iter().rev().zip(new_rest.iter().rev());
    let end = same.take_while(|(one, other)| one == other).count();
    let old_middle = old_rest.get(..old_rest.len() - end).unwrap_or_default();
    let new_middle = new_rest.get(..new_rest.len() - end).unwrap_or_default();
    if old_middle.is_empty() && new_middle.is_empty() {
        return Vec::new();
    }
    let found = edits(old_middle, new_middle)
        .unwrap_or_else(|| vec![Hunk { old: 0..old_middle.len(), new: 0..new_middle.len() }]);
    let moved = |range: &Range<usize>| range.start + start..range.end + start;
    found.iter().map(|hunk| Hunk { old: moved(&hunk.old), new: moved(&hunk.new) }).collect()
}

/// Returns the hunks of two texts; none if there are too many.
fn edits(old: &[&[u8]], new: &[&[u8]]) -> Option<Vec<Hunk>> {
    let (old_len, new_len) = (old.len(), new.len());
    let most = (old_len + new_len).min(MOST_EDITS);
    // `reached[diagonal + offset]`: the furthest place in `old` on the diagonal `old - new`.
    let offset = most + 1;
    let mut reached = vec![0_usize; 2 * most + 3];
    let mut history: Vec<Vec<usize>> = Vec::new();
    for count in 0..=most {
        history.push(reached.clone());
        for step in (0..=2 * count).step_by(2) {
            // The index of the diagonal `step - count`.
            let here = offset + step - count;
            let mut x = from(&reached, here, step == 0, step == 2 * count);
            let Some(mut y) = (x + offset).checked_sub(here) else { continue };
            while x < old_len && y < new_len && old.get(x) == new.get(y) {
                x += 1;
                y += 1;
            }
            *reached.get_mut(here)? = x;
            if x >= old_len && y >= new_len {
                return Some(joined(&backtracked(&history, offset, (old_len, new_len))));
            }
        }
    }
    None
}

/// Returns where a diagonal is entered: from the one above, or the one below.
fn from(reached: &[usize], here: usize, first: bool, last: bool) -> usize {
    let at = |index: usize| reached.get(index).copied().unwrap_or(0);
    if first || (!last && at(here - 1) < at(here + 1)) { at(here + 1) } else { at(here - 1) + 1 }
}

/// Returns the edits from the end to the start: places in both texts, and whether a token of `new` is inserted there.
fn backtracked(
    history: &[Vec<usize>],
    offset: usize,
    end: (usize, usize),
) -> Vec<(usize, usize, bool)> {
    let (mut x, mut y) = end;
    let mut edits = Vec::new();
    for (count, reached) in history.iter().enumerate().skip(1).rev() {
        let here = x + offset - y;
        let step = here + count - offset;
        let at = |index: usize| reached.get(index).copied().unwrap_or(0);
        let inserted = step == 0 || (step != 2 * count && at(here - 1) < at(here + 1));
        let before = if inserted { here + 1 } else { here - 1 };
        let before_x = at(before);
        let before_y = (before_x + offset).saturating_sub(before);
        edits.push((before_x, before_y, inserted));
        (x, y) = (before_x, before_y);
    }
    edits.reverse();
    edits
}

/// Joins edits that follow each other.
fn joined(edits: &[(usize, usize, bool)]) -> Vec<Hunk> {
    let mut hunks: Vec<Hunk> = Vec::new();
    for &(x, y, inserted) in edits {
        let (old, new) = if inserted { (x..x, y..y + 1) } else { (x..x + 1, y..y) };
        match hunks.last_mut() {
            Some(last) if last.old.end == old.start && last.new.end == new.start => {
                last.old.end = old.end;
                last.new.end = new.end;
            }
            _ => hunks.push(Hunk { old, new }),
        }
    }
    hunks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_white_space_and_other_characters_are_tokens() {
        let found = tokens(b"<p id=\"a_1\">10:00:01  caf\xc3\xa9\n</p>");
        let found: Vec<String> =
            found.iter().map(|token| String::from_utf8_lossy(token).into_owned()).collect();
        let expected = [
            "<",
            "p",
            " ",
            "id",
            "=",
            "\"",
            "a_1",
            "\"",
            ">",
            "10:00:01",
            "  ",
            "caf\u{e9}",
            "\n",
            "<",
            "/",
            "p",
            ">",
        ];
        assert_eq!(found, expected);
    }

    fn differences(old: &str, new: &str) -> Vec<(String, String)> {
        let (old, new) = (tokens(old.as_bytes()), tokens(new.as_bytes()));
        let text = |tokens: &[&[u8]], range: &Range<usize>| {
            String::from_utf8(tokens[range.clone()].concat()).unwrap()
        };
        hunks(&old, &new)
            .iter()
            .map(|hunk| (text(&old, &hunk.old), text(&new, &hunk.new)))
            .collect()
    }

    #[test]
    fn changes_insertions_and_removals_are_found() {
        let changed = |old: &str, new: &str| vec![(old.to_owned(), new.to_owned())];
        assert_eq!(differences("a b c", "a b c"), []);
        assert_eq!(differences("a b c", "a x c"), changed("b", "x"));
        assert_eq!(differences("a c", "a b c"), changed("", "b "));
        assert_eq!(differences("a b c", "a c"), changed("b ", ""));
        assert_eq!(differences("", "a"), changed("", "a"));
        let two = [("1".to_owned(), "2".to_owned()), ("y".to_owned(), "z".to_owned())];
        assert_eq!(differences("a=1;b=x;c=y", "a=2;b=x;c=z"), two);
    }

    #[test]
    fn texts_that_differ_too_much_differ_between_their_ends() {
        let many = |offset: usize| {
            (0..2000)
                .map(|number| (number * 2 + offset).to_string() + " ")
                .collect::<Vec<_>>()
                .concat()
        };
        let found = differences(&format!("start {}end", many(0)), &format!("start {}end", many(1)));
        assert_eq!(found.len(), 1);
        assert!(found.first().unwrap().0.starts_with("0 "));
    }

    proptest! {
        #[test]
        fn hunks_turn_the_old_text_into_the_new_one(old in "[ab ]{0,40}", new in "[ab ]{0,40}") {
            let (old, new) = (tokens(old.as_bytes()), tokens(new.as_bytes()));
            let mut made: Vec<&[u8]> = Vec::new();
            let mut place = 0;
            for hunk in hunks(&old, &new) {
                made.extend(&old[place..hunk.old.start]);
                made.extend(&new[hunk.new.clone()]);
                prop_assert_ne!(old.get(hunk.old.clone()), new.get(hunk.new));
                place = hunk.old.end;
            }
            made.extend(&old[place..]);
            prop_assert_eq!(made, new);
        }
    }
}
