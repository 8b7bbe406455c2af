//! The listener's socket, and the token beside it: created, guarded and removed.
//!
//! Invariants
//! - Only the user and the group can connect, from the first moment on.
//! - The socket of a dead broker is replaced; that of a living one, or any other file, never is.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Gid, flock};
use tokio::net::UnixListener;

use super::control::Token;

/// The name of the token's file, in the socket's folder.
const TOKEN: &str = "egress.token";
/// The mode of the socket: user and group.
const SOCKET_MODE: u32 = 0o660;
/// The mode of the token's file: users that may connect may read it.
const TOKEN_MODE: u32 = 0o640;
/// The length of the accept queue, as far as the system permits it.
const BACKLOG: i32 = 4096;

/// Why the socket cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// Another broker uses the socket.
    #[error("another broker serves {}", folder.display())]
    Taken {
        /// The folder of the socket and the token.
        folder: PathBuf,
    },
    /// The path belongs to a file that is no broker's socket.
    #[error("{} exists and is not a broker's socket", path.display())]
    NotOurs {
        /// The path.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("cannot create {}", path.display())]
    System {
        /// The path to be created.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
}

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) listener: UnixListener,
    pub(crate) path: PathBuf,
    pub(crate) token: Token,
    /// Locked for as long as this broker lives.
    token_file: File,
    inode: u64,
}

impl Socket {
    /// Creates socket and token. `group`: the group that owns them.
    pub(crate) fn bind(path: &Path, group: Option<u32>) -> Result<Self, SocketError> {
        let path = std::path::absolute(path).map_err(|cause| system(path, cause))?;
        let folder = path.parent().unwrap_or_else(|| Path::new("/"));
        let (token_file, token) = token(folder, group)?;
        match place(&path, folder, group) {
            Ok((listener, inode)) => Ok(Self { listener, path, token, token_file, inode }),
            Err(error) => {
                // It is locked, so it belongs to this broker.
                drop(std::fs::remove_file(folder.join(TOKEN)));
                Err(error)
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path);
        if ours.is_ok_and(|metadata| metadata.ino() == self.inode) {
            drop(std::fs::remove_file(&self.path));
            // It is locked, so it belongs to this broker.
            drop(std::fs::remove_file(self.path.with_file_name(TOKEN)));
        }
        let _unlocked = flock(&self.token_file, FlockOperation::Unlock).is_ok();
    }
}

/// Listens at a path that no living process uses. Returns the socket and its inode.
fn place(
    path: &Path,
    folder: &Path,
    group: Option<u32>,
) -> Result<(UnixListener, u64), SocketError> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(system(path, error)),
        Ok(there) if !there.file_type().is_socket() => {
            return Err(SocketError::NotOurs { path: path.to_owned() });
        }
        // A refused connection means that the socket's owner has died.
        Ok(_) => match UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            _ => return Err(SocketError::NotOurs { path: path.to_owned() }),
        },
    }
    // Under its own name it appears when its mode is right.
    let new = folder.join(format!(".egress-{}", std::process::id()));
    let listener = listen(&new, group).map_err(|cause| system(path, cause))?;
    let inode = std::fs::symlink_metadata(&new).map_or(0, |metadata| metadata.ino());
    if let Err(cause) = std::fs::rename(&new, path) {
        drop(std::fs::remove_file(&new));
        return Err(system(path, cause));
    }
    Ok((listener, inode))
}

fn listen(path: &Path, group: Option<u32>) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = std::os::unix::net::UnixListener::bind(path)?;
    let finish = || {
        belong(path, group)?;
        std::fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE))?;
        rustix::net::listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)
    };
    if let Err(error) = finish() {
        drop(std::fs::remove_file(path));
        return Err(error);
    }
    UnixListener::from_std(listener)
}

fn token(folder: &Path, group: Option<u32>) -> Result<(File, Token), SocketError> {
    let path = folder.join(TOKEN);
    let make = || -> io::Result<Option<(File, Token)>> {
        let no_follow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(TOKEN_MODE)
            .custom_flags(no_follow)
            .open(&path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            other => other?,
        }
        // A broker that was just ending has taken away the file that we had opened.
        if std::fs::metadata(&path).map_or(0, |there| there.ino()) != file.metadata()?.ino() {
            return Ok(None);
        }
        match fill(&path, &file, group) {
            Ok(token) => Ok(Some((file, token))),
            Err(error) => {
                // It is locked, so it belongs to this broker.
                drop(std::fs::remove_file(&path));
                Err(error)
            }
        }
    };
    match make() {
        Ok(Some(made)) => Ok(made),
        Ok(None) => Err(SocketError::Taken { folder: folder.to_owned() }),
        Err(cause) => Err(system(&path, cause)),
    }
}

/// Changes the file's owner, and writes a new token into it.
fn fill(path: &Path, file: &File, group: Option<u32>) -> io::Result<Token> {
    belong(path, group)?;
    file.set_permissions(Permissions::from_mode(TOKEN_MODE))?;
    let mut random = [0; 32];
    getrandom::fill(&mut random)?;
    let token = Token::new(random);
    // Replaced atomically: a concurrent reader finds the old one or the new one.
    file.write_all_at(token.digits().as_bytes(), 0)?;
    file.set_len(token.digits().len() as u64)?;
    Ok(token)
}

fn belong(path: &Path, group: Option<u32>) -> io::Result<()> {
    let Some(group) = group else { return Ok(()) };
    Ok(rustix::fs::chown(path, None, Some(Gid::from_raw(group)))?)
}

fn system(path: &Path, cause: io::Error) -> SocketError {
    SocketError::System { path: path.to_owned(), cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o777
    }

    #[tokio::test]
    async fn socket_and_token_have_owner_and_group_rights_and_are_removed_at_exit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("egress.sock");
        let token = folder.path().join("egress.token");
        let socket = Socket::bind(&path, None).unwrap();
        assert_eq!((mode(&path), mode(&token)), (0o660, 0o640));
        assert_eq!(std::fs::read_to_string(&token).unwrap(), socket.token.digits());
        assert_eq!(socket.token.digits().len(), 64);
        UnixStream::connect(&path).unwrap();
        drop(socket);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn only_a_dead_brokers_socket_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("egress.sock");
        let first = Socket::bind(&path, None).unwrap();
        let second = Socket::bind(&path, None);
        assert!(matches!(second, Err(SocketError::Taken { .. })), "{second:?}");
        UnixStream::connect(&path).unwrap();
        drop(first);
        // As one that was killed leaves it.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        std::fs::write(folder.path().join("egress.token"), "old".repeat(100)).unwrap();
        let third = Socket::bind(&path, None).unwrap();
        UnixStream::connect(&path).unwrap();
        let token = std::fs::read_to_string(folder.path().join("egress.token")).unwrap();
        assert_eq!(token, third.token.digits());
    }

    #[tokio::test]
    async fn files_of_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("egress.sock");
        std::fs::write(&path, "a file").unwrap();
        assert!(matches!(Socket::bind(&path, None), Err(SocketError::NotOurs { .. })));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
        std::fs::remove_file(&path).unwrap();
        let _other_program = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(matches!(Socket::bind(&path, None), Err(SocketError::NotOurs { .. })));
        assert!(matches!(
            Socket::bind(&folder.path().join("no/folder/egress.sock"), None),
            Err(SocketError::System { .. })
        ));
    }
}
