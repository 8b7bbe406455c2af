//! The values of `[traces]`, and OpenTelemetry's equivalent variables: its specification, "OpenTelemetry Environment Variable
//! Specification" and "OpenTelemetry Protocol Exporter".
//!
//! Invariants
//! - Those variables are weaker than ours and stronger than files.
//! - Values that Hearth cannot follow are logged, and never keep a server from starting: they may be meant for another program.

use std::fmt;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use egress::Scheme;
use http::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

use super::environment::Environment;
use super::value::{Raw, Value, Wrong};

/// The path of collectors (OTLP/HTTP, "OTLP/HTTP Request").
const PATH: &str = "/v1/traces";

/// The address of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CollectorUrl {
    /// The scheme: with or without TLS.
    pub scheme: Scheme,
    /// Lower case, without brackets.
    pub host: String,
    /// The scheme's own where none is named.
    pub port: u16,
    /// The whole URL, with a path.
    pub url: String,
}

impl Value for CollectorUrl {
    const PLACEHOLDER: &str = "URL";
    const EXPECTED: &str =
        "a URL such as `http://127.0.0.1:4318` or `https://otlp.example.com/v1/traces`";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        let wrong = || Wrong::quoted(text);
        let url = url::Url::parse(text).map_err(|_invalid| wrong())?;
        let scheme = Scheme::named(url.scheme()).ok_or_else(wrong)?;
        let host = url.host_str().unwrap_or_default();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let credentials = !url.username().is_empty() || url.password().is_some();
        if bare.is_empty() || credentials || url.query().is_some() || url.fragment().is_some() {
            return Err(wrong());
        }
        let (host, port) = (bare.to_owned(), url.port().unwrap_or_else(|| scheme.default_port()));
        let mut url = url;
        if url.path() == "/" {
            url.set_path(PATH);
        }
        Ok(Self { scheme, host, port, url: url.into() })
    }
}

/// A share, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share(pub f64);

impl Value for Share {
    const PLACEHOLDER: &str = "SHARE";
    const EXPECTED: &str = "a share from `0` to `1` such as `0.1`, or `10%`";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        let (number, whole) = match text.strip_suffix('%') {
            Some(number) => (number.trim_end(), 100.0),
            None => (text, 1.0),
        };
        let number: f64 = number.parse().map_err(|_invalid| Wrong::quoted(text))?;
        let share = number / whole;
        if (0.0..=1.0).contains(&share) { Ok(Self(share)) } else { Err(Wrong::quoted(text)) }
    }
}

/// Fields of a request to a collector: keys of its owner, mostly.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct CollectorFields(pub Vec<(HeaderName, HeaderValue)>);

impl fmt::Debug for CollectorFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|(name, _)| (name, "***"));
        f.debug_map().entries(names).finish()
    }
}

impl Value for CollectorFields {
    const PLACEHOLDER: &str = "NAME=VALUE";
    const REPEATS: bool = true;
    const EXPECTED: &str =
        "`name=value` of header fields; several as a table, or separated by commas";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        // None is quoted back: they are secrets.
        let wrong = |name: &str| Wrong(format!("a field `{name}` that no request can have"));
        let field = |name: &str, value: &str| {
            let parsed = name.trim().parse::<HeaderName>().ok();
            let value = HeaderValue::try_from(value.trim()).ok();
            let (Some(parsed), Some(mut value)) = (parsed, value) else { return Err(wrong(name)) };
            value.set_sensitive(true);
            Ok((parsed, value))
        };
        let texts: Vec<&str> = match raw {
            Raw::Table(pairs) => {
                let fields = pairs.iter().map(|(name, value)| field(name, value));
                return fields.collect::<Result<_, _>>().map(Self);
            }
            Raw::Text(text) => text.split(',').collect(),
            Raw::List(items) => items.iter().map(String::as_str).collect(),
        };
        let texts = texts.into_iter().map(str::trim).filter(|text| !text.is_empty());
        let fields = texts.map(|text| {
            let (name, value) = text.split_once('=').ok_or_else(|| wrong("without `=`"))?;
            field(name, value)
        });
        fields.collect::<Result<_, _>>().map(Self)
    }

    fn overridden_by(mut self, stronger: Self) -> Self {
        self.0.retain(|(name, _)| !stronger.0.iter().any(|(other, _)| other == name));
        self.0.extend(stronger.0);
        self
    }
}

/// The settings in OpenTelemetry's variables, and the parts that Hearth does not support.
#[derive(Debug, Default)]
pub(crate) struct OfOpenTelemetry {
    /// Setting, variable, value.
    pub settings: Vec<(&'static str, &'static str, Raw)>,
    /// The file of authorities that a variable names, with that variable: whether it can be read is seen where it is needed.
    pub ca: Option<(&'static str, PathBuf)>,
    /// The ignored parts, for the log.
    pub ignored: Vec<String>,
}

impl OfOpenTelemetry {
    /// Reads them.
    pub(crate) fn read(environment: &Environment) -> Self {
        let mut all = Self::default();
        // An empty one is as good as none (Environment Variable Specification, "General guidelines").
        let get = |name: &'static str| {
            let value = environment.variable(name).map(str::trim);
            value.filter(|value| !value.is_empty()).map(|value| (name, value))
        };
        let first = |names: [&'static str; 2]| names.into_iter().find_map(get);
        all.endpoint(get);
        if let Some((name, value)) =
            first(["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"])
        {
            let raw = Raw::Table(pairs(value));
            match CollectorFields::parse(&raw, Path::new("/")) {
                Ok(_) => all.put("traces.headers", name, raw),
                Err(Wrong(found)) => all.ignore(format!("{name}: {found}")),
            }
        }
        if let Some((name, value)) =
            first(["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"])
        {
            all.ca = Some((name, environment.current_dir.join(value)));
            all.put("traces.ca", name, Raw::Text(value.to_owned()));
        }
        if let Some((name, value)) =
            first(["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"])
        {
            match value.parse::<NonZeroU64>() {
                Ok(number) => all.put("traces.timeout", name, Raw::Text(format!("{number}ms"))),
                Err(_other) => {
                    all.ignore(format!("{name}={value}: it is a number of milliseconds"));
                }
            }
        }
        if let Some((name, value)) =
            first(["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"])
        {
            match value {
                "gzip" | "none" => {
                    let on = if value == "gzip" { "on" } else { "off" };
                    all.put("traces.gzip", name, Raw::Text(on.to_owned()));
                }
                other => all.ignore(format!("{name}={other}: known are `gzip` and `none`")),
            }
        }
        all.resource(get);
        all.sampler(get);
        all
    }

    fn put(&mut self, key: &'static str, variable: &'static str, raw: Raw) {
        self.settings.push((key, variable, raw));
    }

    fn ignore(&mut self, why: String) {
        self.ignored.push(why);
    }

    fn endpoint<'e>(&mut self, get: impl Fn(&'static str) -> Option<(&'static str, &'e str)>) {
        let off = || Raw::Text("off".to_owned());
        if let Some((name, value)) = get("OTEL_SDK_DISABLED")
            && value.eq_ignore_ascii_case("true")
        {
            return self.put("traces.endpoint", name, off());
        }
        if let Some((name, value)) = get("OTEL_TRACES_EXPORTER")
            && !value.split(',').any(|exporter| exporter.trim() == "otlp")
        {
            if value != "none" {
                self.ignore(format!("{name}={value}: known are `otlp` and `none`"));
            }
            return self.put("traces.endpoint", name, off());
        }
        let whole = get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        let whole = whole.map(|(name, value)| (name, value.to_owned()));
        let base = get("OTEL_EXPORTER_OTLP_ENDPOINT");
        let base =
            base.map(|(name, value)| (name, format!("{}{PATH}", value.trim_end_matches('/'))));
        let Some((name, url)) = whole.or(base) else { return };
        let protocol = get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL");
        let protocol = protocol.or_else(|| get("OTEL_EXPORTER_OTLP_PROTOCOL"));
        if let Some((variable, protocol)) = protocol.filter(|(_, named)| *named != "http/protobuf")
        {
            // A collector with another protocol does not understand us.
            return self.ignore(format!(
                "{name}, because of {variable}={protocol}: Hearth speaks `http/protobuf`; set `traces.endpoint` to where that is understood"
            ));
        }
        if let Err(Wrong(found)) = CollectorUrl::parse(&Raw::Text(url.clone()), Path::new("/")) {
            return self.ignore(format!("{name}: {found} is no URL of a collector"));
        }
        self.put("traces.endpoint", name, Raw::Text(url));
    }

    fn resource<'e>(&mut self, get: impl Fn(&'static str) -> Option<(&'static str, &'e str)>) {
        let mut service = None;
        if let Some((name, value)) = get("OTEL_RESOURCE_ATTRIBUTES") {
            let mut attributes = pairs(value);
            attributes.retain(|(key, value)| {
                let names_it = key == "service.name";
                if names_it {
                    service = Some((name, value.clone()));
                }
                !names_it
            });
            self.put("traces.resource", name, Raw::Table(attributes));
        }
        let named = get("OTEL_SERVICE_NAME").map(|(name, value)| (name, value.to_owned()));
        if let Some((name, value)) = named.or(service) {
            self.put("traces.service_name", name, Raw::Text(value));
        }
    }

    fn sampler<'e>(&mut self, get: impl Fn(&'static str) -> Option<(&'static str, &'e str)>) {
        let Some((name, value)) = get("OTEL_TRACES_SAMPLER") else { return };
        let argument = get("OTEL_TRACES_SAMPLER_ARG").map_or("1", |(_, value)| value);
        let (share, follows) = match value {
            "parentbased_always_on" => ("1", "on"),
            "parentbased_always_off" => ("0", "on"),
            "parentbased_traceidratio" => (argument, "on"),
            "always_on" => ("1", "off"),
            "always_off" => ("0", "off"),
            "traceidratio" => (argument, "off"),
            other => {
                return self.ignore(format!("{name}={other}: set `traces.sample` to a share"));
            }
        };
        let raw = |text: &str| Raw::Text(text.to_owned());
        if Share::parse(&raw(share), Path::new("/")).is_err() {
            return self
                .ignore(format!("OTEL_TRACES_SAMPLER_ARG={share}: it is no share of 0 to 1"));
        }
        self.put("traces.sample", name, raw(share));
        self.put("traces.follow_parent", name, raw(follows));
    }
}

/// `a=b,c=d`, values percent-encoded (as W3C Baggage).
fn pairs(text: &str) -> Vec<(String, String)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    let decoded = |text: &str| percent_decode_str(text.trim()).decode_utf8_lossy().into_owned();
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Settings, load};

    fn settings(toml: &str, variables: &[(&str, &str)]) -> Settings {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("hearth.toml"), toml).unwrap();
        let environment = Environment::for_test(folder.path(), variables);
        load(folder.path(), None, Vec::new(), &environment).unwrap()
    }

    fn endpoint(settings: &Settings) -> Option<&str> {
        settings.traces.endpoint.as_ref().map(|endpoint| endpoint.url.as_str())
    }

    #[test]
    fn tracing_requires_an_endpoint() {
        assert_eq!(endpoint(&settings("", &[("OTEL_SERVICE_NAME", "shop")])), None);
    }

    #[test]
    fn opentelemetry_variables_rank_between_file_and_hearths() {
        let toml = "[traces]\nendpoint = \"http://file:1\"\nservice_name = \"file\"";
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://base:4318/");
        let of =
            |variables: &[(&str, &str)]| endpoint(&settings(toml, variables)).map(str::to_owned);
        assert_eq!(of(&[]).as_deref(), Some("http://file:1/v1/traces"));
        assert_eq!(of(&[base]).as_deref(), Some("http://base:4318/v1/traces"));
        let whole = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://whole/x");
        assert_eq!(of(&[base, whole]).as_deref(), Some("https://whole/x"));
        let ours = ("HEARTH_TRACES_ENDPOINT", "http://ours:9");
        assert_eq!(of(&[base, ours]).as_deref(), Some("http://ours:9/v1/traces"));
        assert_eq!(of(&[base, ("OTEL_SDK_DISABLED", "True")]), None);
        assert_eq!(of(&[base, ("OTEL_TRACES_EXPORTER", "none")]), None);
    }

    #[test]
    fn samplers_services_and_headers_follow_the_specification() {
        let settings = settings(
            "",
            &[
                ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
                ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
                ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,deployment.environment.name=b%2Cc"),
                ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%3Db, authorization=Bearer%20t"),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
            ],
        );
        let traces = &settings.traces;
        assert_eq!((traces.sample, traces.follow_parent), (Share(0.25), true));
        assert_eq!(traces.service_name.0.as_deref(), Some("a"));
        assert_eq!(traces.resource.0, [("deployment.environment.name".into(), "b,c".into())]);
        let fields: Vec<_> = traces
            .headers
            .0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        assert_eq!(fields, [("x-key", &b"a=b"[..]), ("authorization", b"Bearer t")]);
        assert_eq!(traces.timeout.as_millis(), 2500);
        assert!(!format!("{traces:?}").contains("Bearer"));
    }

    #[test]
    fn unsupported_opentelemetry_options_only_warn() {
        let folder = tempfile::tempdir().unwrap();
        for variable in [
            ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4317"),
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api key=secret"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "key=a%0Asecret"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "-1"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
        ] {
            let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318"), variable];
            let environment = Environment::for_test(folder.path(), &variables);
            let ignored = OfOpenTelemetry::read(&environment).ignored;
            assert_eq!(ignored.len(), 1, "{variable:?}");
            assert!(!ignored[0].contains("secret"), "{ignored:?}");
            load(folder.path(), None, Vec::new(), &environment).unwrap();
        }
    }

    #[test]
    fn a_share_is_a_number_or_a_percentage() {
        let share = |text: &str| Share::parse(&Raw::Text(text.into()), Path::new("/")).ok();
        assert_eq!(share("10%"), Some(Share(0.1)));
        assert_eq!(share("1"), Some(Share(1.0)));
        for text in ["", "-1", "2", "101%", "all", "NaN"] {
            assert_eq!(share(text), None, "{text}");
        }
    }
}
