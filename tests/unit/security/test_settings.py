from __future__ import annotations

from typing import Any

import pytest

from flockmq.errors import ConfigError
from flockmq.security.settings import SecuritySettings


def test_by_default_nobody_comes_in() -> None:
    settings = SecuritySettings()
    assert not settings.allow_anonymous
    assert not settings.has_jwt
    assert settings.jwt_require_expiry


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hash_threads": -1}, "security.hash_threads is -1; it must be 0 or more"),
        ({"hash_queue_max": 0}, "hash_queue_max"),
        ({"login_cache_ms": -1}, "login_cache_ms is -1; it must be 0 or more"),
        ({"jwt_verify_claims": ("sub",), "jwt_secret_file": "x"}, "jwt_verify_claims holds 'sub'"),
        ({"jwt_verify_claims": ("=%u",), "jwt_secret_file": "x"}, "jwt_verify_claims holds"),
        ({"jwt_verify_claims": ("sub=",), "jwt_secret_file": "x"}, "jwt_verify_claims holds"),
        ({"jwt_verify_claims": ("sub=%x",), "jwt_secret_file": "x"}, "jwt_verify_claims holds"),
        ({"jwt_verify_claims": ("sub=a-%u",), "jwt_secret_file": "x"}, "jwt_verify_claims holds"),
        ({"jwt_verify_claims": ("sub=%u",)}, "no key to verify tokens with"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SecuritySettings(**settings)
