//! Event streams, compression, and limits of descriptors.

use super::*;

#[test]
fn an_event_stream_receives_what_sockets_receive() {
    let site = Site::empty().with_file("public/index.php", PUBLISH);
    let hearth = Serve::new(site.path()).args(APP).workers(1).start();
    let mut stream = TcpStream::connect(hearth.address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let request = "GET /app/key/sse?channels=news HTTP/1.1\r\nHost: a\r\n\r\n";
    std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
    let mut text = String::new();
    let mut read_until = |part: &str| {
        while !text.contains(part) {
            let mut buffer = [0; 4096];
            let length = std::io::Read::read(&mut stream, &mut buffer).unwrap();
            assert_ne!(length, 0, "it broke off: {text}");
            text.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
        }
    };
    read_until("text/event-stream");
    read_until("subscription_succeeded");
    hearth.get("/?n=7");
    read_until("\\\"n\\\":7");
    // A rejected client gets a status; a path with another key belongs to the application.
    assert_ne!(hearth.get("/app/key/sse?channels=private-a").status, 200);
    assert!(hearth.get("/app/other/sse").text().starts_with('['));
}

#[test]
fn a_private_event_stream_needs_an_issued_id_and_logs_no_signature() {
    let site = Site::empty().with_file("public/index.php", PUBLISH);
    let hearth =
        Serve::new(site.path()).args(APP).args(&["--access-log", "json"]).workers(1).start();
    let answer = hearth.get("/app/key/sse/id");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let id: Value = serde_json::from_str(&answer.text()).unwrap();
    let id = id["socket_id"].as_str().unwrap();
    let query = |id: &str, auth: &str| format!("channels=private-a&socket_id={id}&auth={auth}");
    let answer = hearth.get(&format!("/app/key/sse?{}", query(id, "key:secret")));
    assert_eq!(answer.status, 403);
    assert!(answer.text().contains("no channel to hear"), "{}", answer.text());
    let answer = hearth.get(&format!("/app/key/sse?{}", query("1.2", "key:secret")));
    assert_eq!(answer.status, 403);
    assert!(answer.text().contains("socket_id is not one"), "{}", answer.text());
    for id in [id, "1.2"] {
        let entry = hearth.log_line(&format!("socket_id={id}"));
        assert_eq!(entry["url.query"], query(id, "***"));
    }
}

#[test]
fn a_cross_site_event_stream_needs_an_origin() {
    let config = "[realtime.apps.1]\nkey = \"key\"\nsecret = \"s\"\norigins = [\"shop.example\"]\n";
    let site = Site::empty().with_file("public/index.php", "").with_file("hearth.toml", config);
    let hearth = Serve::new(site.path()).workers(1).start();
    // Without a channel, because an accepted client would get an endless stream.
    for target in ["/app/key/sse/id", "/app/key/sse"] {
        let status = |fields: &[(&str, &str)]| {
            let answer = hearth.connect().request("GET", target, fields, b"").unwrap();
            (answer.status, answer.text().contains("no channel to hear"))
        };
        let let_in = status(&[]);
        assert_eq!(let_in, if target.ends_with("id") { (200, false) } else { (403, true) });
        for (site, expected) in [
            ("same-origin", let_in),
            ("none", let_in),
            ("same-site", (403, false)),
            ("cross-site", (403, false)),
        ] {
            assert_eq!(status(&[("Sec-Fetch-Site", site)]), expected, "{site}");
        }
        let page = ("Origin", "https://shop.example");
        assert_eq!(status(&[page, ("Sec-Fetch-Site", "cross-site")]), let_in);
    }
}

#[test]
fn messages_are_compressed_if_set_and_offered() {
    let config = "[realtime]\ndeflate = \"20B\"\n";
    let site = Site::empty().with_file("public/index.php", "").with_file("hearth.toml", config);
    let compressing = Serve::new(site.path()).args(APP).workers(1).start();
    let site = Site::empty().with_file("public/index.php", "");
    let plain = Serve::new(site.path()).args(APP).workers(1).start();

    let offer = "Sec-WebSocket-Extensions: permessage-deflate\r\n";
    for (hearth, offer, first) in [
        // The first byte of a frame: FIN, text, and RSV1 for a compressed message (RFC 7692, 6).
        (&compressing, offer, 0xc1),
        (&compressing, "", 0x81),
        (&plain, offer, 0x81),
    ] {
        let mut stream = TcpStream::connect(hearth.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let head = format!(
            "GET /app/key?protocol=7 HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{offer}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let end = loop {
            let mut piece = [0; 1024];
            let read = stream.read(&mut piece).unwrap();
            assert!(read > 0, "it ends with {:?}", answer.escape_ascii().to_string());
            answer.extend_from_slice(&piece[..read]);
            let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
            if let Some(end) = end.filter(|end| answer.len() > end + 4) {
                break end + 4;
            }
        };
        let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
        assert!(head.starts_with("http/1.1 101 "), "{head}");
        assert_eq!(head.contains("permessage-deflate"), first == 0xc1, "{head}");
        assert_eq!(answer[end], first, "{head}");
    }
}

#[test]
fn the_channels_command_trusts_a_proxy_about_tls() {
    let folder = tempfile::tempdir().unwrap();
    let settings = |trusted: &str| {
        format!(
            "[http]\nlisten = [\"127.0.0.1:0\"]\n{trusted}\n[realtime.apps.1]\nkey = \"key\"\nsecret = \"secret\"\n\
             require_tls = true\n"
        )
    };
    let start = |trusted: &str| {
        let file = folder.path().join("hearth.toml");
        std::fs::write(&file, settings(trusted)).unwrap();
        let mut channels = crate::hearth::command();
        channels.current_dir(folder.path()).args(["channels", "--admin", "127.0.0.1:0"]);
        let process = Running::start(channels.arg("--config").arg(&file));
        let ready = |line: &str| line.strip_prefix("hearth: ready on http://")?.parse().ok();
        let address: SocketAddr = process.log().find(LIMIT, ready).unwrap();
        (process, address)
    };
    let tls = [("x-forwarded-proto", "https")];
    let (_trusting, address) = start("trusted_proxies = [\"127.0.0.1\"]");
    assert_eq!(
        Client::open_through(address, "key", &tls).next().0,
        "pusher:connection_established"
    );
    assert_eq!(Client::open_through(address, "key", &[]).closed(), 4000);
    let (_distrusting, address) = start("");
    assert_eq!(Client::open_through(address, "key", &tls).closed(), 4000);
}

#[test]
fn event_streams_leave_descriptors_to_everything_else() {
    let site = Site::empty().with_file("public/index.php", "<?php echo 'there';");
    let limited = ["sh", "-c", "ulimit -n 600; exec \"$0\" \"$@\""];
    let serve = Serve::new(site.path()).args(APP).workers(1);
    let hearth = serve.through(&limited, &[]).start();
    let mut open = Vec::new();
    // Three quarters of the descriptors are for clients, and each of these clients needs three.
    let refused = (0..600).find_map(|_| {
        let mut stream = TcpStream::connect(hearth.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let request = "GET /app/key/sse?channels=news HTTP/1.1\r\nHost: a\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        if head.ends_with(b"200") {
            open.push(stream);
            return None;
        }
        Some(String::from_utf8(head.to_vec()).unwrap())
    });
    assert_eq!(refused.as_deref(), Some("HTTP/1.1 503"));
    assert_eq!(open.len(), 150);
    assert_eq!(Client::open(&hearth, "key").closed(), 4100);
    assert_eq!(hearth.get("/").text(), "there");
    drop(open);
    eventually("there is room again", LIMIT, || {
        Client::open(&hearth, "key").next().0 == "pusher:connection_established"
    });
}

/// Starts `hearth channels` with a limit on open files.
fn channels_with_descriptors(count: usize) -> Running {
    let hearth = crate::hearth::command();
    let mut shell = std::process::Command::new("sh");
    shell.env_clear().envs(hearth.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let script = format!(
        "ulimit -n {count}; exec {} channels --app 1:key:secret --listen 127.0.0.1:0 --admin 127.0.0.1:0",
        hearth.get_program().display()
    );
    shell.args(["-c", &script]).current_dir(std::env::temp_dir());
    Running::start(&mut shell)
}

#[test]
fn with_few_descriptors_as_many_clients_as_fit_are_served() {
    let process = channels_with_descriptors(300);
    let find = |prefix: &'static str| {
        process.log().find(LIMIT, |line| Some(line.strip_prefix(prefix)?.to_owned())).unwrap()
    };
    let url = find("hearth: ready on ");
    let admin = find("hearth: admin on http://").parse().unwrap();
    let address = url.strip_prefix("http://").unwrap().parse().unwrap();
    let hearth = Hearth { process, address, url, admin };
    assert!(hearth.log().text().contains("the limit of open files is low"));
    let mut clients: Vec<Client> = (0..225).map(|_| Client::open(&hearth, "key")).collect();
    assert!(clients.iter_mut().all(|client| client.next().0 == "pusher:connection_established"));
    let mut one_more = Client::open(&hearth, "key");
    assert_eq!(one_more.next().0, "pusher:error");
    assert_eq!(one_more.closed(), 4100);
    clients.pop();
    eventually("its place is free", LIMIT, || {
        Client::open(&hearth, "key").next().0 == "pusher:connection_established"
    });
    let mut too_few = channels_with_descriptors(100);
    let (status, said) = too_few.finish(LIMIT);
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("too low for realtime"), "{said}");
}
