//! A client's memory in one run: cookies, and the CSRF tokens of the pages that it got.

use std::collections::BTreeMap;

use super::markup;
use super::request::Recorded;

/// The fields of the client, empty at the start of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Jar {
    cookies: BTreeMap<String, String>,
    /// Hidden inputs and meta elements whose name speaks of a token, by name.
    tokens: BTreeMap<String, String>,
}

impl Jar {
    /// Returns the value of the `Cookie` field for a request, if it has cookies: those that responses set take precedence.
    pub(super) fn cookies(&self, request: &Recorded) -> Option<String> {
        let mut all: BTreeMap<&str, &str> =
            request.cookies.iter().map(|(name, value)| (&**name, &**value)).collect();
        all.extend(self.cookies.iter().map(|(name, value)| (&**name, &**value)));
        let pairs: Vec<String> =
            all.iter().map(|(name, value)| format!("{name}={value}")).collect();
        (!pairs.is_empty()).then(|| pairs.join("; "))
    }

    /// Keeps what a response's `Set-Cookie` fields and its page give.
    pub(super) fn learn<'h>(
        &mut self,
        set_cookies: impl Iterator<Item = &'h str>,
        page: Option<&str>,
    ) {
        for field in set_cookies {
            let mut parts = field.split(';').map(str::trim);
            let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else {
                continue;
            };
            let removed = value.is_empty()
                || parts.any(|part| {
                    let Some((name, value)) = part.split_once('=') else { return false };
                    name.eq_ignore_ascii_case("max-age")
                        && value.trim().parse::<i64>().is_ok_and(|seconds| seconds <= 0)
                });
            if removed {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        let Some(page) = page else { return };
        for element in markup::elements(page) {
            let named = match element.name {
                "input" => element.get("name").zip(element.get("value")),
                "meta" => element.get("name").zip(element.get("content")),
                _ => None,
            };
            if let Some((name, value)) = named.filter(|(name, _)| is_token(name)) {
                self.tokens.insert(normal(&name), value);
            }
        }
    }

    /// Returns the body of a request with current tokens in place of recorded ones, and the current value of a token's header field.
    pub(super) fn refreshed(&self, request: &Recorded) -> bytes::Bytes {
        let is_form = request.headers.iter().any(|(name, value)| {
            name == "content-type" && value.starts_with("application/x-www-form-urlencoded")
        });
        if !is_form || self.tokens.is_empty() {
            return request.body.clone();
        }
        let mut changed = false;
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        for (name, value) in url::form_urlencoded::parse(&request.body) {
            let current = if is_token(&name) { self.tokens.get(&normal(&name)) } else { None };
            changed |= current.is_some();
            form.append_pair(&name, current.map_or(&*value, String::as_str));
        }
        if changed { form.finish().into() } else { request.body.clone() }
    }

    /// Returns the current value of a header field that carries a token.
    pub(super) fn header(&self, name: &str) -> Option<String> {
        match name {
            "x-csrf-token" => self.tokens.get("csrftoken").cloned(),
            "x-xsrf-token" => {
                let value = self.cookies.get("XSRF-TOKEN")?;
                Some(percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned())
            }
            _ => None,
        }
    }
}

/// Returns a `Set-Cookie` field as it is compared: `Max-Age` to ten seconds, and without the date that then says nothing more (RFC 6265,
/// section 5.3). PHP computes both from the clock, so an answer that meets the end of a second has one second less.
pub(super) fn comparable(field: &str) -> String {
    const ROUNDED_TO: i64 = 10;
    let age = |part: &str| {
        let (name, value) = part.trim().split_once('=')?;
        let seconds: i64 = value.trim().parse().ok()?;
        (name.eq_ignore_ascii_case("max-age") && seconds > ROUNDED_TO).then_some(seconds)
    };
    if !field.split(';').skip(1).any(|part| age(part).is_some()) {
        return field.to_owned();
    }
    let mut parts = field.split(';');
    let mut all: Vec<String> = parts.next().map(str::to_owned).into_iter().collect();
    all.extend(parts.map(|part| match (age(part), part.split_once('=')) {
        (Some(seconds), _) => {
            let rounded = seconds.saturating_add(ROUNDED_TO / 2) / ROUNDED_TO * ROUNDED_TO;
            format!(" Max-Age={rounded}")
        }
        (None, Some((name, _))) if name.trim().eq_ignore_ascii_case("expires") => name.to_owned(),
        _ => part.to_owned(),
    }));
    all.join(";")
}

/// Returns whether the name of a field is that of a CSRF token.
pub(super) fn is_token(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("token") || name.contains("csrf")
}

/// Returns the name without its punctuation, in lower case: `csrf-token` and `csrf_token` are one.
fn normal(name: &str) -> String {
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|letter| letter.to_ascii_lowercase())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_of_responses_replace_recorded_ones_and_expire() {
        let mut jar = Jar::default();
        let request = Recorded {
            cookies: vec![("theme".into(), "dark".into()), ("sid".into(), "old".into())],
            ..Recorded::get("/")
        };
        assert_eq!(jar.cookies(&request).as_deref(), Some("sid=old; theme=dark"));
        assert_eq!(jar.cookies(&Recorded::get("/")), None);
        jar.learn(["sid=new; Path=/; HttpOnly", "b=1"].into_iter(), None);
        assert_eq!(jar.cookies(&request).as_deref(), Some("b=1; sid=new; theme=dark"));
        jar.learn(["b=x; Max-Age=0", "sid=; path=/"].into_iter(), None);
        assert_eq!(jar.cookies(&Recorded::get("/")), None);
    }

    #[test]
    fn cookies_that_meet_the_end_of_a_second_compare_alike_and_other_lifetimes_do_not() {
        let cookie = |time: &str, age: &str| {
            comparable(&format!(
                "sid=a; expires=Fri, 27-Nov-2026 13:22:{time} GMT; Max-Age={age}; path=/"
            ))
        };
        assert_eq!(cookie("04", "7200"), "sid=a; expires; Max-Age=7200; path=/");
        assert_eq!(cookie("04", "7200"), cookie("05", "7199"));
        assert_ne!(cookie("04", "7200"), cookie("04", "3600"));
        let ends = "sid=a; expires=Thu, 01-Jan-1970 00:00:01 GMT; Max-Age=0";
        assert_eq!(comparable(ends), ends);
        let session = "sid=max-age; Expires=Fri, 27-Nov-2026 13:22:04 GMT";
        assert_eq!(comparable(session), session);
    }

    #[test]
    fn recorded_tokens_are_replaced_by_those_of_the_last_page() {
        let mut jar = Jar::default();
        let form = Recorded {
            method: "POST".into(),
            headers: vec![("content-type".into(), "application/x-www-form-urlencoded".into())],
            body: "_token=old&name=a+b".into(),
            ..Recorded::get("/")
        };
        assert_eq!(jar.refreshed(&form), form.body);
        let page = "<meta name=\"csrf-token\" content=\"m1\"><input type=hidden name=\"_token\" value=\"n&amp;1\">";
        jar.learn(["XSRF-TOKEN=e%3D"].into_iter(), Some(page));
        assert_eq!(&*jar.refreshed(&form), b"_token=n%261&name=a+b");
        assert_eq!(jar.header("x-csrf-token").as_deref(), Some("m1"));
        assert_eq!(jar.header("x-xsrf-token").as_deref(), Some("e="));
        let json = Recorded { headers: Vec::new(), ..form };
        assert_eq!(jar.refreshed(&json), json.body);
    }
}
