//! Tiny Tiny RSS of Debian's package, unchanged: it answers as under php-fpm in `request`, and with a wait point.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use testkit::{DATABASE_PASSWORD, Database, DatabaseKind, PhpFpm};

use super::recipes::{Visitors, form, is_installed};
use crate::hearth::{Hearth, Serve, Site, php_fpm, php_version};

const TT_RSS: &str = "/usr/share/tt-rss/www";

/// A copy of the package with a configuration and tables of its own.
fn reader(database: &Database) -> Site {
    const TABLES: &str = "<?php [, $socket, $password] = $argv;\n\
        $to = new PDO(\"mysql:dbname=shop;unix_socket=$socket\", 'visitor', $password, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);\n\
        $all = $to->prepare(file_get_contents('/usr/share/tt-rss/schema/ttrss_schema_mysql.sql'));\n\
        $all->execute(); while ($all->nextRowset()) { }";
    let site = Site::empty().with_file("tables.php", TABLES);
    let from = Path::new(TT_RSS).join(".");
    assert!(Command::new("cp").arg("-a").args([&from, &site.public()]).status().unwrap().success());
    let root = site.path().display();
    for name in ["config.php", "feed-icons", "lib/gettext"] {
        std::fs::remove_file(site.public().join(name)).unwrap();
    }
    // The package's link is relative to its own place.
    symlink("/usr/share/php/php-php-gettext", site.public().join("lib/gettext")).unwrap();
    for folder in
        ["public/feed-icons", "lock", "cache/images", "cache/upload", "cache/export", "cache/feeds"]
    {
        std::fs::create_dir_all(site.path().join(folder)).unwrap();
    }
    let packaged = std::fs::read_to_string("/etc/tt-rss/config.php").unwrap();
    let access = format!(
        "$dbtype = 'mysql'; $dbserver = 'localhost'; $dbport = ''; $dbuser = 'visitor'; $dbname = 'shop'; $dbpass = '{DATABASE_PASSWORD}';"
    );
    let own = packaged
        .lines()
        .map(|line| if line.contains("database.php") { access.as_str() } else { line })
        .map(|line| {
            if line.contains("'SELF_URL_PATH'") {
                "define('SELF_URL_PATH', 'http://example.org/'); define('_SKIP_SELF_URL_PATH_CHECKS', true);"
            } else {
                line
            }
        })
        .collect::<Vec<_>>()
        .join("\n")
        .replace("'/var/lib/tt-rss'", &format!("'{root}/lock'"))
        .replace("'/var/cache/tt-rss'", &format!("'{root}/cache'"))
        .replace("'syslog'", "''");
    site.write("public/config.php", &own);
    let made = Command::new(format!("php{}", php_version()))
        .arg(site.path().join("tables.php"))
        .arg(database.address())
        .arg(DATABASE_PASSWORD)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
    site
}

#[test]
fn tt_rss_runs_as_request_and_answers_as_under_php_fpm_with_a_wait_point_too() {
    if !is_installed(TT_RSS) {
        return;
    }
    let database = Database::start(DatabaseKind::MariaDb);
    let site = reader(&database);
    // It refuses to run as root, as these tests do in a container.
    let socket = database.address().display().to_string();
    // php-fpm sends its warnings beside the answer, more than nginx has room for.
    let ini = [
        ("pdo_mysql.default_socket", &*socket),
        ("disable_functions", "posix_getuid"),
        ("log_errors", "0"),
    ];
    let peer = php_fpm(&site.public(), &ini);
    let serve = || {
        let serve = Serve::new(site.path()).workers(1);
        ini.iter().fold(serve, |serve, (name, value)| serve.ini(name, value))
    };
    let hearth = serve().start();
    assert_eq!(hearth.status()["model"], "request", "it is known");
    visit_reader(&hearth, &peer);
    drop(hearth);
    let file = site.public().join("lib/gettext/gettext.inc").display().to_string();
    let waits = serve().args(&["--model", "snapshot"]).set("HEARTH_PHP_AWAIT_AFTER", &file);
    let hearth = waits.start();
    visit_reader(&hearth, &peer);
    let pool = &hearth.status()["pool"];
    assert_eq!((&pool["retired"], &pool["crashes"]), (&0.into(), &0.into()), "{pool}");
}

/// Reads feeds, before and after the log-in.
fn visit_reader(hearth: &Hearth, peer: &PhpFpm) {
    let [mut stranger, mut visitor] = [(); 2].map(|()| Visitors::of(hearth, peer));
    for target in ["/", "/index.php", "/prefs.php", "/backend.php?op=rpc", "/api/index.php"] {
        stranger.get(target);
    }
    let log_in = |password: &'static str| {
        move |_: &str| form([("op", "login"), ("login", "admin"), ("password", password)])
    };
    let mut pages = visitor.get("/");
    let back = "/public.php?return=http%3A%2F%2Fexample.org%2F";
    visitor.ask(back, &log_in("not the password"), &mut pages);
    visitor.ask(back, &log_in("password"), &mut pages);
    for _ in 0..2 {
        let mut pages = visitor.get("/index.php");
        assert!(pages[0].contains("__csrf_token"), "logged in: {}", pages[0]);
        let call = |op: &'static str, method: &'static str| {
            move |page: &str| {
                let token = page.split("__csrf_token = \"").nth(1);
                let token = token.and_then(|rest| rest.split('"').next()).unwrap_or_default();
                form([("op", op), ("method", method), ("feed", "-4"), ("csrf_token", token)])
            }
        };
        for (op, method) in
            [("feeds", "view"), ("pref-feeds", "getfeedtree"), ("dlg", "printTagCloud")]
        {
            let mut answers = pages.clone();
            visitor.ask("/backend.php", &call(op, method), &mut answers);
            stranger.get("/");
        }
        visitor.ask("/prefs.php", &|_| Vec::new(), &mut pages);
    }
    assert_eq!(visitor.compared + stranger.compared, 5 + 3 + 2 * (1 + 3 * 2 + 1));
}
