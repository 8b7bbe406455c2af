//! PHP's settings on their way to the worker program: as a file in memory that is its standard input, because every user of the machine
//! can read a command line, and settings may hold passwords (`session.save_path` with Redis).

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::process::{Command, Stdio};

use crate::memory_file::memory_file;

/// Makes `command` start the worker program with `settings`, as `(name, value)`. Sets its standard input if there are any. Where the kernel
/// refuses a file in memory, they are arguments.
pub fn give_settings(command: &mut Command, settings: &[(String, String)]) {
    if settings.is_empty() {
        return;
    }
    let lines: Vec<String> =
        settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if let Some(file) = in_memory(&lines) {
        command.arg("--ini-stdin").stdin(Stdio::from(file));
    } else {
        // A value with a null byte is an error of the start there.
        command.args(lines.iter().flat_map(|line| ["--ini", line]));
    }
}

fn in_memory(lines: &[String]) -> Option<File> {
    if lines.iter().any(|line| line.contains('\0')) {
        return None;
    }
    let text: String = lines.iter().flat_map(|line| [line, "\0"]).collect();
    let mut file = File::from(memory_file("php-settings").ok()?);
    file.write_all(text.as_bytes()).ok()?;
    file.rewind().ok()?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_on_standard_input_and_not_in_the_command_line() {
        let mut command = Command::new("cat");
        let settings = [("a".to_owned(), "one = 1".to_owned()), ("b".to_owned(), "two".to_owned())];
        give_settings(&mut command, &settings);
        assert_eq!(command.get_args().collect::<Vec<_>>(), ["--ini-stdin"]);
        let lines: Vec<String> =
            settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let output = Command::new("cat").stdin(in_memory(&lines).unwrap()).output();
        assert_eq!(output.unwrap().stdout, b"a=one = 1\0b=two\0");
    }

    #[test]
    fn without_settings_or_with_a_null_byte_nothing_is_on_standard_input() {
        let mut command = Command::new("cat");
        give_settings(&mut command, &[]);
        assert_eq!(command.get_args().count(), 0);
        give_settings(&mut command, &[("a".to_owned(), "b\0c".to_owned())]);
        assert_eq!(command.spawn().unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    }
}
