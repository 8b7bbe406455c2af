"""Judges what packaging/ has for containers without running it. scripts/lint-containers runs it, with the tools that it fetched on the path.

Promises: each Containerfile passes hadolint, and an image that serves has a numbered user, ports, a signal, a health check and labels. compose.yaml is
what Compose reads once its variables are put in. Each manifest is valid for Kubernetes, strictly, and follows the rules of the Pod Security Standard
`restricted`. Each check is tried on a fault of its kind as well, to prove that it works. The last line is `N passed, N failed`.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import compose_spec
import kubernetes_validate
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGING = ROOT / "packaging"
# The newest one that the tool knows.
KUBERNETES = kubernetes_validate.latest_version()
passed = failed = 0


def check(name: str, problems: list, fault: list) -> None:
    """Counts one check: `problems` is to be empty, and `fault`, what it finds in a file with a fault, is not."""
    global passed, failed
    if not fault:
        problems = [*problems, "the check does not find a fault that was put in"]
    if problems:
        failed += 1
        print(f"FAILED {name}", *map(str, problems), sep="\n    ", flush=True)
    else:
        passed += 1
        print(f"ok     {name}", flush=True)


def hadolint(text: str) -> list:
    run = subprocess.run([sys.argv[1], "--no-color", "-"], input=text, text=True, capture_output=True, check=False)
    return run.stdout.splitlines() + run.stderr.splitlines() if run.returncode else []


def image(text: str) -> list:
    """What an image that serves has to say."""
    problems = [f"no {word}" for word in ("LABEL", "EXPOSE", "STOPSIGNAL SIGTERM", "HEALTHCHECK", "ENTRYPOINT", "CMD") if not re.search(rf"^{word}\b", text, re.M)]
    users = re.findall(r"^USER (.*)$", text, re.M)
    if not users or not re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1]):
        problems.append(f"the user is not a number beside root's: {users}")
    return problems


def compose(text: str) -> list:
    """Variables become values as Compose does it, then the file is read strictly."""
    values = re.sub(r"\$\{\w+:\?[^}]*\}", "/srv/value", text)
    try:
        read = merged(values)
    except Exception as failure:  # the library's own kind
        return [str(failure)[:300]]
    problems = []
    for name, service in read["services"].items():
        if service.get("build") and not (service.get("read_only") and service.get("cap_drop") == ["ALL"] and any("no-new-privileges" in it for it in service.get("security_opt", []))):
            problems.append(f"{name} is not confined: {service}")
        profile = [it.split(":", 1)[1] for it in service.get("security_opt", []) if it.startswith("seccomp:")]
        problems += [f"{name}: no such profile: {path}" for path in profile if not (PACKAGING / path).is_file()]
        build = service.get("build")
        if build and not (PACKAGING / build["context"] / build["dockerfile"]).resolve().is_file():
            problems.append(f"{name}: no such Containerfile: {build}")
    return problems


def merged(text: str) -> dict:
    options = compose_spec.PyOptions()
    options.apply_merge = True
    read = options.from_yaml(text)
    return json.loads(read.to_json())


def kubernetes(document: dict) -> list:
    if document.get("kind") == "Kustomization":
        return [f"no such file: {name}" for name in document["resources"] if not (PACKAGING / "kubernetes" / name).is_file()]
    try:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as failure:
        return [f"{'.'.join(map(str, failure.path))}: {failure.message}"]
    return []


def restricted(document: dict) -> list:
    """The Pod Security Standard `restricted`, with a read-only root beside it, and without variables of Services, which look like Hearth's settings."""
    pod = document["spec"]["template"]["spec"]
    problems = []
    if pod.get("enableServiceLinks") is not False:
        problems.append("enableServiceLinks is not off")
    if not pod["securityContext"].get("runAsNonRoot"):
        problems.append("runAsNonRoot is not set")
    if pod["securityContext"].get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
        problems.append("no seccomp profile")
    for container in pod["containers"]:
        own = container["securityContext"]
        if own.get("allowPrivilegeEscalation") is not False or own.get("capabilities", {}).get("drop") != ["ALL"] or not own.get("readOnlyRootFilesystem"):
            problems.append(f"{container['name']} is not restricted: {own}")
        if not {"requests", "limits"} <= set(container.get("resources", {})):
            problems.append(f"{container['name']} has no requests or limits")
        problems += [f"{container['name']} has no {probe}" for probe in ("startupProbe", "readinessProbe", "livenessProbe") if probe not in container]
    return problems


# What pods are to have, and a fault of its kind.
FAULTS = {'"readOnlyRootFilesystem": true': '"readOnlyRootFilesystem": false', '"enableServiceLinks": false': '"enableServiceLinks": true'}


def main() -> int:
    for path in sorted(PACKAGING.glob("Containerfile*")):
        text = path.read_text()
        check(f"{path.name}: hadolint", hadolint(text), hadolint(text + "\nRUN cd /tmp && sudo ls\n"))
        if path.name != "Containerfile":
            check(f"{path.name}: user, ports, signal, health check, labels", image(text), image(re.sub(r"^USER .*", "USER root", text, flags=re.M)))
    text = (PACKAGING / "compose.yaml").read_text()
    check("compose.yaml: read strictly", compose(text), compose(text.replace("read_only:", "read_onyl:")))
    for path in sorted((PACKAGING / "kubernetes").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            wrong = {**document, "resources": ["nothing.yaml"]} if document["kind"] == "Kustomization" else {**document, "sepc": {}}
            check(f"{path.name}: valid", kubernetes(document), kubernetes(wrong))
            if document["kind"] == "Deployment":
                for good, bad in FAULTS.items():
                    check(f"{path.name}: restricted, {good}", restricted(document), restricted(json.loads(json.dumps(document).replace(good, bad))))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
