"""`trimtab plan`: what would be done for an intent, why, and what else was looked at; nothing is done."""

import asyncio
import json
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml
from cyclopts import Parameter

from trimtab.api import Intent, KPIProfile
from trimtab.cli._common.plan_output import build_document, render_preview
from trimtab.cli._common.scan_options import friendly_errors, render_text, write_output
from trimtab.errors import TrimtabError
from trimtab.intents.kpi.measurement import KpiDefinition, resolve_kpi
from trimtab.intents.state import TargetState
from trimtab.kube.auth import load_connection
from trimtab.kube.errors import DECODE_ERRORS
from trimtab.kube.kinds.custom import resolve_profile_key
from trimtab.kube.rest.capabilities import get_server_version
from trimtab.kube.rest.client import Client
from trimtab.operator.config.loader import load_configuration
from trimtab.operator.config.model import LogFormat, LogSettings, OperatorConfig
from trimtab.operator.intents.guardrails import explain_no_release, guardrail_constraints
from trimtab.operator.intents.preview import PlanPreview, preview_intent, preview_state
from trimtab.operator.intents.state_builder import build_goal
from trimtab.operator.logs import configure_logging
from trimtab.yaml_documents import load_yaml_documents


def plan(
    intent: str | None = None,
    /,
    *,
    file: Annotated[Path | None, Parameter(name=["--file", "-f"])] = None,
    state: Path | None = None,
    config: Path | None = None,
    prometheus: str | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
    output: Annotated[Literal["table", "json"], Parameter(name=["--output", "-o"])] = "table",
    output_file: Path | None = None,
) -> None:
    """Show the plan for an Intent, its alternatives and their expected effects, without executing it.

    The operator's plan for the Intent web in the namespace shop:

        trimtab plan shop/web

    Without a cluster, for a state from a file:

        trimtab plan -f examples/plan/intent.yaml --state examples/plan/state.json

    Parameters
    ----------
    intent
        The Intent as NAMESPACE/NAME.
    file
        A manifest with an Intent and its KPIProfiles; needs --state.
    state
        A file with the state to plan from, as JSON: objectives, replicas, sizes, load, cpu_used.
    config
        The operator's configuration file: its planner, actuators and guardrails.
    prometheus
        The address of the Prometheus to query instead of the configuration's.
    context
        The kubeconfig context to use instead of the current one.
    kubeconfig
        The kubeconfig file to use instead of $KUBECONFIG or ~/.kube/config.
    output
        A table for people, json for programs.
    output_file
        Write to this file instead of printing; a failure leaves no partial file.
    """
    if (intent is None) == (file is None):
        raise TrimtabError("INTENT: give NAMESPACE/NAME, or --file and --state")
    if (file is None) != (state is None):
        raise TrimtabError("--file and --state belong together: the Intent, and the state to plan from")
    text = _read_text(config) if config else ""
    flags = [f"metricsSource.settings.url={prometheus}"] if prometheus else []
    configuration = load_configuration(text=text, origin=str(config or ""), environment={}, flags=flags)
    if file and state:
        found = _plan_offline(file, state, configuration)
    else:
        assert intent is not None
        found = asyncio.run(_plan_online(intent, configuration, context=context, kubeconfig=kubeconfig))
    if output == "json":
        rendered = json.dumps(build_document(found), indent=2) + "\n"
    else:
        rendered = render_text(
            lambda width: render_preview(found, width=width), to_file=output_file is not None
        )
    write_output(rendered, output_file)


def _read_text(config: Path) -> str:
    try:
        return config.read_text()
    except OSError as error:
        raise TrimtabError(f"--config {config}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TrimtabError(f"--config {config}: the file is not text; name a YAML file") from None


async def _plan_online(
    intent: str, config: OperatorConfig, *, context: str | None, kubeconfig: str | None
) -> PlanPreview:
    namespace, slash, name = intent.partition("/")
    if not slash or not namespace or not name or "/" in name:
        raise TrimtabError(f"{intent}: write it as NAMESPACE/NAME, like shop/web")
    configure_logging(
        LogSettings(format=LogFormat.CONSOLE, level="error")
    )  # that a watch broke and came back is nobody's news here
    connection = load_connection(kubeconfig=kubeconfig, context=context)
    async with Client(connection) as client, friendly_errors(connection):
        await get_server_version(client)  # or the watches would try for a minute, and not say why
        return await preview_intent(client, config, (namespace, name), now=time.time())


def _plan_offline(file: Path, state: Path, config: OperatorConfig) -> PlanPreview:
    found, profiles = _read_manifests(file)
    namespace = found.metadata.namespace or "default"

    def how(measured_by: str) -> KpiDefinition:
        profile = profiles.get(resolve_profile_key(measured_by, namespace)[1])
        if profile is None:
            raise TrimtabError(f"{file}: there is no KPIProfile {measured_by}; put it beside the Intent")
        return resolve_kpi(profile.spec, config.intents.default_queries, rules=config.query_rules)

    name = f"{namespace}/{found.metadata.name}"
    goal = build_goal(name, found.spec, namespace=namespace, resolve_kpi=how, settings=config.intents)
    now = _read_state(state)
    limits = guardrail_constraints(now, config.intents.guardrails_for(namespace), goal=goal)
    return preview_state(
        now,
        goal,
        settings=config.intents,
        limits=limits,
        now=time.time(),
        clock=time.perf_counter,
        remarks=tuple(explain_no_release(now, goal)),
    )


def _read_manifests(file: Path) -> tuple[Intent, dict[str, KPIProfile]]:
    try:
        found = [each for each in load_yaml_documents(file.read_text()) if each]
    except OSError as error:
        raise TrimtabError(f"--file {file}: cannot be read: {error.strerror}") from None
    except (ValueError, yaml.YAMLError) as error:
        raise TrimtabError(f"--file {file}: is not valid YAML: {error}") from None
    manifests = [each for each in found if isinstance(each, dict)]
    intents = [Intent.read(each, origin=str(file)) for each in manifests if each.get("kind") == "Intent"]
    if len(intents) != 1:
        raise TrimtabError(f"{file}: must have one Intent, and has {len(intents)}")
    profiles = [
        KPIProfile.read(each, origin=str(file)) for each in manifests if each.get("kind") == "KPIProfile"
    ]
    return intents[0], {each.metadata.name or "": each for each in profiles}


_RENAMED_FIELDS = {"closed": "excluded_nodes", "memory_usual": "memory_median", "spread": "log_spread"}
"""Fields of a state file by their names in the first version, which are still read."""


def _read_state(file: Path) -> TargetState:
    try:
        written = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        return msgspec.convert(
            {_RENAMED_FIELDS.get(name, name): value for name, value in written.items()}, TargetState
        )
    except OSError as error:
        raise TrimtabError(f"--state {file}: cannot be read: {error.strerror}") from None
    except DECODE_ERRORS as error:
        raise TrimtabError(f"--state {file}: is not a valid state: {error}") from None
