from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from flockmq.errors import ConfigError
from flockmq.security.hashing import verify
from flockmq.security.passwords import HashCost, delete_user, load_users, parse_secret, read_secrets, set_password
from flockmq.security.scram import ScramServer
from scram_client import ScramClient

HASH = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHRzb21lc2FsdA$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g"
KEY = "A" * 43 + "="
SCRAM = f"$scram-sha-256$i=4096$c29tZXNhbHRzb21lc2FsdA==${KEY}${KEY}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "passwords"


def test_a_password_set_is_a_password_that_fits(file: Path, cheap: HashCost) -> None:
    assert set_password(file, "alice", b"wonder\xffland", cost=cheap, scram_iterations=0)
    user = load_users(file).get("alice")
    assert user is not None
    assert verify(user.password_hash, b"wonder\xffland")
    assert not verify(user.password_hash, b"wonder\xffland ")
    assert user.scram is None


def test_scram_keys_of_the_file_work(file: Path, cheap: HashCost) -> None:
    set_password(file, "alice", "wönderland", cost=cheap, scram_iterations=4_096)
    user = load_users(file).get("alice")
    assert user is not None
    keys = user.scram
    assert keys is not None
    server = ScramServer(lambda _name: keys, "SERVER")
    client = ScramClient("alice", "wönderland", "CLIENT")
    client.verify(server.final(client.respond(server.first(client.first()))))


def test_a_changed_password_replaces_its_line_only(file: Path, cheap: HashCost) -> None:
    file.write_text(f"# staff\nbob:{HASH}\n\nalice:{HASH}\n# end")
    assert not set_password(file, "alice", b"new", cost=cheap, scram_iterations=0)
    before, after = f"# staff\nbob:{HASH}\n\nalice:", "\n# end\n"
    text = file.read_text()
    assert text.startswith(before)
    assert text.endswith(after)
    assert HASH not in text[len(before) :]


def test_a_deleted_user_is_gone_and_the_rest_stays(file: Path) -> None:
    file.write_text(f"# staff\nbob:{HASH}\nalice:{HASH}:{SCRAM}\n")
    delete_user(file, "alice")
    assert file.read_text() == f"# staff\nbob:{HASH}\n"
    with pytest.raises(ConfigError, match="has no user 'alice'"):
        delete_user(file, "alice")
    with pytest.raises(ConfigError, match="last user"):
        delete_user(file, "bob")


def test_the_file_is_private_whatever_it_was_before(file: Path, cheap: HashCost) -> None:
    set_password(file, "alice", b"x", cost=cheap, scram_iterations=0)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    set_password(file, "alice", b"y", cost=cheap, scram_iterations=0)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_link_stays_a_link(tmp_path: Path, cheap: HashCost) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text(f"bob:{HASH}\n")
    link.symlink_to(real)
    set_password(link, "alice", b"x", cost=cheap, scram_iterations=0)
    assert link.is_symlink()
    assert len(load_users(real)) == 2


def test_writers_at_once_all_get_their_user_in(file: Path, cheap: HashCost) -> None:
    names = [f"user{number}" for number in range(12)]
    threads = [
        threading.Thread(target=set_password, args=(file, name, b"x"), kwargs={"cost": cheap, "scram_iterations": 0})
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    users = load_users(file)
    assert all(users.get(name) for name in names)
    assert [path.name for path in file.parent.iterdir()] == ["passwords"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(file: Path, cheap: HashCost) -> None:
    file.write_text(f"bob:{HASH}\nbroken\n")
    with pytest.raises(ConfigError, match="line 2"):
        set_password(file, "alice", b"x", cost=cheap, scram_iterations=0)
    assert file.read_text() == f"bob:{HASH}\nbroken\n"
    assert [path.name for path in file.parent.iterdir()] == ["passwords"]


@pytest.mark.parametrize("name", ["", "a:b", "a\nb", "a\x00b", "#alice", " alice", "alice ", "a\u2028b", "a\x7fb"])
def test_names_that_are_refused(file: Path, cheap: HashCost, name: str) -> None:
    with pytest.raises(ConfigError, match="user name"):
        set_password(file, name, b"x", cost=cheap, scram_iterations=0)
    assert not file.exists()


@pytest.mark.parametrize("name", ["alice", "a b", "Jürgen", "plant/7", "a$b", "ali#ce", "日本"])
def test_names_that_are_fine(file: Path, cheap: HashCost, name: str) -> None:
    set_password(file, name, b"x", cost=cheap, scram_iterations=4_096)
    assert load_users(file).get(name) is not None


@pytest.mark.parametrize(
    ("password", "scram_iterations", "message"),
    [
        (b"", 0, "empty"),
        (b"x" * 5_000, 0, "longer than"),
        (b"\xff", 4_096, "SCRAM .*not UTF-8"),
        (b"bell\x07", 4_096, "SCRAM"),
        (b"x", 100, "4096"),
    ],
)
def test_passwords_that_are_refused(
    file: Path, cheap: HashCost, password: bytes, scram_iterations: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        set_password(file, "alice", password, cost=cheap, scram_iterations=scram_iterations)
    assert "bell" not in str(caught.value)


def test_a_name_that_scram_would_spell_otherwise_is_refused(file: Path, cheap: HashCost) -> None:
    with pytest.raises(ConfigError, match="'IX'"):
        set_password(file, "Ⅸ", b"x", cost=cheap)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no users"),
        ("# only a comment\n\n", "no users"),
        ("alice\n", "line 1 is not of the form"),
        (f"# c\nalice:{HASH}:{SCRAM}:more\n", "line 2 is not of the form"),
        (f"alice:{HASH}\nbob:{HASH}\nalice:{HASH}\n", "line 3: the user 'alice' is already in line 1"),
        (f":{HASH}\n", "line 1: the user name '' is empty"),
        (f" alice:{HASH}\n", "line 1: the user name ' alice'"),
        ("alice:plain\n", "line 1: the hash of 'alice' is not an argon2id hash"),
        ("alice:\n", "not an argon2id hash"),
        (f"alice:{HASH.replace('argon2id', 'argon2i')}\n", "not an argon2id hash"),
        (f"alice:{HASH.replace('v=19', 'v=16')}\n", "not an argon2id hash"),
        (f"alice:{HASH.replace('m=8,', 'm=4294967295,')}\n", "cost"),
        (f"alice:{HASH.replace('t=1', 't=0')}\n", "cost"),
        (f"alice:{HASH.replace('t=1', 't=4000000000')}\n", "cost"),
        (f"alice:{HASH.replace('m=8,t=1', 'm=1048576,t=17')}\n", "cost"),
        (f"alice:{HASH.replace('p=1', 'p=999')}\n", "cost"),
        (f"alice:{HASH[:-2]}\n", "cut off"),
        (f"alice:{HASH}:\n", "SCRAM keys of 'alice' are malformed"),
        (f"alice:{HASH}:{SCRAM.replace('4096', '10')}\n", "SCRAM keys"),
        (f"alice:{HASH}:{SCRAM[:-8]}\n", "SCRAM keys"),
        (f"alice:{HASH}:{SCRAM.replace('A=', '!=')}\n", "SCRAM keys"),
    ],
)
def test_files_that_are_refused_with_the_place(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_users(file)
    assert str(file) in str(caught.value)
    assert "argon2id$v" not in str(caught.value), "hashes are not for logs"


def test_a_file_that_is_not_there_or_not_text_is_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        load_users(file)
    file.write_bytes(f"alice:{HASH}\n".encode() + b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"not UTF-8 text \(line 2\)"):
        load_users(file)


def test_line_ends_and_byte_order_marks_of_other_systems_are_fine(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf# c\r\nalice:" + HASH.encode() + b"\r\n")
    assert load_users(file).get("alice") is not None


def test_an_unknown_user_costs_what_most_users_cost(file: Path) -> None:
    costly = HASH.replace("m=8", "m=16")
    file.write_text(f"a:{HASH}\nb:{costly}\nc:{costly}\n")
    assert load_users(file).dummy_hash.startswith("$argon2id$v=19$m=16,t=1,p=1$")
    assert not verify(load_users(file).dummy_hash, b"x")


def test_nothing_secret_is_shown(file: Path) -> None:
    file.write_text(f"alice:{HASH}:{SCRAM}\n")
    users = load_users(file)
    shown = repr(users) + repr(users.get("alice"))
    assert "argon2" not in shown
    assert "AAAA" not in shown


def test_secrets_are_what_stands_behind_the_names(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    set_password(path, "alice", b"x", cost=HashCost(1, 8, 1))
    set_password(path, "acme/bob", b"y", cost=HashCost(1, 8, 1), scram_iterations=0)
    secrets = read_secrets(path)
    assert path.read_text().splitlines()[1:] == [f"{name}:{secret}" for name, secret in secrets.items()]
    assert [parse_secret(name, secret).scram is None for name, secret in secrets.items()] == [False, True]
    path.write_text("alice:plain\n")
    with pytest.raises(ConfigError, match="line 1"):
        read_secrets(path)
