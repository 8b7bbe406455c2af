//! Tests the rotation of the access log file.

use std::path::Path;
use std::time::Duration;

use crate::support::{LONG, Server};

/// Waits until the file has that many complete lines.
async fn lines_of(path: &Path, count: usize) -> Vec<String> {
    let all = async {
        loop {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            if text.is_empty() == (count == 0) && text.lines().count() == count && path.exists() {
                return text.lines().map(str::to_owned).collect();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LONG, all).await.expect("the lines get there")
}

#[tokio::test]
async fn a_renamed_access_log_is_reopened_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    std::fs::create_dir(at("logs")).unwrap();
    let mut server = Server::with(|options, _| {
        options.access_log = Some(front_http::AccessLog {
            format: front_http::AccessLogFormat::Common,
            target: front_http::AccessLogTarget::File(at("logs/a.log")),
        });
    })
    .await;
    let log = server.access_log.clone().unwrap();
    server.get("/1").await;
    lines_of(&at("logs/a.log"), 1).await;
    std::fs::rename(at("logs/a.log"), at("logs/a.log.1")).unwrap();
    server.get("/2").await;
    lines_of(&at("logs/a.log.1"), 2).await;
    // It also reopens without a request, because log rotation may check that the file exists.
    log.reopen();
    lines_of(&at("logs/a.log"), 0).await;
    server.get("/3").await;
    assert!(lines_of(&at("logs/a.log"), 1).await[0].contains(" /3 "));
    // If it cannot be reopened, the old file is still used.
    std::fs::rename(at("logs"), at("away")).unwrap();
    log.reopen();
    server.get("/4").await;
    assert!(lines_of(&at("away/a.log"), 2).await[1].contains(" /4 "));
    std::fs::create_dir(at("logs")).unwrap();
    log.reopen();
    server.get("/5").await;
    assert!(lines_of(&at("logs/a.log"), 1).await[0].contains(" /5 "));
    assert_eq!(lines_of(&at("away/a.log.1"), 2).await.len(), 2);
    // An existing handle does not delay the end.
    server.begin_stop();
    server.ended().await;
    log.reopen();
}

#[tokio::test]
async fn only_regular_files_are_reopened() {
    let server = Server::with(|options, _| {
        options.access_log = Some(front_http::AccessLog {
            format: front_http::AccessLogFormat::Common,
            target: front_http::AccessLogTarget::Stderr,
        });
    })
    .await;
    assert!(server.access_log.is_none());
}
