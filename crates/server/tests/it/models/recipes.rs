//! Applications of Debian's packages, unchanged and without a setting: they answer as under php-fpm, those that are booted ahead, too.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use testkit::{Answer, DATABASE_PASSWORD, Database, DatabaseKind, PhpFpm};

use super::browser::Browser;
use super::fields_of_php;
use crate::hearth::{Hearth, Serve, Site, command, php_fpm, php_version};

/// Returns whether a package's folder is there. It has to be for the PHP of its own Debian.
pub(super) fn is_installed(package: &str) -> bool {
    let is_there = Path::new(package).is_dir();
    assert!(is_there || php_version() != "8.2", "{package} is missing: `scripts/setup test`");
    is_there
}

/// The same visitor at Hearth and twice at php-fpm. Where the answers of php-fpm differ from each other, a token or a clock is.
pub(super) struct Visitors {
    pub(super) compared: usize,
    all: [Browser; 3],
}

impl Visitors {
    pub(super) fn of(hearth: &Hearth, peer: &PhpFpm) -> Self {
        let addresses = [hearth.address, peer.address(), peer.address()];
        Self { compared: 0, all: addresses.map(Browser::of) }
    }

    /// Each sends what `form` makes of its own last page.
    pub(super) fn ask(
        &mut self,
        target: &str,
        form: &dyn Fn(&str) -> Vec<(String, String)>,
        pages: &mut [String; 3],
    ) {
        if let Some(difference) = self.difference(target, form, pages) {
            panic!("{target}: {difference}");
        }
    }

    fn difference(
        &mut self,
        target: &str,
        form: &dyn Fn(&str) -> Vec<(String, String)>,
        pages: &mut [String; 3],
    ) -> Option<String> {
        let mut answers = Vec::new();
        for (browser, page) in self.all.iter_mut().zip(&mut *pages) {
            let form = form(page);
            let form: Vec<_> =
                form.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let answer = browser.ask(target, &form);
            *page = answer.text();
            answers.push(of_php(&answer));
        }
        let [ours, theirs, again] = &answers[..] else { unreachable!() };
        let difference = difference(ours, theirs, again);
        self.compared += usize::from(difference.is_none());
        difference
    }

    pub(super) fn get(&mut self, target: &str) -> [String; 3] {
        let mut pages = Default::default();
        // What depends on the second shows only if a second ends between the two of php-fpm.
        let ask = || self.difference(target, &|_| Vec::new(), &mut pages);
        let differences: Vec<_> =
            std::iter::repeat_with(ask).take(3).map_while(|one| one).collect();
        assert!(differences.len() < 3, "{target}: {differences:?}");
        pages
    }
}

/// The fields of a form, for `Visitors::ask`.
pub(super) fn form<const N: usize>(fields: [(&str, &str); N]) -> Vec<(String, String)> {
    fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// What of an answer comes from PHP.
fn of_php(answer: &Answer) -> String {
    let fields = fields_of_php(answer);
    let mut fields: Vec<String> =
        fields.into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
    fields.sort();
    format!("{}\n{}\n\n{}", answer.status, fields.join("\n"), answer.text())
}

/// Splits at the ends of words, so that a token is one piece. Clocks and the servers' names are all the same.
fn pieces(text: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "+/=_%-.:".contains(c);
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (piece, after) = rest.split_at(end);
        pieces.push(if is_masked(piece) { "masked" } else { piece });
        rest = after;
    }
    pieces
}

/// Returns whether this is a time of day, seconds since 1970, or the server's name and version.
fn is_masked(piece: &str) -> bool {
    let value = piece.rsplit('=').next().unwrap_or(piece);
    let shape: String = value.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let is_server = piece.starts_with("hearth/") || piece.starts_with("nginx/");
    is_server || shape == "00:00:00" || shape == "0000000000" && value.starts_with('1')
}

/// Returns the first place where `ours` differs from both answers of php-fpm, and those from each other do not.
fn difference(ours: &str, theirs: &str, again: &str) -> Option<String> {
    let [ours, theirs, again] = [ours, theirs, again].map(pieces);
    let around = |pieces: &[&str], at: usize| {
        pieces[at.saturating_sub(30)..pieces.len().min(at + 30)].concat()
    };
    let longest = ours.len().max(theirs.len());
    let at = (0..longest).find(|at| {
        let [ours, theirs, again] = [&ours, &theirs, &again].map(|pieces| pieces.get(*at));
        ours != theirs && (theirs == again || ours.is_none() || theirs.is_none())
    })?;
    Some(format!("\n{}\n-- and php-fpm --\n{}", around(&ours, at), around(&theirs, at)))
}

const PHPMYADMIN: &str = "/usr/share/phpmyadmin";

#[test]
fn phpmyadmin_is_booted_ahead_unchanged() {
    if !is_installed(PHPMYADMIN) {
        return;
    }
    let database = Database::start(DatabaseKind::MariaDb);
    let sessions = tempfile::tempdir().unwrap();
    let ini = [
        ("mysqli.default_socket", database.address().display().to_string()),
        ("session.save_path", sessions.path().display().to_string()),
    ];
    let ini = ini.each_ref().map(|(name, value)| (*name, value.as_str()));
    let serve = Serve::new(PHPMYADMIN).workers(1);
    let hearth = ini.iter().fold(serve, |serve, (name, value)| serve.ini(name, value)).start();
    assert_eq!(hearth.status()["model"], "snapshot", "found by itself");
    let peer = php_fpm(Path::new(PHPMYADMIN), &ini);

    let [mut stranger, mut visitor] = [(); 2].map(|()| Visitors::of(&hearth, &peer));
    for target in [
        "/",
        "/index.php?lang=de",
        "/index.php?route=/not/there",
        "/index.php/path/info?route=/",
        "/js/messages.php?l=en&v=5",
        "/url.php?url=https%3A%2F%2Fwww.phpmyadmin.net",
    ] {
        stranger.get(target);
    }
    let log_in = |password: &'static str| {
        move |page: &str| {
            let hidden = ["token", "set_session", "route", "server", "lang"];
            let hidden = hidden.map(|name| (name.to_owned(), Browser::field(page, name)));
            let typed = [("pma_username", "visitor"), ("pma_password", password)];
            hidden.into_iter().chain(form(typed)).collect()
        }
    };
    let mut pages = visitor.get("/index.php");
    visitor.ask("/index.php?route=/", &log_in("not the password"), &mut pages);
    visitor.ask("/index.php?route=/", &log_in(DATABASE_PASSWORD), &mut pages);
    for _ in 0..2 {
        for target in [
            "/index.php?route=/",
            "/index.php?route=/server/databases",
            "/index.php?route=/database/structure&db=shop",
            "/index.php?route=/database/sql&db=shop",
            "/index.php?route=/database/export&db=shop",
            "/index.php?route=/server/collations",
            "/index.php?route=/server/engines",
            "/index.php?route=/preferences/manage",
            "/index.php?route=/not/there",
        ] {
            let [page, ..] = visitor.get(target);
            assert!(
                target != "/index.php?route=/" || page.contains("visitor@localhost"),
                "logged in"
            );
            stranger.get("/index.php?route=/");
        }
    }
    assert_eq!(visitor.compared + stranger.compared, 6 + 3 + 2 * 2 * 9);
    let pool = &hearth.status()["pool"];
    assert_eq!((&pool["retired"], &pool["crashes"]), (&0.into(), &0.into()), "{pool}");
}

const WORDPRESS: &str = "/usr/share/wordpress";

/// A copy of the package with a configuration and a post of its own.
fn blog(database: &Database) -> Site {
    const INSTALL: &str = "<?php define('WP_INSTALLING', true); $_SERVER['HTTP_HOST'] = 'example.org'; $_SERVER['REQUEST_URI'] = '/';\n\
        require __DIR__ . '/public/wp-load.php'; require ABSPATH . 'wp-admin/includes/upgrade.php';\n\
        wp_install('Blog', 'anna', 'anna@example.org', true, '', 'password of anna', 'en_US');\n\
        update_option('siteurl', 'http://example.org'); update_option('home', 'http://example.org');";
    let site = Site::empty();
    let from = Path::new(WORDPRESS).join(".");
    let copied = Command::new("cp").arg("-a").args([from.as_path(), &site.public()]).status();
    assert!(copied.unwrap().success());
    let theme = "wp-content/themes/twentytwentythree";
    let package = [WORDPRESS, "/var/lib/wordpress"].map(|folder| Path::new(folder).join(theme));
    let package = package.iter().find(|folder| folder.is_dir());
    let package =
        package.expect("wordpress-theme-twentytwentythree is missing: `scripts/setup test`");
    if !site.public().join(theme).exists() {
        symlink(package.canonicalize().unwrap(), site.public().join(theme)).unwrap();
    }
    let socket = database.address().display().to_string();
    let site = site
        .with_file(
            "public/wp-config.php",
            &format!(
                "<?php define('DB_NAME', 'shop'); define('DB_USER', 'visitor'); define('DB_PASSWORD', '{DATABASE_PASSWORD}');\n\
                 define('DB_HOST', 'localhost:{socket}'); define('DB_CHARSET', 'utf8mb4'); define('DISABLE_WP_CRON', true);\n\
                 define('WP_HTTP_BLOCK_EXTERNAL', true); define('AUTOMATIC_UPDATER_DISABLED', true);\n\
                 foreach (['AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE'] as $n) {{ define($n . '_KEY', $n); define($n . '_SALT', $n); }}\n\
                 $table_prefix = 'wp_'; if (!defined('ABSPATH')) {{ define('ABSPATH', __DIR__ . '/'); }}\n\
                 require_once ABSPATH . 'wp-settings.php';"
            ),
        )
        .with_file("install.php", INSTALL);
    let php = format!("php{}", php_version());
    let done = Command::new(php).arg(site.path().join("install.php")).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    site
}

#[test]
fn wordpress_runs_as_request_and_answers_as_under_php_fpm() {
    if !is_installed(WORDPRESS) {
        return;
    }
    let database = Database::start(DatabaseKind::MariaDb);
    let site = blog(&database);
    let peer = php_fpm(&site.public(), &[]);
    let hearth = Serve::new(site.path()).workers(1).start();
    assert_eq!(hearth.status()["model"], "request");
    visit_blog(&hearth, &peer);
    drop(hearth);
    let hearth = Serve::new(site.path()).workers(1).set("HEARTH_PHP_PRELOAD", "learned").start();
    let preload = &hearth.status()["applications"][0]["preload"];
    // It asks for functions by names that it puts together, and has several autoloaders.
    let off = preload["off"].as_str().unwrap_or_default();
    assert!(
        off.starts_with("none of ") && off.ends_with("can be preloaded unnoticed"),
        "{preload}"
    );
    visit_blog(&hearth, &peer);
}

/// Visits pages of the blog, before and after the log-in.
fn visit_blog(hearth: &Hearth, peer: &PhpFpm) {
    let [mut stranger, mut visitor] = [(); 2].map(|()| Visitors::of(hearth, peer));
    for target in [
        "/",
        "/?p=1",
        "/?p=999",
        "/?s=world",
        "/?feed=rss2",
        "/?rest_route=/wp/v2/posts",
        "/wp-login.php",
        "/wp-admin/",
    ] {
        stranger.get(target);
    }
    let log_in =
        |_: &str| form([("log", "anna"), ("pwd", "password of anna"), ("testcookie", "1")]);
    let mut pages = visitor.get("/wp-login.php");
    visitor.ask("/wp-login.php", &log_in, &mut pages);
    for target in
        ["/", "/wp-admin/edit.php", "/wp-admin/options-general.php", "/?rest_route=/wp/v2/users/me"]
    {
        visitor.get(target);
    }
    let [page, ..] = visitor.get("/wp-admin/users.php");
    assert!(page.contains("Howdy, "), "logged in: {page}");
    stranger.get("/");
    assert_eq!(visitor.compared + stranger.compared, 8 + 2 + 5 + 1);
}

const DOKUWIKI: &str = "/usr/share/dokuwiki";

#[test]
fn dokuwiki_runs_as_request_and_answers_as_under_php_fpm() {
    if !is_installed(DOKUWIKI) {
        return;
    }
    let site = Site::empty();
    let folder = site.path().display().to_string();
    std::fs::create_dir(site.path().join("conf")).unwrap();
    for entry in std::fs::read_dir("/etc/dokuwiki").unwrap().map(Result::unwrap) {
        // Its links lead to what only the web server's user may read.
        if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), site.path().join("conf").join(entry.file_name())).unwrap();
        }
    }
    for name in [
        "attic",
        "cache",
        "index",
        "locks",
        "log",
        "media",
        "media_attic",
        "media_meta",
        "meta",
        "pages",
        "tmp",
    ] {
        std::fs::create_dir_all(site.path().join("data").join(name)).unwrap();
    }
    site.write("conf/local.php", &format!("<?php $conf['title'] = 'Wiki'; $conf['savedir'] = '{folder}/data'; $conf['useacl'] = 1; $conf['securecookie'] = 0;"));
    site.write("conf/acl.auth.php", "* @ALL 1\n* @user 8\n");
    site.write(
        "conf/users.auth.php",
        &format!("anna:{}:Anna:anna@example.org:user\n", md5_of_password()),
    );
    site.write("data/pages/start.txt", "===== Start =====\n\nA [[page]] and **weight**.\n");
    site.write("prepend.php", &format!("<?php define('DOKU_MAIN_CONF', '{folder}/conf/'); define('DOKU_CONF', '{folder}/conf/');"));
    let prepend = format!("{folder}/prepend.php");
    let hearth = Serve::new(DOKUWIKI).workers(1).ini("auto_prepend_file", &prepend).start();
    assert_eq!(hearth.status()["model"], "request");
    let peer = php_fpm(Path::new(DOKUWIKI), &[("auto_prepend_file", &prepend)]);
    let [mut stranger, mut visitor] = [(); 2].map(|()| Visitors::of(&hearth, &peer));
    for target in [
        "/",
        "/doku.php",
        "/doku.php?id=start",
        "/doku.php?id=not:there",
        "/doku.php?do=recent",
        "/doku.php?do=search&q=weight",
        "/doku.php?id=start&do=export_raw",
        "/feed.php",
    ] {
        stranger.get(target);
    }
    let log_in = |page: &str| {
        let token = Browser::field(page, "sectok");
        form([
            ("u", "anna"),
            ("p", "password"),
            ("do", "login"),
            ("id", "start"),
            ("sectok", &token),
        ])
    };
    let mut pages = visitor.get("/doku.php?id=start&do=login");
    visitor.ask("/doku.php?id=start", &log_in, &mut pages);
    let [page, ..] = visitor.get("/doku.php?id=start");
    assert!(page.contains("Anna"), "logged in: {page}");
    for target in
        ["/doku.php?id=start&do=edit", "/doku.php?id=start&do=revisions", "/doku.php?do=profile"]
    {
        visitor.get(target);
        stranger.get("/doku.php?id=start");
    }
}

/// The password `password` as `DokuWiki`'s file of users has it, in one of the ways that it knows.
fn md5_of_password() -> &'static str {
    "5f4dcc3b5aa765d61d8327deb882cf99"
}

#[test]
fn check_says_what_share_of_a_request_is_booted_ahead() {
    const WORK: &str = "for ($i = 0; $i < 1000000; $i++) { $n = ($n ?? 0) ^ $i; }";
    let said = |code: String| {
        let site = Site::empty().with_file("public/index.php", &format!("<?php {code}"));
        let mut check = command();
        check.arg("check").arg(site.path()).args(["--boot", "--listen", "127.0.0.1:0"]);
        String::from_utf8_lossy(&check.output().unwrap().stdout).into_owned()
    };
    let worth = said(format!("{WORK} hearth_await_request();"));
    assert!(worth.contains(" % of a request is booted ahead: "), "{worth}");
    let not = said(format!("hearth_await_request(); {WORK}"));
    assert!(not.contains("booting ahead saves less than 5 % of a request: "), "{not}");
    assert!(not.contains("`--model request`"), "{not}");
}
