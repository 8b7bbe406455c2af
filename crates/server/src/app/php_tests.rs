use super::*;

fn executable(folder: &std::path::Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    testkit::write_program(&path, text);
    path
}

fn settings(folder: &std::path::Path, toml: &str, environment: &Environment) -> Settings {
    std::fs::write(folder.join("hearth.toml"), toml).unwrap();
    crate::config::load(folder, None, Vec::new(), environment).unwrap()
}

fn said(script: &str) -> Result<Info, Failure> {
    let folder = tempfile::tempdir().unwrap();
    let program = executable(folder.path(), "hearth-worker-8.2", script);
    let environment = Environment::for_test(folder.path(), &[]);
    let settings = settings(folder.path(), "[php.ini]\nmemory_limit = \"1M\"\n", &environment);
    info(&Worker { version: PhpVersion::parse("8.2"), program }, &settings, None)
}

#[test]
fn a_worker_program_is_asked_with_the_applications_ini_settings() {
    let info = said(
        "#!/bin/sh\n[ \"$* $(tr '\\0' ';')\" = \"--ini-stdin --ini error_log= --info-json memory_limit=1M;\" ] && echo '{\"php_version\": \"8.2.35\", \
         \"sapi\": \"fpm-fcgi\", \"zts\": false, \"extensions\": {\"Core\": \"8.2.35\", \"Zend OPcache\": null}}'\n",
    )
    .unwrap();
    assert_eq!(info.php_version, "8.2.35");
    assert!(has_extension(&info, "core"));
    assert!(has_extension(&info, "zend-opcache"));
    assert!(has_extension(&info, "opcache"));
    assert!(!has_extension(&info, "gd"));
}

#[test]
fn php_start_up_warnings_are_kept() {
    let info = said(
        "#!/bin/sh\necho \"PHP Warning:  PHP Startup: Unable to load dynamic library 'x' (tried: y) in Unknown on line 0\" >&2\n\
         echo 'PHP Warning:  Invalid \"memory_limit\" setting. in Unknown on line 0' >&2\necho 'another program: says so' >&2\n\
         echo '{\"php_version\": \"8.2.35\", \"sapi\": \"fpm-fcgi\", \"zts\": false, \"extensions\": {}}'\n",
    )
    .unwrap();
    let told =
        ["Unable to load dynamic library 'x' (tried: y)", "Invalid \"memory_limit\" setting."];
    assert_eq!(info.complaints, told);
}

#[test]
fn a_worker_program_that_does_not_answer_fails_with_its_output() {
    let failed =
        said("#!/bin/sh\necho 'libphp8.2.so: not found' >&2; exit 127\n").unwrap_err().render();
    assert!(failed.contains("libphp8.2.so: not found"), "{failed}");
    let other = said("#!/bin/sh\necho PHP 8.2\n").unwrap_err().render();
    assert!(other.contains("printed something else"), "{other}");
}

#[test]
fn the_php_command_matches_the_version() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["php", "php8.2", "php8.4", "hearth-worker-8.2"] {
        executable(folder.path(), name, "");
    }
    let path = folder.path().to_str().unwrap();
    let environment =
        Environment::for_test(folder.path(), &[("HEARTH_LIB_DIR", path), ("PATH", path)]);
    let program =
        |toml: &str| cli_program(&settings(folder.path(), toml, &environment), &environment);
    assert!(program("").unwrap().ends_with("php8.2"));
    assert!(program("[php]\nversion = 8.4\n").unwrap().ends_with("php8.4"));
    assert!(program("[php]\ncli = \"my/php\"\n").unwrap().ends_with("my/php"));
    let missing = program("[php]\nversion = \"8.3\"\n").unwrap_err().render();
    assert!(missing.starts_with("error: no php8.3 in PATH"), "{missing}");
}

#[test]
fn php_programs_beside_hearth_are_found_without_path() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["php8.2", "php-fpm8.2", "php-cgi8.2", "hearth-worker-8.2"] {
        executable(folder.path(), name, "");
    }
    let environment = Environment::for_test(folder.path(), &[("PATH", "/nonexistent")]);
    let settings = settings(folder.path(), "[php]\nversion = 8.2\n", &environment);
    assert_eq!(cli_program(&settings, &environment).unwrap(), folder.path().join("php8.2"));
    let cgi = program(Model::Cgi, &settings, &environment).unwrap();
    assert!(cgi.program.ends_with("php-cgi8.2"), "{cgi:?}");
}
