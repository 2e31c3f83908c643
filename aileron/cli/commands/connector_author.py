"""`aileron connector new`, `test`, `sign`, `release`, `check-manifest`: what an author does before others install it.

All of it runs here, on the author's files, without daemon, home or network. `test` alone runs anything of the files, in a jail.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aileron.cli import output
from aileron.cli.commands.done import tell_packed
from aileron.cli.commands.options import AsJson, ClientId, ClientSecretFile, Hosts
from aileron.cli.problem import FAILED, Problem, local_work
from aileron.cli.publisher import KEY_VARIABLE, application, hosts, maybe_signing_key, write_new_key
from aileron.model.credential import Reach, wire_words
from aileron.model.visible import visible

if TYPE_CHECKING:
    from aileron.model.failure import Failure
    from aileron.model.manifest import ConnectorManifest, OAuth2Provider
    from aileron.model.names import Fqn, HostPort
    from aileron.registry.release import Release
    from aileron.registry.signatures import SigningKey
    from aileron.trial.bench import TrialReport

__all__ = ["check_manifest", "new", "release", "sign", "test"]

_HERE = Path()
_USES = {
    "http": "send requests to these hosts, through the supervisor",
    "tcp": "open streams to these hosts, through the supervisor",
    "log": "write lines into the log",
    "progress": "say how far it is",
    "audit": "write facts into the audit trail, in its own words",
}
"""Each host function as a person reads it."""

Key = Annotated[
    Path | None,
    typer.Option("--key", metavar="FILE", help=f"The private key, for you alone (0600); else {KEY_VARIABLE} has it."),
]
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Where manifest.toml is; here unless said.")]


class Lang(enum.StrEnum):
    """What a new connector is written in."""

    PYTHON = "python"
    C = "c"


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its full name, such as github://OWNER/REPOSITORY.")],
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="The directory to make; its last segment, here, unless said.")
    ] = None,
    op: Annotated[
        list[str] | None,
        typer.Option("--op", metavar="OP", help="An operation it has, such as delete_note; may be given again."),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="NAME:PORT", help="The service that it sends requests to.")
    ] = "api.example.com:443",
    lang: Annotated[Lang, typer.Option("--lang", help="What it is written in.")] = Lang.PYTHON,
    key: Annotated[
        Path | None,
        typer.Option("--key", metavar="FILE", help="Where the private key goes; beside the directory unless said."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the repository of a connector, which builds and passes its tests, and a key to sign it with.

    Each operation has an action and cases; what it begins with is guessed from its first word (list, get, add, change, delete …).
    The private key is not put into the repository. A key that is in FILE already is used.
    """
    from aileron.cli.template import FIRST_OPERATIONS, repository

    fqn = _repository_name(name)
    operations, service = op or FIRST_OPERATIONS[lang.value], _host(host)
    _check_operations(operations, lang)
    place = Path(fqn.path[-1]) if directory is None else directory
    key_file = place.with_name(f"{place.name}.signing-key") if key is None else key
    _check_place(place, key_file, name)
    signing_key, is_new = _key_for(key_file, may_exist=key is not None)
    try:
        made = repository(fqn, lang.value, signing_key.public, key_file.name, operations=operations, host=service)
        _write_tree(place, made)
    except BaseException:
        if is_new:
            key_file.unlink(missing_ok=True)
        raise
    told = {
        "directory": str(place),
        "name": str(fqn),
        "fingerprint": signing_key.public.fingerprint,
        "signing_key": str(key_file),
    }
    if as_json:
        output.print_json({**told, "files": sorted(made)})
    else:
        output.print_facts([(word.replace("_", " "), value) for word, value in told.items()])
    _tell_next(fqn, place, key_file, is_new=is_new)


def test(
    directory: Directory = _HERE,
    cases: Annotated[
        Path | None, typer.Option("--cases", metavar="FILE", help="The cases; tests/cases.toml of DIR unless said.")
    ] = None,
    op: Annotated[
        str | None, typer.Option("--op", metavar="OP", help="Run this operation once, instead of the cases.")
    ] = None,
    args: Annotated[str | None, typer.Option("--args", metavar="JSON", help="Its arguments, as an object.")] = None,
    upstream: Annotated[
        str | None,
        typer.Option(
            "--upstream", metavar="URL", help="A server on this machine that its requests go to: http://localhost:PORT."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the cases in tests/cases.toml, each in a real jail, with the answers that are written there.

    A request that no case expects fails it, as does one to a host that the manifest does not declare. Exit code 1 if one fails.
    """
    if op is None and (args is not None or upstream is not None):
        raise Problem.usage("--args and --upstream are for one operation: --op OP", fix="aileron connector test --help")
    if op is not None:
        if cases is not None:
            raise Problem.usage("--op and --cases exclude each other", fix="aileron connector test --help")
        _try_one(directory, op, _object(args), upstream)
        return
    _try_cases(directory, cases, as_json=as_json)


def sign(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="An archive that was built, of a connector or an action.")
    ],
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Put your signature into an archive.

    It is rewritten in place, whole or not at all; a signature that was in it is replaced.
    """
    from aileron import files
    from aileron.actions.manifest import parse_action
    from aileron.registry.release import sign as signed_with
    from aileron.registry.tarball import MAX_ARCHIVE_BYTES

    signing_key = maybe_signing_key(key)
    if signing_key is None:
        raise Problem.usage(
            f"there is no key: neither --key nor {KEY_VARIABLE}", fix=f"aileron connector sign {file} --key FILE"
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
            raise Problem.missing(f"{file}: there is no such file") from None
    found = {"file": str(file), "name": signed.name, "version": signed.version, "hash": signed.hash}
    told = {**found, "signed_by": signing_key.public.fingerprint}
    if as_json:
        output.print_json(told)
    else:
        output.print_facts([(name.replace("_", " "), value) for name, value in told.items()])


def release(
    version: Annotated[str, typer.Option("--version", metavar="X", help="The version, as SemVer: 1.2.0, without a v.")],
    directory: Directory = _HERE,
    key: Key = None,
    host: Hosts = None,
    client_id: ClientId = None,
    client_secret_file: ClientSecretFile = None,
    directory_out: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="The directory to write; it must not be there yet.")
    ] = Path("dist"),
    as_json: AsJson = False,
) -> None:
    """Make everything that a release publishes: the connector and its actions, bound, signed and checked.

    Each archive lies under the tag it is uploaded to: dist/v1.2.0/aileron.tar.gz. The sources are not changed, and
    the same ones give the same bytes.
    """
    from aileron.actions.fitting import check_action
    from aileron.actions.manifest import parse_action
    from aileron.registry.release import check_key_is_published, write_release
    from aileron.registry.release import release as released_from

    command = "aileron connector release"
    bound_hosts, bound_application = hosts(host, command), application(client_id, client_secret_file, command)
    signing_key = maybe_signing_key(key)
    with local_work():
        done = released_from(
            directory,
            version,
            parse=parse_action,
            fits=check_action,
            key=signing_key,
            hosts=bound_hosts,
            application=bound_application,
        )
        is_published = signing_key is None or check_key_is_published(directory, done, signing_key)
        write_release(done, directory_out)
    if as_json:
        output.print_json(_as_json(done, directory_out))
    else:
        output.print_table(
            ("FILE", "HASH"), [(str(directory_out / one.path), one.hash) for one in done.artifacts], empty=""
        )
        tell_packed(done.built)
    _tell_signed(done, is_published=is_published)


def check_manifest(
    path: Annotated[
        Path, typer.Argument(metavar="FILE|DIR", help="A manifest, or the directory that has manifest.toml.")
    ],
    as_json: AsJson = False,
) -> None:
    """Check a manifest, without a daemon, and say what the connector would be allowed.

    Placeholders may stand.
    """
    from aileron import files
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
            raise Problem.missing(f"{file}: there is no such file") from None
        manifest = parse_connector_manifest(data, file=str(file), allow_unbound=True)
    facts = _allowed(manifest, is_unbound=UNBOUND_HOSTS.encode() in data)
    if as_json:
        output.print_json({name.replace(" ", "_"): value for name, value in facts if value is not None})
    else:
        output.print_facts(facts)


def _repository_name(text: str) -> Fqn:
    """A whole repository's: what is made has the key and the workflow at its top."""
    from aileron.model.names import Fqn

    if "://" not in text:
        raise Problem.usage(f"{text!r} is not a full name", fix=f"aileron connector new github://OWNER/{text}")
    try:
        name = Fqn.parse(text)
    except ValueError as error:
        raise Problem.usage(str(error), fix="aileron connector new --help") from None
    if len(name.path) != 2:
        whole = f"{name.scheme}://{'/'.join(name.path[:2])}"
        raise Problem.usage(
            f"{name} is a place in a repository, and `new` makes a whole one", fix=f"aileron connector new {whole}"
        )
    return name


def _check_operations(operations: Sequence[str], lang: Lang) -> None:
    from aileron.cli.template import check_operation

    for number, one in enumerate(operations):
        if one in operations[:number]:
            raise Problem.usage(f"--op {one} is given twice")
        try:
            check_operation(one, lang.value)
        except ValueError as error:
            raise Problem.usage(f"--op {error}") from None


def _host(text: str) -> HostPort:
    from aileron.model.names import HostPort

    try:
        return HostPort.parse(text)
    except ValueError as error:
        raise Problem.usage(f"--host {error}") from None


def _check_place(directory: Path, key_file: Path, name: str) -> None:
    """Return if the directory can be made, and the key's file is not in it."""
    if os.path.lexists(directory):
        raise Problem.usage(f"{directory} is there already", fix=f"aileron connector new {name} DIR")
    if key_file.absolute().resolve().is_relative_to(directory.absolute().resolve()):
        why = "what is in the repository is published"
        raise Problem.usage(f"--key {key_file} is inside the repository", why=why, fix="give a FILE outside of it")


def _key_for(file: Path, *, may_exist: bool) -> tuple[SigningKey, bool]:
    """The key in a file that was named and is there, or a new one in a new file; and whether it is new."""
    from aileron.registry.signatures import SigningKey

    if may_exist and os.path.lexists(file):
        found = maybe_signing_key(file)
        assert found is not None  # a file was given
        return found, False
    made = SigningKey.generate()
    write_new_key(file, made)
    return made, True


def _write_tree(directory: Path, made: dict[str, bytes]) -> None:
    """All of it or nothing."""
    import secrets
    import shutil

    staged = directory.with_name(f".{directory.name}.{secrets.token_hex(8)}.tmp")
    try:
        for path, data in made.items():
            (staged / path).parent.mkdir(parents=True, exist_ok=True)
            (staged / path).write_bytes(data)
        staged.rename(directory)
    except OSError as error:
        raise Problem.usage(f"{directory} cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _tell_next(name: Fqn, directory: Path, key_file: Path, *, is_new: bool) -> None:
    output.note(
        f"\nthe private key is {'' if is_new else 'the one that was '}in {visible(str(key_file))}, not in the repository: keep it"
    )
    if name.scheme == "github":
        output.note(f"CI signs with it:  gh secret set {KEY_VARIABLE} < {visible(str(key_file))}")
    else:
        output.note(
            f"there is no workflow for {name.scheme}: run `aileron connector release` with --key, or the key in {KEY_VARIABLE}"
        )
    output.note(f"next:              aileron connector test {visible(str(directory))}")


def _try_one(directory: Path, op: str, args: dict[str, Any], upstream: str | None) -> None:
    from aileron.trial.bench import Bench, LocalUpstream, artifact_of

    try:
        server = None if upstream is None else LocalUpstream.parse(upstream)
    except ValueError as error:
        raise Problem.usage(f"--upstream {error}", fix="aileron connector test --help") from None
    with local_work(), Bench(artifact_of(directory, () if server is None else (server.address,))) as bench:
        done = bench.call(op, args, server)
    for line in done.log:
        output.note(output.GUTTER + visible(line))
    if server is None and done.failure is not None and done.failure.failure_class.value == "not_found":
        raise Problem.usage(
            f"{op} asks for something, and nothing answers", why=done.failure.message, fix="give --upstream URL"
        )
    if done.failure is not None:
        raise _failed(done.failure, op)
    output.print_result(done.output)


def _failed(failure: Failure, op: str) -> Problem:
    from aileron.model.failure import AileronError

    return Problem.of_failure(
        AileronError(
            failure.failure_class,
            failure.message,
            boundary=failure.boundary,
            details={
                **failure.details,
                "step": op,
            },  # which says that a connector may have written it: no fix is read out of it
        )
    )


def _try_cases(directory: Path, file: Path | None, *, as_json: bool) -> None:
    from aileron.trial.bench import Bench, artifact_of
    from aileron.trial.cases import CASES, parse_cases

    path = directory / CASES if file is None else file
    with local_work():
        found = parse_cases(_text_of(path), file=str(path))
        with Bench(artifact_of(directory, found.hosts)) as bench:
            reports = bench.run(found.cases)
    failed = [report for report in reports if report.problem is not None]
    if as_json:
        told = [
            {
                "case": one.case,
                "passed": one.problem is None,
                "problem": one.problem,
                "ms": round(one.ms, 1),
                "log": one.log,
            }
            for one in reports
        ]
        output.print_json({"passed": len(reports) - len(failed), "failed": len(failed), "cases": told})
    else:
        rows = [(one.case, "passed" if one.problem is None else "FAILED", f"{one.ms:.0f} ms") for one in reports]
        output.print_table(("CASE", "RESULT", "TIME"), rows, empty="", folds=("CASE",))
        _tell_failed(failed)
    if failed:
        raise typer.Exit(FAILED)


def _tell_failed(failed: Sequence[TrialReport]) -> None:
    for report in failed:
        output.note(f"\n{visible(report.case)}: {visible(report.problem or '')}")
        for line in report.log:
            output.note(output.GUTTER + visible(line))


def _object(text: str | None) -> dict[str, Any]:
    import json

    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        raise Problem.usage(f"--args is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Problem.usage("--args is not an object, such as '{\"limit\": 2}'")
    return found


def _text_of(path: Path) -> str:
    """Of a small file of the author's own."""
    from aileron.model.document import MAX_DOCUMENT_BYTES

    try:
        with path.open("rb") as opened:
            return opened.read(MAX_DOCUMENT_BYTES + 1).decode()
    except FileNotFoundError:
        raise Problem.missing(f"{path}: there is no such file", fix="aileron connector test --help") from None
    except OSError as error:
        raise Problem.usage(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise Problem.usage(f"{path}: not UTF-8 at byte {error.start}") from None


def _as_json(done: Release, directory: Path) -> dict[str, Any]:
    artifacts = [
        {
            "kind": one.kind,
            "name": one.name,
            "version": one.version,
            "tag": one.tag,
            "file": str(directory / one.path),
            "hash": one.hash,
            "bytes": len(one.archive),
        }
        for one in done.artifacts
    ]
    return {"signed_by": done.signed_by, "artifacts": artifacts}


def _tell_signed(done: Release, *, is_published: bool) -> None:
    if done.signed_by is None:
        output.note(f"UNSIGNED: an install says so, and some refuse it\n  fix: give --key FILE, or set {KEY_VARIABLE}")
        return
    output.note(f"signed by {done.signed_by}")
    if not is_published:
        output.note(
            "there is no keys/publisher.pub: until the repository has the public half there, nobody can trust the signature\n"
            "  fix: openssl pkey -in KEY -pubout -out keys/publisher.pub"
        )


def _allowed(manifest: ConnectorManifest, *, is_unbound: bool) -> list[tuple[str, Any]]:
    """What the connector would be allowed, in words; None for what does not apply."""
    from aileron.registry.placeholders import UNRELEASED

    limits, need = manifest.limits, manifest.credential
    more = " and processes of its own" if limits.subprocess else ""
    reaches: Any = [str(host) for host in manifest.hosts] or "nothing"
    if not manifest.hosts and is_unbound:
        reaches = "the hosts that are given when it is built"
    return [
        ("name", str(manifest.name)),
        ("version", "set at the release" if manifest.version == UNRELEASED else manifest.version),
        ("publisher", manifest.publisher),
        ("reaches", reaches),
        ("credential", "none" if need is None else f"{need.kind}: {need.scope}"),
        ("sent as", None if need is None else wire_words(Reach.of(manifest).wire)),
        ("signs in at", None if manifest.oauth2 is None else manifest.oauth2.authorize_url),
        ("client", None if manifest.oauth2 is None else _client(manifest.oauth2)),
        ("scopes", None if manifest.oauth2 is None else list(manifest.oauth2.scopes)),
        ("may", [_USES[function] for function in sorted(manifest.imports)] or "compute, and nothing else"),
        ("limits", f"{limits.memory_mb} MiB, {limits.timeout_s} s for one operation{more}"),
        ("steps", None if manifest.idempotent_by_default else "are never repeated by themselves"),
        ("intents", list(manifest.intents) or None),
    ]


def _client(provider: OAuth2Provider) -> str:
    from aileron.registry.placeholders import UNBOUND_CLIENT

    return "set at the release" if provider.client_id == UNBOUND_CLIENT else provider.client_id
