//! Tests static files, and what must never be served as one.

use std::path::Path;

use crate::support::Server;

fn fill(root: &Path) {
    for (path, contents) in [
        ("app.css", "body{}"),
        ("app.js", "0123456789"),
        ("app.js.br", "brotli"),
        ("app.js.gz", "gzip"),
        ("photo.png", "png"),
        ("docs/index.html", "docs"),
        ("old.php", "<?php secret"),
        (".env", "secret"),
        ("hearth.toml", "secret"),
        (".git/config", "secret"),
        (".well-known/security.txt", "contact"),
        ("config.php.bak", "secret"),
        ("Upper.PHP", "secret"),
        ("lib.phtml", "secret"),
        ("db.inc", "secret"),
        ("a b.txt", "space"),
    ] {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
    }
    std::fs::write(root.parent().unwrap().join("outside-of-the-root"), "secret").unwrap();
}

async fn server() -> Server {
    Server::with(|options, root| {
        let public = root.join("public");
        std::fs::create_dir(&public).unwrap();
        std::fs::write(public.join("index.php"), "<?php").unwrap();
        fill(&public);
        options.document_root = public;
    })
    .await
}

#[tokio::test]
async fn no_request_reads_a_file_that_is_not_public() {
    let server = server().await;
    for path in [
        "/.env",
        "/%2eenv",
        "/hearth.toml",
        "/HEARTH.toml",
        "/docs/../hearth.toml",
        "/.git/config",
        "/docs/../.env",
        "//.env",
        "/./.env",
        "/.env/",
        "/.git",
        "/.git/",
        "/config.php.bak",
        "/Upper.PHP",
        "/lib.phtml",
        "/db.inc",
        "/old.php",
        "/OLD.PHP",
        "/old.php.",
        "/old.php%20",
        "/old.php/",
        "/old.php/x.css",
        "/old.php%00.css",
        "/old.php::$DATA",
        "/old.php~",
        "/../outside-of-the-root",
        "/docs/../../outside-of-the-root",
        "/%2e%2e/outside-of-the-root",
        "/..%2foutside-of-the-root",
        "/docs/..%2f..%2foutside-of-the-root",
        "/..%5coutside-of-the-root",
        "/docs/%2e%2e/%2e%2e/outside-of-the-root",
        "/....//outside-of-the-root",
        "/..;/outside-of-the-root",
        "/%252e%252e/outside-of-the-root",
        "/docs/..\\..\\outside-of-the-root",
        "/%c0%ae%c0%ae/outside-of-the-root",
        "/index.php",
        "/index.php.bak",
        "/%2fetc%2fpasswd",
        "//etc/passwd",
        "/docs//../../../etc/passwd",
    ] {
        let reply = server.get(path).await;
        let text = reply.text();
        assert!(
            !text.contains("secret") && !text.contains("<?php") && !text.contains("root:"),
            "{path}: {text}"
        );
        assert!(reply.field("etag").is_none(), "{path} was served as a file: {}", reply.head);
    }
}

#[tokio::test]
async fn files_come_with_type_length_date_and_tag() {
    let server = server().await;
    for (path, kind, body) in [
        ("/app.css", "text/css; charset=utf-8", "body{}"),
        ("/photo.png", "image/png", "png"),
        ("/docs/", "text/html; charset=utf-8", "docs"),
        ("/a%20b.txt", "text/plain; charset=utf-8", "space"),
        ("/.well-known/security.txt", "text/plain; charset=utf-8", "contact"),
        ("/docs/../app.css?v=1", "text/css; charset=utf-8", "body{}"),
    ] {
        let reply = server.get(path).await;
        assert_eq!((reply.status, reply.text().as_str()), (200, body), "{path}");
        assert_eq!(reply.field("content-type").as_deref(), Some(kind), "{path}");
        assert_eq!(reply.field("content-length"), Some(body.len().to_string()));
        assert_eq!(reply.field("accept-ranges").as_deref(), Some("bytes"));
        assert!(reply.field("last-modified").is_some() && reply.field("etag").is_some());
        assert_eq!(reply.field("cache-control"), None);
    }
}

#[tokio::test]
async fn a_directory_redirects_to_its_slash_on_the_same_site() {
    let server = server().await;
    let reply = server.get("/docs?q=1").await;
    assert_eq!((reply.status, reply.field("location").as_deref()), (301, Some("/docs/?q=1")));
    let reply = server.get("//docs").await;
    assert_eq!((reply.status, reply.field("location").as_deref()), (301, Some("/docs/")));
}

#[tokio::test]
async fn an_unchanged_file_is_answered_with_304() {
    let server = server().await;
    let first = server.get("/app.css").await;
    let (etag, date) = (first.field("etag").unwrap(), first.field("last-modified").unwrap());
    for fields in [
        format!("If-None-Match: {etag}"),
        format!("If-None-Match: \"x\", {etag}"),
        format!("If-Modified-Since: {date}"),
    ] {
        let reply = server.get_with("/app.css", &fields).await;
        assert_eq!((reply.status, reply.text().as_str()), (304, ""), "{fields}");
        assert_eq!(reply.field("etag").as_ref(), Some(&etag));
    }
    let reply = server.get_with("/app.css", "If-None-Match: \"x\"").await;
    assert_eq!(reply.status, 200);
    assert_eq!(server.get_with("/app.css", "If-Match: \"x\"").await.status, 412);
}

#[tokio::test]
async fn a_range_is_sent_alone() {
    let server = server().await;
    for (range, status, content_range, body) in [
        ("bytes=0-3", 206, Some("bytes 0-3/10"), "0123"),
        ("bytes=7-", 206, Some("bytes 7-9/10"), "789"),
        ("bytes=-2", 206, Some("bytes 8-9/10"), "89"),
        ("bytes=5-99", 206, Some("bytes 5-9/10"), "56789"),
        ("bytes=10-", 416, Some("bytes */10"), ""),
        ("bytes=0-1,3-4", 200, None, "0123456789"),
        ("bytes=x", 200, None, "0123456789"),
    ] {
        let reply = server.get_with("/app.js", &format!("Range: {range}")).await;
        assert_eq!((reply.status, reply.text().as_str()), (status, body), "{range}");
        assert_eq!(reply.field("content-range").as_deref(), content_range, "{range}");
    }
    let etag = server.get("/app.js").await.field("etag").unwrap();
    let reply = server.get_with("/app.js", &format!("Range: bytes=0-3\r\nIf-Range: {etag}")).await;
    assert_eq!(reply.status, 206);
    let reply = server.get_with("/app.js", "Range: bytes=0-3\r\nIf-Range: \"old\"").await;
    assert_eq!((reply.status, reply.text().as_str()), (200, "0123456789"));
}

#[tokio::test]
async fn a_precompressed_file_is_sent_to_clients_that_accept_it() {
    let server = server().await;
    for (accept, coding, body) in [
        ("gzip, br", Some("br"), "brotli"),
        ("gzip", Some("gzip"), "gzip"),
        ("br;q=0.1, gzip", Some("gzip"), "gzip"),
        ("br;q=0", None, "0123456789"),
        ("zstd", None, "0123456789"),
        ("identity", None, "0123456789"),
    ] {
        let reply = server.get_with("/app.js", &format!("Accept-Encoding: {accept}")).await;
        assert_eq!(
            (reply.field("content-encoding").as_deref(), reply.text().as_str()),
            (coding, body),
            "{accept}"
        );
        assert_eq!(reply.field("vary").as_deref(), Some("accept-encoding"), "{accept}");
        assert_eq!(reply.field("content-type").as_deref(), Some("text/javascript; charset=utf-8"));
    }
    let plain = server.get("/app.js").await.field("etag");
    let brotli = server.get_with("/app.js", "Accept-Encoding: br").await.field("etag");
    assert_ne!(plain, brotli);
    assert_eq!(server.get_with("/app.css", "Accept-Encoding: br").await.field("vary"), None);
}

#[tokio::test]
async fn only_get_and_head_read_files() {
    let server = server().await;
    let mut client = server.connect().await;
    client.send("HEAD /app.css HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let head = client.head().await;
    assert_eq!((head.status, head.field("content-length").as_deref()), (200, Some("6")));
    client.send("POST /app.css HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.field("allow").as_deref()), (405, Some("GET, HEAD")));
    client.send("POST /other HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(client.reply().await.text(), "app /other");
}

#[tokio::test]
async fn a_large_file_arrives_whole() {
    let server = server().await;
    let contents: Vec<u8> = (0_u32..1 << 20).flat_map(u32::to_le_bytes).collect();
    server.write("public/large.bin", &contents);
    let reply = server.get("/large.bin").await;
    assert!(reply.body == contents, "{} of {} bytes", reply.body.len(), contents.len());
    let reply = server.get_with("/large.bin", "Range: bytes=1000000-3000000").await;
    assert!(reply.body == contents[1_000_000..=3_000_000]);
}

#[tokio::test]
async fn a_fifo_is_no_file_and_blocks_no_request() {
    let server = server().await;
    let path = server.root.path().join("public/pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o644)).unwrap();
    assert_eq!(server.get("/pipe").await.text(), "app /pipe");
}

#[tokio::test]
async fn cache_control_is_as_configured() {
    let server = Server::with(|options, _| {
        options.cache_control = Some("public, max-age=60".to_owned());
    })
    .await;
    server.write("a.css", "a");
    assert_eq!(
        server.get("/a.css").await.field("cache-control").as_deref(),
        Some("public, max-age=60")
    );
}

#[tokio::test]
async fn php_may_send_a_file_of_the_configured_folder() {
    let server = Server::with(|options, root| {
        let directory = root.join("protected");
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("a.bin"), "0123456789").unwrap();
        options.sendfile =
            vec![front_http::SendfileRoot { prefix: "/protected/".to_owned(), directory }];
    })
    .await;
    let root = server.root.path().canonicalize().unwrap();
    let path = format!("/file?{}/protected/a.bin", root.display());
    let reply = server.get(&path).await;
    assert_eq!((reply.status, reply.text().as_str()), (200, "0123456789"));
    assert_eq!(reply.field("content-type").as_deref(), Some("application/pdf"));
    assert_eq!(reply.field("x-sendfile"), None);
    let reply = server.get_with(&path, "Range: bytes=2-4").await;
    assert_eq!((reply.status, reply.text().as_str()), (206, "234"));
    let reply = server.get(&format!("/file?{}/index.php", root.display())).await;
    assert_eq!(reply.status, 404);
    assert!(!reply.text().contains("php"));
}

#[tokio::test]
async fn scripts_are_named_as_php_expects() {
    let server = server().await;
    let described = |uri: &str| {
        let server = &server;
        let request = format!("GET /describe{uri} HTTP/1.1\r\nHost: a.example:99\r\n\r\n");
        async move { server.ask(&request).await.json() }
    };
    let told = described("?a=1").await;
    assert_eq!(told["script"], "/index.php");
    assert_eq!(told["path_info"], "");
    assert_eq!(told["uri"], "/describe?a=1");
    assert_eq!(told["server_name"], "a.example");
    assert_eq!(told["server_port"], server.address().port());
    assert!(told["filename"].as_str().unwrap().ends_with("/public/index.php"));
}
