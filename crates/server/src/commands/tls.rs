//! `hearth tls trust`: how to trust this machine's own certificate authority in browsers and systems.

use std::path::Path;

use certificates::LocalAuthority;

use crate::config::{self, Environment};
use crate::failure::Failure;
use crate::subsystems::tls::{local_folder, no_local};

/// `hearth tls trust`: how to trust this machine's own authority, which is made if it is not there. Nothing else is changed.
pub(crate) fn trust(config: Option<&Path>, environment: &Environment) -> Result<String, Failure> {
    let settings = config::load(&environment.current_dir, config, Vec::new(), environment)?;
    let folder = local_folder(&settings, environment)?;
    let made = if LocalAuthority::certificate_in(&folder).exists() {
        ""
    } else {
        "It has been made just now: there was none where this user's servers look for it.\n"
    };
    let authority = LocalAuthority::open(&folder).map_err(|error| no_local(&error))?;
    let path = authority.certificate().display().to_string();
    let quoted = format!("'{}'", path.replace('\'', "'\\''"));
    Ok(format!(
        "Hearth's local authority is {path}\n{made}\
         It vouches for names below localhost, test, internal, local and home.arpa, and for loopback and private addresses, and for\n\
         nothing else. Its key is in the same folder, for you alone. Nothing believes it by that. To have it believed:\n\n\
         Debian, Ubuntu    sudo cp {quoted} /usr/local/share/ca-certificates/hearth-local-ca.crt && sudo update-ca-certificates\n\
         Fedora, RHEL      sudo trust anchor {quoted}\n\
         Chrome, Chromium  certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n hearth-local-ca -i {quoted}\n\
         Firefox           Settings, Privacy & Security, View Certificates, Authorities, Import\n\
         curl              curl --cacert {quoted} https://localhost:8443/\n\
         Node.js           NODE_EXTRA_CA_CERTS={quoted}\n\n\
         certutil is in the package libnss3-tools. To take it back: remove hearth-local-ca.crt and run `sudo update-ca-certificates --fresh`,\n\
         or `certutil -d sql:$HOME/.pki/nssdb -D -n hearth-local-ca`.\n"
    ))
}
