"""Judges the Helm chart of packaging/helm by what Helm makes of it, with the values of tests/containers/values. scripts/test-helm runs it.

Promises: Helm itself renders and lints: `helm` where it is on the PATH, else its SDK from PyPI. Each object is valid for Kubernetes, strictly; pods follow
the Pod Security Standard `restricted`; names that objects have of each other exist; times fit each other; a real `hearth` takes the rendered settings, and
`hearth channels` serves, answers its probes and drains with them. With the values of manifests.yaml pods are those of packaging/kubernetes, which
tests/containers/serve.py runs. Wrong values are refused by name. README.md, schema and values.yaml name the same values. The last line is `N passed, N failed`.
"""

import copy
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import kubernetes_validate
import yaml
from lint import kubernetes, restricted
from redis_server import Redis
from serve import HEARTH, LIMIT, PACKAGING, TOKEN, WORKER, Server, manifest, seconds

CHART = PACKAGING / "helm/hearth"
VALUES = Path(__file__).resolve().parent / "values"
APPS = "shop:key:a-secret-of-the-tests"
passed = failed = 0


class Refused(Exception):
    """Helm does not render the chart with these values."""


def check(name: str, problems: list, fault: list | None = None) -> None:
    """Counts one check: `problems` is to be empty. `fault`, if there is one, is what it finds in a chart with a fault, and is not."""
    global passed, failed
    if fault == []:
        problems = [*problems, "the check does not find a fault that was put in"]
    passed, failed = passed + (not problems), failed + bool(problems)
    print(f"{'FAILED' if problems else 'ok    '} {name}", *map(str, problems), sep="\n    ", flush=True)


def with_program(what: str, values: dict, *arguments: str) -> subprocess.CompletedProcess:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values, file)
        file.flush()
        # The version that Helm's releases have built in is not in one that `go install` has built.
        return subprocess.run(["helm", *what.split(), str(CHART), "--values", file.name, "--kube-version", kubernetes_validate.latest_version(), *arguments],
                              text=True, capture_output=True, check=False)


def lint(values: dict) -> list:
    """Helm's complaints, warnings included."""
    if shutil.which("helm"):
        run = with_program("lint --strict", values)
        return run.stdout.splitlines() if run.returncode else []
    found = helm_python.lint(CHART, values, strict=True)
    return [*found["errors"], *(it for it in found["messages"] if it["severity"] > 1)]


def render(values: dict) -> list:
    """The objects that Helm would send to Kubernetes."""
    if shutil.which("helm"):
        run = with_program("template test", values, "--namespace", "shop")
        if run.returncode:
            raise Refused(run.stderr)
        texts = [run.stdout]
    else:
        try:
            with helm_python.Chart.load(CHART) as chart:
                texts = [text for name, text in chart.render(values, name="test", namespace="shop").items() if name.endswith(".yaml")]
        except helm_python.HelmError as failure:
            raise Refused(str(failure)) from failure
    return [it for text in texts for it in yaml.safe_load_all(text) if it]


def of_kind(objects: list, kind: str) -> list:
    return [it for it in objects if it["kind"] == kind]


def valid(objects: list) -> list:
    """A ServiceMonitor is no kind of Kubernetes' own: `joined` looks at it."""
    return [f"{it['kind']} {it['metadata']['name']}: {problem}" for it in objects if it["kind"] != "ServiceMonitor" for problem in kubernetes(it)]


def pod_of(deployment: dict) -> dict:
    return deployment["spec"]["template"]["spec"]


def joined(objects: list) -> list:
    """Names that objects have of each other."""
    problems = []
    pods = {it["metadata"]["name"]: it["spec"]["template"]["metadata"]["labels"] for it in of_kind(objects, "Deployment")}
    ports = {it["metadata"]["name"]: {port["name"] for port in pod_of(it)["containers"][0]["ports"]} for it in of_kind(objects, "Deployment")}
    for it in objects:
        name = f"{it['kind']} {it['metadata']['name']}"
        selector = it["spec"].get("selector", {}) if it["kind"] != "ConfigMap" else {}
        selector = selector if it["kind"] == "Service" else selector.get("matchLabels", {})
        if it["kind"] in ("Service", "PodDisruptionBudget", "Deployment"):
            found = [deployment for deployment, labels in pods.items() if selector and selector.items() <= labels.items()]
            if len(found) != 1:
                problems.append(f"{name} selects {found}")
            elif it["kind"] == "Service":
                problems += [f"{name}: {found[0]} has no port {port['targetPort']}" for port in it["spec"]["ports"] if port["targetPort"] not in ports[found[0]]]
        elif it["kind"] == "HorizontalPodAutoscaler" and it["spec"]["scaleTargetRef"]["name"] not in pods:
            problems.append(f"{name} scales nothing")
        elif it["kind"] == "ServiceMonitor":
            services = [it for it in of_kind(objects, "Service") if selector.items() <= it["metadata"]["labels"].items()]
            (endpoint,) = it["spec"]["endpoints"]
            if len(services) != len(pods) or any(endpoint["port"] not in {port["name"] for port in service["spec"]["ports"]} for service in services):
                problems.append(f"{name} finds {[service['metadata']['name'] for service in services]} of {list(pods)}")
            secrets = [variable["valueFrom"]["secretKeyRef"] for deployment in of_kind(objects, "Deployment") for variable in pod_of(deployment)["containers"][0]["env"]
                       if variable["name"] == "HEARTH_ADMIN_TOKEN"]
            problems += [f"{name} has another token than the pods" for secret in secrets if secret != endpoint["authorization"]["credentials"]]
    for deployment in of_kind(objects, "Deployment"):
        pod = pod_of(deployment)
        volumes = [it["name"] for it in pod["volumes"]]
        mounts = [it["name"] for it in pod["containers"][0]["volumeMounts"]]
        maps = [it["configMap"]["name"] for it in pod["volumes"] if "configMap" in it]
        if sorted(volumes) != sorted(mounts) or maps != [it["metadata"]["name"] for it in of_kind(objects, "ConfigMap")]:
            problems.append(f"{deployment['metadata']['name']}: volumes {volumes}, mounted {mounts}, settings {maps}")
        problems += [f"no port of the probe: {pod['containers'][0][probe]}" for probe in ("startupProbe", "readinessProbe", "livenessProbe")
                     if pod["containers"][0][probe]["httpGet"]["port"] not in ports[deployment["metadata"]["name"]]]
    return problems


def hides_pods(objects: list) -> list:
    """Services of admin addresses without pods that are not ready: what these have stored would not be purged."""
    return [it["metadata"]["name"] for it in of_kind(objects, "Service") if it["metadata"]["name"].endswith("-admin") and not it["spec"].get("publishNotReadyAddresses")]


def settings_of(objects: list) -> dict:
    return {name: tomllib.loads(text) for name, text in of_kind(objects, "ConfigMap")[0]["data"].items()}


def times(objects: list) -> list:
    """A pod has longer to start and to end than its server."""
    problems = []
    settings = settings_of(objects)
    for deployment in of_kind(objects, "Deployment"):
        pod, own = pod_of(deployment), settings[deployment_settings(deployment)]
        container = pod["containers"][0]
        ends = max(seconds(own["server"]["shutdown_patience"] if "server" in own else own["realtime"]["drain"]),
                   *(seconds(it.get("stop_timeout", "60s")) for it in own.get("processes", {}).values()), 0)
        if pod["terminationGracePeriodSeconds"] <= float(container["lifecycle"]["preStop"]["exec"]["command"][1]) + ends:
            problems.append(f"terminationGracePeriodSeconds is too short: {pod['terminationGracePeriodSeconds']}")
        probe = container["startupProbe"]
        if "php" in own and probe["periodSeconds"] * probe["failureThreshold"] <= seconds(own["php"]["boot_timeout"]):
            problems.append("the startup probe is less patient than php.boot_timeout")
    return problems


def deployment_settings(deployment: dict) -> str:
    return Path(pod_of(deployment)["containers"][0]["args"][2]).name


def environment_of(deployment: dict) -> dict:
    """The container's environment, with Secrets of the tests."""
    secrets = {"HEARTH_ADMIN_TOKEN": TOKEN, "HEARTH_REALTIME_APPS": APPS, "HEARTH_REALTIME_ADAPTER": "rediss://user:password@redis:6379"}
    listed = {it["name"]: it.get("value", secrets.get(it["name"], "of the tests")) for it in pod_of(deployment)["containers"][0]["env"]}
    return {name: value for name, value in listed.items() if name.startswith("HEARTH_")}


def accepted(objects: list, folder: Path) -> list:
    """`hearth check` of the rendered settings, in the pod's environment."""
    (deployment,) = [it for it in of_kind(objects, "Deployment") if deployment_settings(it) == "hearth.toml"]
    text = of_kind(objects, "ConfigMap")[0]["data"]["hearth.toml"]
    # It names a file of the pod, and commands of an application that is not this one.
    text = text.replace("/etc/hearth-broker/ca.crt", "/etc/ssl/certs/ca-certificates.crt").replace('"php', '"true').replace('session.save_handler"', 'precision"').replace('"redis"', '"14"')
    (folder / "hearth.toml").write_text(text)
    # The pod's ports may be taken on this machine.
    environment = {**os.environ, **environment_of(deployment), "HEARTH_HTTP_LISTEN": "127.0.0.1:0", "HEARTH_ADMIN_LISTEN": "127.0.0.1:0"}
    run = subprocess.run([HEARTH, "check", "--no-boot", "--config", str(folder / "hearth.toml"), str(WORKER)], env=environment, text=True,
                         timeout=LIMIT, capture_output=True, check=False)
    return [line for line in (run.stdout + run.stderr).splitlines() if line.startswith("✗")] or ([run.stderr] if run.returncode else [])


def as_given(values: dict, objects: list) -> list:
    """Settings reach hearth.toml as they are, Unicode, quotes and dots in keys included."""
    def within(wanted: object, found: object, path: str) -> list:
        if isinstance(wanted, dict):
            return [problem for key, value in wanted.items() if value is not None for problem in within(value, found.get(key) if isinstance(found, dict) else None, f"{path}.{key}")]
        return [] if wanted == found and type(wanted) is type(found) else [f"{path} is {found!r}, not {wanted!r}"]
    return within(values.get("settings", {}), settings_of(objects)["hearth.toml"], "settings")


def channels_run(objects: list, folder: Path) -> list:
    """The pod of channels, with a Redis of the tests in the place of the broker."""
    (deployment,) = [it for it in of_kind(objects, "Deployment") if deployment_settings(it) == "channels.toml"]
    container = pod_of(deployment)["containers"][0]
    settings = of_kind(objects, "ConfigMap")[0]["data"]["channels.toml"].replace("/etc/hearth-broker/ca.crt", "/etc/ssl/certs/ca-certificates.crt")
    (folder / "channels.toml").write_text(settings)
    with Redis() as port:
        environment = {**environment_of(deployment), "HEARTH_REALTIME_ADAPTER": f"redis://127.0.0.1:{port}"}
        arguments = [container["args"][0], "--config", str(folder / "channels.toml"), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        with Server([HEARTH, *arguments], **environment) as server:
            server.ready()
            problems = [f"{probe} is answered by {answer}" for probe in ("startupProbe", "readinessProbe", "livenessProbe")
                        if (answer := server.get(container[probe]["httpGet"]["path"], "admin")) != (200, "ok\n")]
            server.process.send_signal(signal.SIGTERM)
            status = server.wait(pod_of(deployment)["terminationGracePeriodSeconds"])
            return problems + ([f"exit status {status}", *server.lines[-10:]] if status else [])


def as_the_manifests(objects: list) -> list:
    """Pods, autoscaler, disruption budget and settings are those of packaging/kubernetes, but for labels."""
    problems = []
    for kind in ("Deployment", "HorizontalPodAutoscaler", "PodDisruptionBudget", "Service"):
        (made,) = [it for it in of_kind(objects, kind) if it["metadata"]["name"] == "hearth"]
        wanted, found = unlabelled(manifest(kind.lower())["spec"]), unlabelled(made["spec"])
        for spec in (wanted, found):
            for container in spec.get("template", {}).get("spec", {}).get("containers", []):
                # Both are said by the one that installs it.
                container["image"] = ""
                container.pop("imagePullPolicy", None)
        found.pop("type", None)
        if wanted != found:
            problems += [f"{kind}: {json.dumps(found, sort_keys=True)}", f"packaging/kubernetes: {json.dumps(wanted, sort_keys=True)}"]
    wanted = tomllib.loads(manifest("configmap")["data"]["hearth.toml"])
    found = settings_of(objects)["hearth.toml"]
    return problems + ([f"hearth.toml: {found}, not {wanted}"] if wanted != found else [])


def unlabelled(spec: dict) -> dict:
    spec = copy.deepcopy(spec)
    spec["selector"] = None
    if "template" in spec:
        spec["template"]["metadata"] = None
    return spec


# Values that are wrong, and what Helm says of them.
WRONG = {
    "no image": ({"image": {"repository": ""}}, "image.repository is missing: name the image"),
    "a misspelt name": ({"imagge": {}}, "additional properties 'imagge' not allowed"),
    "a misspelt section": ({"settings": {"hhtp": {}}}, "additional properties 'hhtp' not allowed"),
    "an image with its tag": ({"image": {"repository": "shop:1"}}, "'shop:1' does not match pattern"),
    "a duration for seconds": ({"drain": {"requestSeconds": "30s"}}, "at '/drain/requestSeconds': got string, want integer"),
    "no replicas": ({"replicas": 0}, "at '/replicas': minimum: got 0, want 1"),
    "root": ({"user": 0}, "at '/user': minimum: got 0, want 1"),
    "an unconfined pod": ({"seccompProfile": {"type": "Unconfined"}}, "at '/seccompProfile/type': value must be one of 'RuntimeDefault', 'Localhost'"),
    "a profile without its name": ({"seccompProfile": {"type": "Localhost"}}, "at '/seccompProfile/localhostProfile': minLength: got 0, want 1"),
    "a broker of another kind": ({"broker": {"url": "amqp://rabbit"}}, "'amqp://rabbit' does not match pattern"),
    "a password in the values": ({"broker": {"url": "redis://:password@redis"}}, "at '/broker/url'"),
    "two brokers": ({"broker": {"url": "redis://redis", "existingSecret": "redis"}}, "broker.url and broker.existingSecret exclude each other"),
    "channels without a broker": ({"channels": {"enabled": True, "image": {"repository": "c"}}}, "channels.enabled needs a broker"),
    "channels without an image": ({"channels": {"enabled": True}, "broker": {"url": "redis://redis"}}, "channels.image.repository is missing"),
    "more pods at least than at most": ({"autoscaling": {"maxReplicas": 1}}, "autoscaling.maxReplicas (1) is less than autoscaling.minReplicas (2)"),
    "a monitor of nothing": ({"monitoring": {"service": False, "serviceMonitor": True}}, "monitoring.serviceMonitor needs monitoring.service"),
    "no token": ({"adminToken": {"existingSecret": ""}}, "at '/adminToken/existingSecret'"),
    "an address of its own": ({"settings": {"http": {"listen": ":80"}}}, "settings.http.listen is not taken from there: pods listen"),
    "a time limit of its own": ({"settings": {"server": {"shutdown_patience": "5m"}}}, "set `drain.requestSeconds`, which terminationGracePeriodSeconds follows"),
    "its trusted proxies for a load balancer": ({"service": {"type": "LoadBalancer"}}, "settings.http.trusted_proxies is the chart's default, but with service.type LoadBalancer"),
    "its trusted proxies for ports of nodes": ({"service": {"type": "NodePort"}}, "set it to the load balancer's network, or to []"),
    "a token in settings": ({"settings": {"admin": {"token": "a-token-in-the-values"}}}, "name a Secret with it in `adminToken.existingSecret`"),
}


def refused(values: dict, message: str) -> list:
    try:
        render(values)
    except Refused as failure:
        return [] if message in str(failure) else [f"{failure} has no {message!r}"]
    return [f"it is rendered: {values}"]


def leaves(values: dict, above: str = "") -> list:
    found = []
    for key, value in values.items():
        if isinstance(value, dict) and value and above + key not in ("settings", "resources", "channels.resources"):
            found += leaves(value, f"{above}{key}.")
        else:
            found.append(above + key)
    return found


def described(values: dict) -> list:
    """README.md has each value, and no other; the schema has each one."""
    listed = re.findall(r"^\| `([\w.]+)` \|", (CHART / "README.md").read_text(), re.M)
    problems = [f"README.md does not have {name}" for name in leaves(values) if name not in listed]
    problems += [f"there is no value {name} of README.md" for name in listed if name not in leaves(values)]
    schema = json.loads((CHART / "values.schema.json").read_text())
    for name in leaves(values):
        part = schema
        for key in name.split("."):
            part = part["properties"].get(key, {})
            part = schema["definitions"][part["$ref"].rsplit("/", 1)[-1]] if "$ref" in part else part
        if not part:
            problems.append(f"the schema does not have {name}")
    return problems


def versioned(chart: dict) -> list:
    """The chart is released with Hearth."""
    version = tomllib.loads((PACKAGING.parent / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    return [] if chart["version"] == chart["appVersion"] == version else [f"Chart.yaml is of {chart['version']} and {chart['appVersion']}, Cargo.toml of {version}"]


def changed(objects: list, old: str, new: str) -> list:
    """The objects with a fault."""
    worse = json.loads(json.dumps(objects).replace(old, new))
    assert worse != objects, f"{old} is in them"
    return worse


def main() -> int:
    print(f"Helm: {shutil.which('helm') or 'its SDK ' + helm_python.helm_sdk_version()}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in sorted(VALUES.glob("*.yaml")):
            values = yaml.safe_load(path.read_text())
            objects = render(values)
            what = f"chart with {path.name}"
            check(f"{what}: helm lint --strict", lint(values), lint({**values, "imagge": 1}))
            check(f"{what}: {len(objects)} objects valid for Kubernetes", valid(objects), valid(changed(objects, '"spec":', '"sepc":')))
            check(f"{what}: pods are restricted", [it for pod in of_kind(objects, "Deployment") for it in restricted(pod)],
                  restricted(changed(of_kind(objects, "Deployment"), '"readOnlyRootFilesystem": true', '"readOnlyRootFilesystem": false')[0]))
            check(f"{what}: names of objects fit", joined(objects), joined(changed(objects, '"targetPort": "http"', '"targetPort": "htpp"')))
            if values.get("monitoring", {}).get("service", True):
                check(f"{what}: admin addresses are those of all pods", hides_pods(objects), hides_pods(changed(objects, '"publishNotReadyAddresses": true', '"publishNotReadyAddresses": false')))
            check(f"{what}: times fit", times(objects), times(changed(objects, '"terminationGracePeriodSeconds": ', '"terminationGracePeriodSeconds": -')))
            check(f"{what}: settings arrive as they are", as_given(values, objects), as_given({"settings": {"php": {"workers": 1.5}}}, objects))
            check(f"{what}: hearth check takes the settings", accepted(objects, folder), accepted(changed(objects, "shutdown_patience", "shutdown_pateince"), folder))
            if values.get("channels"):
                check(f"{what}: hearth channels serves with them, answers probes, drains", channels_run(objects, folder))
        manifests = render(yaml.safe_load((VALUES / "manifests.yaml").read_text()))
        check("chart: the pods of packaging/kubernetes", as_the_manifests(manifests), as_the_manifests(changed(manifests, '"failureThreshold": 1}', '"failureThreshold": 2}')))
    least = yaml.safe_load((VALUES / "least.yaml").read_text())
    for what, (values, message) in WRONG.items():
        check(f"chart refuses {what}", refused({**least, **values}, message))
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    check("chart: its version is Hearth's", versioned(chart), versioned({**chart, "appVersion": "0.0.0"}))
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    check("chart: README.md, schema and values.yaml name the same values", described(defaults), described({**defaults, "imagge": 1}))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if not shutil.which("helm"):
    import helm_python
sys.exit(main())
