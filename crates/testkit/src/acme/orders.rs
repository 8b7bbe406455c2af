//! Orders, their authorizations and challenges, and the certificates that they end in.

use std::time::SystemTime;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use rcgen::CertificateSigningRequestParams;
use rustls_pki_types::CertificateSigningRequestDer;
use serde_json::Value;

use super::validation::{by_http, by_tls};
use super::{Reply, Shared, Told, json, problem};

/// An order, until its certificate is issued and after.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) account: String,
    names: Vec<Name>,
    pub(super) replaces: Option<String>,
    pub(super) chain: Option<String>,
}

/// A name of an order, and the state of its authorization.
#[derive(Debug)]
pub(super) struct Name {
    domain: String,
    token: String,
    status: &'static str,
    /// The address that failed the validation, and the reason.
    refused: Option<(String, String)>,
}

impl Shared {
    /// Accepts an order for the names of a payload.
    pub(super) fn new_order(&self, account: String, payload: &Value) -> Reply {
        let wanted = payload["identifiers"].as_array().cloned().unwrap_or_default();
        let number = {
            let mut state = self.state();
            let number = state.orders.len();
            let names = wanted.iter().enumerate().map(|(at, wanted)| Name {
                domain: wanted["value"].as_str().unwrap_or_default().to_owned(),
                token: format!("token-{number}-{at}"),
                status: "pending",
                refused: None,
            });
            let names = names.collect();
            let replaces = payload["replaces"].as_str().map(str::to_owned);
            state.orders.push(Order { account, names, replaces, chain: None });
            number
        };
        let mut reply = json(201, &self.order(number));
        reply.fields.push(("Location", format!("{}/poll/{number}", self.base)));
        reply
    }

    /// Returns an order's document (RFC 8555, section 7.1.3).
    pub(super) fn order(&self, number: usize) -> Value {
        let stays_pending = self.setup().stays_pending;
        let state = self.state();
        let order = &state.orders[number];
        let all = |status| order.names.iter().all(|name| name.status == status);
        let status = match &order.chain {
            Some(_) => "valid",
            None if order.names.iter().any(|name| name.status == "invalid") => "invalid",
            None if all("valid") && !stays_pending => "ready",
            None => "pending",
        };
        let base = &self.base;
        let each = 0..order.names.len();
        json!({
            "status": status,
            "identifiers": order.names.iter().map(|name| json!({ "type": "dns", "value": name.domain })).collect::<Vec<_>>(),
            "authorizations": each.map(|at| format!("{base}/authorization/{number}/{at}")).collect::<Vec<_>>(),
            "finalize": format!("{base}/finalize/{number}"),
            "certificate": order.chain.as_ref().map(|_| format!("{base}/certificate/{number}")),
            "replaces": order.replaces,
        })
    }

    /// Returns the document of one name (section 7.1.4).
    pub(super) fn authorization(&self, order: usize, at: usize) -> Value {
        let offers = self.setup().offers;
        let state = self.state();
        let name = &state.orders[order].names[at];
        let challenges = offers.iter().map(|kind| {
            let refused = name.refused.as_ref().filter(|(by, _)| by == kind);
            json!({
                "type": kind,
                "url": format!("{}/challenge/{order}/{at}/{kind}", self.base),
                "token": name.token,
                "status": if refused.is_some() { "invalid" } else { name.status },
                "error": refused.map(|(_, why)| json!({
                    "type": "urn:ietf:params:acme:error:unauthorized", "detail": why, "status": 403
                })),
            })
        });
        json!({
            "status": name.status,
            "identifier": { "type": "dns", "value": name.domain },
            "challenges": challenges.collect::<Vec<_>>(),
        })
    }

    /// Validates a name by a challenge of this kind.
    pub(super) fn challenge(
        &self,
        order: usize,
        at: usize,
        kind: Option<&str>,
        account: &str,
    ) -> Told {
        let kind = kind.unwrap_or_default().to_owned();
        let (name, token, thumbprint) = {
            let state = self.state();
            let name = &state.orders[order].names[at];
            (name.domain.clone(), name.token.clone(), state.accounts[account].1.clone())
        };
        let setup = self.setup();
        let expected = format!("{token}.{thumbprint}");
        let proved = match kind.as_str() {
            "http-01" => by_http(setup.http_port, &name, &token, &expected),
            "tls-alpn-01" => by_tls(setup.tls_port, &name, &expected),
            _ => Err("no validator for this challenge".to_owned()),
        };
        {
            let mut state = self.state();
            let name = &mut state.orders[order].names[at];
            name.status = if proved.is_ok() { "valid" } else { "invalid" };
            name.refused = proved.err().map(|why| (kind.clone(), why));
        }
        let authorization = self.authorization(order, at);
        let challenges = authorization["challenges"].as_array().expect("it has some");
        let own = challenges.iter().find(|challenge| challenge["type"] == kind);
        own.map(|own| json(200, own)).ok_or_else(|| problem("malformed", 400, "not offered"))
    }

    /// Issues the certificate of an order that is ready.
    pub(super) fn finalize(&self, number: usize, payload: &Value) -> Told {
        let refused = |what: &str| problem("badCSR", 400, what);
        let ready = self.order(number)["status"] == "ready";
        if !ready {
            return Err(problem("orderNotReady", 403, "not yet"));
        }
        let csr = BASE64.decode(payload["csr"].as_str().unwrap_or_default());
        let csr =
            CertificateSigningRequestDer::from(csr.map_err(|_error| refused("no base64url"))?);
        let mut csr = CertificateSigningRequestParams::from_der(&csr)
            .map_err(|_error| refused("no certificate request"))?;
        let (before, after) = self.setup().holds;
        let now = SystemTime::now();
        csr.params.not_before = (now - before).into();
        csr.params.not_after = (now + after).into();
        csr.params.use_authority_key_identifier_extension = true;
        let signed = csr.signed_by(&self.issuer).map_err(|_error| refused("cannot be signed"))?;
        self.state().orders[number].chain = Some(format!("{}{}", signed.pem(), self.authority));
        Ok(json(200, &self.order(number)))
    }
}
