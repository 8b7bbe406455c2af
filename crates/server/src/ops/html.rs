//! HTML that consists of this program's literals and escaped text only.

use std::fmt::{Display, Write};

/// HTML that is being written.
#[derive(Debug, Default)]
pub(crate) struct Html(String);

impl Html {
    /// A literal of ours.
    pub(crate) fn raw(&mut self, html: &'static str) -> &mut Self {
        self.0.push_str(html);
        self
    }

    /// Writes a value as text, or as the value of a quoted attribute.
    pub(crate) fn text(&mut self, text: impl Display) -> &mut Self {
        write!(Escaping(&mut self.0), "{text}").expect("a String takes all");
        self
    }

    /// A heading with a number beside it.
    pub(crate) fn heading(&mut self, name: &'static str, count: impl Display) -> &mut Self {
        self.raw("<h2>").raw(name).raw(" <span class=\"soft\">").text(count).raw("</span></h2>")
    }

    /// The head of a table; columns with `>` hold numbers.
    pub(crate) fn table(&mut self, columns: &[&'static str]) -> &mut Self {
        self.raw("<table><thead><tr>");
        for column in columns {
            match column.strip_prefix('>') {
                Some(column) => self.raw("<th scope=\"col\" class=\"n\">").raw(column),
                None => self.raw("<th scope=\"col\">").raw(column),
            };
            self.raw("</th>");
        }
        self.raw("</tr></thead><tbody>")
    }

    pub(crate) fn end_table(&mut self) -> &mut Self {
        self.raw("</tbody></table>")
    }

    /// A cell of text.
    pub(crate) fn cell(&mut self, text: impl Display) -> &mut Self {
        self.raw("<td>").text(text).raw("</td>")
    }

    /// A cell of a number.
    pub(crate) fn number(&mut self, number: impl Display) -> &mut Self {
        self.raw("<td class=\"n\">").text(number).raw("</td>")
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

struct Escaping<'s>(&'s mut String);

impl Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for character in text.chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                // Control characters must not change the layout or the direction of the following text.
                control if control.is_control() => self.0.push('\u{fffd}'),
                '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => self.0.push('\u{fffd}'),
                other => self.0.push(other),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped() {
        let mut html = Html::default();
        html.raw("<b title=\"").text("\" onload='x'").raw("\">").text("</b><script>&\u{202e}\n");
        assert_eq!(
            html.into_string(),
            "<b title=\"&quot; onload=&#39;x&#39;\">&lt;/b&gt;&lt;script&gt;&amp;\u{fffd}\u{fffd}"
        );
    }
}
