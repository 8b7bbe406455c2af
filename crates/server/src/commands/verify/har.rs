//! Requests of a HAR file (HTTP Archive 1.2), as browsers' developer tools save it: those for the host of its first entry, with their bodies.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::Deserialize;
use url::Url;

use super::request::Recorded;

#[derive(Deserialize)]
struct Har {
    log: Log,
}

#[derive(Deserialize)]
struct Log {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    request: Request,
    #[serde(default)]
    response: Response,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<Pair>,
    #[serde(default)]
    post_data: Option<PostData>,
}

#[derive(Deserialize, Default)]
struct Response {
    #[serde(default)]
    headers: Vec<Pair>,
}

#[derive(Deserialize)]
struct Pair {
    name: String,
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PostData {
    #[serde(default)]
    mime_type: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    params: Vec<Pair>,
}

/// Header fields that are not sent again: about the connection, the body's length, encodings, caches and cookies, and those that a proxy sets.
const NOT_AGAIN: &[&str] = &[
    "accept-encoding",
    "connection",
    "content-length",
    "cookie",
    "expect",
    "host",
    "if-modified-since",
    "if-none-match",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Reads the requests of a HAR file. Entries for other hosts are counted.
pub(super) fn requests(text: &str) -> Result<(Vec<Recorded>, usize), serde_json::Error> {
    // Some browsers write a byte order mark.
    let har: Har = serde_json::from_str(text.trim_start_matches('\u{feff}'))?;
    let set_by_responses: BTreeSet<String> = har
        .log
        .entries
        .iter()
        .flat_map(|entry| &entry.response.headers)
        .filter(|field| field.name.eq_ignore_ascii_case("set-cookie"))
        .flat_map(|field| field.value.lines())
        .filter_map(|line| Some(line.split_once('=')?.0.trim().to_owned()))
        .collect();
    let mut host = None;
    let mut requests = Vec::new();
    let mut others = 0;
    for Entry { request, .. } in har.log.entries {
        let url =
            Url::parse(&request.url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some(url) = url else {
            others += 1;
            continue;
        };
        let authority = url.port().map_or_else(
            || url.host_str().unwrap_or_default().to_owned(),
            |port| format!("{}:{port}", url.host_str().unwrap_or_default()),
        );
        let first = host.get_or_insert_with(|| authority.clone());
        if *first != authority {
            others += 1;
            continue;
        }
        requests.push(recorded(request, &url, authority, &set_by_responses));
    }
    Ok((requests, others))
}

fn recorded(
    request: Request,
    url: &Url,
    host: String,
    set_by_responses: &BTreeSet<String>,
) -> Recorded {
    let mut headers = Vec::new();
    let mut cookies = Vec::new();
    for Pair { name, value } in request.headers {
        let name = name.to_ascii_lowercase();
        if name == "cookie" {
            let pairs = value.split(';').filter_map(|pair| pair.trim().split_once('='));
            let own = pairs.filter(|(name, _)| !set_by_responses.contains(*name));
            cookies.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
        } else if !name.starts_with(':') && !NOT_AGAIN.contains(&&*name) {
            headers.push((name, value));
        }
    }
    let body = request.post_data.map(|data| body(&data, &mut headers)).unwrap_or_default();
    let mut target = url.path().to_owned();
    if let Some(query) = url.query() {
        target = format!("{target}?{query}");
    }
    let method = request.method.to_ascii_uppercase();
    Recorded { method, target, host: Some(host), headers, cookies, body }
}

/// Returns the body: the recorded text, or what its fields make.
fn body(data: &PostData, headers: &mut Vec<(String, String)>) -> Bytes {
    let text = data.text.clone().filter(|text| !text.is_empty()).unwrap_or_else(|| {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        for Pair { name, value } in &data.params {
            form.append_pair(name, value);
        }
        form.finish()
    });
    if !data.mime_type.is_empty() && !headers.iter().any(|(name, _)| name == "content-type") {
        headers.push(("content-type".to_owned(), data.mime_type.clone()));
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_the_first_host_become_requests_with_bodies() {
        let har = r#"{"log": {"version": "1.2", "entries": [
            {"request": {"method": "GET", "url": "https://shop.test/login?x=1", "headers": [
                {"name": ":authority", "value": "shop.test"}, {"name": "Accept-Language", "value": "de"},
                {"name": "Accept-Encoding", "value": "br"}, {"name": "Cookie", "value": "theme=dark; sid=old"}]},
             "response": {"status": 200, "headers": [{"name": "Set-Cookie", "value": "sid=abc; path=/"}]}},
            {"request": {"method": "GET", "url": "https://cdn.test/app.js", "headers": []}},
            {"request": {"method": "post", "url": "https://shop.test/login", "headers": [],
             "postData": {"mimeType": "application/x-www-form-urlencoded", "params": [{"name": "user", "value": "a b"}]}}},
            {"request": {"method": "POST", "url": "https://shop.test/api", "headers": [],
             "postData": {"mimeType": "application/json", "text": "{}"}}}]}}"#;
        let (found, others) = requests(har).unwrap();
        let lines: Vec<String> = found.iter().map(Recorded::line).collect();
        assert_eq!(lines, ["GET /login?x=1", "POST /login (8 bytes)", "POST /api (2 bytes)"]);
        assert_eq!(others, 1);
        let first = found.first().unwrap();
        assert_eq!(first.headers, [("accept-language".to_owned(), "de".to_owned())]);
        assert_eq!(first.cookies, [("theme".to_owned(), "dark".to_owned())], "sid is the server's");
        assert_eq!(first.host.as_deref(), Some("shop.test"));
        assert_eq!(&*found[1].body, b"user=a+b");
        let json = ("content-type".to_owned(), "application/json".to_owned());
        assert_eq!(found[2].headers, [json]);
        assert!(requests("{\"log\": 1}").is_err());
        assert!(requests("GET /").is_err());
    }
}
