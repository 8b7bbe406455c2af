use std::fs;

use super::*;

#[test]
fn a_script_returns_something_when_a_statement_at_its_top_level_does() {
    let table = [
        ("<?php return function ($event) { return 1; };", true),
        ("<?php\n\nreturn new class { function handle() {} };", true),
        ("<?php require 'a.php';\nreturn App\\Handler::class;", true),
        ("<?php return[1];", true),
        ("<?php\n#[Attribute]\nfunction f() {}\nreturn f(...);", true),
        ("<?php $s = \"{$a[\"return 1;\"]}\"; return 1;", true),
        ("<?php $s = <<<'EOT'\n  return 1;\n  EOT; return 1;", true),
        ("text <?php echo 1 ?> more <?php return 1;", true),
        ("", false),
        ("return 1;", false),
        ("<?php echo 1;", false),
        ("<?php return;", false),
        ("<?php return", false),
        ("<?php return ?>", false),
        ("<?php function f() { return 1; }", false),
        ("<?php if ($a) { return 1; }", false),
        ("<?php $f = fn () => [1]; $return = 1; $a->return; A::return;", false),
        ("<?php // return 1;\n# return 1;\n/* return 1; */ 'return 1;'; \"return 1;\";", false),
        ("<?php echo <<<EOT\n return 1;\n EOT_ \n EOT;\n", false),
        ("<?php echo `return 1;`; echo 'it\\'s'; f(' return 1;');", false),
        ("<?php echo <<<\n", false),
        ("<?php \"{$", false),
        ("<?php 'a\\", false),
    ];
    for (script, expected) in table {
        assert_eq!(returns_something(script.as_bytes()), expected, "{script}");
    }
}

proptest::proptest! {
    #[test]
    fn return_detection_survives_any_bytes(bytes: Vec<u8>) {
        let mut script = b"<?php ".to_vec();
        script.extend(bytes);
        returns_something(&script);
    }

    #[test]
    fn return_detection_survives_any_php(script in "(<\\?php)?([ \n;'\"`{}()#/*?><$\\\\]|<<<|return|EOT|a){0,40}") {
        returns_something(script.as_bytes());
    }
}

#[test]
fn a_handler_is_recognised_by_name_and_text() {
    let folder = tempfile::tempdir().unwrap();
    let function = "<?php return fn (array $event) => $event;";
    let table = [
        ("handler.php", function, Handler::Function),
        ("src/orders.php", function, Handler::Function),
        ("public/index.php", function, Handler::Http),
        ("front.php", "<?php echo 'hello';", Handler::Http),
        ("worker.php", "<?php while (hearth_handle_request($f)); return 1;", Handler::Http),
        (
            "app.php",
            "<?php require 'vendor/autoload_runtime.php'; return fn () => 1;",
            Handler::Http,
        ),
        ("artisan", "#!/usr/bin/env php\n<?php return 1;", Handler::Console),
        ("bin/console", "#!/usr/bin/env php\n", Handler::Console),
        ("bin/shop", "#!/usr/bin/php8.2\n", Handler::Console),
        ("bin/tool", "#!/bin/sh\n", Handler::Http),
        ("console.php", function, Handler::Console),
    ];
    for (name, text, expected) in table {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        assert_eq!(handler_of(&path), expected, "{name}");
    }
    assert_eq!(handler_of(folder.path()), Handler::Http);
    assert_eq!(handler_of(&folder.path().join("missing.php")), Handler::Http);
}

#[test]
fn a_function_belongs_to_the_application_around_it() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for file in ["app/composer.json", "app/src/a.php", "plain/b.php", "plain/bin/console"] {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    assert_eq!(folder_of(&root.join("app/src/a.php")).unwrap(), root.join("app"));
    assert_eq!(folder_of(&root.join("plain/b.php")).unwrap(), root.join("plain"));
    assert_eq!(folder_of(&root.join("plain/bin/console")).unwrap(), root.join("plain"));
    assert!(folder_of(&root.join("none.php")).is_err());
}

#[test]
fn a_function_is_booted_ahead_and_never_warmed_up_and_a_console_is_not_booted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().canonicalize().unwrap().join("handler.php");
    fs::write(&file, "<?php return fn () => 1;").unwrap();
    let worker = folder.path().join("hearth-worker-8.2");
    fs::write(worker, "").unwrap();
    let lib = folder.path().to_str().unwrap().to_owned();
    let variables = [("HEARTH_LIB_DIR", &*lib), ("HEARTH_PHP_CLI", "/usr/bin/php")];
    let environment = Environment::for_test(folder.path(), &variables);
    let plain = crate::config::load(folder.path(), None, Vec::new(), &environment).unwrap();

    let plan = Plan::of_function(&file, Handler::Function, &plain, &environment).unwrap();
    assert!(plan.warm_up(&plain).is_empty());
    let php = plan.php.as_ref().unwrap();
    assert_eq!(php.model, Model::Snapshot);
    assert_eq!(php.env, [("HEARTH_FUNCTION".to_owned(), file.display().to_string())]);
    assert!(matches!(&php.script, Some(WorkerScript::Ours { name: "function.php", .. })));

    let plan = Plan::of_function(&file, Handler::Console, &plain, &environment).unwrap();
    let php = plan.php.as_ref().unwrap();
    assert_eq!(php.model, Model::Request);
    assert_eq!(php.env[1], ("HEARTH_CLI".to_owned(), "/usr/bin/php".to_owned()));

    let refused = Plan::of_function(folder.path(), Handler::Function, &plain, &environment);
    assert!(refused.unwrap_err().render().contains("is no file, and a function is one"));
}
