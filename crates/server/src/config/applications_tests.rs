use std::path::Path;

use pool::Model;

use super::*;
use crate::config::{Environment, load};

fn read(toml: &str) -> Result<Settings, ConfigError> {
    read_with(toml, &[], Vec::new())
}

fn read_with(
    toml: &str,
    variables: &[(&str, &str)],
    flags: Vec<(&'static str, Raw)>,
) -> Result<Settings, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hearth.toml");
    std::fs::write(&path, toml).unwrap();
    let environment = Environment::for_test(folder.path(), variables);
    load(Path::new("/app"), Some(&path), flags, &environment)
}

fn problem(toml: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hearth.toml");
    std::fs::write(&path, toml).unwrap();
    let environment = Environment::for_test(folder.path(), &[]);
    let error = load(Path::new("/app"), Some(&path), Vec::new(), &environment).unwrap_err();
    format!("{error}\n{}", error.hint()).replace(path.to_str().unwrap(), "hearth.toml")
}

#[test]
fn an_applications_table_overrides_common_settings() {
    let toml = r#"
        [http]
        static_cache_control = "max-age=60"
        static_files = false
        [php]
        model = "request"
        workers = 3
        ini = { memory_limit = "64M", "date.timezone" = "UTC" }
        env = { SECRET = "of main" }
        warm_up = ["/main"]
        [applications.shop]
        path = "shop"
        hosts = ["Shop.example.com", "*.shop.example.com."]
        [applications.shop.http]
        static_files = true
        [applications.shop.php]
        model = "cgi"
        version = "8.4"
        [applications.shop.php.ini]
        memory_limit = "128M"
        [applications.legacy]
        paths = ["/legacy/", "/cron"]
        [applications.legacy.php]
        workers = 1
    "#;
    let flags = vec![("php.request_timeout", Raw::Text("7s".into()))];
    let variables =
        [("HEARTH_PHP_ENV", "TOKEN=main's"), ("HEARTH_PHP_WORKER_PROGRAM", "/x/hearth-worker-8.2")];
    let settings = read_with(toml, &variables, flags).unwrap();
    let [shop, legacy] = &settings.applications[..] else { panic!("two of them") };

    assert!(shop.path.as_ref().is_some_and(|path| path.is_absolute() && path.ends_with("shop")));
    let claims: Vec<String> = shop.claims.iter().map(ToString::to_string).collect();
    assert_eq!(claims, ["shop.example.com", "*.shop.example.com"]);
    assert_eq!(shop.settings.php.model.0, Some(Model::Cgi));
    assert_eq!(shop.settings.php.workers.0.unwrap().get(), 3);
    let seconds = shop.settings.php.request_timeout.map(|limit| limit.as_secs());
    assert_eq!(seconds, Some(7), "a flag speaks of all");
    assert!(shop.settings.http.static_files);
    assert_eq!(shop.settings.http.static_cache_control.as_deref(), Some("max-age=60"));
    let mut ini = shop.settings.php.ini.0.clone();
    ini.sort();
    let ini: Vec<(&str, &str)> = ini.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(ini, [("date.timezone", "UTC"), ("memory_limit", "128M")]);
    assert!(shop.settings.php.env.0.is_empty(), "variables of another application are its own");
    assert!(shop.settings.php.warm_up.0.is_none());
    assert_eq!(shop.settings.php.worker_program.0, None, "that is a program of another version");

    let claims: Vec<String> = legacy.claims.iter().map(ToString::to_string).collect();
    assert_eq!((legacy.path.clone(), claims), (None, vec!["/legacy".into(), "/cron".into()]));
    assert_eq!(legacy.settings.php.workers.0.unwrap().get(), 1);
    assert_eq!(legacy.settings.php.env.0.len(), 2, "it is the same application");
    assert!(legacy.settings.php.warm_up.0.is_some() && !legacy.settings.http.static_files);
    assert!(settings.applications.iter().all(|of| of.settings.applications.is_empty()));
}

#[test]
fn a_wrong_name_or_value_names_the_nearest_right_one_and_its_line() {
    for (toml, expected) in [
        (
            "[applications.shop]\nhost = \"a\"",
            "unknown setting `applications.shop.host` (hearth.toml:2)\ndid you mean `applications.shop.hosts`?",
        ),
        (
            "[applications.shop.php]\nwrokers = 1",
            "unknown setting `applications.shop.php.wrokers` (hearth.toml:2)\ndid you mean `applications.shop.php.workers`?",
        ),
        (
            "[applications.shop]\nworkers = 1",
            "unknown setting `applications.shop.workers` (hearth.toml:2)\ndid you mean `applications.shop.php.workers`?",
        ),
        (
            "[applications.shop.http]\nlisten = \":80\"",
            "`applications.shop.http.listen` (hearth.toml:2): `http.listen` is the server's, and no application has its own\nmove it to `[http]`",
        ),
        (
            "[applications]\nshop = \"/srv/shop\"",
            "`applications` (hearth.toml:1) has a value outside the table of an application\nwrite it below `[applications.NAME]`",
        ),
        (
            "[aplications.shop]\npath = \"x\"",
            "unknown setting `aplications` (hearth.toml:1)\ndid you mean `applications`?",
        ),
        (
            "[applications.shop]\nhosts = [\"http://a\"]",
            "wrong value for `hosts` (hearth.toml:2): `http://a`\nwrite a host such as `shop.example.com` or `*.example.com`, without a port; several as a list, or separated by commas",
        ),
        (
            "[applications.shop]\npaths = [\"/a/../b\"]",
            "wrong value for `paths` (hearth.toml:2): `/a/../b`\nwrite a path such as `/legacy`, decoded and without `*`: everything below it is included; several as a list, or separated by commas",
        ),
        (
            "[applications.shop]\npaths = [\"/legacy/*\"]",
            "wrong value for `paths` (hearth.toml:2): `/legacy/*`\nwrite a path such as `/legacy`, decoded and without `*`: everything below it is included; several as a list, or separated by commas",
        ),
        (
            "[applications.\"a b\"]\npath = \"x\"",
            "`a b` is no name for an application (hearth.toml:1)\nwrite letters, digits, `-` and `_`, 64 of them at most",
        ),
        (
            "[applications.main]\npath = \"x\"",
            "`applications.main` (hearth.toml:1): that is what the application at PATH is called\nwrite its settings outside `[applications]`, or choose another name",
        ),
        (
            "[applications.shop]\npath = \"x\"\npaths = \"/\"",
            "`applications.shop` (hearth.toml:1) names neither hosts nor paths\nadd `hosts` or `paths`: unclaimed requests go to the application at PATH",
        ),
        (
            "[applications.b]\nhosts = [\"x.org\", \"y.org\"]\n[applications.a]\nhosts = \"Y.org.\"",
            "`applications.b` and `applications.a` both claim y.org\neach host and path is for one of them: change `hosts` or `paths`",
        ),
    ] {
        assert_eq!(problem(toml), expected, "{toml}");
    }
}

#[test]
fn a_reload_applies_application_settings_and_not_server_settings() {
    let toml = |workers: u32, slow: u32| {
        format!(
            "[log]\nslow_requests = \"{slow}s\"\n[applications.a]\nhosts = \"a\"\n[applications.a.php]\nworkers = {workers}"
        )
    };
    let old = read(&toml(1, 1)).unwrap();
    let (new, restart_for) = read(&toml(2, 2)).unwrap().in_place_of(&old);
    assert_eq!(restart_for, ["log.slow_requests"]);
    let settings = &new.applications[0].settings;
    assert_eq!(settings.php.workers.0.unwrap().get(), 2);
    assert_eq!(settings.log.slow_requests, old.log.slow_requests);
    assert!(read("").unwrap().in_place_of(&new).0.applications.is_empty());
}

#[test]
fn relative_sandbox_paths_start_at_each_applications_folder() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    for inside in ["main", "shop", "blog/public"] {
        std::fs::create_dir_all(folder.join(inside)).unwrap();
    }
    std::fs::write(folder.join("blog/public/index.php"), "<?php").unwrap();
    let toml = r#"
        [sandbox]
        readable = ["resources"]
        writable = ["storage", "/tmp"]
        [applications.shop]
        path = "../shop"
        hosts = "shop"
        [applications.blog]
        path = "../blog/public/index.php"
        hosts = "blog"
        [applications.blog.sandbox]
        writable = ["../blog/cache"]
        [applications.route]
        paths = "/route"
    "#;
    std::fs::write(folder.join("main/hearth.toml"), toml).unwrap();
    let read = |variables: &[(&str, &str)]| {
        let environment = Environment::for_test(&folder.join("main"), variables);
        let all = load(&folder.join("main"), None, Vec::new(), &environment).unwrap();
        let applications = all.applications.iter().map(|named| &named.settings);
        let paths = |paths: &[PathBuf]| {
            let paths = paths.iter().map(|path| path.to_str().unwrap());
            paths.collect::<Vec<_>>().join(" ").replace(folder.to_str().unwrap(), "")
        };
        let of = |settings: &Settings| {
            (paths(&settings.sandbox.readable), paths(&settings.sandbox.writable))
        };
        std::iter::once(of(&all)).chain(applications.map(of)).collect::<Vec<_>>()
    };
    let two = |readable: &str, writable: &str| (readable.to_owned(), writable.to_owned());
    let main = two("/main/resources", "/main/storage /tmp");
    let shop = two("/shop/resources", "/shop/storage /tmp");
    // Relative paths of its own table have the same base as the rest of the file.
    let blog = two("/blog/resources", "/main/../blog/cache");
    assert_eq!(read(&[]), [main.clone(), shop, blog, main]);
    let of_all = read(&[("HEARTH_SANDBOX_READABLE", "assets,/usr/share")]);
    let readable: Vec<&str> = of_all.iter().map(|(readable, _)| readable.as_str()).collect();
    assert_eq!(
        readable,
        [
            "/main/assets /usr/share",
            "/shop/assets /usr/share",
            "/blog/assets /usr/share",
            "/main/assets /usr/share"
        ]
    );
}
