//! A command: a list, or a text that is split at spaces as a shell would, without one.

use std::fmt;
use std::path::Path;

use super::super::value::{Raw, Value, Wrong};

/// A program and its arguments; at least the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandLine {
    /// A name, or a path.
    pub program: String,
    /// The arguments.
    pub arguments: Vec<String>,
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.program)?;
        for argument in &self.arguments {
            let plain = |byte: u8| byte.is_ascii_graphic() && !b"'\"\\".contains(&byte);
            if !argument.is_empty() && argument.bytes().all(plain) {
                write!(f, " {argument}")?;
            } else {
                write!(f, " {argument:?}")?;
            }
        }
        Ok(())
    }
}

impl Value for CommandLine {
    const PLACEHOLDER: &str = "COMMAND";
    const EXPECTED: &str = "a list of the program and its arguments, or one text that is split at spaces outside of quotes, without a shell";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let words = match raw {
            Raw::List(items) => items.clone(),
            raw => split(raw.text()?)?,
        };
        let mut words = words.into_iter();
        match words.next() {
            Some(program) if !program.is_empty() => {
                Ok(Self { program, arguments: words.collect() })
            }
            _ => Err(Wrong("no program".into())),
        }
    }
}

/// Splits a text at spaces. Quotes and backslashes are as in a shell; what else a shell would do is refused.
fn split(text: &str) -> Result<Vec<String>, Wrong> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    let open = |quote| Wrong(format!("`{text}`, with a {quote} that is not closed"));
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next().ok_or_else(|| open("quote"))? {
                        '\'' => break,
                        other => word.push(other),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next().ok_or_else(|| open("double quote"))? {
                        '"' => break,
                        '\\' => match letters.next().ok_or_else(|| open("double quote"))? {
                            escaped @ ('"' | '\\' | '$' | '`') => word.push(escaped),
                            other => word.extend(['\\', other]),
                        },
                        other => word.push(other),
                    }
                }
            }
            '\\' => {
                let escaped = letters.next().ok_or_else(|| open("backslash"))?;
                word.get_or_insert_default().push(escaped);
            }
            '|' | '&' | ';' | '<' | '>' | '`' => return Err(of_shell(text, letter)),
            '$' if word.is_none() => return Err(of_shell(text, letter)),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

fn of_shell(text: &str, letter: char) -> Wrong {
    Wrong(format!(
        "`{text}`, where `{letter}` needs a shell (`[\"sh\", \"-c\", \"exec …\"]`) or quotes"
    ))
}
