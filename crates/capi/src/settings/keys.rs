//! The options by number and by key, and what each takes.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use egress::{Cipher, HttpVersions, IpFamily, Proxy, ProxyKind, TlsVersion};
use http::HeaderValue;

use super::{AuthMode, Cookies, Follow, Resolve, Settings, StartTls, TlsFiles};
use crate::error::Refused;
use crate::unlock::Password;

/// Which text of keys an option belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Group {
    /// `hearth_…_set_options`
    Options,
    /// `hearth_…_set_authentication`
    Authentication,
    /// `hearth_…_set_certificates`
    Certificates,
}

/// One option.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) option: i32,
    pub(crate) key: &'static str,
    pub(crate) group: Group,
    /// Only an engine has the option.
    pub(crate) engine: bool,
    pub(crate) set: Set,
}

/// The value of an option, and how it is set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Set {
    Number(fn(&mut Settings, &Number) -> Result<(), Refused>),
    Text(fn(&mut Settings, &Text<'_>) -> Result<(), Refused>),
}

type SetNumber = fn(&mut Settings, &Number) -> Result<(), Refused>;
type SetText = fn(&mut Settings, &Text<'_>) -> Result<(), Refused>;

const fn number(option: i32, key: &'static str, set: SetNumber) -> Item {
    Item { option, key, group: Group::Options, engine: false, set: Set::Number(set) }
}

const fn of_engine(option: i32, key: &'static str, set: Set) -> Item {
    Item { option, key, group: Group::Options, engine: true, set }
}

const fn text(option: i32, key: &'static str, set: SetText) -> Item {
    Item { option, key, group: Group::Options, engine: false, set: Set::Text(set) }
}

const fn authentication(option: i32, key: &'static str, set: SetText) -> Item {
    Item { option, key, group: Group::Authentication, engine: false, set: Set::Text(set) }
}

const fn certificates(option: i32, key: &'static str, set: SetText) -> Item {
    Item { option, key, group: Group::Certificates, engine: false, set: Set::Text(set) }
}

fn set<T>(place: &mut T, value: Result<T, Refused>) -> Result<(), Refused> {
    *place = value?;
    Ok(())
}

/// As libcurl has it: `CURL_MAX_INPUT_LENGTH`.
const LONGEST_SECRET: usize = 8_000_000;

/// All options; hearth.h lists the same, which a test compares.
pub(crate) const OPTIONS: &[Item] = &[
    number(1, "accept_compression", |s, n| set(&mut s.accept_compression, n.flag())),
    // Zero: as long as the whole request may take.
    number(2, "connect_timeout", |s, n| {
        let time = n.limit().map(|limit| limit.unwrap_or(Duration::from_hours(24)));
        set(&mut s.connect_timeout, time)
    }),
    number(3, "cookies", |s, n| {
        let known = [(0, Cookies::None), (1, Cookies::Own), (2, Cookies::Engine)];
        set(&mut s.cookies, n.one_of(known, "0, 1 or 2"))
    }),
    number(4, "follow_location", |s, n| {
        let known =
            [(0, Follow::No), (1, Follow::AsWritten), (2, Follow::AsBrowsers), (3, Follow::First)];
        set(&mut s.follow, n.one_of(known, "0, 1, 2 or 3"))
    }),
    number(5, "insecure", |s, n| set(&mut s.insecure, n.flag())),
    number(6, "maxredirs", |s, n| {
        let most = match n.value {
            -1 => Ok(None),
            // As libcurl: a number, but none that it takes.
            value => u32::try_from(value).map(Some).map_err(|_range| {
                Refused::unsupported(format!("maxredirs wants -1 or a number, not {value}"))
            }),
        };
        set(&mut s.max_redirects, most)
    }),
    number(7, "rcpt_allow_fails", |s, n| set(&mut s.mail.allow_fails, n.flag())),
    number(8, "timeout", |s, n| set(&mut s.timeout, n.limit())),
    number(9, "verbose", |s, n| set(&mut s.verbose, n.flag())),
    number(10, "idle_timeout", |s, n| set(&mut s.idle_timeout, n.limit())),
    number(11, "max_response_size", |s, n| {
        set(&mut s.max_response_size, n.size().map(|size| Some(size).filter(|size| *size > 0)))
    }),
    number(12, "max_retries", |s, n| {
        set(&mut s.retry.most, u32::try_from(n.value).map_err(|_range| n.wrong("0 or more")))
    }),
    number(13, "retry_delay", |s, n| set(&mut s.retry.delay, n.time())),
    number(14, "retry_max_delay", |s, n| set(&mut s.retry.longest, n.time())),
    number(15, "retry_jitter", |s, n| set(&mut s.retry.jitter, n.flag())),
    number(16, "retry_after", |s, n| set(&mut s.retry.after, n.flag())),
    number(17, "retry_any_method", |s, n| set(&mut s.retry.any_method, n.flag())),
    number(18, "http_version", |s, n| {
        let known =
            [(0, HttpVersions::Negotiate), (11, HttpVersions::Http1), (20, HttpVersions::Http2)];
        set(&mut s.http, n.one_of(known, "0, 11 or 20"))
    }),
    number(19, "ip_family", |s, n| {
        let known = [(0, IpFamily::Both), (4, IpFamily::V4), (6, IpFamily::V6)];
        set(&mut s.family, n.one_of(known, "0, 4 or 6"))
    }),
    number(20, "tls_min", |s, n| set(&mut s.tls_min, n.tls_version())),
    number(21, "tls_max", |s, n| set(&mut s.tls_max, n.tls_version())),
    number(22, "private_addresses", |s, n| set(&mut s.private_addresses, n.flag())),
    number(23, "history", |s, n| set(&mut s.history, n.flag())),
    number(24, "expect_continue", |s, n| set(&mut s.expect_continue, n.flag())),
    number(25, "unrestricted_auth", |s, n| set(&mut s.unrestricted_auth, n.flag())),
    number(26, "threaded_callback", |s, n| set(&mut s.threaded_callback, n.flag())),
    number(27, "starttls", |s, n| {
        let known = [(0, StartTls::Never), (1, StartTls::Offered), (2, StartTls::Required)];
        set(&mut s.mail.start_tls, n.one_of(known, "0, 1 or 2"))
    }),
    number(28, "plain_auth", |s, n| set(&mut s.mail.plain_auth, n.flag())),
    number(29, "max_receive_rate", |s, n| set(&mut s.receive_rate, n.size().map(NonZeroU64::new))),
    number(30, "max_send_rate", |s, n| set(&mut s.send_rate, n.size().map(NonZeroU64::new))),
    number(31, "keep_encoding", |s, n| set(&mut s.keep_encoding, n.flag())),
    of_engine(
        64,
        "connections_per_host",
        Set::Number(|s, n| set(&mut s.engine.connections_per_host, n.count())),
    ),
    of_engine(
        65,
        "h2_connections_per_host",
        Set::Number(|s, n| set(&mut s.engine.h2_connections_per_host, n.count())),
    ),
    of_engine(66, "connections", Set::Number(|s, n| set(&mut s.engine.connections, n.count()))),
    of_engine(67, "idle_connection_time", Set::Number(|s, n| set(&mut s.engine.idle, n.time()))),
    of_engine(68, "dns_time", Set::Number(|s, n| set(&mut s.engine.dns, n.time()))),
    of_engine(
        69,
        "requests_per_host",
        Set::Number(|s, n| set(&mut s.engine.requests_per_host, n.count())),
    ),
    of_engine(
        70,
        "mail_connections_per_host",
        Set::Number(|s, n| set(&mut s.engine.mail_connections_per_host, n.count())),
    ),
    text(128, "proxy", |s, t| set(&mut s.proxy, t.read(proxy))),
    text(129, "safe_protocols", |s, t| set(&mut s.safe_protocols, t.read(protocols))),
    text(130, "unix_socket", |s, t| set(&mut s.unix_socket, Ok(t.file()))),
    text(131, "resolve", |s, t| set(&mut s.resolve, t.read(resolve))),
    text(132, "interface", |s, t| {
        let address = match t.value {
            "" => Ok(None),
            value => value.parse().map(Some).map_err(|_not| t.wrong("it wants a local address")),
        };
        set(&mut s.interface, address)
    }),
    of_engine(
        133,
        "deny",
        Set::Text(|s, t| {
            let words = t.value.split([' ', ';']).filter(|word| !word.is_empty());
            let networks = words.map(str::parse).collect::<Result<_, egress::NotANetwork>>();
            set(&mut s.engine.deny, networks.map_err(|not| t.wrong(&not.to_string())))
        }),
    ),
    text(134, "user_agent", |s, t| {
        let field = match t.value {
            "" => Ok(None),
            value => HeaderValue::from_str(value)
                .map(Some)
                .map_err(|_bytes| t.wrong("it is no value of a field")),
        };
        set(&mut s.user_agent, field)
    }),
    text(135, "range", |s, t| {
        let field = match t.value {
            "" => Ok(None),
            value if range(value) => Ok(HeaderValue::from_str(&format!("bytes={value}")).ok()),
            _ => Err(t.wrong("it wants 0-499, 500-, -500, or several joined by commas")),
        };
        set(&mut s.range, field)
    }),
    text(136, "pinned_key", |s, t| set(&mut s.pins, t.read(pins))),
    text(137, "dsn_notify", |s, t| set(&mut s.mail.dsn.notify, t.read(notify))),
    text(138, "dsn_return", |s, t| {
        let known = [("", ""), ("full", "FULL"), ("headers", "HDRS"), ("hdrs", "HDRS")];
        set(&mut s.mail.dsn.ret, t.one_of(known, "full or headers").map(str::to_owned))
    }),
    text(139, "accept_encoding", |s, t| set(&mut s.encodings, t.read(encodings))),
    text(140, "ciphers", |s, t| set(&mut s.ciphers, t.read(ciphers))),
    authentication(160, "mode", |s, t| {
        let known = [
            ("", AuthMode::None),
            ("none", AuthMode::None),
            ("basic", AuthMode::Basic),
            ("digest", AuthMode::Digest),
            ("bearer", AuthMode::Bearer),
        ];
        set(&mut s.auth.mode, t.one_of(known, "none, basic, digest or bearer"))
    }),
    authentication(161, "user", |s, t| set(&mut s.auth.user, t.line())),
    authentication(162, "secret", |s, t| {
        if t.value.len() > LONGEST_SECRET {
            return Err(Refused::unsupported("secret is longer than 8000000 bytes"));
        }
        set(&mut s.auth.secret, t.line())
    }),
    authentication(163, "mechanisms", |s, t| {
        s.mail.mechanisms = t.words().map(str::to_ascii_uppercase).collect();
        Ok(())
    }),
    certificates(176, "sslcert", |s, t| set(&mut s.files().certificate, Ok(t.file()))),
    certificates(177, "sslcerttype", |s, t| set(&mut s.files().certificate_der, t.is_der())),
    certificates(178, "sslkey", |s, t| set(&mut s.files().key, Ok(t.file()))),
    certificates(179, "sslkeytype", |s, t| set(&mut s.files().key_der, t.is_der())),
    certificates(180, "keypasswd", |s, t| set(&mut s.files().password, Ok(t.password()))),
    certificates(181, "engine", |_s, t| match t.value {
        "" => Ok(()),
        _ => Err(Refused::unsupported(format!("{} is not built", t.key))),
    }),
    certificates(182, "cainfo", |s, t| set(&mut s.files().authorities, Ok(t.file()))),
    certificates(183, "capath", |s, t| set(&mut s.files().authorities_folder, Ok(t.file()))),
    certificates(184, "capem", |s, t| {
        let pem = Some(Arc::from(t.value.as_bytes())).filter(|_| !t.value.is_empty());
        set(&mut s.files().authorities_pem, Ok(pem))
    }),
    certificates(185, "proxy_sslcert", |s, t| set(&mut s.proxy_files().certificate, Ok(t.file()))),
    certificates(186, "proxy_sslcerttype", |s, t| {
        set(&mut s.proxy_files().certificate_der, t.is_der())
    }),
    certificates(187, "proxy_sslkey", |s, t| set(&mut s.proxy_files().key, Ok(t.file()))),
    certificates(188, "proxy_sslkeytype", |s, t| set(&mut s.proxy_files().key_der, t.is_der())),
    certificates(189, "proxy_keypasswd", |s, t| {
        set(&mut s.proxy_files().password, Ok(t.password()))
    }),
    certificates(190, "proxy_cainfo", |s, t| set(&mut s.proxy_files().authorities, Ok(t.file()))),
    certificates(191, "proxy_capath", |s, t| {
        set(&mut s.proxy_files().authorities_folder, Ok(t.file()))
    }),
];

/// The value of an option that is a number.
#[derive(Debug)]
pub(crate) struct Number {
    key: &'static str,
    value: i64,
}

impl Number {
    fn wrong(&self, wants: &str) -> Refused {
        Refused::invalid(format!("{} wants {wants}, not {}", self.key, self.value))
    }

    fn one_of<T, const N: usize>(&self, known: [(i64, T); N], wants: &str) -> Result<T, Refused> {
        let found = known.into_iter().find(|(value, _)| *value == self.value);
        found.map(|(_, meaning)| meaning).ok_or_else(|| self.wrong(wants))
    }

    fn flag(&self) -> Result<bool, Refused> {
        self.one_of([(0, false), (1, true)], "0 or 1")
    }

    fn size(&self) -> Result<u64, Refused> {
        u64::try_from(self.value).map_err(|_negative| self.wrong("no negative number"))
    }

    /// Milliseconds, at most a year: more would overflow clocks.
    fn time(&self) -> Result<Duration, Refused> {
        match self.size()? {
            value @ 0..=31_536_000_000 => Ok(Duration::from_millis(value)),
            _ => Err(self.wrong("at most 31536000000 milliseconds")),
        }
    }

    /// Milliseconds; zero: no limit.
    fn limit(&self) -> Result<Option<Duration>, Refused> {
        self.time().map(|time| Some(time).filter(|time| !time.is_zero()))
    }

    fn count(&self) -> Result<usize, Refused> {
        match self.value {
            1..=1_000_000 => Ok(usize::try_from(self.value).expect("it is small")),
            _ => Err(self.wrong("1 to 1000000")),
        }
    }

    fn tls_version(&self) -> Result<TlsVersion, Refused> {
        self.one_of([(12, TlsVersion::V1_2), (13, TlsVersion::V1_3)], "12 or 13")
    }
}

/// The value of an option that is a text, without a NUL. An empty one unsets the option.
#[derive(Debug)]
pub(crate) struct Text<'v> {
    key: &'static str,
    value: &'v str,
}

impl<'v> Text<'v> {
    fn wrong(&self, what: &str) -> Refused {
        Refused::invalid(format!("{}: {what}", self.key))
    }

    fn read<T, E: AsRef<str>>(
        &self,
        read: impl FnOnce(&'v str) -> Result<T, E>,
    ) -> Result<T, Refused> {
        read(self.value).map_err(|what| self.wrong(what.as_ref()))
    }

    fn one_of<T, const N: usize>(&self, known: [(&str, T); N], wants: &str) -> Result<T, Refused> {
        let found = known.into_iter().find(|(word, _)| self.value.eq_ignore_ascii_case(word));
        found.map(|(_, meaning)| meaning).ok_or_else(|| self.wrong(wants))
    }

    fn words(&self) -> impl Iterator<Item = &'v str> {
        self.value.split([',', ' ']).filter(|word| !word.is_empty())
    }

    fn line(&self) -> Result<String, Refused> {
        if self.value.contains(['\r', '\n']) {
            return Err(self.wrong("there is a line's end in it"));
        }
        Ok(self.value.to_owned())
    }

    fn file(&self) -> Option<PathBuf> {
        Some(PathBuf::from(self.value)).filter(|_| !self.value.is_empty())
    }

    fn password(&self) -> Option<Password> {
        Some(Password(self.value.to_owned())).filter(|_| !self.value.is_empty())
    }

    fn is_der(&self) -> Result<bool, Refused> {
        let Self { key, value } = self;
        match value.to_ascii_uppercase().as_str() {
            "" | "PEM" => Ok(false),
            "DER" => Ok(true),
            "P12" => Err(Refused::unsupported(format!(
                "{key}: P12 is not built, PEM is: openssl pkcs12 -in P12 -out PEM"
            ))),
            "ENG" | "PROV" => {
                Err(Refused::unsupported(format!("{key}: {value} is not built, PEM and DER are")))
            }
            _ => Err(self.wrong("PEM or DER")),
        }
    }
}

/// The key that was probably meant.
pub(super) fn hint(group: Group, key: &str) -> String {
    let distance = |item: &Item| strsim::damerau_levenshtein(item.key, key);
    let nearest =
        OPTIONS.iter().filter(|item| item.group == group).min_by_key(|item| distance(item));
    match nearest.filter(|item| distance(item) <= 3) {
        Some(item) => format!(", {} is one", item.key),
        None => String::new(),
    }
}

/// Whether a request may have this option, or only an engine.
pub(super) fn may_have(item: &Item, engine: bool) -> Result<(), Refused> {
    if item.engine && !engine {
        return Err(Refused::invalid(format!(
            "{} belongs to an engine, not to a request",
            item.key
        )));
    }
    Ok(())
}

fn find(option: i32) -> Result<&'static Item, Refused> {
    let item = OPTIONS.iter().find(|item| item.option == option);
    item.ok_or_else(|| Refused::invalid(format!("{option} is no option")))
}

impl Settings {
    /// Sets an option that is a number.
    pub(crate) fn set_number(
        &mut self,
        option: i32,
        value: i64,
        engine: bool,
    ) -> Result<(), Refused> {
        let item = find(option)?;
        let Set::Number(set) = item.set else {
            return Err(Refused::invalid(format!("{} is a text", item.key)));
        };
        may_have(item, engine)?;
        set(self, &Number { key: item.key, value })
    }

    /// Sets an option that is a text. An empty one unsets it.
    pub(crate) fn set_text(
        &mut self,
        option: i32,
        value: &str,
        engine: bool,
    ) -> Result<(), Refused> {
        let item = find(option)?;
        let Set::Text(set) = item.set else {
            return Err(Refused::invalid(format!("{} is a number", item.key)));
        };
        may_have(item, engine)?;
        let text = Text { key: item.key, value };
        if value.contains('\0') {
            return Err(text.wrong("there is a NUL in it"));
        }
        set(self, &text)
    }

    /// Returns the files, and discards what was read from the old ones.
    fn files(&mut self) -> &mut TlsFiles {
        self.prepared = std::sync::OnceLock::new();
        &mut self.tls
    }

    fn proxy_files(&mut self) -> &mut TlsFiles {
        self.prepared = std::sync::OnceLock::new();
        &mut self.proxy_tls
    }
}

/// RFC 3461, 4.1.
fn notify(text: &str) -> Result<String, &'static str> {
    let words: Vec<String> = text
        .split([',', ' '])
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_uppercase)
        .collect();
    let known = |word: &String| matches!(word.as_str(), "SUCCESS" | "FAILURE" | "DELAY");
    let never = words.iter().any(|word| word == "NEVER") && words.len() == 1;
    if never || words.iter().all(known) {
        Ok(words.join(","))
    } else {
        Err("never, or of success, failure and delay those that are wished")
    }
}

/// Returns the encodings that can be decoded, in the caller's order.
fn encodings(text: &str) -> Result<Option<HeaderValue>, String> {
    const KNOWN: [&str; 5] = ["gzip", "deflate", "br", "zstd", "identity"];
    let words = text.split([',', ' ']).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(str::to_ascii_lowercase).collect();
    if let Some(unknown) = words.iter().find(|word| !KNOWN.contains(&word.as_str())) {
        return Err(format!("{unknown:?} is none of {}", KNOWN.join(", ")));
    }
    Ok(HeaderValue::from_str(&words.join(", ")).ok().filter(|_| !words.is_empty()))
}

/// Schemes, joined by commas; `all` is all that are known. Names that libcurl knows and Hearth does not are accepted: no URL of theirs is called.
fn protocols(text: &str) -> Result<Option<Arc<[String]>>, String> {
    const SPOKEN: [&str; 5] = ["http", "https", "smtp", "smtps", "file"];
    const OTHERS: &str = "dict ftp ftps gopher gophers imap imaps ldap ldaps mqtt mqtts pop3 pop3s rtmp rtmpe rtmps rtmpt rtmpte rtmpts \
                          rtsp scp sftp smb smbs telnet tftp ws wss";
    if text.is_empty() {
        return Ok(None);
    }
    let mut schemes = Vec::new();
    for word in text.split([',', ' ']).filter(|word| !word.is_empty()) {
        let word = word.to_ascii_lowercase();
        if word == "all" {
            schemes.extend(SPOKEN.map(str::to_owned));
        } else if SPOKEN.contains(&word.as_str())
            || OTHERS.split_ascii_whitespace().any(|other| other == word)
        {
            schemes.push(word);
        } else {
            return Err(format!("{word:?} is no protocol: {} are", SPOKEN.join(", ")));
        }
    }
    if schemes.is_empty() {
        return Err(format!("it names none of {}", SPOKEN.join(", ")));
    }
    Ok(Some(schemes.into()))
}

/// Cipher suites, as the registry or OpenSSL names them.
fn ciphers(text: &str) -> Result<Option<Arc<[Cipher]>>, String> {
    let one = |name: &str| {
        Cipher::named(name).ok_or_else(|| {
            let known: Vec<String> = Cipher::all().collect();
            format!("{name:?} is none of {}", known.join(", "))
        })
    };
    let words = text.split([':', ',', ' ']).filter(|word| !word.is_empty());
    let ciphers: Arc<[Cipher]> = words.map(one).collect::<Result<_, _>>()?;
    Ok(Some(ciphers).filter(|ciphers| !ciphers.is_empty()))
}

/// `0-499`, `500-`, `-500`, and several.
fn range(text: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    text.split(',').all(|part| {
        part.trim().split_once('-').is_some_and(|(first, last)| {
            digits(first) && digits(last) && !(first.is_empty() && last.is_empty())
        })
    })
}

fn pins(text: &str) -> Result<Arc<[[u8; 32]]>, String> {
    let pin = |pin: &str| {
        let encoded = pin.trim().strip_prefix("sha256//").ok_or("each begins with sha256//")?;
        let bytes = STANDARD.decode(encoded).map_err(|_not| "what follows sha256// is Base64")?;
        bytes.try_into().map_err(|_length| "a SHA-256 has 32 bytes")
    };
    let pins: Result<Vec<[u8; 32]>, &str> =
        text.split(';').filter(|text| !text.trim().is_empty()).map(pin).collect();
    Ok(pins?.into())
}

fn resolve(text: &str) -> Result<Vec<Resolve>, String> {
    let one = |text: &str| {
        let wants = || format!("{text:?} is not host:port:address");
        let (host, rest) = text.trim().split_once(':').ok_or_else(wants)?;
        let (port, address) = rest.split_once(':').ok_or_else(wants)?;
        let address = address.trim().trim_start_matches('[').trim_end_matches(']');
        let address: std::net::IpAddr = address.parse().map_err(|_not| wants())?;
        let port = port.parse().map_err(|_not| wants())?;
        let host = host.trim().to_ascii_lowercase();
        Ok(Resolve { host, port, address: address.to_string().into() })
    };
    text.split(';').filter(|text| !text.trim().is_empty()).map(one).collect()
}

fn proxy(text: &str) -> Result<Option<Proxy>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    if text.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err("there are spaces or control characters in it".to_owned());
    }
    let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
    let (kind, port) = match scheme.to_ascii_lowercase().as_str() {
        "http" => (ProxyKind::Http, 1080),
        "https" => (ProxyKind::Https, 443),
        "socks4" => (ProxyKind::Socks4, 1080),
        "socks4a" => (ProxyKind::Socks4Hostname, 1080),
        "socks5" => (ProxyKind::Socks5, 1080),
        "socks5h" => (ProxyKind::Socks5Hostname, 1080),
        _ => {
            return Err(
                "it begins with http, https, socks4, socks4a, socks5 or socks5h and ://".to_owned()
            );
        }
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (credentials, place) = match rest.rsplit_once('@') {
        Some((credentials, place)) => {
            let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
            (Some((decoded(user)?.into(), decoded(password)?.into())), place)
        }
        None => (None, rest),
    };
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or("the ] is missing")?;
            match after.strip_prefix(':') {
                Some(port) => (host, port.parse().map_err(|_not| "the port is none")?),
                None => (host, port),
            }
        }
        None => match place.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_not| "the port is none")?),
            None => (place, port),
        },
    };
    if host.is_empty() || host.contains(['/', '?', '#', '@']) {
        return Err("its host is none".to_owned());
    }
    Ok(Some(Proxy { kind, host: host.to_ascii_lowercase().into(), port, credentials, tls: None }))
}

/// Percent-encoded text.
fn decoded(text: &str) -> Result<String, String> {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    let decoded = decoded.map_err(|_not| "name or password are no UTF-8")?;
    if decoded.contains(['\r', '\n', '\0']) {
        return Err("there are control characters in name or password".to_owned());
    }
    Ok(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(group: Group, text: &str) -> Result<Settings, String> {
        let mut settings = Settings::default();
        settings.set_all(group, text, false).map_err(|refused| refused.message)?;
        Ok(settings)
    }

    #[test]
    fn curlevs_ten_options_are_accepted() {
        let text = "accept_compression=0, connect_timeout=100, cookies=1, follow_location=2, insecure=1, maxredirs=3, \
                    proxy=socks5h://u%40:p@p.test:1, rcpt_allow_fails=1, timeout=0, verbose=0";
        let settings = set(Group::Options, text).expect("taken");
        assert!(!settings.accept_compression && settings.insecure);
        assert_eq!((settings.follow, settings.cookies), (Follow::AsBrowsers, Cookies::Own));
        assert_eq!((settings.timeout, settings.max_redirects), (None, Some(3)));
        let proxy = settings.proxy.expect("one");
        assert_eq!(
            (proxy.kind, &*proxy.host, proxy.port),
            (ProxyKind::Socks5Hostname, "p.test", 1)
        );
        assert_eq!(proxy.credentials, Some(("u@".into(), "p".into())));
    }

    #[test]
    fn a_wrong_key_or_value_is_named_and_nothing_changes() {
        for (text, what) in [
            ("timeot=1", "\"timeot\" is no key, timeout is one"),
            ("timeout=1s", "timeout wants a whole number, not \"1s\""),
            ("insecure=2", "insecure wants 0 or 1, not 2"),
            ("timeout=-1", "timeout wants no negative number, not -1"),
            ("connections=5", "connections belongs to an engine, not to a request"),
            (
                "proxy=ftp://x",
                "proxy: it begins with http, https, socks4, socks4a, socks5 or socks5h and ://",
            ),
            ("mode=basic", "\"mode\" is no key"),
        ] {
            assert_eq!(set(Group::Options, text).expect_err(text), what);
        }
        let mut settings = Settings::default();
        assert!(settings.set_all(Group::Options, "timeout=1,insecure=7", false).is_err());
        assert_eq!(settings.timeout, Settings::default().timeout);
    }

    #[test]
    fn unknown_protocols_are_named() {
        let set = |text: &str| {
            let mut settings = Settings::default();
            let set = settings.set_text(129, text, false).map_err(|refused| refused.message);
            set.map(|()| settings.safe_protocols.expect("a list").join(" "))
        };
        assert_eq!(set("HTTP, file,ftp").as_deref(), Ok("http file ftp"));
        assert_eq!(set("all").as_deref(), Ok("http https smtp smtps file"));
        let known = "http, https, smtp, smtps, file";
        let unknown = format!("safe_protocols: \"htpp\" is no protocol: {known} are");
        assert_eq!(set("https,htpp"), Err(unknown));
        assert_eq!(set(" "), Err(format!("safe_protocols: it names none of {known}")));
    }

    #[test]
    fn a_password_may_hold_a_comma() {
        let settings =
            set(Group::Authentication, r#"mode=digest,user=me,secret="a,b""#).expect("taken");
        assert_eq!((settings.auth.mode, settings.auth.secret.as_str()), (AuthMode::Digest, "a,b"));
        assert!(!format!("{:?}", settings.auth).contains("a,b"));
    }

    #[test]
    fn the_header_numbers_the_same_options() {
        let header = include_str!("../../../../include/hearth.h");
        let enumerated = header.split_once("typedef int hearth_option;").expect("the options").1;
        let enumerated = enumerated.split_once("};").expect("their end").0;
        let mut numbers = Vec::new();
        for line in enumerated.lines() {
            let Some((name, rest)) = line.trim().split_once(" = ") else { continue };
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            numbers.push((digits.parse::<i32>().expect("a number"), name.to_owned()));
        }
        let named = |item: &Item| {
            let name = match item.key {
                "maxredirs" => "MAX_REDIRECTS".to_owned(),
                "mode" | "user" | "secret" | "mechanisms" => {
                    format!("AUTH_{}", item.key.to_ascii_uppercase())
                }
                "engine" => "SSLENGINE".to_owned(),
                key => key.to_ascii_uppercase(),
            };
            (item.option, format!("HEARTH_{name}"))
        };
        assert_eq!(numbers, OPTIONS.iter().map(named).collect::<Vec<_>>());
    }

    #[test]
    fn every_option_takes_its_kind() {
        for item in OPTIONS {
            let mut settings = Settings::default();
            let (number, text) = (
                settings.set_number(item.option, 12, true).is_ok(),
                settings.set_text(item.option, "", true).is_ok(),
            );
            assert!(!(number && text), "{}", item.key);
            assert!(text == matches!(item.set, Set::Text(_)), "{}", item.key);
        }
    }
}
