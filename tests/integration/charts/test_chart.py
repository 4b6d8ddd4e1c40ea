"""The Helm chart: what it renders, what it refuses, and that it comes, changes and goes without a trace."""

import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
import yaml

from harness.cluster.cluster import Cluster
from harness.peers.helm import CHART, Helm, HelmError, inventory
from harness.process import wait_for
from trimtab import __version__
from trimtab.kube.rest.rbac import RBAC_RULES, Component
from trimtab.operator.config.loader import load_configuration
from trimtab.operator.webhook import registration
from trimtab.usage.source import SOURCES

DASHBOARD = "/apis/rbac.authorization.k8s.io/v1/clusterroles/trimtab-dashboard"


@pytest.fixture(scope="module")
def helm(cluster: Cluster) -> Iterator[Helm]:
    helm = Helm(cluster, f"chart-{secrets.token_hex(4)}")
    yield helm
    with suppress(HelmError):
        helm.uninstall()
    with suppress(HTTPError):
        cluster.call("DELETE", f"/api/v1/namespaces/{helm.namespace}")


@pytest.fixture(scope="module")
def unset(helm: Helm) -> list[dict[str, Any]]:
    """The chart rendered with default values."""
    return helm.render()


def one(found: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (only,) = [each for each in found if each["kind"] == kind]
    return only


def test_chart_alerts_match_the_plain_rule_file(helm: Helm) -> None:
    rule = one(
        helm.render("prometheusRule.enabled=true", "prometheusRule.labels.release=mine"), "PrometheusRule"
    )
    assert rule["spec"] == yaml.safe_load((CHART.parents[1] / "deploy/prometheus/alerts.yaml").read_text())
    assert rule["metadata"]["labels"]["release"] == "mine"


def test_helm_finds_nothing_to_complain_of(helm: Helm) -> None:
    helm.lint()


def test_chart_puts_everything_in_the_namespace_of_the_release(helm: Helm) -> None:
    monitoring = "serviceMonitor.enabled=true", "prometheusRule.enabled=true", "grafana.dashboard=true"
    found = helm.render(*monitoring)
    assert {each["metadata"].get("namespace", helm.namespace) for each in found} == {helm.namespace}
    binding = one(found, "ClusterRoleBinding")
    assert binding["subjects"][0]["namespace"] == helm.namespace
    for each in found:
        for webhook in each.get("webhooks", ()):
            assert webhook["clientConfig"]["service"]["namespace"] == helm.namespace


@pytest.mark.parametrize(
    ("process", "values"),
    [
        ("operator", ("operator.dashboard=true",)),
        ("dashboard", ("operator.dashboard=true",)),
        ("kubelet-source", ("operator.config.metricsSource.provider=kubelet",)),
        ("kubelet-source", ("operator.config.additionalMetricsSources[0].provider=kubelet",)),
        ("agent", ("agent.enabled=true",)),
    ],
)
def test_chart_grants_exactly_what_the_code_uses(
    helm: Helm, process: Component, values: tuple[str, ...]
) -> None:
    (role,) = [
        each
        for each in helm.render(*values)
        if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", f"trimtab-{process}")
    ]
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    asked = {
        (right.group, right.resource, verb)
        for right in RBAC_RULES[process]
        if not right.own_namespace
        for verb in right.verbs
    }
    assert granted == asked


@pytest.mark.parametrize("name", SOURCES.names())
@pytest.mark.parametrize("place", ["metricsSource", "additionalMetricsSources[0]"])
def test_chart_grants_the_rights_of_each_usage_source(helm: Helm, name: str, place: str) -> None:
    found = helm.render(f"operator.config.{place}.provider={name}")
    granted = {
        (group, resource, verb)
        for role in found
        if role["kind"] == "ClusterRole"
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    rules = SOURCES.load_type(name).rules
    assert {(rule.group, rule.resource, verb) for rule in rules for verb in rule.verbs} <= granted


def test_chart_grants_the_rights_on_custom_workloads_to_account_and_policy(helm: Helm) -> None:
    found = helm.render("operator.customWorkloads.argoproj\\.io={rollouts}")
    (role,) = [each for each in found if each["metadata"]["name"] == "trimtab-custom-workloads"][:1]
    assert role["rules"] == [
        {"apiGroups": ["argoproj.io"], "resources": ["rollouts"], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": ["argoproj.io"], "resources": ["rollouts/scale"], "verbs": ["patch"]},
    ]
    (policy,) = [
        each["spec"]
        for each in found
        if (each["kind"], each["metadata"]["name"])
        == ("ValidatingAdmissionPolicy", "trimtab-operator-workloads")
    ]
    assert policy["matchConstraints"]["resourceRules"][0]["apiGroups"] == ["apps", "batch", "argoproj.io"]


def test_chart_bounds_the_accounts_by_admission_policies(helm: Helm, unset: list[dict[str, Any]]) -> None:
    def policies(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        kinds = {
            kind: {each["metadata"]["name"]: each["spec"] for each in found if each["kind"] == kind}
            for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
        }
        bound, bindings = kinds.values()
        assert bound.keys() == bindings.keys()
        for name, binding in bindings.items():
            assert (binding["policyName"], binding["validationActions"]) == (name, ["Deny"])
            assert bound[name]["failurePolicy"] == "Fail"
            account = f"system:serviceaccount:{helm.namespace}:trimtab-{name.split('-')[1]}"
            assert account in bound[name]["matchConditions"][0]["expression"]
        return bound

    operators = {f"trimtab-operator-{what}" for what in ("workloads", "webhooks", "secrets", "pod-webhook")}
    assert policies(unset).keys() == operators
    found = policies(
        helm.render(
            "agent.enabled=true",
            "operator.config.webhook.pods=true",
            "operator.config.webhook.secret=mine",
            "admissionPolicies.workloadGroups={argoproj.io}",
        )
    )
    assert {name for name in found if "agent" not in name} == operators - {"trimtab-operator-pod-webhook"}
    assert any("agent" in name for name in found)
    assert "['mine']" in found["trimtab-operator-secrets"]["validations"][0]["expression"]
    [rule] = found["trimtab-operator-workloads"]["matchConstraints"]["resourceRules"]
    assert rule["apiGroups"] == ["apps", "batch", "argoproj.io"]
    assert policies(helm.render("admissionPolicies.enabled=false", "agent.enabled=true")) == {}


def test_chart_dashboard_is_off_by_default_and_then_on_loopback(
    helm: Helm, unset: list[dict[str, Any]]
) -> None:
    off, on = unset, helm.render("operator.dashboard=true")
    before, after = (
        one(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"] for found in (off, on)
    )
    assert after == [*before, "--dashboard=127.0.0.1:8090"]
    new = [each for each in on if each not in off and each["kind"] != "Deployment"]
    assert sorted(each["kind"] for each in new) == ["ClusterRole", "ClusterRoleBinding"]


def test_chart_applies_custom_secret_and_port_names(helm: Helm, unset: list[dict[str, Any]]) -> None:
    """In a node's network, where the usual ports may be taken."""
    found = helm.render(
        "operator.config.address=0.0.0.0:18080",
        "operator.config.webhook.address=[::]:19443",
        "operator.config.webhook.secret=mine",
    )
    assert ["mine"] in [rule.get("resourceNames") for rule in one(found, "Role")["rules"]]

    def ports(of: list[dict[str, Any]]) -> dict[str, int]:
        (container,) = one(of, "Deployment")["spec"]["template"]["spec"]["containers"]
        assert {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} == {
            "metrics"
        }
        return {each["name"]: each["containerPort"] for each in container["ports"]}

    assert ports(found) == {"metrics": 18080, "webhook": 19443}
    nothing = helm.render("operator.config.address=null")  # which the operator takes for its default
    assert ports(unset) == ports(nothing) == {"metrics": 8080, "webhook": 9443}
    (scraped,) = [
        each for each in found if each["metadata"]["name"] == "trimtab-operator" and each["kind"] == "Service"
    ]
    assert scraped["metadata"]["annotations"]["prometheus.io/port"] == "18080"


def test_chart_registers_a_webhook_by_url_in_place_of_the_service(helm: Helm) -> None:
    found = helm.render("operator.config.webhook.url=https://10.0.0.5:9443/")
    for resource, path in registration.PATHS.items():
        (webhook,) = one(found, resource.kind)["webhooks"]
        assert webhook["clientConfig"] == {"url": f"https://10.0.0.5:9443{path}"}
    assert "trimtab-webhook" in {each["metadata"]["name"] for each in found if each["kind"] == "Service"}


def test_plugins_of_other_pods_can_reach_the_operator_where_they_may_register(
    helm: Helm, unset: list[dict[str, Any]]
) -> None:
    found = helm.render("operator.config.intents.plugins.address=0.0.0.0:9444")
    (before,), (after,) = (one(each, "NetworkPolicy")["spec"]["ingress"] for each in (unset, found))
    assert after["ports"] == [*before["ports"], {"port": 9444}]


def test_only_the_api_server_can_reach_the_webhook_where_its_addresses_are_given(helm: Helm) -> None:
    found = helm.render(
        "operator.apiServerAddresses={10.0.0.0/28,fd00::1/128}",
        "operator.config.intents.plugins.address=0.0.0.0:9444",
    )
    everyone, api_server = one(found, "NetworkPolicy")["spec"]["ingress"]
    assert everyone == {"ports": [{"port": "metrics"}, {"port": 9444}]}
    assert api_server == {
        "from": [{"ipBlock": {"cidr": cidr}} for cidr in ("10.0.0.0/28", "fd00::1/128")],
        "ports": [{"port": "webhook"}],
    }


def test_values_reach_the_operator(helm: Helm) -> None:
    found = helm.render(
        "image.repository=registry.example/trimtab",
        "image.tag=v7",
        "image.pullSecrets={mine}",
        "operator.replicas=3",
        "operator.config.dryRun=true",
        "operator.resources.limits.memory=1Gi",
        "operator.nodeSelector.disk=fast",
        "operator.priorityClassName=important",
        "operator.podAnnotations.team=platform",
        "operator.env[0].name=TRIMTAB_DRY_RUN",
        "operator.hostNetwork=true",
    )
    spec = one(found, "Deployment")["spec"]
    pod = spec["template"]["spec"]
    assert spec["replicas"] == 3
    assert spec["template"]["metadata"]["annotations"] == {"team": "platform"}
    assert pod["nodeSelector"] == {"disk": "fast"}
    assert pod["priorityClassName"] == "important"
    assert pod["imagePullSecrets"] == [{"name": "mine"}]
    assert pod["hostNetwork"]
    assert spec["strategy"]["rollingUpdate"]["maxSurge"] == 0  # or two would want the same ports of a node
    (container,) = pod["containers"]
    assert container["image"] == "registry.example/trimtab:v7"
    assert container["resources"]["limits"]["memory"] == "1Gi"
    assert {"name": "TRIMTAB_DRY_RUN"} in container["env"]
    assert "POD_NAME" in {each["name"] for each in container["env"]}  # beside those that a user adds
    config = one(found, "ConfigMap")["data"]["config.yaml"]
    read = load_configuration(text=config, origin="config.yaml", environment={})
    assert (read.dry_run, read.namespace, read.webhook.enabled) == (True, helm.namespace, True)


def test_chart_mounts_the_secrets_that_the_configuration_names(helm: Helm) -> None:
    found = helm.render(
        "operator.secrets={team-a}",
        "operator.config.metricsSource.secret=prometheus",
        "operator.config.additionalMetricsSources[0].name=thanos",
        "operator.config.additionalMetricsSources[0].provider=prometheus",
        "operator.config.additionalMetricsSources[0].secret=thanos",
        "operator.config.additionalMetricsSources[1].name=also",
        "operator.config.additionalMetricsSources[1].provider=prometheus",
        "operator.config.additionalMetricsSources[1].secret=prometheus",
        "operator.config.secretsFolder=/secrets",
    )
    (deployment,) = [each for each in found if each["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    mounts = {each["name"]: each for each in pod["containers"][0]["volumeMounts"]}
    for name in ("team-a", "prometheus", "thanos"):
        assert mounts[f"secret-{name}"] == {
            "name": f"secret-{name}",
            "mountPath": f"/secrets/{name}",
            "readOnly": True,
        }
        assert [
            each["secret"]["secretName"] for each in pod["volumes"] if each["name"] == f"secret-{name}"
        ] == [name]
    (config,) = [each for each in found if each["kind"] == "ConfigMap"]
    read = load_configuration(text=config["data"]["config.yaml"], environment={})
    assert read.sources[""].settings["token_file"] == Path("/secrets/prometheus/token")


def test_chart_annotates_account_and_pods_for_the_identity_of_a_cloud(helm: Helm) -> None:
    found = helm.render(
        r"operator.serviceAccountAnnotations.eks\.amazonaws\.com/role-arn=arn:aws:iam::1:role/trimtab",
        r"operator.podAnnotations.team=platform",
        r"operator.podLabels.team=platform",
        r"operator.podLabels.app\.kubernetes\.io/name=other",
        "agent.enabled=true",
    )
    accounts = {
        each["metadata"]["name"]: each["metadata"] for each in found if each["kind"] == "ServiceAccount"
    }
    assert accounts["trimtab-operator"]["annotations"] == {
        "eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/trimtab"
    }
    assert "annotations" not in accounts["trimtab-agent"]
    (deployment,) = [each for each in found if each["kind"] == "Deployment"]
    metadata = deployment["spec"]["template"]["metadata"]
    assert metadata["labels"]["team"] == metadata["annotations"]["team"] == "platform"
    # The selector still finds the pods.
    assert deployment["spec"]["selector"]["matchLabels"].items() <= metadata["labels"].items()


def test_chart_mounts_a_secret_with_a_name_that_is_too_long_for_a_volume(helm: Helm) -> None:
    name = "a" * 60 + "." + "b" * 60
    (deployment,) = [
        each for each in helm.render(f"operator.secrets={{{name}}}") if each["kind"] == "Deployment"
    ]
    pod = deployment["spec"]["template"]["spec"]
    (volume,) = [each for each in pod["volumes"] if each.get("secret", {}).get("secretName") == name]
    assert len(volume["name"]) <= 63
    mounts = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    assert mounts[volume["name"]] == f"/run/trimtab/secrets/{name}"


def test_chart_mounts_secrets_a_ca_bundle_and_custom_volumes(helm: Helm, unset: list[dict[str, Any]]) -> None:
    before = one(unset, "Deployment")["spec"]["template"]["spec"]
    pod = one(
        helm.render(
            "operator.secrets={prometheus.token,webhook}",
            "operator.caBundle.configMap=corp-ca",
            "operator.volumes[0].name=weights",
            "operator.volumes[0].persistentVolumeClaim.claimName=weights",
            "operator.volumeMounts[0].name=weights",
            "operator.volumeMounts[0].mountPath=/weights",
        ),
        "Deployment",
    )["spec"]["template"]["spec"]
    added = [each for each in pod["volumes"] if each not in before["volumes"]]
    assert added == [
        {
            "name": "secret-prometheus-token",
            "secret": {"secretName": "prometheus.token", "defaultMode": 0o440},
        },
        {"name": "secret-webhook", "secret": {"secretName": "webhook", "defaultMode": 0o440}},
        {"name": "ca-bundle", "configMap": {"name": "corp-ca"}},
        {"name": "weights", "persistentVolumeClaim": {"claimName": "weights"}},
    ]
    (container,), (plain,) = pod["containers"], before["containers"]
    mounts = {
        each["name"]: each["mountPath"]
        for each in container["volumeMounts"]
        if each not in plain["volumeMounts"]
    }
    assert mounts == {
        "secret-prometheus-token": "/run/trimtab/secrets/prometheus.token",
        "secret-webhook": "/run/trimtab/secrets/webhook",
        "ca-bundle": "/run/trimtab/ca",
        "weights": "/weights",
    }
    assert {"name": "SSL_CERT_FILE", "value": "/run/trimtab/ca/ca.crt"} in container["env"]


@pytest.mark.parametrize("claim", ["", "mine"])
def test_chart_keeps_the_store_in_a_claim(helm: Helm, claim: str) -> None:
    values = (
        "operator.replicas=1",
        "operator.persistence.enabled=true",
        f"operator.persistence.existingClaim={claim}",
    )
    found = helm.render(*values)
    deployment = one(found, "Deployment")
    (data,) = [each for each in deployment["spec"]["template"]["spec"]["volumes"] if each["name"] == "data"]
    name = claim or "trimtab-operator"
    assert data == {"name": "data", "persistentVolumeClaim": {"claimName": name}}
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    made = [each["metadata"]["name"] for each in found if each["kind"] == "PersistentVolumeClaim"]
    assert made == ([] if claim else ["trimtab-operator"])
    with pytest.raises(HelmError, match="replicas cannot share a SQLite file"):
        helm.render("operator.persistence.enabled=true")


def test_chart_deploys_the_agent_on_request_and_may_keep_it_in_dry_run(
    helm: Helm, unset: list[dict[str, Any]]
) -> None:
    assert "DaemonSet" not in {each["kind"] for each in unset}
    plain, looking = (
        one(helm.render("operator.enabled=false", "agent.enabled=true", *more), "DaemonSet")
        for more in (
            (),
            ("agent.readOnly=true", "agent.hostPID=true", "agent.args={--dry-run,--kubelet=https://here:1}"),
        )
    )
    assert "hostPID" not in plain["spec"]["template"]["spec"]
    assert looking["spec"]["template"]["spec"]["hostPID"]
    (before,) = plain["spec"]["template"]["spec"]["containers"]
    (after,) = looking["spec"]["template"]["spec"]["containers"]
    assert {*after["args"]} - {*before["args"]} == {"--read-only", "--dry-run", "--kubelet=https://here:1"}
    assert {*before["args"]} - {*after["args"]} == {"--kubelet=https://$(NODE_IP):10250"}
    mounts = {each["name"]: each for each in after["volumeMounts"]}
    assert "vm" not in mounts
    assert mounts["fs"]["recursiveReadOnly"] == "Enabled"
    assert all(each.get("readOnly") for name, each in mounts.items() if name != "state")
    assert after["image"] == f"trimtab:{__version__}"


def test_chart_mounts_the_socket_folders_of_the_agent(helm: Helm) -> None:
    found = helm.render("agent.enabled=true", "agent.nri=/var/run/nri/nri.sock", "agent.cri=/run/t/a.sock")
    pod = one(found, "DaemonSet")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {"--nri=/var/run/nri/nri.sock", "--cri=/run/t/a.sock"} <= {*container["args"]}
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    there = {each["name"]: each["hostPath"]["path"] for each in pod["volumes"]}
    assert (mounted["nri"], mounted["cri"]) == (there["nri"], there["cri"]) == ("/var/run/nri", "/run/t")


def test_sockets_in_one_folder_are_mounted_once_and_another_port_is_probed(helm: Helm) -> None:
    """An API server takes no two mounts at one place."""
    sockets = ("agent.nri=/run/t/nri.sock", "agent.cri=/run/t/agent.sock")
    found = helm.render("agent.enabled=true", *sockets, "agent.args={--address=:18081}")
    (container,) = one(found, "DaemonSet")["spec"]["template"]["spec"]["containers"]
    places = [each["mountPath"] for each in container["volumeMounts"]]
    assert places.count("/run/t") == 1
    assert len(places) == len({*places})
    assert container["ports"] == [{"name": "metrics", "containerPort": 18081}]


def test_arguments_of_the_agent_may_be_none(helm: Helm) -> None:
    plain, none = (
        one(helm.render("agent.enabled=true", *values), "DaemonSet")["spec"]["template"]["spec"]
        for values in ((), ("agent.args=null",))
    )
    assert none == plain


def test_chart_scrapes_agents_where_there_are_agents(helm: Helm) -> None:
    watched = "serviceMonitor.enabled=true"
    assert "PodMonitor" not in {each["kind"] for each in helm.render(watched)}
    found = helm.render(watched, "agent.enabled=true", "serviceMonitor.labels.release=prometheus")
    monitor, pod = one(found, "PodMonitor"), one(found, "DaemonSet")["spec"]["template"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in {port["name"] for port in pod["spec"]["containers"][0]["ports"]}


@pytest.mark.parametrize(
    ("off", "kind"),
    [
        ("operator.webhook", "ValidatingWebhookConfiguration"),
        ("operator.disruptionBudget", "PodDisruptionBudget"),
        ("operator.networkPolicy", "NetworkPolicy"),
        ("operator.enabled", "Deployment"),
        ("crds.install", "CustomResourceDefinition"),
    ],
)
def test_chart_omits_what_is_switched_off(
    helm: Helm, unset: list[dict[str, Any]], off: str, kind: str
) -> None:
    assert kind in {each["kind"] for each in unset}
    assert kind not in {each["kind"] for each in helm.render(f"{off}=false")}


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("operator.replicas=0", "replicas"),
        ("operater.replicas=2", "operater"),
        ("image.pullPolicy=Perhaps", "pullPolicy"),
        ("serviceMonitor.interval=often", "interval"),
        ("agent.nri=nri.sock", "nri"),
        ("operator.config.address=8080", "/operator/config/address"),
        ("operator.config.webhook.address=everywhere", "/operator/config/webhook/address"),
        ("operator.config.dryrun=true", "'dryrun' not allowed"),
        ("operator.config.learning.step=often", "/operator/config/learning/step"),
        ("operator.config.defaultPolicy.mode=Automatic", "/operator/config/defaultPolicy/mode"),
        ("operator.config.webhook.url=http://10.0.0.5:9443", "/operator/config/webhook/url"),
    ],
)
def test_chart_rejects_a_wrong_value_by_its_name(helm: Helm, value: str, named: str) -> None:
    with pytest.raises(HelmError, match=named):
        helm.render(value)


def test_chart_refuses_roles_for_a_source_that_needs_a_cluster_role(helm: Helm) -> None:
    for setting in (
        "metricsSource.provider=kubelet",
        "metricsProvider=kubelet",
        "additionalMetricsSources[0].provider=kubelet",
    ):
        with pytest.raises(HelmError, match="watchNamespaces: the source kubelet reads nodes"):
            helm.render("operator.config.watchNamespaces={shop}", f"operator.config.{setting}")


def test_only_the_dashboard_adds_a_cluster_role_to_roles_and_the_values_say_so(helm: Helm) -> None:
    rendered = helm.render(
        "crds.install=false", "operator.config.watchNamespaces={shop}", "operator.dashboard=true"
    )
    (role,) = [each for each in rendered if each["kind"] == "ClusterRole"]
    assert role["metadata"]["name"] == "trimtab-dashboard"
    for page in ("charts/trimtab/values.yaml", "docs/how-to/multi-tenancy.md"):
        assert "ClusterRole `trimtab-dashboard`" in (CHART.parents[1] / page).read_text()


def test_chart_installs_upgrades_and_uninstalls_without_remains(cluster: Cluster, helm: Helm) -> None:
    had_kinds = cluster.has("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/intents.trimtab.io")
    kinds = f"crds.install={'false' if had_kinds else 'true'}"  # another test's may be there
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": helm.namespace}})
    wait_for(lambda: "default" in cluster.kubectl("get", "sa", "-n", helm.namespace), what="its account")
    before = inventory(cluster)
    helm.install(kinds, "operator.webhook=false", "operator.replicas=1", "operator.dashboard=true")
    assert len(inventory(cluster) - before) >= 11
    assert cluster.has(DASHBOARD)
    helm.upgrade(kinds, "operator.webhook=false", "operator.replicas=2", "operator.networkPolicy=false")
    wait_for(lambda: not cluster.has(DASHBOARD), what="the dashboard's rights to go with it")
    where = ("--namespace", helm.namespace, "--output=name")
    assert cluster.kubectl("get", "networkpolicies", *where) == ""
    deployment = cluster.call(
        "GET", f"/apis/apps/v1/namespaces/{helm.namespace}/deployments/trimtab-operator"
    )
    assert deployment["spec"]["replicas"] == 2
    helm.uninstall()
    wait_for(lambda: not _of_ours(inventory(cluster) - before, helm), what="nothing to be left", timeout=120)


def _of_ours(left: set[str], helm: Helm) -> set[str]:
    """Other tests share the cluster: what is ours is in our namespace, or has our name."""
    ours = (f"/{helm.namespace}/", "trimtab-operator", "trimtab-dashboard")
    return {name for name in left if any(part in name for part in ours)}
