"""What curlev's tests use of httpbun.com, on loopback: `python3 origin.py [CERTIFICATE]`, a PEM file with its key: over TLS. Prints its port."""

import base64
import contextlib
import gzip
import hashlib
import http.server
import json
import re
import ssl
import sys
import time
import urllib.parse

TEXT = b"some text, again and again. " * 100
NONCE = "0123456789abcdef"


def digest(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status: int, body: bytes | dict = b"", **fields: str):
        is_json = isinstance(body, dict)
        body = json.dumps(body).encode() if is_json else body
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json"} if is_json else {}).items() | fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def mirror(self, args: dict, body: bytes):
        """The request as JSON."""
        kind, form, files, document = self.headers.get("Content-Type", ""), {}, {}, None
        if kind.startswith("application/x-www-form-urlencoded"):
            form = dict(urllib.parse.parse_qsl(body.decode(), keep_blank_values=True))
        elif kind.startswith("multipart/form-data"):
            boundary = re.search(r"boundary=([^;]+)", kind)[1].encode()
            for part in body.split(b"--" + boundary)[1:-1]:
                head, _, content = part.strip(b"\r\n").partition(b"\r\n\r\n")
                name = re.search(rb'name="([^"]*)"', head)[1].decode()
                file = re.search(rb'filename="([^"]*)"', head)
                if file:
                    of_part = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
                    files[name] = {"filename": file[1].decode(), "content": content.decode(errors="replace"), "headers": of_part}
                else:
                    form[name] = content.decode(errors="replace")
        elif kind.startswith("application/json"):
            with contextlib.suppress(ValueError):
                document = json.loads(body)
        data = body.decode(errors="replace") if not form and not files else ""
        fields = {"-".join(word.capitalize() for word in name.split("-")): value for name, value in self.headers.items()}
        self.reply(200, {"method": self.command, "args": args, "form": form, "files": files, "data": data, "json": document, "headers": fields})

    def signed_by_digest(self, user: str, secret: str) -> bool:
        given = dict(re.findall(r'(\w+)="?([^",]*)"?', self.headers.get("Authorization", "")))
        whole = [digest(f"{user}:here:{secret}"), NONCE, given.get("nc", ""), given.get("cnonce", ""), "auth", digest(f"{self.command}:{given.get('uri', '')}")]
        return given.get("response") == digest(":".join(whole))

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        args = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        words = url.path.strip("/").split("/")
        authorization = self.headers.get("Authorization", "")
        if url.netloc:
            self.reply(308, Location=f"https://{url.netloc}{url.path}")
        elif words[0] in ("get", "post", "put", "patch", "delete", "headers", "any"):
            self.mirror(args, body)
        elif words[0] == "delay":
            time.sleep(float(words[1]))
            self.reply(200, b"OK")
        elif words[0] == "payload":
            self.reply(200, body, Content_Type=self.headers.get("Content-Type", "text/plain"))
        elif words[0] == "response-headers":
            self.reply(200, args, **args)
        elif words[0] == "status":
            self.reply(int(words[1]), **({"Location": "/any"} if words[1] == "302" else {}))
        elif words[0] in ("redirect", "redirect-to"):
            self.reply(302, Location=args.get("url", "/any"))
        elif words[0] == "cookies" and words[1:] == ["set"]:
            name, value = next(iter(args.items()))
            self.reply(302, Location="/cookies", Set_Cookie=f"{name}={value}; Path=/")
        elif words[0] == "cookies":
            pairs = [pair.strip().split("=", 1) for pair in self.headers.get("Cookie", "").split(";") if "=" in pair]
            self.reply(200, {"cookies": dict(pairs)})
        elif words[0] == "basic-auth":
            fine = authorization == "Basic " + base64.b64encode(":".join(words[1:]).encode()).decode()
            self.reply(200 if fine else 401, **({} if fine else {"WWW_Authenticate": 'Basic realm="here"'}))
        elif words[0] == "digest-auth":
            fine = self.signed_by_digest(*words[2:])
            self.reply(200 if fine else 401, **({} if fine else {"WWW_Authenticate": f'Digest realm="here", nonce="{NONCE}", qop="auth"'}))
        elif words[0] == "bearer":
            self.reply(200 if authorization == f"Bearer {words[1]}" else 401)
        elif words[0] == "text" and "gzip" in self.headers.get("Accept-Encoding", ""):
            self.reply(200, gzip.compress(TEXT), Content_Encoding="gzip")
        elif words[0] == "text":
            self.reply(200, TEXT)
        else:
            self.reply(404)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_GET


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
if len(sys.argv) > 1:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1])
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
