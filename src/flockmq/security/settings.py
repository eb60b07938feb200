"""What can be set about which clients may connect and what they may do: the ``[security]`` section of a configuration.

Flat and plain on purpose, so that every field is also an environment variable and costs no import of cryptography.
An empty file name means that this way in does not exist; a file that is named must be usable, or nothing starts.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from flockmq.errors import ConfigError

_AT_LEAST_ONE = ("hash_queue_max", "hash_queue_per_peer_max", "failed_logins_tracked_max")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """Ways to log in, what clients may do then, and what a login may cost."""

    allow_anonymous: bool = False
    """Let clients in that bring no credentials. They have no user name: rules for ``user:`` never fit them. Where
    passwords or tokens are set up, too, a client that does bring credentials must bring the right ones."""
    password_file: str = ""
    """Users and their argon2id hashes, written by ``flockmq passwd``."""
    scram: bool = True
    """Offer SCRAM-SHA-256 (MQTT 5 enhanced authentication) to the users of the password file. The password then never
    crosses the network, at the price of a second key in the file that is cheaper to guess against than argon2id."""
    use_certificate_as_username: bool = True
    """Take the common name of a verified client certificate as user name, and ask for no password then. Turn it off
    where certificates only guard the line and users log in behind them."""
    superusers: tuple[str, ...] = ()
    """Users that no rule binds, ``$SYS/#`` included. Only a proved name counts."""
    acl_file: str = ""
    """Rules about which clients may publish and subscribe to what. Without it the rules of the cluster
    hold (``flockmq acl``); without those, too, every client that is let in may do everything except read or write
    ``$SYS/#``."""

    jwt_secret_file: str = ""
    """Shared secret of HS256, HS384 and HS512 tokens: all bytes of the file except a line end at its end, at least 32.
    A program that can verify such a token can also make one; prefer a public key when another system issues them."""
    jwt_public_key_file: str = ""
    """Public key (or certificate) in PEM that RS or ES tokens are verified with."""
    jwt_jwks_file: str = ""
    """JSON Web Key Set; a token names its key by ``kid``, so that keys can be exchanged without a gap."""
    jwt_issuer: str = ""
    """What the claim ``iss`` must be; empty accepts any."""
    jwt_audience: str = ""
    """What the claim ``aud`` must be or hold; empty accepts any. Set it where one issuer serves several systems."""
    jwt_verify_claims: tuple[str, ...] = ()
    """Claims that must have a value, as ``claim=value``; ``%u`` is the user name and ``%c`` the client id that the
    client sent. ``sub=%c`` ties a token to one client id, so that a stolen one can't take over other sessions."""
    jwt_username_claim: str = "sub"
    """The claim that becomes the user name. What the client sent as user name is not believed."""
    jwt_acl_claim: str = "acl"
    """The claim that brings a token's own rights; where a token has it, the ACL file is not asked. Empty ignores it."""
    jwt_require_expiry: bool = True
    """Refuse tokens without ``exp``. Without it a token that leaks is good until its key is exchanged."""
    jwt_leeway_s: int = 0
    """How far the clocks of issuer and broker may differ. Tokens live longer by as much."""

    hash_threads: int = 0
    """Threads that check passwords; 0: one for each core but one, which the broker needs, and 4 at most. Each needs the
    memory of one argon2id hash (64 MiB as ``flockmq passwd`` makes them) and takes a core while it works; more let a
    fleet in sooner after a restart."""
    hash_queue_max: int = 256
    """Most logins waiting for those threads. Addresses take turns in that queue, and a client that is gone loses its
    place. When it is full, the address with the most logins in it gives way to another, else the newcomer is told
    that the server is busy. Longer than clients wait is too long."""
    hash_queue_per_peer_max: int = 64
    """Most logins of one address in that queue. An IPv6 address counts by its /64."""
    login_cache_max: int = 10_000
    """Logins remembered (under a key that only this process knows), so that a client that comes back costs no hashing.
    0 turns it off."""
    login_cache_ms: int = 900_000
    """How long a login is remembered. A new password or a deleted user counts once the file is read again, in any
    case."""

    failed_logins_per_peer_max: int = 20
    """Failed logins within the window after which an address is refused; 0 never does. An IPv6 address counts by its
    /64. Logins that are remembered (``login_cache_max``) are still let in from there. Behind a load balancer use PROXY
    protocol, or all clients share one address."""
    failed_logins_per_username_max: int = 100
    """Failed logins within the window after which a user name is refused to every address that failed within it, too;
    0 never does. From another address its user may still log in, so that strangers can't lock a user out."""
    failed_logins_window_ms: int = 60_000
    """Over how long failed logins are counted."""
    failed_logins_ban_ms: int = 60_000
    """How long the refusal lasts."""
    failed_logins_tracked_max: int = 10_000
    """Most addresses, and most user names, whose failures are counted; those that failed longest ago are forgotten."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 1 if field.name in _AT_LEAST_ONE else 0
            if isinstance(value, int) and value < least:
                raise ConfigError(f"security.{field.name} is {value}; it must be {least} or more.")
        for check in self.jwt_verify_claims:
            claim, separator, expected = check.partition("=")
            if not (claim and separator and expected) or ("%" in expected and expected not in ("%u", "%c")):
                raise ConfigError(
                    f"security.jwt_verify_claims holds {check!r}; write claim=value, where the value is %u (the user "
                    "name), %c (the client id) or a text without %."
                )
        if self.jwt_verify_claims and not self.has_jwt:
            raise ConfigError(
                "security.jwt_verify_claims is set and no key to verify tokens with; set security.jwt_jwks_file, "
                "jwt_public_key_file or jwt_secret_file."
            )

    @property
    def has_jwt(self) -> bool:
        """Whether tokens are a way in."""
        return bool(self.jwt_secret_file or self.jwt_public_key_file or self.jwt_jwks_file)
