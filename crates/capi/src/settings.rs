//! Settings: defaults of an engine, options of a request. Keys and numbers are those of hearth.h.
//!
//! Invariants
//! - A text of keys is applied as a whole or not at all.
//! - A value that does not fit is an error that names the key; nothing is guessed.

mod keys;
mod text;

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use egress::{Cipher, HttpVersions, IpFamily, Network, Proxy, TlsVersion};

pub(crate) use keys::{Group, OPTIONS};

use crate::error::Refused;
use crate::prepare::Prepared;
use crate::unlock::Password;

/// The settings of a request. An engine's are the defaults of its requests.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) accept_compression: bool,
    /// Content-Encoding and Content-Length of a decompressed body stay among the fields, as with libcurl.
    pub(crate) keep_encoding: bool,
    /// The encodings in Accept-Encoding; none: all supported ones.
    pub(crate) encodings: Option<http::HeaderValue>,
    pub(crate) connect_timeout: Duration,
    pub(crate) cookies: Cookies,
    pub(crate) follow: Follow,
    pub(crate) insecure: bool,
    /// `None`: no limit.
    pub(crate) max_redirects: Option<u32>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) verbose: bool,
    pub(crate) idle_timeout: Option<Duration>,
    /// `None`: no limit.
    pub(crate) max_response_size: Option<u64>,
    pub(crate) retry: Retry,
    pub(crate) http: HttpVersions,
    pub(crate) family: IpFamily,
    pub(crate) tls_min: TlsVersion,
    pub(crate) tls_max: TlsVersion,
    /// None: all supported ones.
    pub(crate) ciphers: Option<Arc<[Cipher]>>,
    /// Bytes of bodies per second, in each direction.
    pub(crate) receive_rate: Option<NonZeroU64>,
    pub(crate) send_rate: Option<NonZeroU64>,
    pub(crate) private_addresses: bool,
    pub(crate) history: bool,
    pub(crate) expect_continue: bool,
    pub(crate) unrestricted_auth: bool,
    pub(crate) threaded_callback: bool,
    pub(crate) proxy: Option<Proxy>,
    /// Schemes in lower case. `None`: http and https, or of a mail smtp and smtps.
    pub(crate) safe_protocols: Option<Arc<[String]>>,
    pub(crate) unix_socket: Option<PathBuf>,
    pub(crate) resolve: Vec<Resolve>,
    pub(crate) interface: Option<IpAddr>,
    pub(crate) user_agent: Option<http::HeaderValue>,
    pub(crate) range: Option<http::HeaderValue>,
    pub(crate) pins: Arc<[[u8; 32]]>,
    pub(crate) auth: Auth,
    pub(crate) mail: MailSettings,
    pub(crate) tls: TlsFiles,
    pub(crate) proxy_tls: TlsFiles,
    pub(crate) engine: EngineSettings,
    /// The contents of the files above, read at the first request that needs them.
    pub(crate) prepared: OnceLock<Arc<Prepared>>,
}

/// Settings for mail alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct MailSettings {
    pub(crate) start_tls: StartTls,
    /// Whether passwords and tokens may be sent without TLS.
    pub(crate) plain_auth: bool,
    /// Whether the mail is sent to accepted recipients if others are refused.
    pub(crate) allow_fails: bool,
    pub(crate) dsn: mail::Dsn,
    /// The permitted mechanisms for logging in, in upper case; none: all supported ones.
    pub(crate) mechanisms: Vec<String>,
}

/// Whether TLS is started within a connection (RFC 3207).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) enum StartTls {
    /// Never.
    Never,
    /// If the server offers it.
    #[default]
    Offered,
    /// Always; otherwise nothing is sent.
    Required,
}

/// Settings that take effect when an engine starts.
#[derive(Clone, Debug)]
pub(crate) struct EngineSettings {
    pub(crate) connections_per_host: usize,
    pub(crate) h2_connections_per_host: usize,
    pub(crate) connections: usize,
    pub(crate) idle: Duration,
    pub(crate) dns: Duration,
    pub(crate) requests_per_host: usize,
    pub(crate) mail_connections_per_host: usize,
    pub(crate) deny: Vec<Network>,
}

/// The cookie jar of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cookies {
    /// None.
    None,
    /// The request object's own.
    Own,
    /// The engine's.
    Engine,
}

/// Selects the redirects to follow, and how.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Follow {
    /// None.
    No,
    /// The method stays, except for 303.
    AsWritten,
    /// POST becomes GET at 301 and 302, as browsers do.
    AsBrowsers,
    /// As browsers do, but only for the first answer.
    First,
}

/// When a request is retried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    pub(crate) most: u32,
    pub(crate) delay: Duration,
    pub(crate) longest: Duration,
    pub(crate) jitter: bool,
    pub(crate) after: bool,
    pub(crate) any_method: bool,
}

/// An address for a host and a port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Resolve {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) address: Arc<str>,
}

/// The credentials for the origin.
#[derive(Clone, Default)]
pub(crate) struct Auth {
    pub(crate) mode: AuthMode,
    pub(crate) user: String,
    pub(crate) secret: String,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auth")
            .field("mode", &self.mode)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// The authentication scheme.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum AuthMode {
    /// None.
    #[default]
    None,
    /// RFC 7617.
    Basic,
    /// RFC 7616.
    Digest,
    /// RFC 6750.
    Bearer,
}

/// Files of certificates and keys, read at the first request that needs them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsFiles {
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) certificate_der: bool,
    pub(crate) key: Option<PathBuf>,
    pub(crate) key_der: bool,
    /// The key's password.
    pub(crate) password: Option<Password>,
    pub(crate) authorities: Option<PathBuf>,
    pub(crate) authorities_folder: Option<PathBuf>,
    pub(crate) authorities_pem: Option<Arc<[u8]>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            accept_compression: true,
            keep_encoding: true,
            encodings: None,
            connect_timeout: Duration::from_secs(30),
            cookies: Cookies::None,
            follow: Follow::No,
            insecure: false,
            max_redirects: Some(5),
            timeout: Some(Duration::from_secs(30)),
            verbose: false,
            idle_timeout: None,
            max_response_size: Some(2_000_000),
            retry: Retry {
                most: 0,
                delay: Duration::from_millis(100),
                longest: Duration::from_secs(30),
                jitter: true,
                after: true,
                any_method: false,
            },
            http: HttpVersions::Negotiate,
            family: IpFamily::Both,
            tls_min: TlsVersion::V1_2,
            tls_max: TlsVersion::V1_3,
            ciphers: None,
            receive_rate: None,
            send_rate: None,
            private_addresses: true,
            history: false,
            expect_continue: false,
            unrestricted_auth: false,
            threaded_callback: true,
            proxy: None,
            safe_protocols: None,
            unix_socket: None,
            resolve: Vec::new(),
            interface: None,
            user_agent: Some(http::HeaderValue::from_static(concat!(
                "hearth/",
                env!("CARGO_PKG_VERSION")
            ))),
            range: None,
            pins: Arc::new([]),
            auth: Auth::default(),
            mail: MailSettings::default(),
            tls: TlsFiles::default(),
            proxy_tls: TlsFiles::default(),
            engine: EngineSettings {
                connections_per_host: 20,
                h2_connections_per_host: 6,
                connections: 1024,
                idle: Duration::from_mins(1),
                dns: Duration::from_secs(30),
                requests_per_host: 256,
                mail_connections_per_host: 5,
                deny: Vec::new(),
            },
            prepared: OnceLock::new(),
        }
    }
}

impl Settings {
    /// Applies a text of `key=value,key=value` of one group; `engine`: also keys that only an engine has.
    pub(crate) fn set_all(
        &mut self,
        group: Group,
        text: &str,
        engine: bool,
    ) -> Result<(), Refused> {
        let mut changed = self.clone();
        for (key, value) in text::pairs(text)? {
            let item = OPTIONS.iter().find(|item| item.group == group && item.key == key);
            let Some(item) = item else {
                return Err(Refused::invalid(format!(
                    "{key:?} is no key{}",
                    keys::hint(group, &key)
                )));
            };
            keys::may_have(item, engine)?;
            if matches!(item.set, keys::Set::Number(_)) {
                let number = value.parse::<i64>().map_err(|_not| {
                    Refused::invalid(format!("{key} wants a whole number, not {value:?}"))
                })?;
                changed.set_number(item.option, number, engine)?;
            } else {
                changed.set_text(item.option, &value, engine)?;
            }
        }
        *self = changed;
        Ok(())
    }
}
