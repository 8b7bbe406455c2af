//! Topic selectors: `*`, a topic, or a URI template (RFC 6570).
//!
//! A template matches the topics that it can expand to. It is compiled once, and subscribers with the same template
//! share it. Matching holds the set of positions in the topic that the parts so far can reach, one bit each: no
//! backtracking, no recursion, no regular expression of a client's text.
//!
//! Invariants
//! - A match takes at most one step for each expression, and one for each byte of the topic, and this for each 64
//!   bytes of the topic. So none has to be given up.
//! - Each template is matched once with each topic of an update, however many subscribers have it, and not again while
//!   the topic is [cached](Cache).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::positions::{Reach, Topic};

/// Maximum number of expressions in the templates of a subscriber.
const EXPRESSIONS: usize = 1000;

/// Maximum memory of cached results in bytes.
const CACHE: usize = 4 * 1024 * 1024;

/// Results for longer topics are not cached.
const CACHED_TOPIC: usize = 1024;

/// Returns whether any selector matches any topic.
pub(super) fn any(selectors: &[Selector], topics: &[String]) -> bool {
    Matching::new(topics).any(selectors)
}

/// Returns whether the templates of a subscriber are cheap enough to be matched with each update.
pub(super) fn are_bounded(selectors: &[Selector]) -> bool {
    let expressions = selectors.iter().filter_map(|selector| match &selector.kind {
        Kind::Template(template) => Some(template.expressions()),
        _ => None,
    });
    expressions.sum::<usize>() <= EXPRESSIONS
}

/// A topic selector. Clones share a compiled template.
#[derive(Clone, Debug)]
pub(super) struct Selector {
    text: Arc<str>,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    All,
    Topic,
    Template(Arc<Template>),
}

/// A compiled template.
#[derive(Debug)]
pub(super) struct Template {
    /// Names the template in results: no other one ever has it.
    id: u64,
    text: Arc<str>,
    parts: Box<[Part]>,
}

#[derive(Debug)]
enum Part {
    Literal(Box<str>),
    Expression(Expression),
}

/// The texts that an expression may expand to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expression {
    /// Character before the first value, if the operator has one.
    pub(super) first: Option<u8>,
    pub(super) class: Class,
}

/// The characters of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class {
    /// Reserved characters are allowed in values.
    reserved: bool,
    /// Characters that the operator puts between and around values.
    joins: &'static str,
}

impl Class {
    pub(super) fn has(self, one: char) -> bool {
        one.is_alphanumeric()
            || "-._~%".contains(one)
            || self.joins.contains(one)
            || (self.reserved && ":/?#[]@!$&'()*+,;=".contains(one))
    }
}

impl Selector {
    pub(super) fn new(text: &str) -> Self {
        let text: Arc<str> = text.into();
        let kind = if *text == *"*" {
            Kind::All
        } else {
            Template::new(&text).map_or(Kind::Topic, |template| Kind::Template(Arc::new(template)))
        };
        Self { text, kind }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

impl Template {
    /// Compiles a template; `None` for a text without expressions or an invalid template, which matches only itself.
    fn new(text: &Arc<str>) -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut parts = Vec::new();
        let mut rest = &**text;
        while let Some((literal, after)) = rest.split_once('{') {
            let (expression, after) = after.split_once('}')?;
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.into()));
            }
            parts.push(Part::Expression(expression_of(expression)?));
            rest = after;
        }
        if parts.is_empty() || rest.contains('}') {
            return None;
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.into()));
        }
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Some(Self { id, text: Arc::clone(text), parts: parts.into() })
    }

    fn expressions(&self) -> usize {
        self.parts.iter().filter(|part| matches!(part, Part::Expression(_))).count()
    }

    fn matches(&self, topic: &mut Topic<'_>) -> bool {
        topic.step(1);
        if let Some(Part::Literal(last)) = self.parts.last()
            && !topic.text().ends_with(&**last)
        {
            return false;
        }
        let mut reach = Reach::One(0);
        for part in &self.parts {
            let alive = match part {
                Part::Literal(literal) => topic.literal(&mut reach, literal),
                Part::Expression(expression) => {
                    topic.expression(&mut reach, *expression);
                    true
                }
            };
            if !alive {
                return false;
            }
        }
        topic.is_end(&reach)
    }
}

fn expression_of(text: &str) -> Option<Expression> {
    let mut rest = text.chars();
    let operator = rest.next()?;
    let (first, reserved, joins) = match operator {
        '+' => (None, true, ",="),
        '#' => (Some(b'#'), true, ",="),
        '.' => (Some(b'.'), false, ".,="),
        '/' => (Some(b'/'), false, "/,="),
        ';' => (Some(b';'), false, ";=,"),
        '?' => (Some(b'?'), false, "&=,"),
        '&' => (Some(b'&'), false, "&=,"),
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
    let joins = if several || matches!(first, Some(b';' | b'?' | b'&')) { joins } else { "" };
    let class = Class { reserved, joins };
    names.split(',').all(is_name).then_some(Expression { first, class })
}

/// The templates of all subscribers, so that equal ones are one.
#[derive(Debug, Default)]
pub(super) struct Templates {
    known: HashMap<Arc<str>, Weak<Template>>,
    /// Unused ones are removed when there are more.
    sweep_above: usize,
}

impl Templates {
    /// Replaces templates by equal ones that are in use.
    pub(super) fn share(&mut self, selectors: &mut [Selector]) {
        for selector in selectors {
            let Kind::Template(template) = &mut selector.kind else { continue };
            if let Some(known) = self.known.get(&*template.text).and_then(Weak::upgrade) {
                selector.text = Arc::clone(&known.text);
                *template = known;
            } else {
                self.known.insert(Arc::clone(&template.text), Arc::downgrade(template));
            }
        }
        if self.known.len() > self.sweep_above {
            self.known.retain(|_, template| template.strong_count() > 0);
            self.sweep_above = self.known.len() * 2 + 64;
        }
    }
}

/// The results for topics of earlier updates.
#[derive(Debug, Default)]
pub(super) struct Cache {
    topics: HashMap<Box<str>, HashMap<u64, bool>>,
    memory: usize,
}

impl Cache {
    /// Begins to match the topics of an update.
    pub(super) fn begin<'a>(&mut self, topics: &'a [String]) -> Matching<'a> {
        let known = |topic: &'a String| {
            let known = self.topics.remove(&**topic);
            self.memory -= known.as_ref().map_or(0, |known| memory(topic, known));
            (Topic::new(topic), known.unwrap_or_default())
        };
        Matching { topics: topics.iter().map(known).collect() }
    }

    /// Keeps the results.
    pub(super) fn end(&mut self, matching: Matching<'_>) {
        for (topic, known) in matching.topics {
            if known.is_empty() || topic.text().len() > CACHED_TOPIC {
                continue;
            }
            let memory = memory(topic.text(), &known);
            if self.memory + memory > CACHE {
                self.topics.clear();
                self.memory = 0;
            }
            // An update may name a topic twice.
            if memory <= CACHE && !self.topics.contains_key(topic.text()) {
                self.memory += memory;
                self.topics.insert(topic.text().into(), known);
            }
        }
    }
}

fn memory(topic: &str, known: &HashMap<u64, bool>) -> usize {
    // A table is up to 8/7 to 16/7 times as large as what it has, and has a byte beside each entry.
    topic.len() + 128 + known.len() * (size_of::<(u64, bool)>() + 1) * 2
}

/// The topics of one update, while they are matched.
#[derive(Debug)]
pub(super) struct Matching<'a> {
    topics: Vec<(Topic<'a>, HashMap<u64, bool>)>,
}

impl<'a> Matching<'a> {
    pub(super) fn new(topics: &'a [String]) -> Self {
        Self { topics: topics.iter().map(|topic| (Topic::new(topic), HashMap::new())).collect() }
    }

    /// Returns whether any selector matches any topic.
    pub(super) fn any(&mut self, selectors: &[Selector]) -> bool {
        selectors.iter().any(|selector| {
            self.topics.iter_mut().any(|(topic, known)| match &selector.kind {
                Kind::All => true,
                _ if *selector.text == *topic.text() => true,
                Kind::Topic => false,
                Kind::Template(template) => {
                    *known.entry(template.id).or_insert_with(|| template.matches(topic))
                }
            })
        })
    }

    /// Returns the number of steps so far.
    #[cfg(test)]
    fn steps(&self) -> usize {
        self.topics.iter().map(|(topic, _)| topic.steps()).sum()
    }
}

#[cfg(test)]
mod tests;
