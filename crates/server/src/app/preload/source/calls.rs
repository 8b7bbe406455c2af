//! Names that the calls in a file ask for, and calls that change the autoloaders.

use super::{Reader, last_part, lower};
use crate::app::tokens::Token;

/// Functions whose answer depends on whether a class or function is there.
const TESTS: &[&str] = &[
    "function_exists",
    "class_exists",
    "interface_exists",
    "trait_exists",
    "enum_exists",
    "is_callable",
    "method_exists",
    "property_exists",
    "is_subclass_of",
];

/// Functions that load a class first, unless their second argument is false.
const LOADING: &[&str] = &["class_exists", "interface_exists", "trait_exists", "enum_exists"];

/// Functions that change which autoloaders there are.
const LOADERS: &[&str] = &["spl_autoload_register", "spl_autoload_unregister"];

/// Functions that list all that are there.
const LISTS: &[&str] = &[
    "get_declared_classes",
    "get_declared_interfaces",
    "get_declared_traits",
    "get_defined_functions",
];

impl Reader<'_> {
    /// Keeps what a call at this place asks for.
    pub(super) fn call(&mut self, at: usize) {
        if !self.is(at + 1, b'(') || self.is_member(at) || self.follows(at, &["function", "new"]) {
            return;
        }
        let Some(name) = self.name(at) else { return };
        let name = last_part(&name);
        if let Some(lists) = LISTS.iter().find(|lists| **lists == name) {
            self.source.lists = Some(lists);
        }
        if name == "class_alias"
            && let Some(Token::Text(alias)) = self.tokens.get(at + 4)
        {
            let alias = lower(alias);
            self.source.conditional.push(alias.trim_start_matches('\\').to_owned());
        }
        if TESTS.contains(&name) {
            self.test(name, at + 2);
        }
    }

    /// Keeps what a call of one of `TESTS` asks for. Its arguments begin at this place.
    fn test(&mut self, function: &str, at: usize) {
        let array = self.array(at);
        let first = array.unwrap_or(at);
        let ends = |at: usize| [b',', b')', b']'].iter().any(|end| self.is(at, *end));
        match self.tokens.get(first) {
            Some(Token::Text(text)) if ends(first + 1) => {
                let text = lower(text);
                let text = text.trim_start_matches('\\');
                let class = text.split_once("::").map(|(class, _)| class);
                if class.is_none() && array.is_none() {
                    self.source.tested.insert(format!("{text}()"));
                }
                self.source.tested.insert(class.unwrap_or(text).to_owned());
            }
            Some(Token::Name(name)) if self.name(first + 3).is_some_and(|word| word == "class") => {
                let name = lower(name);
                self.source.tested_names.insert(last_part(&name).to_owned());
            }
            Some(Token::Text(_) | Token::Template(_)) if function == "is_callable" => {
                self.source.seeks_functions = true;
            }
            _ if function == "function_exists" => self.source.seeks_functions = true,
            _ if LOADING.contains(&function) => {
                // `...` stands for any arguments.
                self.source.seeks_classes |= self.is(at, b'.') || self.has_second_argument(at);
            }
            _ => {}
        }
    }

    /// Returns whether a call whose arguments begin here has a second one that is not `true`.
    fn has_second_argument(&self, from: usize) -> bool {
        let mut depth = 0_usize;
        for at in from..self.tokens.len() {
            match self.tokens[at] {
                Token::Char(b'(' | b'[' | b'{') => depth += 1,
                Token::Char(b')' | b']' | b'}') if depth == 0 => return false,
                Token::Char(b')' | b']' | b'}') => depth -= 1,
                Token::Char(b',') if depth == 0 => {
                    return self.name(at + 1).is_none_or(|name| name != "true");
                }
                _ => {}
            }
        }
        false
    }

    /// Keeps whether the name at this place changes the autoloaders, or is another name for what does, or for one of `TESTS`.
    pub(super) fn used(&mut self, at: usize) {
        let Some(name) = self.name(at) else { return };
        let name = last_part(&name);
        let extends = self.follows(at, &["extends"]);
        let is_renamed = self.name(at + 1).is_some_and(|word| word == "as");
        self.source.seeks_functions |= is_renamed && name == "function_exists";
        self.source.seeks_classes |= is_renamed && LOADING.contains(&name);
        self.source.changes_loaders |= LOADERS.contains(&name) && !self.is_member(at)
            || name == "classloader" && (extends || is_renamed);
    }

    /// Returns the place of the first value of an array that begins here: `['Class', 'method']` is a callable.
    fn array(&self, at: usize) -> Option<usize> {
        let is_long = self.name(at).is_some_and(|name| name == "array") && self.is(at + 1, b'(');
        if is_long { Some(at + 2) } else { self.is(at, b'[').then_some(at + 1) }
    }

    /// Looks at a text that may be called: which names that is done with is not known.
    pub(super) fn callable(&mut self, text: &[u8]) {
        let text = lower(text);
        let name = text.trim_start_matches('\\');
        self.source.seeks_functions |= name == "function_exists";
        self.source.seeks_classes |= LOADING.contains(&name);
        self.source.changes_loaders |= LOADERS.contains(&name);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Source;

    #[test]
    fn names_that_code_puts_together_and_autoloaders_are_found() {
        for (text, expected) in [
            (
                "function_exists('f'); is_callable('f'); is_callable($f); class_exists($c); class_exists($c, true);",
                "",
            ),
            (
                "class_exists('C', false); method_exists($c, 'm'); class_exists(f($a, false)); $a->class_exists($c, false);",
                "",
            ),
            ("function_exists($f);", "functions"),
            ("function_exists($module . '_hook');", "functions"),
            ("\\Function_Exists('a_' . $hook);", "functions"),
            ("function_exists(\"{$module}_hook\");", "functions"),
            ("is_callable('action_' . $name); ", "functions"),
            ("is_callable(\"action_$name\");", "functions"),
            ("array_filter($names, 'function_exists');", "functions"),
            ("function_exists(self::NAME);", "functions"),
            ("use function function_exists as exists;", "functions"),
            ("use function function_exists, class_exists;", ""),
            ("array_filter($names, class_exists(...));", "classes"),
            ("class_exists($c, false);", "classes"),
            ("interface_exists(f($a, [1, 2]), $load);", "classes"),
            ("class_exists('App' . $c, autoload: false);", "classes"),
            ("spl_autoload_register(function ($class) {});", "loaders"),
            ("use function spl_autoload_register as add;", "loaders"),
            ("call_user_func('spl_autoload_unregister', $loader);", "loaders"),
            ("class Mine extends \\Composer\\Autoload\\ClassLoader {}", "loaders"),
            ("use Composer\\Autoload\\ClassLoader as Base;", "loaders"),
            ("use Composer\\Autoload\\ClassLoader; $this->spl_autoload_register();", ""),
        ] {
            let source = Source::of(format!("<?php {text}").as_bytes());
            let found: Vec<_> = [
                (source.seeks_functions, "functions"),
                (source.seeks_classes, "classes"),
                (source.changes_loaders, "loaders"),
            ]
            .iter()
            .filter_map(|(is_found, name)| is_found.then_some(*name))
            .collect();
            assert_eq!(found.join(" "), expected, "{text}");
        }
        let classes =
            Source::of(b"<?php namespace N\\M; class One {} enum Two: int {} function f() {}")
                .classes;
        assert_eq!(classes, ["N\\M\\One", "N\\M\\Two"]);
    }
}
