//! The reference pages, made from the table of settings and the command line.
//!
//! docs/reference/config.md and docs/reference/cli.md are these texts; a test compares them, `UPDATE=1` rewrites them.

use std::fmt::Write as _;

use super::applications::{
    APPLICATION_KEYS, ApplicationKey, IN_FOLDER, OF_PATH, OF_USER, OF_VERSION,
};
use super::apps::{APP_KEYS, AppKey};
use super::connectors::{CONNECTOR_KEYS, ConnectorKey};
use super::environment::NOT_SETTINGS;
use super::keys::paragraphs;
use super::processes::{PROCESS_KEYS, ProcessKey};
use super::{KEYS, Key, SECTIONS};

const GENERATED: &str = "<!-- Generated from crates/server/src by `UPDATE=1 cargo test -p server`. Do not edit. -->\n\n";

/// docs/reference/config.md.
pub(crate) fn settings_page() -> String {
    let mut page = String::from("# Settings\n\n");
    page.push_str(GENERATED);
    page.push_str(concat!(
        "A setting is read from its flag, else from the environment, else from `hearth.toml`; else its default applies. The file\n",
        "is in the application's folder, or where `--config` or `HEARTH_CONFIG` names it. Relative paths in `hearth.toml` start\n",
        "at its folder, those of flags and variables at the current directory. An unknown name is an error.\n\n",
        "```toml\n[http]\nlisten = [\"127.0.0.1:8080\", \"unix:/run/app.sock\"]\n\n[php]\nmodel = \"worker\"\nworkers = 4\n\n",
        "[php.ini]\nmemory_limit = \"256M\"\nopcache.enable = 1\n```\n",
    ));
    for section in SECTIONS {
        write!(page, "\n## [{}]\n\n{}\n", section.name, paragraphs(section.doc))
            .expect("a String takes all");
        for key in KEYS.iter().filter(|key| key.section_and_key().0 == section.name) {
            let value = match key.alone {
                Some(_) => format!("[={}]", key.placeholder),
                None => format!(" {}", key.placeholder),
            };
            let flag =
                key.flag.map_or_else(String::new, |flag| format!(", flag `--{flag}{value}`"));
            let default = if key.default.is_empty() {
                "nothing".into()
            } else {
                format!("`{}`", key.default)
            };
            write!(
                page,
                "\n### `{}`\n\n{}\n\n- Accepts {}.\n- Default {default}. Environment `{}`{flag}.\n",
                key.name,
                paragraphs(key.doc),
                (key.expected)(),
                key.environment(),
            )
            .expect("a String takes all");
        }
        if section.name == "databases" {
            page.push_str("\n### Keys of `[databases.connectors.NAME]`\n\nIn a URL in the environment they are its query: `?sslmode=verify-ca&sessions=5`.\n\n| key | is | accepts | default |\n|---|---|---|---|\n");
            for ConnectorKey { name, doc, expected, default } in CONNECTOR_KEYS {
                let default =
                    if default.is_empty() { "nothing".into() } else { format!("`{default}`") };
                writeln!(page, "| `{name}` | {doc} | {} | {default} |", expected())
                    .expect("a String takes all");
            }
        }
        if section.name == "realtime" {
            page.push_str("\n### Keys of `[realtime.apps.ID]`\n\n| key | is | accepts | default |\n|---|---|---|---|\n");
            for AppKey { name, doc, expected, default, .. } in APP_KEYS {
                let default =
                    if default.is_empty() { "nothing".into() } else { format!("`{default}`") };
                writeln!(page, "| `{name}` | {doc} | {} | {default} |", expected())
                    .expect("a String takes all");
            }
        }
    }
    page.push_str(concat!(
        "\n## [applications]\n\nFurther applications of `hearth serve`, or further pools of the one at PATH (docs/guide/applications.md). In `hearth.toml` only.\n",
        "NAME is in logs, metrics and `/status`; `main` is the application at PATH.\n\n### Keys of `[applications.NAME]`\n\n| key | is | accepts |\n|---|---|---|\n",
    ));
    for ApplicationKey { name, doc, expected } in APPLICATION_KEYS {
        writeln!(page, "| `{name}` | {doc} | {} |", expected()).expect("a String takes all");
    }
    page.push_str("\nThese settings can be in tables such as `[applications.NAME.php]`; otherwise those of the application at PATH apply. A table overrides flags and variables, which apply to all:\n\n");
    for section in SECTIONS {
        let of_it = |key: &&Key| key.section_and_key().0 == section.name && key.is_of_application();
        let names: Vec<String> =
            KEYS.iter().filter(of_it).map(|key| format!("`{}`", key.section_and_key().1)).collect();
        if !names.is_empty() {
            writeln!(page, "- `[{}]`: {}", section.name, names.join(", "))
                .expect("a String takes all");
        }
    }
    let names =
        |all: &[&str]| all.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    writeln!(
        page,
        "\nWith a `path` these are not inherited, since they name what belongs to the application at PATH: {}. With a `php.version`, these are not: {}. With a `php.user`: {}. Relative paths of {} that are said of all applications start at the folder of each that has a `path`.",
        names(OF_PATH),
        names(OF_VERSION),
        names(OF_USER),
        names(IN_FOLDER)
    )
    .expect("a String takes all");
    page.push_str(concat!(
        "\n## [processes]\n\nCommands that run beside the application, such as queue workers (docs/guide/processes.md). In `hearth.toml` only, for\n",
        "`hearth serve`. A reload replaces them.\n\n### Keys of `[processes.NAME]`\n\n| key | is | accepts | default |\n|---|---|---|---|\n",
    ));
    for ProcessKey { name, doc, expected, default } in PROCESS_KEYS {
        let default = if default.is_empty() { "required".into() } else { format!("`{default}`") };
        writeln!(page, "| `{name}` | {doc} | {} | {default} |", expected())
            .expect("a String takes all");
    }
    page.push_str("\n## Other variables\n\n| variable | is |\n|---|---|\n");
    for (name, purpose) in NOT_SETTINGS {
        writeln!(page, "| `{name}` | {purpose} |").expect("a String takes all");
    }
    page
}

/// docs/reference/cli.md.
pub(crate) fn command_line_page(command: clap::Command) -> String {
    let mut command = command.term_width(100).disable_help_subcommand(true);
    command.build();
    let mut page = format!("# Command line\n\n{GENERATED}");
    write!(page, "## `hearth`\n\n```text\n{}```\n", command.render_long_help())
        .expect("a String takes all");
    below(&mut page, &mut command, "hearth");
    page
}

/// The commands of a command, and theirs.
fn below(page: &mut String, command: &mut clap::Command, above: &str) {
    for sub in command.get_subcommands_mut() {
        let name = format!("{above} {}", sub.get_name());
        write!(page, "\n## `{name}`\n\n```text\n{}```\n", sub.render_long_help())
            .expect("a String takes all");
        below(page, sub, &name);
    }
}
