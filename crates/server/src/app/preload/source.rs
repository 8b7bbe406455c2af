//! Reads one file of an application: what it declares, whether it does anything else, and whose existence it asks for.

mod calls;

use std::collections::HashSet;

use crate::app::tokens::{Token, tokens};

/// Known facts about a file. Symbols are in lower case and with their namespaces; functions end with `()`.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// Declared when the file is compiled.
    pub declared: Vec<String>,
    /// Declared when a statement runs: in a condition or a function.
    pub conditional: Vec<String>,
    /// The classes, interfaces, traits and enums among `declared`, in the case in which they are written.
    pub classes: Vec<String>,
    /// The file does more than to declare, when it is included.
    pub has_code: bool,
    /// Symbols that `function_exists()`, `class_exists()` and the like are called with.
    pub tested: HashSet<String>,
    /// Last parts of names that these are called with as `Name::class`.
    pub tested_names: HashSet<String>,
    /// Whether the file asks if functions exist whose names it puts together.
    pub seeks_functions: bool,
    /// Whether the file asks if classes are declared whose names it puts together, without loading them.
    pub seeks_classes: bool,
    /// Whether the file may register or remove an autoloader.
    pub changes_loaders: bool,
    /// The last texts of statements that include a file whenever the file runs.
    pub includes: Vec<String>,
    /// The function by which the file lists everything that is declared.
    pub lists: Option<&'static str>,
}

/// Statements that include a file.
const INCLUDES: &[&str] = &["include", "include_once", "require", "require_once"];

/// The construct that an opening bracket has begun.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    Namespace,
    Class,
    Function,
    /// Statements from this token on.
    Code(usize),
}

impl Source {
    /// Reads the text of a file.
    pub(super) fn of(text: &[u8]) -> Self {
        let tokens = tokens(text);
        let mut reader =
            Reader { tokens: &tokens, source: Self::default(), namespace: String::new() };
        reader.read();
        reader.source
    }
}

struct Reader<'a> {
    tokens: &'a [Token<'a>],
    source: Source,
    namespace: String,
}

fn lower(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_ascii_lowercase()
}

/// Returns the part of a name after its last backslash.
pub(super) fn last_part(name: &str) -> &str {
    name.rsplit('\\').next().unwrap_or(name)
}

impl Reader<'_> {
    fn name(&self, at: usize) -> Option<String> {
        match self.tokens.get(at) {
            Some(Token::Name(name)) => Some(lower(name)),
            _ => None,
        }
    }

    fn is(&self, at: usize, byte: u8) -> bool {
        self.tokens.get(at) == Some(&Token::Char(byte))
    }

    /// Returns whether the name is that of a member: it follows `->`, `?->` or `::`.
    fn is_member(&self, at: usize) -> bool {
        let follows = |first, second| at >= 2 && self.is(at - 2, first) && self.is(at - 1, second);
        follows(b'-', b'>') || follows(b':', b':')
    }

    fn follows(&self, at: usize, words: &[&str]) -> bool {
        let before = at.checked_sub(1).and_then(|before| self.name(before));
        before.is_some_and(|before| words.contains(&&*before))
    }

    fn read(&mut self) {
        let mut blocks: Vec<Block> = Vec::new();
        // What the next opening bracket begins, if it is no code.
        let mut next = None;
        let (mut statement, mut brackets) = (0, 0_usize);
        for at in 0..self.tokens.len() {
            let is_top = blocks.iter().all(|block| *block == Block::Namespace);
            match &self.tokens[at] {
                Token::Name(_) => {
                    if let Some(block) = self.declaration(at, is_top, &blocks) {
                        next = Some(block);
                    }
                    self.call(at);
                    self.used(at);
                }
                Token::Text(text) => self.callable(text),
                Token::Char(b'(' | b'[') => brackets += 1,
                Token::Char(b')' | b']') => brackets = brackets.saturating_sub(1),
                Token::Char(b'{') => {
                    blocks.push(next.take().unwrap_or(Block::Code(statement)));
                    if blocks.last() == Some(&Block::Namespace) {
                        statement = at + 1;
                    }
                }
                Token::Char(b'}') => {
                    let ended = blocks.pop();
                    if blocks.iter().all(|block| *block == Block::Namespace) && brackets == 0 {
                        if let Some(Block::Code(from)) = ended {
                            self.statement(from, at);
                        }
                        statement = at + 1;
                    }
                }
                Token::Char(b';') | Token::End if brackets == 0 => {
                    // An abstract function has no block.
                    next = None;
                    if is_top {
                        self.statement(statement, at);
                        statement = at + 1;
                    }
                }
                Token::Html if is_top => self.source.has_code = true,
                _ => {}
            }
        }
        self.statement(statement, self.tokens.len());
    }

    /// Keeps what the name at this place declares. Returns which block that has.
    fn declaration(&mut self, at: usize, is_top: bool, blocks: &[Block]) -> Option<Block> {
        let word = self.name(at)?;
        if self.is_member(at) || self.follows(at, &["function", "const", "use"]) {
            return None;
        }
        match &*word {
            "namespace" if is_top => {
                let name = self.name(at + 1);
                let ends = at + 1 + usize::from(name.is_some());
                self.namespace = match self.tokens.get(at + 1) {
                    Some(Token::Name(name)) => String::from_utf8_lossy(name).into_owned() + "\\",
                    _ => String::new(),
                };
                self.is(ends, b'{').then_some(Block::Namespace)
            }
            "class" | "interface" | "trait" | "enum" => {
                let is_enum = word == "enum";
                let name = self.name(at + 1).filter(|name| {
                    let begins = self.is(at + 2, b'{') || self.is(at + 2, b':');
                    !is_enum
                        || name != "extends"
                            && (begins
                                || self.name(at + 2).is_some_and(|word| word == "implements"))
                });
                let is_new = self.follows(at, &["new"]);
                match name.filter(|name| !is_new && !matches!(&**name, "extends" | "implements")) {
                    Some(name) => {
                        self.declare(&name, "", is_top);
                        if let (true, Some(Token::Name(name))) = (is_top, self.tokens.get(at + 1)) {
                            let class =
                                format!("{}{}", self.namespace, String::from_utf8_lossy(name));
                            self.source.classes.push(class);
                        }
                        Some(Block::Class)
                    }
                    // One without a name.
                    None if word == "class" => Some(Block::Class),
                    None => None,
                }
            }
            "function" => {
                let name = at + 1 + usize::from(self.is(at + 1, b'&'));
                let named = self.name(name).filter(|_| self.is(name + 1, b'('));
                if let Some(named) = named
                    && blocks.last() != Some(&Block::Class)
                {
                    self.declare(&named, "()", is_top);
                }
                Some(Block::Function)
            }
            _ => None,
        }
    }

    fn declare(&mut self, name: &str, end: &str, is_top: bool) {
        let symbol = format!("{}{name}{end}", self.namespace.to_ascii_lowercase());
        let to = if is_top { &mut self.source.declared } else { &mut self.source.conditional };
        to.push(symbol);
    }

    /// Looks at a statement outside of all declarations, from this token to the one before `end`.
    fn statement(&mut self, from: usize, end: usize) {
        let tokens = self.tokens.get(from..end).unwrap_or_default();
        let Some(first) = tokens.first() else { return };
        self.source.includes.extend(included(tokens));
        let is_harmless = match first {
            Token::Name(word) => match &*lower(word) {
                "namespace" | "use" | "declare" => true,
                "return" => tokens.len() == 1,
                _ => is_guard(tokens),
            },
            _ => false,
        };
        self.source.has_code |= !is_harmless;
    }
}

/// Returns the last text of a statement that includes a file.
fn included(statement: &[Token<'_>]) -> Option<String> {
    let is_include = |token: &Token<'_>| match token {
        Token::Name(word) => INCLUDES.contains(&&*lower(word)),
        _ => false,
    };
    let word = match statement {
        [Token::Variable, Token::Char(b'='), word, ..] => Some(word),
        [Token::Name(first), word, ..] if lower(first) == "return" => Some(word),
        words => words.first(),
    };
    let includes = word.is_some_and(is_include);
    let text = statement.iter().rev().find_map(|token| match token {
        Token::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    });
    text.filter(|_| includes)
}

/// Returns whether a statement only ends the script if a constant is not defined. It is the same whenever the file is included.
fn is_guard(tokens: &[Token<'_>]) -> bool {
    let mut words = HashSet::new();
    let fits = tokens.iter().all(|token| match token {
        Token::Name(name) => {
            words.insert(lower(name));
            true
        }
        Token::Text(_) | Token::Value | Token::Template(_) => true,
        Token::Char(byte) => b"(){};!|".contains(byte),
        _ => false,
    });
    let known = ["if", "defined", "or", "exit", "die", "return", "false"];
    fits && words.contains("defined")
        && ["exit", "die", "return"].iter().any(|end| words.contains(*end))
        && words.iter().all(|word| known.contains(&&**word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(text: &str) -> String {
        let source = Source::of(format!("<?php {text}").as_bytes());
        let mut tested: Vec<_> =
            source.tested.iter().chain(&source.tested_names).cloned().collect();
        tested.sort();
        format!(
            "{} | {} |{}{} {}",
            source.declared.join(" "),
            source.conditional.join(" "),
            if source.classes.is_empty() { "" } else { " classes" },
            if source.has_code { " code" } else { "" },
            tested.join(" ")
        )
        .trim()
        .to_owned()
    }

    #[test]
    fn declarations_are_found_with_their_namespaces() {
        for (text, expected) in [
            ("class A { function b() { new class { }; } }", "a |  | classes"),
            (
                "namespace N\\M; use X\\Y; final class A extends B {} function &f(): int { return 1; }",
                "n\\m\\a n\\m\\f() |  | classes",
            ),
            (
                "namespace N { interface I { const A = 1; } } namespace { trait T {} }",
                "n\\i t |  | classes",
            ),
            ("enum E: string { case A = 'a'; } $enum = enum(1);", "e |  | classes code"),
            (
                "if (!function_exists('f')) { function f() { function g() {} } }",
                "| f() g() | code f f()",
            ),
            ("if (!class_exists(\\N\\C::class)) { class C {} }", "| c | code c"),
            (
                "#[Attribute(1)] abstract class A { public function class() { return A::class; } }",
                "a |  | classes",
            ),
            ("$f = function () use ($a) { }; $b->function('x'); echo X::class;", "|  | code"),
            ("class_alias('A', 'N\\B');", "| n\\b | code"),
            ("namespace N; \\is_callable('a::b');", "|  | code a"),
            ("is_callable(['\\N\\A', 'b']);", "|  | code n\\a"),
            ("is_callable( array( N\\A::class, 'b' ) ); is_callable([$a, 'b']);", "|  | code a"),
        ] {
            assert_eq!(described(text), expected, "{text}");
        }
    }

    #[test]
    fn code_is_what_is_no_declaration() {
        for text in [
            "declare(strict_types=1); namespace N; use function A\\b; class C {} return;",
            "defined('ABSPATH') || exit; class C {}",
            "if ( ! defined( 'ABSPATH' ) ) { die( 'no' ); } function f() {}",
            "if (!defined('MEDIAWIKI')) exit(1); class C { public static $a = [1, 2]; }",
            "class C { function f() { ?> text <?php if (1): ?> <b> <?php endif; } }",
            "; class C { function f() { return match (1) { 1 => 2 }; } } ?>\n",
        ] {
            assert!(!Source::of(format!("<?php {text}").as_bytes()).has_code, "{text}");
        }
        for text in [
            "define('A', 1); class C {}",
            "const A = 1;",
            "require 'a.php'; class C {}",
            "class C {} C::start();",
            "return [1];",
            "class C {} ?> text",
            "if (!defined('A')) { define('A', 1); }",
            "if (PHP_VERSION_ID < 1) { class C {} }",
            "defined('A') || exit($_GET['a']);",
        ] {
            assert!(Source::of(format!("<?php {text}").as_bytes()).has_code, "{text}");
        }
        assert_eq!(
            Source::of(b"<?php get_declared_classes();").lists,
            Some("get_declared_classes")
        );
    }
}
