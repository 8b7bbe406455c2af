//! HTML's start tags and their attributes, as far as links, forms and tokens need them. It reads any text and never fails.

use std::borrow::Cow;

/// A start tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Element<'t> {
    /// The name as it is written.
    pub(super) name: &'t str,
    attributes: &'t str,
}

impl Element<'_> {
    /// Returns the value of an attribute.
    pub(super) fn get(&self, wanted: &str) -> Option<String> {
        let mut rest = self.attributes;
        loop {
            rest = rest.trim_start_matches(|letter: char| letter.is_whitespace() || letter == '/');
            if rest.is_empty() {
                return None;
            }
            let end =
                rest.find(|letter: char| letter.is_whitespace() || letter == '=' || letter == '/');
            let (name, after) = rest.split_at(end.unwrap_or(rest.len()).max(1).min(rest.len()));
            let mut value = "";
            rest = after.trim_start();
            if let Some(given) = rest.strip_prefix('=') {
                let given = given.trim_start();
                let quote = given.chars().next().filter(|first| matches!(first, '"' | '\''));
                (value, rest) = match quote
                    .and_then(|quote| given.strip_prefix(quote)?.split_once(quote))
                {
                    Some(quoted) => quoted,
                    None => given.split_at(given.find(char::is_whitespace).unwrap_or(given.len())),
                };
            }
            if name.eq_ignore_ascii_case(wanted) {
                return Some(unescaped(value).into_owned());
            }
        }
    }
}

/// Returns the start tags of a page, in order.
pub(super) fn elements(page: &str) -> impl Iterator<Item = Element<'_>> {
    page.split('<').skip(1).filter_map(|part| {
        let length = part.bytes().take_while(u8::is_ascii_alphanumeric).count();
        let (name, rest) = part.split_at_checked(length)?;
        (!name.is_empty()).then(|| Element { name, attributes: inside(rest) })
    })
}

/// Returns the text up to the `>` that ends a tag. One in a quoted value does not.
fn inside(text: &str) -> &str {
    let mut quote = None;
    let end = text.find(|letter: char| {
        match quote {
            Some(open) if letter == open => quote = None,
            None if matches!(letter, '"' | '\'') => quote = Some(letter),
            None if letter == '>' => return true,
            _ => {}
        }
        false
    });
    text.split_at(end.unwrap_or(0)).0
}

/// Replaces the character references that stand in links and tokens.
fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('&') {
        return Cow::Borrowed(text);
    }
    let text = text.replace("&quot;", "\"").replace("&#039;", "'").replace("&#39;", "'");
    Cow::Owned(text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn attributes_are_read_however_they_are_written() {
        let page = "text < b <a class=x href='/a?b=1&amp;c=2'>A</a><input name=q value=\"1 > 0\" checked/><br><A HREF=/b>";
        let found: Vec<_> = elements(page).collect();
        let names: Vec<&str> = found.iter().map(|element| element.name).collect();
        assert_eq!(names, ["a", "input", "br", "A"]);
        let get = |index: usize, name: &str| found[index].get(name);
        assert_eq!(get(0, "href").as_deref(), Some("/a?b=1&c=2"));
        assert_eq!(get(1, "value").as_deref(), Some("1 > 0"));
        assert_eq!(get(1, "checked").as_deref(), Some(""));
        assert_eq!(get(1, "type"), None);
        assert_eq!(get(3, "href").as_deref(), Some("/b"));
    }

    proptest! {
        #[test]
        fn no_page_is_too_broken(page in "[<>a-c =\"'/&\u{e9}]{0,60}") {
            for element in elements(&page) {
                drop(element.get("a"));
            }
        }
    }
}
