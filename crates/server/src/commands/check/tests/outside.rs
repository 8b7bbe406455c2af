//! Checks of what is outside of the application: users, files, outgoing calls, databases, traces.

use super::*;

#[test]
fn check_warns_about_root_and_checks_access_as_phps_user() {
    let folder = tempfile::tempdir().unwrap();
    let lib = tempfile::tempdir().unwrap();
    let worker = lib.path().join("hearth-worker-8.2");
    fs::write(&worker, WORKER.replace("OPCACHE", "true")).unwrap();
    fs::set_permissions(&worker, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.path().join("index.php"), "").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let variables = [("HEARTH_LIB_DIR", lib.path().to_str().unwrap())];
    let look = |flags: &[(&'static str, &str)]| {
        let mut environment = Environment::for_test(folder.path(), &variables);
        environment.is_root = true;
        let defaults = [("http.listen", "127.0.0.1:0"), ("php.model", "request")];
        let flags = defaults.iter().chain(flags);
        let flags = flags.map(|(name, value)| (*name, Raw::Text((*value).into()))).collect();
        let target = Target { path: folder.path().to_owned(), config: None, flags };
        check(&target, (false, Boots::No), &environment).unwrap().text(false)
    };
    assert!(look(&[]).contains("! php: PHP runs as root\n    `--user NAME`"));
    let other = look(&[("server.user", "nobody")]);
    assert!(!other.contains("PHP runs as root"), "{other}");
    let told = if rustix::process::geteuid().is_root() {
        "✗ application: the server as user 65534 (`server.user`) cannot "
    } else {
        "! settings: the server is to be user 65534 (`server.user`), which cannot be tried"
    };
    assert!(other.contains(told), "{other}");

    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["artisan", "bootstrap/app.php", "public/index.php", "storage/logs/a.log"] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    for user in ["server.user", "php.user"] {
        let laravel = look(&[(user, "nobody")]);
        let refused = laravel.contains("✗ application: cannot be written: storage");
        assert_eq!(refused, rustix::process::geteuid().is_root(), "{user}: {laravel}");
    }
}

#[test]
fn check_finds_files_that_php_cannot_read() {
    let folder = tempfile::tempdir().unwrap();
    let lib = tempfile::tempdir().unwrap();
    let worker = lib.path().join("hearth-worker-8.2");
    testkit::write_program(&worker, &WORKER.replace("OPCACHE", "true"));
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(folder.path(), 0o755);
    mode(lib.path(), 0o755);
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let lib_path = lib.path().to_str().unwrap();
    let environment = Environment::for_test(folder.path(), &[("HEARTH_LIB_DIR", lib_path)]);
    // Root's access see everything; of another user the check is made by his own.
    let user = rustix::process::geteuid().is_root().then_some(("php.user", "nobody"));
    let refused = |names: &[&str], but: &[&str]| {
        for name in names {
            mode(&folder.path().join(name), 0);
        }
        let defaults = [("http.listen", "127.0.0.1:0"), ("php.model", "request")];
        let flags = defaults.into_iter().chain(user);
        let flags = flags.map(|(name, value)| (name, Raw::Text(value.into()))).collect();
        let target = Target { path: folder.path().to_owned(), config: None, flags };
        let text = check(&target, (false, Boots::No), &environment).unwrap().text(false);
        for name in names {
            mode(&folder.path().join(name), 0o755);
        }
        assert!(!text.contains(" is missing"), "{text}");
        let lines = text.lines().filter(|line| line.starts_with('✗'));
        let lists = lines.filter_map(|line| line.split(" cannot read ").nth(1)?.split(": ").next());
        let told: Vec<&str> = lists.flat_map(|list| list.split(", ")).collect();
        for name in names {
            assert_eq!(told.contains(name), !but.contains(name), "{name}: {text}");
        }
    };
    for name in ["artisan", "public/index.php", "bootstrap/app.php", "config/app.php"] {
        write(name, "");
    }
    write("composer.json", "{}");
    write("vendor/autoload.php", "");
    write(".env", "APP_KEY=base64:AA==\n");
    write(".env.local", "");
    refused(&[], &[]);
    refused(&[".env", "vendor/autoload.php", "config", ".env.local"], &[".env.local"]);
    write("bootstrap/cache/config.php", "");
    refused(&[".env", "bootstrap/cache/config.php"], &[".env"]);

    fs::remove_file(folder.path().join("artisan")).unwrap();
    write("config/bundles.php", "");
    refused(&[".env", ".env.local", "config/bundles.php"], &[]);
    write(".env.local.php", "");
    refused(&[".env", ".env.local.php"], &[".env"]);
}

/// The lines about outgoing calls.
fn egress(report: &Report) -> String {
    let text = text(report);
    let mut lines = text.lines().peekable();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        if line.contains(" egress: ") {
            found.push(line);
            found.extend(lines.next_if(|line| line.starts_with("    ")));
        }
    }
    found.join("\n")
}

#[test]
fn check_reports_what_blocks_outgoing_calls() {
    let index = ("public/index.php", "");
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("egress.sock");
    let _broker = std::os::unix::net::UnixListener::bind(&taken).unwrap();
    let long = folder.path().join("x".repeat(120));
    let seen = |settings: &str| {
        let mut report = report(&[index, ("hearth.toml", settings)], "true", &[]);
        report.replace(folder.path().to_str().unwrap(), "FOLDER");
        (report.is_fine(), egress(&report))
    };
    let (taken, long) = (taken.display(), long.display());
    let cases = [
        seen("[egress]\nenabled = false\n"),
        seen("[egress]\nsocket = \"/nonexistent/egress.sock\"\nca = \"/nonexistent/ca.pem\"\n"),
        seen(&format!("[egress]\nsocket = \"{taken}\"\ndeny = []\n")),
        seen(&format!("[egress]\nsocket = \"{long}\"\ndeny = [\"10.0.0.0/8\"]\n")),
        seen("[egress]\ncallers = 4000000000\n[php.ini]\n\"hearth.egress\" = \"off\"\n"),
    ];
    assert_eq!(cases.each_ref().map(|(fine, _)| *fine), [true, false, false, false, true]);
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap();
    let texts = cases.map(|(_, text)| text.replace(&format!("is {hard}:"), "is HARD:"));
    insta::assert_snapshot!(texts.join("\n\n"));
}

/// The findings about databases of a Laravel application with this `.env` and these settings.
fn databases(dotenv: &str, settings: &str) -> String {
    let map = "<?php return array('Composer\\InstalledVersions' => $vendorDir);";
    let files = [
        ("artisan", ""),
        ("bootstrap/app.php", ""),
        ("public/index.php", ""),
        ("vendor/autoload.php", ""),
        ("vendor/composer/autoload_classmap.php", map),
        (".env", dotenv),
        ("hearth.toml", settings),
    ];
    let text = report(&files, "true", &[]).text(false);
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("databases: ")).collect();
    lines.join("\n")
}

#[test]
fn check_reports_kept_databases_without_secrets() {
    let local = databases("DB_CONNECTION=mysql\nDB_HOST=10.0.0.7\nDB_PASSWORD=a secret\n", "");
    assert!(local.contains("(mysql at 10.0.0.7): 2 connections at most"), "{local}");
    assert!(!local.contains("encrypt") && !local.contains("secret"), "{local}");

    let url = "DATABASE_URL=pgsql://visitor:a-secret@db.example:5432/shop\n";
    let remote = databases(url, "");
    assert!(remote.contains("(pgsql at db.example:5432): 2 connections at most"), "{remote}");
    assert!(remote.contains("clients encrypt over TCP"), "{remote}");
    assert!(!remote.contains("secret"), "{remote}");

    for fine in [
        "DB_CONNECTION=pgsql\nDB_HOST=/run/postgresql\n",
        "DB_CONNECTION=pgsql\nDB_HOST=10.0.0.7\nDB_SSLMODE=disable\n",
        "DATABASE_URL=postgresql://visitor@10.0.0.7/shop?charset=utf8&sslmode=disable\n",
    ] {
        assert!(!databases(fine, "").contains("encrypt"), "{fine}");
    }
    let off = databases(url, "[databases]\nkeep = \"off\"\n");
    assert!(off.contains("nothing is kept") && !off.contains("encrypt"), "{off}");
    assert_eq!(databases(url, "[php]\nmodel = \"worker\"\n"), "");
}

#[test]
fn check_reports_where_traces_go_and_whether_it_answers() {
    let collector = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let there = format!("http://{}", collector.local_addr().unwrap());
    let found = |url: &str| {
        let found = report(&[("public/index.php", "")], "true", &[("traces.endpoint", url)]);
        assert!(found.is_fine(), "a server without its collector serves");
        text(&found)
    };
    assert!(found(&there).contains(&format!("traces: sent to {there}/v1/traces\n")));
    // Bound and not listened on: no other process gets the port meanwhile.
    let closed = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&closed, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let silent: SocketAddr = rustix::net::getsockname(&closed).unwrap().try_into().unwrap();
    assert!(found(&format!("http://{silent}")).contains("which does not answer"));
    assert!(!text(&report(&[("public/index.php", "")], "true", &[])).contains("traces: "));
}
