//! `MediaWiki` of Debian's package, unchanged, booted ahead by `php.await_after`: two users at a time see what they see in `request`.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use testkit::{Answer, Client};

use crate::hearth::{Hearth, Serve, Site, of_tier, php_version};

const PACKAGE: &str = "/usr/share/mediawiki";
/// The last file that is included before the application reads its request.
const AWAITED: &str = "/usr/share/mediawiki/includes/context/RequestContext.php";

/// Installs a wiki on `SQLite` with two users: its folder has links to the package's files, and its own settings.
fn wiki() -> Site {
    let site = Site::empty();
    let root = site.public();
    assert!(Path::new(PACKAGE).is_dir(), "the package mediawiki is missing: `scripts/setup test`");
    for entry in std::fs::read_dir(PACKAGE).unwrap() {
        let name = entry.unwrap().file_name();
        if !["LocalSettings.php", "images", "config"].iter().any(|own| name == *own) {
            symlink(Path::new(PACKAGE).join(&name), root.join(&name)).unwrap();
        }
    }
    let run = |script: &str, arguments: &[&str]| {
        let done = Command::new(format!("php{}", php_version()))
            .arg(root.join("maintenance").join(script))
            .args(arguments)
            .env("MW_INSTALL_PATH", &root)
            .current_dir(&root)
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    };
    let data = site.path().join("data");
    let (data, settings) = (data.to_str().unwrap(), root.to_str().unwrap());
    let install = [
        "--dbtype",
        "sqlite",
        "--dbname",
        "wiki",
        "--server",
        "http://localhost",
        "--scriptpath",
        "",
    ];
    let own = [
        "--dbpath",
        data,
        "--confpath",
        settings,
        "--skins",
        "Vector",
        "--pass",
        "anna's password",
        "Wiki",
        "Anna",
    ];
    run("install.php", &[&install[..], &own].concat());
    run("createAndPromote.php", &["Bert", "bert's password"]);
    site
}

/// A browser with cookies.
struct Browser {
    client: Client,
    cookies: Vec<(String, String)>,
}

impl Browser {
    fn of(hearth: &Hearth) -> Self {
        Self { client: hearth.connect(), cookies: Vec::new() }
    }

    fn ask(&mut self, target: &str, form: &[(&str, &str)]) -> Answer {
        let cookies: Vec<String> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let cookies = cookies.join("; ");
        let encoded = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
        let body: Vec<String> = form
            .iter()
            .map(|(name, value)| format!("{}={}", encoded(*name), encoded(*value)))
            .collect();
        let body = body.join("&");
        let mut fields = vec![("Cookie", cookies.as_str())];
        if !form.is_empty() {
            fields.push(("Content-Type", "application/x-www-form-urlencoded"));
        }
        let method = if form.is_empty() { "GET" } else { "POST" };
        let answer = self.client.request(method, target, &fields, body.as_bytes()).unwrap();
        for cookie in answer.all("set-cookie") {
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            self.cookies.retain(|(known, _)| known != name);
            self.cookies.push((name.to_owned(), value.to_owned()));
        }
        answer
    }

    /// The value of a field of a page's form.
    fn field(page: &str, name: &str) -> String {
        let mark = format!("name=\"{name}\"");
        let mut tags = page.split('<').filter(|tag| tag.contains(&mark));
        let value = tags.find_map(|tag| tag.split("value=\"").nth(1)?.split('"').next());
        value.unwrap_or_default().replace("&#43;", "+").replace("&#039;", "'")
    }

    fn log_in(&mut self, name: &str, password: &str) -> u16 {
        let page = self.ask("/index.php?title=Special:UserLogin", &[]).text();
        let token = Self::field(&page, "wpLoginToken");
        let form = [
            ("wpName", name),
            ("wpPassword", password),
            ("wpLoginToken", &token),
            ("authAction", "login"),
        ];
        self.ask("/index.php?title=Special:UserLogin", &form).status
    }

    /// Who the page says is logged in.
    fn name(&mut self) -> String {
        let page = self.ask("/index.php?title=Main_Page", &[]).text();
        page.split("\"wgUserName\":").nth(1).unwrap().split(',').next().unwrap().to_owned()
    }

    fn write(&mut self, text: &str) -> u16 {
        let page = self.ask("/index.php?title=Sandbox&action=edit", &[]).text();
        let names = [
            "wpStarttime",
            "wpEdittime",
            "wpEditToken",
            "editRevId",
            "parentRevId",
            "wpUnicodeCheck",
        ];
        let values = names.map(|name| Self::field(&page, name));
        let mut form: Vec<(&str, &str)> =
            names.into_iter().zip(values.iter().map(String::as_str)).collect();
        form.extend([
            ("wpTextbox1", text),
            ("wpUltimateParam", "1"),
            ("format", "text/x-wiki"),
            ("model", "wikitext"),
        ]);
        self.ask("/index.php?title=Sandbox&action=submit", &form).status
    }
}

#[test]
fn mediawiki_is_booted_ahead_unchanged() {
    if php_version() != "8.2" && !Path::new(PACKAGE).is_dir() {
        println!("not tried: the Debian of this PHP has no MediaWiki installed");
        return;
    }
    for model in of_tier(["snapshot", "request"]) {
        println!("model {model}");
        let site = wiki();
        let hearth = Serve::new(site.path())
            .args(&["--model", model])
            .workers(1)
            .set("HEARTH_PHP_AWAIT_AFTER", AWAITED)
            .set("HEARTH_PHP_WARM_UP", "/index.php?title=Main_Page")
            .set("HEARTH_PHP_ENV", &format!("MW_INSTALL_PATH={}", site.public().display()))
            .start();
        let [mut anna, mut bert, mut stranger] = [(); 3].map(|()| Browser::of(&hearth));
        assert_eq!(anna.log_in("Anna", "anna's password"), 302);
        assert_eq!(bert.log_in("Bert", "not his password"), 200, "the form again");
        assert_eq!(bert.log_in("Bert", "bert's password"), 302);
        for _ in 0..3 {
            let names = [&mut anna, &mut bert, &mut stranger].map(Browser::name);
            assert_eq!(names, ["\"Anna\"", "\"Bert\"", "null"]);
        }
        assert_eq!((anna.write("by Anna"), bert.write("by Bert")), (302, 302));
        let page = stranger.ask("/index.php/Sandbox", &[]);
        assert!(page.text().contains("by Bert"), "{}", page.text());
        assert_eq!(page.field("cache-control"), Some("private, must-revalidate, max-age=0"));
        let history = stranger.ask("/index.php?title=Sandbox&action=history", &[]).text();
        assert!(history.contains(">Anna<") && history.contains(">Bert<"), "{history}");
        assert_eq!(stranger.ask("/index.php?title=Not_there", &[]).status, 404);
        assert_eq!(stranger.ask("/load.php?modules=startup&only=scripts", &[]).status, 200);
        let info = stranger.ask("/api.php?action=query&meta=siteinfo&format=json", &[]).json();
        assert_eq!(info["query"]["general"]["sitename"], "Wiki");
        let pool = &hearth.status()["pool"];
        assert_eq!((&pool["retired"], &pool["crashes"]), (&0.into(), &0.into()), "{pool}");
    }
}
