//! Requests of an access log: common, combined, or a JSON object per line (Hearth's own fields, and the usual names of others).

use serde_json::Value;

use super::request::Recorded;

/// Reads the requests of a log. Lines that hold none are counted.
pub(super) fn requests(text: &str) -> (Vec<Recorded>, usize) {
    let mut requests = Vec::new();
    let mut unread = 0;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let found = if line.starts_with('{') { of_json(line) } else { of_common(line) };
        match found {
            Some(request) => requests.push(request),
            None => unread += 1,
        }
    }
    (requests, unread)
}

/// `127.0.0.1 - - [27/Nov/2026:03:06:13 +0000] "GET /path HTTP/1.1" 200 12 …`
fn of_common(line: &str) -> Option<Recorded> {
    let (_, quoted) = line.split_once("] \"").or_else(|| line.split_once('"'))?;
    let (request, _) = quoted.split_once('"')?;
    let mut words = request.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    request_of(method, target)
}

fn of_json(line: &str) -> Option<Recorded> {
    let object: Value = serde_json::from_str(line).ok()?;
    let text = |names: &[&str]| names.iter().find_map(|name| object.get(name)?.as_str());
    if let Some(request) = text(&["request"])
        && let Some((method, rest)) = request.split_once(' ')
    {
        return request_of(method, rest.split(' ').next()?);
    }
    let method = text(&["method", "request_method"])?;
    let target = text(&["target", "request_uri", "uri", "url", "path"])?;
    let mut request = request_of(method, target)?;
    if !request.target.contains('?')
        && let Some(query) =
            text(&["query", "query_string", "args"]).filter(|query| !query.is_empty())
    {
        request.target = format!("{}?{}", request.target, query.trim_start_matches('?'));
    }
    request.host = text(&["host", "http_host"]).map(str::to_owned);
    Some(request)
}

fn request_of(method: &str, target: &str) -> Option<Recorded> {
    let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    let target = unescaped(target);
    let is_target = target.starts_with('/') && target.bytes().all(|byte| byte.is_ascii_graphic());
    (is_method && is_target).then(|| Recorded {
        method: method.to_owned(),
        target,
        ..Recorded::default()
    })
}

/// Undoes `\"` and `\\`, by which logs escape targets.
fn unescaped(target: &str) -> String {
    target.replace("\\\"", "\"").replace("\\\\", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_combined_and_json_lines_are_read() {
        let log = "127.0.0.1 - - [27/Nov/2026:03:06:13 +0000] \"GET /a?b=1 HTTP/1.1\" 200 12\n\
                   ::1 - ada [27/Nov/2026:03:06:13 +0000] \"POST /b HTTP/2.0\" 302 0 \"-\" \"curl/8\"\n\
                   {\"time\":\"x\",\"method\":\"GET\",\"path\":\"/c\",\"query\":\"d=2\",\"host\":\"shop.test\",\"status\":200}\n\
                   {\"request\":\"GET /e HTTP/1.1\",\"status\":200}\n\
                   \n\
                   nonsense\n\
                   192.0.2.1 - - [27/Nov/2026:03:06:13 +0000] \"\\x16\\x03\" 400 0\n";
        let (found, unread) = requests(log);
        let lines: Vec<String> = found.iter().map(Recorded::line).collect();
        assert_eq!(lines, ["GET /a?b=1", "POST /b", "GET /c?d=2", "GET /e"]);
        assert_eq!(found[2].host.as_deref(), Some("shop.test"));
        assert_eq!(unread, 2);
    }
}
