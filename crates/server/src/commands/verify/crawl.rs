//! The links of a page: what a crawl of the application follows.
//!
//! Knows nothing of sockets. Only links to the same host are returned, and GET forms with the values they show.

use serde_json::Value;
use url::Url;

use super::jar::is_token;
use super::markup::{self, Element};

/// Fields of JSON that hold links.
const LINK_FIELDS: &[&str] = &["href", "url", "link", "next", "prev", "self", "first", "last"];

/// Returns the targets that a response leads to: path and query.
pub(super) fn targets(page: &Url, headers: &[(String, String)], body: &[u8]) -> Vec<String> {
    let header =
        |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| &**value);
    let mut targets = Vec::new();
    targets.extend(header("location").and_then(|location| target(page, location)));
    let kind = header("content-type").unwrap_or_default();
    if kind.contains("html") {
        links(page, &String::from_utf8_lossy(body), &mut targets);
    } else if kind.contains("json")
        && let Ok(value) = serde_json::from_slice(body)
    {
        links_in(page, &value, &mut targets);
    }
    targets
}

fn links(page: &Url, text: &str, targets: &mut Vec<String>) {
    let mut form: Option<Url> = None;
    for element in markup::elements(text) {
        match &*element.name.to_ascii_lowercase() {
            "a" | "area" => {
                targets.extend(element.get("href").and_then(|link| target(page, &link)));
            }
            "iframe" | "frame" => {
                targets.extend(element.get("src").and_then(|link| target(page, &link)));
            }
            "form" => {
                finish(form.take(), targets);
                let method = element.get("method").unwrap_or_default();
                let gets = method.is_empty() || method.eq_ignore_ascii_case("get");
                form = if gets { form_url(page, &element) } else { None };
            }
            "input" => {
                let value = || element.get("value").unwrap_or_default();
                // A token of this page is no use to later runs.
                let name = element.get("name").filter(|name| !is_token(name));
                if let (Some(form), Some(name)) = (&mut form, name) {
                    form.query_pairs_mut().append_pair(&name, &value());
                }
            }
            _ => {}
        }
    }
    finish(form, targets);
}

fn form_url(page: &Url, form: &Element<'_>) -> Option<Url> {
    let mut url = page.join(&form.get("action").unwrap_or_default()).ok()?;
    url.set_query(None);
    Some(url)
}

fn finish(form: Option<Url>, targets: &mut Vec<String>) {
    targets.extend(form.and_then(|form| target(&form.clone(), form.as_str())));
}

fn links_in(page: &Url, value: &Value, targets: &mut Vec<String>) {
    match value {
        Value::Array(all) => all.iter().for_each(|one| links_in(page, one, targets)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(link) if LINK_FIELDS.contains(&&**name) => {
                        targets.extend(target(page, link));
                    }
                    _ => links_in(page, value, targets),
                }
            }
        }
        _ => {}
    }
}

/// Returns a link's path and query, if it leads to the page's own host.
fn target(page: &Url, link: &str) -> Option<String> {
    let url = page.join(link).ok()?;
    let same = matches!(url.scheme(), "http" | "https") && url.host() == page.host();
    let target = url
        .query()
        .map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
    same.then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(kind: &str, body: &str) -> Vec<String> {
        let page = Url::parse("http://localhost/shop/").unwrap();
        let headers = [
            ("content-type".to_owned(), kind.to_owned()),
            ("location".to_owned(), "/new".to_owned()),
        ];
        targets(&page, &headers, body.as_bytes())
    }

    #[test]
    fn links_and_get_forms_of_the_same_host_are_followed() {
        let html = "<a href=\"item?id=1&amp;x=2#top\">1</a> <a href='https://other.test/'>2</a> <a href='mailto:a@b'>3</a>\
                    <form action='/search'><input type=hidden name=_token value=x><input name=q value='a b'><input type=submit></form>\
                    <form method=post action='/buy'><input name=id></form><iframe src=/frame></iframe>";
        let expected = ["/new", "/shop/item?id=1&x=2", "/search?q=a+b", "/frame"];
        assert_eq!(found("text/html; charset=utf-8", html), expected);
        let json = r#"{"href": "/a", "items": [{"url": "b", "name": "/c"}], "next": "http://other.test/d"}"#;
        assert_eq!(found("application/hal+json", json), ["/new", "/a", "/shop/b"]);
        assert_eq!(found("text/plain", "<a href=/a>"), ["/new"]);
    }
}
