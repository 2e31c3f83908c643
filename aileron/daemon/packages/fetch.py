"""Fetches published artifacts, so that a person can be asked about them. Each request is one job, which lasts until the
installation.

    requested → running (forge, signature, hash, staging) → ready, or failed → installed, or waits for a person, or cancelled

Runs in the daemon, behind the operator's socket. A client polls the job for its progress, shows the person what would be
installed, and then installs. Fetched archives are in staging (registry/staging.py), named by their pin, and are checked again
before installation.

Rules
- A fetch is recorded before the forge is asked, and its end afterwards.
- Fetched artifacts are not run, and are not put into the store before a person has approved them.
- A version that was once installed must keep its bytes: if its forge now has other bytes, the fetch fails with an error that
  names both hashes.
- An action is fetched with the connectors that it is pinned to and that are not installed. The action file contains the hashes
  of its connectors.
- MAX_JOBS jobs are stored; jobs that wait to be installed are forgotten last, together with their fetched files. MAX_RUNNING
  jobs run at once.

Source: docs/reference/forges.md, docs/reference/http-api.md. Not here: asking a person (consent_service/consents.py), installing
(install.py), the addresses of forges (keyring.py).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

import anyio
import anyio.abc
import msgspec
from msgspec import UNSET

from aileron.actions.fitting import check_action
from aileron.actions.manifest import parse_action
from aileron.actions.merging import difference, merged
from aileron.api.approvals import ConsentAnswer
from aileron.api.failures import ErrorBody
from aileron.api.fetches import (
    ConsentSubject,
    Download,
    Fetch,
    FetchFound,
    FetchProblem,
    FetchRequest,
    FetchStatus,
    Installed,
    SuiteRead,
)
from aileron.audit import events
from aileron.audit.moves import new_id
from aileron.daemon.consent_service.consent_checks import ConsentChecks
from aileron.daemon.consent_service.consents import ConsentService
from aileron.daemon.foundation import Foundation
from aileron.daemon.installed.install import ActionText, FoundConnector, Installer
from aileron.daemon.installed.verify import ArtifactVerifier
from aileron.daemon.packages.keyring import Forges
from aileron.daemon.secrets.credentials import parsed
from aileron.ledger.rows import EventFilter
from aileron.ledger.sqlite import MAX_ROWS
from aileron.model.canonical import sha256_digest
from aileron.model.consent import ActionFileConsent, ConnectorConsent, InstallationConsent, Subject
from aileron.model.failure import AileronError, Boundary, FailureClass
from aileron.model.manifest import ActionFile, ConnectorManifest
from aileron.model.names import OnConflict, check_pin, precedence
from aileron.model.plan import ConnectorPin
from aileron.registry.artifact import Artifact, ArtifactRequest, Trust, action_of, connector_of
from aileron.registry.consent import connector_consent, text_signature_words
from aileron.registry.forges.forge import newest
from aileron.registry.install import check_installable
from aileron.registry.suite import Suite, SuiteSource, parse_suite
from aileron.registry.suite import wanted as wanted_of
from aileron.threads import in_thread

__all__ = ["FetchJobs"]

MAX_JOBS: Final = 16
"""Maximum number of fetch jobs that are stored: a person looks at one, and a script installs a handful."""
MAX_RUNNING: Final = 4
"""Maximum number of jobs that run at once: each holds an archive in memory, at most 65 MiB."""
_JOB_S: Final = 1800.0
"""Maximum number of seconds for all downloads of one job: a large archive over a slow connection takes a quarter of an hour."""
MAX_CONNECTORS: Final = 64
"""Maximum number of connectors that one job fetches. A home with more missing connectors must be synced in several steps."""
_MAX_FILE: Final = 4096  # PATH_MAX, limits.h
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class _Connector(NamedTuple):
    """A fetched connector whose archive is in staging."""

    wanted: ArtifactRequest
    pin: ConnectorPin
    on_conflict: OnConflict


class _Action(NamedTuple):
    """A fetched action whose archive is in staging: `published` is the digest of the published file, `text` will be installed."""

    wanted: ArtifactRequest
    published: str
    text: str
    replace: bool


class _Job:
    """The state of a fetch job."""

    def __init__(self, request: FetchRequest) -> None:
        self.id: Final = new_id("fch", time.time_ns() // 1000)
        self.request: Final = request
        self.status: FetchStatus = "running"
        self.error: AileronError | None = None
        self.progress: Final[dict[str, tuple[int, int | None]]] = {}
        self.connectors: list[_Connector] = []
        self.action: _Action | None = None
        self.about_connectors: list[ConnectorConsent] = []
        self.about_action: ActionFileConsent | None = None
        self.found = FetchFound()
        self.staged: Final[set[str]] = set()
        self.scope: Final = anyio.CancelScope()
        self.over: Final = anyio.Event()

    def noting(self, name: str) -> Callable[[int, int | None], None]:
        """Return a function that stores the progress of the download of `name` in this job: the bytes received, and the
        total or None.
        """

        def note(done: int, total: int | None) -> None:
            self.progress[name] = (done, total)

        return note

    def told(self) -> Fetch:
        """Return the job's state in the form that the routes return."""
        return Fetch(
            fetch=self.id,
            what=self.request.what,
            name=self.request.name,
            status=self.status,
            progress=[Download(name=name, bytes=done, total=of) for name, (done, of) in self.progress.items()],
            consent=None if (subject := _subject(self)) is None else ConsentSubject.of(subject),
            error=UNSET if self.error is None else ErrorBody.of(self.error.failure, None),
            **msgspec.structs.asdict(self.found),
        )


class FetchJobs:
    """Service that runs the fetch jobs. One instance per daemon."""

    def __init__(
        self,
        base: Foundation,
        *,
        forges: Forges,
        consent_checks: ConsentChecks,
        consents: ConsentService,
        finding: ArtifactVerifier,
        installing: Installer,
    ) -> None:
        self._base = base
        self._forges = forges
        self._consent_checks = consent_checks
        self._consents = consents
        self._finding = finding
        self._installing = installing
        self._tasks: anyio.abc.TaskGroup | None = None
        self._jobs: dict[str, _Job] = {}

    async def serve(self) -> None:
        """Delete the files of old fetches from staging, and keep open the task group in which `begin` starts jobs. Runs
        until cancelled, which also cancels every job.
        """
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks  # before the first await: the first request may be there already
            try:
                await in_thread(self._base.staging.sweep)
            except (OSError, AileronError) as error:
                _log.error("what was fetched long ago could not be removed: %s", error)
            await anyio.sleep_forever()

    async def begin(self, request: FetchRequest) -> Fetch:
        """Begin a job. Raises AileronError (invalid_request) for an invalid name, or (busy)."""
        _check_request(request)
        running = [job for job in self._jobs.values() if not job.over.is_set()]
        if len(running) >= MAX_RUNNING:
            raise AileronError(FailureClass.BUSY, f"{MAX_RUNNING} fetches are running: try again", retriable=True)
        over = sorted((job for job in self._jobs.values() if job.over.is_set()), key=lambda job: job.status == "ready")
        for gone in over[: max(0, len(self._jobs) - MAX_JOBS + 1)]:  # the oldest first, ready ones last
            del self._jobs[gone.id]
            await self._drop(gone)
        job = _Job(request)
        self._jobs[job.id] = job
        assert self._tasks is not None  # served before any route is
        self._tasks.start_soon(self._carry_on, job)
        return job.told()

    async def show(self, fetch: str, wait_s: float = 0.0) -> Fetch:
        """Wait at most `wait_s` seconds for the end of a job, and return the job's state. Raises AileronError (not_found)."""
        job = self._job(fetch)
        with anyio.move_on_after(wait_s):
            await job.over.wait()
        return job.told()

    async def resolve(self, fetch: str, text: str) -> Fetch:
        """Use `text`, in which the person has resolved conflicts or made other edits, as the action file that an update
        installs. Return the job with its questions. Raises AileronError (not_found), or (invalid_request) if the job is not
        ready or the text belongs to another action.
        """
        job = self._job(fetch)
        async with self._base.changing:
            _check_ready(job)
            await in_thread(self._resolve_conflicts, job, text)
            await in_thread(self._describe, job)
        return job.told()

    async def install(self, fetch: str) -> Installed | ConsentAnswer:
        """Install the artifacts that the job fetched, or ask a person to approve that first.

        Raises AileronError (not_found), (invalid_request) if the job is not ready, and as registry.artifact and
        registry.install do.
        """
        job = self._job(fetch)
        async with self._base.changing:
            _check_ready(job)
            if job.found.conflicts:
                raise _conflicting(job)
            await in_thread(self._describe, job)
            subject = _subject(job)
            answer = None if subject is None else await self._consents.maybe_ask_about(subject)
            if answer is not None:
                job.status = "asked"
                return answer
            result = await self._put(job)
            job.status = "installed"
            await self._drop(job)
            return result

    async def cancel(self, fetch: str) -> Fetch:
        """Cancel a job and delete its fetched files. Artifacts that were installed, and questions that were asked, stay. Raises
        AileronError (not_found).
        """
        job = self._job(fetch)
        job.scope.cancel()
        await job.over.wait()
        async with self._base.changing:
            if job.status == "ready":
                job.status = "cancelled"
                await self._drop(job)
                await self._base.audit.note(events.FetchEnded(fetch=job.id, status="cancelled"))
        return job.told()

    async def suite(self, source: str | None, text: str | None, file: str) -> SuiteRead:
        """Read a published suite, or the `text` of a suite on this machine, whose name in messages is `file`. Return the
        actions that it would install.

        Raises AileronError as Forge.suite and registry.suite do.
        """
        if (source is None) == (text is None):
            raise AileronError(FailureClass.INVALID_REQUEST, "one of source and text is expected")
        if source is None:
            suite = await in_thread(lambda: parse_suite(text or "", file=file[:_MAX_FILE]))
            return _suite_facts(suite, wanted_of(suite, None), None)
        place = parsed(SuiteSource.parse, source)
        async with self._forges.of(place.repository.scheme) as forge:
            found = await forge.suite(place.repository, place.path, place.ref)
        at = parsed(place.at, found.ref)  # the name of its latest tag is untrusted
        suite = await in_thread(lambda: parse_suite(found.text, file=str(at)))
        return _suite_facts(suite, wanted_of(suite, at), found.ref)

    # One job

    async def _carry_on(self, job: _Job) -> None:
        """Run a job until its artifacts are fetched and its questions are known. However that ends, record the end and set the
        job's final status.
        """
        status: FetchStatus = "cancelled"
        try:
            with job.scope, anyio.fail_after(_JOB_S):
                await self._base.audit.note(
                    events.FetchStarted(fetch=job.id, what=job.request.what, name=job.request.name)
                )
                await self._fetch(job)
                status = "ready"
        except AileronError as error:
            status, job.error = "failed", error
        except TimeoutError:
            status = "failed"
            job.error = AileronError(
                FailureClass.NETWORK_ERROR,
                f"it took more than {_JOB_S:.0f} s: try again",
                boundary=Boundary.EXTERNAL,
                retriable=True,
            )
        except Exception:  # noqa: BLE001 - the end of a task: nothing foreign leaves
            _log.exception("a fetch failed unexpectedly")
            status, job.error = "failed", AileronError(FailureClass.INTERNAL_ERROR, "see `aileron daemon logs`")
        finally:
            await self._end(job, status)

    async def _end(self, job: _Job, status: FetchStatus) -> None:
        with anyio.CancelScope(shield=True):
            hashes = [connector.pin.hash for connector in job.connectors] if status == "ready" else []
            failed = None if job.error is None else job.error.failure.failure_class
            try:
                await self._base.audit.note(
                    events.FetchEnded(fetch=job.id, status=status, failure_class=failed, hashes=hashes)
                )
            except AileronError as error:  # a full disk, say: without a record nothing is installed
                status, job.error = "failed", error
            if status != "ready":
                try:
                    await self._drop(job)
                except AileronError as error:  # staging is swept at the next start
                    _log.warning("what %s fetched lies there for nothing: %s", job.id, error)
            job.status = status
            job.over.set()

    async def _fetch(self, job: _Job) -> None:
        request = job.request
        match request.what:
            case "connector":
                wanted = parsed(ArtifactRequest.parse, request.name)
                await self._fetch_connector(job, wanted, request.hash, request.on_conflict)
            case "action":
                await self._fetch_action(job, parsed(ArtifactRequest.parse, request.name))
            case "update":
                await self._fetch_update(job)
            case "sync":
                await self._fetch_missing(job)
        await in_thread(self._describe, job)

    async def _fetch_connector(
        self, job: _Job, wanted: ArtifactRequest, pinned: str | None, on_conflict: OnConflict = "refuse"
    ) -> None:
        """Fetch a connector into staging. Raises AileronError (hash_mismatch) if `pinned` is given and is not the hash
        of the fetched bytes.
        """
        trust = await in_thread(self._finding.trust)
        if len(job.connectors) >= MAX_CONNECTORS:
            raise AileronError(FailureClass.BUSY, f"more than {MAX_CONNECTORS} connectors are to be fetched at once")
        archive = await self._archive(job, wanted)
        artifact = await in_thread(lambda: connector_of(archive, trust, wanted=wanted))
        if pinned is not None and artifact.pin.hash != pinned:
            if job.request.hash is not None:
                raise _not_asked_for(wanted, pinned, artifact.pin.hash)
            raise _moved(wanted, pinned, artifact.pin.hash, "the action is pinned to")
        if on_conflict == "refuse":
            await self._check_not_moved(wanted, artifact.pin.hash)
        job.staged.add(artifact.pin.hash)
        await in_thread(self._stage_connector, artifact, archive, on_conflict)
        job.connectors.append(_Connector(wanted, artifact.pin, on_conflict))

    def _stage_connector(self, artifact: Artifact, archive: bytes, on_conflict: OnConflict) -> None:
        self._installing.check_runs_here(artifact)
        check_installable(artifact, self._base.connectors, on_conflict=on_conflict)
        self._base.staging.put(artifact.pin.hash, archive)

    async def _fetch_action(self, job: _Job, wanted: ArtifactRequest) -> None:
        """Fetch an action's published file, and the missing connectors that it is pinned to."""
        trust = await in_thread(self._finding.trust)
        published = await self._published_file(job, wanted, trust)
        if not job.request.replace:
            await self._check_file_not_moved(wanted, published.digest)
        await self._fetch_for(job, wanted, published, published.text, replace=job.request.replace)

    async def _fetch_update(self, job: _Job) -> None:
        """Fetch the newest or the requested version of an installed action, and merge the user's own edits into it."""
        request = job.request
        installed = await in_thread(lambda: self._base.actions.load(request.name))
        now = _source_of(installed)
        async with self._forges.of(now.name.scheme) as forge:
            there = await forge.versions(now.name)
        version = request.version or newest(there, prerelease=request.prerelease)
        job.found = msgspec.structs.replace(
            job.found, action=installed.name, from_=now.version, to=version or now.version, versions=list(there)
        )
        is_newer = version is not None and precedence(version) > precedence(now.version)
        if version is None or (request.version is None and not is_newer):
            job.found = msgspec.structs.replace(job.found, to=now.version, difference="")
            return
        wanted = ArtifactRequest(now.name, version)
        trust = await in_thread(self._finding.trust)
        published = await self._published_file(job, wanted, trust)
        await self._check_file_not_moved(wanted, published.digest)
        base = None if request.theirs else await self._base_of(job, now, trust)
        text, conflicts = published.text, 0
        if base is not None:
            sides = base, installed.text, published.text
            text, conflicts = await in_thread(lambda: merged(*sides))
        names = (f"{installed.name} {now.version}, as it is here", f"{installed.name} {version}, as it would be")
        job.found = msgspec.structs.replace(
            job.found,
            difference=await in_thread(lambda: difference(installed.text, text, names=names)),
            conflicts=conflicts,
            edited=base is not None and base != installed.text,
            text=text,
        )
        if conflicts:
            job.action = _Action(wanted, published.digest, text, replace=True)
            await self._fetch_needed(job, published)
            return
        await self._fetch_for(job, wanted, published, text, replace=True)

    async def _fetch_missing(self, job: _Job) -> None:
        """Fetch every connector that is missing and that an action is pinned to. If one fails, report it and continue."""
        listed = await in_thread(self._base.actions.list_actions)
        problems = [
            FetchProblem(name=entry.name, problem=entry.problem or "") for entry in listed if entry.action is None
        ]
        pins = dict.fromkeys(
            ConnectorPin(str(needed.name), needed.version, needed.hash)
            for entry in listed
            if entry.action is not None
            for needed in entry.action.connectors
        )
        there = await in_thread(self._there)
        for pin in pins:
            if pin.hash in there:
                continue
            try:
                await self._fetch_connector(job, ArtifactRequest.parse(str(pin)), pin.hash)
            except AileronError as error:
                problems.append(FetchProblem(name=str(pin), problem=error.failure.message))
        job.found = msgspec.structs.replace(job.found, problems=problems, needed=len(pins))

    async def _fetch_for(
        self, job: _Job, wanted: ArtifactRequest, published: ActionFile, text: str, *, replace: bool
    ) -> None:
        """Fetch the connectors that an action with this text needs, and check that the action can be installed."""
        action = await in_thread(lambda: self._base.actions.check_addable(text, replace=replace))
        await self._fetch_needed(job, action)
        installed = await in_thread(self._base.actions.maybe_load, action.name)
        if installed is None or installed.digest != action.digest:
            job.action = _Action(wanted, published.digest, text, replace)

    async def _fetch_needed(self, job: _Job, action: ActionFile) -> None:
        there = await in_thread(self._there)
        for needed in action.connectors:
            if needed.hash not in there:
                await self._fetch_connector(job, ArtifactRequest(needed.name, needed.version), needed.hash)

    async def _published_file(self, job: _Job, wanted: ArtifactRequest, trust: Trust) -> ActionFile:
        """Fetch the archive of the published action `wanted` into staging. Return the action."""
        archive = await self._archive(job, wanted)
        artifact = await in_thread(lambda: action_of(archive, trust, wanted=wanted, parse=parse_action))
        job.staged.add(artifact.digest)
        await in_thread(self._base.staging.put, artifact.digest, archive)
        return artifact.action

    async def _base_of(self, job: _Job, now: ArtifactRequest, trust: Trust) -> str | None:
        """Return the text of the published file `now`, from which the installed action was made. None if that file is no
        longer available; the user's edits are then not merged.
        """
        kept = await in_thread(self._base.published.maybe_get, str(now))
        if kept is not None:
            with contextlib.suppress(
                AileronError
            ):  # others can write there: a text that is not as it was published is no base
                await self._check_file_not_moved(now, sha256_digest(kept.encode()))
                return kept
        try:
            archive = await self._archive(job, now)
            found = await in_thread(lambda: action_of(archive, trust, wanted=now, parse=parse_action))
            await self._check_file_not_moved(now, found.digest)
            return found.action.text
        except AileronError as error:
            why = f"{now} is no longer available ({error.failure.message}): your edits are not merged"
            job.found = msgspec.structs.replace(job.found, unmerged=why)
            return None

    async def _archive(self, job: _Job, wanted: ArtifactRequest) -> bytes:
        async with self._forges.of(wanted.name.scheme) as forge:
            return await forge.archive(wanted.name, wanted.version, job.noting(str(wanted)))

    # Earlier installations

    async def _check_not_moved(self, wanted: ArtifactRequest, pin_hash: str) -> None:
        """Check that the version `wanted`, if it was installed before, had the hash `pin_hash` then too. Raises
        AileronError (hash_mismatch) if its forge now has other bytes.
        """
        earlier = EventFilter(connector=str(wanted.name), limit=MAX_ROWS)
        for row in await self._base.ledger.read(lambda look: look.events_of(events.ConnectorInstalled, earlier)):
            if row.event.source == str(wanted) and row.event.hash != pin_hash:
                raise _moved(wanted, row.event.hash, pin_hash, "it was installed from there as")

    async def _check_file_not_moved(self, wanted: ArtifactRequest, digest: str) -> None:
        earlier = EventFilter(action=wanted.name.path[-1], limit=MAX_ROWS)
        for row in await self._base.ledger.read(lambda look: look.events_of(events.ActionAdded, earlier)):
            published = row.event.published
            if row.event.source == str(wanted) and published is not None and published != digest:
                raise _moved(wanted, published, digest, "it was installed from there as")

    # Questions, and installation after consent

    def _describe(self, job: _Job) -> None:
        """Set the subjects of the job's question: the consents that its installation needs in the current state of the home."""
        found = self._found(job)
        coming = {connector.artifact.pin: connector.artifact.manifest for connector in found}
        job.about_connectors = [self._about_connector(connector) for connector in found]
        job.about_action = None
        if job.action is not None and not job.found.conflicts:
            job.about_action = self._about_action(job.action, coming)

    def _about_connector(self, found: FoundConnector) -> ConnectorConsent:
        installed = self._finding.installed(found.artifact.manifest.name)
        return connector_consent(found.artifact, found.source, found.on_conflict, installed=installed)

    def _about_action(self, wanted: _Action, coming: dict[ConnectorPin, ConnectorManifest]) -> ActionFileConsent:
        published = self._finding.action(wanted.wanted, wanted.published)
        action = parse_action(wanted.text, file="the new action")
        check_action(
            action, lambda pin: coming.get(pin) or self._base.connectors.maybe_manifest(pin), file=str(wanted.wanted)
        )
        subject = self._consent_checks.consent_to(
            action,
            install=True,
            replace=wanted.replace,
            before=self._base.actions.maybe_load(action.name),
            coming=coming,
        )
        return msgspec.structs.replace(
            subject,
            fetched=str(wanted.wanted),
            published=wanted.published,
            signature=text_signature_words(published.signed, wanted.text, wanted.published),
        )

    async def _put(self, job: _Job) -> Installed:
        """Install the job's artifacts now. Called when no question is left to ask."""
        found = await in_thread(self._found, job)
        return await self._installing.put_together(found, await in_thread(self._texts, job))

    def _texts(self, job: _Job) -> list[ActionText]:
        if job.action is None:
            return []
        published = self._finding.action(job.action.wanted, job.action.published)
        return [ActionText(job.action.text, job.action.replace, str(job.action.wanted), published.action.text)]

    def _found(self, job: _Job) -> list[FoundConnector]:
        """Return the job's connectors that are still not installed; another job may have installed some of them."""
        there = self._there()
        job.connectors = [connector for connector in job.connectors if connector.pin.hash not in there]
        return [
            self._finding.connector(connector.wanted, connector.pin.hash, connector.on_conflict)
            for connector in job.connectors
        ]

    def _there(self) -> set[str]:
        """Return the pin hashes of the installed connectors that are undamaged and, if there is an approver, approved."""
        entries = self._base.connectors.list_connectors()
        return {entry.hash for entry in entries if entry.pin is not None and self._finding.is_installed(entry.pin)}

    def _resolve_conflicts(self, job: _Job, text: str) -> None:
        """Use `text`, which a person made from the update of an action, as the file that the job installs. Raises
        AileronError if the text is not an action file, has another name or source, or is pinned to a connector that is
        neither installed nor fetched.
        """
        if job.action is None:
            raise AileronError(FailureClass.INVALID_REQUEST, f"{job.id} fetched no action", boundary=Boundary.USER)
        action = self._base.actions.check_addable(text, replace=True)
        if action.name != job.found.action or action.source != str(job.action.wanted):
            raise AileronError(
                FailureClass.INVALID_REQUEST,
                f"the text has to be of {job.found.action} with source = {str(job.action.wanted)!r}",
                boundary=Boundary.ACTION,
            )
        coming = {connector.pin.hash for connector in job.connectors}
        there = self._there()
        missing = [str(need.name) for need in action.connectors if need.hash not in coming | there]
        if missing:
            raise AileronError(
                FailureClass.INVALID_REQUEST,
                f"the text is pinned to what is neither installed nor fetched: {', '.join(missing)}",
                boundary=Boundary.ACTION,
            )
        job.action = job.action._replace(text=text)
        job.connectors = [
            connector for connector in job.connectors if connector.pin.hash in {need.hash for need in action.connectors}
        ]
        job.found = msgspec.structs.replace(job.found, conflicts=0, text=text)

    async def _drop(self, job: _Job) -> None:
        """Delete the job's fetched files, except files that another job has fetched too or that a question is about."""
        others = [other for other in self._jobs.values() if other is not job and other.status in ("running", "ready")]
        wanted = {kept for other in others for kept in other.staged} | await self._consents.staged()
        for digest in job.staged - wanted:
            await in_thread(self._base.staging.drop, digest)

    def _job(self, fetch: str) -> _Job:
        job = self._jobs.get(fetch)
        if job is None:
            raise AileronError(
                FailureClass.NOT_FOUND, f"no fetch {fetch[:80]!r}: start a new one", boundary=Boundary.USER
            )
        return job


def _check_ready(job: _Job) -> None:
    if job.status != "ready":
        raise AileronError(
            FailureClass.INVALID_REQUEST, f"{job.id} is {job.status}: fetch it again", boundary=Boundary.USER
        )


def _suite_facts(suite: Suite, actions: Sequence[ArtifactRequest], ref: str | None) -> SuiteRead:
    return SuiteRead(name=suite.name, description=suite.description, ref=ref, actions=list(map(str, actions)))


def _check_request(request: FetchRequest) -> None:
    """Raise AileronError (invalid_request) for a request that is evidently wrong, before a forge is asked."""
    if request.what in ("connector", "action"):
        parsed(ArtifactRequest.parse, request.name)
    if request.hash is not None:
        if request.what != "connector":
            raise AileronError(
                FailureClass.INVALID_REQUEST, "hash is for a connector: what else is fetched says its own"
            )
        parsed(check_pin, request.hash)
    if request.what == "update" and not request.name:
        raise AileronError(FailureClass.INVALID_REQUEST, "an update is of an installed action: name it")


def _source_of(action: ActionFile) -> ArtifactRequest:
    if action.source is None:
        raise AileronError(
            FailureClass.INVALID_REQUEST,
            f"action {action.name!r} does not say where it is from (source): it is your own, and has no "
            "published updates",
            boundary=Boundary.ACTION,
        )
    return parsed(ArtifactRequest.parse, action.source)


def _subject(job: _Job) -> Subject | None:
    """Return the consent that installing the job's artifacts needs: one for all of them. None if there is nothing to install."""
    match job.about_connectors, job.about_action:
        case [], action:
            return action
        case [connector], None:
            return connector
        case connectors, action:
            name = f"{len(connectors)} connectors" if action is None else action.name
            actions = () if action is None else (action,)
            return InstallationConsent(name=name, connectors=tuple(connectors), actions=actions)


def _moved(wanted: ArtifactRequest, expected: str, actual: str, why: str) -> AileronError:
    return AileronError(
        FailureClass.HASH_MISMATCH,
        f"{wanted} has changed: {why} {expected}, but its forge has {actual} now. A version whose content "
        "changes is not the version you approved: ask its publisher",
        boundary=Boundary.EXTERNAL,
        details={"expected": expected, "actual": actual},
    )


def _not_asked_for(wanted: ArtifactRequest, expected: str, actual: str) -> AileronError:
    return AileronError(
        FailureClass.HASH_MISMATCH,
        f"{wanted} is {actual}, but you requested {expected}; nothing was installed",
        boundary=Boundary.EXTERNAL,
        details={"expected": expected, "actual": actual},
    )


def _conflicting(job: _Job) -> AileronError:
    return AileronError(
        FailureClass.INVALID_REQUEST,
        f"{job.found.conflicts} conflicts between your edits and the publisher's: resolve them with "
        f"`aileron action update {job.found.action} --edit`, or discard your edits with --theirs",
        boundary=Boundary.USER,
        details={"conflicts": job.found.conflicts},
    )
