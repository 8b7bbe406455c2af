//! As whom a check looks at files: as the user that the server is to be (`server.user`), where that can be tried.
//!
//! Invariant: root's eyes see everything, so nothing is judged by them that another user is to use.

use std::io;
use std::path::Path;

use pool::Identity;
use rustix::fs::{Access, access};
use rustix::process::geteuid;

use super::{Report, Topic};
use crate::config::Settings;
use crate::plan::Plan;
use crate::user;

/// Who looks.
#[derive(Debug, Default)]
pub(super) struct Eyes {
    /// None: we ourselves.
    identity: Option<Identity>,
}

impl Eyes {
    /// Those of the server, and what keeps it from having them.
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

    /// Whether a path can be used so.
    pub(super) fn may(&self, path: &Path, how: Access) -> io::Result<()> {
        match &self.identity {
            None => Ok(access(path, how)?),
            Some(identity) => match user::first_refused(identity, &[(path, how)])? {
                None => Ok(()),
                Some((.., error)) => Err(error.into()),
            },
        }
    }

    /// Whether a folder is there that can be written, or can be made.
    pub(super) fn can_make(&self, folder: &Path) -> io::Result<()> {
        // The nearest one that is there: the others are made.
        let there = folder.ancestors().find(|folder| folder.exists());
        let there = there.unwrap_or_else(|| Path::new("/"));
        if !there.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        self.may(there, Access::WRITE_OK | Access::EXEC_OK)
    }

    /// Whether the server reaches what it serves, and what it reads anew later.
    pub(super) fn look(&self, report: &mut Report, settings: &Settings, file: &Path, plan: &Plan) {
        let Some(Identity { user, .. }) = &self.identity else { return };
        let (enter, read) = (Access::EXEC_OK, Access::READ_OK);
        let application = &plan.application;
        let keys = settings.http.certificate_files();
        let mut paths = vec![(&*application.folder, enter), (&*application.document_root, enter)];
        paths.extend(application.front_controller.as_deref().map(|script| (script, read)));
        paths.extend(file.is_file().then_some((file, read)));
        paths.extend(
            keys.iter().flat_map(|files| [(&*files.certificate, read), (&*files.key, read)]),
        );
        let refused =
            paths.iter().find_map(|(path, how)| Some((path, how, self.may(path, *how).err()?)));
        match refused {
            None => report.fine(
                Topic::Application,
                format!("the server becomes user {user}, who reaches the application"),
            ),
            Some((path, how, error)) => {
                let verb = if *how == read { "read" } else { "enter" };
                let path = path.display();
                report.problem(
                    Topic::Application,
                    format!(
                        "the server as user {user} (`server.user`) cannot {verb} {path}: {error}"
                    ),
                    format!(
                        "let it (`namei -l {path}` shows where its way ends), or name another user"
                    ),
                );
            }
        }
    }
}
