//! The one table of settings. Flags, environment names, `hearth.toml`, help texts and docs/reference/config.md come from it.
//!
//! Invariants
//! - A setting's doc comment is its manual: first line for the short help, the rest for the long one and the reference.
//! - A default is written here and nowhere else; it is read like any other value, so it cannot be wrong in a way of its own.

use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use egress::Network;
use front_http::{
    AccessLogFormat, Cidr, OriginRule, RateLimit, RequestBuffering, TlsFiles, TrustedHeaders,
};
use front_lambda::emulator::Integration;
use pool::{ByteSize, Model};

use super::acme::{ChallengeName, Directory, Domain, KeyBytes, LocalName, Mailbox};
use super::applications::NamedApplication;
use super::apps::{AdapterUrl, Apps, LookupTarget, SubjectPrefix, WebhookTarget};
use super::connectors::Connectors;
use super::log_filter::LogFilter;
use super::processes::NamedProcess;
use super::reload::Written;
use super::rules::{ClientCertificates, FieldRules, PasswordRules, Redirects};
use super::traces::{CollectorFields, CollectorUrl, Share};
use super::value::{
    Account, Auto, BootFailure, Group, Handler, Hsts, Listen, LogFormat, OriginUrl, Pairs,
    PhpVersion, Preload, Token, UrlPath, Value, Wanted, WatchedFiles,
};
use super::websockets::Routes;
use super::{ConfigError, Sources};

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// `http.listen`.
    pub name: &'static str,
    /// The lines of its doc comment.
    pub doc: &'static [&'static str],
    /// `--listen`, without the dashes.
    pub flag: Option<&'static str>,
    /// Stands for the value in help texts.
    pub placeholder: &'static str,
    /// The flag may be given several times.
    pub repeats: bool,
    /// The value of the flag without an argument.
    pub alone: Option<&'static str>,
    /// The accepted values.
    pub expected: fn() -> String,
    /// The default.
    pub default: &'static str,
}

impl Key {
    /// `HEARTH_HTTP_LISTEN`.
    pub(crate) fn environment(&self) -> String {
        format!("HEARTH_{}", self.name.replace('.', "_").to_ascii_uppercase())
    }

    /// `http` and `listen`.
    pub(crate) fn section_and_key(&self) -> (&'static str, &'static str) {
        self.name.split_once('.').expect("the table joins section and key with a dot")
    }
}

/// A section of `hearth.toml`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section {
    /// `http`.
    pub name: &'static str,
    /// The lines of its doc comment.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "only the reference page tells about sections")
    )]
    pub doc: &'static [&'static str],
}

macro_rules! flag {
    () => {
        None
    };
    ($flag:literal) => {
        Some($flag)
    };
}

macro_rules! settings {
    ($(
        $(#[doc = $section_doc:literal])+
        $section:ident: $Section:ident {
            $($(#[doc = $doc:literal])+ $key:ident: $type:ty = $default:literal $(, flag $flag:literal)?;)+
        }
    )+) => {
        /// Everything that can be set, as types.
        #[derive(Clone, Debug)]
        pub(crate) struct Settings {
            $($(#[doc = $section_doc])+ pub $section: $Section,)+
            /// The applications beside the one at PATH, with their own settings; those have no further ones.
            pub applications: Vec<NamedApplication>,
            /// The commands that run beside the applications.
            pub processes: Vec<NamedProcess>,
            /// The written values, by which a reload finds changes.
            pub(super) written: Written,
        }

        $(
            $(#[doc = $section_doc])+
            #[derive(Clone, Debug)]
            pub(crate) struct $Section {
                $($(#[doc = $doc])+ pub $key: $type,)+
            }
        )+

        /// The sections, in the order of the manual.
        pub(crate) const SECTIONS: &[Section] =
            &[$(Section { name: stringify!($section), doc: &[$($section_doc),+] }),+];

        /// Every setting, in the order of the manual.
        pub(crate) const KEYS: &[Key] = &[$($(Key {
            name: concat!(stringify!($section), ".", stringify!($key)),
            doc: &[$($doc),+],
            flag: flag!($($flag)?),
            placeholder: <$type as Value>::PLACEHOLDER,
            repeats: <$type as Value>::REPEATS,
            alone: <$type as Value>::ALONE,
            expected: <$type as Value>::expected,
            default: $default,
        }),+),+];

        impl Settings {
            /// Reads every setting from its strongest source.
            pub(crate) fn read(sources: &Sources) -> Result<Self, ConfigError> {
                let mut keys = KEYS.iter();
                let mut next = || keys.next().expect("a row per field: both come from one table");
                Ok(Self {
                    $($section: $Section { $($key: sources.value(next())?,)+ },)+
                    applications: Vec::new(),
                    processes: Vec::new(),
                    written: Written::of(sources),
                })
            }

            /// Returns the errors of all settings.
            pub(super) fn wrong(sources: &Sources) -> Vec<ConfigError> {
                let mut keys = KEYS.iter();
                let mut next = || keys.next().expect("a row per field: both come from one table");
                let mut errors = Vec::new();
                $($(errors.extend(sources.value::<$type>(next()).err());)+)+
                errors
            }
        }
    };
}

settings! {
    /// The HTTP front: listeners, files and limits.
    http: Http {
        /// Where to listen; give it several times for several addresses.
        ///
        /// Port 0 lets the system choose; the ready line names the port. With certificates every TCP listener speaks HTTPS, except those
        /// written as `http://:80`.
        listen: Vec<Listen> = "127.0.0.1:8080", flag "listen";
        /// Certificate chain for TLS, a PEM file; several for several names, each with its key at the same place of `tls_key`.
        ///
        /// A client gets the certificate with the name it asks for, else the first. The files are read again when they change, and at a
        /// reload. An OCSP response (DER) in a file of the same name with `.ocsp` appended is stapled (docs/guide/tls.md).
        tls_cert: Option<Vec<PathBuf>> = "off", flag "tls-cert";
        /// Private key for TLS, a PEM file.
        tls_key: Option<Vec<PathBuf>> = "off", flag "tls-key";
        /// The authorities whose certificates clients must have (mutual TLS), a PEM file; read again at a reload (docs/guide/edge.md).
        ///
        /// PHP gets the client in `SSL_CLIENT_S_DN`, `SSL_CLIENT_FINGERPRINT` and others.
        client_ca: Option<PathBuf> = "off";
        /// The revocation lists of these authorities (CRL): a PEM file with one of each, or a DER file with one. Read again when the file changes.
        ///
        /// A client whose certificate is in a list is refused, and so are all of an authority whose list has expired.
        client_crl: Option<PathBuf> = "off";
        /// With `client_ca`: `require` refuses connections without a certificate, `optional` accepts them, and PHP sees `SSL_CLIENT_VERIFY` `NONE`.
        ///
        /// A certificate of another authority is refused in either case.
        client_certificates: ClientCertificates = "require";
        /// TLS for development: a certificate for `localhost`, 127.0.0.1, `::1` and every name below `localhost`, by this machine's own authority.
        ///
        /// The authority is created at first use, for local names and addresses only. `hearth tls trust` prints how to trust it in browsers.
        tls_local: Wanted = "off", flag "tls-local";
        /// Further names and addresses for `tls_local`: below `localhost`, `test`, `internal`, `local` or `home.arpa`, or private.
        tls_local_names: Vec<LocalName> = "", flag "tls-local-name";
        /// The folder of that authority. `auto`: `local` in systemd's `$STATE_DIRECTORY`, for root in /var/lib/hearth, else in `$XDG_DATA_HOME/hearth` or
        /// ~/.local/share/hearth.
        tls_local_ca: Auto<PathBuf> = "auto";
        /// HTTP/3 as well, on the UDP port of the same number, for every TCP listener that speaks HTTPS (docs/guide/http3.md).
        ///
        /// Answers over TCP then offer it (`Alt-Svc`). Not behind a load balancer that passes on TCP alone.
        http3: Wanted = "off", flag "http3";
        /// Beside listeners with TLS, unencrypted ones (`http://`) redirect every request to https (308).
        ///
        /// Challenges of ACME authorities are answered, and requests of trusted proxies that report TLS on their client's side.
        redirect_to_https: bool = "on";
        /// The port that `redirect_to_https` sends clients to. `auto`: that of the first listener with TLS.
        https_port: Auto<NonZeroU16> = "auto";
        /// `Strict-Transport-Security` for answers over TLS, unless the application sends one: browsers then use only https for the host, for the given time.
        hsts: Option<Hsts> = "off";
        /// The folder whose files are served. `auto`: `public` if the application has one, else its folder.
        document_root: Auto<PathBuf> = "auto", flag "document-root";
        /// The script for requests that match no file. `auto`: `index.php` in the document root.
        front_controller: Auto<PathBuf> = "auto", flag "front-controller";
        /// Serve existing files that are not PHP. `off`: everything goes to PHP.
        static_files: bool = "on";
        /// The largest request body; a larger one gets 413. PHP's own `post_max_size` applies too.
        body_limit: Option<ByteSize> = "128MiB";
        /// The largest request head, request line included; a larger one gets 431.
        header_limit: ByteSize = "64KiB";
        /// Most header fields in a request; more get 431.
        header_count: NonZeroUsize = "100";
        /// The longest request target; a longer one gets 414.
        uri_limit: ByteSize = "16KiB";
        /// Requests in flight on one HTTP/2 or HTTP/3 connection.
        http2_streams: NonZeroUsize = "128";
        /// The most connections that may be open at once; more wait in the system's queue.
        ///
        /// While a client waits there, idle connections and those without a whole request are closed, the longest idle first. A connection
        /// with a running request is not. The limit of open files may allow fewer; the log says so at the start.
        connection_limit: NonZeroUsize = "10000";
        /// The most connections of one client address while fewer than a sixteenth are free; an IPv6 /64 is one address.
        ///
        /// Trusted proxies and unix sockets are exempt. `auto`: half of `http.connection_limit`.
        connections_per_client: Auto<NonZeroUsize> = "auto";
        /// The time that a client may take to send a request head, from its first byte; then 408.
        header_timeout: Duration = "10s";
        /// The time that a connection may stay idle between two requests.
        keep_alive_timeout: Duration = "75s";
        /// The time that a client may pause while it sends a request body; then 408.
        body_timeout: Duration = "30s";
        /// Bytes per second of a request body that a client has to send, on average over twice `body_timeout`; a slower one gets 408.
        ///
        /// Only time in which the server waits for the client counts. 240 is the default of IIS and Kestrel, and far below a slow mobile
        /// network.
        body_min_rate: Option<ByteSize> = "240";
        /// Which request bodies are received whole before PHP gets their request: `all`, or `forms` only. Others are passed on as they arrive.
        ///
        /// A worker then never waits for a slow client, as behind nginx. Up to 256 KiB of a body are kept in memory, the rest in a
        /// temporary file (`buffer_dir`); without room the answer is 507. With `forms` a script can read a large `PUT` while it arrives,
        /// but its worker waits for the client: use it for trusted clients. PHP always reads a `POST` to its end before it runs a script.
        request_buffering: RequestBuffering = "all";
        /// The time that a client may accept no byte of the answer; then the connection is closed.
        write_timeout: Duration = "60s";
        /// Memory for bodies that wait for a slow client or a busy worker, of all requests and answers together. What exceeds it goes to temporary files.
        buffer_memory: ByteSize = "64MiB";
        /// Space for temporary files with bodies that wait for a slow client or a busy worker, of all requests and answers together.
        buffer_disk: ByteSize = "4GiB";
        /// The folder of those temporary files. They have no name, so none is left behind. `auto`: the system's (`$TMPDIR`, else /tmp).
        buffer_dir: Auto<PathBuf> = "auto";
        /// The most memory for one answer of PHP that waits for its client; the rest goes to a temporary file.
        ///
        /// PHP can go on with the next request when its script ends, however slowly the client reads. Output that PHP flushes is still sent
        /// at once. `0`: answers are not buffered, and a slow client holds a worker.
        answer_memory: ByteSize = "1MiB";
        /// The most bytes of one answer of PHP in a temporary file; a larger answer holds its worker until the client has read. `0`: no file.
        answer_file: ByteSize = "1GiB";
        /// The most workers that a client address (IPv6: a /64) may hold by not reading answers that PHP still makes. Of more, the longest-stalled answer is cut.
        ///
        /// An answer counts when bytes have waited for 3 seconds of which the client took none. `auto`: a quarter of the workers, at least
        /// one. `off`: any number, each for `write_timeout` at most.
        stalled_per_client: Auto<Option<NonZeroUsize>> = "auto";
        /// The time that a TLS handshake may take.
        tls_handshake_timeout: Duration = "10s";
        /// The most requests per client address that go to PHP, by path: `/login 5/m`, `/ 50/s 200`; more get 429 with `Retry-After` (docs/guide/edge.md).
        ///
        /// A rule is a path, requests per second (`s`), minute (`m`) or hour (`h`), and how many may come at once, else as many as in that time. It is
        /// for the path and all below, with a host before it for that host only; the most specific rule counts. Files are not counted. An IPv6 /64 is one
        /// address.
        rate_limits: Vec<RateLimit> = "";
        /// The paths that need a user and a password (HTTP Basic), each with a file of users as `htpasswd -B` writes it (docs/guide/edge.md).
        ///
        /// In `hearth.toml` they are a table: `[http.basic_auth]`, then `"/admin" = "admin.htpasswd"`. A path is for all below it, too, whether files, PHP or
        /// WebSockets; `"/admin/health" = "off"` exempts paths. PHP gets the user as `PHP_AUTH_USER` and `REMOTE_USER`.
        basic_auth: PasswordRules = "";
        /// Requests that are redirected: `/old` by its path, `/docs/*` with all below it, `www.example.com` as a whole host (docs/guide/edge.md).
        ///
        /// In `hearth.toml` they are a table: `[http.redirects]`, then `"/docs/*" = "/guide/* 301"` or `"www.example.com" = "https://example.com 301"`. The
        /// target keeps what `*` stands for, and the query. The status is 302 unless 301, 303, 307 or 308 follows.
        redirects: Redirects = "";
        /// Fields of answers by path, host or type: of files, of PHP, and of the server's own pages (docs/guide/edge.md).
        ///
        /// In `hearth.toml` they are a table: `[http.headers]`, then `X-Frame-Options = "DENY"`, `"-X-Powered-By" = ""` to remove, `"+Vary" = "Cookie"` to add,
        /// `"?Cache-Control" = "no-store"` to set if missing. A path or type before the field restricts it: `"/assets ?Cache-Control"`, `"text/html X-Robots-Tag"`.
        headers: FieldRules = "";
        /// Proxies that are trusted about their clients, as far as `http.trusted_headers` allows (docs/guide/proxies.md).
        ///
        /// Peers on a Unix socket are trusted, too.
        trusted_proxies: Vec<Cidr> = "";
        /// The header fields that are used from trusted proxies: name those that the proxy sets itself, for every request.
        ///
        /// A proxy passes on fields of its client that it does not set. So Hearth removes unnamed `Forwarded` and `X-Forwarded-*` fields from
        /// requests through trusted proxies. It answers 400 if `Forwarded` contradicts `X-Forwarded-*`.
        trusted_headers: TrustedHeaders = "x-forwarded-for, x-forwarded-proto";
        /// Choose among `[applications]` by the host that a trusted proxy forwards (`x-forwarded-host`, or `host` in `forwarded`), in place of the Host field.
        route_by_forwarded_host: bool = "off";
        /// Expect a PROXY protocol header (version 1 or 2) at the start of each connection, and refuse connections without.
        ///
        /// Only for listeners that only the balancer can reach.
        proxy_protocol: bool = "off";
        /// Keep answers of PHP that say for how long they are valid, and send them again without PHP (docs/guide/cache.md).
        ///
        /// Only what `Cache-Control` or `Expires` of an answer allows is stored, by the rules of a cache that many users share (RFC 9111).
        /// Requests with cookies, and answers that set one, always go to PHP.
        cache: bool = "off";
        /// The memory for stored answers.
        cache_memory: ByteSize = "64MiB";
        /// The largest answer that is stored; at most a quarter of `cache_memory`.
        cache_answer: ByteSize = "1MiB";
        /// A folder for stored answers that memory has no room for: `/var/cache/hearth`. They are in a file without a name, which ends with the server.
        cache_disk: Option<PathBuf> = "off";
        /// The space for stored answers on disk. Each takes about 0.5 KB of memory beside, and at least 4 KB on disk.
        cache_disk_size: ByteSize = "1GiB";
        /// Names of cookies that do not tell users apart, such as those of analytics: requests with no others may be answered from the cache.
        ///
        /// A name that ends with `*` stands for all that begin as it does: `_ga*`.
        cache_ignored_cookies: Vec<String> = "";
        /// Send `Cache-Status` (RFC 9211) with each answer while the cache is on: whether it was stored, and why not.
        cache_status: bool = "on";
        /// Compress the application's answers with br, zstd or gzip if the client accepts them.
        compression: bool = "on";
        /// Serve `app.js.br`, `app.js.zst` or `app.js.gz` instead of `app.js` to clients that accept them.
        precompressed: bool = "on";
        /// `Cache-Control` of static files, e.g. `public, max-age=3600`; `off` sends none.
        static_cache_control: Option<String> = "off";
        /// Send `X-Request-Id` with each answer.
        request_id: bool = "on";
        /// Send `Server: Hearth` with each answer. A `Server` field that PHP sends stays unchanged either way.
        server_header: bool = "on";
        /// Folders whose files PHP may send by `X-Sendfile` (absolute path) or `X-Accel-Redirect` (path under the name).
        ///
        /// In `hearth.toml` they are a table: `[http.sendfile]`, then `"/protected/" = "/srv/files"`.
        sendfile: Pairs = "";
        /// Log one line per request, in this format.
        access_log: Option<AccessLogFormat> = "off", flag "access-log";
        /// The file that the access log is appended to. `auto`: stdout.
        access_log_path: Auto<PathBuf> = "auto";
    }

    /// A certificate that an authority issues automatically (ACME, RFC 8555), such as Let's Encrypt (docs/guide/tls.md).
    acme: AcmeSettings {
        /// The names of the certificate. It is ordered when the server starts, saved, and renewed when a third of its lifetime is left.
        ///
        /// Each must resolve to this server: the authority checks this on port 443 or 80. Other certificates (`http.tls_cert`) may be used as well.
        domains: Vec<Domain> = "", flag "acme";
        /// You have read the authority's terms of service, and accept them. Without that no certificate is ordered.
        accept_terms: Wanted = "off", flag "acme-accept-terms";
        /// Mail addresses that the authority may write to.
        contact: Vec<Mailbox> = "", flag "acme-contact";
        /// The authority: `letsencrypt`, `letsencrypt-staging` (for tests: browsers do not trust its certificates), or the https URL of another's directory.
        directory: Directory = "letsencrypt", flag "acme-directory";
        /// The authorities that verify the directory's own certificate, a PEM file. `auto`: the system's.
        directory_ca: Auto<PathBuf> = "auto";
        /// The folder for account, keys and certificates; servers that share it share the certificate.
        ///
        /// `auto`: `acme` in systemd's `$STATE_DIRECTORY`, for root in /var/lib/hearth, else in `$XDG_DATA_HOME/hearth` or ~/.local/share/hearth.
        cache: Auto<PathBuf> = "auto";
        /// The challenges that prove control of the names: `tls-alpn-01` (port 443) or `http-01` (port 80). `auto`: those that have listeners, in turn.
        challenge: Auto<ChallengeName> = "auto";
        /// The id of the key that links the order to your account at the authority (external account binding).
        external_key_id: Option<String> = "off";
        /// That key, in base64url as the authority shows it.
        external_key: Option<KeyBytes> = "off";
    }

    /// PHP: version, workers, execution model and time limits.
    php: Php {
        /// The PHP version, of those that Hearth was built for. `auto`: the highest.
        version: Auto<PhpVersion> = "auto", flag "php";
        /// The execution model: `snapshot` (booted once, restored after each answer), `request` (as under php-fpm), and others.
        ///
        /// By letter: A is `worker` (one booted loop, shared state), B `spawn` (a process for each request), and C `prespawn` (a process booted
        /// before its request arrives). D is `fork` (a fork of a booted process), E `fpm` (php-fpm), F `builtin` (`php -S`), and G `request`
        /// (PHP starts and ends with the request). H is `cgi` (php-cgi), and S `snapshot` (booted once; memory and descriptors are restored
        /// after each answer). docs/guide/models.md compares them. `auto`: `snapshot` for Laravel, Symfony and worker scripts, else `request`.
        /// If `snapshot` cannot run, the cheaper of `fork` and `request` replaces it, measured at the start. A warning gives the reason; it
        /// is never `worker`.
        model: Auto<Model> = "auto", flag "model";
        /// The worker script of the models that run one (`worker`, `prespawn`, `fork`, `snapshot`). `auto`: the application's own, else
        /// Hearth's for Laravel or Symfony.
        worker_script: Auto<PathBuf> = "auto", flag "worker-script";
        /// The file after whose inclusion the front controller waits for its request: what it has done until then is done once, ahead of all requests. `off`: it waits where it calls `hearth_await_request()`.
        ///
        /// A path starts at the application's folder. For applications that are to stay as they are: no line of them changes (docs/guide/await.md). Models `snapshot`, `fork` and
        /// `prespawn`; `auto` is `snapshot` then. Other scripts of the application run as in `request`, or wait by themselves (`php.entries`).
        await_after: Option<PathBuf> = "off";
        /// The scripts beside the front controller that wait for their requests, each in workers of its own. `auto`: those whose text calls `hearth_await_request()`.
        ///
        /// Paths start at the document root; `*` stands for any text without a slash, as in `api/*.php`. A script is booted when its first request comes, at most 16 of them; its requests run as in `request` until
        /// it waits, and if it never does. All share `workers`. For a front controller that waits; `off`: all other scripts run as in `request`.
        entries: Auto<Option<Vec<String>>> = "auto";
        /// The number of requests that PHP answers at once, each in its own process. `auto`: one per processor.
        ///
        /// The models `spawn`, `prespawn` and `fork` keep as many further processes that wait for the next requests.
        workers: Auto<NonZeroUsize> = "auto", flag "workers";
        /// Start more workers while requests wait and all workers are busy, up to this many. `off`: the number is always `workers`.
        ///
        /// Then `workers` is the minimum. This is for models with Hearth's own workers; `fpm`, `builtin` and `cgi` have a fixed number.
        workers_max: Option<NonZeroUsize> = "off", flag "workers-max";
        /// A worker above `workers` ends when that many were not needed for so long.
        workers_idle_timeout: Duration = "30s";
        /// The most workers that start at once because requests wait. First one starts; while that is not enough two, four and so on.
        ///
        /// The next batch starts when all that have started are busy.
        workers_burst: NonZeroUsize = "32";
        /// The most requests that may wait for a worker; one more gets 503 at once.
        backlog: usize = "1024";
        /// The time that a request may wait for a worker; then 503.
        backlog_timeout: Duration = "30s";
        /// The time that requests may wait for a worker under lasting load. If all requests dispatched within that time had waited longer, the server is overloaded. Then requests that would wait as long get 503 at once, until the wait shortens. `off`: until the backlog is full.
        ///
        /// Bursts may wait. Slow requests allow longer waits: four times the duration of one, if that is more. If there is no room for all,
        /// the newest request of the client with most of them waiting is refused first (docs/guide/scaling.md).
        backlog_target: Option<Duration> = "3s";
        /// The time that one request may take, without its wait; then 504, and its worker is killed.
        request_timeout: Option<Duration> = "60s", flag "request-timeout";
        /// The time that PHP may take to start, and a worker script to boot (its warm-up included).
        boot_timeout: Duration = "30s";
        /// What the server does when an application does not boot: `retry`, `fallback` or `exit`.
        ///
        /// `retry`: the front controller answers in the model `request`, and the boot is tried again after 1 s, 2 s, 4 s and so on, at
        /// most 1 min apart. Once it succeeds and answers, its model takes over; no request is lost. `fallback`: the same without further
        /// attempts, until a reload. `exit`: the server ends with status 1, and a service manager starts it again. `auto`: `retry` if
        /// neither `php.model` nor `php.worker_script` is set, else `exit`: a model that you have named is not replaced silently. An
        /// application without a front controller, or one that was served in another model before, has no fallback. A release that does
        /// not boot at a reload never replaces one that has booted.
        boot_failure: Auto<BootFailure> = "auto";
        /// The path that a new release must answer with a status below 400 before a reload or an upgrade switches to it. Else the old one stays.
        ///
        /// It is requested once, like the warm-up. `auto`: `/`, where any answer but 500 counts. `off`: a completed boot is enough.
        reload_check: Auto<Option<UrlPath>> = "auto";
        /// Reload when a file changes that the boot has included, also in production: `boot`. For applications that update themselves, and for Composer in place.
        ///
        /// A changed release takes over as at a reload: only if it boots and answers. For the models that keep a boot (`worker`,
        /// `prespawn`, `fork`, `snapshot`); in the others each request reads the files. Where the kernel has no room for watches
        /// (`fs.inotify.max_user_watches`) the files are looked at every five seconds.
        watch: Option<WatchedFiles> = "off";
        /// Preload the code that requests include (`opcache.preload`), in the model `request`: `learned`.
        ///
        /// At each start and reload Hearth asks OPcache which files were included, and preloads those of them whose early declaration code
        /// cannot tell, by strict rules: classes only where Composer loads all of them. It compares answers to the paths of `php.warm_up` with
        /// and without preloading, and switches it off where they differ. A preloaded file that changes is a reload. `hearth check` and `hearth
        /// status` say how many files it is, and why not (docs/guide/preloading.md). Not with `--dev`.
        preload: Option<Preload> = "off";
        /// URL paths that the booted application answers before the first request, so that code and caches are warm. For the models `fork` and `snapshot`.
        ///
        /// Each is requested three times, or once if a throwaway copy answers (always behind `hearth_await_request()`), with GET, the host
        /// `localhost` and `$_SERVER['HEARTH_WARM_UP']`; the answers are discarded. `auto`: `/`, in the booted application itself if Hearth's
        /// own script for Laravel or Symfony runs, which cleans up after a request. With other worker scripts a throwaway copy answers and
        /// reports the classes it has loaded. Less is warm then, but no state of a request stays in memory. Paths that you name are always
        /// requested in place, which makes such scripts about twice as fast: name them if they leave no state.
        warm_up: Auto<Option<Vec<UrlPath>>> = "auto";
        /// Replace a worker after this many requests, up to a tenth more at random so that not all go at once. For resident workers:
        /// the models `worker`, `request` and `snapshot`.
        max_requests: Option<NonZeroU64> = "off", flag "max-requests";
        /// Replace a worker whose resident memory is above this after a request. For resident workers, as `max_requests`.
        memory_limit: Option<ByteSize> = "off";
        /// The share of restores after which a worker compares all its memory with the snapshot, such as `0.0001`. For the model `snapshot`. `0`: none.
        ///
        /// Each comparison takes about a millisecond; one in 10,000 costs less than 1 % of the processor time. They are counted in
        /// `/metrics` (`hearth_restores_verified_total`, `hearth_restores_differing_total`), in `/status` and on the dashboard. At a difference the
        /// worker is replaced before it takes another request, and an error in the log names the page, its mapping and the request
        /// (docs/guide/isolation.md).
        verify_restores: Share = "0";
        /// Settings for PHP: they override php.ini, and `ini_set()` overrides them. In `hearth.toml` they are a table `[php.ini]`.
        ini: Pairs = "", flag "ini";
        /// Environment variables for PHP, beside those of Hearth itself. In `hearth.toml` they are a table `[php.env]`.
        env: Pairs = "";
        /// The user that PHP runs as, if it is another than the server's: workers, and php-fpm, `php -S` and php-cgi in the models of their names.
        ///
        /// PHP then reads neither the server's settings nor its memory, and cannot send it commands. Hearth must be started as root, or with
        /// three capabilities (docs/guide/security.md). Programs that PHP starts gain no privileges: `sudo` does nothing. Each of
        /// `[applications]` may have a user of its own.
        user: Option<Account> = "off", flag "php-user";
        /// The group of that user, whose files the server may read, too. `auto`: the user's own.
        group: Auto<Group> = "auto", flag "php-group";
        /// The worker program. `auto`: `hearth-worker-<version>` beside the program `hearth` or in `../lib/hearth`.
        worker_program: Auto<PathBuf> = "auto";
        /// The program of `hearth php` and of the model `builtin`. `auto`: `php<version>`, else `php`, found through PATH.
        cli: Auto<PathBuf> = "auto";
    }

    /// Limits of PHP's processes that the kernel enforces, whatever their code does (docs/guide/security.md).
    sandbox: Sandbox {
        /// Confine PHP: no privileges beyond its user's, no access to other processes' memory, no signals to processes that are not PHP's. System calls that administer the machine are refused, and so are `sudo` and a `sendmail` that changes its group. Workers are isolated from each other, too.
        ///
        /// Programs that PHP starts are confined with it. Linux 6.12 has everything that this needs; the log says at the start what an
        /// older one lacks.
        enabled: Wanted = "off", flag "sandbox";
        /// Files and folders that PHP may read, beside the system's (/usr, /lib, /etc, /proc, /dev), the application, and those it may write. Empty: all that its user may.
        ///
        /// Naming any enables the sandbox. Each must exist when PHP starts.
        readable: Vec<PathBuf> = "";
        /// Files and folders that PHP may write. Empty: all that its user may.
        ///
        /// Naming any enables the sandbox. Each must exist when PHP starts: `storage` and `bootstrap/cache` for Laravel, `var` for
        /// Symfony, and the folders for uploads and sessions (`/tmp`, `/var/lib/php/sessions`).
        writable: Vec<PathBuf> = "";
    }

    /// Databases in the model `snapshot`: connections that a worker opens when it starts stay open while it is restored after each request
    /// (docs/guide/databases.md).
    databases: Databases {
        /// Keep connections to MySQL, MariaDB, PostgreSQL, Redis and Valkey that are opened in `hearth_on_worker_start()`. Hearth's own scripts open
        /// the default ones of Laravel and Symfony there.
        ///
        /// Encrypted ones cannot be kept. Each worker has its own: as many workers, as many connections on the server.
        keep: bool = "on";
        /// The time that a kept connection may be idle before it is checked.
        max_idle: Option<Duration> = "30s";
        /// The time that a kept connection may live, up to a tenth less at random; then its worker is replaced. Moved servers and changed credentials are noticed after this time at the latest.
        max_lifetime: Option<Duration> = "1h";
        /// The time that a server may take to reset its session after a request; then the worker is replaced.
        reset_timeout: Duration = "1s";
        /// The time that a starting worker waits for a silent server. Then it serves without the connection, and one worker at a time tries again, after pauses that grow to 40 s.
        connect_timeout: Duration = "5s";
        /// Servers behind TLS or with few logins: PHP connects to a unix socket without TLS, and the connector to the server. In `hearth.toml` they are tables `[databases.connectors.NAME]`, with the keys listed below.
        ///
        /// In `hearth serve` only. The socket is for the server's user and PHP's, which needs no password: the connector logs in as the user
        /// of its URL (docs/guide/databases.md).
        connectors: Connectors = "";
    }

    /// The egress broker: outgoing HTTP calls of PHP, over connections that outlive requests and processes (docs/guide/egress.md).
    ///
    /// `hearth serve` has one inside; `hearth egress` is one alone, for php-fpm, cron and the command line.
    egress: Egress {
        /// Run a broker in `hearth serve`. PHP finds it by `HEARTH_EGRESS`; without one every call is sent directly.
        enabled: bool = "on";
        /// The broker's socket. `egress.token` is written beside it, so there is one broker per folder.
        ///
        /// `auto`: `egress.sock` in the server's private folder (`server.run_dir`); alone /run/hearth/egress.sock.
        socket: Auto<PathBuf> = "auto", flag "socket";
        /// The trusted authorities, a PEM file. `auto`: the system's.
        ca: Auto<PathBuf> = "auto", flag "ca";
        /// The group that may connect to the socket, by name or number. `auto`: the broker's own.
        group: Auto<Group> = "auto", flag "group";
        /// Users who may call, by name or number, beside the broker's own and root. Each has separate connections.
        allow_users: Vec<Account> = "", flag "allow-user";
        /// Networks that the broker never calls, checked after names are resolved; nor does it call this server's own admin address. A process with access to them calls directly.
        deny: Vec<Network> = "169.254.0.0/16, fe80::/10";
        /// Origins that a connection is opened to at start, such as `https://api.example.com`.
        ///
        /// Those of the last run are remembered in `egress.origins` beside the socket.
        prewarm: Vec<OriginUrl> = "";
        /// Calls at once; a further one is declined, and is made directly.
        callers: NonZeroUsize = "4096";
        /// HTTP/1.1 connections to one origin, at most.
        connections: NonZeroUsize = "20";
        /// HTTP/2 connections to one origin, at most; usually there is one.
        http2_connections: NonZeroUsize = "12";
        /// The time that a call may wait for a connection to become free; then it is declined, and made directly.
        queue_timeout: Duration = "1s";
        /// The time that connecting may take, for calls that set none.
        connect_timeout: Duration = "30s";
        /// The time that an unused connection is kept.
        idle_timeout: Duration = "60s";
        /// The time that a connection is used at most.
        connection_age: Duration = "5m";
    }

    /// Realtime: channels that browsers subscribe to, in the Pusher protocol (docs/guide/realtime.md).
    ///
    /// `hearth serve` has it on the application's port; `hearth channels` serves channels only.
    realtime: Realtime {
        /// Serve channels in `hearth serve`. `auto`: if there is an application for them.
        ///
        /// It may be one of `realtime.apps`, any that `realtime.lookup` finds, or that of a Laravel `.env`. There `BROADCAST_CONNECTION` (or
        /// `BROADCAST_DRIVER`) must be `reverb`, `hearth`, or `pusher` with a `PUSHER_HOST`. Its keys are `REVERB_APP_ID`, `_KEY` and
        /// `_SECRET`, or `PUSHER_APP_ID` and so on.
        enabled: Auto<bool> = "auto";
        /// Applications: their id, key and secret. In `hearth.toml` they are tables `[realtime.apps.ID]`, with the keys listed below.
        ///
        /// `hearth_publish()` publishes to the first one; with none, the one of `.env`. A table `[realtime.apps."*"]` applies to all.
        apps: Apps = "", flag "app";
        /// The place to look up applications that are not named here: `php:/path` for a path of the application served here, or a URL.
        ///
        /// It is a GET with `?key=` (a client connects) or `?id=` (a call of the HTTP API) and `Authorization: Bearer` with the token. The
        /// answer is JSON with `id`, `key`, `secret` and any other key of an application's table, or `null` for none
        /// (docs/guide/realtime.md).
        lookup: Option<LookupTarget> = "off", flag "lookup";
        /// The token that calls to `realtime.lookup` carry. A URL needs one. `auto`: created at each start, and passed to PHP in its environment.
        lookup_token: Auto<Token> = "auto";
        /// The time that an answer is valid. Applications in use are then looked up again in the background. Sockets of changed applications follow the new answer; those of removed applications are closed with 4001.
        lookup_age: Duration = "1m";
        /// The time that an answer without an application is valid.
        lookup_absence_age: Duration = "10s";
        /// The time that an answer may take. Clients are then closed with 4100, so that they reconnect after a while; calls get 503.
        lookup_timeout: Duration = "5s";
        /// Targets of webhooks about channels and members, for applications that name none of their own.
        webhook: Vec<WebhookTarget> = "", flag "webhook";
        /// The folder where webhooks are kept until they are delivered, across restarts too; each server needs its own. `off`: in memory only.
        /// `auto`: `webhooks` in `server.run_dir`, where that is set.
        webhook_spool: Auto<Option<PathBuf>> = "auto";
        /// The service through which nodes with the same applications share channels.
        ///
        /// User and password stand before the first host, for all of them. With sentinels they are for Redis itself; `?sentinel_user=` and
        /// `?sentinel_password=` after the service are for the sentinels. A token for NATS stands in the user's place.
        adapter: AdapterUrl = "memory", flag "adapter";
        /// The prefix that nodes of one installation share: they ignore nodes with another prefix at the same Redis or NATS.
        adapter_prefix: SubjectPrefix = "hearth";
        /// A PEM file with the certificates of authorities, besides the system's, that verify the adapter's servers (`rediss://`, `tls://`).
        adapter_ca: Option<PathBuf> = "off";
        /// The bytes of events that the adapter's broker keeps for all nodes, so that clients resume on any of them. `off`: each node keeps its own history.
        ///
        /// Events of channels with history then go through a stream of Redis or NATS, which gives them one order on all nodes.
        history_log: Option<ByteSize> = "64MiB";
        /// The time that a publisher waits for the broker to store an event of a channel with history; afterwards the HTTP API answers 503. `0s`: it does not wait, and events queue until the broker is back.
        history_wait: Duration = "5s";
        /// Messages of at least this size are compressed (permessage-deflate) for clients that offer it, once for all of them. `off`: none.
        ///
        /// It saves bytes on the network and costs processor time and some memory for each client: worth it for messages of several kilobytes.
        deflate: Option<ByteSize> = "off";
        /// Event loops, each a thread with its own listener and sockets. `auto`: one per processor.
        threads: Auto<NonZeroUsize> = "auto";
        /// The longest time over which a stopping server spreads closing all sockets, so that clients do not reconnect at once.
        ///
        /// Each event loop closes 50 a second or more, so a few do not take as long. A client that does not answer the close within 2 s is
        /// cut.
        drain: Duration = "5s";
    }

    /// WebSockets that the application handles itself: connect, message and close are requests to it (docs/guide/websockets.md).
    websockets: Websockets {
        /// The paths of WebSockets, and where their events go: `"/chat"` alone, or a table `[websockets.routes]` with lines such as `"/chat" = "/ws.php"`.
        ///
        /// `/rooms/*` stands for every path below `/rooms/`. Without a handler, events go to the path of the connection.
        routes: Routes = "", flag "websocket";
        /// The pages that may connect: `same` is the host of the request, `*` every page.
        ///
        /// Browsers send cookies with the WebSockets of any page, so `*` is for WebSockets that ask for another proof. Clients that are no
        /// browsers send no origin, and may connect.
        origins: Vec<OriginRule> = "same";
        /// The most connections of an application; more get 503. They count for `http.connection_limit`, too.
        connection_limit: NonZeroUsize = "10000";
        /// The most connections of one client address, an IPv6 /64 is one; more get 429. Those of trusted proxies that name no client are exempt.
        connections_per_client: NonZeroUsize = "1000";
        /// The largest message of a client; a larger one ends the connection (1009).
        message_limit: ByteSize = "128KiB";
        /// The most messages of one connection in a second; more end it (1008).
        message_rate: Option<NonZeroUsize> = "off";
        /// Memory for the messages that wait for one client. A client that reads too slowly for it loses its connection (1013).
        queue: ByteSize = "1MiB";
        /// The time that a client may be silent before it gets a ping. `0s`: no pings, and a client that vanishes unnoticed stays until `idle_timeout`.
        ping_interval: Duration = "30s";
        /// The time that a client may take to answer a ping; then its connection ends.
        pong_timeout: Duration = "20s";
        /// The time that a connection may have no messages, in either direction; then it ends (1001).
        idle_timeout: Option<Duration> = "off";
        /// Compress messages of at least this size (permessage-deflate), for clients that offer it.
        deflate: Option<ByteSize> = "off";
    }

    /// A Mercure hub at `/.well-known/mercure`, in `hearth serve` and `hearth channels` (docs/guide/mercure.md).
    ///
    /// Updates go through `realtime.adapter` to all nodes.
    mercure: Mercure {
        /// Serve the hub. It needs a key for publishers, and one for subscribers unless `anonymous` is on.
        enabled: bool = "off";
        /// The secret that verifies tokens of publishers.
        publisher_key: Option<Token> = "off";
        /// A file with that secret, or with a public key in PEM.
        publisher_key_file: Option<PathBuf> = "off";
        /// The algorithm of these tokens: `HS256` and so on, `RS256`, `PS256`, `ES256`, `EdDSA`.
        publisher_algorithm: String = "HS256";
        /// The secret that verifies tokens of subscribers.
        subscriber_key: Option<Token> = "off";
        /// A file with that secret, or with a public key in PEM.
        subscriber_key_file: Option<PathBuf> = "off";
        /// The algorithm of these tokens.
        subscriber_algorithm: String = "HS256";
        /// Subscribers need no token for public updates.
        anonymous: bool = "off";
        /// The cookie in which browsers send a token.
        cookie: String = "mercureAuthorization";
        /// Origins of pages that may publish with a cookie. `*`: all.
        publish_origins: Vec<String> = "";
        /// Origins of other pages that may use the hub. `*`: all.
        cors_origins: Vec<String> = "";
        /// Publish an update for each subscription that begins or ends, on any node, and serve the subscription API.
        subscriptions: bool = "off";
        /// The interval of comments on a silent stream. `0s`: none.
        heartbeat: Duration = "40s";
        /// The most subscribers; more get 503. They count for `http.connection_limit`, too.
        connection_limit: NonZeroUsize = "10000";
        /// The updates that may wait for one subscriber; with more it is disconnected, and resumes when it comes back.
        queue: NonZeroUsize = "1000";
        /// The updates that the hub keeps for subscribers that come back.
        history_events: NonZeroUsize = "10000";
        /// The memory for them; with more, the oldest are removed.
        history_memory: ByteSize = "64MiB";
        /// The time that it keeps them.
        history_age: Duration = "5m";
    }

    /// The AWS Lambda front: `hearth lambda` (docs/guide/lambda.md).
    lambda: Lambda {
        /// The kind of program that answers events. `http` is the application, for events that are a gateway's requests. `function` is a handler that gets every event unchanged. `console` is a framework's console, for events that are commands.
        ///
        /// `auto`: `artisan`, `bin/console` and other PHP programs without `.php` are a console. A script that returns something at its top
        /// level, other than an `index.php`, is a function. All else is an HTTP application.
        handler: Auto<Handler> = "auto", flag "handler";
        /// The number of invocations that run at once, each with its own worker. `auto`: `AWS_LAMBDA_MAX_CONCURRENCY`, else one.
        concurrency: Auto<NonZeroUsize> = "auto";
        /// Send answers as PHP writes them (response streaming). For Function URLs with `RESPONSE_STREAM`, and for invokers that use it.
        ///
        /// A function cannot know how it was invoked: with an invoker that waits for the whole answer, its head arrives in the body.
        streaming: bool = "off", flag "streaming";
        /// The time before its deadline at which an invocation's worker is stopped, so that the error can still be reported.
        deadline_margin: Duration = "500ms";
        /// The application sees the stage of an API Gateway at the beginning of its paths (`/prod/users`, `SCRIPT_NAME` `/prod/index.php`).
        ///
        /// `off`: it sees `/users`, and `X-Forwarded-Prefix` is `/prod`.
        stage_prefix: bool = "off";
        /// Register as an extension without events: then Lambda sends TERM before it ends an environment. `auto`: not on Managed Instances,
        /// which send it anyway.
        extension: Auto<bool> = "auto";
        /// The time that the Runtime API may take to accept an answer, or a piece of one; then the invocation is given up.
        api_timeout: Duration = "30s";
    }

    /// The emulator of AWS Lambda: `hearth lambda --emulate ADDR`. None of it is read on AWS.
    emulator: Emulator {
        /// The kind of event that HTTP requests to the emulator become. It is that of a Function URL, of API Gateway (REST API: `apigw-v1`, HTTP API: `apigw-v2`), or of an Application Load Balancer, with single or multi-value headers.
        integration: Integration = "function-url", flag "as";
        /// The time that one invocation may take. `AWS_LAMBDA_FUNCTION_TIMEOUT` (seconds) sets it, too.
        timeout: Duration = "300s", flag "timeout";
        /// The memory that the function appears to have, in MB. `AWS_LAMBDA_FUNCTION_MEMORY_SIZE` sets it, too.
        memory_size: NonZeroUsize = "3008", flag "memory";
        /// The most invocations that may wait while others run; AWS would start another environment for them. A further one is throttled (429).
        backlog: usize = "100";
        /// Names of extensions that run as separate programs beside the function: those may ask for SHUTDOWN.
        external_extensions: Vec<String> = "";
    }

    /// Logging, on stderr.
    log: Log {
        /// The least level that is logged; a filter sets it for single parts of the program.
        level: LogFilter = "info", flag "log-level";
        /// The format of log lines: `text` or `json`. `auto`: text on a terminal, else JSON.
        format: Auto<LogFormat> = "auto", flag "log-format";
        /// Log requests that PHP works on for longer than this (`slow request`), with the functions and lines where PHP is. They go on.
        ///
        /// Each is logged once, and shown on the dashboard and in `/status`. PHP's position is read from outside, and costs the request
        /// nothing; the models `fpm`, `builtin` and `cgi` are logged without it.
        slow_requests: Option<Duration> = "5s", flag "slow";
    }

    /// Traces: a span for each request, for what PHP does of it and for each outgoing call, sent to a collector of OpenTelemetry (docs/guide/traces.md).
    ///
    /// OpenTelemetry's own variables (`OTEL_EXPORTER_OTLP_ENDPOINT` and so on) are understood, too. Hearth's variables override them, and they override files.
    traces: Traces {
        /// The collector of traces, which accepts OTLP over HTTP. Without a path it is `/v1/traces` there. `off`: nothing is traced.
        endpoint: Option<CollectorUrl> = "off", flag "traces";
        /// Header fields for the collector, such as a key. In `hearth.toml` they are a table `[traces.headers]`.
        headers: CollectorFields = "";
        /// The share of requests that are traced, among those that start a trace.
        sample: Share = "1";
        /// A request that is already part of a trace (`traceparent`) is traced if its sender's part is, regardless of `sample`.
        ///
        /// So any client can get its requests traced. `off`: `sample` decides for them, too.
        follow_parent: bool = "on";
        /// The name of the service. `auto`: the name of the application's folder, on Lambda that of the function.
        service_name: Auto<String> = "auto";
        /// Further attributes of the service, such as `deployment.environment.name`. In `hearth.toml` they are a table `[traces.resource]`.
        resource: Pairs = "";
        /// The authorities that verify the collector's certificate, a PEM file. `auto`: the system's.
        ca: Auto<PathBuf> = "auto";
        /// The time that the collector may take to answer. Rejected spans are sent again for a while, and then dropped and counted.
        timeout: Duration = "10s";
        /// Compress what is sent.
        gzip: bool = "off";
    }

    /// The admin address: the dashboard `/`, `/metrics`, `/status`, `/up` (docs/guide/seeing.md).
    admin: Admin {
        /// The admin address. Addresses other than loopback need `admin.token`.
        listen: Option<SocketAddr> = "off", flag "admin";
        /// The secret for all but `/up`: sent as `Authorization: Bearer`, or as the password in a browser's dialog, with any name. Without it the address answers this machine only, by an IP address or `localhost`.
        ///
        /// It is sent unencrypted: across machines use a proxy with TLS, or a tunnel.
        token: Option<Token> = "off";
    }

    /// The server process itself.
    server: Server {
        /// Threads of the server process; PHP has its own processes. `auto`: 1 below four processors, else half of them.
        threads: Auto<NonZeroUsize> = "auto";
        /// The time that running requests have to finish after TERM before they are aborted.
        shutdown_patience: Duration = "30s";
        /// A private folder for files of a running server, such as its control socket. `auto`: a new one, removed at the end.
        ///
        /// It must belong to the server's user or root, and no other user may write into it: else the server does not start.
        run_dir: Auto<PathBuf> = "auto", flag "run-dir";
        /// The user that Hearth becomes once `hearth serve` listens, if root starts it; PHP too, without `php.user`. Only ports below 1024 need root.
        ///
        /// The certificates' keys, the application and `server.run_dir` are opened as this user, with its groups. Without it a server that
        /// root starts runs as root, and so does PHP unless `php.user` names another one.
        user: Option<Account> = "off", flag "user";
        /// The group of that user. `auto`: the user's own.
        group: Auto<Group> = "auto";
        /// Development mode: each edit is served at once, errors are shown in the browser, and open pages reload.
        ///
        /// It sets what is not set otherwise: `server.watch`, `http.access_log = "short"`, no `php.request_timeout`, and for PHP
        /// `display_errors` and timestamps that OPcache checks at each request. `php.model` is `request` where a front controller answers,
        /// else `snapshot`. If port 8080 is in use, the next free one is taken (docs/guide/development.md).
        dev: Wanted = "off", flag "dev";
        /// Reload when files of the application change. For development.
        ///
        /// Simultaneous changes cause one reload. A release that does not boot does not take over: the log gives the reason, and the next
        /// change causes the next try.
        watch: Wanted = "off", flag "watch";
        /// Files and folders that `watch` ignores: names anywhere, paths in the application's folder, and endings such as `*.log`.
        watch_ignore: Vec<String> = ".git, .idea, node_modules, vendor, storage, var, bootstrap/cache, *.log, *.sqlite, *.swp, *~";
    }
}

impl Http {
    /// The certificates that are files, with their keys.
    pub(crate) fn certificate_files(&self) -> Vec<TlsFiles> {
        let paths = |paths: &Option<Vec<PathBuf>>| paths.clone().unwrap_or_default();
        let pairs = paths(&self.tls_cert).into_iter().zip(paths(&self.tls_key));
        pairs.map(|(certificate, key)| TlsFiles { certificate, key }).collect()
    }
}

impl Settings {
    /// Returns whether there are certificates, or will be.
    pub(crate) fn has_tls(&self) -> bool {
        !self.http.certificate_files().is_empty()
            || !self.acme.domains.is_empty()
            || self.http.tls_local.0
    }

    /// Returns whether a listener speaks TLS.
    pub(crate) fn speaks_tls(&self, listen: &Listen) -> bool {
        listen.tls.unwrap_or_else(|| self.has_tls() && listen.is_tcp())
    }
}

/// Joins the doc comment's lines of each paragraph.
pub(crate) fn paragraphs(doc: &[&str]) -> String {
    let mut text = String::new();
    for line in doc {
        match line.trim() {
            "" => text.push_str("\n\n"),
            line => {
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push(' ');
                }
                text.push_str(line);
            }
        }
    }
    text
}
