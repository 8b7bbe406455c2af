#!/bin/sh
# Installs Hearth, or removes it:
#
#   sh install.sh                 into /usr/local as root, else into ~/.local
#   sh install.sh --uninstall     removes what it has installed
#
#   HEARTH_URL=URL       the folder with the tarball and its .sha256; by default the project's releases
#   HEARTH_VERSION=X     another version than this script's
#   PREFIX=FOLDER        where bin/hearth and lib/hearth come to be
#
# Promises: POSIX sh, and one of curl and wget. The tarball's SHA-256 is checked before anything is unpacked. If a step fails, one line says why, and what
# was installed before stays as it was. An upgrade keeps the previous version for a server that runs it; `hearth upgrade` then changes to the new one.
# Each function is read as a whole before the last line runs: a script that arrived in part does nothing.
set -eu

version=${HEARTH_VERSION:-0.1.0}
url=${HEARTH_URL:-https://github.com/hearth-php/hearth/releases/download/v$version}
download=''
unpacked=''
made=''

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

clean_up() {
    [ -z "$download" ] || rm -rf "$download"
    [ -z "$unpacked" ] || rm -rf "$unpacked"
    # Folders that were made for this, if nothing came into them.
    for folder in $made; do rmdir "$folder" 2>/dev/null || true; done
}

find_places() {
    if [ -n "${PREFIX:-}" ]; then
        prefix=$PREFIX
    elif [ "$(id -u)" = 0 ]; then
        prefix=/usr/local
    else
        [ -n "${HOME:-}" ] || fail "HOME is not set, and this is not root: set PREFIX to the folder to install into"
        prefix=$HOME/.local
    fi
    case $prefix in
        /*) ;;
        *) fail "PREFIX is not an absolute path: $prefix" ;;
    esac
    library=$prefix/lib/hearth
    link=$prefix/bin/hearth
}

find_platform() {
    system=$(uname -s) machine=$(uname -m)
    case $system/$machine in
        Linux/x86_64 | Linux/amd64) name=hearth-$version-linux-x86_64 ;;
        *) fail "there is no Hearth for $system on $machine, only for Linux on x86_64; docs/guide/install.md says how to build it for ARM64" ;;
    esac
}

# fetch FILE: from the URL into the download folder.
fetch() {
    status=0
    if command -v curl >/dev/null 2>&1; then
        curl -fsSL --retry 2 --connect-timeout 30 -o "$download/$1" "$url/$1" 2>"$download/reason" || status=$?
        [ "$status" != 18 ] || fail "the download of $url/$1 was cut short: nothing was installed; try again"
    elif command -v wget >/dev/null 2>&1; then
        wget -q -t 1 -T 60 -O "$download/$1" "$url/$1" 2>"$download/reason" || status=$?
    else
        fail "neither curl nor wget is installed"
    fi
    [ "$status" = 0 ] || fail "cannot download $url/$1: $(tail -n 1 "$download/reason" | grep . || echo "exit status $status of the download")"
}

sha256_of() {
    if command -v sha256sum >/dev/null 2>&1; then
        sha256sum "$1"
    elif command -v shasum >/dev/null 2>&1; then
        shasum -a 256 "$1"
    else
        openssl dgst -sha256 -r "$1"
    fi | cut -d ' ' -f 1
}

# folder PATH: makes it with those above it, and notes which were missing.
folder() {
    [ ! -d "$1" ] || return 0
    folder "$(dirname "$1")"
    mkdir "$1" 2>/dev/null || fail "cannot make the folder $1: run this as root, or set PREFIX"
    made="$1 $made"
}

install() {
    find_platform
    for program in tar gzip; do
        command -v "$program" >/dev/null 2>&1 || fail "$program is not installed, which unpacks Hearth"
    done
    download=$(mktemp -d) || fail "cannot make a temporary folder in ${TMPDIR:-/tmp}"
    fetch "$name.tar.gz.sha256"
    wanted=$(cut -d ' ' -f 1 "$download/$name.tar.gz.sha256")
    expr "$wanted" : '[0-9a-f]\{64\}$' >/dev/null || fail "$url/$name.tar.gz.sha256 has no SHA-256 in it: nothing was installed"
    fetch "$name.tar.gz"
    found=$(sha256_of "$download/$name.tar.gz")
    [ "$found" = "$wanted" ] || fail "$url/$name.tar.gz has the SHA-256 $found in place of $wanted: nothing was installed"

    folder "$library"
    folder "$prefix/bin"
    if [ -e "$link" ] && [ ! -L "$link" ]; then fail "$link is there, and is not of this script: nothing was installed"; fi
    unpacked=$(mktemp -d "$library/new.XXXXXX" 2>/dev/null) || fail "cannot write to $library: run this as root, or set PREFIX"
    tar -xzf "$download/$name.tar.gz" -C "$unpacked" 2>"$download/reason" || fail "cannot unpack into $library: $(tail -n 1 "$download/reason")"
    "$unpacked/$name/bin/hearth" --version >"$download/said" 2>&1 || fail "the new program does not run here: $(tail -n 1 "$download/said")"

    previous=$(readlink "$library/current" 2>/dev/null || true)
    rm -rf "$library/$version.old"
    [ ! -e "$library/$version" ] || mv "$library/$version" "$library/$version.old"
    mv "$unpacked/$name" "$library/$version"
    ln -sfn "$version" "$library/current"
    ln -sfn "$library/current/bin/hearth" "$link"
    # Of the older ones, a running server may need only the last.
    for each in "$library"/*; do
        case ${each##*/} in
            "$version" | current | "$previous" | new.*) ;;
            *) rm -rf "$each" ;;
        esac
    done
    made=
    echo "installed $("$link" --version) into $library/$version, and linked $link"
    case :${PATH:-}: in
        *":$prefix/bin:"*) ;;
        *) echo "$prefix/bin is not in your PATH: add it, or run $link" ;;
    esac
    if [ -n "$previous" ] && [ "$previous" != "$version" ]; then
        echo "version $previous is kept until the next time; \`hearth upgrade\` has a running server change to $version"
    fi
}

uninstall() {
    if [ ! -d "$library" ] || [ ! -L "$library/current" ]; then fail "there is no Hearth of this script in $library"; fi
    [ "$(readlink "$link" 2>/dev/null)" != "$library/current/bin/hearth" ] || rm -f "$link" 2>/dev/null || fail "cannot remove $link: run this as root"
    rm -rf "$library" 2>/dev/null || fail "cannot remove all of $library: run this as root"
    echo "removed $link and $library; settings and data of applications were left alone"
}

main() {
    trap clean_up EXIT
    trap 'exit 130' INT TERM HUP
    find_places
    case ${1-} in
        '') install ;;
        --uninstall) uninstall ;;
        *) fail "no option $1: only --uninstall" ;;
    esac
}

main "$@"
