//! PHP's session files: where the replayed requests have theirs, and whether their content can be compared.

use pool::Model;

use super::Verify;
use crate::app::applications;
use crate::app::detect::Kind;
use crate::app::php;
use crate::config::{Environment, Settings};
use crate::failure::Failure;
use crate::system::run_dir::RunDir;
use crate::system::users::PhpUser;

/// Makes the folder of PHP's session files, which PHP's user can write.
pub(super) fn folder(user: Option<&PhpUser>, environment: &Environment) -> std::io::Result<RunDir> {
    let run_dir = RunDir::new(None, &environment.temporary_folder())?;
    if let Some(user) = user {
        user.identity.share(run_dir.path(), 0o770)?;
    }
    Ok(run_dir)
}

/// Returns why the content of sessions is not compared; none if PHP writes them to files that can be watched.
pub(super) fn not_compared(
    settings: &Settings,
    verify: &Verify,
    environment: &Environment,
) -> Result<Option<String>, Failure> {
    let own = |name: &str| {
        settings.php.ini.0.iter().rev().find(|(set, _)| set == name).map(|(_, value)| value.clone())
    };
    if own("session.save_path").is_some() {
        return Ok(Some(
            "session.save_path is set: sessions are compared if it is in the application's folder"
                .to_owned(),
        ));
    }
    let Some(application) = applications::at_path(&verify.target.path, settings)? else {
        return Ok(None);
    };
    let handler = match own("session.save_handler") {
        Some(handler) => handler,
        None if application.kind == Kind::StaticFiles => return Ok(None),
        None => handler_of_php_ini(settings, environment)?,
    };
    Ok((handler != "files")
        .then(|| format!("sessions are not compared: session.save_handler is `{handler}`")))
}

/// Returns the session handler of php.ini and the files beside it.
fn handler_of_php_ini(settings: &Settings, environment: &Environment) -> Result<String, Failure> {
    let worker = php::program(Model::Request, settings, environment)?;
    let user = php::asks_as(None, settings, environment)?;
    let info = php::info(&worker, settings, user.as_ref())?;
    let scanned = info.scanned.as_array().into_iter().flatten().filter_map(|file| file.as_str());
    let files = info.ini_file.as_deref().into_iter().chain(scanned);
    let mut handler = "files".to_owned();
    for file in files {
        let text = std::fs::read_to_string(file.trim()).unwrap_or_default();
        for line in text.lines() {
            if let Some((name, value)) = line.split_once('=')
                && name.trim() == "session.save_handler"
            {
                value.trim().trim_matches('"').clone_into(&mut handler);
            }
        }
    }
    Ok(handler)
}
