//! Topic selectors: `*`, a topic, or a URI template (RFC 6570).
//!
//! A template matches the topics that it can expand to. Matching works on the template's parts without compiling a
//! regular expression: each expression takes the characters its operator allows, by backtracking over the parts.
//!
//! Invariant: all matches of one update and one subscriber take at most [`STEPS`] steps; what needs more does not match.

/// Maximum number of steps: clients choose templates. A usual match takes about as many as its topic has characters.
const STEPS: usize = 100_000;

/// Maximum number of parts of a template: matching goes as deep. A longer template matches only itself.
const PARTS: usize = 100;

/// Returns whether any selector matches any topic.
pub(super) fn any(selectors: &[Selector], topics: &[String]) -> bool {
    let mut steps = 0;
    selectors.iter().any(|one| topics.iter().any(|topic| one.matches(topic, &mut steps)))
}

/// A topic selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selector {
    text: Box<str>,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    All,
    Topic,
    Template(Vec<Part>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(Box<str>),
    Expression {
        /// Character before the first value, if the operator has one.
        first: Option<char>,
        /// Reserved characters are allowed in values.
        reserved: bool,
        /// Characters that the operator puts between and around values.
        joins: &'static str,
    },
}

impl Selector {
    pub(super) fn new(text: &str) -> Self {
        let kind =
            if text == "*" { Kind::All } else { parts(text).map_or(Kind::Topic, Kind::Template) };
        Self { text: text.into(), kind }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    fn matches(&self, topic: &str, steps: &mut usize) -> bool {
        match &self.kind {
            Kind::All => true,
            _ if *self.text == *topic => true,
            Kind::Topic => false,
            Kind::Template(parts) => walk(parts, topic, steps),
        }
    }
}

/// Parses a template; `None` for a text without expressions or an invalid template, which matches only itself.
fn parts(text: &str) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((literal, after)) = rest.split_once('{') {
        let (expression, after) = after.split_once('}')?;
        if !literal.is_empty() {
            parts.push(Part::Literal(literal.into()));
        }
        parts.push(expression_of(expression)?);
        rest = after;
    }
    if parts.is_empty() || parts.len() > PARTS || rest.contains('}') {
        return None;
    }
    if !rest.is_empty() {
        parts.push(Part::Literal(rest.into()));
    }
    Some(parts)
}

fn expression_of(text: &str) -> Option<Part> {
    let mut rest = text.chars();
    let operator = rest.next()?;
    let (first, reserved, joins) = match operator {
        '+' => (None, true, ",="),
        '#' => (Some('#'), true, ",="),
        '.' => (Some('.'), false, ".,="),
        '/' => (Some('/'), false, "/,="),
        ';' => (Some(';'), false, ";=,"),
        '?' | '&' => (Some(operator), false, "&=,"),
        _ => (None, false, ",="),
    };
    let names = if first.is_some() || reserved { rest.as_str() } else { text };
    let is_name = |name: &str| {
        let name = name.trim_end_matches('*').split(':').next().unwrap_or_default();
        !name.is_empty()
            && name.chars().all(|one| one.is_ascii_alphanumeric() || "_.%".contains(one))
    };
    let several = names.contains(',') || names.contains('*');
    // One value needs no joins, unless its operator writes its name.
    let joins = if several || matches!(first, Some(';' | '?' | '&')) { joins } else { "" };
    names.split(',').all(is_name).then_some(Part::Expression { first, reserved, joins })
}

fn walk(parts: &[Part], topic: &str, steps: &mut usize) -> bool {
    *steps += 1;
    if *steps > STEPS {
        return false;
    }
    let Some((part, rest)) = parts.split_first() else { return topic.is_empty() };
    match part {
        Part::Literal(literal) => {
            topic.strip_prefix(&**literal).is_some_and(|topic| walk(rest, topic, steps))
        }
        Part::Expression { first, reserved, joins } => {
            // Undefined variables expand to nothing.
            if walk(rest, topic, steps) {
                return true;
            }
            if *steps > STEPS {
                return false;
            }
            let values = match first {
                Some(first) => match topic.strip_prefix(*first) {
                    Some(values) => values,
                    None => return false,
                },
                None => topic,
            };
            let may = |one: char| {
                one.is_alphanumeric()
                    || "-._~%".contains(one)
                    || joins.contains(one)
                    || (*reserved && ":/?#[]@!$&'()*+,;=".contains(one))
            };
            let longest = values.find(|one| !may(one)).unwrap_or(values.len());
            let ends = values.char_indices().map(|(at, _)| at).chain([values.len()]);
            let ends: Vec<usize> = ends.take_while(|end| *end <= longest).collect();
            *steps += ends.len();
            for end in ends.into_iter().rev() {
                if values.get(end..).is_some_and(|topic| walk(rest, topic, steps)) {
                    return true;
                }
                if *steps > STEPS {
                    return false;
                }
            }
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_match_the_topics_of_rfc_6570() {
        let cases = [
            ("*", "https://example.com/a", true),
            ("https://example.com/a", "https://example.com/a", true),
            ("https://example.com/a", "https://example.com/b", false),
            ("https://example.com/books/{id}", "https://example.com/books/1", true),
            ("https://example.com/books/{id}", "https://example.com/books/1/reviews", false),
            ("https://example.com/books/{id}.jsonld", "https://example.com/books/1.jsonld", true),
            ("https://example.com/books/{id}", "https://example.com/books/{id}", true),
            ("https://example.com/{+path}", "https://example.com/a/b?c=d", true),
            ("https://example.com{/a,b}", "https://example.com/x/y", true),
            ("https://example.com{/a}", "https://example.com/x/y", false),
            ("https://example.com/{?q}", "https://example.com/?q=1", true),
            ("https://example.com/{a}/{b}", "https://example.com/1/2", true),
            ("https://example.com/{a}/{b}", "https://example.com/1", false),
            ("{a", "{a", true),
            ("{a", "b", false),
            ("a}", "a}", true),
            ("https://{domain}.com/é/{id}", "https://example.com/é/ü", true),
        ];
        for (selector, topic, expected) in cases {
            assert_eq!(
                any(&[Selector::new(selector)], &[topic.to_owned()]),
                expected,
                "{selector} {topic}"
            );
        }
    }

    #[test]
    fn a_hostile_template_ends_soon() {
        let selector = Selector::new(&"{a}{+b}".repeat(50));
        let topic = format!("{}\u{0}", "a".repeat(5000));
        let mut steps = 0;
        assert!(!selector.matches(&topic, &mut steps));
        assert!(steps <= STEPS + topic.len() + 1, "{steps}");
        // The others do not get as many steps again.
        let before = steps;
        assert!(!selector.matches(&topic, &mut steps));
        assert!(steps < before + 10, "{steps}");
        let deep = Selector::new(&"{a}".repeat(100_000));
        assert!(!deep.matches("a", &mut 0));
    }
}
