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
    pub(crate) number: bool,
    /// Only an engine has it.
    pub(crate) engine: bool,
}

const fn number(option: i32, key: &'static str) -> Item {
    Item { option, key, group: Group::Options, number: true, engine: false }
}

const fn of_engine(option: i32, key: &'static str, number: bool) -> Item {
    Item { option, key, group: Group::Options, number, engine: true }
}

const fn text(option: i32, key: &'static str, group: Group) -> Item {
    Item { option, key, group, number: false, engine: false }
}

/// All of them; hearth.h lists the same, which a test compares.
pub(crate) const OPTIONS: &[Item] = &[
    number(1, "accept_compression"),
    number(2, "connect_timeout"),
    number(3, "cookies"),
    number(4, "follow_location"),
    number(5, "insecure"),
    number(6, "maxredirs"),
    number(7, "rcpt_allow_fails"),
    number(8, "timeout"),
    number(9, "verbose"),
    number(10, "idle_timeout"),
    number(11, "max_response_size"),
    number(12, "max_retries"),
    number(13, "retry_delay"),
    number(14, "retry_max_delay"),
    number(15, "retry_jitter"),
    number(16, "retry_after"),
    number(17, "retry_any_method"),
    number(18, "http_version"),
    number(19, "ip_family"),
    number(20, "tls_min"),
    number(21, "tls_max"),
    number(22, "private_addresses"),
    number(23, "history"),
    number(24, "expect_continue"),
    number(25, "unrestricted_auth"),
    number(26, "threaded_callback"),
    number(27, "starttls"),
    number(28, "plain_auth"),
    number(29, "max_receive_rate"),
    number(30, "max_send_rate"),
    of_engine(64, "connections_per_host", true),
    of_engine(65, "h2_connections_per_host", true),
    of_engine(66, "connections", true),
    of_engine(67, "idle_connection_time", true),
    of_engine(68, "dns_time", true),
    of_engine(69, "requests_per_host", true),
    of_engine(70, "mail_connections_per_host", true),
    text(128, "proxy", Group::Options),
    text(129, "safe_protocols", Group::Options),
    text(130, "unix_socket", Group::Options),
    text(131, "resolve", Group::Options),
    text(132, "interface", Group::Options),
    of_engine(133, "deny", false),
    text(134, "user_agent", Group::Options),
    text(135, "range", Group::Options),
    text(136, "pinned_key", Group::Options),
    text(137, "dsn_notify", Group::Options),
    text(138, "dsn_return", Group::Options),
    text(139, "accept_encoding", Group::Options),
    text(140, "ciphers", Group::Options),
    text(160, "mode", Group::Authentication),
    text(161, "user", Group::Authentication),
    text(162, "secret", Group::Authentication),
    text(163, "mechanisms", Group::Authentication),
    text(176, "sslcert", Group::Certificates),
    text(177, "sslcerttype", Group::Certificates),
    text(178, "sslkey", Group::Certificates),
    text(179, "sslkeytype", Group::Certificates),
    text(180, "keypasswd", Group::Certificates),
    text(181, "engine", Group::Certificates),
    text(182, "cainfo", Group::Certificates),
    text(183, "capath", Group::Certificates),
    text(184, "capem", Group::Certificates),
    text(185, "proxy_sslcert", Group::Certificates),
    text(186, "proxy_sslcerttype", Group::Certificates),
    text(187, "proxy_sslkey", Group::Certificates),
    text(188, "proxy_sslkeytype", Group::Certificates),
    text(189, "proxy_keypasswd", Group::Certificates),
    text(190, "proxy_cainfo", Group::Certificates),
    text(191, "proxy_capath", Group::Certificates),
];

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

fn find(option: i32, number: bool, engine: bool) -> Result<&'static Item, Refused> {
    let item = OPTIONS
        .iter()
        .find(|item| item.option == option)
        .ok_or_else(|| Refused::invalid(format!("{option} is no option")))?;
    if item.number != number {
        let kind = if item.number { "number" } else { "text" };
        return Err(Refused::invalid(format!("{} is a {kind}", item.key)));
    }
    may_have(item, engine)?;
    Ok(item)
}

impl Settings {
    /// Sets an option that is a number.
    pub(crate) fn set_number(
        &mut self,
        option: i32,
        value: i64,
        engine: bool,
    ) -> Result<(), Refused> {
        let key = find(option, true, engine)?.key;
        let wrong = |wants: &str| Refused::invalid(format!("{key} wants {wants}, not {value}"));
        let flag = || match value {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(wrong("0 or 1")),
        };
        let size = || u64::try_from(value).map_err(|_negative| wrong("no negative number"));
        // A year is for ever; more would overflow clocks.
        let time = || match size()? {
            value @ 0..=31_536_000_000 => Ok(Duration::from_millis(value)),
            _ => Err(wrong("at most 31536000000 milliseconds")),
        };
        let limit = || time().map(|time| Some(time).filter(|time| !time.is_zero()));
        let count = || match value {
            1..=1_000_000 => Ok(usize::try_from(value).expect("it is small")),
            _ => Err(wrong("1 to 1000000")),
        };
        let version = || match value {
            12 => Ok(TlsVersion::V1_2),
            13 => Ok(TlsVersion::V1_3),
            _ => Err(wrong("12 or 13")),
        };
        match option {
            1 => self.accept_compression = flag()?,
            2 => {
                let time = time()?;
                // None at all is as long as the whole may take.
                self.connect_timeout = if time.is_zero() { Duration::from_hours(24) } else { time };
            }
            3 => {
                self.cookies = match value {
                    0 => Cookies::None,
                    1 => Cookies::Own,
                    2 => Cookies::Engine,
                    _ => return Err(wrong("0, 1 or 2")),
                }
            }
            4 => {
                self.follow = match value {
                    0 => Follow::No,
                    1 => Follow::AsWritten,
                    2 => Follow::AsBrowsers,
                    3 => Follow::First,
                    _ => return Err(wrong("0, 1, 2 or 3")),
                }
            }
            5 => self.insecure = flag()?,
            6 => {
                self.max_redirects = match value {
                    -1 => None,
                    _ => Some(u32::try_from(value).map_err(|_range| wrong("-1 or a number"))?),
                }
            }
            7 => self.mail.allow_fails = flag()?,
            8 => self.timeout = limit()?,
            9 => self.verbose = flag()?,
            10 => self.idle_timeout = limit()?,
            11 => self.max_response_size = Some(size()?).filter(|size| *size > 0),
            12 => self.retry.most = u32::try_from(value).map_err(|_range| wrong("0 or more"))?,
            13 => self.retry.delay = time()?,
            14 => self.retry.longest = time()?,
            15 => self.retry.jitter = flag()?,
            16 => self.retry.after = flag()?,
            17 => self.retry.any_method = flag()?,
            18 => {
                self.http = match value {
                    0 => HttpVersions::Negotiate,
                    11 => HttpVersions::Http1,
                    20 => HttpVersions::Http2,
                    _ => return Err(wrong("0, 11 or 20")),
                }
            }
            19 => {
                self.family = match value {
                    0 => IpFamily::Both,
                    4 => IpFamily::V4,
                    6 => IpFamily::V6,
                    _ => return Err(wrong("0, 4 or 6")),
                }
            }
            20 => self.tls_min = version()?,
            21 => self.tls_max = version()?,
            22 => self.private_addresses = flag()?,
            23 => self.history = flag()?,
            24 => self.expect_continue = flag()?,
            25 => self.unrestricted_auth = flag()?,
            26 => self.threaded_callback = flag()?,
            27 => {
                self.mail.start_tls = match value {
                    0 => StartTls::Never,
                    1 => StartTls::Offered,
                    2 => StartTls::Required,
                    _ => return Err(wrong("0, 1 or 2")),
                }
            }
            28 => self.mail.plain_auth = flag()?,
            29 => self.receive_rate = NonZeroU64::new(size()?),
            30 => self.send_rate = NonZeroU64::new(size()?),
            64 => self.engine.connections_per_host = count()?,
            65 => self.engine.h2_connections_per_host = count()?,
            66 => self.engine.connections = count()?,
            67 => self.engine.idle = time()?,
            68 => self.engine.dns = time()?,
            69 => self.engine.requests_per_host = count()?,
            70 => self.engine.mail_connections_per_host = count()?,
            _ => unreachable!("the table has no other numbers"),
        }
        Ok(())
    }

    /// Sets an option that is a text. An empty one unsets it.
    pub(crate) fn set_text(
        &mut self,
        option: i32,
        value: &str,
        engine: bool,
    ) -> Result<(), Refused> {
        let key = find(option, false, engine)?.key;
        let wrong = |what: &str| Refused::invalid(format!("{key}: {what}"));
        if value.contains('\0') {
            return Err(wrong("there is a NUL in it"));
        }
        let file = || Some(PathBuf::from(value)).filter(|_| !value.is_empty());
        let field = || match value {
            "" => Ok(None),
            _ => HeaderValue::from_str(value)
                .map(Some)
                .map_err(|_bytes| wrong("it is no value of a field")),
        };
        let der = || match value.to_ascii_uppercase().as_str() {
            "" | "PEM" => Ok(false),
            "DER" => Ok(true),
            "P12" => Err(Refused::unsupported(format!(
                "{key}: P12 is not built, PEM is: openssl pkcs12 -in P12 -out PEM"
            ))),
            "ENG" | "PROV" => {
                Err(Refused::unsupported(format!("{key}: {value} is not built, PEM and DER are")))
            }
            _ => Err(wrong("PEM or DER")),
        };
        let password = || Some(Password(value.to_owned())).filter(|_| !value.is_empty());
        let unbuilt = || match value {
            "" => Ok(()),
            _ => Err(Refused::unsupported(format!("{key} is not built"))),
        };
        match option {
            128 => self.proxy = proxy(value).map_err(|what| wrong(&what))?,
            129 => {
                let words = value.split([',', ' ']).filter(|word| !word.is_empty());
                self.safe_protocols = words.map(str::to_ascii_lowercase).collect();
            }
            130 => self.unix_socket = file(),
            131 => self.resolve = resolve(value).map_err(|what| wrong(&what))?,
            132 => {
                self.interface = match value {
                    "" => None,
                    _ => Some(value.parse().map_err(|_not| wrong("it wants a local address"))?),
                }
            }
            133 => {
                let networks =
                    value.split([' ', ';']).filter(|word| !word.is_empty()).map(str::parse);
                self.engine.deny = networks
                    .collect::<Result<_, egress::NotANetwork>>()
                    .map_err(|not| wrong(&not.to_string()))?;
            }
            134 => self.user_agent = field()?,
            135 => {
                self.range = match value {
                    "" => None,
                    _ if range(value) => HeaderValue::from_str(&format!("bytes={value}")).ok(),
                    _ => {
                        return Err(wrong(
                            "it wants 0-499, 500-, -500, or several joined by commas",
                        ));
                    }
                }
            }
            136 => self.pins = pins(value).map_err(|what| wrong(&what))?,
            137 => self.mail.dsn.notify = notify(value).map_err(&wrong)?,
            138 => {
                self.mail.dsn.ret = match value.to_ascii_lowercase().as_str() {
                    "" => String::new(),
                    "full" => "FULL".to_owned(),
                    "headers" | "hdrs" => "HDRS".to_owned(),
                    _ => return Err(wrong("full or headers")),
                }
            }
            139 => self.encodings = encodings(value).map_err(|what| wrong(&what))?,
            140 => self.ciphers = ciphers(value).map_err(|what| wrong(&what))?,
            160 => {
                self.auth.mode = match value.to_ascii_lowercase().as_str() {
                    "" | "none" => AuthMode::None,
                    "basic" => AuthMode::Basic,
                    "digest" => AuthMode::Digest,
                    "bearer" => AuthMode::Bearer,
                    _ => return Err(wrong("none, basic, digest or bearer")),
                }
            }
            161 | 162 if value.contains(['\r', '\n']) => {
                return Err(wrong("there is a line's end in it"));
            }
            161 => value.clone_into(&mut self.auth.user),
            162 => value.clone_into(&mut self.auth.secret),
            163 => {
                let words = value.split([' ', ',']).filter(|word| !word.is_empty());
                self.mail.mechanisms = words.map(str::to_ascii_uppercase).collect();
            }
            176 => self.files().certificate = file(),
            177 => self.files().certificate_der = der()?,
            178 => self.files().key = file(),
            179 => self.files().key_der = der()?,
            180 => self.files().password = password(),
            181 => unbuilt()?,
            182 => self.files().authorities = file(),
            183 => self.files().authorities_folder = file(),
            184 => {
                self.files().authorities_pem =
                    Some(Arc::from(value.as_bytes())).filter(|_| !value.is_empty());
            }
            185 => self.proxy_files().certificate = file(),
            186 => self.proxy_files().certificate_der = der()?,
            187 => self.proxy_files().key = file(),
            188 => self.proxy_files().key_der = der()?,
            189 => self.proxy_files().password = password(),
            190 => self.proxy_files().authorities = file(),
            191 => self.proxy_files().authorities_folder = file(),
            _ => unreachable!("the table has no other texts"),
        }
        Ok(())
    }

    /// What was read of the old ones counts no more.
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

/// Those that can be undone, in the caller's order.
fn encodings(text: &str) -> Result<Option<HeaderValue>, String> {
    const KNOWN: [&str; 5] = ["gzip", "deflate", "br", "zstd", "identity"];
    let words = text.split([',', ' ']).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(str::to_ascii_lowercase).collect();
    if let Some(unknown) = words.iter().find(|word| !KNOWN.contains(&word.as_str())) {
        return Err(format!("{unknown:?} is none of {}", KNOWN.join(", ")));
    }
    Ok(HeaderValue::from_str(&words.join(", ")).ok().filter(|_| !words.is_empty()))
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
    fn curlevs_ten_options_are_taken() {
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
            assert!(text != item.number, "{}", item.key);
        }
    }
}
