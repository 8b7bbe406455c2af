//! Hearth behind nginx and haproxy, with the manual's configurations unchanged. Claims of a client about its address
//! are ignored.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use testkit::{Running, eventually};

use crate::hearth::{Hearth, LIMIT, Serve, Site, root};

/// The client's address. The proxy's is 127.0.0.1.
const CLIENT: &str = "127.0.0.9";

const WHO: &str =
    "<?php header('Content-Type: application/json'); echo json_encode(['who' => '@'] + $_SERVER);";

/// Every field with which a client may pretend to be another.
const CLAIMS: &[&str] = &[
    "X-Forwarded-For: 203.0.113.9",
    "X-Forwarded-Proto: https",
    "X-Forwarded-Host: intern.example",
    "X-Forwarded-Port: 1",
    "X-Request-Id: of-the-client",
    "X_Forwarded_Host: intern.example",
];

const FORWARDED: &str = "Forwarded: for=203.0.113.9;proto=https;host=intern.example";

/// Returns a page's first code block of a language after a heading.
fn block(page: &str, heading: &str, language: &str) -> String {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let (_, behind) =
        text.split_once(&format!("\n## {heading}\n")).expect("the page has the heading");
    let (_, block) =
        behind.split_once(&format!("```{language}\n")).expect("the page has the block");
    block.split_once("```").unwrap().0.to_owned()
}

/// An application `main`, and `intern`, which only requests for `intern.example` may reach.
fn site(http: &str) -> Site {
    let applications =
        "[applications.intern]\npath = \"../intern\"\nhosts = [\"intern.example\"]\n";
    Site::empty()
        .with_file("main/public/index.php", &WHO.replace('@', "main"))
        .with_file("intern/public/index.php", &WHO.replace('@', "intern"))
        .with_file("main/hearth.toml", &format!("{http}\n{applications}"))
}

fn serve(site: &Site) -> Hearth {
    Serve::new(site.path().join("main")).model("request").workers(1).start()
}

/// A proxy in front of a server; stopped when dropped.
struct Proxy {
    process: Running,
    address: SocketAddr,
    _folder: TempDir,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.process.terminate(Duration::from_secs(2));
    }
}

impl Proxy {
    /// Starts the proxy. `configure` writes a configuration for an address into a folder, and returns the program's
    /// command.
    fn start(configure: impl Fn(SocketAddr, &Path) -> Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Another program may take the port before the proxy binds it; then the next attempt uses another port.
        for _ in 0..5 {
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let mut process = Running::start(&mut configure(address, folder.path()));
            eventually("the proxy listens or ends", LIMIT, || {
                process.has_ended() || folder.path().join("pid").exists()
            });
            if !process.has_ended() {
                return Self { process, address, _folder: folder };
            }
        }
        let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        panic!("the proxy does not start: {log}")
    }

    fn nginx(block: &str, hearth: SocketAddr) -> Self {
        let server = |address: SocketAddr| {
            let placeholder = "# listen, server_name, ssl_certificate as they are";
            assert!(block.contains(placeholder) && block.contains("http://127.0.0.1:8080"));
            block
                .replace(placeholder, &format!("listen {address};"))
                .replace("127.0.0.1:8080", &hearth.to_string())
        };
        Self::start(|address, folder| {
            let place = folder.display();
            let conf = format!(
                "daemon off;\nmaster_process off;\npid {place}/pid;\nerror_log {place}/log;\nevents {{}}\nhttp {{\n access_log off;\n\
                 client_body_temp_path {place}/body;\n proxy_temp_path {place}/proxy;\n fastcgi_temp_path {place}/fastcgi;\n\
                 uwsgi_temp_path {place}/uwsgi;\n scgi_temp_path {place}/scgi;\n{}\n}}\n",
                server(address)
            );
            std::fs::write(folder.join("conf"), conf).unwrap();
            let mut command = Command::new("/usr/sbin/nginx");
            command.arg("-c").arg(folder.join("conf")).arg("-e").arg(folder.join("log"));
            command
        })
    }

    fn haproxy(block: &str, hearth: SocketAddr) -> Self {
        Self::start(|address, folder| {
            let bind = block.lines().find(|line| line.trim().starts_with("bind :443 ")).unwrap();
            let conf = block
                .replace(bind, &format!("    bind {address}"))
                .replace("127.0.0.1:8080", &hearth.to_string());
            std::fs::write(folder.join("conf"), conf).unwrap();
            let mut command = Command::new("/usr/sbin/haproxy");
            command
                .args(["-W", "-db", "-f"])
                .arg(folder.join("conf"))
                .arg("-p")
                .arg(folder.join("pid"));
            command
        })
    }

    /// Returns the status, and the variables that PHP saw.
    fn ask(&self, host: &str, claims: &[&str]) -> (u16, Value) {
        let mut command = Command::new("curl");
        command.args([
            "--silent",
            "--max-time",
            "30",
            "--interface",
            CLIENT,
            "--write-out",
            "\n%{http_code}",
        ]);
        for claim in claims {
            command.args(["--header", claim]);
        }
        command
            .args(["--header", &format!("Host: {host}")])
            .arg(format!("http://{}/", self.address));
        let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let (body, status) = output.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), serde_json::from_str(body).unwrap_or(Value::Null))
    }
}

/// Checks that `main` has answered, and that it saw the true client.
fn is_the_truth((status, server): &(u16, Value)) {
    assert_eq!((*status, &server["who"]), (200, &"main".into()), "{server}");
    assert_eq!(server["REMOTE_ADDR"], CLIENT);
    assert_eq!(server["REQUEST_SCHEME"], "http");
    assert_eq!(server["SERVER_NAME"], "shop.example");
    assert_eq!(server["SERVER_PORT"], "80");
    assert_eq!(server["HTTP_HOST"], "shop.example");
    assert_ne!(server["HEARTH_REQUEST_ID"], "of-the-client");
    for name in ["HTTPS", "HTTP_FORWARDED", "HTTP_X_FORWARDED_HOST", "HTTP_X_FORWARDED_PORT"] {
        assert_eq!(server[name], Value::Null, "{name}");
    }
}

#[test]
fn a_client_behind_nginx_cannot_forge_its_address() {
    let page = "docs/migration/php-fpm-nginx.md";
    let conf = block(page, "nginx in front", "nginx");
    let site = site(&block(page, "nginx in front", "toml"));
    let hearth = serve(&site);
    let nginx = Proxy::nginx(&conf, hearth.address);
    is_the_truth(&nginx.ask("shop.example", &[]));
    is_the_truth(&nginx.ask("shop.example", CLAIMS));
    is_the_truth(&nginx.ask("shop.example", &[CLAIMS, &[FORWARDED]].concat()));
    assert_eq!(nginx.ask("intern.example", &[]).1["who"], "intern");
}

#[test]
fn a_client_behind_haproxy_cannot_forge_its_address() {
    let page = "docs/guide/proxies.md";
    let conf = block(page, "haproxy", "haproxy");
    let site = site(&block("docs/migration/php-fpm-nginx.md", "nginx in front", "toml"));
    let hearth = serve(&site);
    let haproxy = Proxy::haproxy(&conf, hearth.address);
    is_the_truth(&haproxy.ask("shop.example", &[]));
    is_the_truth(&haproxy.ask("shop.example", &[CLAIMS, &[FORWARDED]].concat()));
    assert_eq!(haproxy.ask("intern.example", &[]).1["who"], "intern");
}

#[test]
fn only_headers_that_the_proxy_sets_are_trusted() {
    let page = "docs/migration/php-fpm-nginx.md";
    let conf = block(page, "nginx in front", "nginx");
    let is_cleared = |line: &&str| line.contains("proxy_set_header") && line.contains("\"\";");
    assert_eq!(conf.lines().filter(is_cleared).count(), 3, "{conf}");
    let conf: Vec<&str> = conf.lines().filter(|line| !is_cleared(line)).collect();
    let site = site(&block(page, "nginx in front", "toml"));
    let hearth = serve(&site);
    let nginx = Proxy::nginx(&conf.join("\n"), hearth.address);
    is_the_truth(&nginx.ask("shop.example", CLAIMS));
    is_the_truth(&nginx.ask("shop.example", &["Forwarded: host=intern.example"]));
    let (status, _) = nginx.ask("shop.example", &[FORWARDED]);
    assert_eq!(status, 400, "it contradicts what nginx says");
    hearth.log_line("Forwarded and X-Forwarded-For contradict each other");
}

#[test]
fn a_forwarded_host_selects_an_application_only_if_configured() {
    let ask = |http: &str, field: (&str, &str)| {
        let site = site(&format!("[http]\ntrusted_proxies = [\"127.0.0.1\"]\n{http}"));
        let hearth = serve(&site);
        let fields = [("Host", "shop.example"), field];
        let answer = hearth.connect().request("GET", "/", &fields, b"").unwrap().json();
        [&answer["who"], &answer["SERVER_NAME"]].map(|text| text.as_str().unwrap().to_owned())
    };
    let x = ("X-Forwarded-Host", "intern.example");
    let forwarded = ("Forwarded", "host=intern.example");
    let named = "trusted_headers = [\"x-forwarded-for\", \"x-forwarded-host\"]\n";
    let routes = "route_by_forwarded_host = true\n";
    assert_eq!(ask("", x), ["main", "shop.example"]);
    assert_eq!(ask(named, x), ["main", "intern.example"]);
    assert_eq!(ask(&format!("{named}{routes}"), x), ["intern", "intern.example"]);
    let named = "trusted_headers = \"forwarded\"\n";
    assert_eq!(ask(named, forwarded), ["main", "intern.example"]);
    assert_eq!(ask(&format!("{named}{routes}"), forwarded), ["intern", "intern.example"]);
}
