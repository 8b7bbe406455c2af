//! Sample events for trying a function, as documented by each service.

/// A bundled event.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Name, for example `sqs`.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// The event.
    pub json: &'static str,
}

macro_rules! samples {
    ($($name:literal: $about:literal,)+) => {
        /// All samples, in display order.
        pub const SAMPLES: &[Sample] = &[$(Sample {
            name: $name,
            about: $about,
            json: include_str!(concat!("../../events/", $name, ".json")),
        }),+];
    };
}

samples! {
    "apigw-v1": "GET through a REST API of API Gateway (payload 1.0)",
    "apigw-v2": "POST through an HTTP API of API Gateway (payload 2.0)",
    "function-url": "POST to a Function URL",
    "alb": "GET through an Application Load Balancer, single values",
    "alb-multi": "GET through an Application Load Balancer, multi-value headers",
    "websocket": "a message on an API Gateway WebSocket",
    "sqs": "two messages of a queue",
    "sns": "a notification of a topic",
    "s3": "an object that was created",
    "eventbridge": "an event of an application's own",
    "scheduled": "a rule of EventBridge that is due",
    "dynamodb": "an item that is inserted, modified and removed",
    "kinesis": "two records of a stream",
    "kafka": "a record of a topic (MSK)",
    "warmer": "the call by which Bref's users keep a function warm",
}

/// Returns the sample with this name.
pub fn sample(name: &str) -> Option<&'static Sample> {
    SAMPLES.iter().find(|sample| sample.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_file_is_listed_and_is_json() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/events");
        let files: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        let listed: BTreeSet<String> =
            SAMPLES.iter().map(|sample| sample.name.to_owned()).collect();
        assert_eq!(files, listed);
        for sample in SAMPLES {
            let event: serde_json::Value = serde_json::from_str(sample.json).unwrap();
            assert!(event.is_object(), "{}", sample.name);
        }
        assert!(sample("sqs").is_some() && sample("queue").is_none());
    }
}
