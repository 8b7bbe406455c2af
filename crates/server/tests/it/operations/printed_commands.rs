//! The commands that pages of the guide print, run as they stand there. Only addresses and users are those of the test.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use testkit::{Origin, Running};

use crate::hearth::{LIMIT, command, root};

/// Returns the commands of a page's block that has `part`, without comments.
fn block(page: &str, part: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("docs/guide").join(page)).unwrap();
    let found = text.split("```").skip(1).step_by(2).find(|block| block.contains(part));
    let found = found.unwrap_or_else(|| panic!("{page} has no {part}")).replace("\\\n", "");
    let without_comment = |line: &str| line.split("  #").next().unwrap_or(line).trim().to_owned();
    found.lines().skip(1).map(without_comment).collect()
}

/// Returns the line of a page's block that has `part`, as it is typed.
fn typed(page: &str, part: &str) -> String {
    let line = block(page, part).into_iter().find(|line| line.contains(part)).unwrap();
    line.strip_prefix("$ ").unwrap_or(&line).to_owned()
}

/// Returns a shell that runs a line in a folder, with `hearth` in its PATH and ports of the system's choice.
fn shell(folder: &Path, line: &str) -> Command {
    let hearth = command();
    let programs = Path::new(hearth.get_program()).parent().unwrap().display().to_string();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", line]).current_dir(folder).env_clear();
    shell.envs(hearth.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.env("PATH", format!("{programs}:/usr/bin:/bin")).env("HEARTH_HTTP_LISTEN", "127.0.0.1:0");
    shell
}

/// Runs a command to its end, and returns its output.
fn run(folder: &Path, line: &str) -> String {
    let output = shell(folder, line).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "`{line}`: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Starts a server, and returns the addresses that it prints: of the site, and of its admin interface.
fn start(folder: &Path, line: &str) -> (Running, Vec<String>) {
    let line = format!("exec {}", line.trim_end_matches(" &").replace(":9180", ":0"));
    let server = Running::start(&mut shell(folder, &line));
    let ready = server.log().find(LIMIT, |line| line.contains("ready on ").then_some(()));
    let text = server.log().text();
    assert!(ready.is_some(), "`{line}`: {text}");
    let address =
        |line: &str| line.split_once(" on http://").map(|(_, address)| address.to_owned());
    let lines = text.lines().filter(|line| line.starts_with("hearth: "));
    (server, lines.filter_map(address).collect())
}

#[test]
fn the_commands_of_the_first_pages_run_as_they_are_printed() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    let [make, write, serve, ask] = &block("getting-started.md", "mkdir -p hello/public")[..]
    else {
        panic!("other commands")
    };
    run(folder, make);
    run(folder, write);
    let (server, addresses) = start(folder, serve);
    assert_eq!(run(folder, &ask.replace("127.0.0.1:8080", &addresses[0])), "Hello, Ada!\n");
    drop(server);

    let mine = block("getting-started.md", "cd my-application");
    assert_eq!(mine, ["cd my-application", "hearth check", "hearth serve"]);
    let folder = &folder.join("hello");
    drop(start(folder, &mine[2]));
    let everyday = block("getting-started.md", "hearth check  ");
    let [check, watch, log, admin, status, php] = &everyday[..] else { panic!("{everyday:?}") };
    assert!(run(folder, check).contains("application"));
    drop(start(folder, watch));
    drop(start(folder, log));
    let (server, addresses) = start(folder, admin);
    let of_admin = addresses.iter().find(|address| **address != *addresses.last().unwrap());
    let text = run(folder, &status.replace("127.0.0.1:9180", of_admin.unwrap()));
    assert!(text.contains("\"workers\""), "{text}");
    drop(server);
    assert!(run(folder, php).contains("[PHP Modules]"));

    // By the eyes of another user, as the packages' service has one.
    if rustix::process::getuid().is_root() {
        let installed = block("install.md", "hearth check --user hearth");
        let line = installed.iter().find(|line| line.starts_with("hearth check")).unwrap();
        std::fs::write(folder.join("hearth.toml"), "").unwrap();
        let line = line.replace("--user hearth", "--user nobody");
        let line = line.replace("/etc/hearth/hearth.toml", "hearth.toml");
        run(folder, &line.replace("/srv/shop/current", "."));
    }
}

#[test]
fn the_commands_that_deploy_run_as_they_are_printed() {
    let place = tempfile::tempdir().unwrap();
    let shop = place.path().join("shop").display().to_string();
    let here = |line: String| line.replace("/srv/shop", &shop);
    let index = |answer: &str| {
        format!("<?php header('Cache-Control: public, max-age=60'); echo '{answer}';")
    };
    for release in ["41", "42"] {
        let public = place.path().join("shop/releases").join(release).join("public");
        std::fs::create_dir_all(&public).unwrap();
        std::fs::write(public.join("index.php"), index(release)).unwrap();
        std::fs::write(public.join("../hearth.toml"), "[http]\ncache = true\n").unwrap();
    }
    std::os::unix::fs::symlink("releases/41", place.path().join("shop/current")).unwrap();
    let (server, addresses) = start(place.path(), &format!("hearth serve {shop}/current"));
    let get = || run(place.path(), &format!("curl -s http://{}/", addresses[0]));
    let look = typed("cache.md", "curl -sI").replace("127.0.0.1:8080", &addresses[0]);
    let told = run(place.path(), &look).to_lowercase();
    assert!(told.contains("cache-status: hearth; "), "{told}");
    assert_eq!(get(), "41");

    let reload = typed("deploy.md", "hearth reload /srv/shop/current");
    assert!(run(place.path(), &here(reload)).starts_with("generation 2 after "));
    let folder = Path::new(&shop);
    run(folder, &here(typed("deploy.md", "ln -sfn releases/42")));
    assert_eq!(run(folder, &format!("curl -s http://{}/?new", addresses[0])), "42");
    let told = run(folder, &here(typed("deploy.md", "hearth status /srv/shop/current")));
    assert!(told.contains("generation 3; reloads: 2 done, 0 failed"), "{told}");
    let by_socket = typed("deploy.md", "hearth stop /srv/shop/current");
    assert!(run(folder, &here(by_socket)).contains(" has ended after "));
    drop(server);
}

#[test]
fn the_commands_that_look_and_publish_run_as_they_are_printed() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    let own = folder.join("run").display().to_string();
    std::fs::create_dir(folder.join("public")).unwrap();
    std::fs::write(folder.join("public/index.php"), "<?php echo 'here';").unwrap();
    let settings = format!(
        "[server]\nrun_dir = \"{own}\"\n[realtime.apps.1]\nkey = \"k\"\nsecret = \"secret\"\n"
    );
    std::fs::write(folder.join("hearth.toml"), settings).unwrap();
    for (page, address) in [("seeing.md", "0.0.0.0"), ("realtime.md", "127.0.0.1")] {
        let export = typed(page, "openssl rand");
        let token = run(folder, &format!("{export}; echo $HEARTH_ADMIN_TOKEN"));
        let serve = typed(page, &format!("hearth serve --admin {address}"));
        let (server, addresses) =
            start(folder, &format!("env HEARTH_ADMIN_TOKEN={} {serve}", token.trim()));
        let admin = addresses.iter().find(|found| **found != *addresses.last().unwrap()).unwrap();
        let ask = typed("seeing.md", "curl -H \"Authorization").replace("server:9180", admin);
        let ask = format!("HEARTH_ADMIN_TOKEN={}; {ask}", token.trim());
        assert!(run(folder, &ask).contains("\"workers\""), "{page}");

        let here = |line: String| line.replace("/run/hearth", &own);
        let line = format!("exec {}", here(typed("realtime.md", "realtime/events")));
        let events = Running::start(&mut shell(folder, &line));
        assert!(events.log().find(LIMIT, |line| line.starts_with("data:").then_some(())).is_some());
        run(folder, &here(typed("realtime.md", "realtime/publish")));
        let said = events.log().find(LIMIT, |line| line.contains("private-orders").then_some(()));
        assert!(said.is_some(), "{}", events.log().text());
        drop((events, server));
    }
}

#[test]
fn the_commands_about_outgoing_calls_run_as_they_are_printed() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    let here = |line: String| line.replace("/run/hearth", &folder.display().to_string());
    let broker = here(typed("egress.md", "hearth egress --socket"));
    assert_eq!(broker, here(typed("egress-php.md", "hearth egress --socket")));
    // Only root may give the socket to another group.
    let broker = if rustix::process::getuid().is_root() {
        broker
    } else {
        broker.split(" --group").next().unwrap().to_owned()
    };
    let line = format!("exec {broker} --admin 127.0.0.1:0");
    let server = Running::start(&mut shell(folder, &line));
    let find = |prefix: &str| {
        server.log().find(LIMIT, |line| Some(line.strip_prefix(prefix)?.trim_end().to_owned()))
    };
    let admin = find("hearth: admin on http://").unwrap();
    find("hearth: ready on ").unwrap();
    let origin = Origin::plain(testkit::routes);
    let call =
        typed("egress.md", "curl --unix-socket").replace("https://www.php.net", &origin.url(""));
    let call = call.replace("http://hearth/", "http://hearth/bytes/5");
    let socket = folder.join("egress.sock").display().to_string();
    assert_eq!(run(folder, &format!("HEARTH_EGRESS={socket}; {call}")).len(), 5);
    let look =
        typed("egress-php-fpm.md", "metrics | grep egress_").replace("127.0.0.1:9181", &admin);
    let told = run(folder, &look);
    assert!(told.contains("hearth_egress_calls_total{"), "{told}");
    drop(server);
}

#[test]
fn the_commands_of_lambda_and_of_old_applications_run_as_they_are_printed() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    let site = folder.join("my-application");
    std::fs::create_dir_all(site.join("public")).unwrap();
    std::fs::write(site.join("public/index.php"), "<?php echo 'here';").unwrap();
    let printed = block("lambda.md", "hearth lambda public/index.php");
    let [enter, emulate, ask, invoke] = &printed[..] else { panic!("{printed:?}") };
    assert_eq!(enter, "cd my-application");
    let (lambda, addresses) = start(&site, &emulate.replace(":9000", ":0"));
    let at = |line: &str| line.replace("127.0.0.1:9000", addresses.last().unwrap());
    assert_eq!(run(&site, &at(ask)), "here");
    assert!(run(&site, &at(invoke)).contains("\"body\":\"here\""));
    drop(lambda);
    let emulate = typed("lambda.md", "hearth lambda examples/lambda/hello.php");
    let (lambda, addresses) = start(&root(), &emulate.replace(":9000", ":0"));
    let ask = typed("lambda.md", "2015-03-31/functions");
    let told = run(folder, &ask.replace("127.0.0.1:9000", addresses.last().unwrap()));
    assert!(told.contains("Hello, Ada!"), "{told}");
    drop(lambda);

    let blog = folder.join("blog");
    for name in ["admin", "static", "uploads"] {
        std::fs::create_dir_all(blog.join(name)).unwrap();
    }
    for name in ["index.php", "post.php", "login.php"] {
        std::fs::write(blog.join(name), format!("<?php echo '{name}';")).unwrap();
    }
    std::fs::write(folder.join("blog.toml"), "").unwrap();
    let here = |line: String| {
        let line = line.replace("/srv/blog", &blog.display().to_string());
        line.replace("/etc/hearth/", &format!("{}/", folder.display()))
    };
    let printed = block("legacy.md", "cd /srv/blog");
    let [enter, check, serve] = &printed[..] else { panic!("{printed:?}") };
    assert!(run(folder, &format!("{} && {check}", here(enter.clone()))).contains("application"));
    drop(start(&blog, serve));
    let links = block("legacy.md", "mkdir public");
    run(&blog, &links[..2].join(" && "));
    let (server, addresses) =
        start(folder, &here(typed("legacy.md", "hearth serve /srv/blog --config")));
    let address = addresses.last().unwrap();
    assert_eq!(run(folder, &format!("curl -s http://{address}/post.php")), "post.php");
    drop(server);
}
