//! Laravel and Symfony keep a database of `SQLite` open from the start of a worker on, without any configuration.

use std::fs;
use std::path::Path;

use serde_json::json;
use testkit::eventually;

use super::frameworks::{ids_of, symfony_site};
use super::sqlite::php;
use crate::hearth::{Hearth, LIMIT, Serve, Site};
use crate::isolation::published_leaks::laravel_example;

const ROUTES: &str = r"<?php
use Illuminate\Support\Facades\{DB, Route};
Route::get('/pid', fn () => getmypid());
Route::get('/count', fn () => DB::selectOne('select count(*) n from things')->n);
Route::get('/insert', fn () => [DB::insert('insert into things values (1)'), getmypid()][1]);
Route::get('/leave', function () { DB::beginTransaction(); DB::insert('insert into things values (1)'); return 'left'; });
Route::get('/purge', function () { DB::purge(); return DB::selectOne('select count(*) n from things')->n; });
Route::get('/read', fn () => strlen(file_get_contents(base_path('shop.sqlite'))));
Route::get('/foreign', function () {
    $on = DB::selectOne('PRAGMA foreign_keys')->foreign_keys;
    DB::statement('PRAGMA foreign_keys = OFF');
    DB::statement('create temp table notes (n)');
    return $on;
});
";

fn create(folder: &Path, name: &str, journal: &str, rows: u32) -> String {
    php(
        folder,
        &format!(
            "$db = new PDO('sqlite:{name}'); $db->exec('PRAGMA journal_mode = {journal}'); $db->exec('create table things (n)');
             for ($i = 0; $i < {rows}; $i++) {{ $db->exec('insert into things values (2)'); }} echo 'created'; fflush(STDOUT);
             posix_kill(getmypid(), SIGKILL);"
        ),
    )
}

fn count(folder: &Path) -> String {
    php(
        folder,
        "echo (new PDO('sqlite:shop.sqlite'))->query('select count(*) from things')->fetchColumn();",
    )
}

fn laravel(journal: &str) -> Site {
    let site = laravel_example();
    assert_eq!(create(site.path(), "shop.sqlite", journal, 0), "created");
    site.write(
        "config/database.php",
        "<?php return ['default' => 'shop', 'connections' => ['shop' => ['driver' => 'sqlite', 'prefix' => '',
            'database' => base_path('shop.sqlite'), 'foreign_key_constraints' => true]]];",
    );
    site.write("routes/web.php", ROUTES);
    site.write("routes/api.php", "<?php");
    site
}

fn serve(site: &Site) -> Hearth {
    let hearth = Serve::new(site.path()).model("snapshot").workers(1).start();
    hearth.wait_idle(1);
    hearth
}

fn answer(hearth: &Hearth, path: &str) -> String {
    let answer = hearth.get(path);
    assert_eq!(answer.status, 200, "{path}: {}\n{}", answer.text(), hearth.log().text());
    answer.text()
}

/// Whether a process that waits for a request has the file open.
fn holds(pid: &str, file: &Path) -> bool {
    fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .any(|entry| fs::read_link(entry.unwrap().path()).is_ok_and(|target| target == file))
}

#[test]
fn laravel_keeps_its_database_of_sqlite_open() {
    for journal in ["wal", "delete"] {
        let site = laravel(journal);
        let file = site.path().join("shop.sqlite");
        let hearth = serve(&site);
        let pid = answer(&hearth, "/pid");
        assert!(holds(&pid, &file), "{journal}: {}", hearth.log().text());
        for rows in 1..4 {
            assert_eq!(answer(&hearth, "/insert"), pid);
            let insert =
                "$db = new PDO('sqlite:shop.sqlite'); $db->exec('insert into things values (3)');";
            assert_eq!(php(site.path(), insert), "");
            assert_eq!(count(site.path()), (rows * 2).to_string());
            assert_eq!(answer(&hearth, "/count"), (rows * 2).to_string());
        }
        // What one request sets in its connection is gone before the next.
        assert_eq!([answer(&hearth, "/foreign"), answer(&hearth, "/foreign")], ["1", "1"]);
        assert_eq!(answer(&hearth, "/pid"), pid, "{}", hearth.log().text());
        if journal == "delete" {
            assert_eq!(answer(&hearth, "/purge"), "6");
            assert_eq!(answer(&hearth, "/pid"), pid, "{}", hearth.log().text());
        }
    }
}

#[test]
fn a_transaction_of_sqlite_that_a_request_of_laravel_has_left_open_is_gone() {
    for journal in ["wal", "delete"] {
        let site = laravel(journal);
        let hearth = serve(&site);
        for _ in 0..3 {
            assert_eq!(answer(&hearth, "/leave"), "left");
            eventually("the database can be written", LIMIT, || {
                php(
                    site.path(),
                    "$db = new PDO('sqlite:shop.sqlite'); $db->setAttribute(PDO::ATTR_TIMEOUT, 0);
                     $db->exec('insert into things values (3); delete from things');",
                )
                .is_empty()
            });
            assert_eq!(answer(&hearth, "/count"), "0", "{journal}");
        }
    }
}

/// By a new file under the name of the old one: from a backup, or by a deployment.
#[test]
fn a_replaced_database_of_sqlite_is_opened_by_the_next_request() {
    let site = laravel("wal");
    let hearth = serve(&site);
    let pid = answer(&hearth, "/insert");
    assert_eq!(create(site.path(), "new.sqlite", "wal", 5), "created");
    fs::remove_file(site.path().join("shop.sqlite-shm")).unwrap();
    for end in ["-wal", ""] {
        let [from, to] =
            ["new", "shop"].map(|name| site.path().join(format!("{name}.sqlite{end}")));
        fs::rename(from, to).unwrap();
    }
    assert_eq!(answer(&hearth, "/count"), "5");
    assert_eq!(answer(&hearth, "/insert"), pid, "{}", hearth.log().text());
    assert_eq!(answer(&hearth, "/count"), "6");
    // The new file's write-ahead log, which has all rows, outlives the workers that had the old file open.
    hearth.stop();
    assert_eq!(count(site.path()), "6");
}

#[test]
fn after_five_workers_that_lost_the_locks_of_sqlite_requests_open_it_themselves() {
    let site = laravel("wal");
    let file = site.path().join("shop.sqlite");
    let hearth = serve(&site);
    for retired in 1..=5 {
        answer(&hearth, "/read");
        eventually("the worker has retired", LIMIT, || {
            hearth.status()["pool"]["retired"] == retired
        });
        hearth.wait_idle(1);
    }
    let pid = answer(&hearth, "/pid");
    assert!(!holds(&pid, &file), "{}", hearth.log().text());
    assert!(hearth.log_line("requests open their own databases of SQLite for now").is_object());
    for _ in 0..3 {
        answer(&hearth, "/read");
        assert_eq!(answer(&hearth, "/insert"), pid);
    }
    assert_eq!(answer(&hearth, "/count"), "3");
}

#[test]
fn a_missing_database_of_sqlite_is_not_created_and_delays_no_start() {
    let site = laravel("delete");
    let file = site.path().join("shop.sqlite");
    fs::remove_file(&file).unwrap();
    let hearth = serve(&site);
    answer(&hearth, "/pid");
    assert!(!file.exists());
    assert!(!hearth.log().text().contains("hearth_on_worker_start"), "{}", hearth.log().text());
    assert_eq!(create(site.path(), "shop.sqlite", "wal", 2), "created");
    assert_eq!(answer(&hearth, "/count"), "2");
}

#[test]
fn symfony_keeps_doctrines_databases_of_sqlite_open() {
    let site = symfony_site();
    assert_eq!(create(site.path(), "shop.sqlite", "wal", 2), "created");
    let file = site.path().join("shop.sqlite");
    let connection = json!({ "driver": "pdo_sqlite", "path": file });
    let hearth = Serve::new(site.path())
        .set("CONNECTION", &connection.to_string())
        .set("ID", "select count(*) from things")
        .model("snapshot")
        .workers(1)
        .start();
    hearth.wait_idle(1);
    let first = ids_of(&hearth);
    assert_eq!(first["id"], 2);
    assert!(holds(&first["pid"].to_string(), &file), "{}", hearth.log().text());
    let insert = "(new PDO('sqlite:shop.sqlite'))->exec('insert into things values (3)');";
    assert_eq!(php(site.path(), insert), "");
    assert_eq!(ids_of(&hearth), json!({ "id": 3, "level": 0, "pid": first["pid"] }));
    assert_eq!(create(site.path(), "new.sqlite", "delete", 7), "created");
    for end in ["-wal", "-shm"] {
        fs::remove_file(site.path().join(format!("shop.sqlite{end}"))).unwrap();
    }
    fs::rename(site.path().join("new.sqlite"), &file).unwrap();
    assert_eq!(ids_of(&hearth)["id"], 7);
}
