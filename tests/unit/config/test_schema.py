from __future__ import annotations

import pytest

from flockmq.config.schema import KEYS, Key


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("jwt_secret", True),
        ("password", True),
        ("token", True),
        ("password_file", False),
        ("packet_bytes_max", False),
        ("failed_logins_per_username_max", False),
    ],
)
def test_which_values_are_not_for_showing(name: str, secret: bool) -> None:
    assert Key(("x", name), str, "").secret is secret


def test_no_setting_holds_a_secret_itself() -> None:
    """Secrets stand in files of their own: a setting ends in `config show`, in process lists and in unit files."""
    assert [path for path, key in KEYS.items() if key.secret] == []


@pytest.mark.parametrize("text", ["true", "Yes", "on", "1"])
def test_yes(text: str) -> None:
    assert Key(("x", "y"), bool, False).convert(text) is True


@pytest.mark.parametrize("text", ["false", "No", "OFF", "0"])
def test_no(text: str) -> None:
    assert Key(("x", "y"), bool, True).convert(text) is False


def test_lists() -> None:
    key = Key(("x", "y"), tuple[str, ...], ())
    assert key.convert("a, b,") == ("a", "b")
    assert key.convert(["a", "b"]) == ("a", "b")
    assert key.convert("") == ()
