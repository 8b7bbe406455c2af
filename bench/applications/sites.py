"""Applications of Debian's packages, installed for one run: MediaWiki on SQLite, WordPress and phpMyAdmin on a MariaDB of the bench's own, DokuWiki on files.

No file of an application is changed. What a package reads from /etc is given by other means: a copy of WordPress with its own wp-config.php,
constants of an `auto_prepend_file` for DokuWiki, `mysqli.default_socket` for phpMyAdmin.
"""

import http.cookiejar
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

PASSWORD = "a password"
HOST = "localhost"
SHARE = Path("/usr/share")
TEXT = "\n\n".join(f"== Chapter {n} ==\n\n" + "Some words of a [[page]] with '''weight''', and [[another page]]. " * 6 for n in range(12))


class Absent(RuntimeError):
    """This package is not installed."""


class Visitor:
    """A browser with cookies at one server. The Host field is the one that the sites were installed for."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.jar = http.cookiejar.CookieJar(http.cookiejar.DefaultCookiePolicy(strict_domain=False))
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.jar), _NoRedirect)

    def ask(self, path: str, form: dict[str, str] | None = None) -> str:
        data = urllib.parse.urlencode(form).encode() if form is not None else None
        with self.opener.open(urllib.request.Request(self.base + path, data, {"Host": HOST}), timeout=60) as answer:
            return answer.read().decode(errors="replace")

    def cookies(self) -> str:
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in self.jar)


class _NoRedirect(urllib.request.HTTPErrorProcessor):
    def http_response(self, _request, response):  # noqa: ANN001, ANN202
        return response


@dataclass(frozen=True)
class Page:
    """A row of the table. `log_in` makes the cookies; `expected` is in the page."""

    name: str
    path: str
    expected: str
    log_in: Callable[[Visitor], None] | None = None


@dataclass
class Site:
    """An installed application: `root` is what php-fpm and Hearth serve."""

    name: str
    root: Path
    pages: list[Page]
    env: dict[str, str] = field(default_factory=dict)
    ini: dict[str, str] = field(default_factory=dict)


def hidden(page: str, *names: str) -> dict[str, str]:
    """The values of a form's fields."""
    found = {}
    for tag in re.findall(r"<input[^>]*>", page):
        name, value = re.search(r'name="([^"]*)"', tag), re.search(r'value="([^"]*)"', tag)
        if name and value and name[1] in names:
            found[name[1]] = value[1].replace("&#43;", "+").replace("&#039;", "'").replace("&amp;", "&")
    return found


def _package(name: str) -> Path:
    if not (SHARE / name).is_dir():
        raise Absent(f"apt-get install {name}")
    return SHARE / name


def _php(*arguments: str, env: dict[str, str] | None = None, text: str | None = None) -> None:
    done = subprocess.run(["php", *arguments], capture_output=True, text=True, input=text, env=os.environ | (env or {}), check=False)
    if done.returncode:
        raise RuntimeError(f"php {' '.join(arguments)}: {(done.stdout + done.stderr)[-1500:]}")


def mediawiki(folder: Path, _socket: str) -> Site:
    package, root = _package("mediawiki"), folder / "public"
    root.mkdir(parents=True)
    for entry in package.iterdir():
        if entry.name not in ("LocalSettings.php", "images", "config"):
            (root / entry.name).symlink_to(entry)
    env = {"MW_INSTALL_PATH": str(root)}
    _php(str(root / "maintenance/install.php"), "--dbtype", "sqlite", "--dbname", "wiki", "--server", "http://localhost", "--scriptpath", "",
         "--dbpath", str(folder / "data"), "--confpath", str(root), "--skins", "Vector", "--pass", "anna's password", "Wiki", "Anna", env=env)
    _php(str(root / "maintenance/edit.php"), "--user", "Anna", "Main_Page", env=env, text=TEXT)
    return Site("MediaWiki", root, [Page("page", "/index.php?title=Main_Page", "Chapter 7")], env)


INSTALL = """<?php define('WP_INSTALLING', true); $_SERVER['HTTP_HOST'] = 'localhost'; $_SERVER['REQUEST_URI'] = '/';
require $argv[1] . '/wp-load.php'; require ABSPATH . 'wp-admin/includes/upgrade.php';
wp_install('Site', 'anna', 'anna@example.org', true, '', 'anna password', 'en_US');
update_option('siteurl', 'http://localhost'); update_option('home', 'http://localhost');
wp_insert_post(['post_title' => 'A post', 'post_status' => 'publish', 'post_author' => 1, 'post_content' => str_repeat("<!-- wp:paragraph --><p>Some words.</p><!-- /wp:paragraph -->\n", 40)]);
"""


def wordpress(folder: Path, socket: str) -> Site:
    folder.mkdir(parents=True)
    root = folder / "public"
    subprocess.run(["cp", "-a", str(_package("wordpress")), str(root)], check=True)
    themes = root / "wp-content/themes"
    found = sorted(Path("/var/lib/wordpress/wp-content/themes").glob("twenty*")) or sorted((SHARE / "wordpress/wp-content/themes").glob("twenty*"))
    if not found:
        raise Absent("apt-get install wordpress-theme-twentytwentythree")
    for theme in found:
        if not (themes / theme.name).exists():
            (themes / theme.name).symlink_to(theme.resolve())
    (root / "wp-config.php").write_text(
        "<?php\n" + "".join(f"define('{name}', '{value}');\n" for name, value in {
            "DB_NAME": "shop", "DB_USER": "visitor", "DB_PASSWORD": PASSWORD, "DB_HOST": f"localhost:{socket}", "DB_CHARSET": "utf8mb4",
            "AUTH_KEY": "a", "SECURE_AUTH_KEY": "b", "LOGGED_IN_KEY": "c", "NONCE_KEY": "d", "AUTH_SALT": "e", "SECURE_AUTH_SALT": "f",
            "LOGGED_IN_SALT": "g", "NONCE_SALT": "h"}.items())
        # No request may be one that runs tasks, or asks for updates.
        + "define('DISABLE_WP_CRON', true);\ndefine('WP_HTTP_BLOCK_EXTERNAL', true);\ndefine('AUTOMATIC_UPDATER_DISABLED', true);\n"
        "$table_prefix = 'wp_';\nif (!defined('ABSPATH')) { define('ABSPATH', __DIR__ . '/'); }\nrequire_once ABSPATH . 'wp-settings.php';\n")
    (folder / "install.php").write_text(INSTALL)
    _php(str(folder / "install.php"), str(root))

    def log_in(visitor: Visitor) -> None:
        visitor.ask("/wp-login.php")
        visitor.ask("/wp-login.php", {"log": "anna", "pwd": "anna password", "testcookie": "1", "wp-submit": "Log In"})

    return Site("WordPress", root, [
        Page("front page", "/", "A post"),
        Page("login", "/wp-login.php", "user_pass"),
        Page("admin", "/wp-admin/edit.php", "A post", log_in),
    ])


def phpmyadmin(_folder: Path, socket: str) -> Site:
    def log_in(visitor: Visitor) -> None:
        page = visitor.ask("/index.php")
        form = hidden(page, "token", "set_session", "route", "server")
        visitor.ask("/index.php?route=/", form | {"pma_username": "visitor", "pma_password": PASSWORD})

    return Site("phpMyAdmin", _package("phpmyadmin"), [
        Page("login", "/index.php", "pma_username"),
        Page("database", "/index.php?route=/database/structure&db=shop", "things", log_in),
    ], ini={"mysqli.default_socket": socket})


def dokuwiki(folder: Path, _socket: str) -> Site:
    folder.mkdir(parents=True)
    root, conf, data = _package("dokuwiki"), folder / "conf", folder / "data"
    shutil.copytree("/etc/dokuwiki", conf, symlinks=False, ignore=shutil.ignore_patterns("apache*", "*.htaccess", ".htaccess"))
    subprocess.run(["cp", "-a", "/var/lib/dokuwiki/data", str(data)], check=True)
    (conf / "local.php").write_text(f"<?php\n$conf['title'] = 'Wiki';\n$conf['savedir'] = '{data}';\n$conf['superuser'] = '@admin';\n$conf['useacl'] = 1;\n")
    (conf / "acl.auth.php").write_text("* @ALL 1\n* @user 8\n")
    (data / "pages/start.txt").write_text(TEXT.replace("== ", "===== ").replace(" ==", " =====").replace("'''", "**"))
    (folder / "prepend.php").write_text(f"<?php define('DOKU_MAIN_CONF', '{conf}/'); define('DOKU_CONF', '{conf}/');\n")
    return Site("DokuWiki", root, [Page("page", "/doku.php?id=start", "Chapter 7")], ini={"auto_prepend_file": str(folder / "prepend.php")})


SITES = {"mediawiki": mediawiki, "wordpress": wordpress, "phpmyadmin": phpmyadmin, "dokuwiki": dokuwiki}
