//! Lines of php-fpm's log, and what they say.

/// A parsed line of php-fpm's log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Listens,
    /// A child has ended with this wait status.
    Exited {
        pid: u32,
        status: u32,
    },
    /// A child has written to its stdout or stderr.
    Said {
        pid: u32,
        text: &'a str,
    },
    Other {
        level: &'a str,
        text: &'a str,
    },
}

impl<'a> Line<'a> {
    /// Parses lines such as `[21-Nov-2026 03:34:44] WARNING: [pool hearth] child 9528 exited on signal 11 (SIGSEGV)
    /// after 1.761347 seconds from start`.
    pub(super) fn parse(line: &'a str) -> Self {
        let text = match line.split_once("] ") {
            Some((time, rest)) if time.starts_with('[') => rest,
            _ => line,
        };
        let (level, text) = text.split_once(": ").unwrap_or(("", text));
        if text == "ready to handle connections" {
            return Self::Listens;
        }
        let child = text.strip_prefix("[pool hearth] child ").and_then(|rest| rest.split_once(' '));
        let child = child.and_then(|(pid, what)| Some((pid.parse().ok()?, what)));
        Self::of_child(child).unwrap_or(Self::Other { level, text })
    }

    fn of_child(child: Option<(u32, &'a str)>) -> Option<Self> {
        let (pid, what) = child?;
        let number = |text: &str| -> Option<u32> { text.split(' ').next()?.parse().ok() };
        if let Some(signal) = what.strip_prefix("exited on signal ") {
            return Some(Self::Exited { pid, status: number(signal)? });
        }
        if let Some(code) = what.strip_prefix("exited with code ") {
            return Some(Self::Exited { pid, status: (number(code)? & 0xff) << 8 });
        }
        let (_stream, text) = what.strip_prefix("said into ")?.split_once(": \"")?;
        let text = text.strip_suffix(", pipe is closed").unwrap_or(text);
        Some(Self::Said { pid, text: text.strip_suffix('"').unwrap_or(text) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_php_fpm_says_is_understood() {
        let parse = |line| Line::parse(line);
        let at = "[21-Nov-2026 03:34:44] ";
        assert_eq!(parse("[x] NOTICE: ready to handle connections"), Line::Listens);
        let line = format!(
            "{at}WARNING: [pool hearth] child 9528 exited on signal 11 (SIGSEGV) after 1.76 seconds from start"
        );
        assert_eq!(parse(&line), Line::Exited { pid: 9528, status: 11 });
        let line = format!(
            "{at}WARNING: [pool hearth] child 9 exited with code 255 after 0.1 seconds from start"
        );
        assert_eq!(parse(&line), Line::Exited { pid: 9, status: 255 << 8 });
        let line = format!(
            "{at}WARNING: [pool hearth] child 7 said into stderr: \"NOTICE: PHP message: it's \"so\"\""
        );
        assert_eq!(parse(&line), Line::Said { pid: 7, text: "NOTICE: PHP message: it's \"so\"" });
        let line = format!("{at}NOTICE: [pool hearth] child 9674 started");
        assert_eq!(
            parse(&line),
            Line::Other { level: "NOTICE", text: "[pool hearth] child 9674 started" }
        );
        assert_eq!(parse("odd"), Line::Other { level: "", text: "odd" });
    }
}
