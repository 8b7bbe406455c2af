use super::*;

/// Makes a folder with these files, all empty but composer.json and scripts whose names say their contents.
fn folder(files: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in files {
        let (name, content) = file.split_once(" = ").unwrap_or((file, ""));
        let path = folder.path().join(name);
        if name.ends_with('/') {
            std::fs::create_dir_all(path).unwrap();
            continue;
        }
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    folder
}

/// Describes what was detected, its paths relative to the folder.
fn found(folder: &Path, named: &str) -> String {
    let base = folder.canonicalize().unwrap();
    let relative = |path: &Path| match path.strip_prefix(&base).unwrap().display().to_string() {
        path if path.is_empty() => ".".to_owned(),
        path => path,
    };
    let optional =
        |path: &Option<PathBuf>| path.as_deref().map_or_else(|| "-".to_owned(), relative);
    match detect(&folder.join(named)) {
        Err(error) => error.to_string().replace(&base.display().to_string(), "DIR"),
        Ok(app) => format!(
            "{:?}: folder {}, root {}, front {}, worker {} ({})",
            app.kind,
            relative(&app.folder),
            relative(&app.document_root),
            optional(&app.front_controller),
            optional(&app.worker_script),
            app.because,
        ),
    }
}

#[test]
fn the_most_specific_kind_wins() {
    let table: &[(&[&str], &str)] = &[
        (
            &["artisan", "bootstrap/app.php", "public/index.php", "composer.json"],
            "Laravel: folder ., root public, front public/index.php, worker - (artisan and bootstrap/app.php found)",
        ),
        (
            &["artisan", "bootstrap/app.php", "public/index.php", "public/frankenphp-worker.php"],
            "Laravel: folder ., root public, front public/index.php, worker public/frankenphp-worker.php \
             (artisan and bootstrap/app.php found)",
        ),
        (
            &["config/bundles.php", "public/index.php"],
            "Symfony: folder ., root public, front public/index.php, worker - (config/bundles.php found)",
        ),
        (
            &["src/Kernel.php", "bin/console", "public/index.php", "public/worker.php"],
            "Symfony: folder ., root public, front public/index.php, worker public/worker.php \
             (src/Kernel.php and bin/console found)",
        ),
        (
            &[
                "src/Kernel.php",
                "public/index.php",
                "composer.json = {\"require\": {\"symfony/framework-bundle\": \"*\"}}",
            ],
            "Symfony: folder ., root public, front public/index.php, worker - \
             (src/Kernel.php found and symfony/framework-bundle required)",
        ),
        (
            &["src/Kernel.php", "public/index.php", "composer.json = {\"require\": {}}"],
            "FrontController: folder ., root public, front public/index.php, worker - (public/index.php found)",
        ),
        (
            &["index.php"],
            "FrontController: folder ., root ., front index.php, worker - (index.php found)",
        ),
        (
            &["index.php", "public/style.css"],
            "FrontController: folder ., root ., front index.php, worker - (index.php found)",
        ),
        (
            &["index.php", "worker.php"],
            "FrontController: folder ., root ., front index.php, worker worker.php (index.php found)",
        ),
        (
            &["worker.php"],
            "WorkerScript: folder ., root ., front worker.php, worker worker.php (worker.php found)",
        ),
        (
            &["public/worker.php", "public/style.css"],
            "WorkerScript: folder ., root public, front public/worker.php, worker public/worker.php \
             (public/worker.php found)",
        ),
        (
            &["style.css", "index.html"],
            "StaticFiles: folder ., root ., front -, worker - (index.html and no PHP script found)",
        ),
        (
            &["public/about.html", "readme.md"],
            "StaticFiles: folder ., root public, front -, worker - (about.html and no PHP script found)",
        ),
    ];
    for (files, expected) in table {
        assert_eq!(found(folder(files).path(), ""), *expected, "{files:?}");
    }
}

#[test]
fn a_script_is_served_from_its_own_folder_and_belongs_to_the_project_above_public() {
    let app = folder(&[
        "public/index.php",
        "public/loop.php = <?php while (frankenphp_handle_request($f));",
        "tools/report.php",
        "notes.txt",
    ]);
    assert_eq!(
        found(app.path(), "public/index.php"),
        "FrontController: folder ., root public, front public/index.php, worker - (script named on the command line)"
    );
    assert_eq!(
        found(app.path(), "public/loop.php"),
        "WorkerScript: folder ., root public, front public/loop.php, worker public/loop.php \
         (named on the command line, it calls hearth_handle_request())"
    );
    assert_eq!(
        found(app.path(), "tools/report.php"),
        "FrontController: folder tools, root tools, front tools/report.php, worker - (script named on the command line)"
    );
    assert_eq!(found(app.path(), "notes.txt"), "DIR/notes.txt is not a PHP script");
}

#[test]
fn nothing_to_serve_is_an_error_with_the_searched_files() {
    let empty = folder(&["hearth.toml", ".env", "lib.php"]);
    insta::assert_snapshot!(found(empty.path(), ""));
    assert!(found(empty.path(), "missing").starts_with("cannot read"));
}

#[test]
fn the_settings_file_lies_in_the_applications_folder() {
    let app = folder(&["public/index.php"]);
    let base = app.path().canonicalize().unwrap();
    assert_eq!(folder_of(&app.path().join("public/index.php")).unwrap(), base);
    assert_eq!(folder_of(app.path()).unwrap(), base);
    assert!(folder_of(&app.path().join("missing")).is_err());
}

#[test]
fn a_frameworks_document_root_stands_for_its_project() {
    let app = tempfile::tempdir().unwrap();
    for file in ["artisan", "bootstrap/app.php", "public/index.php"] {
        let path = app.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "<?php").unwrap();
    }
    let found = detect(&app.path().join("public")).unwrap();
    let folder = app.path().canonicalize().unwrap();
    assert_eq!((found.kind, &found.folder), (Kind::Laravel, &folder));
    assert!(found.because.contains("public is its document root"), "{}", found.because);
    assert_eq!(detect(app.path()).unwrap().folder, folder);
    // Without a framework above it is a folder like any other.
    std::fs::remove_file(app.path().join("artisan")).unwrap();
    assert_eq!(detect(&app.path().join("public")).unwrap().folder, folder.join("public"));
}
