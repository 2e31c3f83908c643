"""The handlers of all kinds of consent, and the only place that chooses between them.

Runs in the daemon. Not here: building the handlers (build_consents.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple, assert_never

from aileron.daemon.consent_service.handlers.action_file_consent import ActionFileHandler
from aileron.daemon.consent_service.handlers.binding_consent import BindingHandler
from aileron.daemon.consent_service.handlers.connector_consent import ConnectorHandler
from aileron.daemon.consent_service.handlers.grant_consent import GrantHandler
from aileron.daemon.consent_service.handlers.handler import ConsentHandler, S
from aileron.daemon.consent_service.handlers.host_consent import HostHandler
from aileron.daemon.consent_service.handlers.installation_consent import InstallationHandler
from aileron.daemon.consent_service.handlers.passkey_consent import PasskeyHandler
from aileron.daemon.consent_service.handlers.secret_consent import SecretHandler
from aileron.daemon.consent_service.handlers.settings_consent import SettingsHandler
from aileron.daemon.consent_service.handlers.tool_change_consent import ToolChangeHandler
from aileron.daemon.consent_service.handlers.trusted_key_consent import TrustedKeyHandler
from aileron.model.consent import (
    ActionFileConsent,
    BindingConsent,
    ConnectorConsent,
    GrantConsent,
    HostConsent,
    InstallationConsent,
    PasskeyConsent,
    SecretConsent,
    SettingsConsent,
    Subject,
    ToolChangeConsent,
    TrustedKeyConsent,
)

__all__ = ["ConsentHandlers"]


class ConsentHandlers(NamedTuple):
    """The handlers, by kind of consent."""

    action_files: ActionFileHandler
    connectors: ConnectorHandler
    bindings: BindingHandler
    installations: InstallationHandler
    secrets: SecretHandler
    grants: GrantHandler
    trusted_keys: TrustedKeyHandler
    settings: SettingsHandler
    passkeys: PasskeyHandler
    tool_changes: ToolChangeHandler
    hosts: HostHandler

    def of(self, subject: Subject) -> ConsentHandler[Any]:
        """Return the handler for this subject."""
        match subject:
            case ActionFileConsent():
                return _for(subject, self.action_files)
            case ConnectorConsent():
                return _for(subject, self.connectors)
            case BindingConsent():
                return _for(subject, self.bindings)
            case InstallationConsent():
                return _for(subject, self.installations)
            case SecretConsent():
                return _for(subject, self.secrets)
            case GrantConsent():
                return _for(subject, self.grants)
            case TrustedKeyConsent():
                return _for(subject, self.trusted_keys)
            case SettingsConsent():
                return _for(subject, self.settings)
            case PasskeyConsent():
                return _for(subject, self.passkeys)
            case ToolChangeConsent():
                return _for(subject, self.tool_changes)
            case HostConsent():
                return _for(subject, self.hosts)
            case impossible:
                assert_never(impossible)


def _for(_subject: S, handler: ConsentHandler[S]) -> ConsentHandler[Any]:
    """Return `handler`. The signature makes the type checker compare the handler's kind with the subject's."""
    return handler
