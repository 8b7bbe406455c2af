#!/usr/bin/env python3
"""Mail servers for the tests of libhearth, all on loopback: one of scripts, whose faults a test asks for, and Debian's exim4.

    mail.py serve FOLDER          says its ports as name=port, and runs until its stdin ends
    mail.py delivered FOLDER ID   reads the mail with this Message-ID that exim has delivered; says what is in it

FOLDER has server.pem and server.key. What the scripted server was told stands in FOLDER/told/NUMBER, the number being in its reply:
commands, an empty line, the message as it came. Exim runs as an ordinary user, one process for each connection as inetd starts it, with a
configuration of its own: no port, no file and no process of the machine's is touched.

What goes wrong is asked for by the sender's address, at-STAGE-WHAT@x.test: STAGE is mail, rcpt, data, body or end, WHAT one of WRONGS.
A recipient code-NNN@x.test is answered with that code; other faults have a port of their own (PORTS).
"""
import base64
import email
import email.policy
import hashlib
import hmac
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time

EXTENSIONS = ["PIPELINING", "SIZE 1000000", "8BITMIME", "SMTPUTF8", "DSN", "ENHANCEDSTATUSCODES"]
LOGINS = "AUTH PLAIN LOGIN CRAM-MD5 SCRAM-SHA-256 XOAUTH2 OAUTHBEARER"
WRONGS = {
    "421": b"421 4.3.2 going\r\n",
    "450": b"450 4.2.0 not now\r\n",
    "550": b"550 5.7.1 never\r\n",
    "garbage": b"HTTP/1.1 200 OK\r\n\r\n",
    "codes": b"250-a\r\n550 b\r\n",
    "half": b"250-only the first half\r\n",
    "long": b"250 " + b"x" * 100_000 + b"\r\n",
}
# The special behaviour of each port: its greeting, and the lines in its reply to EHLO.
PORTS = {
    "smtp": {},
    "smtps": {"tls": True},
    "silent": {"greeting": None},
    "no": {"greeting": b"554 5.3.2 no\r\n"},
    "drop": {"greeting": b""},
    "early": {"greeting": b"220 x\r\n250 what\r\n"},
    "http": {"greeting": b"HTTP/1.1 400 Bad Request\r\n\r\n"},
    "old": {"extensions": None},
    "bare": {"extensions": []},
    "plain": {"extensions": EXTENSIONS + ["AUTH PLAIN LOGIN XOAUTH2"]},
    "cram": {"extensions": ["AUTH CRAM-MD5 PLAIN"]},
    "small": {"extensions": ["SIZE 100"]},
    "lies": {"extensions": ["SIZE many", "AUTH", "", "STARTTLS", "STARTTLS", "X" * 900]},
    "injects": {"starttls": b"220 go\r\n250 injected\r\n"},
    "refuses": {"starttls": b"454 4.7.0 not now\r\n"},
    "mute": {"starttls": b"220 go\r\n", "then": "silent"},
    "babbles": {"starttls": b"220 go\r\n", "then": "babble"},
    "fickle": {"mails": 1},
    "stubborn": {"extensions": ["PIPELINING"], "rset": "502 5.5.1 what?"},
}
numbers = iter(range(1, 1_000_000))
count = threading.Lock()


class Gone(Exception):
    pass


class Talk:
    """One connection of the scripted server."""

    def __init__(self, client, how, folder):
        self.client, self.how, self.folder = client, how, folder
        self.ahead = b""
        self.secure = bool(how.get("tls"))
        self.heard = []
        self.who = ""
        self.mails = 0

    def say(self, text):
        self.client.sendall(text if isinstance(text, bytes) else text.encode() + b"\r\n")

    def fill(self):
        got = self.client.recv(65536)
        if not got:
            raise Gone
        self.ahead += got

    def line(self):
        while b"\n" not in self.ahead:
            self.fill()
        line, self.ahead = self.ahead.split(b"\n", 1)
        return line.rstrip(b"\r").decode("utf-8", "replace")

    def stay(self):
        while True:
            self.fill()
            self.ahead = b""

    def wrong(self, stage):
        """Does what the sender's address asks for at this stage. False: nothing."""
        words = self.sender.split("@")[0].split("-")
        if len(words) != 3 or words[:2] != ["at", stage]:
            return False
        if words[2] == "silent":
            self.stay()
        if words[2] == "drop":
            raise Gone
        if words[2] == "once":  # 450 for the first mail to this address
            with count:
                first = self.sender + self.name not in seen
                seen.add(self.sender + self.name)
            if not first:
                return False
            self.say(WRONGS["450"])
            return True
        self.say(WRONGS[words[2]])
        if words[2] == "421":
            raise Gone
        if words[2] == "half":
            self.stay()
        return True

    def hello(self, word):
        extensions = self.how.get("extensions", EXTENSIONS + [LOGINS])
        if extensions is None and word == "EHLO":
            self.say("502 5.5.1 what?")
            return
        lines = ["x.test at your service"] + list(extensions or [])
        if "extensions" not in self.how and not self.secure:
            lines.append("STARTTLS")
        for at, line in enumerate(lines):
            self.say("250%s%s" % ("-" if at + 1 < len(lines) else " ", line))

    def start_tls(self):
        self.say(self.how.get("starttls", b"220 go\r\n"))
        if self.how.get("starttls", b"220").startswith(b"4"):
            return
        then = self.how.get("then")
        if then == "silent":
            self.stay()
        if then == "babble":
            # After the client's first bytes: together with the reply before it this would be an injected line.
            self.fill()
            self.say("250 this is no TLS")
            self.stay()
        self.client = tls(self.folder).wrap_socket(self.client, server_side=True)
        self.ahead = b""
        self.secure = True

    def ask(self, challenge=b""):
        self.say("334 " + base64.b64encode(challenge).decode())
        return base64.b64decode(self.line())

    def log_in(self, mechanism, initial):
        first = base64.b64decode(initial[0]) if initial else None
        good = False
        if mechanism == "PLAIN":
            good = (first if first is not None else self.ask()) == b"\0joe\0secret"
        elif mechanism == "LOGIN":
            good = self.ask(b"Username:") == b"joe" and self.ask(b"Password:") == b"secret"
        elif mechanism == "CRAM-MD5":
            challenge = b"<1.2@x.test>"
            wanted = hmac.new(b"secret", challenge, hashlib.md5).hexdigest().encode()
            good = self.ask(challenge) == b"joe " + wanted
        elif mechanism == "SCRAM-SHA-256":
            good = self.scram(first)
        elif mechanism in ("XOAUTH2", "OAUTHBEARER"):
            good = (first if first is not None else self.ask()).endswith(b"\1auth=Bearer token\1\1")
            if not good:
                self.ask(b'{"status":"401"}')
        self.who = mechanism if good else ""
        self.say("235 2.7.0 in" if good else "535 5.7.8 who are you?")

    def scram(self, first):
        bare = first.decode().split(",", 2)[2]
        nonce = bare.split("r=")[1] + "server"
        salt, rounds = b"salt", 4096
        challenge = "r=%s,s=%s,i=%d" % (nonce, base64.b64encode(salt).decode(), rounds)
        final = self.ask(challenge.encode()).decode()
        salted = hashlib.pbkdf2_hmac("sha256", b"secret", salt, rounds)
        sign = lambda key, text: hmac.new(key, text, hashlib.sha256).digest()
        client = sign(salted, b"Client Key")
        whole = ",".join([bare, challenge, final.split(",p=")[0]]).encode()
        proof = bytes(a ^ b for a, b in zip(client, sign(hashlib.sha256(client).digest(), whole)))
        if base64.b64decode(final.split(",p=")[1]) != proof:
            return False
        self.ask(b"v=" + base64.b64encode(sign(sign(salted, b"Server Key"), whole)))
        return True

    def body(self):
        if self.wrong("body"):
            raise Gone
        while not (self.ahead.startswith(b".\r\n") or b"\r\n.\r\n" in self.ahead):
            self.fill()
        if self.ahead.startswith(b".\r\n"):
            self.ahead = b"\r\n" + self.ahead
        message, self.ahead = self.ahead.split(b"\r\n.\r\n", 1)
        message = (b"\r\n" + message).replace(b"\r\n..", b"\r\n.")[2:] + b"\r\n"
        if self.wrong("end"):
            return
        number = next(numbers)
        told = self.folder / "told"
        facts = "%s %s" % ("TLS" if self.secure else "plain", self.who or "-")
        part = told / ("%d.part" % number)
        part.write_bytes("\n".join([facts] + self.heard).encode() + b"\n\n" + message)
        part.rename(told / str(number))
        self.mails += 1
        self.say("250 2.0.0 taken as %d" % number)

    def run(self):
        greeting = self.how.get("greeting", b"220 x.test ESMTP\r\n")
        if greeting is None:
            self.stay()
        if not greeting:
            return
        self.say(greeting)
        self.sender, self.name = "", ""
        while True:
            line = self.line()
            self.heard.append(line)
            word = line.split(" ")[0].upper()
            if self.mails and self.mails == self.how.get("mails"):
                self.say("421 4.4.2 enough")
                return
            if word in ("EHLO", "HELO"):
                self.name = line.split(" ", 1)[1]
                self.hello(word)
            elif word == "STARTTLS":
                self.start_tls()
            elif word == "AUTH":
                words = line.split(" ")
                self.log_in(words[1], words[2:])
            elif word == "RSET":
                self.heard = [line]
                self.say(self.how.get("rset", "250 2.0.0 forgotten"))
            elif word == "MAIL":
                self.sender = line.split("<")[1].split(">")[0]
                self.wrong("mail") or self.say("250 2.1.0 fine")
            elif word == "RCPT":
                local = line.split("<")[1].split("@")[0]
                if local.startswith("code-"):
                    code = local.split("-")[1]
                    self.say("%s %s.1.1 about %s" % (code, code[0], local))
                elif not self.wrong("rcpt"):
                    self.say("250 2.1.5 fine")
            elif word == "DATA":
                if not self.wrong("data"):
                    self.say("354 go on")
                    self.body()
            elif word == "QUIT":
                self.say("221 2.0.0 bye")
                return
            else:
                self.say("500 5.5.2 what?")


seen = set()


def tls(folder):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    return context


def talk(client, how, folder):
    try:
        if how.get("tls"):
            client = tls(folder).wrap_socket(client, server_side=True)
        one = Talk(client, how, folder)
        try:
            one.run()
        finally:
            one.client.close()
    except (Gone, OSError, IndexError, ValueError):
        pass


def listen(serve):
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)

    def accept():
        while True:
            client, _ = listening.accept()
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listening.getsockname()[1]


EXIM = """
spool_directory = {home}/spool
log_file_path = {home}/log/%slog
exim_user = {user}
exim_group = {group}
primary_hostname = mail.test
tls_advertise_hosts = *
tls_certificate = {home}/server.pem
tls_privatekey = {home}/server.key
rfc1413_query_timeout = 0s
smtputf8_advertise_hosts = *
dsn_advertise_hosts = *
message_size_limit = 5M
deliver_drop_privilege = true
keep_environment =
acl_smtp_rcpt = rcpt
begin acl
rcpt:
  deny local_parts = unknown
       message = 5.1.1 no such user
  defer local_parts = later
       message = 4.2.1 not now
  accept
begin routers
here:
  driver = accept
  transport = file
begin transports
file:
  driver = appendfile
  directory = {home}/inbox
  maildir_format
  user = {user}
  group = {group}
  envelope_to_add
  return_path_add
begin retry
* * F,1h,1h
begin authenticators
plain:
  driver = plaintext
  public_name = PLAIN
  server_prompts = :
  server_condition = ${{if and{{{{eq{{$auth2}}{{joe}}}}{{eq{{$auth3}}{{secret}}}}}}}}
  server_set_id = $auth2
  server_advertise_condition = ${{if def:tls_in_cipher}}
login:
  driver = plaintext
  public_name = LOGIN
  server_prompts = Username:: : Password::
  server_condition = ${{if and{{{{eq{{$auth1}}{{joe}}}}{{eq{{$auth2}}{{secret}}}}}}}}
  server_set_id = $auth1
  server_advertise_condition = ${{if def:tls_in_cipher}}
cram:
  driver = cram_md5
  public_name = CRAM-MD5
  server_secret = ${{if eq{{$auth1}}{{joe}}{{secret}}fail}}
  server_set_id = $auth1
"""


def exim(folder):
    """A function that serves one connection by exim; nothing where it is not installed."""
    program = shutil.which("exim4", path="/usr/sbin:/usr/bin:/sbin:/bin")
    if not program:
        return None
    home = folder / "exim"
    for part in ("spool", "log", "inbox"):
        (home / part).mkdir(parents=True)
    for part in ("server.pem", "server.key"):
        shutil.copy(folder / part, home / part)
    # Started by root, exim would change to a user of the machine. So it runs as an unprivileged user.
    user, group = (65534, 65534) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    (home / "conf").write_text(EXIM.format(home=home, user=user, group=group))
    drop = {}
    if os.geteuid() == 0:
        folder.chmod(0o711)
        for path in [home, *home.rglob("*")]:
            os.chown(path, user, group)
        drop = {"user": user, "group": group, "extra_groups": []}

    def serve(client):
        # -odi: the process delivers before it continues. User 65534 can read only its own files in the tests'
        # folder.
        command = [program, "-C", str(home / "conf"), "-bs", "-odi"]
        subprocess.run(command, stdin=client, stdout=client, stderr=subprocess.DEVNULL, cwd="/", check=False, **drop)
        client.close()

    return serve


def serve(folder):
    (folder / "told").mkdir()
    ports = []
    for name, how in PORTS.items():
        ports.append((name, listen(lambda client, how=how: talk(client, how, folder))))
    real = exim(folder)
    if real:
        ports.append(("exim", listen(real)))
    print(" ".join("mail_%s=%d" % pair for pair in ports), flush=True)
    sys.stdin.read()


def delivered(folder, wanted):
    """Waits for the mail: exim answers before it delivers."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for path in (folder / "exim" / "inbox" / "new").glob("*"):
            mail = email.message_from_bytes(path.read_bytes(), policy=email.policy.SMTP)
            if mail["Message-ID"] == wanted:
                return mail
        time.sleep(0.02)
    sys.exit("no mail %s was delivered" % wanted)


def shown(mail, depth=0):
    """Structure and content of a mail, in lines."""
    yield "  " * depth + " ".join(
        str(word)
        for word in (
            mail.get_content_type(),
            mail.get_content_disposition() or "",
            mail.get_filename() or "",
            mail["Content-ID"] or "",
        )
        if word
    )
    if mail.is_multipart():
        for part in mail.iter_parts():
            yield from shown(part, depth + 1)
    else:
        payload = mail.get_payload(decode=True)
        text = payload if len(payload) < 200 else hashlib.sha256(payload).hexdigest().encode()
        yield "  " * depth + json.dumps(text.decode("utf-8", "backslashreplace"))


def main():
    folder = pathlib.Path(sys.argv[2])
    if sys.argv[1] == "serve":
        serve(folder)
    else:
        mail = delivered(folder, sys.argv[3])
        for name in ("Return-path", "Envelope-to", "From", "Reply-To", "To", "Cc", "Bcc", "Subject", "X-Test"):
            if mail[name] is not None:
                print("%s: %s" % (name, mail[name]))
        print("defects: %d" % sum(len(part.defects) for part in mail.walk()))
        print("\n".join(shown(mail)))


main()
