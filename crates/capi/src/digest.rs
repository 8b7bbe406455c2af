//! Digest authentication (RFC 7616, and RFC 2069 for origins without qop). It supports MD5 and SHA-256, each also as
//! `-sess`, with qop=auth and qop=auth-int, which covers a body in memory.

use std::fmt::Write as _;
use std::sync::Mutex;

use http::{HeaderMap, HeaderValue, header::WWW_AUTHENTICATE};
use md5::{Digest as _, Md5};
use ring::digest::{SHA256, digest};
use ring::rand::SecureRandom as _;

use crate::sys::lock;

/// A challenge of an origin.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Challenge {
    realm: String,
    nonce: String,
    opaque: Option<String>,
    algorithm: Algorithm,
    session: bool,
    qop: Qop,
    /// Whether only the nonce was too old.
    pub(crate) stale: bool,
}

/// The part of the request that the answer covers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Qop {
    /// Method and target, as in RFC 2069.
    None,
    /// Method and target.
    Auth,
    /// The body too.
    AuthInt,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Algorithm {
    Md5,
    Sha256,
}

impl Algorithm {
    fn hash(self, bytes: &[u8]) -> String {
        match self {
            Self::Md5 => hex(&Md5::digest(bytes)),
            Self::Sha256 => hex(digest(&SHA256, bytes).as_ref()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(hex, "{byte:02x}").expect("a String takes everything");
    }
    hex
}

/// Returns the strongest supported challenge of a response. `whole`: the request's body is known, so that an answer can cover it.
pub(crate) fn challenge(headers: &HeaderMap, whole: bool) -> Option<Challenge> {
    let values = headers
        .get_all(WWW_AUTHENTICATE)
        .iter()
        .filter_map(|value| str::from_utf8(value.as_bytes()).ok());
    values
        .flat_map(challenges)
        .filter_map(|parameters| read(&parameters))
        .filter(|found| whole || found.qop != Qop::AuthInt)
        .max_by_key(|found| found.algorithm)
}

type Parameters = Vec<(String, String)>;

/// Returns the parameters of each Digest challenge in one field, which may hold several (RFC 9110, 11.6.1).
fn challenges(text: &str) -> Vec<Parameters> {
    let mut found: Vec<Parameters> = Vec::new();
    let mut digest = false;
    let mut rest = text.trim_start_matches([' ', '\t', ',']);
    while !rest.is_empty() {
        let end = rest.find([' ', '\t', ',', '=']).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let behind = after.trim_start_matches([' ', '\t']);
        if let Some(value) = behind.strip_prefix('=') {
            let value = value.trim_start_matches([' ', '\t']);
            let (value, after) = if let Some(quoted) = value.strip_prefix('"') {
                unquoted(quoted)
            } else {
                let end = value.find([' ', '\t', ',']).unwrap_or(value.len());
                let (value, after) = value.split_at(end);
                (value.to_owned(), after)
            };
            if digest && let Some(parameters) = found.last_mut() {
                parameters.push((word.to_ascii_lowercase(), value));
            }
            rest = after;
        } else {
            digest = word.eq_ignore_ascii_case("digest");
            if digest {
                found.push(Vec::new());
            }
            rest = behind;
        }
        rest = rest.trim_start_matches([' ', '\t', ',']);
    }
    found
}

fn unquoted(quoted: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, quoted.get(at + 1..).unwrap_or_default()),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    (value, "")
}

fn read(parameters: &Parameters) -> Option<Challenge> {
    let get = |name: &str| {
        parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    };
    let algorithm = get("algorithm").unwrap_or("MD5").to_ascii_uppercase();
    let (algorithm, session) = match algorithm.as_str() {
        "MD5" => (Algorithm::Md5, false),
        "MD5-SESS" => (Algorithm::Md5, true),
        "SHA-256" => (Algorithm::Sha256, false),
        "SHA-256-SESS" => (Algorithm::Sha256, true),
        _ => return None,
    };
    let offers = |word: &str, offered: &str| {
        offered.split(',').any(|offered| offered.trim().eq_ignore_ascii_case(word))
    };
    let qop = match get("qop") {
        None => Qop::None,
        Some(offered) if offers("auth", offered) => Qop::Auth,
        Some(offered) if offers("auth-int", offered) => Qop::AuthInt,
        Some(_) => return None,
    };
    Some(Challenge {
        realm: get("realm")?.to_owned(),
        nonce: get("nonce")?.to_owned(),
        opaque: get("opaque").map(str::to_owned),
        algorithm,
        session,
        qop,
        stale: get("stale").is_some_and(|stale| stale.eq_ignore_ascii_case("true")),
    })
}

/// A challenge, and how often its nonce was used.
#[derive(Debug)]
pub(crate) struct Session {
    challenge: Challenge,
    used: Mutex<u32>,
}

impl Session {
    pub(crate) fn new(challenge: Challenge) -> Self {
        Self { challenge, used: Mutex::new(0) }
    }

    /// Returns `Authorization` for a request. `body`: all of it, if it is known.
    pub(crate) fn answer(
        &self,
        user: &str,
        secret: &str,
        method: &str,
        target: &str,
        body: Option<&[u8]>,
    ) -> Option<HeaderValue> {
        let mut random = [0; 16];
        ring::rand::SystemRandom::new().fill(&mut random).ok()?;
        let cnonce = hex(&random);
        let count = {
            let mut used = lock(&self.used);
            *used += 1;
            *used
        };
        let asked = Asked { method, target, body: body.unwrap_or_default() };
        HeaderValue::try_from(answer(&self.challenge, user, secret, &asked, &cnonce, count)).ok()
    }
}

/// The part of the request that an answer covers.
struct Asked<'a> {
    method: &'a str,
    target: &'a str,
    body: &'a [u8],
}

fn answer(
    challenge: &Challenge,
    user: &str,
    secret: &str,
    &Asked { method, target, body }: &Asked<'_>,
    cnonce: &str,
    count: u32,
) -> String {
    let Challenge { realm, nonce, algorithm, .. } = challenge;
    let hash = |text: &str| algorithm.hash(text.as_bytes());
    let mut a1 = hash(&format!("{user}:{realm}:{secret}"));
    if challenge.session {
        a1 = hash(&format!("{a1}:{nonce}:{cnonce}"));
    }
    let (qop, a2) = match challenge.qop {
        Qop::None => (None, format!("{method}:{target}")),
        Qop::Auth => (Some("auth"), format!("{method}:{target}")),
        Qop::AuthInt => (Some("auth-int"), format!("{method}:{target}:{}", algorithm.hash(body))),
    };
    let a2 = hash(&a2);
    let response = match qop {
        Some(qop) => hash(&format!("{a1}:{nonce}:{count:08x}:{cnonce}:{qop}:{a2}")),
        None => hash(&format!("{a1}:{nonce}:{a2}")),
    };
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let mut text = format!(
        "Digest username=\"{}\", realm=\"{}\", nonce=\"{}\", uri=\"{}\", response=\"{response}\"",
        quoted(user),
        quoted(realm),
        quoted(nonce),
        quoted(target)
    );
    let name = match (challenge.algorithm, challenge.session) {
        (Algorithm::Md5, false) => "MD5",
        (Algorithm::Md5, true) => "MD5-sess",
        (Algorithm::Sha256, false) => "SHA-256",
        (Algorithm::Sha256, true) => "SHA-256-sess",
    };
    write!(text, ", algorithm={name}").expect("a String takes everything");
    if let Some(qop) = qop {
        write!(text, ", qop={qop}, nc={count:08x}, cnonce=\"{cnonce}\"")
            .expect("a String takes everything");
    } else if challenge.session {
        write!(text, ", cnonce=\"{cnonce}\"").expect("a String takes everything");
    }
    if let Some(opaque) = &challenge.opaque {
        write!(text, ", opaque=\"{}\"", quoted(opaque)).expect("a String takes everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7616, 3.9.1.
    const MD5: &str = "Digest realm=\"http-auth@example.org\", qop=\"auth, auth-int\", algorithm=MD5, \
                       nonce=\"7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v\", opaque=\"FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS\"";

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (WWW_AUTHENTICATE, value.parse().expect("a value"))).collect()
    }

    #[test]
    fn digest_matches_rfc_7616() {
        let sha = MD5.replace("MD5", "SHA-256");
        for (text, response) in [
            (MD5, "8ca523f5e9506fed4657c9700eebdbec"),
            (&sha, "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
        ] {
            let challenge = challenge(&headers(&[text]), true).expect("a challenge");
            let cnonce = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ";
            let asked = Asked { method: "GET", target: "/dir/index.html", body: b"" };
            let text = answer(&challenge, "Mufasa", "Circle of Life", &asked, cnonce, 1);
            assert!(text.contains(&format!("response=\"{response}\"")), "{text}");
            assert!(text.contains("nc=00000001") && text.contains("opaque=\"FQhe/"), "{text}");
        }
    }

    #[test]
    fn without_qop_digest_follows_rfc_2069() {
        // RFC 2069, 2.4, with the response of its errata.
        let text = "Digest realm=\"testrealm@host.com\", nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\", \
                    opaque=\"5ccc069c403ebaf9f0171e9517f40e41\"";
        let challenge = challenge(&headers(&[text]), true).expect("a challenge");
        let asked = Asked { method: "GET", target: "/dir/index.html", body: b"" };
        let text = answer(&challenge, "Mufasa", "CircleOfLife", &asked, "", 1);
        assert!(text.contains("response=\"1949323746fe6a43ef61f9606e7febea\""), "{text}");
        assert!(!text.contains("qop") && !text.contains("nc="));
    }

    #[test]
    fn the_strongest_challenge_is_used() {
        let both = format!("Basic realm=\"x\", {MD5}, {}", MD5.replace("MD5", "SHA-256"));
        let found = |values: &[&str]| challenge(&headers(values), true).expect("one");
        assert_eq!(found(&[&both]).algorithm, Algorithm::Sha256);
        assert_eq!(found(&["Negotiate", MD5]).algorithm, Algorithm::Md5);
        assert!(found(&[&format!("{MD5}, stale=TRUE")]).stale);
        for text in [
            "Basic realm=\"x\"",
            "Digest realm=\"x\"",
            "Digest realm=\"x\", nonce=\"y\", algorithm=SHA-512-256",
            "Digest realm=\"x\", nonce=\"y\", qop=\"other\"",
            "Digest",
            "Digest realm=\"x",
            "",
        ] {
            assert_eq!(challenge(&headers(&[text]), true), None, "{text}");
        }
    }

    #[test]
    fn an_answer_covers_the_body_where_only_that_is_asked_for() {
        let text = MD5.replace("auth, auth-int", "auth-int");
        assert_eq!(challenge(&headers(&[&text]), false), None, "the body is not known");
        let challenge = challenge(&headers(&[&text]), true).expect("one");
        let answered = |body| {
            let asked = Asked { method: "POST", target: "/", body };
            answer(&challenge, "u", "p", &asked, "c", 1)
        };
        let whole = answered(b"body");
        // RFC 7616, 3.4.1 and 3.4.3, step by step.
        let md5 = |text: &str| hex(&Md5::digest(text.as_bytes()));
        let a1 = md5("u:http-auth@example.org:p");
        let a2 = md5(&format!("POST:/:{}", md5("body")));
        let nonce = "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v";
        let response = md5(&format!("{a1}:{nonce}:00000001:c:auth-int:{a2}"));
        assert!(whole.contains(&format!("response=\"{response}\"")), "{whole}");
        assert!(whole.contains("qop=auth-int"), "{whole}");
        assert_ne!(whole, answered(b"other"));
    }

    #[test]
    fn a_nonce_counts_its_uses() {
        let session = Session::new(challenge(&headers(&[MD5]), true).expect("one"));
        for count in 1..=3 {
            let text = session.answer("u", "p", "GET", "/", None).expect("a field");
            assert!(text.to_str().expect("text").contains(&format!("nc={count:08x}")));
        }
    }
}
