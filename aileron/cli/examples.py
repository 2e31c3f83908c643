"""The two examples at the end of each command's help page: complete command lines, the commonest use first.

Imported only for a help page, so that no other command pays for it. All lines are about one home, so that a person who reads
several pages meets the same names: the connector `github://you/mail`, its source in `./mail`, and the actions that call it.

Rules
- Two lines for each command, in the order of COMMANDS, of at most 76 characters: a help page indents them on 80 columns.
- The command line accepts each line as it stands. Ids have the form that lists show at a terminal: the last eight digits.
- No line has a secret value. Hosts are below example.com.
- A command without any argument or option has only one form. Its second line adds what a person types next, after `&&`.

Not here: the commands and their order (table.py), the layout of a page (help_page.py).
"""

from __future__ import annotations

from typing import Final

__all__ = ["EXAMPLES"]

EXAMPLES: Final[dict[str, tuple[str, str]]] = {
    "run": (
        'aileron run send-mail to=ann@example.com subject=Lunch body="At one?"',
        "aileron run send-mail --args @mail.json --dry-run",
    ),
    "setup": (
        "aileron setup",
        "aileron setup --status",
    ),
    "demo": (
        "aileron demo",
        "aileron demo --yes --keep",
    ),
    "demo-server": (
        "aileron demo-server",
        "aileron demo-server --port 8766",
    ),
    "approve": (
        "aileron approve 5c2e91e5",
        'aileron approve 5c2e91e5 08d317fa --reason "weekly report"',
    ),
    "deny": (
        "aileron deny 5c2e91e5",
        'aileron deny 5c2e91e5 --reason "send it to Ann, not to everybody"',
    ),
    "approval list": (
        "aileron approval list",
        "aileron approval list --json",
    ),
    "approval show": (
        "aileron approval show 5c2e91e5",
        "aileron approval show 5c2e91e5 --full",
    ),
    "approval edit": (
        "aileron approval edit 5c2e91e5",
        "aileron approval edit 5c2e91e5 --args @mail.json",
    ),
    "approval ask": (
        'aileron approval ask 5c2e91e5 "Why a second mail to Ann?"',
        "aileron approval ask 5c2e91e5",
    ),
    "approval cancel": (
        "aileron approval cancel 5c2e91e5",
        "aileron approval cancel 5c2e91e5 --json",
    ),
    "console": (
        "aileron console",
        "aileron console --theme high-contrast",
    ),
    "launch": (
        "aileron launch claude",
        "aileron launch claude --jail --allow-host npm",
    ),
    "sessions list": (
        "aileron sessions list",
        "aileron sessions list --json",
    ),
    "sessions show": (
        "aileron sessions show 022ead36",
        "aileron sessions show 022ead36 --json",
    ),
    "sessions new": (
        "aileron sessions new --for 8h",
        "aileron sessions new --for 8h --agent box --only tag:mail",
    ),
    "sessions end": (
        "aileron sessions end 022ead36",
        "aileron sessions end 022ead36 --json",
    ),
    "sessions changes": (
        "aileron sessions changes",
        "aileron sessions changes 022ead36 --json",
    ),
    "sessions apply": (
        "aileron sessions apply 022ead36",
        "aileron sessions apply 022ead36 src README.md",
    ),
    "sessions discard": (
        "aileron sessions discard 022ead36",
        "aileron sessions discard 022ead36 src README.md",
    ),
    "mcp config": (
        "aileron mcp config claude",
        "aileron mcp config codex",
    ),
    "open approval": (
        "aileron open approval 5c2e91e5",
        "aileron open approval 5c2e91e5 --print",
    ),
    "open approvals": (
        "aileron open approvals",
        "aileron open approvals --print",
    ),
    "grant add": (
        "aileron grant add move-mail --uses 20 --for 8h",
        "aileron grant add move-mail --uses 20 --for 8h --equals to_folder=Archive",
    ),
    "grant list": (
        "aileron grant list",
        "aileron grant list --json",
    ),
    "grant revoke": (
        "aileron grant revoke 7d304f2a",
        "aileron grant revoke 7d304f2a --yes",
    ),
    "add": (
        "aileron add mail me@example.com",
        "aileron add caldav --as work --host calendar.example.com --actions reads",
    ),
    "services": (
        "aileron services",
        "aileron services --json",
    ),
    "update": (
        "aileron update",
        "aileron update work-mail --yes",
    ),
    "remove": (
        "aileron remove github",
        "aileron remove work-caldav --yes",
    ),
    "approver init": (
        "aileron approver init",
        "aileron approver init --replace",
    ),
    "approver status": (
        "aileron approver status",
        "aileron approver status --json",
    ),
    "approver passkeys": (
        "aileron approver passkeys",
        "aileron approver passkeys --json",
    ),
    "approver revoke-passkey": (
        "aileron approver revoke-passkey phone",
        'aileron approver revoke-passkey "security key"',
    ),
    "action new": (
        "aileron action new send-mail",
        "aileron action new list-mail --connector github://you/mail --effect read",
    ),
    "action schema": (
        "aileron action schema > action.schema.json",
        "aileron action schema --manifest > manifest.schema.json",
    ),
    "action validate": (
        "aileron action validate send-mail.md",
        "aileron action validate send-mail.md list-mail.md move-mail.md",
    ),
    "action add": (
        "aileron action add github://you/mail/actions/send-mail@1.2.0",
        "aileron action add send-mail.md --force",
    ),
    "action add-suite": (
        "aileron action add-suite github://you/mail/suite.toml@v1.2.0",
        "aileron action add-suite suite.toml --force",
    ),
    "action list": (
        "aileron action list",
        "aileron action list --json",
    ),
    "action show": (
        "aileron action show send-mail",
        "aileron action show send-mail --json",
    ),
    "action update": (
        "aileron action update send-mail",
        "aileron action update send-mail --version 1.2.0",
    ),
    "action diff": (
        "aileron action diff send-mail",
        "aileron action diff send-mail --version 1.2.0",
    ),
    "action enable": (
        "aileron action enable send-mail",
        "aileron action enable move-mail",
    ),
    "action disable": (
        "aileron action disable send-mail",
        "aileron action disable move-mail",
    ),
    "action resume": (
        "aileron action resume send-mail",
        "aileron action resume send-mail --unchanged",
    ),
    "action remove": (
        "aileron action remove send-mail",
        "aileron action remove move-mail",
    ),
    "connector new": (
        "aileron connector new github://you/mail --host mail.example.com:443",
        "aileron connector new github://you/notes --op list_notes --op add_note",
    ),
    "connector import": (
        "aileron connector import openapi.yaml github://you/mail --all",
        "aileron connector import mcp+https://mcp.example.com/mcp github://you/notes",
    ),
    "connector test": (
        "aileron connector test ./mail",
        "aileron connector test --op list_mail --upstream http://localhost:8765",
    ),
    "connector build": (
        "aileron connector build ./mail -o mail.tar.gz",
        "aileron connector build ./mail --host mail.example.com:443 -o mail.tar.gz",
    ),
    "connector sign": (
        "aileron connector sign mail.tar.gz --key mail.signing-key",
        "aileron connector sign mail.tar.gz --key mail.signing-key --json",
    ),
    "connector release": (
        "aileron connector release --version 1.2.0 ./mail --key mail.signing-key",
        "aileron connector release --version 1.2.0 --key ../mail.signing-key -o out",
    ),
    "connector check-manifest": (
        "aileron connector check-manifest ./mail",
        "aileron connector check-manifest ./mail/manifest.toml --json",
    ),
    "connector install": (
        "aileron connector install github://you/mail@1.2.0",
        "aileron connector install ./mail --replace",
    ),
    "connector list": (
        "aileron connector list",
        "aileron connector list --json",
    ),
    "connector show": (
        "aileron connector show github://you/mail",
        "aileron connector show github://you/mail@1.2.0 --json",
    ),
    "connector check": (
        "aileron connector check",
        "aileron connector check --include-prerelease",
    ),
    "connector verify": (
        "aileron connector verify",
        "aileron connector verify --json",
    ),
    "connector remove": (
        "aileron connector remove github://you/mail@1.2.0",
        "aileron connector remove --unused",
    ),
    "sync": (
        "aileron sync",
        "aileron sync --bind-all",
    ),
    "hub search": (
        "aileron hub search send mail",
        "aileron hub search mail --kind action",
    ),
    "hub show": (
        "aileron hub show hub://you/mail",
        "aileron hub show hub://you/mail@1.2.0",
    ),
    "hub build": (
        "aileron hub build ./released",
        "aileron hub build ./released -o ./public",
    ),
    "keyring trust": (
        "aileron keyring trust github://you/mail",
        "aileron keyring trust github://you --key publisher.pub",
    ),
    "keyring list": (
        "aileron keyring list",
        "aileron keyring list --json",
    ),
    "keyring revoke": (
        "aileron keyring revoke github://you/mail",
        "aileron keyring revoke github://you --key sha256:Fj6JkXvQy0E1v5cYkq3m2w",
    ),
    "binding setup": (
        "aileron binding setup github://you/mail",
        "aileron binding setup github://you/mail --username me --secret mail-password",
    ),
    "binding list": (
        "aileron binding list",
        "aileron binding list --json",
    ),
    "binding inspect": (
        "aileron binding inspect basic/mail/home",
        "aileron binding inspect basic/mail/home --json",
    ),
    "binding rebind": (
        "aileron binding rebind basic/mail/home",
        "aileron binding rebind basic/mail/home --from pass:mail/home",
    ),
    "binding reauthorize": (
        "aileron binding reauthorize oauth2/google/home",
        "aileron binding reauthorize oauth2/google/home --no-browser",
    ),
    "binding revoke": (
        "aileron binding revoke basic/mail/home",
        "aileron binding revoke basic/mail/home --json",
    ),
    "secret set": (
        "aileron secret set mail-password",
        "aileron secret set mail-password < password.txt",
    ),
    "secret list": (
        "aileron secret list",
        "aileron secret list --json",
    ),
    "secret remove": (
        "aileron secret remove mail-password",
        "aileron secret remove webhook-key",
    ),
    "vault init": (
        "aileron vault init",
        "aileron vault init --recovery-codes",
    ),
    "vault unlock": (
        "aileron vault unlock",
        "aileron vault unlock --keyring",
    ),
    "vault lock": (
        "aileron vault lock",
        "aileron vault lock && aileron vault status",
    ),
    "vault status": (
        "aileron vault status",
        "aileron vault status --json",
    ),
    "vault rotate": (
        "aileron vault rotate",
        "aileron vault rotate --recovery-codes",
    ),
    "vault backup": (
        "aileron vault backup ~/vault-backup.json",
        "aileron vault backup ~/vault-backup.json --replace",
    ),
    "vault restore": (
        "aileron vault restore ~/vault-backup.json",
        "aileron vault restore ~/vault-backup.json --passphrase-file passphrase.txt",
    ),
    "config get": (
        "aileron config get",
        "aileron config get vault.lock_after",
    ),
    "config set": (
        "aileron config set vault.lock_after 15m",
        "aileron config set vault.lock_after --default",
    ),
    "config add": (
        "aileron config add egress.private mail.example.com:443",
        'aileron config add launch.cell.allow_hosts npm "*.example.com"',
    ),
    "config remove": (
        "aileron config remove egress.private mail.example.com:443",
        'aileron config remove launch.cell.allow_hosts npm "*.example.com"',
    ),
    "config edit": (
        "aileron config edit",
        "aileron config edit && aileron daemon restart",
    ),
    "audit list": (
        "aileron audit list",
        "aileron audit list --action send-mail --since 2h",
    ),
    "audit show": (
        "aileron audit show a1ba1d0e",
        "aileron audit show a1ba1d0e --json",
    ),
    "audit tail": (
        "aileron audit tail --follow",
        "aileron audit tail --follow --type egress.denied",
    ),
    "audit verify": (
        "aileron audit verify",
        "aileron audit verify --file ./ledger.db",
    ),
    "audit export": (
        "aileron audit export > audit.jsonl",
        "aileron audit export --format csv --since 7d -o audit.csv",
    ),
    "status": (
        "aileron status",
        "aileron status --json",
    ),
    "doctor": (
        "aileron doctor",
        "aileron doctor claude",
    ),
    "daemon start": (
        "aileron daemon start",
        "aileron daemon start && aileron status",
    ),
    "daemon stop": (
        "aileron daemon stop",
        "aileron daemon stop && aileron audit verify",
    ),
    "daemon restart": (
        "aileron daemon restart",
        "aileron daemon restart && aileron vault unlock",
    ),
    "daemon status": (
        "aileron daemon status",
        "aileron daemon status --json",
    ),
    "daemon logs": (
        "aileron daemon logs",
        "aileron daemon logs -n 200 --follow",
    ),
    "daemon install": (
        "aileron daemon install",
        "aileron daemon install && loginctl enable-linger",
    ),
    "daemon uninstall": (
        "aileron daemon uninstall",
        "aileron daemon uninstall && aileron daemon start",
    ),
    "completion": (
        "aileron completion bash > ~/.local/share/bash-completion/completions/aileron",
        "aileron completion fish > ~/.config/fish/completions/aileron.fish",
    ),
}
"""Two examples for each command, by the words that a person types after `aileron`."""
