//! `hearth lambda invoke`: one event to a function that is emulated, and what comes of it.
//!
//! Invariants
//! - stdout has the function's result and nothing else; its log and what went wrong are on stderr.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use front_lambda::emulator::{SAMPLES, sample};
use http::{StatusCode, Version};
use http1::{Response, parse_response, put_field, put_request_line};

use crate::config::{Environment, nearest};
use crate::failure::Failure;
use crate::ops::log;

/// `hearth lambda invoke`.
#[derive(Debug)]
pub(crate) struct Invoke {
    /// A file, `-`, or a sample's name.
    pub event: Option<String>,
    /// `--to`.
    pub to: String,
    /// `--sample`.
    pub sample: Option<String>,
    /// `--samples`.
    pub lists_samples: bool,
}

/// Sends the event, or lists samples. Returns the text for stdout.
pub(crate) fn run(invoke: &Invoke, environment: &Environment) -> Result<String, Failure> {
    if invoke.lists_samples {
        return Ok(list());
    }
    if let Some(name) = &invoke.sample {
        return named(name).map(str::to_owned);
    }
    let event = event(invoke.event.as_deref(), environment)?;
    let answer = call(&invoke.to, &event).map_err(|error| {
        Failure::caused_by(
            format!("cannot invoke the function at {}", invoke.to),
            &error,
            "start it with `hearth lambda PATH --emulate 127.0.0.1:9000`, or name another address with `--to`",
        )
    })?;
    if let Some(encoded) = answer.field("x-amz-log-result")
        && let Ok(tail) = STANDARD.decode(encoded)
    {
        for line in String::from_utf8_lossy(&tail).lines() {
            log::plain(line);
        }
    }
    let result = String::from_utf8_lossy(&answer.body).into_owned();
    let failed = answer.field("x-amz-function-error").or_else(|| answer.field("error-type"));
    if answer.head.status == StatusCode::OK && failed.is_none() {
        return Ok(result + "\n");
    }
    let hint = match failed {
        Some(_) => "the function's log says more",
        None => "the event is what the function is not given: look at it first",
    };
    let what = match failed {
        Some(_) => "the function failed".to_owned(),
        None => format!("the function was not invoked: status {}", answer.head.status.as_u16()),
    };
    Err(Failure::failed(format!("{what}: {}", result.trim()), hint))
}

fn list() -> String {
    let width = SAMPLES.iter().map(|sample| sample.name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for sample in SAMPLES {
        writeln!(text, "{:width$}  {}", sample.name, sample.about).expect("a String takes all");
    }
    text
}

fn named(name: &str) -> Result<&'static str, Failure> {
    sample(name).map(|sample| sample.json).ok_or_else(|| {
        let nearest = nearest(name, SAMPLES.iter().map(|sample| sample.name));
        Failure::misused(
            format!("no sample event `{name}`"),
            nearest.map_or_else(
                || "`hearth lambda invoke --samples` lists them".to_owned(),
                |nearest| format!("did you mean `{nearest}`?"),
            ),
        )
    })
}

/// A file of that name is meant before a sample is.
fn event(named_event: Option<&str>, environment: &Environment) -> Result<Vec<u8>, Failure> {
    let unreadable = |what: String, error: &io::Error| {
        Failure::caused_by(what, error, "name a file with JSON, `-` for stdin, or a sample")
    };
    match named_event {
        None | Some("-") => {
            let mut event = Vec::new();
            io::stdin()
                .read_to_end(&mut event)
                .map_err(|error| unreadable("cannot read stdin".into(), &error))?;
            Ok(event)
        }
        Some(name) => {
            let path = environment.current_dir.join(Path::new(name));
            match std::fs::read(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => match sample(name) {
                    Some(sample) => Ok(sample.json.into()),
                    None => Err(unreadable(format!("no file and no sample `{name}`"), &error)),
                },
                read => read.map_err(|error| unreadable(format!("cannot read {name}"), &error)),
            }
        }
    }
}

/// Makes one call of `Invoke` (<https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html>), without a time limit.
fn call(to: &str, event: &[u8]) -> io::Result<Response> {
    let mut stream = TcpStream::connect(to)?;
    let mut head = Vec::new();
    let path = "/2015-03-31/functions/function/invocations";
    put_request_line(&mut head, "POST", path, Version::HTTP_10);
    put_field(&mut head, "Host", to);
    put_field(&mut head, "Content-Type", "application/json");
    put_field(&mut head, "X-Amz-Log-Type", "Tail");
    put_field(&mut head, "Content-Length", event.len().to_string());
    head.extend_from_slice(b"\r\n");
    stream.write_all(&head)?;
    // A server that rejects an event closes early, after its answer: the answer matters more than the failed write.
    let written = stream.write_all(event);
    let mut received = Vec::new();
    let read = stream.read_to_end(&mut received);
    drop(stream.shutdown(Shutdown::Both));
    parse_response(&received).ok_or_else(|| {
        read.err()
            .or_else(|| written.err())
            .unwrap_or_else(|| io::Error::other("the answer is no HTTP, or not whole"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_listed_printed_and_guessed() {
        assert!(list().contains("sqs "));
        assert!(named("sqs").unwrap().contains("aws:sqs"));
        assert_eq!(named("sqss").unwrap_err().hint(), Some("did you mean `sqs`?"));
    }
}
