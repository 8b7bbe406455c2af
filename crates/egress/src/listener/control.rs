//! The options that a caller sets for its call: `Hearth-Control`, parsed and checked.
//!
//! Invariants
//! - No option counts without the token. A second `Hearth-Control` field, injected by another party, invalidates both.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, HeaderName};
use sfv::{BareItem, Dictionary, ListEntry, Parser};

use super::refusal::Refusal;
use crate::{HttpVersions, IpFamily, Proxy, ProxyKind, TlsVersion};

/// The name of the field.
pub(crate) const CONTROL: HeaderName = HeaderName::from_static("hearth-control");
/// The port of a proxy without one, as in libcurl.
const PROXY_PORT: u16 = 1080;

/// The options of a call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Control {
    /// Whether the certificate is verified.
    pub(crate) verify: bool,
    /// The file of trusted authorities.
    pub(crate) ca: Option<PathBuf>,
    /// The files of a client certificate and its key.
    pub(crate) certificate: Option<(PathBuf, PathBuf)>,
    /// SHA-256 hashes of permitted public keys.
    pub(crate) pins: Arc<[[u8; 32]]>,
    /// The lowest version of TLS.
    pub(crate) tls_min: TlsVersion,
    /// The highest version of TLS.
    pub(crate) tls_max: TlsVersion,
    /// The permitted versions of HTTP.
    pub(crate) http: HttpVersions,
    /// The permitted address families.
    pub(crate) family: IpFamily,
    /// The local address.
    pub(crate) interface: Option<IpAddr>,
    /// The address to connect to instead.
    pub(crate) connect_to: Option<(Arc<str>, u16)>,
    /// The proxy.
    pub(crate) proxy: Option<Proxy>,
    /// The time limit for connecting.
    pub(crate) connect_timeout: Option<Duration>,
    /// Whether the response carries `Hearth-Timing`.
    pub(crate) timing: bool,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            verify: true,
            ca: None,
            certificate: None,
            pins: Arc::from([]),
            tls_min: TlsVersion::V1_2,
            tls_max: TlsVersion::V1_3,
            http: HttpVersions::Negotiate,
            family: IpFamily::Both,
            interface: None,
            connect_to: None,
            proxy: None,
            connect_timeout: None,
            timing: false,
        }
    }
}

/// Parses the options in the fields of a request.
pub(crate) fn control(fields: &HeaderMap, token: &Token) -> Result<Control, Refusal> {
    let mut values = fields.get_all(CONTROL).iter();
    let Some(value) = values.next() else { return Ok(Control::default()) };
    if values.next().is_some() {
        return Err(Refusal::token());
    }
    let dictionary: Dictionary = Parser::new(value.as_bytes())
        .parse()
        .map_err(|error| Refusal::control(format!("Hearth-Control: {error}")))?;
    let offered = match dictionary.get("token") {
        Some(ListEntry::Item(item)) => item.bare_item.as_string().map(sfv::StringRef::as_str),
        _ => None,
    };
    if !offered.is_some_and(|offered| token.is(offered)) {
        return Err(Refusal::token());
    }
    read(&dictionary)
}

/// Parses the options of a caller that has sent the token before.
pub(crate) fn options(value: &[u8]) -> Result<Control, Refusal> {
    if value.is_empty() {
        return Ok(Control::default());
    }
    let dictionary: Dictionary = Parser::new(value)
        .parse()
        .map_err(|error| Refusal::control(format!("Hearth-Control: {error}")))?;
    read(&dictionary)
}

fn read(dictionary: &Dictionary) -> Result<Control, Refusal> {
    let mut control = Control::default();
    let (mut certificate, mut key) = (None, None);
    for (name, entry) in dictionary {
        let wrong = || Refusal::control(format!("Hearth-Control: `{name}` cannot be that"));
        let ListEntry::Item(item) = entry else { return Err(wrong()) };
        let value = &item.bare_item;
        let text = || text(value).ok_or_else(wrong);
        let boolean = || value.as_boolean().ok_or_else(wrong);
        match name.as_str() {
            "token" => {}
            "verify" => control.verify = boolean()?,
            "timing" => control.timing = boolean()?,
            "ca" => control.ca = Some(path(text()?).ok_or_else(wrong)?),
            "cert" => certificate = Some(path(text()?).ok_or_else(wrong)?),
            "key" => key = Some(path(text()?).ok_or_else(wrong)?),
            "pin" => control.pins = pins(text()?).ok_or_else(wrong)?,
            "tls-min" => control.tls_min = tls_version(value).ok_or_else(wrong)?,
            "tls-max" => control.tls_max = tls_version(value).ok_or_else(wrong)?,
            "http" => {
                control.http = match thousandths(value) {
                    Some(1100) => HttpVersions::Http1,
                    Some(2000) => HttpVersions::Http2,
                    _ => return Err(wrong()),
                }
            }
            "ip" => {
                control.family = match thousandths(value) {
                    Some(4000) => IpFamily::V4,
                    Some(6000) => IpFamily::V6,
                    _ => return Err(wrong()),
                }
            }
            "interface" => {
                control.interface = Some(text()?.parse().map_err(|_name| wrong())?);
            }
            "connect-to" => {
                let (host, port) = host_and_port(text()?, None).ok_or_else(wrong)?;
                control.connect_to = Some((host, port));
            }
            "proxy" => control.proxy = Some(proxy(text()?).ok_or_else(wrong)?),
            "connect-timeout" => {
                let milliseconds = value.as_integer().map(i64::from).ok_or_else(wrong)?;
                let milliseconds = u64::try_from(milliseconds).ok().filter(|time| *time > 0);
                control.connect_timeout =
                    Some(Duration::from_millis(milliseconds.ok_or_else(wrong)?));
            }
            _ => return Err(Refusal::control(format!("Hearth-Control: `{name}` is not known"))),
        }
    }
    control.certificate = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err(Refusal::control("Hearth-Control: `cert` and `key` go together")),
    };
    if control.tls_min > control.tls_max {
        return Err(Refusal::control("Hearth-Control: `tls-min` is above `tls-max`"));
    }
    Ok(control)
}

/// Parses a string; one that is not ASCII is a display string (RFC 9651).
fn text(value: &BareItem) -> Option<&str> {
    match value {
        BareItem::String(text) => Some(text.as_str()),
        BareItem::DisplayString(text) => Some(text),
        _ => None,
    }
}

/// Rejects relative paths: only the caller knows what they are relative to.
fn path(text: &str) -> Option<PathBuf> {
    let path = PathBuf::from(text);
    path.is_absolute().then_some(path)
}

/// Parses an integer or a decimal, times 1000.
fn thousandths(value: &BareItem) -> Option<i64> {
    match value {
        BareItem::Integer(number) => i64::from(*number).checked_mul(1000),
        BareItem::Decimal(number) => Some(number.as_integer_scaled_1000().into()),
        _ => None,
    }
}

fn tls_version(value: &BareItem) -> Option<TlsVersion> {
    match thousandths(value)? {
        1200 => Some(TlsVersion::V1_2),
        1300 => Some(TlsVersion::V1_3),
        _ => None,
    }
}

/// Parses `sha256//BASE64;sha256//BASE64`.
fn pins(text: &str) -> Option<Arc<[[u8; 32]]>> {
    let pin = |text: &str| -> Option<[u8; 32]> {
        BASE64_STANDARD.decode(text.strip_prefix("sha256//")?).ok()?.try_into().ok()
    };
    text.split(';').map(pin).collect()
}

/// Parses `host:port` or `[v6]:port`; the port may be missing if there is a default.
fn host_and_port(text: &str, default: Option<u16>) -> Option<(Arc<str>, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, rest.strip_prefix(':').or(if rest.is_empty() { Some("") } else { None })?)
        }
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let port =
        if port.is_empty() { default? } else { port.parse().ok().filter(|port| *port > 0)? };
    let fits = !host.is_empty()
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:%".contains(&byte));
    fits.then(|| (host.to_ascii_lowercase().into(), port))
}

fn proxy(text: &str) -> Option<Proxy> {
    let (scheme, rest) = text.split_once("://")?;
    let kind = match scheme {
        "http" => ProxyKind::Http,
        "socks5" => ProxyKind::Socks5,
        "socks5h" => ProxyKind::Socks5Hostname,
        _ => return None,
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (credentials, address) = match rest.rsplit_once('@') {
        None => (None, rest),
        Some((user, address)) => {
            let (user, password) = user.split_once(':').unwrap_or((user, ""));
            (Some((unescaped(user)?.into(), unescaped(password)?.into())), address)
        }
    };
    let (host, port) = host_and_port(address, Some(PROXY_PORT))?;
    Some(Proxy { kind, host, port, credentials, tls: None })
}

/// Decodes percent-encoding: `%41` is `A`.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// The secret that a caller must send for its options to count.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    /// 64 hexadecimal digits.
    pub(crate) fn new(random: [u8; 32]) -> Self {
        use std::fmt::Write as _;
        let mut digits = String::with_capacity(64);
        for byte in random {
            write!(digits, "{byte:02x}").expect("a String takes all");
        }
        Self(digits)
    }

    /// The token as the file holds it.
    pub(crate) fn digits(&self) -> &str {
        &self.0
    }

    /// Compares in constant time.
    pub(crate) fn is(&self, offered: &str) -> bool {
        let pairs = self.0.bytes().zip(offered.bytes());
        self.0.len() == offered.len() && pairs.fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(***)")
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn token() -> Token {
        Token::new([7; 32])
    }

    fn asked(values: &[&str]) -> Result<Control, &'static str> {
        let mut fields = HeaderMap::new();
        for value in values {
            let value = value.replace("TOKEN", &format!("token=\"{}\"", token().digits()));
            fields.append(CONTROL, HeaderValue::try_from(value).unwrap());
        }
        control(&fields, &token()).map_err(|refusal| refusal.word)
    }

    #[test]
    fn nobody_who_says_nothing_wants_anything() {
        assert_eq!(asked(&[]), Ok(Control::default()));
        assert_eq!(asked(&["TOKEN"]), Ok(Control::default()));
    }

    #[test]
    fn without_the_token_nothing_counts() {
        for value in [
            "verify=?0",
            "token=\"\", verify=?0",
            "token=\"0707\", verify=?0",
            "token=?1",
            "token=(\"a\")",
            "token",
        ] {
            assert_eq!(asked(&[value]), Err("token"), "{value}");
        }
    }

    #[test]
    fn a_field_that_somebody_else_has_sent_along_spoils_both() {
        assert_eq!(asked(&["TOKEN", "verify=?0"]), Err("token"));
        assert_eq!(asked(&["verify=?0", "TOKEN"]), Err("token"));
    }

    #[test]
    fn every_key_is_read() {
        let pin = format!("sha256//{}", BASE64_STANDARD.encode([1; 32]));
        let value = format!(
            "TOKEN, verify=?0, ca=\"/ca.pem\", cert=\"/c.pem\", key=%\"/k%c3%bc.pem\", pin=\"{pin};{pin}\", tls-min=1.3, \
             tls-max=1.3, http=1.1, ip=4, interface=\"127.0.0.1\", connect-to=\"[::1]:8443\", \
             proxy=\"http://us%40er:pass@Proxy.test:3128/\", connect-timeout=1500, timing"
        );
        let expected = Control {
            verify: false,
            ca: Some("/ca.pem".into()),
            certificate: Some(("/c.pem".into(), "/k\u{fc}.pem".into())),
            pins: Arc::from([[1; 32], [1; 32]]),
            tls_min: TlsVersion::V1_3,
            tls_max: TlsVersion::V1_3,
            http: HttpVersions::Http1,
            family: IpFamily::V4,
            interface: Some(IpAddr::from([127, 0, 0, 1])),
            connect_to: Some(("::1".into(), 8443)),
            proxy: Some(Proxy {
                kind: ProxyKind::Http,
                host: "proxy.test".into(),
                port: 3128,
                credentials: Some(("us@er".into(), "pass".into())),
                tls: None,
            }),
            connect_timeout: Some(Duration::from_millis(1500)),
            timing: true,
        };
        assert_eq!(asked(&[&value]), Ok(expected));
        assert_eq!(asked(&["TOKEN, http=2"]).unwrap().http, HttpVersions::Http2);
        let proxy = asked(&["TOKEN, proxy=\"socks5h://[::1]\""]).unwrap().proxy.unwrap();
        assert_eq!(
            (proxy.kind, &*proxy.host, proxy.port),
            (ProxyKind::Socks5Hostname, "::1", 1080)
        );
    }

    #[test]
    fn what_is_not_known_or_no_value_of_its_key_is_declined() {
        for wish in [
            "unknown=1",
            "verify=1",
            "verify=\"no\"",
            "ca=\"relative.pem\"",
            "cert=\"/c.pem\"",
            "key=\"/k.pem\"",
            "pin=\"md5//AAAA\"",
            "pin=\"sha256//AAAA\"",
            "pin=\"\"",
            "tls-min=1.1",
            "tls-max=1.4",
            "tls-min=1.3, tls-max=1.2",
            "http=1.0",
            "http=3",
            "ip=5",
            "interface=\"eth0\"",
            "connect-to=\"host\"",
            "connect-to=\":1\"",
            "connect-to=\"host:0\"",
            "connect-to=\"host:99999\"",
            "connect-to=\"ho st:1\"",
            "proxy=\"ftp://proxy\"",
            "proxy=\"https://proxy\"",
            "proxy=\"proxy\"",
            "proxy=\"http://u%zz@proxy\"",
            "connect-timeout=0",
            "connect-timeout=-1",
            "connect-timeout=1.5",
            "timing=(1 2)",
            "not a dictionary!",
        ] {
            assert_eq!(asked(&[&format!("TOKEN, {wish}")]), Err("control"), "{wish}");
        }
    }
}
