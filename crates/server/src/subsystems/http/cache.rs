//! The answer cache as operators see it.

use front_http::CacheReport;

use crate::ops::metric::metrics_table;
use crate::ops::problems::{Level, Problems};

/// The number of requests from which a hit rate says something.
const TELLING: u64 = 1000;

pub(super) fn set_metrics(report: &CacheReport) {
    metrics_table! { &[];
        counter "hearth_cache_hits_total" = report.hits, "Requests answered by a fresh stored answer";
        counter "hearth_cache_misses_total" = report.misses, "Requests that PHP answered because no usable answer was stored";
        counter "hearth_cache_bypassed_total" = report.bypassed, "Requests in which the cache took no part: cookies, methods, bodies";
        counter "hearth_cache_stale_total" = report.stale, "Requests answered by a stale answer: while PHP made the next one, or because PHP failed";
        counter "hearth_cache_revalidated_total" = report.revalidated, "Stored answers that PHP confirmed (304)";
        counter "hearth_cache_collapsed_total" = report.collapsed, "Requests that waited for the answer to another one, and were answered by it";
        counter "hearth_cache_stored_total" = report.stored, "Answers that were stored";
        counter "hearth_cache_evictions_total" = report.evicted, "Stored answers that went because memory was needed";
        counter "hearth_cache_purges_total" = report.purges, "Purges, and unsafe requests that made stored answers invalid";
        gauge "hearth_cache_bytes" = report.bytes, "Memory of stored answers";
        gauge "hearth_cache_bytes_limit" = report.limit, "Memory that stored answers may take";
        gauge "hearth_cache_entries" = report.entries, "Stored answers in memory, their compressed forms included";
    }
    if let Some(disk) = &report.disk {
        metrics_table! { &[];
            counter "hearth_cache_disk_hits_total" = disk.hits, "Stored answers that were read from disk";
            counter "hearth_cache_disk_written_total" = disk.written, "Stored answers that were written to disk";
            counter "hearth_cache_disk_dropped_total" = disk.dropped, "Stored answers that were dropped because the disk was too slow";
            counter "hearth_cache_disk_failed_total" = disk.failed, "Stored answers that could not be written to disk or read from it";
            gauge "hearth_cache_disk_bytes" = disk.bytes, "Space of stored answers on disk";
            gauge "hearth_cache_disk_bytes_limit" = disk.limit, "Space that stored answers may take on disk";
            gauge "hearth_cache_disk_entries" = disk.entries, "Stored answers on disk";
        }
    }
}

/// Adds the problem of a cache that is on and stores nothing.
pub(super) fn problems_of(report: &CacheReport, problems: &mut Problems) {
    if report.misses > TELLING && report.stored == 0 {
        let text = "The answer cache is on, and no answer could be stored: `Cache-Status` of an answer says why (docs/guide/cache.md).";
        problems.add(Level::Warning, text);
    }
    if report.disk.is_none() && report.evicted > report.hits && report.evicted > TELLING {
        let text = "The answer cache evicts more answers than it sends: `http.cache_memory` is too small for what is stored, or set `http.cache_disk`.";
        problems.add(Level::Warning, text);
    }
    if report.disk.is_some_and(|disk| disk.failed > 0) {
        let text = "Answers could not be written to `http.cache_disk` or read from it: the log has the error. PHP makes them again.";
        problems.add(Level::Warning, text);
    }
}
