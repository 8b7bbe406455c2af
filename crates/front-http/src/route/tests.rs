use std::cell::Cell;
use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

struct Tree {
    kinds: HashMap<PathBuf, Kind>,
    looks: Cell<usize>,
}

impl FileSystem for Tree {
    fn kind(&self, path: &Path) -> Kind {
        self.looks.set(self.looks.get() + 1);
        let text = path.to_str().unwrap_or("");
        let trimmed = Path::new(text.trim_end_matches('/'));
        self.kinds.get(trimmed).copied().unwrap_or(Kind::Missing)
    }
}

fn tree(files: &[&str]) -> Tree {
    let mut kinds = HashMap::from([(PathBuf::from("/srv"), Kind::Directory)]);
    for file in files {
        let path = PathBuf::from(format!("/srv/{file}"));
        for parent in path.ancestors().skip(1) {
            kinds.insert(parent.to_owned(), Kind::Directory);
        }
        kinds.insert(path, Kind::File);
    }
    Tree { kinds, looks: Cell::new(0) }
}

fn laravel() -> Router {
    let routing = Routing::Files { front_controller: Some("/index.php".to_owned()) };
    Router::new(Path::new("/srv"), &routing, true)
}

fn show(router: &Router, tree: &Tree, path: &str) -> String {
    match clean(path).map(|path| router.decide(&path, tree)) {
        Err(error) => format!("400 {error:?}"),
        Ok(Decision::File(path)) => format!("file {}", path.display()),
        Ok(Decision::Script(script)) => {
            format!("script {} {} [{}]", script.filename.display(), script.name, script.path_info)
        }
        Ok(Decision::AddSlash) => "slash".to_owned(),
        Ok(Decision::Nothing) => "404".to_owned(),
    }
}

#[test]
fn a_path_at_which_nothing_is_is_not_looked_up_for_every_request() {
    const REQUESTS: usize = 100;
    let tree = tree(&["index.php"]);
    let script = Routing::Script { filename: "/srv/worker.php".into(), name: "/worker.php".into() };
    let scripted = Router::new(Path::new("/srv"), &script, true);
    for (router, path, front) in [
        (&laravel(), "/users/12", "script /srv/index.php /index.php []"),
        (&scripted, "/", "script /srv/worker.php /worker.php []"),
        (&scripted, "/worker.php/info", "script /srv/worker.php /worker.php [/info]"),
    ] {
        tree.looks.set(0);
        for _ in 0..REQUESTS {
            assert_eq!(show(router, &tree, path), front);
        }
        assert!(tree.looks.get() < REQUESTS, "{path}: {} looks", tree.looks.get());
    }
}

#[test]
fn a_file_that_a_request_has_written_is_found_by_the_next_one() {
    let router = laravel();
    for n in 0..100 {
        let (name, path) = (format!("{n}.css"), format!("/{n}.css"));
        assert_eq!(
            show(&router, &tree(&["index.php"]), &path),
            "script /srv/index.php /index.php []"
        );
        router.files_may_have_changed();
        assert_eq!(show(&router, &tree(&["index.php", &name]), &path), format!("file /srv/{name}"));
    }
}

#[test]
fn an_application_is_routed_as_try_files_does() {
    let tree = tree(&[
        "index.php",
        "app.css",
        "old.php",
        "blog/index.php",
        "docs/index.html",
        "empty/readme",
        "a b.txt",
        ".env",
        "hearth.toml",
        "Hearth.TOML",
        "hearth.toml~",
        ".git/config",
        ".well-known/acme-challenge/token",
        "config.php.bak",
        "X.PHP",
        "lib.phtml",
        "page.php.html",
    ]);
    let front = "script /srv/index.php /index.php []";
    for (path, expected) in [
        ("/", front),
        ("/users/12", front),
        ("/users/", front),
        ("/index.php", front),
        ("/index.php/users", "script /srv/index.php /index.php [/users]"),
        ("/app.css", "file /srv/app.css"),
        ("/app.css/", front),
        ("/a%20b.txt", "file /srv/a b.txt"),
        ("/old.php", "script /srv/old.php /old.php []"),
        ("/old.php/a%20b/c", "script /srv/old.php /old.php [/a b/c]"),
        ("/gone.php", front),
        ("/gone.php/x", front),
        ("/blog", "slash"),
        ("/blog/", "script /srv/blog/index.php /blog/index.php []"),
        ("/docs/", "file /srv/docs/index.html"),
        ("/docs", "slash"),
        ("/empty", front),
        ("/empty/", front),
        ("/.env", "404"),
        ("/hearth.toml", "404"),
        ("/Hearth.TOML", "404"),
        ("/x/../hearth%2Etoml", "404"),
        ("/hearth.toml~", "404"),
        ("/hearth.tom", front),
        ("/%2eenv", "404"),
        ("/.git/config", "404"),
        ("/x/../.env", "404"),
        ("/.well-known/acme-challenge/token", "file /srv/.well-known/acme-challenge/token"),
        ("/.well-known/.secret", "404"),
        ("/config.php.bak", "404"),
        ("/X.PHP", "404"),
        ("/lib.phtml", "404"),
        ("/page.php.html", "file /srv/page.php.html"),
        ("/docs/../app.css", "file /srv/app.css"),
        ("/docs//.//../app.css", "file /srv/app.css"),
        ("//app.css", "file /srv/app.css"),
        ("/../app.css", "400 AboveRoot"),
        ("/docs/../../etc/passwd", "400 AboveRoot"),
        ("/%2e%2e/etc/passwd", "400 AboveRoot"),
        ("/..%2f..%2fetc/passwd", "400 AboveRoot"),
        ("/docs%2findex.html", front),
        ("/docs%5cindex.html", front),
        ("/app.css%00.php", "400 Nul"),
        ("/app%zz", "400 BadEscape"),
        ("/app%2", "400 BadEscape"),
        ("app.css", "400 NotAbsolute"),
    ] {
        assert_eq!(show(&laravel(), &tree, path), expected, "{path}");
    }
}

#[test]
fn a_worker_script_answers_everything_but_static_files() {
    let tree = tree(&["app.css", "info.php", "index.php", "secret.php~"]);
    let routing = Routing::Script {
        filename: PathBuf::from("/app/worker.php"),
        name: "/index.php".to_owned(),
    };
    let router = Router::new(Path::new("/srv"), &routing, true);
    for (path, expected) in [
        ("/", "script /app/worker.php /index.php []"),
        ("/app.css", "file /srv/app.css"),
        ("/info.php", "script /app/worker.php /index.php []"),
        ("/secret.php~", "script /app/worker.php /index.php []"),
        ("/index.php/users", "script /app/worker.php /index.php [/users]"),
        ("/users", "script /app/worker.php /index.php []"),
    ] {
        assert_eq!(show(&router, &tree, path), expected, "{path}");
    }
}

#[test]
fn without_a_front_controller_a_missing_file_is_404() {
    let router = Router::new(Path::new("/srv"), &Routing::Files { front_controller: None }, true);
    assert_eq!(show(&router, &tree(&["index.php"]), "/users"), "404");
    assert_eq!(show(&router, &tree(&["index.php"]), "/"), "script /srv/index.php /index.php []");
    assert_eq!(show(&laravel(), &tree(&["app.css"]), "/users"), "404");
}

#[tokio::test(start_paused = true)]
async fn the_hot_path_looks_at_the_disk_once() {
    let tree = tree(&["index.php"]);
    let router = laravel();
    show(&router, &tree, "/");
    tree.looks.set(0);
    show(&router, &tree, "/");
    assert_eq!(tree.looks.get(), 0);
    show(&router, &tree, "/users/12");
    assert_eq!(tree.looks.get(), 1);
    tokio::time::advance(FRONT_CONTROLLER_TRUST * 2).await;
    router.files_may_have_changed();
    show(&router, &tree, "/users/12");
    assert_eq!(tree.looks.get(), 3);
}

#[test]
fn php_source_is_recognised_under_every_name() {
    for name in [
        "a.php",
        "a.PHP",
        "a.pHp",
        "a.php5",
        "a.php8",
        "a.phtml",
        "a.phar",
        "a.phps",
        "a.pht",
        "a.php.",
        "a.php..",
        "a.php ",
        "a.php~",
        "a.php.bak",
        "a.php.old",
        "a.php.txt",
        "a.php-dist",
        "a.php_old",
        "a.php#",
        "a.inc",
        "a.inc~",
        "dir/a.php.swp",
        ".php",
        "a.phpold",
        "a.phpbak",
        "a.PhpBak",
        "a.phpt",
        "a.phpx",
        "a.phpold2",
        "a.phpbak.zip",
        "a.phtml.bak",
        "a.phps.txt",
        "composer.phar.gz",
        "a.inc.bak",
        "a.inc.1",
        "a.incold",
    ] {
        assert!(is_source(name.as_bytes()), "{name}");
    }
    for name in [
        "a.css",
        "php",
        "photos.phpinfo.png",
        "jquery.phpjs.js",
        "phpunit.xml",
        "a.pharmacy",
        "Company.Inc.pdf",
        "a.inc.newsletter",
        "a.html",
        "index.php.html",
        "include.js",
        "a.inca",
        "a.php/b.css",
    ] {
        assert!(!is_source(name.as_bytes()), "{name}");
    }
}

proptest! {
    #[test]
    fn a_clean_path_stays_below_the_root(path in "/(\\.|\\.\\.|%2e|%2E|%2f|%5c|/|a|b|%00|%|\\\\){0,30}") {
        if let Ok(clean) = clean(&path) {
            let bytes = clean.as_bytes();
            prop_assert!(bytes.is_empty() || bytes[0] == b'/');
            prop_assert!(!bytes.contains(&0));
            let segments: Vec<&[u8]> = bytes.split(|byte| *byte == b'/').collect();
            prop_assert!(!segments.contains(&&b".."[..]) && !segments.contains(&&b"."[..]));
        }
    }

    #[test]
    fn cleaning_a_path_without_escapes_twice_changes_nothing(path in "(/(a|b|c\\.d|\\.|\\.\\.|)){1,12}") {
        if let Ok(once) = clean(&path) {
            let text = String::from_utf8(once.as_bytes().to_vec()).unwrap();
            let twice = clean(&text).unwrap();
            prop_assert_eq!(once.as_bytes(), twice.as_bytes());
        }
    }

    #[test]
    fn any_path_gets_a_decision(path in "\\PC{0,60}") {
        let _decision = show(&laravel(), &tree(&["index.php"]), &format!("/{path}"));
    }
}
