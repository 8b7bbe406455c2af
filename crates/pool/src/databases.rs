//! The workers' database connections that stay open across requests (model `snapshot`), as reported in the workers'
//! shared counters.
//!
//! Invariants
//! - Counters are written by workers and not trusted: text is bounded and numbers are only added up.
//! - At most [`SERVERS`] servers are listed separately; the sums include all.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Serialize, Serializer};

/// Layout defined in `native/sapi/request/shared_counters.h`: offset of the connections, their number, size of each.
const CONNECTIONS: usize = 160;
const COUNT: usize = 16;
const EACH: usize = 608;
/// Histogram of reset times: four buckets for each power of two of microseconds.
const BUCKETS: usize = 80;
/// End of the connections in the shared counters.
pub(crate) const END: usize = CONNECTIONS + COUNT * EACH;
/// Maximum number of servers listed separately.
const SERVERS: usize = 32;
/// Maximum number of reasons listed for each.
const REASONS: usize = 32;

const KEPT: u64 = 1;
const REFUSED: u64 = 2;
const FAILED: u64 = 3;

/// Database connections that workers keep across requests (model `snapshot`), all workers together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DatabaseStatus {
    /// Currently open connections.
    pub kept: u64,
    /// Sessions reset after a request, since the start.
    pub resets: u64,
    /// Total time of those resets in seconds, from sending the reset to the server's proof. The worker restored
    /// itself in the meantime.
    pub reset_seconds: f64,
    /// Workers that ended because of such a connection, since the start.
    pub retired: u64,
    /// The numbers above by server, sorted by name.
    pub servers: Vec<DatabaseServer>,
}

/// The connections to one database server.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DatabaseServer {
    /// Description, for example `a connection to 127.0.0.1:3306`.
    pub connection: String,
    /// `MySQL`, `PostgreSQL`, `Redis`, or `TLS` if the content is encrypted.
    pub protocol: String,
    /// Currently kept connections.
    pub kept: u64,
    /// Connections closed by current workers because they could not be kept.
    pub refused: u64,
    /// Reason of the last of those.
    pub refused_because: Option<String>,
    /// Sessions reset after a request, since the start.
    pub resets: u64,
    /// Duration of the resets, from sending the reset to the server's proof.
    pub reset_times: ResetTimes,
    /// Workers that ended because of this server since the start, by reason.
    pub retired: BTreeMap<String, u64>,
}

/// Durations of resets. Serialized as p50, p99 and the longest, in microseconds.
#[derive(Clone, Debug)]
pub struct ResetTimes {
    buckets: [u64; BUCKETS],
    longest: Duration,
}

impl Default for ResetTimes {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], longest: Duration::ZERO }
    }
}

impl ResetTimes {
    /// Returns the given quantile with an accuracy of a fifth; `None` without resets.
    #[expect(clippy::cast_precision_loss, reason = "a rank among some billions")]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank")]
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let all = self.buckets.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let rank = ((all as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.buckets.iter().position(|count| {
            seen = count.saturating_add(seen);
            seen >= rank
        })?;
        // The end of its bucket.
        let (power, quarter) = ((found + 1) / 4, (found + 1) % 4);
        let end = Duration::from_nanos((250 * (4 + quarter as u64)) << power);
        Some(end.min(self.longest))
    }

    /// Returns the longest duration.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    fn add(&mut self, other: &Self) {
        for (sum, count) in self.buckets.iter_mut().zip(other.buckets) {
            *sum = sum.saturating_add(count);
        }
        self.longest = self.longest.max(other.longest);
    }
}

impl Serialize for ResetTimes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Microseconds {
            p50: Option<f64>,
            p99: Option<f64>,
            longest: Option<f64>,
        }
        let of = |time: Duration| (time.as_secs_f64() * 1e7).round() / 10.0;
        Microseconds {
            p50: self.quantile(0.5).map(of),
            p99: self.quantile(0.99).map(of),
            longest: self.quantile(1.0).map(|_| of(self.longest)),
        }
        .serialize(serializer)
    }
}

impl DatabaseStatus {
    /// Parses shared counters of at least [`END`] bytes.
    pub(crate) fn of_counters(counters: &[u8]) -> Self {
        let mut status = Self::default();
        let places = counters.get(CONNECTIONS..).unwrap_or_default();
        for place in places.chunks_exact(EACH).take(COUNT) {
            let number = |at: usize| {
                u64::from_le_bytes(place[at..at + 8].try_into().expect("eight bytes are eight"))
            };
            let text = |at: usize, len: usize| {
                let bytes = place[at..at + len].split(|byte| *byte == 0).next();
                String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
            };
            let state = number(0);
            if state == 0 {
                continue;
            }
            let (resets, longest) = (number(8), Duration::from_nanos(number(24)));
            let mut times = ResetTimes { longest, ..ResetTimes::default() };
            for (sum, count) in times.buckets.iter_mut().zip(place[288..].chunks_exact(4)) {
                let count = count.try_into().expect("chunks of four are four bytes");
                *sum = u64::from(u32::from_le_bytes(count));
            }
            let why = text(192, 96);
            let (kept, refused) = (u64::from(state == KEPT), u64::from(state == REFUSED));
            let failed = u64::from(state == FAILED);
            status.kept = status.kept.saturating_add(kept);
            status.resets = status.resets.saturating_add(resets);
            status.reset_seconds += Duration::from_nanos(number(16)).as_secs_f64();
            status.retired = status.retired.saturating_add(failed);
            status.add_server(&DatabaseServer {
                connection: text(48, 144),
                protocol: text(32, 16),
                kept,
                refused,
                refused_because: (state == REFUSED).then(|| why.clone()),
                resets,
                reset_times: times,
                retired: (state == FAILED).then_some((why, 1)).into_iter().collect(),
            });
        }
        status
    }

    /// Adds the numbers of another worker.
    pub(crate) fn add(&mut self, other: &Self) {
        self.kept = self.kept.saturating_add(other.kept);
        self.resets = self.resets.saturating_add(other.resets);
        self.reset_seconds += other.reset_seconds;
        self.retired = self.retired.saturating_add(other.retired);
        for server in &other.servers {
            self.add_server(server);
        }
    }

    /// Adds the numbers of a worker that has ended.
    pub(crate) fn add_past(&mut self, mut other: Self) {
        other.kept = 0;
        for server in &mut other.servers {
            (server.kept, server.refused, server.refused_because) = (0, 0, None);
        }
        self.add(&other);
    }

    fn add_server(&mut self, other: &DatabaseServer) {
        let key = (&other.connection, &other.protocol);
        let place =
            self.servers.binary_search_by(|known| (&known.connection, &known.protocol).cmp(&key));
        let server = match place {
            Ok(at) => &mut self.servers[at],
            Err(at) if self.servers.len() < SERVERS => {
                let (connection, protocol) = (other.connection.clone(), other.protocol.clone());
                let new = DatabaseServer { connection, protocol, ..DatabaseServer::default() };
                self.servers.insert(at, new);
                &mut self.servers[at]
            }
            Err(_) => return,
        };
        server.kept = server.kept.saturating_add(other.kept);
        server.refused = server.refused.saturating_add(other.refused);
        if other.refused_because.is_some() {
            server.refused_because.clone_from(&other.refused_because);
        }
        server.resets = server.resets.saturating_add(other.resets);
        server.reset_times.add(&other.reset_times);
        for (why, count) in &other.retired {
            if server.retired.len() < REASONS || server.retired.contains_key(why) {
                *server.retired.entry(why.clone()).or_default() += count;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds shared counters with connections as a worker writes them.
    fn counters(places: &[(u64, &str, &str, &[u64])]) -> Vec<u8> {
        let mut counters = vec![0; END];
        for (index, (state, server, why, microseconds)) in places.iter().enumerate() {
            let place = &mut counters[CONNECTIONS + index * EACH..][..EACH];
            place[..8].copy_from_slice(&state.to_le_bytes());
            place[32..37].copy_from_slice(b"MySQL");
            place[48..48 + server.len()].copy_from_slice(server.as_bytes());
            place[192..192 + why.len()].copy_from_slice(why.as_bytes());
            for time in *microseconds {
                let power = time.ilog2() as usize;
                let bucket = power * 4 + ((time << 2 >> power) & 3) as usize;
                place[288 + bucket * 4] += 1;
                place[8] += 1;
            }
            let longest = microseconds.iter().max().unwrap_or(&0) * 1000;
            place[24..32].copy_from_slice(&longest.to_le_bytes());
        }
        counters
    }

    #[test]
    fn workers_add_up_by_server_and_the_ended_only_leave_what_they_counted() {
        let mut past = DatabaseStatus::default();
        let ended =
            counters(&[(FAILED, "a", "gone", &[100, 200]), (REFUSED, "b", "encrypted", &[])]);
        past.add_past(DatabaseStatus::of_counters(&ended));
        let mut all = past.clone();
        let now =
            counters(&[(KEPT, "a", "", &[100, 100, 1000]), (REFUSED, "c", "compressed", &[])]);
        all.add(&DatabaseStatus::of_counters(&now));
        assert_eq!((all.kept, all.resets, all.retired), (1, 5, 1));
        let names: Vec<_> =
            all.servers.iter().map(|s| (&*s.connection, s.kept, s.refused, s.resets)).collect();
        assert_eq!(names, [("a", 1, 0, 5), ("b", 0, 0, 0), ("c", 0, 1, 0)]);
        assert_eq!(all.servers[0].retired, BTreeMap::from([("gone".to_owned(), 1)]));
        assert_eq!(all.servers[1].refused_because, None);
        assert_eq!(all.servers[2].refused_because.as_deref(), Some("compressed"));
        let times = &all.servers[0].reset_times;
        assert_eq!(times.longest(), Duration::from_millis(1));
        // Three of five took 100 µs.
        let p50 = times.quantile(0.5).unwrap();
        assert!((100..125).contains(&p50.as_micros()), "{p50:?}");
        assert_eq!(times.quantile(1.0), Some(Duration::from_millis(1)));
    }

    #[test]
    fn counters_of_anything_are_read_without_a_panic() {
        for bytes in [vec![], vec![0xff; 40], vec![0xff; END], vec![1; END + 7]] {
            let status = DatabaseStatus::of_counters(&bytes);
            assert!(status.servers.len() <= SERVERS);
        }
    }
}
