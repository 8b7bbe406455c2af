//! Which pages may connect: a browser sends cookies with a WebSocket of any page, so without this check every site
//! could act as its visitor (cross-site WebSocket hijacking).

use std::str::FromStr;

use http::HeaderValue;

/// A rule about the page that connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginRule {
    /// Pages of the host that the request names.
    Same,
    /// Every page.
    Any,
    /// Pages of this origin: `https://app.example.com`, in lower case, without a default port.
    Exact(String),
}

/// The error for a text that is not an origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither `same`, `*` nor an origin such as `https://app.example.com`")]
pub struct InvalidOrigin(String);

impl FromStr for OriginRule {
    type Err = InvalidOrigin;

    fn from_str(text: &str) -> Result<Self, InvalidOrigin> {
        match text {
            "same" => Ok(Self::Same),
            "*" => Ok(Self::Any),
            text => {
                let (scheme, authority) =
                    split(text).ok_or_else(|| InvalidOrigin(text.to_owned()))?;
                Ok(Self::Exact(format!("{scheme}://{authority}")))
            }
        }
    }
}

/// Returns whether a client with this `Origin` may connect to `host`. A client without one is no browser.
pub(crate) fn allows(rules: &[OriginRule], origin: Option<&HeaderValue>, host: &str) -> bool {
    let Some(origin) = origin else { return true };
    let parts = origin.to_str().ok().and_then(split);
    rules.iter().any(|rule| match (rule, &parts) {
        (OriginRule::Any, _) => true,
        (OriginRule::Same, Some((scheme, authority))) => {
            *authority == without_default_port(scheme, &host.to_ascii_lowercase())
        }
        (OriginRule::Exact(known), Some((scheme, authority))) => {
            known.split_once("://") == Some((scheme.as_str(), authority.as_str()))
        }
        _ => false,
    })
}

/// Returns scheme and authority in lower case, the latter without a default port.
fn split(origin: &str) -> Option<(String, String)> {
    let (scheme, authority) = origin.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let fits = !authority.is_empty()
        && authority.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#@\\".contains(&byte));
    let known = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    if !fits || !known || scheme.is_empty() {
        return None;
    }
    let authority = without_default_port(&scheme, &authority.to_ascii_lowercase()).to_owned();
    Some((scheme, authority))
}

fn without_default_port<'a>(scheme: &str, authority: &'a str) -> &'a str {
    let port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return authority,
    };
    authority.strip_suffix(port).unwrap_or(authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(rules: &[&str], origin: &str, host: &str) -> bool {
        let rules: Vec<OriginRule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let origin = (!origin.is_empty()).then(|| HeaderValue::from_str(origin).unwrap());
        allows(&rules, origin.as_ref(), host)
    }

    #[test]
    fn pages_of_other_hosts_are_rejected_by_default() {
        for (origin, host, allowed) in [
            ("https://shop.example", "shop.example", true),
            ("https://SHOP.example", "Shop.Example:443", true),
            ("http://localhost:8080", "localhost:8080", true),
            ("http://localhost:8080", "localhost:8081", false),
            ("https://shop.example", "shop.example:80", false),
            ("https://evil.example", "shop.example", false),
            ("https://shop.example.evil.example", "shop.example", false),
            ("https://shop.example@evil.example", "shop.example@evil.example", false),
            ("null", "shop.example", false),
            ("null", "null", false),
            ("", "shop.example", true),
        ] {
            assert_eq!(may(&["same"], origin, host), allowed, "{origin} {host}");
        }
    }

    #[test]
    fn listed_origins_and_every_origin() {
        let rules = ["same", "https://app.example:443"];
        assert!(may(&rules, "https://app.example", "api.example"));
        assert!(!may(&rules, "http://app.example", "api.example"));
        assert!(may(&rules, "http://api.example", "api.example"));
        assert!(may(&["*"], "null", "x"));
        assert!(!may(&[], "http://x", "x"));
        for text in ["", "app.example", "https://", "https://a/b", "https://u@a"] {
            text.parse::<OriginRule>().unwrap_err();
        }
    }
}
