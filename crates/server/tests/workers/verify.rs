//! `hearth verify` on the examples: nothing as they are, and a planted leak with its cause.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{App, copy, example};

/// Replays these paths, and returns the findings of `worker`; `snapshot` must have none.
fn findings(app: &App, paths: &[&str], requests: u32) -> Vec<Value> {
    let log: String = paths
        .iter()
        .map(|path| json!({"method": "GET", "path": path}).to_string() + "\n")
        .collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), log).unwrap();
    let program = testkit::php_worker().expect("hearth-worker-8.x is built: `make test` does it");
    let mut command = Command::new(env!("CARGO_BIN_EXE_hearth"));
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HEARTH_PHP_WORKER_PROGRAM", program);
    command.arg("verify").arg(app.path()).arg("--log").arg(file.path());
    let output =
        command.args(["--format", "json", "--requests", &requests.to_string()]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    let of = |name: &str| {
        report["models"]
            .as_array()
            .unwrap()
            .iter()
            .find(|model| model["model"] == name)
            .unwrap()
            .clone()
    };
    for model in ["snapshot", "worker"] {
        assert_eq!(of(model)["not_seen_again"], json!([]), "{report:#}");
    }
    assert_eq!(of("snapshot")["findings"], json!([]), "{report:#}");
    assert_eq!(report["replayed"], requests);
    of("worker")["findings"].as_array().unwrap().clone()
}

fn replaced(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "{}: {from}", file.display());
    fs::write(file, text.replace(from, to)).unwrap();
}

#[test]
fn verify_finds_nothing_in_the_symfony_example_until_a_leak_is_planted() {
    let paths = ["/", "/hello?name=Ada", "/hello", "/json", "/items/2", "/nowhere"];
    let app = App::new();
    copy(&example("symfony-api"), app.path());
    assert_eq!(findings(&app, &paths, 60), [] as [Value; 0]);
    let controller = app.path().join("src/Controller/HomeController.php");
    replaced(
        &controller,
        "hello(): Response\n    {\n",
        "hello(Request $request): Response\n    {\n        $this->name = $request->query->get('name', $this->name);\n",
    );
    replaced(&controller, "['name' => 'world']", "['name' => $this->name]");
    replaced(
        &controller,
        "    public function message",
        "    private string $name = 'world';\n\n    public function message",
    );
    fs::remove_dir_all(app.path().join("var/cache")).unwrap();
    let found = findings(&app, &paths, 12);
    let causes: Vec<_> = found.iter().map(|one| (&one["request"], &one["predecessors"])).collect();
    assert_eq!(causes, [(&json!("GET /hello"), &json!(["GET /hello?name=Ada"]))], "{found:#?}");
}

#[test]
fn verify_finds_nothing_in_the_laravel_example_until_a_leak_is_planted() {
    let paths = ["/", "/messages", "/hello", "/json", "/messages?after=1", "/nowhere"];
    let app = App::new();
    copy(&example("laravel-chat"), app.path());
    assert_eq!(findings(&app, &paths, 60), [] as [Value; 0]);
    let controller = app.path().join("app/Http/Controllers/ChatController.php");
    let index =
        "    public function index(Request $request, Messages $messages): JsonResponse\n    {\n";
    let leak = "        static $after = 0;\n        $after = max($after, (int) $request->query('after'));\n        header(\"X-After: $after\");\n";
    replaced(&controller, index, &format!("{index}{leak}"));
    let found = findings(&app, &paths, 12);
    let causes: Vec<_> = found.iter().map(|one| (&one["request"], &one["predecessors"])).collect();
    assert_eq!(
        causes,
        [(&json!("GET /messages"), &json!(["GET /messages?after=1"]))],
        "{found:#?}"
    );
}
