# What the scripts beside this file share. Sourced, never run; switches on strict mode.
# shellcheck shell=bash

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

# Where cargo builds, absolute. Exported so that every cargo below agrees.
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")
export CARGO_TARGET_DIR

# A toolchain just installed by rustup is not on the PATH of the shell that ran make.
if ! command -v cargo >/dev/null && [[ -x ${CARGO_HOME:-$HOME/.cargo}/bin/cargo ]]; then
    PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
fi

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
note() { printf '    %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# The version of Cargo.toml.
workspace_version() { sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml; }

# The PHP that this release of Debian calls `php`, e.g. 8.2.
default_php() {
    local codename
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && printf %s "${VERSION_CODENAME:-}")
    case $codename in
        bookworm) echo 8.2 ;;
        trixie) echo 8.4 ;;
        *)
            local found
            found=$(apt-cache depends php-cli 2>/dev/null |
                sed -n 's/.*Depends: php\([0-9.]*\)-cli$/\1/p' | head -n 1)
            echo "${found:-8.4}"
            ;;
    esac
}

# Each php-config whose embeddable library is installed, one path a line.
php_configs() {
    local config minor
    local -a candidates=()
    for config in /usr/bin/php-config8.*; do
        [[ -x $config ]] && candidates+=("$config")
    done
    if ((${#candidates[@]} == 0)) && command -v php-config >/dev/null; then
        candidates=("$(command -v php-config)")
    fi
    for config in "${candidates[@]}"; do
        minor=$("$config" --version | cut -d. -f1,2)
        if compgen -G "$("$config" --prefix)/lib/libphp${minor}.so" >/dev/null ||
            compgen -G "$("$config" --prefix)/lib/libphp.so" >/dev/null; then
            echo "$config"
        else
            note "PHP $minor is left out: libphp${minor}-embed is not installed"
        fi
    done
}

# A copy of this system at WORK/root, with processes, devices, /tmp and /run of its own, that is gone with the mount namespace.
overlay_of_system() {
    local work=$1 copy=$1/root
    mount -t tmpfs tmpfs "$work"
    mkdir "$work"/{upper,work,root}
    mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/work" "$copy"
    mount -t proc proc "$copy/proc"
    mount --rbind /dev "$copy/dev"
    mount -t tmpfs tmpfs "$copy/tmp"
    mount -t tmpfs tmpfs "$copy/run"
}

# python_tools NAME PACKAGE==VERSION...: packages of PyPI in target/tools, fetched once. Prints the folder; fails when PyPI does not give them.
python_tools() {
    local name=$1 folder
    shift
    folder=$CARGO_TARGET_DIR/tools/$name-$(printf '%s\n' "$@" | sha256sum | cut -c1-8)
    if [[ ! -e $folder/done ]]; then
        note "fetching $* once"
        rm -rf "$folder"
        timeout 180 python3 -m pip install --quiet --disable-pip-version-check --no-input --timeout 10 --retries 1 --target "$folder" "$@" >&2 || return 1
        : > "$folder/done"
    fi
    echo "$folder"
}

# What `one` counts, for the line `N passed, N failed`.
passed=0
failed=0
# one NAME COMMAND...: one test more, whose output is shown when it fails.
one() {
    local name=$1 output
    shift
    output=$(mktemp)
    if "$@" > "$output" 2>&1; then
        ((++passed))
        note "ok      $name"
    else
        ((++failed))
        # The summary of the stages shows this line alone.
        note "FAILED  $name: $(grep -v '^[[:space:]]*$' "$output" | tail -n 1 | cut -c1-100)"
        tail -n 40 "$output" >&2
    fi
    rm -f "$output"
}
# counts_of FILE [phpunit]: how many tests its text counts as passed and as failed: cargo `test result: ok. 3 passed; 0 failed`, scripts
# `3 passed, 0 failed`, native `frames: 3 vectors, 0 failed`; with `phpunit` also `OK (3 tests` and `Tests: 3, … Failures: 0.`
counts_of() {
    sed 's/\x1b\[[0-9;]*m//g' "$1" | awk -v phpunit="${2-}" '
        /^test result: / { ok += $4; bad += $6 }
        /^[0-9]+ passed, [0-9]+ failed/ { ok += $1; bad += $3 }
        /^[a-z]+: [0-9]+ [a-z]+, [0-9]+ failed$/ { ok += $2 - $4; bad += $4 }
        phpunit && /^OK \([0-9]+ test/ { sub(/\(/, "", $2); ok += $2 }
        phpunit && /^Tests: [0-9]+, / { all = $2 + 0; worse = 0; for (i = 3; i < NF; i++) if ($i ~ /^(Errors|Failures|Skipped|Warnings|Risky):$/) worse += $(i + 1) + 0; ok += all - worse; bad += worse }
        END { print ok + 0, bad + 0 }'
}
# has PART TEXT
has() { grep -qF -- "$1" <<< "$2" || { echo "no '$1' in: $2"; return 1; }; }

# ready LOG PID [PATTERN]: waits for the line by which a server says where it answers, and sets `base` to that address. Shows the log and fails
# when the process ends without it, or after two minutes.
ready() {
    local pattern=${3:-'hearth: ready on \(http:[^ ]*\)'}
    base=$(timeout 120 tail --pid="$2" --lines=+1 --follow=name --retry "$1" 2>/dev/null | sed -n "\\|$pattern|{s|.*$pattern.*|\1|p;q}") || true
    [[ -n $base ]] || { echo "never ready:"; tail -n 40 "$1"; return 1; }
}

# in_tier quick|rest: whether a part belongs to the tier that runs. Without TEST_TIER every part does.
in_tier() { [[ -z ${TEST_TIER-} || $TEST_TIER == "$1" ]]; }
