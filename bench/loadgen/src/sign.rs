//! Signatures of the Pusher protocol: HMAC-SHA256 in hexadecimal, with the application's secret.
//!
//! Sources: "Channel authorization signatures" and "HTTP API reference: Authentication" of the Pusher Channels documents.

use std::fmt::{self, Write};

use md5::{Digest, Md5};
use ring::hmac;

/// An application as the server knows it. `Debug` keeps the secret to itself.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) id: String,
    pub(crate) key: String,
    secret: String,
}

impl App {
    /// Parses `ID:KEY:SECRET`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(3, ':').map(str::to_owned);
        match (parts.next(), parts.next(), parts.next()) {
            (Some(id), Some(key), Some(secret))
                if !id.is_empty() && !key.is_empty() && !secret.is_empty() =>
            {
                Ok(Self { id, key, secret })
            }
            _ => Err("an application is ID:KEY:SECRET".to_owned()),
        }
    }

    /// `auth` of a subscription to a `private-` or, with its `channel_data`, a `presence-` channel.
    pub(crate) fn channel(&self, socket_id: &str, channel: &str, data: Option<&str>) -> String {
        let signed = match data {
            Some(data) => format!("{socket_id}:{channel}:{data}"),
            None => format!("{socket_id}:{channel}"),
        };
        format!("{}:{}", self.key, self.hmac(&signed))
    }

    /// The path with its query of a signed request; `now` in seconds of the epoch.
    pub(crate) fn request(&self, method: &str, path: &str, body: &[u8], now: u64) -> String {
        let md5 = hexadecimal(&Md5::digest(body));
        // Parameters in the order of their names, as they are signed.
        let query =
            format!("auth_key={}&auth_timestamp={now}&auth_version=1.0&body_md5={md5}", self.key);
        let signature = self.hmac(&format!("{method}\n{path}\n{query}"));
        format!("{path}?{query}&auth_signature={signature}")
    }

    fn hmac(&self, text: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.secret.as_bytes());
        hexadecimal(hmac::sign(&key, text.as_bytes()).as_ref())
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "App({}:{}:***)", self.id, self.key)
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes everything");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The application of the examples in Pusher's documents.
    fn documented() -> App {
        App::parse("3:278d425bdf160c739803:7ad3773142a6692b25b8").unwrap()
    }

    #[test]
    fn the_documented_private_channel_is_signed_as_documented() {
        assert_eq!(
            documented().channel("1234.1234", "private-foobar", None),
            "278d425bdf160c739803:58df8b0c36d6982b82c3ecf6b4662e34fe8c25bba48f5369f135bf843651c3a4"
        );
    }

    #[test]
    fn the_documented_presence_channel_is_signed_as_documented() {
        let data = r#"{"user_id":10,"user_info":{"name":"Mr. Channels"}}"#;

        assert_eq!(
            documented().channel("1234.1234", "presence-foobar", Some(data)),
            "278d425bdf160c739803:31935e7d86dba64c2a90aed31fdc61869f9b22ba9d8863bba239c03ca481bc80"
        );
    }

    #[test]
    fn the_documented_request_is_signed_as_documented() {
        let body = br#"{"name":"foo","channels":["project-3"],"data":"{\"some\":\"data\"}"}"#;

        let path = documented().request("POST", "/apps/3/events", body, 1_353_088_179);

        assert_eq!(
            path,
            "/apps/3/events?auth_key=278d425bdf160c739803&auth_timestamp=1353088179&auth_version=1.0\
             &body_md5=ec365a775a4cd0599faeb73354201b6f\
             &auth_signature=da454824c97ba181a32ccc17a72625ba02771f50b50e1e7430e47a1f3f457e6c"
        );
    }

    #[test]
    fn an_application_has_three_parts_and_its_secret_may_have_colons() {
        assert!(App::parse("a:b").is_err());
        assert!(App::parse("a::c").is_err());
        assert_eq!(App::parse("a:b:c:d").unwrap().secret, "c:d");
        assert!(!format!("{:?}", documented()).contains("7ad3"));
    }
}
