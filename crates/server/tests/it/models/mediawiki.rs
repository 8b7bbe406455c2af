//! `MediaWiki` of Debian's package, unchanged, booted ahead without a setting: two users at a time see what they see in `request`.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use super::browser::Browser;
use crate::hearth::{Serve, Site, of_tier, php_version};

const PACKAGE: &str = "/usr/share/mediawiki";
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

impl Browser {
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
        // It is the model of a known application.
        let named = if model == "snapshot" { &[][..] } else { &["--model", model] };
        let hearth = Serve::new(site.path())
            .args(named)
            .workers(1)
            .set("HEARTH_PHP_ENV", &format!("MW_INSTALL_PATH={}", site.public().display()))
            .start();
        assert_eq!(hearth.status()["model"], model);
        let [mut anna, mut bert, mut stranger] = [(); 3].map(|()| Browser::of(hearth.address));
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
