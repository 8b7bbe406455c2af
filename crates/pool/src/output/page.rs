//! HTML pages among the lines that a process prints: one line is logged in the place of each.
//!
//! Invariants
//! - Only a line that begins a document begins a page; all other lines pass unchanged.
//! - A page without an end is over after [`LONGEST`] lines, so that it hides nothing that follows.

/// The most lines of a page.
const LONGEST: usize = 2_000;
/// The longest title in characters.
const TITLE: usize = 200;

/// The page that is being read, if there is one.
#[derive(Debug, Default)]
pub(super) struct Pages {
    lines: usize,
    title: Option<String>,
}

impl Pages {
    /// Takes a line, and returns what is to be logged in its place.
    pub(super) fn take(&mut self, line: &str) -> Option<String> {
        if self.lines == 0 && !begins_page(line) {
            return Some(line.to_owned());
        }
        let lower = line.to_ascii_lowercase();
        self.lines += 1;
        if self.title.is_none() {
            self.title = ["title", "h1"].iter().find_map(|name| text_in(line, &lower, name));
        }
        if lower.contains("</html>") || self.lines == LONGEST { self.end() } else { None }
    }

    /// Ends the page that is being read; returns its line.
    pub(super) fn end(&mut self) -> Option<String> {
        let Self { lines, title } = std::mem::take(self);
        let title = title.map(|title| format!(": {title}")).unwrap_or_default();
        let noun = if lines == 1 { "line" } else { "lines" };
        (lines > 0).then(|| format!("an HTML page of {lines} {noun} is left out{title}"))
    }
}

fn begins_page(line: &str) -> bool {
    let start = line.trim_start();
    ["<!doctype html", "<html"].iter().any(|begin| {
        start.get(..begin.len()).is_some_and(|start| start.eq_ignore_ascii_case(begin))
    })
}

/// Returns the text of an element that begins and ends in this line. `lower`: the line in lower case.
fn text_in(line: &str, lower: &str, element: &str) -> Option<String> {
    let begin = lower.find(&format!("<{element}"))?;
    let begin = begin + lower.get(begin..)?.find('>')? + 1;
    let end = begin + lower.get(begin..)?.find(&format!("</{element}>"))?;
    let text = line.get(begin..end)?.trim();
    (!text.is_empty() && !text.contains('<')).then(|| text.chars().take(TITLE).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(lines: &[&str]) -> Vec<String> {
        let mut pages = Pages::default();
        let mut logged: Vec<String> = lines.iter().filter_map(|line| pages.take(line)).collect();
        logged.extend(pages.end());
        logged
    }

    #[test]
    fn a_page_becomes_one_line_with_its_title() {
        let page = [
            "before",
            "<!DOCTYPE html>",
            "<html><head>",
            "  <title>Server Error</title>",
            "<body>x",
            "</html>",
            "after",
        ];
        let line = "an HTML page of 5 lines is left out: Server Error";
        assert_eq!(logged(&page), ["before", line, "after"]);
        assert_eq!(
            logged(&["<html><h1>No</h1></html>", "<p>"]),
            ["an HTML page of 1 line is left out: No", "<p>"]
        );
        assert_eq!(logged(&["<HTML>", "x"]), ["an HTML page of 2 lines is left out"]);
        assert_eq!(logged(&["a <html> b", "<br />", "<title>x</title>"]).len(), 3);
    }

    #[test]
    fn a_page_without_an_end_hides_only_so_much() {
        let mut pages = Pages::default();
        assert_eq!(pages.take("<html>"), None);
        let hidden = (0..LONGEST).take_while(|_| pages.take("x").is_none()).count();
        assert_eq!(hidden, LONGEST - 2);
        assert_eq!(pages.take("shown"), Some("shown".to_owned()));
        assert_eq!(pages.end(), None);
    }
}
