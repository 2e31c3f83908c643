"""Tests of `aileron sessions`: tokens made by hand, and which session asked a question."""

from __future__ import annotations

import re

from tests.launch.desk import Desk
from tests.support.attendant import Attendant


def test_a_session_token_made_by_command_is_printed_once_and_opens_a_session(desk: Desk) -> None:
    """The token is alone on standard output, ready for a variable; how to use it is on standard error."""
    said = desk.aileron("sessions", "new", "--for", "1h", "--agent", "robot")
    token = said.out.strip()
    shown = desk.daemon.agent.request("GET", "/v1/actions", headers={"Authorization": f"Bearer {token}"})
    session = desk.sessions()[0]

    assert said.code == 0, said
    assert re.fullmatch(r"ail_[A-Za-z0-9_-]{43}", token)
    assert shown.status == 200
    assert (session["agent"], session["folder"], session["status"]) == ("robot", str(desk.folder), "open")
    assert "AILERON_SESSION_TOKEN" in said.err
    assert f"aileron sessions end {session['id']}" in said.err
    assert token not in said.err + desk.aileron("sessions", "show", session["id"], "--json").out


def test_a_session_token_made_by_command_can_be_limited_to_some_actions(desk: Desk) -> None:
    """An agent with this token sees only those."""
    made = desk.aileron("sessions", "new", "--for", "1h", "--only", "no-such-*", "--json").json
    shown = desk.daemon.agent.request("GET", "/v1/actions", headers={"Authorization": f"Bearer {made['token']}"})

    assert made["only"] == ["no-such-*"]
    assert shown.body == {"actions": []}
    desk.aileron("sessions", "end", made["id"])


def test_an_ended_session_accepts_no_requests(desk: Desk) -> None:
    """The last characters of its id name it; ending it again changes nothing."""
    made = desk.aileron("sessions", "new", "--for", "1h", "--json").json
    shown = {"Authorization": f"Bearer {made['token']}"}
    before = desk.daemon.agent.request("GET", "/v1/actions", headers=shown)
    ended = desk.aileron("sessions", "end", made["id"][-8:])
    after = desk.daemon.agent.request("GET", "/v1/actions", headers=shown)
    again = desk.aileron("sessions", "end", made["id"], "--json")

    assert (before.status, after.status) == (200, 401)
    assert (ended.code, again.code) == (0, 0)
    assert again.json["status"] == "ended"


def test_sessions_are_listed_with_their_outcome(desk: Desk) -> None:
    """A pipe gets tabs, and a terminal a table with titles."""
    desk.aileron("launch", "goose", STAND_IN="exit:3")
    newest = desk.aileron("sessions", "list").out.splitlines()[0].split("\t")
    at_terminal = desk.at_terminal("sessions", "list").out
    shown = desk.aileron("sessions", "show", newest[0]).out

    assert newest[1:3] == ["goose", "ended, 3"]
    assert newest[4:] == ["0", str(desk.folder)]
    assert "FOLDER" in at_terminal
    assert "exit code\t3" in shown
    assert newest[0] in [entry["id"] for entry in desk.aileron("sessions", "list", "--json").json["sessions"]]


def test_a_session_in_a_cell_is_shown_with_the_hosts_it_can_reach(desk: Desk) -> None:
    """The list and the single view both show them; a session without a cell shows no hosts."""
    with Attendant(desk.daemon.path) as attendant:
        hosts = ["example.com", "*.example.org:8443", "example.net"]
        made = attendant.open(hosts=hosts, ask=True)
    with Attendant(desk.daemon.path) as attendant:
        bare = attendant.open()
    other = desk.aileron("sessions", "new", "--for", "1h", "--json").json
    listed = {line.split("\t")[0]: line.split("\t")[5:] for line in desk.aileron("sessions", "list").out.splitlines()}

    def shown(session: str) -> list[str]:
        return [line for line in desk.aileron("sessions", "show", session).out.splitlines() if "host" in line]

    assert listed[made["id"]] == ["/srv/work", "cell: example.com, *.example.org:8443 and 1 more"]
    assert listed[bare["id"]] == ["/srv/work", "cell: no hosts"]
    assert listed[other["id"]] == [str(desk.folder)]
    assert "[cell: example.com, *.example.org:8443 and 1 more] /srv/work" in desk.at_terminal("sessions", "list").out
    assert shown(made["id"]) == ["hosts\t" + "\t".join(hosts), "other hosts\tyou are asked"]
    assert shown(bare["id"]) == ["hosts\tnone", "other hosts\trefused"]
    assert shown(other["id"]) == []
    assert "agent\tclaude, in a cell" in desk.aileron("sessions", "show", made["id"]).out
    desk.aileron("sessions", "end", other["id"])


def test_a_list_of_sessions_fits_a_terminal(desk: Desk) -> None:
    """The agent has the longest name and exit code: a session's facts are on one line, with its folder below."""
    desk.aileron("launch", "opencode", STAND_IN="exit:130")
    lines = desk.at_terminal("sessions", "list", NO_COLOR="1").out.splitlines()

    assert len(lines) == 2 * (1 + len(desk.sessions()))
    assert max(len(line) for line in lines[::2]) <= 80
    assert lines[3] == f"  {desk.folder}"


def test_invalid_arguments_to_the_session_commands_are_refused(desk: Desk) -> None:
    """They are too long or too short a time, an unknown session, a name that is not valid."""
    answers = {
        words: desk.aileron("sessions", *words.split())
        for words in (
            "new --for 8d",
            "new --for soon",
            "new --for 1s",
            "new --for 1h --agent A/B",
            "show nothing-such",
            "new",
        )
    }

    assert {words: said.code for words, said in answers.items()} == {
        "new --for 8d": 2,
        "new --for soon": 2,
        "new --for 1s": 2,
        "new --for 1h --agent A/B": 2,
        "show nothing-such": 3,
        "new": 2,
    }


def test_a_pending_question_is_listed_with_its_agent_and_folder(desk: Desk) -> None:
    """The list and the question show them; a pipe gets the session."""
    desk.daemon.unlock()
    desk.daemon.install_probe()
    desk.daemon.bind_probe()
    desk.daemon.add_probe_action("give_back", "text:string", name="ask-first", gated=True)
    made = desk.aileron("sessions", "new", "--for", "1h", "--agent", "robot", "--json").json
    shown = {"Authorization": f"Bearer {made['token']}"}
    body = {"args": {"text": "may I"}}
    desk.daemon.agent.request("POST", "/v1/actions/ask-first/run", body=body, headers=shown)
    local = desk.daemon.agent.request("POST", "/v1/actions/ask-first/run", body=body)
    (question,) = [each for each in desk.daemon.must("GET", "/v1/action-approvals")["approvals"] if each.get("agent")]
    name = question["approval_id"]

    assert local.status == 202
    assert (question["session"], question["agent"], question["folder"]) == (made["id"], "robot", str(desk.folder))
    assert "robot" in desk.at_terminal("approval", "list", NO_COLOR="1").out
    told = desk.at_terminal("approval", "show", name, NO_COLOR="1").out
    assert f"asked by robot in {desk.folder}" in " ".join(told.split())
    assert f"session\t{made['id']}" in desk.aileron("approval", "show", name).out
