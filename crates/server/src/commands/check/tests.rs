mod outside;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::net::{AddressFamily, SocketType};

use super::*;
use crate::config::Raw;

const WORKER: &str = "#!/bin/sh\n[ \"$1\" != --ini-stdin ] || settings=$(tr '\\0' ' ')\ncase $settings in *extension=rediss*)\n    echo \"PHP Warning:  PHP Startup: Unable to load 'rediss' in Unknown on line 0\" >&2 ;; esac\nif [ \"$1\" = --probe-snapshot ]; then\n\
                      echo '{\"tracker\": \"'${TRACKER:-file}'\", \"why\": \"'$WHY'\"}'; exit; fi\necho '{\"php_version\": \"8.2.35\", \"sapi\": \"fpm-fcgi\", \"zts\": false, \
                      \"extensions\": {\"Core\": \"8.2.35\", \"curl\": \"8.2.35\", \"mbstring\": \"8.2.35\", \"Zend OPcache\": \"8.2.35\"}, \
                      \"ini_file\": \"/etc/php/8.2/php.ini\", \"ini\": [\"memory_limit\", \"opcache.enable\"], \"opcache\": {\"present\": true, \"enabled\": OPCACHE}}'\n";

const FPM: &str = "#!/bin/sh\ncase $1 in\n-v) echo 'PHP 8.2.35 (fpm-fcgi) (built: Oct 21 2026 06:29:51) (NTS)' ;;\n\
                   -m) printf '[PHP Modules]\\nCore\\ncurl\\nmbstring\\n\\n[Zend Modules]\\nZend OPcache\\n' ;;\nesac\n";

/// Checks an application made of these files with a PHP that reports a few extensions.
fn report(files: &[(&str, &str)], opcache: &str, flags: &[(&'static str, &str)]) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let lib = tempfile::tempdir().unwrap();
    let worker = lib.path().join("hearth-worker-8.2");
    testkit::write_program(&worker, &WORKER.replace("OPCACHE", opcache));
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let fpm = lib.path().join("php-fpm8.2");
    testkit::write_program(&fpm, FPM);
    let lib_path = lib.path().to_str().unwrap();
    let environment =
        Environment::for_test(folder.path(), &[("HEARTH_LIB_DIR", lib_path), ("PATH", lib_path)]);
    // Of one name the first holds.
    let defaults = [("http.listen", "127.0.0.1:0"), ("php.workers", "2")];
    let all = flags.iter().chain(&defaults);
    let all = all.map(|(name, value)| (*name, Raw::Text((*value).into()))).collect();
    let target = Target { path: folder.path().to_owned(), config: None, flags: all };
    let mut report = check(&target, (false, Boots::No), &environment).unwrap();
    let canonical = folder.path().canonicalize().unwrap();
    for (path, name) in [(canonical.as_path(), "APP"), (lib.path(), "LIB")] {
        report.replace(path.to_str().unwrap(), name);
    }
    report
}

/// The findings about Lambda.
fn cold_start(files: &[(&str, &str)], flags: &[(&'static str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let lib = tempfile::tempdir().unwrap();
    let worker = lib.path().join("hearth-worker-8.2");
    let text = WORKER.replace("OPCACHE", "true").replace("mbstring", "xdebug");
    testkit::write_program(&worker, &text);
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let lib_path = lib.path().to_str().unwrap();
    let variables = [("HEARTH_LIB_DIR", lib_path), ("LAMBDA_TASK_ROOT", "/var/task")];
    let environment = Environment::for_test(folder.path(), &variables);
    let flags = flags.iter().map(|(name, value)| (*name, Raw::Text((*value).into()))).collect();
    let target = Target { path: folder.path().to_owned(), config: None, flags };
    let text = check(&target, (false, Boots::No), &environment).unwrap().text(false);
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("lambda: ")).collect();
    lines.join("\n")
}

#[test]
fn check_warns_functions_about_slow_cold_starts() {
    let map = "<?php return array('Composer\\InstalledVersions' => $vendorDir);";
    let laravel = [
        ("artisan", ""),
        ("bootstrap/app.php", ""),
        ("public/index.php", ""),
        ("vendor/composer/autoload_classmap.php", map),
    ];
    let slow = cold_start(&laravel, &[("php.model", "spawn"), ("php.workers", "16")]);
    for part in [
        "`php.workers` (16) does nothing on Lambda",
        "`spawn` starts a PHP process for each event",
        "xdebug is loaded",
        "class map is empty",
        "not made ahead: bootstrap/cache/config.php, bootstrap/cache/routes-v7.php",
    ] {
        assert!(slow.contains(part), "{part}: {slow}");
    }
    let map = "'A' => 1, ".repeat(100);
    let ready = [
        ("artisan", ""),
        ("bootstrap/app.php", ""),
        ("public/index.php", ""),
        ("vendor/composer/autoload_classmap.php", &map),
        ("bootstrap/cache/config.php", ""),
        ("bootstrap/cache/routes-v7.php", ""),
    ];
    let fast = cold_start(&ready, &[("php.model", "fork")]);
    for part in ["`fork` waits ready", "made ahead: bootstrap/cache", "class map is there"] {
        assert!(fast.contains(part), "{part}: {fast}");
    }
    assert!(!fast.contains("php.workers"), "{fast}");
    // Outside of Lambda nothing checks it.
    assert!(!text(&report(&[("public/index.php", "")], "true", &[])).contains("lambda: "));
}

/// The text for people without what differs between machines.
fn text(report: &Report) -> String {
    let text = report.text(false);
    let lines: Vec<&str> = text.lines().filter(|line| !line.contains(" system: ")).collect();
    lines.join(
        "
",
    )
}

#[test]
fn check_finds_no_fault_in_a_sound_application() {
    let report = report(&[("public/index.php", ""), ("public/style.css", "")], "true", &[]);
    assert!(report.is_fine());
    insta::assert_snapshot!(text(&report));
}

#[test]
fn check_warns_about_an_application_without_its_own_user() {
    let seen = |main: &str| {
        let toml = format!(
            "[php]\nmodel = \"request\"\n{main}[applications.shop]\nhosts = [\"shop.test\"]\n\
             [applications.shop.php]\nuser = 54322\ngroup = 54322\n"
        );
        let files = [("public/index.php", "<?php"), ("hearth.toml", &toml)];
        report(&files, "true", &[]).text(false).contains("the server's own user, who can read")
    };
    assert!(seen(""));
    assert!(!seen("user = 54321\ngroup = 54321\n"));
}

#[test]
fn check_reports_every_fault_of_a_laravel_application_at_once() {
    let files = [
        ("artisan", ""),
        ("bootstrap/app.php", ""),
        ("config/app.php", "'key' => env('APP_KEY'),"),
        ("public/index.php", ""),
        (".env", "APP_KEY=\nAPP_DEBUG=true\n"),
        (
            "composer.json",
            r#"{"require": {"php": "^8.3", "ext-gd": "*", "ext-mbstring": "*", "ext-redis": "*"}}"#,
        ),
    ];
    let report = report(&files, "false", &[]);
    assert!(!report.is_fine());
    insta::assert_snapshot!(text(&report));
}

#[test]
fn check_uses_the_environment_from_the_settings() {
    let findings = |framework: &[(&str, &str)], toml: &str| {
        let index = [("public/index.php", ""), ("hearth.toml", toml)];
        let report = report(&[framework, &index].concat(), "true", &[]);
        (report.is_fine(), text(&report))
    };
    let laravel = [("artisan", ""), ("bootstrap/app.php", "")];
    let (fine, without) = findings(&laravel, "");
    assert!(!fine && without.contains("    copy .env.example to .env and run"), "{without}");
    let settings = "[php.env]\nAPP_KEY = \"base64:AA==\"\nAPP_DEBUG = true\n";
    let (fine, with) = findings(&laravel, settings);
    assert!(
        fine && !with.contains("APP_KEY") && with.contains("! application: APP_DEBUG"),
        "{with}"
    );

    let symfony = [("config/bundles.php", ""), (".env", "APP_ENV=dev\n")];
    let (_, dev) = findings(&symfony, "");
    let (_, prod) = findings(&symfony, "[php.env]\nAPP_ENV = \"prod\"\n");
    let debug = "Symfony's debug mode is on";
    assert!(dev.contains(debug) && !prod.contains(debug), "{dev}\n{prod}");
}

#[test]
fn check_warns_about_symfonys_debug_mode() {
    let files = [
        ("config/bundles.php", ""),
        ("public/index.php", ""),
        (".env", "APP_ENV=dev\n"),
        (".env.local", "export APP_DEBUG=\"1\"\n"),
    ];
    let report = report(&files, "true", &[]);
    assert!(report.is_fine(), "a warning is no problem");
    insta::assert_snapshot!(text(&report));
}

#[test]
fn check_names_the_replacement_of_an_impossible_model() {
    let script = ("worker.php", "");
    let with = |tracker: &str| {
        let settings = format!("[php.env]\nTRACKER = \"{tracker}\"\nWHY = \"refused\"\n");
        let report = report(&[script, ("hearth.toml", &settings)], "true", &[]);
        assert!(report.is_fine(), "a fallback is no problem");
        let text = text(&report);
        text.lines().filter(|line| line.contains("model")).collect::<Vec<_>>().join("\n")
    };
    let shared = text(&report(&[script], "true", &[("php.model", "worker")]));
    let shared = shared.lines().find(|line| line.starts_with("! model")).unwrap().to_owned();
    insta::assert_snapshot!([with("none"), shared].join("\n\n"));
}

#[test]
fn an_address_in_use_and_a_missing_certificate_are_problems() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let flags = [
        ("admin.listen", address.as_str()),
        ("http.tls_cert", "/nonexistent/cert.pem"),
        ("http.tls_key", "/nonexistent/key.pem"),
    ];
    let mut report = report(&[("index.php", "")], "true", &flags);
    report.replace(&address, "127.0.0.1:TAKEN");
    assert!(!report.is_fine());
    insta::assert_snapshot!(text(&report));
}

#[test]
fn conflicting_addresses_are_a_problem() {
    // An address of this test alone: a port that was free stays free.
    let free = std::net::TcpListener::bind("127.0.0.78:0").unwrap().local_addr().unwrap();
    let address = free.to_string();
    let twice = format!("http://{address},http://{address}");
    for (listen, admin) in [(&address, Some(&address)), (&twice, None)] {
        let second = if admin.is_some() { "admin.listen" } else { "http.listen" };
        let names = format!("`http.listen` {address}, `{second}` {address}");
        let mut flags = vec![("http.listen", listen.as_str())];
        flags.extend(admin.map(|admin| ("admin.listen", admin.as_str())));
        let report = report(&[("index.php", "")], "true", &flags);
        let text = text(&report);
        let told = format!(
            "✗ listeners: cannot listen on {address}: Address already in use (os error 98)\n    \
             only one of these can listen: {names};"
        );
        assert!(!report.is_fine() && text.contains(&told), "{text}");
    }
}

#[test]
fn unusable_settings_are_found_in_files_and_rejected_as_flags() {
    let broken =
        report(&[("index.php", ""), ("hearth.toml", "[http]\nlisten = 80\n")], "true", &[]);
    assert!(!broken.is_fine());
    assert!(
        text(&broken).contains("✗ settings: wrong value for `http.listen`"),
        "{}",
        text(&broken)
    );

    let environment = Environment::for_test(Path::new("/"), &[]);
    let flags = vec![("http.listen", Raw::Text("80".into()))];
    let refused =
        check(&Target { path: "/".into(), config: None, flags }, (false, Boots::No), &environment)
            .unwrap_err();
    assert_eq!(refused.status(), 2);
}

#[test]
fn check_finds_every_unusable_setting_in_one_run() {
    let toml = "[http]\nlisten = 8080\n[htpp]\n[php]\nworkers = \"four\"\nmodle = \"octane\"\nmodel = \"octane\"\n\
                [applications.shop]\nhosts = [\"a/b\"]\npahts = [\"/x\"]\n[applications.shop.php]\nversion = \"new\"\n";
    let report =
        report(&[("index.php", ""), ("hearth.toml", toml)], "true", &[("php.workers", "2")]);
    let text = text(&report);
    for part in [
        "unknown setting `htpp` (",
        "unknown setting `php.modle` (",
        "unknown setting `applications.shop.pahts` (",
        "wrong value for `http.listen` (",
        "wrong value for `php.workers` (",
        "wrong value for `php.model` (",
        "wrong value for `hosts` (",
        "wrong value for `php.version` (",
    ] {
        assert_eq!(text.matches(part).count(), 1, "{part}: {text}");
    }
    assert!(text.ends_with("8 problems to solve"), "{text}");
}

#[test]
fn check_prints_json_for_programs() {
    let report = report(&[("index.php", "")], "true", &[]);
    let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    assert_eq!(json["fine"], true);
    assert_eq!(json["php"]["php_version"], "8.2.35");
    assert_eq!(json["findings"][0]["level"], "fine");
    assert_eq!(json["findings"][0]["topic"], "settings");
}

#[test]
fn check_runs_php_fpms_own_test() {
    let report = report(&[("public/index.php", "")], "true", &[("php.model", "fpm")]);
    assert!(report.is_fine());
    insta::assert_snapshot!(text(&report));
}

#[test]
fn a_missing_program_is_a_php_problem() {
    let flags = [("php.model", "cgi"), ("php.version", "7.0")];
    let report = report(&[("public/index.php", "")], "true", &flags);
    assert!(!report.is_fine());
    let text = text(&report);
    assert!(text.contains("php: no php-cgi7.0 found"), "{text}");
    assert!(text.contains("apt-get install php7.0-cgi"), "{text}");
}

#[test]
fn check_reports_realtime_variables_and_their_conflicts() {
    let of = |dotenv: &str, flags: &[(&'static str, &str)]| {
        let report = report(&[("public/index.php", ""), (".env", dotenv)], "true", flags);
        let text = text(&report);
        let lines = text.lines().skip_while(|line| !line.contains(" realtime: "));
        let of_ours =
            lines.take_while(|line| line.contains(" realtime: ") || line.contains("hint: "));
        of_ours.filter(|line| !line.contains("somaxconn")).collect::<Vec<_>>().join("\n")
    };
    let app = "REVERB_APP_ID=1\nREVERB_APP_KEY=k\nREVERB_APP_SECRET=s\nREVERB_HOST=localhost\nREVERB_PORT=9999\nREVERB_SCHEME=http\n";
    let told = [
        of("", &[]),
        of("BROADCAST_CONNECTION=reverb\n", &[]),
        of(
            "BROADCAST_DRIVER=pusher\nPUSHER_APP_ID=1\nPUSHER_APP_KEY=k\nPUSHER_APP_SECRET=s\n",
            &[],
        ),
        of(&format!("BROADCAST_CONNECTION=reverb\n{app}"), &[("http.listen", "127.0.0.1:1")]),
        of(&format!("BROADCAST_CONNECTION=hearth\n{app}"), &[("realtime.apps", "1:k:other")]),
    ];
    insta::assert_snapshot!(told.join("\n--\n"));
}

#[test]
fn check_accepts_addresses_of_this_applications_running_server() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("index.html"), "").unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let socket =
        std::os::unix::net::UnixListener::bind(folder.path().join("control.sock")).unwrap();
    let says = serde_json::json!({
        "pid": 4711, "target": folder.path(), "listens": [format!("http://{address}")],
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use std::io::{Read as _, Write as _};
            let (mut stream, _) = socket.accept().unwrap();
            let _asked = stream.read(&mut [0; 1024]).unwrap();
            write!(stream, "HTTP/1.0 200 OK\r\n\r\n{says}").unwrap();
        });
        let run_dir = folder.path().to_str().unwrap();
        let listen = address.to_string();
        let flags = [("server.run_dir", run_dir), ("http.listen", &listen)];
        let flags = flags.map(|(name, value)| (name, Raw::Text(value.to_owned()))).into();
        let target = Target { path: folder.path().to_owned(), config: None, flags };
        let environment = Environment::for_test(folder.path(), &[]);
        let text = check(&target, (false, Boots::No), &environment).unwrap().text(false);
        let told = format!("✓ listeners: the running server (process 4711) listens on {address}");
        assert!(text.contains(&told), "{text}");
    });
}

#[test]
fn check_finds_unusable_paths_and_unused_names() {
    let toml = "[server]\nrun_dir = \"public/index.php/x\"\n[http]\naccess_log = \"json\"\naccess_log_path = \"/nonexistent/a.log\"\n\
                [http.sendfile]\n\"/p/\" = \"/nonexistent\"\n[php.ini]\nmemry_limit = \"1G\"\nextension = \"a.so\"\n\
                [log]\nlevel = \"info,phpp=debug\"\n";
    let report = report(&[("public/index.php", ""), ("hearth.toml", toml)], "true", &[]);
    assert!(!report.is_fine());
    let text = report.text(false);
    for part in [
        "✗ system: cannot use the run folder APP/public/index.php/x: ",
        "✗ system: cannot open the access log /nonexistent/a.log: ",
        "! application: `/p/` of `[http.sendfile]` names /nonexistent, which is no folder",
        "! php: PHP knows no `memry_limit` (`[php.ini]`): it does nothing\n    did you mean `memory_limit`?",
        "! settings: nothing logs as `phpp` (`log.level`)\n    did you mean `php`?",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("`extension`"), "{text}");
}

#[test]
fn check_warns_about_php_warnings_and_body_limits() {
    let toml = "[http]\nbody_limit = \"8MiB\"\n[php.ini]\npost_max_size = \"256M\"\nextension = \"rediss\"\n";
    let report = report(&[("index.php", ""), ("hearth.toml", toml)], "true", &[]);
    assert!(report.is_fine(), "PHP runs without it");
    let text = report.text(false);
    for part in [
        "! php: PHP starts with a complaint: Unable to load 'rediss'\n    install the extension",
        "! php: `post_max_size` (256M) is above `http.body_limit` (8388608 bytes)",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
