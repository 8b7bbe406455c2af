use super::*;

fn read(kind: &str, what: &str, file: &str) -> Read {
    let (kind, what, file) = (kind.into(), what.into(), file.into());
    Read { kind, what, file, line: 3, count: 1, ..Read::default() }
}

fn verdict(kind: &str, what: &str, file: &str, code: &str) -> (Verdict, Kind) {
    let judgement = judge(&read(kind, what, file), code, true);
    (judgement.verdict, judgement.kind)
}

#[test]
fn a_variable_of_the_server_is_judged_by_its_name() {
    let of = |what: &str| verdict("request", what, "/srv/app/boot.php", "");
    for name in ["HTTP_HOST", "REMOTE_ADDR", "REQUEST_URI", "QUERY_STRING", "HTTPS", "SERVER_NAME"]
    {
        assert_eq!(of(&format!("$_SERVER['{name}']")), (Verdict::Mistake, Kind::Request), "{name}");
    }
    for name in ["APP_ENV", "argv", "HTTP_PROXY", "DOCUMENT_ROOT", "HOME"] {
        assert_eq!(
            of(&format!("$_SERVER['{name}']")),
            (Verdict::Fine, Kind::Environment),
            "{name}"
        );
    }
    assert_eq!(of("$_SERVER['REQUEST_TIME_FLOAT']"), (Verdict::Mistake, Kind::Clock));
    assert_eq!(of("$_SERVER"), (Verdict::Look, Kind::Request));
    assert_eq!(of("$_GET"), (Verdict::Mistake, Kind::Request));
    let getenv = |what: &str| verdict("environment", what, "/srv/app/boot.php", "");
    assert_eq!(getenv("getenv('HTTP_HOST')"), (Verdict::Mistake, Kind::Request));
    assert_eq!(getenv("getenv('APP_ENV')"), (Verdict::Fine, Kind::Environment));
}

#[test]
fn what_frameworks_read_at_their_boot_is_fine_in_the_packages_of_composer_and_debian() {
    let start = "define('LARAVEL_START', microtime(true));";
    assert_eq!(verdict("clock", "microtime()", "/srv/app/index.php", start).0, Verdict::Fine);
    assert_eq!(verdict("clock", "microtime()", "/srv/app/index.php", "").0, Verdict::Mistake);
    for file in [
        "/usr/share/php/Dotenv/Repository/Adapter/ServerConstAdapter.php",
        "/srv/app/vendor/vlucas/phpdotenv/src/Repository/Adapter/ServerConstAdapter.php",
        "/srv/app/vendor/symfony/dotenv/Dotenv.php",
        "/usr/share/php/Illuminate/Foundation/Bootstrap/SetRequestForConsole.php",
    ] {
        assert_eq!(verdict("request", "$_SERVER", file, "").0, Verdict::Fine, "{file}");
    }
    let request = "'REQUEST_TIME' => time(),";
    for file in [
        "/usr/share/php/Symfony/Component/HttpFoundation/Request.php",
        "/srv/app/vendor/symfony/http-foundation/Request.php",
    ] {
        assert_eq!(verdict("clock", "time()", file, request).0, Verdict::Fine, "{file}");
        assert_eq!(verdict("clock", "time()", file, "$now = time();").0, Verdict::Look, "{file}");
    }
}

#[test]
fn a_connection_of_the_boot_is_a_mistake_where_workers_are_forked_from_it() {
    let pdo = read("database", "new PDO('mysql:…')", "/srv/app/boot.php");
    assert_eq!(judge(&pdo, "", true).verdict, Verdict::Mistake);
    assert_eq!(judge(&pdo, "", false).verdict, Verdict::Fine);
    let sqlite = read("database", "new PDO('sqlite:…')", "/srv/app/boot.php");
    assert_eq!(judge(&sqlite, "", true).verdict, Verdict::Fine);
}

#[test]
fn a_seed_of_the_boot_is_lost_where_workers_are_forked_from_it() {
    let seed = read("randomness", "mt_srand()", "/srv/app/boot.php");
    let reason = |shares_boot| judge(&seed, "", shares_boot).reason;
    assert!(reason(true).contains("the seed is lost") && reason(false).is_empty());
}

#[test]
fn reads_of_hearths_own_script_are_left_out_and_the_same_ones_are_added_up() {
    let ours = Path::new("/run/hearth/generation-1");
    let called = |caller: &str| Read {
        caller: caller.into(),
        caller_line: 9,
        ..read("clock", "time()", "/srv/app/vendor/a/b.php")
    };
    let reads = vec![
        read("environment", "getenv('HEARTH_APP_DIR')", "/run/hearth/generation-1/worker.php"),
        called("/run/hearth/generation-1/worker.php"),
        called(""),
        called("/srv/app/config.php"),
    ];
    let folded = folded(reads.into_iter(), Some(ours));
    let left: Vec<_> = folded.iter().map(|read| (&*read.caller, read.count)).collect();
    assert_eq!(left.iter().map(|(_, count)| count).sum::<u64>(), 3, "{left:?}");
    assert!(left.contains(&("/srv/app/config.php", 1)), "{left:?}");
}
