//! Values that change with each answer of the reference and stay the same in a model that boots once: a token, an id or a time of the boot.
//!
//! Such a place is volatile, and therefore masked where single answers are compared. Knows nothing of sockets and models.

use std::collections::{BTreeMap, BTreeSet};

use super::compare::{Difference, Parts, changes};

/// The successive answers to one request, in one process.
#[derive(Debug, Default)]
pub(super) struct Successive {
    last: Option<Parts>,
    pairs: usize,
    /// Places that changed between every two successive answers.
    always: Option<BTreeMap<u64, Difference>>,
    /// Places that changed at least once.
    ever: BTreeSet<u64>,
}

impl Successive {
    /// Adds the next answer.
    pub(super) fn add(&mut self, answer: Parts) {
        if let Some(last) = &self.last {
            let changed = changes(last, &answer);
            self.ever.extend(changed.keys());
            self.pairs += 1;
            self.always = Some(match self.always.take() {
                None => changed,
                Some(mut always) => {
                    always.retain(|place, _| changed.contains_key(place));
                    always
                }
            });
        }
        self.last = Some(answer);
    }

    /// Returns the places that changed each time here, and never in another process. `pairs`: the fewest pairs of answers that count.
    pub(super) fn fixed_in(&self, other: &Self, pairs: usize) -> Vec<Difference> {
        if self.pairs < pairs || other.pairs < pairs {
            return Vec::new();
        }
        let always = self.always.iter().flat_map(BTreeMap::values);
        let has = |difference: &&Difference| {
            other.last.as_ref().is_some_and(|last| last.contains_key(&difference.part))
        };
        always
            .filter(|difference| !other.ever.contains(&difference.place))
            .filter(has)
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(bodies: &[&str]) -> Successive {
        let mut successive = Successive::default();
        for body in bodies {
            successive.add(Parts::from([("body".to_owned(), (*body).to_owned().into())]));
        }
        successive
    }

    #[test]
    fn a_value_of_the_boot_is_one_that_changes_in_the_reference_only() {
        let reference =
            process(&["<i>a1</i> <b>1</b>", "<i>b2</i> <b>1</b>", "<i>c3</i> <b>2</b>"]);
        let booted = process(&["<i>d4</i> <b>1</b>", "<i>d4</i> <b>1</b>", "<i>d4</i> <b>1</b>"]);
        let fixed = reference.fixed_in(&booted, 2);
        assert_eq!(fixed.len(), 1, "the second one changed once only: {fixed:?}");
        assert!(
            fixed.first().unwrap().expected.as_ref().unwrap().contains("b2")
                || fixed.first().unwrap().expected.as_ref().unwrap().contains("a1")
        );
        assert_eq!(reference.fixed_in(&booted, 3), [], "too few answers");
        let fresh = process(&["<i>d4</i> <b>1</b>", "<i>e5</i> <b>1</b>", "<i>f6</i> <b>1</b>"]);
        assert_eq!(reference.fixed_in(&fresh, 2), []);
        assert_eq!(booted.fixed_in(&reference, 2), []);
    }
}
