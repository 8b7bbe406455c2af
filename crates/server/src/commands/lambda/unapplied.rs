//! The rules for requests that only `hearth serve` and `hearth channels` apply. Where one of them protects the application, it must not
//! run on Lambda as if the rule held there.

use front_http::{OriginRule, RuleOptions};

use crate::config::{ClientCertificates, Settings};
use crate::failure::Failure;

/// The hint for a rule that protects nothing.
pub(crate) const HINT: &str =
    "set it at CloudFront or API Gateway, or in the application (docs/guide/edge.md#on-aws-lambda)";

/// Returns the rules without which an HTTP application would be open on Lambda, each as the reason not to start.
pub(crate) fn protecting(settings: &Settings) -> Vec<Failure> {
    let http = &settings.http;
    let RuleOptions { basic_auth, .. } = http.rules();
    let mut found = Vec::new();
    let mut protects = |setting: &str, hint: &str| {
        let message = format!(
            "`{setting}` is not applied on Lambda: what it protects in `hearth serve` would be open"
        );
        found.push(Failure::misused(message, hint));
    };
    if basic_auth.iter().any(|rule| rule.file.is_some()) {
        protects(
            "http.basic_auth",
            "have an authorizer, IAM, CloudFront or the application ask who it is, and set `HEARTH_HTTP_BASIC_AUTH` to nothing in the function's environment",
        );
    }
    if http.client_ca.is_some() && http.client_certificates == ClientCertificates::Require {
        let hint = if http.client_crl.is_none() {
            "have API Gateway or the load balancer require certificates, and set `HEARTH_HTTP_CLIENT_CA=off` in the function's environment"
        } else {
            "have API Gateway or the load balancer require certificates, and set `HEARTH_HTTP_CLIENT_CA=off` and `HEARTH_HTTP_CLIENT_CRL=off` in the function's environment"
        };
        protects("http.client_ca", hint);
    }
    let origins = &settings.websockets.origins;
    let lists = *origins != [OriginRule::Same] && !origins.contains(&OriginRule::Any);
    if lists && !settings.websockets.routes.0.is_empty() {
        protects(
            "websockets.origins",
            "compare `$_SERVER['HTTP_ORIGIN']` in the handler's `connect`, and set `HEARTH_WEBSOCKETS_ORIGINS=*` in the function's environment",
        );
    }
    found
}

/// Returns the other rules that do nothing on Lambda.
pub(crate) fn others(settings: &Settings) -> Vec<&'static str> {
    let http = &settings.http;
    let RuleOptions { rate_limits, redirects, headers, basic_auth: _ } = http.rules();
    let asks = http.client_ca.is_some() && http.client_certificates == ClientCertificates::Optional;
    let rules = [
        ("http.rate_limits", !rate_limits.is_empty()),
        ("http.redirects", !redirects.is_empty()),
        ("http.headers", !headers.is_empty()),
        ("http.hsts", http.hsts.is_some()),
        ("http.client_ca", asks),
    ];
    rules.into_iter().filter_map(|(setting, is_set)| is_set.then_some(setting)).collect()
}
