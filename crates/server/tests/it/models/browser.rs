//! A visitor with cookies, who fills in forms.

use std::net::SocketAddr;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use testkit::{Answer, Client};

/// A browser with cookies. It connects for each request: the server ends connections that are silent while others log in.
pub(crate) struct Browser {
    address: SocketAddr,
    cookies: Vec<(String, String)>,
}

impl Browser {
    pub(crate) fn of(address: SocketAddr) -> Self {
        Self { address, cookies: Vec::new() }
    }

    pub(crate) fn ask(&mut self, target: &str, form: &[(&str, &str)]) -> Answer {
        let cookies: Vec<String> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let cookies = cookies.join("; ");
        let encoded = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
        let body: Vec<String> = form
            .iter()
            .map(|(name, value)| format!("{}={}", encoded(*name), encoded(*value)))
            .collect();
        let body = body.join("&");
        let mut fields = vec![("Cookie", cookies.as_str())];
        if !form.is_empty() {
            fields.push(("Content-Type", "application/x-www-form-urlencoded"));
        }
        let method = if form.is_empty() { "GET" } else { "POST" };
        let mut client = Client::connect(self.address).unwrap();
        let answer = client.request(method, target, &fields, body.as_bytes()).unwrap();
        for cookie in answer.all("set-cookie") {
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            self.cookies.retain(|(known, _)| known != name);
            self.cookies.push((name.to_owned(), value.to_owned()));
        }
        answer
    }

    /// The value of a field of a page's form.
    pub(crate) fn field(page: &str, name: &str) -> String {
        let mark = format!("name=\"{name}\"");
        let mut tags = page.split('<').filter(|tag| tag.contains(&mark));
        let value = tags.find_map(|tag| tag.split("value=\"").nth(1)?.split('"').next());
        value.unwrap_or_default().replace("&#43;", "+").replace("&#039;", "'")
    }
}
