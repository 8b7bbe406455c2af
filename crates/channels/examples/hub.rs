//! Runs a hub on its own, for measurements and profiling. It serves one application (id `app-id`, key `app-key`,
//! secret `app-secret`) and publishes without checks.
//!
//! ```sh
//! cargo run --example hub -- 127.0.0.1:8090 2 3600 1024      # address, event loops, seconds, minimum size to compress
//! curl -d '{"name":"e","channel":"c","data":"d"}' http://127.0.0.1:8090/apps/app-id/events
//! ```

use std::error::Error;
use std::io::{Read, Write};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use channels::hub::{self, Address, ForwardedConnection, Handover, Hub, Listen, Options, Stream};
use channels::{
    App, AppRef, Author, ChannelName, Channels, FixedApps, Found, Limits, NoObserver, Publication,
    Rights, Secret,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8090".to_owned()).parse()?;
    let event_loops: NonZeroUsize = arguments.next().unwrap_or_else(|| "1".to_owned()).parse()?;
    let app = App {
        id: "app-id".into(),
        key: "app-key".into(),
        secret: Secret::new("app-secret"),
        rights: Rights::default(),
        limits: Limits { client_events: u32::MAX, ..Limits::default() },
        history: None,
    };
    let channels = Channels::new(Arc::new(FixedApps::new([app])), Arc::new(NoObserver));
    let seconds: u64 = arguments.next().unwrap_or_else(|| "3600".to_owned()).parse()?;
    let options = Options {
        event_loops,
        listen: vec![Listen { address: Address::Tcp(address), secure: false }],
        handover: Some(Arc::new(Publisher(channels.clone()))),
        deflate: arguments.next().map(|from| from.parse()).transpose()?,
        ..Options::default()
    };
    let hub = Hub::start(options, &channels)?;
    for _ in 0..seconds.div_ceil(5) {
        std::thread::sleep(Duration::from_secs(5));
        writeln!(std::io::stderr(), "{:?}", hub.figures())?;
    }
    Ok(())
}

/// Handles every request as a publish request.
#[derive(Debug)]
struct Publisher(Channels);

impl Handover for Publisher {
    fn take(&self, forwarded: ForwardedConnection) {
        let channels = self.0.clone();
        std::thread::spawn(move || {
            // A request that cannot be answered is not part of the measurement.
            drop(answer(&channels, forwarded));
        });
    }
}

fn answer(channels: &Channels, forwarded: ForwardedConnection) -> Result<(), Box<dyn Error>> {
    let Stream::Tcp(mut stream) = forwarded.stream else { return Ok(()) };
    stream.set_nonblocking(false)?;
    let Found::App(app) = channels.apps().find(AppRef::Id("app-id")) else { return Ok(()) };
    let mut read = forwarded.read;
    let mut buffer = vec![0; 65_536];
    loop {
        let mut fields = [http1::EMPTY_FIELD; 32];
        if let Some(request) = http1::parse(&read, &mut fields)? {
            let Some(http1::Framing::Length(length)) = request.framing() else { return Ok(()) };
            let (head, length) = (request.length, usize::try_from(length)?);
            if read.len() >= head + length {
                let event: serde_json::Value = serde_json::from_slice(&read[head..head + length])?;
                let data = event["data"].to_string();
                let names = event["channels"]
                    .as_array()
                    .cloned()
                    .unwrap_or_else(|| vec![event["channel"].clone()]);
                for name in names.iter().filter_map(|name| name.as_str()) {
                    let publication = Publication {
                        channel: &ChannelName::new(name, 200)?,
                        event: event["name"].as_str().unwrap_or_default(),
                        data: &data,
                        author: Author::Server { except: None },
                    };
                    channels.registry().publish(&app, &publication, hub::now())?;
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")?;
                read.drain(..head + length);
                continue;
            }
        }
        let more = stream.read(&mut buffer)?;
        if more == 0 {
            return Ok(());
        }
        read.extend_from_slice(&buffer[..more]);
    }
}
