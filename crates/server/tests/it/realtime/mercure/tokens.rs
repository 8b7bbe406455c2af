//! Tokens of each algorithm. `openssl` makes the keys and `PyJWT` signs, so that no code of ours is on both sides.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;

/// Signs the claims with the private key, with one of the same kind, with an algorithm that the hub does not expect,
/// with a key that the header carries, and not at all.
const SIGN: &str = r"
import json, sys, jwt
algorithm, other_algorithm, claims, private, foreign = sys.argv[1:]
claims, private, foreign = json.loads(claims), open(private).read(), open(foreign).read()
sign = lambda key, algorithm, **headers: jwt.encode(claims, key, algorithm=algorithm, headers=headers)
print(json.dumps({
    'right': sign(private, algorithm),
    'foreign key': sign(foreign, algorithm),
    'other algorithm': sign(private, other_algorithm),
    'key in the header': sign(foreign, algorithm, jwk={'kty': 'oct', 'k': 'AA'}, jku='https://example.com/keys'),
    'unsigned': sign('', 'none'),
}))";

/// An algorithm, the arguments by which `openssl genpkey` makes its key, and another algorithm that signs with that key.
const PUBLIC: [(&str, &[&str], &str); 9] = [
    ("ES256", &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"], "ES384"),
    ("ES384", &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"], "ES256"),
    ("EdDSA", &["-algorithm", "ED25519"], "EdDSA"),
    ("PS256", &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], "RS256"),
    ("PS384", &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], "PS256"),
    ("PS512", &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], "PS384"),
    ("RS256", &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], "PS256"),
    ("RS384", &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], "RS256"),
    ("RS512", &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], "RS384"),
];

fn openssl(arguments: &[&str]) {
    let output = Command::new("openssl").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes a key and returns the files of its private and its public part.
fn pair(folder: &Path, name: &str, kind: &[&str]) -> (PathBuf, PathBuf) {
    let file = |ending: &str| folder.join(format!("{name}.{ending}"));
    let (private, public) = (file("key"), file("pub"));
    let [of_private, of_public] = [&private, &public].map(|path| path.to_str().unwrap());
    openssl(&[&["genpkey", "-out", of_private], kind].concat());
    openssl(&["pkey", "-in", of_private, "-pubout", "-out", of_public]);
    (private, public)
}

/// The system's Python has `PyJWT`: `scripts/setup test` installs it.
fn signed(algorithm: &str, other: &str, private: &Path, foreign: &Path) -> HashMap<String, String> {
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", SIGN, algorithm, other, ALL]).arg(private).arg(foreign);
    let output = python.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the status for a publisher and for a subscriber with this token.
fn statuses(node: &Node, token: &str) -> [u16; 2] {
    let bearer = format!("Bearer {token}");
    let publisher = post(node.address, &[("Authorization", &bearer)], "topic=a").status;
    let query = format!("topic=a&authorization={token}");
    [publisher, Stream::open(node.address, &query).answer.status]
}

/// Replaces the header and the signature of a token.
fn forged(token: &str, header: &str, signature: &[u8]) -> String {
    let claims = token.split('.').nth(1).unwrap();
    format!("{}.{claims}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(signature))
}

#[test]
fn mercure_verifies_tokens_of_each_public_key_algorithm_and_no_confusion_passes() {
    for (algorithm, kind, other) in PUBLIC {
        let folder = tempfile::tempdir().unwrap();
        let (private, public) = pair(folder.path(), "own", kind);
        let (foreign, _) = pair(folder.path(), "foreign", kind);
        let path = public.display();
        let node = node(&format!(
            "[mercure]\nenabled = true\npublisher_algorithm = \"{algorithm}\"\npublisher_key_file = \"{path}\"\n\
             subscriber_algorithm = \"{algorithm}\"\nsubscriber_key_file = \"{path}\"\n"
        ));
        let mut tokens = signed(algorithm, other, &private, &foreign);
        let right = tokens.remove("right").unwrap();
        assert_eq!(statuses(&node, &right), [200, 200], "{algorithm}");
        if other == algorithm {
            // PyJWT has one algorithm for this kind of key.
            tokens.remove("other algorithm");
        }
        // The public key is known to all: as a secret it signs nothing.
        let pem = std::fs::read_to_string(&public).unwrap();
        let text: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        for secret in [&*pem, pem.trim(), &*text] {
            for header in ["HS256", algorithm] {
                let header = format!(r#"{{"alg":"{header}","typ":"JWT"}}"#);
                let name = format!("{header} with the public key {secret:?}");
                tokens.insert(name, token(&header, ALL, secret));
            }
        }
        for name in ["none", "None", "nOnE", ""] {
            let header = format!(r#"{{"alg":"{name}"}}"#);
            tokens.insert(format!("{header} unsigned"), forged(&right, &header, b""));
        }
        let header = format!(r#"{{"alg":"{algorithm}"}}"#);
        // ECDSA's r and s of zero verified everything in a Java release (CVE-2022-21449).
        for length in [0, 1, 64, 96, 256] {
            let name = format!("{length} zeros as the signature");
            tokens.insert(name, forged(&right, &header, &vec![0; length]));
        }
        let (signed, signature) = right.rsplit_once('.').unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        for (name, bytes) in [
            ("a cut signature", &signature[..signature.len() - 1]),
            ("a longer signature", &[&signature[..], &[0_u8]].concat()[..]),
        ] {
            tokens.insert(name.into(), format!("{signed}.{}", URL_SAFE_NO_PAD.encode(bytes)));
        }
        assert!(tokens.len() > 15, "{tokens:?}");
        for (name, token) in &tokens {
            assert_eq!(statuses(&node, token), [401, 401], "{algorithm}: {name}");
        }
    }
}

#[test]
fn mercure_verifies_tokens_of_each_shared_secret_algorithm() {
    let folder = tempfile::tempdir().unwrap();
    let (secret, foreign) = (folder.path().join("own.key"), folder.path().join("foreign.key"));
    std::fs::write(&secret, KEY.repeat(2)).unwrap();
    std::fs::write(&foreign, "another secret of the same kind, and long enough for SHA-512 ...")
        .unwrap();
    for (algorithm, other) in [("HS256", "HS384"), ("HS384", "HS512"), ("HS512", "HS256")] {
        let path = secret.display();
        let node = node(&format!(
            "[mercure]\nenabled = true\npublisher_algorithm = \"{algorithm}\"\npublisher_key_file = \"{path}\"\n\
             subscriber_algorithm = \"{algorithm}\"\nsubscriber_key_file = \"{path}\"\n"
        ));
        let mut tokens = signed(algorithm, other, &secret, &foreign);
        let right = tokens.remove("right").unwrap();
        assert_eq!(statuses(&node, &right), [200, 200], "{algorithm}");
        assert_eq!(tokens.len(), 4);
        for (name, token) in &tokens {
            assert_eq!(statuses(&node, token), [401, 401], "{algorithm}: {name}");
        }
    }
}
