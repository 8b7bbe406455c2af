use std::fs;

use tempfile::TempDir;

use pool::StartError;

use super::*;
use crate::app::php::Probe;
use crate::config::Raw;

/// A folder with these files beside programs `hearth-worker-8.2` and `-8.10`.
struct Machine {
    app: TempDir,
    environment: Environment,
    programs: TempDir,
}

impl Machine {
    fn with(files: &[&str]) -> Self {
        let (app, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for file in files {
            let path = app.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        for version in ["8.2", "8.10"] {
            fs::write(programs.path().join(format!("hearth-worker-{version}")), "").unwrap();
        }
        fs::write(programs.path().join("hearth-worker-old"), "").unwrap();
        let environment = Environment::for_test(
            app.path(),
            &[("HEARTH_LIB_DIR", programs.path().to_str().unwrap())],
        );
        Self { app, environment, programs }
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.app.path().join(path), text).unwrap();
    }

    fn settings(&self, flags: &[(&'static str, &str)]) -> Settings {
        let flags = flags.iter().map(|(name, value)| (*name, Raw::Text((*value).into()))).collect();
        crate::config::load(self.app.path(), None, flags, &self.environment).unwrap()
    }

    fn plan(&self, flags: &[(&'static str, &str)]) -> Result<Plan, Failure> {
        let application = detect::detect(self.app.path())?;
        Plan::new(application, &self.settings(flags), &self.environment)
    }

    /// The plan's line, or the error, without the names of temporary folders.
    fn explained(&self, flags: &[(&'static str, &str)]) -> String {
        let text = match self.plan(flags) {
            Ok(plan) => plan.explain(Some("8.2.35")),
            Err(failure) => failure.render(),
        };
        let app = self.app.path().canonicalize().unwrap();
        text.replace(app.to_str().unwrap(), "APP")
            .replace(self.programs.path().to_str().unwrap(), "LIB")
    }
}

#[test]
fn one_line_explains_what_runs() {
    let laravel = Machine::with(&["artisan", "bootstrap/app.php", "public/index.php"]);
    assert_eq!(
        laravel.explained(&[("php.workers", "2")]),
        "Laravel application in APP (artisan and bootstrap/app.php found); snapshot model; worker script Hearth's own \
         laravel-worker.php; document root APP/public; front controller APP/public/index.php; PHP 8.2.35; 2 workers"
    );
    let files = Machine::with(&["index.html"]);
    assert_eq!(
        files.explained(&[]),
        "static files in APP (index.html and no PHP script found); document root APP"
    );
    let script = Machine::with(&["worker.php"]);
    assert_eq!(
        script.explained(&[("php.workers", "1")]),
        "worker script in APP (worker.php found); snapshot model; worker script APP/worker.php; document root APP; \
         front controller APP/worker.php; PHP 8.2.35; 1 worker"
    );
}

#[test]
fn a_framework_without_a_worker_script_gets_hearths() {
    let model = [("php.model", "worker")];
    let script =
        |files: &[&str]| Machine::with(files).plan(&model).unwrap().php.unwrap().script.unwrap();
    let laravel = ["artisan", "bootstrap/app.php", "public/index.php"];
    assert!(matches!(script(&laravel), WorkerScript::Ours { text, .. } if text == LARAVEL_WORKER));
    let octane =
        ["artisan", "bootstrap/app.php", "public/index.php", "public/frankenphp-worker.php"];
    assert!(matches!(script(&octane), WorkerScript::Ours { text, .. } if text == LARAVEL_WORKER));
    let with_own = Machine::with(&[&laravel[..], &["public/worker.php"]].concat());
    let own = || with_own.plan(&model).unwrap().php.unwrap().script.unwrap();
    assert!(matches!(own(), WorkerScript::Ours { .. }), "it may be a queue's worker");
    with_own.write("public/worker.php", "<?php while (frankenphp_handle_request($handler));");
    assert!(matches!(own(), WorkerScript::File(path) if path.ends_with("public/worker.php")));
    let symfony = ["config/bundles.php", "public/index.php"];
    assert!(matches!(script(&symfony), WorkerScript::Ours { text, .. } if text == SYMFONY_WORKER));
}

#[test]
fn the_highest_version_runs_unless_another_is_named() {
    let machine = Machine::with(&["index.php"]);
    let program =
        |flags: &[(&'static str, &str)]| machine.plan(flags).unwrap().php.unwrap().worker.program;
    assert!(program(&[]).ends_with("hearth-worker-8.10"));
    assert!(program(&[("php.version", "8.2")]).ends_with("hearth-worker-8.2"));
}

#[test]
fn settings_override_detection() {
    let machine = Machine::with(&["index.php", "web/index.php", "web/app.php", "loop.php"]);
    let plan = machine
        .plan(&[("http.document_root", "web"), ("http.front_controller", "web/app.php")])
        .unwrap();
    assert!(plan.application.document_root.ends_with("web"));
    assert_eq!(
        plan.script_name(plan.application.front_controller.as_ref().unwrap()).as_deref(),
        Some("/app.php")
    );
    let plan = machine.plan(&[("php.worker_script", "loop.php")]).unwrap();
    let php = plan.php.unwrap();
    assert_eq!(php.model, Model::Snapshot);
    assert!(matches!(php.script, Some(WorkerScript::File(path)) if path.ends_with("loop.php")));
}

#[test]
fn impossible_plans_are_rejected_with_a_hint() {
    let machine = Machine::with(&["index.php"]);
    let files = Machine::with(&["index.html"]);
    let bare = Machine {
        environment: Environment::for_test(machine.app.path(), &[("HEARTH_LIB_DIR", "/nowhere")]),
        ..Machine::with(&["index.php"])
    };
    let seen = [
        machine.explained(&[("php.model", "worker")]),
        machine.explained(&[("php.version", "8.4")]),
        machine.explained(&[("http.document_root", "/nonexistent")]),
        machine.explained(&[("http.front_controller", "/nonexistent/index.php")]),
        files.explained(&[("php.model", "request")]),
        bare.explained(&[]),
        bare.explained(&[("php.version", "8.2")]),
    ];
    insta::assert_snapshot!(seen.join("\n"));
}

const LARAVEL: [&str; 3] = ["artisan", "bootstrap/app.php", "public/index.php"];

#[test]
fn applications_boot_ahead_if_possible() {
    let model = |machine: &Machine| machine.plan(&[]).unwrap().php.unwrap().model;
    assert_eq!(model(&Machine::with(&LARAVEL)), Model::Snapshot);
    assert_eq!(model(&Machine::with(&["config/bundles.php", "public/index.php"])), Model::Snapshot);
    assert_eq!(model(&Machine::with(&["worker.php"])), Model::Snapshot);
    assert_eq!(model(&Machine::with(&["index.php"])), Model::Request);
    let both = Machine::with(&["public/index.php", "worker.php"]);
    assert_eq!(model(&both), Model::Request, "a script of that name may be a queue's worker");
    both.write("worker.php", "<?php while (hearth_handle_request($handler));");
    assert_eq!(model(&both), Model::Snapshot);
}

#[test]
fn a_front_controller_that_waits_boots_ahead() {
    let machine = Machine::with(&["public/index.php", "public/boot.php", "worker.php"]);
    let script = |settings: &[(&'static str, &str)]| {
        let php = machine.plan(settings).unwrap().php.unwrap();
        (php.model, php.script.map(|script| matches!(script, WorkerScript::Entry(_))))
    };
    assert_eq!(script(&[]), (Model::Request, None));
    machine.write("hearth.toml", "[php]\nawait_after = \"public/boot.php\"\n");
    assert_eq!(script(&[]), (Model::Snapshot, Some(true)));
    machine.write("hearth.toml", "");
    machine.write("public/index.php", "<?php require 'boot.php'; hearth_await_request();");
    assert_eq!(script(&[]), (Model::Snapshot, Some(true)));
    assert_eq!(script(&[("php.model", "prespawn")]), (Model::Prespawn, Some(true)));
    assert_eq!(script(&[("php.model", "request")]), (Model::Request, None));
    machine.write("hearth.toml", "[php]\nwarm_up = [\"/a\", \"/b\"]\n");
    let plan = machine.plan(&[]).unwrap();
    assert!(plan.rehearses(&machine.settings(&[])), "it ends with each");
    machine.write("worker.php", "<?php while (hearth_handle_request($handler));");
    assert_eq!(script(&[]), (Model::Snapshot, Some(false)), "a loop is stronger");
}

#[test]
fn apcu_keeps_a_front_controller_that_no_setting_names_in_request() {
    let machine = Machine::with(&["public/index.php", "public/boot.php"]);
    machine.write("public/index.php", "<?php hearth_await_request();");
    let planned = |flags: &[(&'static str, &str)]| {
        let mut plan = machine.plan(flags).unwrap();
        let is_divided = plan.with_apcu(&machine.settings(flags));
        let line = plan.explain(None).contains("; request model; not booted ahead: APCu");
        (is_divided, plan.php.unwrap().model, line)
    };
    assert_eq!(planned(&[]), (false, Model::Request, true));
    assert_eq!(planned(&[("php.model", "snapshot")]), (true, Model::Snapshot, false));
    assert_eq!(planned(&[("php.model", "request")]), (false, Model::Request, false));
    machine.write("hearth.toml", "[php]\nawait_after = \"public/boot.php\"\n");
    assert_eq!(planned(&[]), (true, Model::Snapshot, false));
    let laravel = Machine::with(&LARAVEL);
    let mut plan = laravel.plan(&[]).unwrap();
    assert!(!plan.with_apcu(&laravel.settings(&[])), "a worker script answers everything");
    assert_eq!(plan.php.unwrap().model, Model::Snapshot);
}

#[test]
fn a_machine_without_a_tracker_gets_fork() {
    let machine = Machine::with(&LARAVEL);
    let probe = |tracker: &str| Probe { tracker: tracker.into(), why: "refused".into() };
    let mut plan = machine.plan(&[("php.workers", "1")]).unwrap();
    assert_eq!(plan.fit_to_machine(&probe("file")), None);
    let fallback = plan.fit_to_machine(&probe("none")).unwrap();
    assert_eq!((fallback.wished, fallback.instead), (Model::Snapshot, Model::Fork));
    assert!(fallback.why.ends_with(": refused"), "{}", fallback.why);
    assert!(plan.explain(None).contains("; fork model in place of snapshot; worker script"));
    for model in ["request", "worker", "fork"] {
        let mut plan = machine.plan(&[("php.model", model)]).unwrap();
        assert_eq!(plan.fit_to_machine(&probe("none")), None, "{model} needs none");
    }
}

#[test]
fn the_hint_of_a_replaced_snapshot_fits_the_cause() {
    let machine = Machine::with(&LARAVEL);
    let of_machine = |why: &str| {
        let probe = Probe { tracker: "none".into(), why: why.into() };
        machine.plan(&[]).unwrap().fit_to_machine(&probe).unwrap().hint
    };
    for (why, word) in [
        ("close_range: operation not permitted", "close_range"),
        ("not enough address space (RLIMIT_AS)", "address space"),
        ("threads that the program did not start: the processor is emulated", "processor"),
        ("/proc/self/pagemap: permission denied", "/proc/self/pagemap"),
        ("memfd_create: operation not permitted", "memfd_create"),
        ("a memfd cannot be sealed: operation not permitted", "F_ADD_SEALS"),
        ("HEARTH_SNAPSHOT_TRACKER=none", "HEARTH_SNAPSHOT_TRACKER"),
        ("something new", "memfd_create, and mount /proc"),
    ] {
        let hint = of_machine(why);
        assert!(hint.contains(word) && hint.ends_with("with `--model fork`"), "{why}: {hint}");
    }
    let of_application = |why: &str| {
        let error = StartError::NoSnapshot { why: why.into() };
        machine.plan(&[]).unwrap().fit_to_application(&error, None).unwrap().hint
    };
    assert!(
        of_application("the limit on file sizes (RLIMIT_FSIZE) is 1 byte").contains("LimitFSIZE=")
    );
    assert!(of_application("the booted application has threads").contains("isolation.md"));
}

#[test]
fn an_application_that_cannot_fork_gets_request_and_never_worker() {
    let unfit = StartError::Unfit { why: "a thread".into() };
    let boot = StartError::Boot { output: "no App\\Kernel".into() };
    let snapshot = StartError::NoSnapshot { why: "a thread".into() };
    let laravel = Machine::with(&LARAVEL);
    let script = Machine::with(&["worker.php"]);
    let instead = |machine: &Machine, model: &str, error| {
        let mut plan = machine.plan(&[("php.model", model)]).unwrap();
        let fallback = plan.fit_to_application(error, None).map(|fallback| fallback.instead);
        if fallback == Some(Model::Request) {
            assert_eq!(plan.php.unwrap().script, None);
        }
        fallback
    };
    for model in ["auto", "snapshot", "fork"] {
        assert_eq!(instead(&laravel, model, &unfit), Some(Model::Request), "{model}");
        assert_eq!(instead(&script, model, &unfit), None, "{model}: there is nothing else to run");
    }
    // A boot that was not asked for is given up, but not when the application has booted before.
    let booted = |runs| laravel.plan(&[]).unwrap().fit_to_application(&boot, runs).is_some();
    assert!(booted(None) && booted(Some(Model::Request)));
    assert!(!booted(Some(Model::Snapshot)) && !booted(Some(Model::Fork)));
    assert_eq!(instead(&laravel, "snapshot", &snapshot), Some(Model::Fork));
    assert_eq!(instead(&script, "auto", &snapshot), Some(Model::Fork));
    // Hearth's own script fails for an application that is not as it expects: there is a fallback only when the boot was not asked for.
    assert_eq!(instead(&laravel, "auto", &boot), Some(Model::Request));
    assert_eq!(instead(&laravel, "snapshot", &boot), None);
    assert_eq!(instead(&script, "auto", &boot), None);
}

#[test]
fn only_hearths_own_scripts_warm_up_by_default() {
    let warm_up = |machine: &Machine, flags: &[(&'static str, &str)]| -> Vec<String> {
        let paths = machine.plan(flags).unwrap().warm_up(&machine.settings(flags));
        paths.iter().map(ToString::to_string).collect()
    };
    let laravel = Machine::with(&LARAVEL);
    let script = Machine::with(&["worker.php"]);
    assert_eq!(warm_up(&laravel, &[]), ["/"; 3]);
    assert_eq!(warm_up(&laravel, &[("php.model", "fork")]), ["/"; 3]);
    assert_eq!(warm_up(&laravel, &[("php.model", "prespawn")]), [""; 0]);
    laravel.write("hearth.toml", "[php]\nwarm_up = \"off\"\n");
    assert_eq!(warm_up(&laravel, &[]), [""; 0]);
    let rehearses =
        |machine: &Machine| machine.plan(&[]).unwrap().rehearses(&machine.settings(&[]));
    assert_eq!(warm_up(&script, &[]), ["/"]);
    assert!(rehearses(&script) && !rehearses(&laravel));
    script.write("hearth.toml", "[php]\nwarm_up = [\"/a\", \"/b?c=1\"]\n");
    assert_eq!(warm_up(&script, &[]), ["/a", "/a", "/a", "/b?c=1", "/b?c=1", "/b?c=1"]);
    assert!(!rehearses(&script));
}

#[test]
fn octanes_script_runs_when_named_with_its_environment() {
    let machine =
        Machine::with(&["artisan", "bootstrap/app.php", "public/index.php", OCTANE_SCRIPT]);
    machine.write(OCTANE_SCRIPT, "<?php frankenphp_handle_request(fn () => 1);");
    let ours = machine.plan(&[]).unwrap().php.unwrap();
    assert!(matches!(ours.script, Some(WorkerScript::Ours { .. })), "it is not chosen unasked");
    assert_eq!(ours.env, []);

    let folder = machine.app.path().canonicalize().unwrap();
    machine.write("hearth.toml", "[php.env]\nMAX_REQUESTS = \"500\"\n");
    let script = folder.join(OCTANE_SCRIPT);
    let named = machine.plan(&[("php.worker_script", script.to_str().unwrap())]).unwrap();
    let php = named.php.unwrap();
    assert_eq!(php.script, Some(WorkerScript::File(script)));
    let wanted = [("APP_BASE_PATH", folder.to_str().unwrap()), ("LARAVEL_OCTANE", "1")];
    let wanted = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(php.env, wanted, "what the settings say stays");
}

const OCTANE_SCRIPT: &str = "public/frankenphp-worker.php";

#[test]
fn a_symfony_runtime_for_frankenphp_runs_the_front_controller_as_worker_script() {
    let machine = Machine::with(&["config/bundles.php", "public/index.php"]);
    let script = || machine.plan(&[]).unwrap().php.unwrap().script.unwrap();
    let index = machine.app.path().canonicalize().unwrap().join("public/index.php");
    let composer = |class: &str| {
        let composer = serde_json::json!({"extra": {"runtime": {"class": class}}});
        machine.write("composer.json", &composer.to_string());
    };

    composer("Bref\\SymfonyRuntime");
    assert!(matches!(script(), WorkerScript::Ours { .. }), "a runtime that runs no loop");
    composer("Runtime\\FrankenPhpSymfony\\Runtime");
    assert_eq!(script(), WorkerScript::File(index.clone()));
    machine.write("hearth.toml", "[php.env]\nAPP_RUNTIME = \"App\\\\Runtime\"\n");
    assert!(matches!(script(), WorkerScript::Ours { .. }), "APP_RUNTIME is stronger");
    machine.write("hearth.toml", "[php.env]\nAPP_RUNTIME = \"App\\\\HearthRuntime\"\n");
    assert_eq!(script(), WorkerScript::File(index));
}

#[test]
fn max_workers_must_exceed_workers_and_needs_hearths_models() {
    let app = Machine::with(&["index.php"]);
    let told = app.explained(&[("php.workers", "2"), ("php.workers_max", "9")]);
    assert!(told.ends_with("; 2 to 9 workers"), "{told}");
    let told = app.explained(&[("php.workers", "4"), ("php.workers_max", "3")]);
    assert!(told.contains("`php.workers` is 4, and `php.workers_max` less: 3"), "{told}");
    let one = app.plan(&[("php.workers_max", "1")]).unwrap().php.unwrap();
    assert_eq!((one.workers.get(), one.workers_max.unwrap().get()), (1, 1));
    let told = app.explained(&[("php.model", "fpm"), ("php.workers_max", "9")]);
    assert!(told.contains("the model `fpm` has a fixed number"), "{told}");
}
