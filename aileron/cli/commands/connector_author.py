"""`aileron connector test`, `sign`, `release`, `check-manifest`: what an author does before other people install a connector.

All commands run here, on the author's files, without daemon or network. Only `test` executes any of the files, in a jail. It
also reads a home's settings, which name the certificate authority of a local server.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from aileron import files
from aileron.cli import output
from aileron.cli.commands.done import tell_packed
from aileron.cli.commands.options import AsJson, ClientId, ClientSecretFile, Hosts, Logins, Region
from aileron.cli.declared import Argument, Exit, Option
from aileron.cli.own_files import text_of
from aileron.cli.problem import FAILED, Problem, local_work, parsed
from aileron.cli.publisher import KEY_VARIABLE, application, hosts, logins, maybe_signing_key
from aileron.model.credential import Reach, wire_facts
from aileron.model.failure import AileronError, Failure
from aileron.model.json_value import JSONObject
from aileron.model.visible import visible

if TYPE_CHECKING:
    from aileron.config import Settings
    from aileron.connector_tests.bench import LocalUpstream, TrialReport
    from aileron.model.manifest import ConnectorManifest, OAuth2Provider
    from aileron.registry.release import Release

__all__ = ["check_manifest", "release", "sign", "test"]

_HERE = Path()
_HELP: Final = "aileron connector test --help"
_USES = {
    "http": "send HTTP requests to these hosts, through the daemon",
    "tcp": "open streams to these hosts, through the daemon",
    "websocket": "open WebSockets to these hosts, through the daemon",
    "log": "write to the log",
    "progress": "report progress",
    "audit": "write facts to the audit trail, marked as its own",
}
"""Descriptions of host functions for people."""

Key = Annotated[
    Path | None,
    Option("--key", metavar="FILE", help=f"Private key (mode 0600). Default: the key in {KEY_VARIABLE}."),
]
Directory = Annotated[
    Path, Argument(metavar="DIR", help="Directory with manifest.toml. Default: the current directory.")
]


def test(
    directory: Directory = _HERE,
    cases: Annotated[
        Path | None,
        Option("--cases", metavar="FILE", help="File of test cases. Default: tests/cases.toml in DIR."),
    ] = None,
    op: Annotated[
        str | None, Option("--op", metavar="OP", help="Run this operation once instead of the test cases.")
    ] = None,
    args: Annotated[
        str | None, Option("--args", metavar="JSON", help="Arguments of the operation, as a JSON object.")
    ] = None,
    upstream: Annotated[
        str | None,
        Option("--upstream", metavar="URL", help="Local server that receives its requests: http://localhost:PORT."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a connector's test cases in real jails.

    Requests get the answers recorded in the case. A case fails on a request that it does not expect, or on a host that the
    manifest does not declare. Exit code 1 means that a case failed.
    """
    if op is None and (args is not None or upstream is not None):
        raise Problem.usage("--args and --upstream require --op OP", fix=_HELP)
    if op is not None:
        if cases is not None:
            raise Problem.usage("--op and --cases cannot be used together", fix=_HELP)
        _try_one(directory, op, _object(args), upstream)
        return
    _try_cases(directory, cases, as_json=as_json)


def sign(
    file: Annotated[Path, Argument(metavar="FILE", help="Archive of a connector or an action.")],
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Sign an archive.

    The file is replaced in one step. An existing signature in it is replaced.
    """
    from aileron.actions.manifest import parse_action
    from aileron.registry.release import sign as signed_with
    from aileron.registry.tarball import MAX_ARCHIVE_BYTES

    signing_key = maybe_signing_key(key)
    if signing_key is None:
        raise Problem.usage(
            f"no signing key: give --key, or set {KEY_VARIABLE}", fix=f"aileron connector sign {file} --key FILE"
        )
    with local_work():
        try:
            with files.translated(file.parent, "cannot be opened"):
                directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                archive = files.read(directory, file, MAX_ARCHIVE_BYTES)
                signed = signed_with(archive, signing_key, parse=parse_action, file=str(file))
                mode = os.stat(file.name, dir_fd=directory, follow_symlinks=False).st_mode & 0o777
                files.replace(directory, file, signed.archive, mode)
            finally:
                os.close(directory)
        except FileNotFoundError:
            raise Problem.missing(f"no such file: {file}") from None
    found = {"file": str(file), "name": signed.name, "version": signed.version, "hash": signed.hash}
    told = {**found, "signed_by": signing_key.public.fingerprint}
    output.print_object(told, ((name.replace("_", " "), value) for name, value in told.items()), as_json=as_json)


def release(
    version: Annotated[
        str, Option("--version", metavar="X", help="Version as SemVer, such as 1.2.0, without a leading v.")
    ],
    directory: Directory = _HERE,
    key: Key = None,
    host: Hosts = None,
    login: Logins = None,
    region: Region = None,
    client_id: ClientId = None,
    client_secret_file: ClientSecretFile = None,
    directory_out: Annotated[Path, Option("-o", "--output", metavar="DIR", help="Directory to create.")] = Path("dist"),
    as_json: AsJson = False,
) -> None:
    """Build a release: the connector and its actions, signed.

    Each archive is checked, and written under the tag that you upload it to, such as dist/v1.2.0/aileron.tar.gz. The sources are
    not changed, and the same sources give the same bytes.
    """
    from aileron.actions.fitting import check_action
    from aileron.actions.manifest import parse_action
    from aileron.registry.release import check_key_is_published, write_release
    from aileron.registry.release import release as released_from

    command = "aileron connector release"
    bound_hosts, bound_application = hosts(host, command), application(client_id, client_secret_file, command)
    bound_logins, signing_key = logins(login, command), maybe_signing_key(key)
    with local_work():
        done = released_from(
            directory,
            version,
            parse=parse_action,
            fits=check_action,
            key=signing_key,
            hosts=bound_hosts,
            application=bound_application,
            logins=bound_logins,
            region=region,
        )
        is_published = signing_key is None or check_key_is_published(directory, done, signing_key)
        write_release(done, directory_out)
    if as_json:
        output.print_json(_as_json(done, directory_out))
    else:
        output.print_table(
            ("FILE", "HASH"),
            [(str(directory_out / artifact.path), artifact.hash) for artifact in done.artifacts],
            empty="",
        )
        tell_packed(done.built)
    _tell_signed(done, is_published=is_published)


def check_manifest(
    path: Annotated[Path, Argument(metavar="FILE|DIR", help="Manifest, or a directory with manifest.toml.")],
    as_json: AsJson = False,
) -> None:
    """Check a manifest and show what it would allow.

    Needs no daemon. Placeholders are accepted.
    """
    from aileron.registry.manifest import UNBOUND_HOSTS, parse_connector_manifest
    from aileron.registry.tarball import MANIFEST, MAX_BYTES

    file = path / MANIFEST if path.is_dir() else path
    with local_work():
        try:
            with files.translated(file.parent, "cannot be opened"):
                directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                data = files.read(directory, file, MAX_BYTES[MANIFEST])
            finally:
                os.close(directory)
        except FileNotFoundError:
            raise Problem.missing(f"no such file: {file}") from None
        manifest = parse_connector_manifest(data, file=str(file), allow_unbound=True)
    facts = _allowed(manifest, is_unbound=UNBOUND_HOSTS.encode() in data)
    told = {name.replace(" ", "_"): value for name, value in facts if value is not None}
    output.print_object(told, facts, as_json=as_json)


def _try_one(directory: Path, op: str, args: JSONObject, upstream: str | None) -> None:
    from aileron.connector_tests.bench import Bench, LocalUpstream, artifact_of

    server = None if upstream is None else parsed("--upstream", LocalUpstream.parse, upstream, fix=_HELP)
    with local_work(), Bench(artifact_of(directory, () if server is None else (server.address,))) as bench:
        done = bench.call(op, args, server, _settings_for(server))
    for line in done.log:
        output.note(output.GUTTER + visible(line))
    if server is None and done.failure is not None and done.failure.failure_class.value == "not_found":
        raise Problem.usage(
            f"{op} sends a request, and no server answers it", why=done.failure.message, fix="give --upstream URL"
        )
    if done.failure is not None:
        raise _failed(done.failure, op)
    output.print_result(done.output)


def _settings_for(server: LocalUpstream | None) -> Settings | None:
    """Return the home's settings, whose `egress.ca_file` verifies the certificate of `server`; None without a
    certificate.

    Raises AileronError(invalid_request) if the settings are invalid.
    """
    from aileron.config import load_settings
    from aileron.home import Home

    return None if server is None or server.is_plain else load_settings(Home.from_environment().config)


def _failed(failure: Failure, op: str) -> Problem:
    return Problem.of_failure(
        AileronError(
            failure.failure_class,
            failure.message,
            boundary=failure.boundary,
            details={
                **failure.details,
                "step": op,
            },  # a step means that a connector may have written it: no fix is taken from it
        )
    )


def _try_cases(directory: Path, file: Path | None, *, as_json: bool) -> None:
    from aileron.connector_tests.bench import Bench, artifact_of
    from aileron.connector_tests.cases import CASES, parse_cases

    path = directory / CASES if file is None else file
    with local_work():
        found = parse_cases(text_of(path, fix=_HELP), file=str(path))
        with Bench(artifact_of(directory, found.hosts)) as bench:
            reports = bench.run(found.cases)
    failed = [report for report in reports if report.problem is not None]
    if as_json:
        told = [
            {
                "case": trial.case,
                "passed": trial.problem is None,
                "problem": trial.problem,
                "ms": round(trial.ms, 1),
                "log": trial.log,
            }
            for trial in reports
        ]
        output.print_json({"passed": len(reports) - len(failed), "failed": len(failed), "cases": told})
    else:
        rows = [
            (trial.case, "passed" if trial.problem is None else "FAILED", f"{trial.ms:.0f} ms") for trial in reports
        ]
        output.print_table(("CASE", "RESULT", "TIME"), rows, empty="", folds=("CASE",))
        _tell_failed(failed)
    if failed:
        raise Exit(FAILED)


def _tell_failed(failed: Sequence[TrialReport]) -> None:
    for report in failed:
        output.note(f"\n{visible(report.case)}: {visible(report.problem or '')}")
        for line in report.log:
            output.note(output.GUTTER + visible(line))


def _object(text: str | None) -> JSONObject:
    import json

    found = parsed("--args is not JSON:", json.loads, text or "{}")
    if not isinstance(found, dict):
        raise Problem.usage("--args is not a JSON object, such as '{\"limit\": 2}'")
    return found


def _as_json(done: Release, directory: Path) -> dict[str, object]:
    artifacts = [
        {
            "kind": artifact.kind,
            "name": artifact.name,
            "version": artifact.version,
            "tag": artifact.tag,
            "file": str(directory / artifact.path),
            "hash": artifact.hash,
            "bytes": len(artifact.archive),
        }
        for artifact in done.artifacts
    ]
    return {"signed_by": done.signed_by, "artifacts": artifacts}


def _tell_signed(done: Release, *, is_published: bool) -> None:
    if done.signed_by is None:
        output.note(
            "UNSIGNED: Aileron warns when it is installed, and some homes refuse it\n  fix: give --key FILE, "
            f"or set {KEY_VARIABLE}"
        )
        return
    output.note(f"signed by {done.signed_by}")
    if not is_published:
        output.note(
            "keys/publisher.pub is missing: without the public key in the repository, nobody can trust the "
            "signature\n  fix: openssl pkey -in KEY -pubout -out keys/publisher.pub"
        )


def _allowed(manifest: ConnectorManifest, *, is_unbound: bool) -> list[tuple[str, Any]]:
    """Return the connector's permissions as labeled facts for a person. The value of a fact that does not apply is None."""
    from aileron.registry.placeholders import UNRELEASED

    limits, need = manifest.limits, manifest.credential
    more = " and its own processes" if limits.subprocess else ""
    reaches: Any = [str(host) for host in manifest.hosts] or "nothing"
    if not manifest.hosts and is_unbound:
        reaches = "the hosts given at build time"
    return [
        ("name", str(manifest.name)),
        ("version", "set at release" if manifest.version == UNRELEASED else manifest.version),
        ("publisher", manifest.publisher),
        ("reaches", reaches),
        ("credential", "none" if need is None else f"{need.kind}: {need.scope}"),
        *_sent(manifest),
        ("signs in at", None if manifest.oauth2 is None else manifest.oauth2.authorize_url),
        ("client", None if manifest.oauth2 is None else _client(manifest.oauth2)),
        ("tokens for", None if manifest.oauth2 is None else manifest.oauth2.resource),
        ("scopes", None if manifest.oauth2 is None else list(manifest.oauth2.scopes) or "none"),
        ("may", [_USES[function] for function in sorted(manifest.imports)] or "compute, and nothing else"),
        ("limits", f"{limits.memory_mb} MiB, {limits.timeout_s} s for one operation{more}"),
        ("steps", None if manifest.idempotent_by_default else "not repeated automatically"),
        ("intents", list(manifest.intents) or None),
    ]


def _sent(manifest: ConnectorManifest) -> tuple[tuple[str, Any], ...]:
    """Return facts about where a credential is sent.

    In a connector's source, the hosts of logins may be missing until the connector is built.
    """
    from aileron.registry.placeholders import UNBOUND_BUILD

    need = manifest.credential
    if need is None:
        return ()
    if need.kind == "login" and not need.logins:
        return (("logs in at", "the hosts given at build time"),)
    if need.aws and need.aws.region == UNBOUND_BUILD:
        words = (
            f"an AWS signature for {need.aws.service} in the region given at build time, without the secret access key"
        )
        return (("sent as", words),)
    return wire_facts(Reach.of(manifest).wire)


def _client(provider: OAuth2Provider) -> str:
    from aileron.registry.placeholders import UNBOUND_CLIENT

    return "set at release" if provider.client_id == UNBOUND_CLIENT else provider.client_words
