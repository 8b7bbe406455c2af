//! Roundcube of Debian's package, unchanged, with Dovecot's mailboxes: it runs as `request` and answers as under php-fpm.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use rustix::process::getuid;
use testkit::{PhpFpm, Running, eventually};

use super::browser::Browser;
use super::recipes::{Visitors, form, is_installed};
use crate::hearth::{Hearth, LIMIT, Serve, Site, php_fpm, php_version};

const ROUNDCUBE: &str = "/var/lib/roundcube";

/// An IMAP server with three letters for anna, which have been read: the first visitor changes nothing for the next one.
struct Dovecot {
    port: u16,
    _server: Running,
}

impl Dovecot {
    fn start(site: &Site) -> Self {
        let folder = site.path().display();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        // It refuses mailboxes that belong to root.
        let root = getuid().is_root();
        let (owner, own) = if root {
            ("mail".to_owned(), "mail".to_owned())
        } else {
            (own_name("-un"), own_name("-gn"))
        };
        let users = if root {
            String::new()
        } else {
            format!(
                "default_internal_user = {owner}\ndefault_internal_group = {own}\ndefault_login_user = {owner}\n"
            )
        };
        site.write(
            "dovecot.conf",
            &format!(
                "base_dir = {folder}/run\nlog_path = /dev/stderr\nprotocols = imap\nlisten = 127.0.0.1\nssl = no\n\
                 disable_plaintext_auth = no\nmail_location = maildir:~\nfirst_valid_uid = 1\nfirst_valid_gid = 1\n{users}\
                 service imap-login {{\n chroot =\n inet_listener imap {{\n port = {port}\n }}\n inet_listener imaps {{\n port = 0\n }}\n}}\n\
                 service anvil {{\n chroot =\n}}\n\
                 passdb {{\n driver = static\n args = password=password\n}}\n\
                 userdb {{\n driver = static\n args = uid={owner} gid={own} home={folder}/mail/%u\n}}\n"
            ),
        );
        for number in 1..=3 {
            site.write(
                &format!("mail/anna/cur/170000000{number}.M{number}.host:2,S"),
                &format!(
                    "From: Bob <bob@example.org>\nTo: anna@example.org\nSubject: Letter {number}\nDate: Tue, 14 Nov 2023 22:1{number}:20 +0000\n\
                     Message-ID: <{number}@example.org>\n\nHello {number}\n"
                ),
            );
        }
        let mail = site.path().join("mail");
        if root {
            let mut give = Command::new("chown");
            assert!(give.args(["-R", "mail:mail"]).arg(&mail).status().unwrap().success());
            // The folder above is open to its owner only.
            let mut pass = Command::new("chmod");
            assert!(pass.arg("a+x").arg(site.path()).status().unwrap().success());
        }
        let mut command = Command::new("/usr/sbin/dovecot");
        command.args(["-F", "-c"]).arg(site.path().join("dovecot.conf"));
        let server = Running::start(&mut command);
        eventually("Dovecot listens", LIMIT, || TcpStream::connect(("127.0.0.1", port)).is_ok());
        // The first session that opens a mailbox is told that its letters are new.
        let mut first = TcpStream::connect(("127.0.0.1", port)).unwrap();
        first.set_read_timeout(Some(LIMIT)).unwrap();
        first.write_all(b"a LOGIN anna password\r\nb SELECT INBOX\r\nc LOGOUT\r\n").unwrap();
        let mut told = String::new();
        first.read_to_string(&mut told).unwrap();
        assert!(told.contains("* 3 EXISTS") && told.contains("c OK"), "{told}");
        Self { port, _server: server }
    }
}

/// The name of this process's user or group.
fn own_name(which: &str) -> String {
    let output = Command::new("id").arg(which).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Writes a configuration and tables; the package's files stay where they are.
fn configure(site: &Site, dovecot: &Dovecot) {
    let folder = site.path().display().to_string();
    for name in ["defaults.inc.php", "mimetypes.php"] {
        let to = site.path().join(name);
        std::os::unix::fs::symlink(Path::new("/etc/roundcube").join(name), to).unwrap();
    }
    for name in ["temp", "logs"] {
        std::fs::create_dir(site.path().join(name)).unwrap();
    }
    let port = dovecot.port;
    site.write(
        "config.inc.php",
        &format!(
            "<?php $config['db_dsnw'] = 'sqlite:///{folder}/tables.sqlite'; $config['imap_host'] = '127.0.0.1:{port}'; $config['plugins'] = [];\n\
             $config['des_key'] = 'twenty-four characters!!'; $config['temp_dir'] = '{folder}/temp'; $config['log_dir'] = '{folder}/logs';"
        ),
    );
    site.write("prepend.php", &format!("<?php define('RCMAIL_CONFIG_DIR', '{folder}');"));
    let create = format!(
        "(new PDO('sqlite:{folder}/tables.sqlite'))->exec(file_get_contents('/usr/share/roundcube/SQL/sqlite.initial.sql'));"
    );
    let made = Command::new(format!("php{}", php_version())).args(["-r", &create]).status();
    assert!(made.unwrap().success());
}

#[test]
fn roundcube_runs_as_request_and_answers_as_under_php_fpm() {
    if !is_installed(ROUNDCUBE) {
        return;
    }
    let site = Site::empty();
    let dovecot = Dovecot::start(&site);
    configure(&site, &dovecot);
    let prepend = site.path().join("prepend.php").display().to_string();
    let ini = [("auto_prepend_file", &*prepend)];
    let peer = php_fpm(Path::new(ROUNDCUBE), &ini);
    let hearth = Serve::new(ROUNDCUBE).workers(1).ini(ini[0].0, ini[0].1).start();
    assert_eq!(hearth.status()["model"], "request", "it is known");
    visit_mail(&hearth, &peer);
}

/// Reads letters, before and after the log-in.
fn visit_mail(hearth: &Hearth, peer: &PhpFpm) {
    let [mut stranger, mut visitor] = [(); 2].map(|()| Visitors::of(hearth, peer));
    for target in ["/", "/index.php", "/?_task=mail", "/index.php/mail/list", "/?_task=not_there"] {
        stranger.get(target);
    }
    let log_in = |password: &'static str| {
        move |page: &str| {
            let token = Browser::field(page, "_token");
            form([
                ("_token", &token),
                ("_task", "login"),
                ("_action", "login"),
                ("_timezone", "UTC"),
                ("_url", ""),
                ("_user", "anna"),
                ("_pass", password),
            ])
        }
    };
    let mut pages = visitor.get("/");
    visitor.ask("/?_task=login", &log_in("not the password"), &mut pages);
    visitor.ask("/?_task=login", &log_in("password"), &mut pages);
    for _ in 0..2 {
        for (target, part) in [
            ("/?_task=mail&_mbox=INBOX", "Inbox"),
            ("/?_task=mail&_action=list&_mbox=INBOX&_remote=1", "Letter 2"),
            ("/?_task=mail&_action=show&_mbox=INBOX&_uid=1", "Hello 1"),
            ("/?_task=mail&_action=viewsource&_mbox=INBOX&_uid=2", "Hello 2"),
            ("/?_task=settings&_action=folders", "Folders"),
            ("/?_task=addressbook", "Contacts"),
        ] {
            let [page, ..] = visitor.get(target);
            assert!(page.contains(part), "{target}: {page}");
            stranger.get("/");
        }
    }
    assert_eq!(visitor.compared + stranger.compared, 5 + 3 + 2 * 6 * 2);
}
