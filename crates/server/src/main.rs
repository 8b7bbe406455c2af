//! The program `hearth`: reads the command line and the settings, wires the engines together, and waits.
//!
//! Invariants
//! - It never runs PHP in its own process.
//! - Exit status: 0 done, 1 failed, 2 misused; the last line on stderr then says what to do.

mod app;
mod cli;
mod commands;
mod config;
mod failure;
mod ops;
mod runtime;
mod subsystems;
mod system;

use std::io::Write;
use std::process::ExitCode;

use cli::Invocation;
use commands::{
    channels, check, egress, invoke, lambda, php, purge, reload, serve, status, stop, tls, top,
    upgrade, verify,
};
use config::Environment;
use failure::Failure;
use ops::log;
use system::{async_runtime, guard, machine, sys};

fn main() -> ExitCode {
    if guard::is_wanted() {
        return guard::run();
    }
    let status = run().unwrap_or_else(|failure| {
        let failure = explained(failure);
        log::failure(&failure);
        ExitCode::from(failure.status())
    });
    log::finish();
    status
}

fn run() -> Result<ExitCode, Failure> {
    sys::overhear_usr1();
    let invocation = cli::parse(std::env::args_os())?;
    let environment = Environment::read().map_err(|error| {
        Failure::caused_by(
            "cannot read the current folder",
            &error,
            "change to a folder that exists",
        )
    })?;
    if !matches!(invocation, Invocation::Print(_)) {
        async_runtime::try_calls()?;
    }
    if !matches!(invocation, Invocation::Php(_)) {
        // Without /proc nothing is listed, and what needs it says so.
        let _not_listed = sys::keep_inherited_from_children().is_err();
    }
    match invocation {
        Invocation::Serve(target) => {
            serve::serve(&target, &environment).map(|()| ExitCode::SUCCESS)
        }
        Invocation::Reload(target) => {
            let text = reload::reload(&target, &environment)?;
            print_to(&mut std::io::stdout(), &text);
            Ok(ExitCode::SUCCESS)
        }
        Invocation::Purge { target, what } => {
            let text = purge::purge(&target, &what, &environment)?;
            print_to(&mut std::io::stdout(), &text);
            Ok(ExitCode::SUCCESS)
        }
        Invocation::Upgrade(target) => {
            let text = upgrade::upgrade(&target, &environment)?;
            print_to(&mut std::io::stdout(), &text);
            Ok(ExitCode::SUCCESS)
        }
        Invocation::Status { target, json } => {
            let (text, ready) = status::status(&target, json, &environment)?;
            print_to(&mut std::io::stdout(), &text);
            Ok(if ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Invocation::Stop { target, now } => {
            let text = stop::stop(&target, now, &environment)?;
            print_to(&mut std::io::stdout(), &text);
            Ok(ExitCode::SUCCESS)
        }
        Invocation::Check { target, lambda, boots, json } => {
            let report = check::check(&target, (lambda, boots), &environment)?;
            let text = if json { report.json() } else { report.text(environment.colour_stdout()) };
            print_to(&mut std::io::stdout(), &text);
            Ok(if report.is_fine() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Invocation::Egress { config, flags } => {
            egress::run(config.as_deref(), flags, &environment).map(|()| ExitCode::SUCCESS)
        }
        Invocation::Channels { config, flags } => {
            channels::run(config.as_deref(), flags, &environment).map(|()| ExitCode::SUCCESS)
        }
        Invocation::Lambda { target, emulate } => {
            lambda::run(target, emulate, &environment).map(|()| ExitCode::SUCCESS)
        }
        Invocation::Verify(asked) => {
            let (text, clean) = verify::run(&asked, &environment)?;
            print_to(&mut std::io::stdout(), &text);
            Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Invocation::Top(top) => top::run(&top, &environment).map(|()| ExitCode::SUCCESS),
        Invocation::TlsTrust { config } => {
            let text = tls::trust(config.as_deref(), &environment)?;
            print_to(&mut std::io::stdout(), &text);
            Ok(ExitCode::SUCCESS)
        }
        Invocation::Invoke(invoke) => {
            let text = invoke::run(&invoke, &environment)?;
            print_to(&mut std::io::stdout(), &text);
            Ok(ExitCode::SUCCESS)
        }
        Invocation::Php(arguments) => {
            let settings = config::load(&environment.current_dir, None, Vec::new(), &environment)?;
            Err(php::become_cli(&settings, &environment, &arguments))
        }
        Invocation::Print(text) => {
            let text = if environment.colour_stdout() {
                text.ansi().to_string()
            } else {
                text.to_string()
            };
            print_to(&mut std::io::stdout(), &text);
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Adds the seccomp profile to the hint of a failure that it may have caused.
fn explained(failure: Failure) -> Failure {
    let may_be = failure.message().contains("(os error 1)") && machine::filters_calls();
    match failure.hint() {
        Some(hint) if may_be && hint != async_runtime::ALLOW_CALLS => failure.reworded(
            |message| message,
            |hint| format!("{hint}; or {}", async_runtime::ALLOW_CALLS),
        ),
        _ => failure,
    }
}

/// Prints a text. A closed output is no error: its reader has ended.
fn print_to(output: &mut dyn Write, text: &str) {
    drop(output.write_all(text.as_bytes()).and_then(|()| output.flush()));
}
