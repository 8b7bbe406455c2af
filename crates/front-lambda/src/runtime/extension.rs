//! An internal extension without events. While an extension is registered, Lambda sends SIGTERM before it ends an
//! environment, otherwise it kills; this is its only purpose. The event SHUTDOWN is not available to internal
//! extensions (`ShutdownEventNotSupportedForInternalExtension`); if it arrives, it is treated the same.
//! <https://docs.aws.amazon.com/lambda/latest/dg/runtimes-extensions-api.html>

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::accepted;
use super::client::{ApiError, Call, Client};

const BASE: &str = "/2020-01-01/extension";
const NAME: &str = "hearth";

/// A registered extension.
#[derive(Debug)]
pub(super) struct Extension {
    client: Client,
    identifier: String,
}

/// Registers; `None` if the platform accepts none.
pub(super) async fn register(api: &Arc<str>) -> Option<Extension> {
    match try_register(api).await {
        Ok(extension) => Some(extension),
        Err(error) => {
            debug!(%error, "no extension: the environment will end without a word");
            None
        }
    }
}

async fn try_register(api: &Arc<str>) -> Result<Extension, ApiError> {
    let mut client = Client::new(Arc::clone(api));
    let head = format!(
        "POST {BASE}/register HTTP/1.1\r\nContent-Type: application/json\r\nLambda-Extension-Name: {NAME}\r\n"
    );
    let call = Call {
        name: "extension/register",
        head: &head,
        body: Some(b"{\"events\":[]}"),
        patience: Some(Duration::from_secs(2)),
    };
    let answer = accepted(call.name, client.send(call).await?)?;
    let identifier = answer.head.headers.get("lambda-extension-identifier");
    let identifier = identifier.and_then(|value| value.to_str().ok()).unwrap_or_default();
    Ok(Extension { client, identifier: identifier.to_owned() })
}

impl Extension {
    /// Polls for events, which marks the extension as ready, and drains when the end is announced.
    pub(super) async fn watch(mut self, drain: CancellationToken) {
        let head = format!(
            "GET {BASE}/event/next HTTP/1.1\r\nLambda-Extension-Identifier: {}\r\n",
            self.identifier
        );
        loop {
            let call =
                Call { name: "extension/event/next", head: &head, body: None, patience: None };
            let answer = match self.client.send(call).await {
                Ok(answer) => accepted(call.name, answer),
                Err(error) => Err(error),
            };
            match answer {
                Ok(answer) if is_shutdown(&answer.body) => {
                    debug!("the platform ends the environment");
                    drain.cancel();
                    return;
                }
                Ok(_) => {}
                Err(error) => {
                    debug!(%error, "the extension hears no more");
                    return;
                }
            }
        }
    }
}

fn is_shutdown(event: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Event<'e> {
        #[serde(rename = "eventType", borrow)]
        kind: &'e str,
    }
    serde_json::from_slice::<Event<'_>>(event).is_ok_and(|event| event.kind == "SHUTDOWN")
}
