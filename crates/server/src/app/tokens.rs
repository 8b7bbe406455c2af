//! Splits PHP source into tokens, as far as declarations and calls are to be found in it.
//!
//! Invariants
//! - Any bytes are read to their end: what is no PHP gives some tokens, never a panic.
//! - Comments and white space give no token; a string is one token, whatever is in it.

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::app) enum Token<'a> {
    /// A keyword or name, with its backslashes.
    Name(&'a [u8]),
    Variable,
    /// A string without variables in it, unescaped.
    Text(Vec<u8>),
    /// A number.
    Value,
    /// A string with variables, or a command in backticks, as it is in the source. A heredoc is one, too.
    Template(&'a [u8]),
    /// Text outside of `<?php ?>`.
    Html,
    /// `?>`, which ends a statement.
    End,
    /// One byte of an operator or a bracket.
    Char(u8),
}

/// Returns the tokens of a file.
pub(in crate::app) fn tokens(source: &[u8]) -> Vec<Token<'_>> {
    let mut lexer = Lexer { source, at: 0, tokens: Vec::new() };
    lexer.html();
    while lexer.at < source.len() {
        lexer.next();
    }
    lexer.tokens
}

struct Lexer<'a> {
    source: &'a [u8],
    at: usize,
    tokens: Vec<Token<'a>>,
}

fn begins_name(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte == b'\\' || byte >= 0x80
}

fn in_name(byte: u8) -> bool {
    begins_name(byte) || byte.is_ascii_digit()
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a [u8] {
        self.source.get(self.at..).unwrap_or_default()
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.source.get(self.at + ahead).copied().unwrap_or(0)
    }

    /// Moves behind the next `end`, or to the end of the file. Returns what was before it.
    fn skip_past(&mut self, end: &[u8]) -> &'a [u8] {
        let rest = self.rest();
        let found = rest.windows(end.len()).position(|window| window == end);
        let len = found.unwrap_or(rest.len());
        self.at += found.map_or(len, |at| at + end.len());
        &rest[..len]
    }

    fn take_while(&mut self, fits: impl Fn(u8) -> bool) -> &'a [u8] {
        let rest = self.rest();
        let len = rest.iter().position(|byte| !fits(*byte)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    /// Reads to the next opening tag.
    fn html(&mut self) {
        let text = self.skip_past(b"<?");
        let is_start = self.tokens.is_empty() && text.starts_with(b"#!");
        if !is_start && !text.trim_ascii().is_empty() {
            self.tokens.push(Token::Html);
        }
        if self.rest().get(..3).is_some_and(|tag| tag.eq_ignore_ascii_case(b"php")) {
            self.at += 3;
        } else if self.peek(0) == b'=' {
            self.at += 1;
            self.tokens.push(Token::Name(b"echo"));
        }
    }

    fn next(&mut self) {
        let byte = self.peek(0);
        match (byte, self.peek(1)) {
            (b'?', b'>') => {
                self.at += 2;
                self.tokens.push(Token::End);
                self.html();
            }
            (b'/', b'*') => {
                self.at += 2;
                self.skip_past(b"*/");
            }
            (b'/', b'/') => self.comment(),
            (b'#', next) if next != b'[' => self.comment(),
            (b'\'', _) => self.quoted(),
            (b'"' | b'`', _) => {
                self.at += 1;
                self.interpolated(byte);
            }
            (b'<', b'<') if self.peek(2) == b'<' => self.heredoc(),
            (b'$', next) if begins_name(next) => {
                self.at += 1;
                self.take_while(in_name);
                self.tokens.push(Token::Variable);
            }
            _ if byte.is_ascii_digit() => {
                self.take_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                self.tokens.push(Token::Value);
            }
            _ if begins_name(byte) => {
                let name = self.take_while(in_name);
                self.tokens.push(Token::Name(name));
            }
            _ => {
                self.at += 1;
                if !byte.is_ascii_whitespace() {
                    self.tokens.push(Token::Char(byte));
                }
            }
        }
    }

    /// A comment of one line, which a closing tag ends, too.
    fn comment(&mut self) {
        while self.at < self.source.len() {
            if self.peek(0) == b'\n' || (self.peek(0) == b'?' && self.peek(1) == b'>') {
                return;
            }
            self.at += 1;
        }
    }

    fn quoted(&mut self) {
        self.at += 1;
        let mut text = Vec::new();
        while self.at < self.source.len() {
            let byte = self.peek(0);
            self.at += 1;
            match byte {
                b'\'' => break,
                b'\\' if matches!(self.peek(0), b'\'' | b'\\') => {
                    text.push(self.peek(0));
                    self.at += 1;
                }
                _ => text.push(byte),
            }
        }
        self.tokens.push(Token::Text(text));
    }

    /// Reads to the end of a string in double quotes or backticks. Expressions in it may have strings of their own.
    fn interpolated(&mut self, end: u8) {
        let begin = self.at - 1;
        let mut text = Vec::new();
        let mut is_plain = end == b'"';
        while self.at < self.source.len() {
            let byte = self.peek(0);
            self.at += 1;
            match byte {
                _ if byte == end => break,
                b'\\' => {
                    text.push(self.peek(0));
                    self.at += 1;
                }
                b'{' if self.peek(0) == b'$' => {
                    is_plain = false;
                    self.expression();
                }
                b'$' if begins_name(self.peek(0)) || self.peek(0) == b'{' => is_plain = false,
                _ => text.push(byte),
            }
        }
        let source = self.source.get(begin..self.at).unwrap_or_default();
        self.tokens.push(if is_plain { Token::Text(text) } else { Token::Template(source) });
    }

    /// Reads an expression in a string to its closing bracket.
    fn expression(&mut self) {
        let before = self.tokens.len();
        let mut depth = 1;
        while depth > 0 && self.at < self.source.len() {
            match self.peek(0) {
                b'{' => depth += 1,
                b'}' => depth -= 1,
                _ => {}
            }
            if depth > 0 && !matches!(self.peek(0), b'{') {
                self.next();
            } else {
                self.at += 1;
            }
        }
        self.tokens.truncate(before);
    }

    fn heredoc(&mut self) {
        let begin = self.at;
        self.at += 3;
        self.take_while(|byte| byte == b' ' || byte == b'\t');
        let quote = self.peek(0);
        self.at += usize::from(matches!(quote, b'\'' | b'"'));
        let label = self.take_while(|byte| in_name(byte) && byte != b'\\');
        if label.is_empty() {
            return;
        }
        self.skip_past(b"\n");
        loop {
            self.take_while(|byte| byte == b' ' || byte == b'\t');
            let rest = self.rest();
            let ends =
                rest.starts_with(label) && !rest.get(label.len()).is_some_and(|b| in_name(*b));
            if ends {
                self.at += label.len();
                break;
            }
            if rest.is_empty() {
                break;
            }
            self.skip_past(b"\n");
        }
        let source = self.source.get(begin..self.at).unwrap_or_default();
        self.tokens.push(Token::Template(source));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(source: &str) -> String {
        let tokens = tokens(source.as_bytes());
        let texts = tokens.iter().map(|token| match token {
            Token::Name(name) => String::from_utf8_lossy(name).into_owned(),
            Token::Text(text) => format!("'{}'", String::from_utf8_lossy(text)),
            Token::Variable => "$".into(),
            Token::Value | Token::Template(_) => "0".into(),
            Token::Html => "html".into(),
            Token::End => "end".into(),
            Token::Char(byte) => char::from(*byte).to_string(),
        });
        texts.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn strings_and_comments_hide_what_looks_like_code() {
        for (source, expected) in [
            ("<?php f('class A {', \"it\\\"s\"); // class B", "f ( 'class A {' , 'it\"s' ) ;"),
            ("<?php $a = \"x {$b[\"class C\"]} y\"; g();", "$ = 0 ; g ( ) ;"),
            ("<?php # class D\n/* class E */ #[F] class G {}", "# [ F ] class G { }"),
            ("<?php $a = <<<'X'\n class H {\n  XY\n  X; h();", "$ = 0 ; h ( ) ;"),
            ("<?php i() // j() ?> <b> <?= $k", "i ( ) end html echo $"),
            ("<?php namespace L\\M; 0x1f;", "namespace L\\M ; 0 ;"),
            ("#!/usr/bin/php\n<?php n;", "n ;"),
            ("<?php \"unterminated {$o", "0"),
            ("<?php <<<P\nunterminated", "0"),
        ] {
            let expected = expected.replace("< < <", "");
            assert_eq!(names(source), expected, "{source}");
        }
    }
}
