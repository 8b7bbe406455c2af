//! Tests the information from proxies and the rules of trust.

use std::net::SocketAddr;

use front_http::TrustedHeaders;

use crate::support::Server;

const FIELDS: &str = "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: shop.example\r\nX-Request-Id: from-proxy";

#[tokio::test]
async fn an_untrusted_proxy_is_ignored() {
    let server = Server::start().await;
    let reply = server.get_with("/describe", FIELDS).await;
    let told = reply.json();
    let remote: SocketAddr = told["remote"].as_str().unwrap().parse().unwrap();
    assert!(remote.ip().is_loopback());
    assert_eq!(told["scheme"], "Http");
    assert_eq!(told["server_name"], "a.example");
    assert_ne!(reply.field("x-request-id").as_deref(), Some("from-proxy"));
}

/// Starts a front that trusts this machine in these fields.
async fn trusting(names: &[&str]) -> Server {
    Server::with(|options, _| {
        options.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
        let headers = names.iter().map(|name| name.parse().unwrap());
        options.trusted_headers = TrustedHeaders::new(headers).unwrap();
    })
    .await
}

/// Starts a front with the default trusted fields.
async fn trusting_by_default() -> Server {
    Server::with(|options, _| options.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()]).await
}

fn names(told: &serde_json::Value) -> Vec<&str> {
    let fields = told["headers"].as_array().unwrap();
    fields.iter().map(|field| field[0].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_trusted_proxys_named_fields_are_used() {
    let server = trusting(&[
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-request-id",
    ])
    .await;
    let reply = server.get_with("/describe", FIELDS).await;
    let told = reply.json();
    assert_eq!(told["remote"], "203.0.113.9:0");
    assert_eq!(told["scheme"], "Https");
    assert_eq!(told["server_name"], "shop.example");
    assert_eq!(told["server_port"], 443);
    assert_eq!(told["id"], "from-proxy");
    assert_eq!(reply.field("x-request-id").as_deref(), Some("from-proxy"));
    let told = trusting(&["forwarded"])
        .await
        .get_with(
            "/describe",
            "Forwarded: for=\"[2001:db8::1]:80\";proto=https;host=\"a.example:8443\"",
        )
        .await
        .json();
    assert_eq!(told["remote"], "[2001:db8::1]:80");
    assert_eq!(
        (told["server_name"].as_str(), told["server_port"].as_u64()),
        (Some("a.example"), Some(8443))
    );
}

#[tokio::test]
async fn by_default_only_address_and_scheme_are_trusted() {
    let server = trusting_by_default().await;
    let fields = format!("{FIELDS}\r\nX-Forwarded-Port: 1\r\nForwarded: host=intern.example");
    let reply = server.get_with("/describe", &fields).await;
    let told = reply.json();
    assert_eq!((&told["remote"], &told["scheme"]), (&"203.0.113.9:0".into(), &"Https".into()));
    assert_eq!((&told["server_name"], &told["server_port"]), (&"a.example".into(), &443.into()));
    assert_ne!(reply.field("x-request-id").as_deref(), Some("from-proxy"));
    // PHP frameworks read these fields by themselves.
    assert_eq!(names(&told), ["host", "x-forwarded-for", "x-forwarded-proto", "x-request-id"]);
    let told = server.get_with("/describe", "Forwarded: for=203.0.113.9;proto=https").await.json();
    let remote: SocketAddr = told["remote"].as_str().unwrap().parse().unwrap();
    assert!(remote.ip().is_loopback());
    assert_eq!((&told["scheme"], names(&told)), (&"Http".into(), vec!["host"]));
}

#[tokio::test]
async fn a_trusted_proxys_contradictions_become_400() {
    let contradictions = [
        "Forwarded: for=198.51.100.1\r\nX-Forwarded-For: 203.0.113.9",
        "Forwarded: proto=https\r\nX-Forwarded-Proto: http",
        "X-Forwarded-For: 203.0.113.9\r\nForwarded: for=203.0.113.9, for=198.51.100.1",
    ];
    for server in [trusting_by_default().await, trusting(&["forwarded"]).await] {
        for fields in contradictions {
            let mut client = server.connect().await;
            client.send(format!("GET /a HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n")).await;
            let reply = client.reply().await;
            assert_eq!(reply.status, 400, "{fields}");
            assert!(reply.text().contains("contradict"), "{}", reply.text());
            // The proxy sends requests of other clients over the same connection.
            client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n").await;
            assert_eq!(client.reply().await.status, 200);
        }
        let agreeing = "Forwarded: for=203.0.113.9;proto=https\r\nX-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https";
        let told = server.get_with("/describe", agreeing).await.json();
        assert_eq!((&told["remote"], &told["scheme"]), (&"203.0.113.9:0".into(), &"Https".into()));
    }
    let stranger = Server::start().await;
    for fields in contradictions {
        assert_eq!(stranger.get_with("/a", fields).await.status, 200, "{fields}");
    }
}

#[tokio::test]
async fn an_invalid_forwarded_host_is_ignored() {
    let server = trusting(&["x-forwarded-host"]).await;
    let told = server.get_with("/describe", "X-Forwarded-Host: <script>").await.json();
    assert_eq!(told["server_name"], "a.example");
}

#[tokio::test]
async fn ambiguous_field_names_never_reach_php() {
    let server = Server::start().await;
    let told = server
        .get_with("/describe", "Proxy: http://evil\r\nX_Forwarded_For: 1.1.1.1\r\nX-Kept: 1")
        .await
        .json();
    assert_eq!(told["headers"], serde_json::json!([["host", "a.example"], ["x-kept", "1"]]));
}

#[tokio::test]
async fn the_proxy_protocol_names_the_client() {
    let server = Server::with(|options, _| options.proxy_protocol = true).await;
    let request = "GET /describe HTTP/1.1\r\nHost: x\r\n\r\n";
    let told =
        server.ask(&format!("PROXY TCP4 203.0.113.9 192.0.2.1 4711 443\r\n{request}")).await.json();
    assert_eq!(told["remote"], "203.0.113.9:4711");
    assert_eq!(told["local_port"], 443);
    let mut client = server.connect().await;
    client.send("PROXY UNKNOWN\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(client.reply().await.text(), "app /a");
    let mut client = server.connect().await;
    client.send(request).await;
    assert_eq!(client.rest().await, b"");
}

#[tokio::test]
async fn proxy_protocol_clients_are_not_trusted_as_proxies() {
    let server = Server::with(|options, _| {
        options.proxy_protocol = true;
        options.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    })
    .await;
    let told = server
        .ask(
            "PROXY TCP4 203.0.113.9 192.0.2.1 4711 443\r\nGET /describe HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 1.1.1.1\r\n\r\n",
        )
        .await
        .json();
    assert_eq!(told["remote"], "203.0.113.9:4711");
}
