//! The log of events in a Redis stream.
//!
//! Two scripts keep the stream, its epoch and its counters consistent. One connection appends, one packet after the
//! other; another reads with `XREAD BLOCK`. All keys have one hash tag, so that in a cluster they are on one server.
//!
//! Invariants
//! - Entries have consecutive numbers. A reader that sees another number, another epoch, or a stream that has become
//!   shorter opens the log again.
//! - A stream that lost entries which a node has applied gets a new epoch. So positions of clients never mean other
//!   events.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo as _, RedisError, cmd,
};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::{ANSWER, InvalidOptions, Options, PAUSES, Source, log_once};
use crate::adapter::log::{LogEvent, LogLink, LogOptions, wait_for_broker};
use crate::nodes::NodeId;

/// How long a read waits for entries before the state of the log is checked.
const WAIT_MILLIS: u64 = 1000;
const WAIT: Duration = Duration::from_millis(WAIT_MILLIS);

/// Maximum number of entries of one read.
const ENTRIES: usize = 64;

/// Opens the log. Arguments: a new epoch, an epoch to end. Returns epoch, first sequence, last sequence, and the time
/// in milliseconds.
const OPEN: &str = r"
local epoch = redis.call('HGET', KEYS[2], 'epoch')
local last = tonumber(redis.call('HGET', KEYS[2], 'n') or '0')
local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
if not epoch or epoch == ARGV[2] then
  redis.call('DEL', KEYS[1])
  redis.call('DEL', KEYS[2])
  redis.call('HSET', KEYS[2], 'epoch', ARGV[1], 'n', 0, 'bytes', 0)
  epoch, last, oldest = ARGV[1], 0, false
end
local first = last + 1
if oldest then first = tonumber(oldest[2][2]) end
local time = redis.call('TIME')
return {epoch, first, last, time[1] * 1000 + math.floor(time[2] / 1000)}
";

/// Appends a packet. Keys: stream, state, the sender's last number. Arguments: packet, number, bytes to keep,
/// milliseconds to keep, a new epoch.
const APPEND: &str = r"
local epoch = redis.call('HGET', KEYS[2], 'epoch')
if not epoch then
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[2], 'epoch', ARGV[5], 'n', 0, 'bytes', 0)
  epoch = ARGV[5]
end
if tonumber(redis.call('GET', KEYS[3]) or '0') >= tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[3], ARGV[2], 'EX', 3600)
local n = redis.call('HINCRBY', KEYS[2], 'n', 1)
local bytes = redis.call('HINCRBY', KEYS[2], 'bytes', #ARGV[1])
redis.call('XADD', KEYS[1], '*', 'n', n, 'epoch', epoch, 'bytes', bytes, 'packet', ARGV[1])
if n % 16 == 0 then
  local time = redis.call('TIME')
  redis.call('XTRIM', KEYS[1], 'MINID', time[1] * 1000 - ARGV[4])
  for i = 1, 64 do
    local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
    if not oldest or bytes - tonumber(oldest[2][6]) < tonumber(ARGV[3]) then break end
    redis.call('XTRIM', KEYS[1], 'MAXLEN', redis.call('XLEN', KEYS[1]) - 1)
  end
end
return 1
";

/// Starts the link to the log. Must be called within a tokio runtime.
pub fn log(options: &Options, me: NodeId, log: &LogOptions) -> Result<LogLink, InvalidOptions> {
    let (mut link, to_append, events) = LogLink::new();
    let keys = Keys::new(&options.subject);
    link.tasks.spawn(append_all(
        Server::new(options)?,
        keys.clone(),
        format!("{{{}}}:sender:{:016x}", options.subject, me.0),
        log.clone(),
        to_append,
        events.clone(),
    ));
    let reader = Reader { keys, epoch: 0, next: 1, cursor: String::from("0-0"), ahead: 0 };
    link.tasks.spawn(reader.run(Server::new(options)?, events));
    Ok(link)
}

#[derive(Clone)]
struct Keys {
    stream: String,
    state: String,
}

impl Keys {
    fn new(subject: &str) -> Self {
        Self { stream: format!("{{{subject}}}:log"), state: format!("{{{subject}}}:state") }
    }
}

/// The server that holds the log. In a cluster another server names it.
struct Server {
    source: Source,
    moved: Option<Client>,
}

impl Server {
    fn new(options: &Options) -> Result<Self, InvalidOptions> {
        Ok(Self { source: Source::new(options)?, moved: None })
    }

    async fn connect(&mut self) -> Result<MultiplexedConnection, RedisError> {
        let client = match self.moved.take() {
            Some(client) => client,
            None => self.source.client().await?,
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER))
            .set_response_timeout(Some(WAIT + ANSWER));
        client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Follows a redirection of a cluster; returns `false` if the failure is none.
    async fn follow(&mut self, failure: &RedisError) -> bool {
        let Some((address, _)) = failure.redirect_node() else { return false };
        let Some((host, port)) = address.rsplit_once(':') else { return false };
        let (Ok(port), Ok(client)) = (port.parse(), self.source.client().await) else {
            return false;
        };
        let info = client.get_connection_info().clone();
        let host = host.trim_matches(['[', ']']).to_owned();
        let address = match info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        self.moved = info.set_addr(address).into_connection_info().and_then(Client::open).ok();
        self.moved.is_some()
    }
}

fn new_epoch() -> String {
    let drawn = RandomState::new().hash_one("epoch") | 1;
    format!("{drawn:016x}")
}

/// Appends packets until the sender is closed. A packet is repeated until it is stored.
async fn append_all(
    mut server: Server,
    keys: Keys,
    sender: String,
    options: LogOptions,
    mut packets: mpsc::Receiver<(u64, Bytes)>,
    events: mpsc::Sender<LogEvent>,
) {
    let mut connection = None;
    let mut pause = PAUSES.0;
    while let Some((number, packet)) = packets.recv().await {
        loop {
            let appended = async {
                let connection = match &mut connection {
                    Some(connection) => connection,
                    None => connection.insert(server.connect().await?),
                };
                let mut append = cmd("EVAL");
                append.arg(APPEND).arg(3).arg(&keys.stream).arg(&keys.state).arg(&sender);
                append.arg(&*packet).arg(number).arg(options.bytes);
                append.arg(u64::try_from(options.age.as_millis()).unwrap_or(u64::MAX));
                append.arg(new_epoch());
                append.query_async::<i64>(connection).await
            };
            match timeout(2 * ANSWER, appended).await {
                Ok(Ok(_)) => {
                    pause = PAUSES.0;
                    break;
                }
                Ok(Err(failure)) if server.follow(&failure).await => connection = None,
                failed => {
                    debug!(reason = ?failed, "an entry of the log was not stored; trying again");
                    connection = None;
                    if !wait_for_broker(&events, &mut pause, PAUSES.1).await {
                        return;
                    }
                }
            }
        }
        if events.send(LogEvent::Stored(number)).await.is_err() {
            return;
        }
    }
}

/// Reads the log.
struct Reader {
    keys: Keys,
    epoch: u64,
    /// Sequence of the next entry.
    next: u64,
    /// Stream id of the last entry.
    cursor: String,
    /// The server's clock in milliseconds minus this machine's.
    ahead: i64,
}

/// Entries as the server sends them: stream, then id and fields.
type Entries = Option<Vec<(String, Vec<(String, Vec<Vec<u8>>)>)>>;

impl Reader {
    async fn run(mut self, mut server: Server, events: mpsc::Sender<LogEvent>) {
        let mut pause = PAUSES.0;
        let mut reason = String::new();
        while !events.is_closed() {
            let failure = match timeout(2 * ANSWER, server.connect()).await {
                Ok(Ok(mut connection)) => {
                    let failure = self.read(&mut connection, &events).await;
                    if self.next > 1 {
                        pause = PAUSES.0;
                    }
                    failure
                }
                Ok(Err(failure)) => Some(failure),
                Err(_) => None,
            };
            if let Some(failure) = &failure
                && server.follow(failure).await
            {
                continue;
            }
            if events.send(LogEvent::Away(true)).await.is_err() {
                return;
            }
            log_once(
                &mut reason,
                failure.map_or_else(|| "no answer".into(), |failure| failure.to_string()),
            );
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Opens the log and reads until a failure.
    async fn read(
        &mut self,
        connection: &mut MultiplexedConnection,
        events: &mpsc::Sender<LogEvent>,
    ) -> Option<RedisError> {
        let mut consistent = true;
        loop {
            if let Err(failure) =
                self.open(connection, events, std::mem::replace(&mut consistent, true)).await
            {
                return Some(failure);
            }
            loop {
                let mut read = cmd("XREAD");
                read.arg("BLOCK").arg(WAIT_MILLIS).arg("COUNT").arg(ENTRIES);
                read.arg("STREAMS").arg(&self.keys.stream).arg(&self.cursor);
                let entries: Entries =
                    match timeout(WAIT + ANSWER, read.query_async(connection)).await {
                        Ok(Ok(entries)) => entries,
                        Ok(Err(failure)) => return Some(failure),
                        Err(_) => return None,
                    };
                let Some(entries) = entries else { break };
                for (id, fields) in entries.into_iter().flat_map(|(_, entries)| entries) {
                    consistent = match self.entry(&id, fields) {
                        Some(event) => {
                            if events.send(event).await.is_err() {
                                return None;
                            }
                            true
                        }
                        None => false,
                    };
                    if !consistent {
                        break;
                    }
                }
                if !consistent {
                    break;
                }
            }
        }
    }

    /// Checks the state of the log, and reports it if the reader cannot go on where it was. `consistent`: the last entry was
    /// the next one.
    async fn open(
        &mut self,
        connection: &mut MultiplexedConnection,
        events: &mpsc::Sender<LogEvent>,
        consistent: bool,
    ) -> Result<(), RedisError> {
        let (mut epoch, mut first, mut last, time) = self.state(connection, "").await?;
        let is_shorter = last < self.next - 1;
        // Others have added to an older state what has the numbers of entries that this node has applied.
        let is_other = !consistent && first <= self.next;
        if self.epoch == parsed(&epoch) && (is_shorter || is_other) {
            // The server came back with an older state. Other nodes may not have noticed it.
            (epoch, first, last, _) = self.state(connection, &epoch).await?;
        }
        let here = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let here = here.map_or(0, |here| i64::try_from(here.as_millis()).unwrap_or(0));
        self.ahead = time - here;
        if self.epoch != parsed(&epoch) || first > self.next {
            self.epoch = parsed(&epoch);
            self.next = first;
            self.cursor = String::from("0-0");
        }
        let opened = LogEvent::Opened { epoch: self.epoch, first: first.min(self.next), last };
        let _closed = events.send(opened).await;
        Ok(())
    }

    async fn state(
        &self,
        connection: &mut MultiplexedConnection,
        end: &str,
    ) -> Result<(String, u64, u64, i64), RedisError> {
        let mut open = cmd("EVAL");
        open.arg(OPEN).arg(2).arg(&self.keys.stream).arg(&self.keys.state);
        open.arg(new_epoch()).arg(end);
        open.query_async(connection).await
    }

    /// Reads an entry; returns `None` if it is not the next one.
    fn entry(&mut self, id: &str, fields: Vec<Vec<u8>>) -> Option<LogEvent> {
        let [_, sequence, _, epoch, _, _, _, packet] = <[Vec<u8>; 8]>::try_from(fields).ok()?;
        let sequence: u64 = str::from_utf8(&sequence).ok()?.parse().ok()?;
        if sequence != self.next || parsed(str::from_utf8(&epoch).ok()?) != self.epoch {
            return None;
        }
        let added: i64 = id.split_once('-')?.0.parse().ok()?;
        let here = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()?;
        let now = i64::try_from(here.as_millis()).ok()? + self.ahead;
        let age = Duration::from_millis(u64::try_from(now - added).unwrap_or(0));
        self.next += 1;
        id.clone_into(&mut self.cursor);
        Some(LogEvent::Entry { sequence, age, packet: packet.into() })
    }
}

fn parsed(epoch: &str) -> u64 {
    u64::from_str_radix(epoch, 16).unwrap_or(1)
}
