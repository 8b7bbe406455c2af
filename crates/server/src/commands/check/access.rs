//! Access to files, checked as the user that the server is to become (`server.user`), if that can be tried.
//!
//! Invariant: root can read everything, so files for another user are never checked as root.

use std::io;
use std::path::Path;

use pool::Identity;
use rustix::fs::{Access, access};
use rustix::process::geteuid;

use super::{Report, Topic};
use crate::app::detect::Application;
use crate::app::plan::Plan;
use crate::app::user;
use crate::config::Settings;
use crate::system::users::first_refused;

/// The user for the check.
#[derive(Clone, Debug, Default)]
pub(super) struct AccessCheck {
    /// The user's identity; `None` is the current user.
    identity: Option<Identity>,
}

impl AccessCheck {
    /// Returns the access check for the server's user, and reports what prevents it.
    pub(super) fn of(report: &mut Report, settings: &Settings) -> Self {
        match user::of_server(settings) {
            Ok(None) => Self::default(),
            Ok(Some(identity)) if geteuid().is_root() => Self { identity: Some(identity) },
            Ok(Some(Identity { user, .. })) => {
                let own = geteuid().as_raw();
                report.warning(
                    Topic::Settings,
                    format!("the server is to be user {user} (`server.user`), which cannot be tried by user {own}"),
                    "run `hearth check` as root",
                );
                Self::default()
            }
            Err(failure) => {
                report.failure(Topic::Settings, &failure);
                Self::default()
            }
        }
    }

    /// Checks whether a path can be used so.
    pub(super) fn may(&self, path: &Path, how: Access) -> io::Result<()> {
        match &self.identity {
            None => Ok(access(path, how)?),
            Some(identity) => match first_refused(identity, &[(path, how)])? {
                None => Ok(()),
                Some((.., error)) => Err(error.into()),
            },
        }
    }

    /// Returns the checked user, if it is not the current one.
    pub(super) fn user(&self) -> Option<u32> {
        self.identity.as_ref().map(|identity| identity.user)
    }

    /// Checks whether a folder is writable, or can be made.
    pub(super) fn can_make(&self, folder: &Path) -> io::Result<()> {
        // The nearest one that is there: the others are made.
        let there = folder.ancestors().find(|folder| folder.exists());
        let there = there.unwrap_or_else(|| Path::new("/"));
        if !there.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        self.may(there, Access::WRITE_OK | Access::EXEC_OK)
    }

    /// Returns the access check for PHP's user, if that is not the server's.
    pub(super) fn of_php(&self, plan: Option<&Plan>) -> Self {
        let user = plan.and_then(|plan| plan.php.as_ref()?.user.as_ref());
        user.map_or_else(|| self.clone(), |user| Self { identity: Some(user.identity.clone()) })
    }

    /// Checks that the server can read the files that it reads again later: its settings, and its certificates' keys.
    pub(super) fn server(&self, report: &mut Report, settings: &Settings, file: &Path) {
        let keys = settings.http.certificate_files();
        let keys = keys.iter().flat_map(|files| [&*files.certificate, &*files.key]);
        let paths: Vec<&Path> = file.is_file().then_some(file).into_iter().chain(keys).collect();
        self.reach(report, paths.into_iter().map(|path| (path, Access::READ_OK)));
    }

    /// Checks that the server reaches an application.
    pub(super) fn application(&self, report: &mut Report, application: &Application) {
        let folders = [&*application.folder, &*application.document_root];
        let folders = folders.map(|folder| (folder, Access::EXEC_OK));
        let script = application.front_controller.as_deref();
        let paths = folders.into_iter().chain(script.map(|script| (script, Access::READ_OK)));
        if self.reach(report, paths)
            && let Some(Identity { user, .. }) = &self.identity
        {
            let what = format!("the server becomes user {user}, which can access the application");
            report.fine(Topic::Application, what);
        }
    }

    fn reach<'p>(
        &self,
        report: &mut Report,
        mut paths: impl Iterator<Item = (&'p Path, Access)>,
    ) -> bool {
        let Some(Identity { user, .. }) = &self.identity else { return true };
        let refused = paths.find_map(|(path, how)| Some((path, how, self.may(path, how).err()?)));
        let Some((path, how, error)) = refused else { return true };
        let verb = if how == Access::READ_OK { "read" } else { "enter" };
        let path = path.display();
        report.problem(
            Topic::Application,
            format!("the server as user {user} (`server.user`) cannot {verb} {path}: {error}"),
            format!(
                "grant access (`namei -l {path}` shows where access ends), or name another user"
            ),
        );
        false
    }
}
