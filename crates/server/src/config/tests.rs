use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;

/// Reads settings from a `hearth.toml` in /app, variables, and flags given in /here.
fn read(
    toml: &str,
    variables: &[(&str, &str)],
    flags: &[(&'static str, Raw)],
) -> Result<Settings, ConfigError> {
    let sources = Sources {
        platform: Vec::new(),
        shared: Vec::new(),
        flags: flags.to_vec(),
        environment: variables
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect(),
        file: Some(File::parse(Path::new("/app/hearth.toml"), toml)?),
        current_dir: PathBuf::from("/here"),
        folder: PathBuf::from("/app"),
        application: None,
        own_folder: None,
    };
    sources.check_names()?;
    let settings = Settings::read(&sources)?;
    settings.check_together()?;
    Ok(settings)
}

fn text(text: &str) -> Raw {
    Raw::Text(text.into())
}

#[test]
fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    let file = "[php]\nbacklog_timeout = \"1s\"\nrequest_timeout = \"1s\"\nboot_timeout = \"1s\"\n";
    let variables = [("HEARTH_PHP_REQUEST_TIMEOUT", "2s"), ("HEARTH_PHP_BOOT_TIMEOUT", "2s")];
    let flags = [("php.request_timeout", text("3s"))];
    let settings = read(file, &variables, &flags).unwrap();
    assert_eq!(settings.php.request_timeout, Some(Duration::from_secs(3)));
    assert_eq!(settings.php.boot_timeout, Duration::from_secs(2));
    assert_eq!(settings.php.backlog_timeout, Duration::from_secs(1));
    assert_eq!(settings.server.shutdown_patience, Duration::from_secs(30));
}

#[test]
fn every_default_can_be_read() {
    read("", &[], &[]).unwrap();
}

#[test]
fn tables_are_merged_and_the_stronger_source_wins() {
    let file =
        "[php.ini]\nmemory_limit = \"64M\"\nopcache.enable = true\n\"date.timezone\" = \"UTC\"\n";
    let variables = [("HEARTH_PHP_INI", "memory_limit=128M; display_errors=0")];
    let flags = [(
        "php.ini",
        Raw::List(vec!["disable_functions=exec,system".into(), "display_errors=1".into()]),
    )];
    let mut ini = read(file, &variables, &flags).unwrap().php.ini.0;
    ini.sort();
    let expected = [
        ("date.timezone", "UTC"),
        ("disable_functions", "exec,system"),
        ("display_errors", "1"),
        ("memory_limit", "128M"),
        ("opcache.enable", "1"),
    ];
    assert_eq!(ini, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn relative_paths_start_at_their_source() {
    let file = "[http]\ndocument_root = \"web\"\ntls_cert = \"cert.pem\"\n";
    let settings = read(file, &[("HEARTH_HTTP_TLS_KEY", "key.pem")], &[]).unwrap();
    assert_eq!(settings.http.document_root.0, Some(PathBuf::from("/app/web")));
    assert_eq!(settings.http.tls_cert, Some(vec![PathBuf::from("/app/cert.pem")]));
    assert_eq!(settings.http.tls_key, Some(vec![PathBuf::from("/here/key.pem")]));
}

#[test]
fn numbers_booleans_and_lists_of_toml_need_no_quotes() {
    let file = "[http]\ncompression = false\nlisten = [\"127.0.0.1:0\", \"unix:run/app.sock\"]\n[php]\nworkers = 3\n";
    let settings = read(file, &[], &[]).unwrap();
    assert!(!settings.http.compression);
    assert_eq!(settings.php.workers.0.map(std::num::NonZeroUsize::get), Some(3));
    let listen: Vec<String> =
        settings.http.listen.iter().map(|listen| listen.address.to_string()).collect();
    assert_eq!(listen, ["127.0.0.1:0", "unix:/app/run/app.sock"]);
}

#[test]
fn a_listener_speaks_tls_by_its_scheme_or_by_whether_there_are_certificates() {
    let listen = "listen = [\":1\", \"http://:2\", \"unix:app.sock\", \"http://127.0.0.1:3/\"]";
    let certificates = "tls_cert = \"a.pem\"\ntls_key = \"a.key\"";
    let of = |file: String| {
        let settings = read(&file, &[], &[]).unwrap();
        settings.http.listen.iter().map(|one| settings.speaks_tls(one)).collect::<Vec<_>>()
    };
    assert_eq!(of(format!("[http]\n{listen}\n")), [false; 4]);
    assert_eq!(of(format!("[http]\n{listen}\n{certificates}\n")), [true, false, false, false]);
}

/// A file, variables and flags.
type Mistake<'a> = (&'a str, &'a [(&'a str, &'a str)], Vec<(&'static str, Raw)>);

/// Each message as a user would see it: a changed word is a changed snapshot.
#[test]
fn every_mistake_has_its_place_and_a_hint() {
    let flag = |name, value: &str| vec![(name, text(value))];
    let mistakes: Vec<Mistake<'_>> = vec![
        ("[http]\n\nlisen = \":80\"\n", &[], vec![]),
        ("[htpp]\nlisten = \":80\"\n", &[], vec![]),
        ("[http]\nworkers = 2\n", &[], vec![]),
        ("workers = 2\n", &[], vec![]),
        ("[zebra]\n", &[], vec![]),
        ("[http]\nlisten = :80\n", &[], vec![]),
        ("[http]\nheader_timeout = 10\n", &[], vec![]),
        ("[http]\nbody_limit = \"lots\"\n", &[], vec![]),
        ("[http]\ntrusted_proxies = [\"10.0.0.0/8\", \"10.0.0.0/33\"]\n", &[], vec![]),
        ("[http]\ntrusted_headers = [\"x-forwarded-for\", \"forwarded\"]\n", &[], vec![]),
        ("[http]\ntrusted_headers = \"x-real-ip\"\n", &[], vec![]),
        ("[http]\nroute_by_forwarded_host = true\n", &[], vec![]),
        ("[http]\ncompression = \"maybe\"\n", &[], vec![]),
        ("[http.listen]\na = 1\n", &[], vec![]),
        ("[http]\nlisten = []\n", &[], vec![]),
        ("[http]\ntls_cert = \"cert.pem\"\n", &[], vec![]),
        ("[http]\ntls_cert = [\"a.pem\", \"b.pem\"]\ntls_key = \"a.key\"\n", &[], vec![]),
        ("[http]\nlisten = \"https://:443\"\n", &[], vec![]),
        ("[http]\nlisten = \"https://unix:app.sock\"\n", &[], vec![]),
        ("[http]\nhsts = \"31536000\"\n", &[], vec![]),
        ("[acme]\ndomains = \"shop.example\"\n", &[], vec![]),
        ("[acme]\ndomains = \"*.example\"\n", &[], vec![]),
        (
            "[acme]\ndomains = \"shop.example\"\naccept_terms = true\nchallenge = \"http-01\"\n",
            &[],
            vec![],
        ),
        ("[acme]\ndirectory = \"http://ca.example\"\n", &[], vec![]),
        ("[acme]\nemail = \"ops@shop.example\"\n", &[], vec![]),
        ("", &[("HEARTH_ACME_EMAIL", "ops@shop.example")], vec![]),
        ("", &[("HEARTH_PHP_WORKER", "2")], vec![]),
        ("", &[("HEARTH_WORKERS", "2")], vec![]),
        ("", &[("HEARTH_0123456789", "2")], vec![]),
        ("", &[("HEARTH_PHP_WORKERS", "0")], vec![]),
        ("", &[], flag("php.model", "snapshto")),
        ("", &[], flag("php.model", "Z")),
        ("", &[], flag("php.model", "wroker")),
        ("", &[], flag("php.version", "eight")),
        ("", &[], flag("http.listen", "localhost")),
        ("", &[], flag("http.access_log", "xml")),
        ("", &[], vec![("php.ini", Raw::List(vec!["memory_limit".into()]))]),
        ("", &[], flag("log.format", "yaml")),
    ];
    let mut seen = String::new();
    for (file, variables, flags) in mistakes {
        let error =
            read(file, variables, &flags).expect_err(&format!("{file:?} {variables:?} {flags:?}"));
        writeln!(seen, "{}", Failure::from(error).render()).unwrap();
    }
    insta::assert_snapshot!(seen);
}

#[test]
fn a_named_settings_file_must_exist() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hearth.toml");
    assert!(File::read_if_there(&path).unwrap().is_none());
    assert!(matches!(File::read(&path), Err(ConfigError::Unreadable { .. })));
    std::fs::write(&path, "[log]\nlevel = \"debug\"\n").unwrap();
    assert!(File::read_if_there(&path).unwrap().is_some());
}

#[test]
fn names_and_variables_of_settings_are_unique() {
    let mut names: Vec<String> = KEYS.iter().map(Key::environment).collect();
    names.extend(KEYS.iter().filter_map(|key| key.flag.map(str::to_owned)));
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

/// `UPDATE=1` rewrites the pages.
#[test]
fn the_reference_pages_are_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let pages =
        [("config.md", settings_page()), ("cli.md", command_line_page(crate::cli::command()))];
    for (name, page) in pages {
        let path = folder.join(name);
        if update() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &page).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == page, "{name} is out of date: run `UPDATE=1 cargo test -p server`");
    }
}

#[expect(clippy::disallowed_methods, reason = "the switch of all tests that write generated files")]
fn update() -> bool {
    std::env::var("UPDATE").is_ok_and(|value| value == "1")
}
