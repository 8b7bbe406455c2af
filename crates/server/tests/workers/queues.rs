//! Queue workers of Laravel and Symfony as processes: reloads under load lose no job and run none twice.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use testkit::{Running, eventually};

use super::laravel::laravel;
use super::server::get;
use super::{App, copy, example, material};

const JOBS: usize = 300;
const LIMIT: Duration = Duration::from_secs(90);

/// A server of Redis on a unix socket, without a password, as Symfony 5.4 takes it.
struct Redis {
    folder: tempfile::TempDir,
    _server: Running,
}

impl Redis {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", ""]).arg("--unixsocket");
        let server = Running::start(command.arg(folder.path().join("socket")));
        let redis = Self { folder, _server: server };
        eventually("Redis listens", LIMIT, || redis.socket().exists());
        redis
    }

    fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("socket")
    }
}

/// A server whose log is read all the time: workers write more than a pipe takes.
struct Site {
    server: Running,
    address: String,
}

impl Site {
    fn start(app: &App, model: &str) -> Self {
        let server = Running::start(&mut app.command(model));
        let ready = |line: &str| Some(line.split_once("ready on http://")?.1.to_owned());
        let address = server.log().find(LIMIT, ready);
        let address = address.unwrap_or_else(|| panic!("not ready: {}", server.log().text()));
        Self { server, address }
    }

    /// Stops the server with TERM.
    fn end(mut self) {
        self.server.signal(Signal::TERM);
        assert_eq!(self.server.wait(LIMIT).code(), Some(0), "{}", self.server.log().text());
    }
}

/// Laravel with a job, and a route that pushes it.
fn laravel_with_jobs(connection: &str, redis: Option<&Redis>) -> App {
    let app = laravel();
    fs::create_dir_all(app.path().join("app/Jobs")).unwrap();
    fs::copy(material("queue/Note.php"), app.path().join("app/Jobs/Note.php")).unwrap();
    fs::copy(material("queue/routes.php"), app.path().join("routes/api.php")).unwrap();
    app.write("routes/web.php", "<?php\n");
    for name in ["queue", "database"] {
        let from = material("queue/config.php");
        let config = format!("<?php return (require '{}')['{name}'];\n", from.display());
        app.write(&format!("config/{name}.php"), &config);
    }
    let config = fs::read_to_string(app.path().join("config/app.php")).unwrap();
    let providers = "'providers' => [Illuminate\\Redis\\RedisServiceProvider::class,";
    app.write("config/app.php", &config.replace("'providers' => [", providers));
    // The example's class map has all classes but this one.
    let autoload = app.path().join("vendor/autoload.php");
    let own = fs::read_to_string(&autoload).unwrap();
    let own =
        own.replacen("return ", "require_once dirname(__DIR__) . '/app/Jobs/load.php'; return ", 1);
    fs::write(autoload, own).unwrap();
    app.write(
        "app/Jobs/load.php",
        "<?php spl_autoload_register(fn ($class) => $class === 'App\\Jobs\\Note' && require __DIR__ . '/Note.php');\n",
    );
    app.append(".env", &format!("\nQUEUE_CONNECTION={connection}\n"));
    if let Some(redis) = redis {
        app.append(".env", &format!("REDIS_SOCKET={}\n", redis.socket().display()));
    }
    app
}

/// Pushes jobs by requests.
fn push(site: &Site, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let answer = get(&site.address, &format!("/push/{number}"));
        assert!(answer.ends_with("pushed"), "{answer}");
    }
}

fn reload(app: &App) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hearth"));
    command.env_clear().arg("reload").arg(app.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// How often each job began and was done.
fn ran(folder: &Path) -> BTreeMap<usize, (usize, usize)> {
    let mut ran: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for line in fs::read_to_string(folder.join("ran")).unwrap_or_default().lines() {
        let (what, number) = line.split_once(' ').unwrap();
        let times = ran.entry(number.parse().unwrap()).or_default();
        match what {
            "began" => times.0 += 1,
            _ => times.1 += 1,
        }
    }
    ran
}

fn done(app: &App) -> usize {
    ran(app.path()).values().filter(|(_, done)| *done > 0).count()
}

/// Reloads while workers have jobs, and checks that each job ran once. Jobs wait while a file `hold` exists: those of a batch begin when
/// all of it is there, so there is load at a reload also where pushing is slow.
fn each_job_runs_once(app: &App, site: Site, pushed: Pushed) {
    const BATCH: usize = JOBS / 4;
    let mut under_load = 0;
    for batch in 0..4 {
        let before = batch * BATCH;
        if pushed == Pushed::AsItGoes {
            eventually("all so far are done", LIMIT, || done(app) == before);
            app.write("hold", "");
            push(&site, before..before + BATCH);
            fs::remove_file(app.path().join("hold")).unwrap();
        }
        eventually("workers go on", LIMIT, || done(app) >= before + BATCH / 5);
        under_load += usize::from(done(app) < before + BATCH);
        reload(app);
    }
    eventually("all jobs are done", LIMIT, || done(app) == JOBS);
    assert!(under_load > 0, "no reload came while there were jobs");
    // Whatever is left of the workers ends: nothing runs a second time after this.
    site.end();
    let ran = ran(app.path());
    let wrong: Vec<_> = ran.iter().filter(|(_, times)| **times != (1, 1)).collect();
    assert_eq!((ran.len(), wrong), (JOBS, Vec::new()));
}

/// When the jobs are pushed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pushed {
    /// All before the workers start.
    Before,
    /// A batch before each reload.
    AsItGoes,
}

#[test]
fn a_reload_loses_no_job_of_laravels_database_queue_and_runs_none_twice() {
    let app = laravel_with_jobs("database", None);
    let made = "create table jobs (id integer primary key autoincrement, queue text not null, payload text not null, \
                attempts integer not null, reserved_at integer, available_at integer not null, created_at integer not null)";
    let create = format!("(new PDO('sqlite:jobs.sqlite'))->exec('{made}');");
    let status = Command::new("php").args(["-r", &create]).current_dir(app.path()).status();
    assert!(status.unwrap().success());
    app.write("hearth.toml", "");
    // SQLite has one writer: jobs are pushed before the worker starts.
    let site = Site::start(&app, "request");
    push(&site, 0..JOBS);
    site.end();
    let command = "php artisan queue:work database --sleep=0.1 --tries=1";
    app.write("hearth.toml", &format!("[processes.queue]\ncommand = \"{command}\"\n"));
    let site = Site::start(&app, "snapshot");
    each_job_runs_once(&app, site, Pushed::Before);
}

#[test]
fn a_reload_loses_no_job_of_laravels_redis_queue_and_runs_none_twice() {
    let redis = Redis::start();
    let app = laravel_with_jobs("redis", Some(&redis));
    let command = "php artisan queue:work redis --sleep=0.1 --tries=1";
    app.write("hearth.toml", &format!("[processes.queue]\ncommand = \"{command}\"\ncount = 2\n"));
    let site = Site::start(&app, "snapshot");
    each_job_runs_once(&app, site, Pushed::AsItGoes);
}

#[test]
fn a_reload_loses_no_message_of_symfonys_messenger_and_runs_none_twice() {
    let redis = Redis::start();
    let app = App::new();
    copy(&material("messenger"), app.path());
    app.write("public/index.php", include_str!("symfony/public/index.php"));
    let example = example("symfony-api").join("vendor/autoload.php");
    let autoload = format!(
        "<?php $loader = require '{}'; require_once dirname(__DIR__) . '/src/Kernel.php'; return $loader;\n",
        example.display()
    );
    app.write("vendor/autoload.php", &autoload);
    let dsn = format!("redis://{}", redis.socket().display());
    app.write(".env", "APP_ENV=prod\nAPP_DEBUG=0\n");
    let command = "php bin/console messenger:consume async --sleep=0.1";
    app.write(
        "hearth.toml",
        &format!("[php.env]\nMESSENGER_DSN = \"{dsn}\"\n[processes.messenger]\ncommand = \"{command}\"\ncount = 2\n"),
    );
    let site = Site::start(&app, "snapshot");
    each_job_runs_once(&app, site, Pushed::AsItGoes);
}
