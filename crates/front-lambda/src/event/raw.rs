//! The JSON structure of events: only what a request needs, borrowed from the text unless it is escaped.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A string, borrowed from the JSON if it has no escapes.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Text<'e>(#[serde(borrow)] pub(crate) Cow<'e, str>);

impl AsRef<str> for Text<'_> {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// An object as pairs, in the order of the text. Pairs with the value `null` are omitted.
#[derive(Debug)]
pub(crate) struct Pairs<'e, V>(pub(crate) Vec<(Text<'e>, V)>);

impl<'de: 'e, 'e, V: Deserialize<'de>> Deserialize<'de> for Pairs<'e, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AsPairs<'e, V>(PhantomData<(&'e (), V)>);
        impl<'de: 'e, 'e, V: Deserialize<'de>> Visitor<'de> for AsPairs<'e, V> {
            type Value = Vec<(Text<'e>, V)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some((name, value)) = map.next_entry::<Text<'e>, Option<V>>()? {
                    if let Some(value) = value {
                        pairs.push((name, value));
                    }
                }
                Ok(pairs)
            }
        }
        deserializer.deserialize_map(AsPairs(PhantomData)).map(Self)
    }
}

/// Fields with one value each.
pub(crate) type Single<'e> = Pairs<'e, Text<'e>>;
/// Fields with any number of values.
pub(crate) type Multiple<'e> = Pairs<'e, Vec<Text<'e>>>;

/// Everything that identifies an HTTP event, and what its request consists of.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event<'e> {
    #[serde(borrow, default)]
    pub(crate) version: Option<&'e RawValue>,
    #[serde(borrow, default)]
    pub(crate) http_method: Option<Text<'e>>,
    #[serde(borrow, default)]
    pub(crate) path: Option<Text<'e>>,
    #[serde(borrow, default)]
    pub(crate) raw_path: Option<Text<'e>>,
    #[serde(borrow, default)]
    pub(crate) raw_query_string: Option<Text<'e>>,
    #[serde(borrow, default)]
    pub(crate) query_string_parameters: Option<Single<'e>>,
    #[serde(borrow, default)]
    pub(crate) multi_value_query_string_parameters: Option<Multiple<'e>>,
    #[serde(borrow, default)]
    pub(crate) headers: Option<Single<'e>>,
    #[serde(borrow, default)]
    pub(crate) multi_value_headers: Option<Multiple<'e>>,
    #[serde(borrow, default)]
    pub(crate) cookies: Option<Vec<Text<'e>>>,
    #[serde(borrow, default)]
    pub(crate) body: Option<Text<'e>>,
    #[serde(default)]
    pub(crate) is_base64_encoded: bool,
    #[serde(borrow, default)]
    pub(crate) request_context: Option<&'e RawValue>,
}

/// `requestContext`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestContext<'e> {
    #[serde(default)]
    pub(crate) elb: Option<IgnoredAny>,
    #[serde(borrow, default)]
    pub(crate) http: Option<Http<'e>>,
    #[serde(borrow, default)]
    pub(crate) identity: Option<Identity<'e>>,
    #[serde(borrow, default)]
    pub(crate) stage: Option<Text<'e>>,
    #[serde(borrow, default)]
    pub(crate) path: Option<Text<'e>>,
    #[serde(borrow, default)]
    pub(crate) protocol: Option<Text<'e>>,
    #[serde(borrow, default)]
    pub(crate) domain_name: Option<Text<'e>>,
    #[serde(borrow, default)]
    pub(crate) connection_id: Option<Text<'e>>,
    #[serde(borrow, default)]
    pub(crate) event_type: Option<Text<'e>>,
    #[serde(default)]
    pub(crate) disconnect_status_code: Option<u16>,
    #[serde(borrow, default)]
    pub(crate) disconnect_reason: Option<Text<'e>>,
}

/// `requestContext.http` of version 2.0.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Http<'e> {
    #[serde(borrow)]
    pub(crate) method: Text<'e>,
    #[serde(borrow, default)]
    pub(crate) protocol: Option<Text<'e>>,
    #[serde(borrow, default)]
    pub(crate) source_ip: Option<Text<'e>>,
}

/// `requestContext.identity` of version 1.0.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Identity<'e> {
    #[serde(borrow, default)]
    pub(crate) source_ip: Option<Text<'e>>,
}

/// Fields that identify other events, for the error message.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Other<'e> {
    #[serde(rename = "Records", borrow, default)]
    records: Option<Vec<Record<'e>>>,
    #[serde(rename = "detail-type", default)]
    detail_type: Option<IgnoredAny>,
    #[serde(rename = "requestContext", borrow, default)]
    request_context: Option<OtherContext<'e>>,
    #[serde(rename = "eventSource", borrow, default)]
    event_source: Option<Text<'e>>,
}

#[derive(Debug, Deserialize)]
struct Record<'e> {
    #[serde(rename = "eventSource", alias = "EventSource", borrow, default)]
    event_source: Option<Text<'e>>,
}

#[derive(Debug, Deserialize)]
struct OtherContext<'e> {
    #[serde(rename = "connectionId", borrow, default)]
    connection_id: Option<Text<'e>>,
}

impl Other<'_> {
    /// Returns a description.
    pub(crate) fn name(&self) -> String {
        let of_records = self.records.as_ref().and_then(|records| records.first());
        let source = of_records.and_then(|record| record.event_source.as_ref());
        if let Some(source) = source.or(self.event_source.as_ref()) {
            format!("an event of {}", source.0.chars().take(64).collect::<String>())
        } else if self.detail_type.is_some() {
            "an event of EventBridge".to_owned()
        } else if self
            .request_context
            .as_ref()
            .is_some_and(|context| context.connection_id.is_some())
        {
            "an event of an API Gateway WebSocket".to_owned()
        } else {
            "an event of another kind".to_owned()
        }
    }
}
